//! Structures of functions that a host calls: which member each program stands for.
//!
//! ```text
//!   SEC(".struct_ops.link")                      .rel.struct_ops.link
//!   struct tcp_congestion_ops ops = {            +-- offset 32: symbol `threshold`
//!       .ssthresh = (void *)threshold,           |
//!       .name = "own",                           v  the member at 32: tcp_congestion_ops.ssthresh
//!   };
//! ```
//!
//! The section that a program stands in says no more than that it is such a program.

use skep_btf::{Btf, Kind, Type, essential_name};

use crate::elf::{Elf, Place, Relocation};
use crate::error::Error;
use crate::functions::CodeRange;
use crate::types::data_sections;

const SECTIONS: [&str; 4] = [".struct_ops", ".struct_ops.link", "?.struct_ops", "?.struct_ops.link"];

/// The member that a function was written into, as `structure.member`; the first, where there are several.
pub(crate) fn member(elf: &Elf, btf: &Btf, function: CodeRange) -> Result<Option<String>, Error> {
    let mut types = None;
    for (index, section) in elf.sections.iter().enumerate() {
        if !SECTIONS.contains(&&*section.name) {
            continue;
        }
        let Some(relocation) = section.relocations.iter().find(|found| leads_to(elf, index, found, function))
        else {
            continue;
        };
        let types = match &types {
            Some(types) => types,
            None => types.insert(data_sections(btf)?),
        };
        let Some(variables) = types.get(&*section.name) else { continue };
        if let Some(found) = member_at(btf, variables, relocation.offset)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether a word of data is the function's address.
fn leads_to(elf: &Elf, section: usize, relocation: &Relocation, function: CodeRange) -> bool {
    let symbol = elf.target(relocation);
    if symbol.place != Place::Section(function.section) {
        return false;
    }
    let word = usize::try_from(relocation.offset).ok().and_then(|at| elf.data(section).get(at..));
    let added = word.and_then(|rest| rest.first_chunk::<8>()).map_or(0, |word| u64::from_le_bytes(*word));
    symbol.value.wrapping_add(added) == function.start
}

/// The member at an offset of a section of variables.
fn member_at(btf: &Btf, section: &Type<'_>, offset: u64) -> Result<Option<String>, Error> {
    for variable in section.variables() {
        let start = u64::from(variable.offset);
        if !(start..start + u64::from(variable.size)).contains(&offset) {
            continue;
        }
        let ty = btf.resolve(variable.var.target())?;
        if ty.kind != Kind::Struct {
            continue;
        }
        let at = (offset - start) * 8;
        if let Some(member) = ty.members().find(|member| u64::from(member.bit_offset) == at) {
            let name = essential_name(ty.name()?);
            return Ok(Some(format!("{name}.{}", member.name()?)));
        }
    }
    Ok(None)
}
