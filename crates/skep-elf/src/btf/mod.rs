//! Type information in the BPF Type Format: the `.BTF` section.
//!
//! ```text
//!  +--------+-------------------------------+-------------------------------+
//!  | header | types: 1, 2, 3, ... (12 bytes | strings: each ends with NUL,  |
//!  |        | and a tail by kind)           | the first is empty            |
//!  +--------+-------------------------------+-------------------------------+
//! ```
//!
//! Types refer to types by number and to strings by offset, both as the file pleases. What is read once is
//! where each type starts, four bytes for at least twelve in the file. Everything else is read on demand and
//! checked then: a missing number is an error, and no walk along types is longer than [`MAX_CHAIN`].
//!
//! The format is specified in the Linux documentation, "BPF Type Format (BTF)".

mod ext;
mod names;
mod types;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use ext::{Block, Ext};
pub(crate) use types::{DataSection, Kind, Member, Type};

use crate::elf::{Elf, Place, name_at};
use crate::error::Error;

/// The longest chain of pointers, arrays, typedefs and qualifiers that is followed.
pub(crate) const MAX_CHAIN: usize = 64;

const SECTION: &str = ".BTF";
const MAGIC: u16 = 0xeb9f;

/// The types and strings of an object.
#[derive(Debug)]
pub(crate) struct Btf {
    bytes: Arc<[u8]>,
    /// Where the section starts in the file.
    section: usize,
    /// Where the types are in the file.
    types: Range<usize>,
    /// Where the strings are in the file.
    strings: Range<usize>,
    /// Where each type starts, from the start of the types; the first is type 1.
    starts: Vec<u32>,
    /// What the linker adds to the words at these offsets in the section: values of symbols. Ascending.
    relocated: Vec<(u64, u32)>,
    /// The type of each section with variables, by its name.
    data_sections: HashMap<Box<str>, u32>,
}

impl Btf {
    /// Finds the types in section number `section` of the file.
    pub(crate) fn parse(elf: &Elf, section: usize) -> Result<Self, Error> {
        let range = elf.sections[section].data.clone();
        let header = Header::parse(&elf.bytes()[range.clone()], SECTION)?;
        let types = header.part(0, range.clone(), "the types lie beyond the section")?;
        let strings = header.part(8, range.clone(), "the strings lie beyond the section")?;
        let mut btf = Self {
            bytes: elf.bytes().clone(),
            section: range.start,
            types,
            strings,
            starts: Vec::new(),
            relocated: relocated(elf, section),
            data_sections: HashMap::new(),
        };
        btf.index()?;
        Ok(btf)
    }

