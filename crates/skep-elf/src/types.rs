//! The types of an object: its section `.BTF` with its relocations applied.

use std::collections::HashMap;
use std::sync::Arc;

use skep_btf::{Btf, Kind, Type};

use crate::elf::{Elf, Place};
use crate::error::Error;

/// Reads the types, if the object has any.
pub(crate) fn types(elf: &Elf) -> Result<Option<Arc<Btf>>, Error> {
    let Some(section) = elf.section(".BTF") else { return Ok(None) };
    let mut bytes: Arc<[u8]> = elf.data(section).into();
    if let Some(bytes) = Arc::get_mut(&mut bytes) {
        relocate(elf, section, bytes);
    }
    Ok(Some(Arc::new(Btf::parse(bytes)?)))
}

/// The types of sections with variables by the sections' names.
pub(crate) fn data_sections(btf: &Btf) -> Result<HashMap<&str, Type<'_>>, Error> {
    let mut sections = HashMap::new();
    for ty in btf.own_types().filter(|ty| ty.kind == Kind::Datasec) {
        sections.entry(ty.name()?).or_insert(ty);
    }
    Ok(sections)
}

/// Applies the relocations of the section. All kinds that clang writes there add the symbol's value to the word. A
/// symbol that is not defined in the object counts as zero, since such variables are extern.
fn relocate(elf: &Elf, section: usize, bytes: &mut [u8]) {
    for relocation in &elf.sections[section].relocations {
        let symbol = elf.target(relocation);
        let Place::Section(_) = symbol.place else { continue };
        // `Elf::parse` has checked that the word begins inside the section, not that it ends there.
        let word = bytes.get_mut(relocation.offset as usize..).and_then(|rest| rest.first_chunk_mut::<4>());
        if let Some(word) = word {
            *word = u32::from_le_bytes(*word).wrapping_add(symbol.value as u32).to_le_bytes();
        }
    }
}
