//! Program types of a host's own: a description, laid out by C's rules, as a table for the verifier.
//!
//! ```text
//!   description ──C's rules──> offsets ──> ContextLayout of the context, one of each structure it leads to (verifier)
//!                                  '─────> slots (what is lent before each run)
//!                                  '─────> BTF (CO-RE), C header (authors of programs)
//! ```
//!
//! The tables are made together and never change, so they cannot disagree. They live as long as the process, like those
//! of Linux's types: programs name their type by its address. A structure that a context leads to twice has two tables,
//! with slices of their own, since the end of one slice says nothing of another.

use super::btf;
use super::describe::{FieldType, HostContext, HostStruct, StructType, Verdict};
use super::lend::{Slot, SlotKind};
use crate::error::Error;
use skep_abi::{
    Context, ContextField, ContextLayout, FieldKind, Native, Parts, ProgramType, RAW, Results, StructKind,
};
use skep_btf::Btf;
use skep_isa::Size;
use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The most bytes of a context with all that is lent with it, but for bytes behind pointers: accesses have 16-bit
/// offsets.
const MAX_BYTES: u32 = 16 << 10;

/// A program type that a host has described.
#[derive(Debug)]
pub struct HostType {
    program_type: &'static ProgramType,
    description: StructType,
    section: String,
    verdict: VerdictType,
    slots: Vec<Slot>,
    /// Bytes of the context and of the structures that it leads to.
    bytes: u32,
    btf: Arc<Btf>,
}

/// The results of a program type: an enum, or any number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerdictType {
    /// The enum's name in C; empty without one, as for `bool` and where every number is allowed.
    pub name: String,
    /// Names and numbers.
    pub values: Vec<(String, i32)>,
}

/// The types that were made, the oldest first.
static KNOWN: Mutex<Vec<&'static HostType>> = Mutex::new(Vec::new());

/// Types of Rust structures, by [`HostContext::Kind`]; or why there is none.
static BY_KIND: Mutex<Option<HashMap<TypeId, Result<&'static HostType, String>>>> = Mutex::new(None);

impl HostType {
    /// The program type of a Rust structure. It is made once and lives as long as the process.
    ///
    /// # Errors
    ///
    /// [`Error::HostType`] if it cannot be described in C, or its section is one of Linux's.
    pub fn of<C: HostContext>() -> Result<&'static Self, Error> {
        let key = TypeId::of::<C::Kind>();
        let find = |known: &mut Option<HashMap<_, _>>| known.get_or_insert_default().get(&key).cloned();
        let found = find(&mut BY_KIND.lock().unwrap_or_else(PoisonError::into_inner));
        let made = found.unwrap_or_else(|| {
            // Without the lock: `describe` is the host's.
            let values = <C::Kind as HostContext>::Verdict::VALUES;
            let verdict = VerdictType {
                name: <C::Kind as HostContext>::Verdict::NAME.to_owned(),
                values: values.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(),
            };
            let made = Self::build(StructType::of::<C::Kind>(), <C::Kind as HostContext>::SECTION, verdict);
            let mut known = BY_KIND.lock().unwrap_or_else(PoisonError::into_inner);
            // Another thread may have been quicker.
            known.get_or_insert_default().entry(key).or_insert(made).clone()
        });
        made.map_err(|why| Error::HostType { name: C::Kind::NAME.to_owned(), why })
    }

    /// A program type from a description that is made at run time, for hosts in other languages. It lives as long as
    /// the process, so a host makes each of its types once.
    ///
    /// # Errors
    ///
    /// As [`HostType::of`].
    pub fn new(context: StructType, section: &str, verdict: VerdictType) -> Result<&'static Self, Error> {
        let name = context.name.clone();
        Self::build(context, section, verdict).map_err(|why| Error::HostType { name, why })
    }

    fn build(context: StructType, section: &str, verdict: VerdictType) -> Result<&'static Self, String> {
        check_name(section, "section")?;
        if ProgramType::from_section(section).is_some() {
            return Err(format!("its section {section:?} is one of Linux's; take another name"));
        }
        check_verdict(&verdict)?;
        let mut placing = Placing { slots: Vec::new(), structs: Vec::new(), slices: 0, bytes: 0 };
        let layout = placing.place(&context, true, true)?;
        let btf = btf::types(&context, section, &verdict);
        let btf = Btf::parse(btf).map_err(|error| format!("its types cannot be written: {error}"))?;
        let Placing { slots, structs, bytes, .. } = placing;
        let structs = structs.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default();
        let verdicts: Vec<_> = verdict
            .values
            .iter()
            .map(|(name, value)| (i64::from(*value), leaked(&name.to_lowercase())))
            .collect();
        let (min, max) = (verdict.values.iter().map(|v| v.1).min(), verdict.values.iter().map(|v| v.1).max());
        let section_name = leaked(section);
        let program_type = &*Box::leak(Box::new(ProgramType {
            name: section_name,
            sections: vec![section_name].leak(),
            may_sleep: RAW.may_sleep,
            context: Context::Struct(layout),
            structs: structs.leak(),
            native: Some(Native::Host),
            helpers: RAW.helpers,
            results: min.zip(max).map_or(Results::Any, |(min, max)| Results::Range { min, max }),
            verdicts: verdicts.leak(),
            ..ProgramType::PLAIN
        }));
        let (section, btf) = (section.to_owned(), Arc::new(btf));
        let made = &*Box::leak(Box::new(Self {
            program_type,
            description: context,
            section,
            verdict,
            slots,
            bytes,
            btf,
        }));
        KNOWN.lock().unwrap_or_else(PoisonError::into_inner).push(made);
        Ok(made)
    }

    /// It as the verifier knows it.
    pub fn program_type(&self) -> &'static ProgramType {
        self.program_type
    }

    /// The name in `SEC("...")` of its programs.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// What the context looks like.
    pub fn description(&self) -> &StructType {
        &self.description
    }

    /// What its programs return.
    pub fn verdict(&self) -> &VerdictType {
        &self.verdict
    }

    /// Its types: programs are relocated against them (CO-RE), and [`HostType::from_btf`] reads them.
    pub fn btf(&self) -> &Arc<Btf> {
        &self.btf
    }

    /// Its fields and those of the structures that it leads to, in the order in which they are lent.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Bytes of the context and of the structures that it leads to.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether a section's name selects it: `http_filter` and `http_filter/anything`.
    pub fn has_section(&self, name: &str) -> bool {
        name.split('/').next() == Some(&*self.section)
    }
}

