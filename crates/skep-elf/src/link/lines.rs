//! The records of `.BTF.ext` about the functions of a linked program: prototypes, source lines and CO-RE relocations.

use std::ffi::CStr;
use std::sync::Arc;

use skep_abi::{Function, LineInfo, Prototype};
use skep_btf::{Btf, essential_name};
use skep_isa::{Insn, Slot};

use crate::co_re::{self, CoRe, Record};
use crate::error::Error;
use crate::functions::CodeRange;
use crate::parsed::Parsed;
use crate::records::Part;

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
    for_each(&ext.lines, origins, |index, offset, [file, text, position]| {
        lines.push(LineInfo {
            slot: slot(functions, origins, index, offset),
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

/// Gives functions their prototypes.
pub(crate) fn prototypes(
    object: &Parsed,
    functions: &mut [Function],
    origins: &[CodeRange],
) -> Result<(), Error> {
    let (Some(btf), Some(ext)) = (&object.btf, &object.ext) else { return Ok(()) };
    for_each(&ext.functions, origins, |index, offset, [ty, ..]| {
        if u64::from(offset) == origins[index].start {
            functions[index].prototype = Prototype::of(btf, ty)?;
        }
        Ok(())
    })
}

/// Applies the CO-RE relocations, so that instructions fit the target's structures. Returns what the target lacks, by
/// slot.
pub(crate) fn relocate_to(
    object: &Parsed,
    (target, partial): (&Btf, bool),
    functions: &[Function],
    origins: &[CodeRange],
    insns: &mut [Insn],
) -> Result<Vec<(u32, Arc<str>)>, Error> {
    let mut unresolved = Vec::new();
    let (Some(btf), Some(ext)) = (&object.btf, &object.ext) else { return Ok(unresolved) };
    let mut co_re = CoRe::new(btf, target);
    for_each(&ext.core, origins, |index, offset, [ty, path, question]| {
        let function = origins[index];
        let slot = slot(functions, origins, index, offset);
        let record = Record { ty, path, question };
        if partial && co_re::is_about_a_place(question) && is_missing(btf, target, ty) {
            return Ok(());
        }
        let missing = co_re.apply(record, insns, slot as usize).map_err(|fault| {
            fault.explain(|reason| Error::CoreRelocation {
                function: functions[index].name.clone(),
                section: object.elf.sections[function.section].name.to_string(),
                offset,
                kind: co_re::question_name(question),
                target: btf.type_name(ty).unwrap_or_else(|_| format!("type {ty}")),
                reason,
            })
        })?;
        unresolved.extend(missing.map(|missing| (slot, missing.into())));
        Ok(())
    })?;
    Ok(unresolved)
}

/// Whether the target has no type of that kind and name.
fn is_missing(btf: &Btf, target: &Btf, ty: u32) -> bool {
    let Ok(found) = btf.resolve(ty) else { return false };
    found.name().is_ok_and(|name| target.find(essential_name(name), found.kind).is_none())
}

/// The slot of the linked program that a record is about, from the byte in the section.
fn slot(functions: &[Function], origins: &[CodeRange], index: usize, offset: u32) -> u32 {
    functions[index].start + (u64::from(offset) - origins[index].start) as u32 / SLOT
}

const SLOT: u32 = Slot::BYTES as u32;

/// Calls `f` with each record about an instruction of `origins`: the index in `origins`, the instruction's offset in
/// the section, and the record's words. Functions ascend by section and start, and records by offset.
fn for_each(
    part: &Part,
    origins: &[CodeRange],
    mut f: impl FnMut(usize, u32, [u32; 3]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut places: Vec<(usize, u64, usize)> =
        origins.iter().enumerate().map(|(index, f)| (f.section, f.start, index)).collect();
    places.sort_unstable();
    for (_, _, index) in places {
        for (offset, words) in part.of(origins[index]) {
            f(index, offset, words)?;
        }
    }
    Ok(())
}

/// Strings, most of them made once: a cache in which a string replaces another with the same entry. A replaced string
/// is copied again at its next use, never more, so no choice of offsets is expensive.
struct Texts<'a> {
    btf: &'a Btf,
    known: Vec<Option<(u32, Arc<str>)>>,
}

impl<'a> Texts<'a> {
    const ENTRIES_LOG2: u32 = 8;

    fn new(btf: &'a Btf) -> Self {
        Self { btf, known: vec![None; 1 << Self::ENTRIES_LOG2] }
    }

    /// The string at that offset. Long strings are cut: strings in a file may overlap, and together they could be far
    /// larger than the file.
    fn text(&mut self, offset: u32) -> Result<Arc<str>, Error> {
        // The multiplier is 2^32 divided by the golden ratio, which spreads neighbouring offsets.
        let entry = &mut self.known[(offset.wrapping_mul(0x9e37_79b9) >> (32 - Self::ENTRIES_LOG2)) as usize];
        if let Some((known, text)) = entry
            && *known == offset
        {
            return Ok(text.clone());
        }
        let bytes = self.btf.bytes_of_string(offset).ok_or(Error::BtfDamaged {
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
