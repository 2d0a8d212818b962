//! The types of an object: its `.BTF`, with the relocations applied that it has before it is linked.

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

/// Adds to words of the section what relocations say. All kinds that clang writes there mean "symbol plus what
/// stands in the word"; a symbol that is not defined here counts as zero, for such variables are extern.
fn relocate(elf: &Elf, section: usize, bytes: &mut [u8]) {
    for relocation in &elf.sections[section].relocations {
        let symbol = elf.target(relocation);
        let Place::Section(_) = symbol.place else { continue };
        // Seen to lie inside the section, if not with all of its bytes.
        let word = bytes.get_mut(relocation.offset as usize..).and_then(|rest| rest.first_chunk_mut::<4>());
        if let Some(word) = word {
            *word = u32::from_le_bytes(*word).wrapping_add(symbol.value as u32).to_le_bytes();
        }
    }
}
