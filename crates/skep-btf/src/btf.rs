//! The types of a file: found, numbered, measured.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::error::Error;
use crate::header::{Header, u32_at};
use crate::index::Names;
use crate::strings::string_at;
use crate::tags::DeclTags;
use crate::types::{Kind, Type};

/// The longest chain of pointers, arrays, typedefs and qualifiers that is followed.
pub const MAX_CHAIN: usize = 64;

pub(crate) const SECTION: &str = ".BTF";

/// Bytes that every type begins with: name, kind and count, size or type.
const HEAD: usize = 12;

/// Types and their names. Type 0 is `void` everywhere.
pub struct Btf {
    bytes: Arc<[u8]>,
    /// Where the section starts in the bytes.
    section: usize,
    /// Where the types are in the bytes.
    types: Range<usize>,
    /// Where the strings are in the bytes.
    strings: Range<usize>,
    /// Where each type starts, from the start of the types.
    starts: Vec<u32>,
    /// What it continues: its types and strings come first in numbers and offsets.
    base: Option<Arc<Btf>>,
    /// The number of the first type of its own.
    first: u32,
    /// The offset of the first string of its own.
    first_string: u32,
    pub(crate) names: OnceLock<Names>,
    pub(crate) decl_tags: OnceLock<DeclTags>,
}

impl Btf {
    /// Finds the types in a raw BTF file, as the running system offers it, or in an ELF file with a section
    /// `.BTF`. Relocations of that section are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] and [`Error::Elf`].
    pub fn parse(bytes: impl Into<Arc<[u8]>>) -> Result<Self, Error> {
        Self::find_types(bytes.into(), None)
    }

    /// The same for a file that continues another, as the BTF of kernel modules continues the kernel's.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] and [`Error::Elf`].
    pub fn parse_split(bytes: impl Into<Arc<[u8]>>, base: Arc<Self>) -> Result<Self, Error> {
        Self::find_types(bytes.into(), Some(base))
    }

    fn find_types(bytes: Arc<[u8]>, base: Option<Arc<Self>>) -> Result<Self, Error> {
        let section = if bytes.starts_with(b"\x7fELF") { elf_section(&bytes)? } else { 0..bytes.len() };
        let header = Header::parse(&bytes[section.clone()], SECTION)?;
        let place = |part: Range<usize>| section.start + part.start..section.start + part.end;
        let types = place(header.part(0, "the types lie beyond the section")?);
        let strings = place(header.part(8, "the strings lie beyond the section")?);
        if base.is_none() && bytes[strings.clone()].first().is_some_and(|first| *first != 0) {
            let reason =
                "the first string is not empty: these are a module's types, which need the kernel's first";
            return Err(Error::Damaged { section: SECTION, offset: strings.start - section.start, reason });
        }
        let after = |a: u32, b: usize| u32::try_from(b).ok().and_then(|b| a.checked_add(b));
        let (first, first_string) = match &base {
            Some(base) => (
                after(base.first, base.starts.len()),
                after(base.first_string, base.strings.end - base.strings.start),
            ),
            None => (Some(1), Some(0)),
        };
        let (Some(first), Some(first_string)) = (first, first_string) else {
            let reason = "what it continues leaves it no numbers";
            return Err(Error::Damaged { section: SECTION, offset: 0, reason });
        };
        let mut btf = Self {
            section: section.start,
            types,
            strings,
            starts: Vec::new(),
            base,
            first,
            first_string,
            names: OnceLock::new(),
            decl_tags: OnceLock::new(),
            bytes,
        };
        btf.starts = btf.index()?;
        Ok(btf)
    }

    /// The bytes of the section, without those of what it continues.
    pub fn bytes(&self) -> &[u8] {
        // What follows the section in an ELF file is not told: strings or types end it.
        let end = self.types.end.max(self.strings.end);
        let end = if self.section == 0 { self.bytes.len() } else { end };
        self.bytes.get(self.section..end).unwrap_or_default()
    }

    /// The number of types, `void` and those of a base included: every number below is a type's.
    pub fn len(&self) -> u32 {
        // The starts are offsets of 32 bits, at least 12 apart; the sum was checked for those that follow it.
        self.first.saturating_add(self.starts.len() as u32)
    }