/// The host's type that the verifier knows as this one.
pub(crate) fn of(program_type: &ProgramType) -> Option<&'static HostType> {
    if program_type.native != Some(Native::Host) {
        return None;
    }
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.iter().copied().find(|known| std::ptr::eq(known.program_type, program_type))
}

/// Tables in the making.
struct Placing {
    slots: Vec<Slot>,
    structs: Vec<Option<&'static ContextLayout>>,
    slices: u32,
    /// Bytes that have a place.
    bytes: u32,
}

impl Placing {
    /// Gives a structure a place behind what has one, and its fields theirs. The structures that it leads to follow.
    fn place(
        &mut self,
        of: &StructType,
        writable: bool,
        root: bool,
    ) -> Result<&'static ContextLayout, String> {
        if of.endless {
            return Err(format!("struct {} contains itself, or is too deep inside of others", of.name));
        }
        check_name(&of.name, "structure")?;
        let home = self.bytes;
        let (offsets, size) = offsets(of)?;
        self.bytes = home.saturating_add(size.next_multiple_of(8));
        if self.bytes > MAX_BYTES {
            return Err(format!("it takes more than {MAX_BYTES} bytes; put large arrays behind pointers"));
        }
        let mut fields = Vec::new();
        for ((name, kind), offset) in of.fields.iter().zip(offsets) {
            self.field(&mut fields, name, kind, (home, offset), writable)?;
        }
        let name = match root {
            true => leaked(&of.name),
            false => leaked(&format!("struct {} that the context leads to", of.name)),
        };
        Ok(Box::leak(Box::new(ContextLayout { name, size, fields: fields.leak() })))
    }

    fn field(
        &mut self,
        fields: &mut Vec<ContextField>,
        name: &str,
        kind: &FieldType,
        (home, offset): (u32, u32),
        may_write: bool,
    ) -> Result<(), String> {
        let at = home + offset;
        let address = |name: &str, offset: u32, kind: FieldKind| ContextField {
            name: leaked(name),
            offset,
            size: Size::B8,
            kind,
            reads: Parts::whole(Size::B8),
            writes: Parts::NONE,
            native_offset: Some(offset),
            native_size: Size::B8,
        };
        match *kind {
            FieldType::Number { size, signed, writable } => {
                let writable = writable && may_write;
                fields.push(number(leaked(name), offset, size, writable));
                self.slots.push(Slot { at, kind: SlotKind::Numbers { size, signed, count: 1 }, writable });
            }
            FieldType::Numbers { size, signed, count, writable } => {
                let (writable, mut next) = (writable && may_write, offset);
                let name = leaked(name);
                // As large parts as their places allow, so that copies need few loads.
                while next < offset + count * size.bytes() {
                    let left = offset + count * size.bytes() - next;
                    let part = [Size::B8, Size::B4, Size::B2, Size::B1].into_iter();
                    let fits = |part: &Size| next.is_multiple_of(part.bytes()) && part.bytes() <= left;
                    let part = part.into_iter().find(fits).unwrap_or(Size::B1);
                    fields.push(number(name, next, part, writable));
                    next += part.bytes();
                }
                self.slots.push(Slot { at, kind: SlotKind::Numbers { size, signed, count }, writable });
            }
            FieldType::Slice { writable } => {
                let writable = writable && may_write;
                let slice =
                    u8::try_from(self.slices).map_err(|_| "it has more than 256 slices".to_owned())?;
                self.slices += 1;
                fields.push(address(name, offset, FieldKind::SliceData { slice, writable }));
                fields.push(address(&format!("{name}_end"), offset + 8, FieldKind::SliceEnd { slice }));
                self.slots.push(Slot { at, kind: SlotKind::Slice(slice), writable });
            }
            FieldType::Bytes { bytes, writable, nullable } => {
                let writable = writable && may_write;
                if bytes == 0 || bytes > i32::MAX as u32 >> 2 {
                    return Err(format!("its field {name} leads to {bytes} bytes; use a slice"));
                }
                fields.push(address(
                    name,
                    offset,
                    FieldKind::Memory { bytes, writable, maybe_null: nullable },
                ));
                self.slots.push(Slot { at, kind: SlotKind::Bytes { bytes, nullable }, writable });
            }
            FieldType::Struct { ref of, writable, nullable } => {
                let writable = writable && may_write;
                let index = self.structs.len();
                let number = u8::try_from(index).map_err(|_| "it has more than 256 structures".to_owned())?;
                let kind = FieldKind::Struct { kind: StructKind::Host(number), maybe_null: nullable };
                fields.push(address(name, offset, kind));
                self.structs.push(None);
                let slot = self.slots.len();
                let home = self.bytes;
                self.slots.push(Slot {
                    at,
                    kind: SlotKind::Struct { number, home, end: 0, nullable },
                    writable,
                });
                let layout = self.place(of, writable, false)?;
                self.structs[index] = Some(layout);
                let end = self.slots.len();
                self.slots[slot].kind = SlotKind::Struct { number, home, end, nullable };
            }
        }
        Ok(())
    }
}

