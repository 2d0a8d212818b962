//! What `.BTF.ext` says about the functions of a linked program: source lines, and CO-RE relocations, which
//! are refused by name.

use std::ffi::CStr;
use std::sync::Arc;

use skep_abi::{Function, LineInfo};
use skep_isa::Slot;

use crate::btf::{Block, Btf};
use crate::error::Error;
use crate::functions::CodeRange;
use crate::object::Parsed;

/// The longest source line or file name that is kept, in bytes.
const MAX_LINE: usize = 512;

/// The lines of a linked program, ascending by slot.
pub(crate) fn lines(
    object: &Parsed,
    functions: &[Function],
    origins: &[CodeRange],
) -> Result<Vec<LineInfo>, Error> {
    let (Some(btf), Some(ext)) = (&object.btf, &object.ext) else { return Ok(Vec::new()) };
    let mut texts = Texts::new(btf);
    let mut lines = Vec::new();
    for_each(object, &ext.lines, origins, |index, offset, [file, text, position]| {
        let slot = functions[index].start + (u64::from(offset) - origins[index].start) as u32 / SLOT;
        lines.push(LineInfo {
            slot,
            file: texts.text(file)?,
            text: texts.text(text)?,
            line: position >> 10,
            column: position & 0x3ff,
        });
        Ok(())
    })?;
    lines.sort_by_key(|line| line.slot);
    Ok(lines)
}

/// Refuses functions whose offsets into structures are to be adjusted to the running kernel's.
pub(crate) fn refuse_core_relocations(object: &Parsed, origins: &[CodeRange]) -> Result<(), Error> {
    let (Some(btf), Some(ext)) = (&object.btf, &object.ext) else { return Ok(()) };
    for_each(object, &ext.core, origins, |index, offset, [ty, _, kind]| {
        let function = origins[index];
        Err(Error::CoreRelocation {
            function: object.elf.symbol_name(&object.elf.symbols[function.symbol])?.into(),
            section: object.elf.sections[function.section].name.to_string(),
            offset,
            kind: core_kind(kind),
            target: btf.type_name(ty)?,
        })
    })
}

const SLOT: u32 = Slot::BYTES as u32;

/// Calls `f` with each record about an instruction of `origins`: which of them, the instruction's offset in
/// the section, and the record's words. One pass over the records of each section, however many functions
/// of it there are.
fn for_each(
    object: &Parsed,
    blocks: &[Block],
    origins: &[CodeRange],
    mut f: impl FnMut(usize, u32, [u32; 3]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut places: Vec<(usize, u64, usize)> =
        origins.iter().enumerate().map(|(index, f)| (f.section, f.start, index)).collect();
    places.sort_unstable();
    for block in blocks {
        for (offset, words) in block.records(object.elf.bytes()) {
            let key = (block.section, u64::from(offset));
            let after = places.partition_point(|&(section, start, _)| (section, start) <= key);
            let Some(&(section, _, index)) = places[..after].last() else { continue };
            if section == block.section && u64::from(offset) < origins[index].end {
                f(index, offset, words)?;
            }
        }
    }
    Ok(())
}

/// Strings, most of them made once: a table in which a string takes the place of another that falls on the
/// same entry. Losing one costs a second copy of it, never more, so that no choice of offsets is expensive.
struct Texts<'a> {
    btf: &'a Btf,
    known: Vec<Option<(u32, Arc<str>)>>,
}

impl<'a> Texts<'a> {
    const ENTRIES_LOG2: u32 = 8;

    fn new(btf: &'a Btf) -> Self {
        Self { btf, known: vec![None; 1 << Self::ENTRIES_LOG2] }
    }

    /// The string at that offset. Long ones are cut, for strings in a file may overlap, and all of them
    /// together could be far larger than the file.
    fn text(&mut self, offset: u32) -> Result<Arc<str>, Error> {
        // The multiplier is 2^32 divided by the golden ratio, which spreads neighbouring offsets.
        let entry = &mut self.known[(offset.wrapping_mul(0x9e37_79b9) >> (32 - Self::ENTRIES_LOG2)) as usize];
        if let Some((known, text)) = entry
            && *known == offset
        {
            return Ok(text.clone());
        }
        let bytes = self.btf.strings().get(offset as usize..).ok_or(Error::BtfDamaged {
            section: ".BTF",
            offset: offset as usize,
            reason: "a line record names a string that lies beyond the strings",
        })?;
        let bytes = &bytes[..bytes.len().min(MAX_LINE)];
        let bytes = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
        let text: Arc<str> = match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => String::from_utf8_lossy(bytes).into(),
        };
        *entry = Some((offset, text.clone()));
        Ok(text)
    }
}

/// What a CO-RE relocation asks for, by its number in `enum bpf_core_relo_kind`.
fn core_kind(kind: u32) -> &'static str {
    match kind {
        0 => "field offset",
        1 => "field size",
        2 => "field existence",
        3 => "field signedness",
        4 | 5 => "bit-field shift",
        6 | 7 => "type id",
        8 => "type existence",
        9 => "type size",
        10 => "enumerator existence",
        11 => "enumerator value",
        12 => "type match",
        _ => "unknown property",
    }
}