    /// Whether there is no type but `void`.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// The types of this file, without those of a base, in the order of their numbers.
    pub fn own_types(&self) -> impl Iterator<Item = Type<'_>> {
        (self.first..self.len()).filter_map(|id| self.ty(id).ok())
    }

    /// The type of that number; 0 is `void`.
    ///
    /// # Errors
    ///
    /// [`Error::TypeMissing`].
    pub fn ty(&self, id: u32) -> Result<Type<'_>, Error> {
        if id == 0 {
            return Ok(Type::void(self));
        }
        match (id.checked_sub(self.first), &self.base) {
            (Some(index), _) => {
                let start = *self.starts.get(index as usize).ok_or(Error::TypeMissing { id })?;
                Ok(Type { btf: self, id, ..self.type_at(start as usize)?.0 })
            }
            (None, Some(base)) => Ok(Type { btf: self, ..base.ty(id)? }),
            (None, None) => Err(Error::TypeMissing { id }),
        }
    }

    /// The type behind typedefs, qualifiers and type tags.
    ///
    /// # Errors
    ///
    /// [`Error::TypeMissing`] and [`Error::Endless`].
    pub fn resolve(&self, id: u32) -> Result<Type<'_>, Error> {
        let mut at = id;
        for _ in 0..MAX_CHAIN {
            let ty = self.ty(at)?;
            if !ty.kind.is_modifier() {
                return Ok(ty);
            }
            at = ty.word;
        }
        Err(Error::Endless { id })
    }

    /// The size of a type in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsized`], [`Error::TypeMissing`] and [`Error::Endless`].
    pub fn size(&self, id: u32) -> Result<u32, Error> {
        let mut at = id;
        let mut count = 1u64;
        for _ in 0..MAX_CHAIN {
            let ty = self.resolve(at)?;
            let one = match ty.array() {
                Some(array) => {
                    // Both factors stay below 2^32: the product is checked after each step.
                    count *= u64::from(array.count);
                    if count > u64::from(u32::MAX) {
                        return Err(Error::Unsized { id });
                    }
                    at = array.element;
                    continue;
                }
                None => ty.size().ok_or(Error::Unsized { id })?,
            };
            let size = count.saturating_mul(one.into());
            return u32::try_from(size).map_err(|_| Error::Unsized { id });
        }
        Err(Error::Endless { id })
    }

    /// The name of a type; empty where it has none.
    ///
    /// # Errors
    ///
    /// [`Error::TypeMissing`] and [`Error::Damaged`].
    pub fn name(&self, id: u32) -> Result<&str, Error> {
        self.ty(id)?.name()
    }

    /// The string at an offset.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn string(&self, offset: u32) -> Result<&str, Error> {
        let (btf, own) = self.string_owner(offset);
        string_at(&btf.bytes[btf.strings.clone()], own)
            .map_err(|reason| btf.damaged(btf.strings.start + own as usize, reason))
    }

    /// All bytes of the strings from this offset on, for callers whose strings are not names.
    pub fn bytes_of_string(&self, offset: u32) -> Option<&[u8]> {
        let (btf, own) = self.string_owner(offset);
        btf.bytes[btf.strings.clone()].get(own as usize..)
    }

    /// Whose string it is, and its offset there.
    fn string_owner(&self, offset: u32) -> (&Self, u32) {
        match (&self.base, offset.checked_sub(self.first_string)) {
            (Some(base), None) => base.string_owner(offset),
            (_, own) => (self, own.unwrap_or(offset)),
        }
    }

    /// The number of its first own type.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn base(&self) -> Option<&Self> {
        self.base.as_deref()
    }

    /// The bytes of its own types.
    pub(crate) fn own_bytes(&self) -> &[u8] {
        &self.bytes[self.types.clone()]
    }

    /// The bytes of its own strings.
    pub(crate) fn own_strings(&self) -> &[u8] {
        &self.bytes[self.strings.clone()]
    }

    /// The bytes of one of its own types.
    pub(crate) fn record(&self, id: u32) -> Result<&[u8], Error> {
        let index = id.checked_sub(self.first).map(|index| index as usize);
        let start = index.and_then(|index| self.starts.get(index)).ok_or(Error::TypeMissing { id })?;
        let end = self.type_at(*start as usize)?.1;
        Ok(&self.own_bytes()[*start as usize..end])
    }

    /// Finds where each type starts.
    fn index(&self) -> Result<Vec<u32>, Error> {
        let mut at = 0;
        let mut starts = Vec::with_capacity(self.types.len() / 40);
        while at < self.types.len() {
            // The header's lengths have 32 bits: so has every place in the types.
            starts.push(at as u32);
            at = self.type_at(at)?.1;
        }
        Ok(starts)
    }

    /// The type that starts `at` bytes into the types, and where the next one does.
    #[inline]
    fn type_at(&self, at: usize) -> Result<(Type<'_>, usize), Error> {
        let offset = self.types.start + at;
        let types = &self.bytes[..self.types.end];
        let cut = |reason| self.damaged(offset, reason);
        let head = types.get(offset..offset + HEAD).ok_or_else(|| cut("a type is cut off"))?;
        let info = u32_at(head, 4);
        let kind = Kind::from_number(info >> 24 & 0x1f).ok_or_else(|| cut("a type is of an unknown kind"))?;
        let count = info & 0xffff;
        let end = offset + HEAD + kind.tail_bytes(count as usize);
        let tail = types.get(offset + HEAD..end).ok_or_else(|| cut("a type is cut off"))?;
        let flag = info >> 31 != 0;
        let ty = Type {
            btf: self,
            id: 0,
            kind,
            name_at: u32_at(head, 0),
            flag,
            count,
            word: u32_at(head, 8),
            tail,
        };
        Ok((ty, end - self.types.start))
    }

    /// An error at a place in the bytes.
    fn damaged(&self, at: usize, reason: &'static str) -> Error {
        Error::Damaged { section: SECTION, offset: at - self.section, reason }
    }
}

impl fmt::Debug for Btf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.types.len() + self.strings.len();
        f.debug_struct("Btf").field("types", &self.len()).field("bytes", &bytes).finish_non_exhaustive()
    }
}

/// Where `.BTF` is in an ELF file.
fn elf_section(bytes: &[u8]) -> Result<Range<usize>, Error> {
    use object::{Object, ObjectSection};
    let unreadable = |reason: String| Error::Elf { reason };
    let file = object::File::parse(bytes).map_err(|error| unreadable(error.to_string()))?;
    let section = file.section_by_name(SECTION).ok_or_else(|| unreadable("no section .BTF".into()))?;
    let range = section.file_range().ok_or_else(|| unreadable("section .BTF is empty".into()))?;
    let end = range.0.checked_add(range.1).filter(|&end| end <= bytes.len() as u64);
    match end {
        // Both are at most a length of memory.
        Some(end) => Ok(range.0 as usize..end as usize),
        None => Err(unreadable("section .BTF lies beyond the file's end".into())),
    }
}