/// The offsets of the fields by C's rules, and the structure's size.
pub(super) fn offsets(of: &StructType) -> Result<(Vec<u32>, u32), String> {
    let mut names: Vec<String> = Vec::new();
    let (mut offsets, mut next, mut most) = (Vec::new(), 0u32, 1);
    for (name, kind) in &of.fields {
        check_name(name, "field")?;
        names.push(name.clone());
        if matches!(kind, FieldType::Slice { .. }) {
            names.push(format!("{name}_end"));
        }
        let (bytes, align) = match kind {
            FieldType::Number { size, .. } => (size.bytes(), size.bytes()),
            FieldType::Numbers { size, count, .. } => (size.bytes().saturating_mul(*count), size.bytes()),
            FieldType::Slice { .. } => (16, 8),
            FieldType::Bytes { .. } | FieldType::Struct { .. } => (8, 8),
        };
        if bytes == 0 || bytes > MAX_BYTES {
            return Err(format!("its field {name} has {bytes} bytes; 1 to {MAX_BYTES} are possible"));
        }
        let offset = next.next_multiple_of(align);
        offsets.push(offset);
        (next, most) = (offset + bytes, most.max(align));
        if next > MAX_BYTES {
            return Err(format!("it takes more than {MAX_BYTES} bytes; put large arrays behind pointers"));
        }
    }
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("struct {} has two fields {} in C", of.name, twice[0]));
    }
    if of.fields.is_empty() {
        return Err(format!("struct {} has no fields", of.name));
    }
    Ok((offsets, next.next_multiple_of(most)))
}

fn number(name: &'static str, offset: u32, size: Size, writable: bool) -> ContextField {
    ContextField {
        name,
        offset,
        size,
        kind: FieldKind::Scalar,
        reads: Parts::any(size),
        writes: if writable { Parts::any(size) } else { Parts::NONE },
        native_offset: Some(offset),
        native_size: size,
    }
}

fn check_name(name: &str, what: &str) -> Result<(), String> {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let rest = name.chars().all(|next| next.is_ascii_alphanumeric() || next == '_');
    if starts && rest { Ok(()) } else { Err(format!("its {what} {name:?} is no identifier of C")) }
}

fn check_verdict(verdict: &VerdictType) -> Result<(), String> {
    for (name, _) in &verdict.values {
        check_name(name, "verdict")?;
    }
    let mut numbers: Vec<_> = verdict.values.iter().map(|(_, number)| number).collect();
    numbers.sort_unstable();
    match numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(format!("two verdicts have the number {}", twice[0])),
        None => Ok(()),
    }
}

fn leaked(text: &str) -> &'static str {
    Box::leak(Box::from(text))
}