    /// The type of that number; 0 is `void`.
    pub(crate) fn ty(&self, id: u32) -> Result<Type<'_>, Error> {
        let Some(index) = id.checked_sub(1) else { return Ok(Type::VOID) };
        let start = *self.starts.get(index as usize).ok_or(Error::BtfTypeMissing { id })?;
        Ok(self.type_at(start as usize)?.0)
    }

    /// The type behind typedefs and qualifiers, with its number.
    pub(crate) fn plain(&self, id: u32) -> Result<(u32, Type<'_>), Error> {
        let mut at = id;
        for _ in 0..MAX_CHAIN {
            let ty = self.ty(at)?;
            if !ty.kind.is_modifier() {
                return Ok((at, ty));
            }
            at = ty.word;
        }
        Err(Error::BtfTypeEndless { id })
    }

    /// The size of a type in bytes.
    pub(crate) fn size(&self, id: u32) -> Result<u32, Error> {
        let mut at = id;
        let mut count = 1u64;
        for _ in 0..MAX_CHAIN {
            let (_, ty) = self.plain(at)?;
            let one = match ty.kind {
                Kind::Array => {
                    let (element, elements) = ty.array();
                    // Both factors stay below 2^32: the product is checked after each step.
                    count *= u64::from(elements);
                    if count > u64::from(u32::MAX) {
                        return Err(Error::BtfTypeUnsized { id });
                    }
                    at = element;
                    continue;
                }
                Kind::Ptr => 8,
                kind if kind.has_size() => ty.word,
                _ => return Err(Error::BtfTypeUnsized { id }),
            };
            let size = count.saturating_mul(one.into());
            return u32::try_from(size).map_err(|_| Error::BtfTypeUnsized { id });
        }
        Err(Error::BtfTypeEndless { id })
    }

    /// The string at an offset: a name.
    pub(crate) fn name(&self, offset: u32) -> Result<&str, Error> {
        name_at(&self.bytes[self.strings.clone()], offset)
            .map_err(|reason| self.damaged(self.strings.start + offset as usize, reason))
    }

    /// Every string, for those who read many.
    pub(crate) fn strings(&self) -> &[u8] {
        &self.bytes[self.strings.clone()]
    }

    /// The variables of the section of that name.
    pub(crate) fn data_section(&self, name: &str) -> Result<Option<DataSection<'_>>, Error> {
        match self.data_sections.get(name) {
            Some(&id) => Ok(Some(DataSection::new(self, self.ty(id)?))),
            None => Ok(None),
        }
    }

    /// Finds where each type starts.
    fn index(&mut self) -> Result<(), Error> {
        let mut at = 0;
        let mut starts = Vec::with_capacity(self.types.len() / 16);
        let mut data_sections = HashMap::new();
        while at < self.types.len() {
            let (ty, next) = self.type_at(at)?;
            // No file is so large that its types are numbered beyond 32 bits and yet passed the header,
            // whose lengths have 32 bits.
            starts.push(at as u32);
            if ty.kind == Kind::Datasec {
                data_sections.entry(self.name(ty.name)?.into()).or_insert(starts.len() as u32);
            }
            at = next;
        }
        self.starts = starts;
        self.data_sections = data_sections;
        Ok(())
    }

    /// The type that starts `at` bytes into the types, and where the next one does.
    fn type_at(&self, at: usize) -> Result<(Type<'_>, usize), Error> {
        let offset = self.types.start + at;
        let types = &self.bytes[..self.types.end];
        let cut = |reason| self.damaged(offset, reason);
        let head = types.get(offset..offset + 12).ok_or_else(|| cut("a type is cut off"))?;
        let info = u32_at(head, 4);
        let kind = Kind::from_number(info >> 24 & 0x1f).ok_or_else(|| cut("a type is of an unknown kind"))?;
        let count = info & 0xffff;
        let end = offset + 12 + kind.tail_bytes(count as usize);
        let tail = types.get(offset + 12..end).ok_or_else(|| cut("a type is cut off"))?;
        let ty = Type {
            kind,
            name: u32_at(head, 0),
            flag: info >> 31 != 0,
            word: u32_at(head, 8),
            tail,
            tail_at: (offset + 12 - self.section) as u64,
        };
        Ok((ty, end - self.types.start))
    }

    /// What the linker adds to the word at that offset in the section.
    fn relocation(&self, offset: u64) -> u32 {
        match self.relocated.binary_search_by_key(&offset, |&(offset, _)| offset) {
            Ok(index) => self.relocated[index].1,
            Err(_) => 0,
        }
    }

    /// An error at a place in the file.
    fn damaged(&self, at: usize, reason: &'static str) -> Error {
        Error::BtfDamaged { section: SECTION, offset: at - self.section, reason }
    }
}

/// What `.BTF` and `.BTF.ext` begin with: magic, version, flags, the header's length, then pairs of offset
/// and length, counted from the header's end.
struct Header<'a> {
    section: &'static str,
    bytes: &'a [u8],
}

impl<'a> Header<'a> {
    fn parse(bytes: &'a [u8], section: &'static str) -> Result<Self, Error> {
        let bad = |offset, reason| Error::BtfDamaged { section, offset, reason };
        let head = bytes.get(..8).ok_or(bad(bytes.len(), "the header is cut off"))?;
        match u16::from_le_bytes([head[0], head[1]]) {
            MAGIC => {}
            magic if magic == MAGIC.swap_bytes() => return Err(bad(0, "it is big-endian")),
            _ => return Err(bad(0, "it does not begin with 9f eb")),
        }
        if head[2] != 1 {
            return Err(bad(2, "its version is not 1"));
        }
        let length = u32_at(head, 4) as usize;
        match bytes.get(..length) {
            Some(bytes) if length >= 24 => Ok(Self { section, bytes }),
            _ => Err(bad(4, "the length of its header is impossible")),
        }
    }

    /// The part whose offset and length stand `at` bytes after the common fields; empty where the header is
    /// too short to speak of it. `range` is the section's place in the file.
    fn part(&self, at: usize, range: Range<usize>, reason: &'static str) -> Result<Range<usize>, Error> {
        let at = at + 8;
        if self.bytes.len() < at + 8 {
            return Ok(range.end..range.end);
        }
        let base = range.start as u64 + self.bytes.len() as u64;
        let start = base + u64::from(u32_at(self.bytes, at));
        let end = start + u64::from(u32_at(self.bytes, at + 4));
        if end > range.end as u64 {
            return Err(Error::BtfDamaged { section: self.section, offset: at, reason });
        }
        // At most the end of the section, which is an index.
        Ok(start as usize..end as usize)
    }
}

/// Reads a word whose presence the caller has seen to.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// What relocations add to words of the section. All kinds that clang writes there mean "symbol plus what
/// stands in the word"; a symbol that is not defined here counts as zero, for such variables are extern.
fn relocated(elf: &Elf, section: usize) -> Vec<(u64, u32)> {
    let relocations = &elf.sections[section].relocations;
    let add = |relocation| {
        let symbol = elf.target(relocation);
        match symbol.place {
            Place::Section(_) => symbol.value as u32,
            _ => 0,
        }
    };
    relocations.iter().map(|relocation| (relocation.offset, add(relocation))).collect()
}
