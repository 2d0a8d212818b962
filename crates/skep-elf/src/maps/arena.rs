//! Global variables in an arena: the section `.addr_space.1`, which is named after the address space that such
//! variables are declared in.
//!
//! They lie at the start of the object's arena. A program loads their addresses as the host's code sees them.

use skep_abi::MapKind;

use crate::elf::{Content, Elf, Section};
use crate::error::Error;

use super::ObjectMap;

/// The section of variables in an arena.
const SECTION: &str = ".addr_space.1";

/// Bytes in each of the `max_entries` of an arena, its pages.
const PAGE: u64 = 4096;

/// Whether a section holds variables in an arena.
pub(crate) fn is_arena_data(section: &Section) -> bool {
    matches!(section.content, Content::Data | Content::Zeroed)
        && section.size > 0
        && &*section.name == SECTION
}

/// Puts the variables of section number `index` into the object's arena, the only one among the maps declared. Returns
/// the arena's index. The variables' names are added by [`set_variables`](super::set_variables).
pub(crate) fn place_in_arena(elf: &Elf, index: usize, maps: &mut [ObjectMap]) -> Result<u32, Error> {
    let section = &elf.sections[index];
    let (arena, bytes) = arena_of(section, maps)?;
    let map = &mut maps[arena as usize];
    map.variable_bytes = bytes;
    map.initial = (section.content == Content::Data).then(|| elf.data(index).into());
    Ok(arena)
}

/// The only arena among the maps declared, and the size of the section, which fits it.
fn arena_of(section: &Section, maps: &[ObjectMap]) -> Result<(u32, u32), Error> {
    let refused = |reason| Error::ArenaData { section: section.name.to_string(), reason };
    let mut arenas = maps.iter().enumerate().filter(|(_, map)| map.def.kind == MapKind::Arena);
    let (Some((index, arena)), others) = (arenas.next(), arenas.next()) else {
        return Err(refused("the object declares no map of type BPF_MAP_TYPE_ARENA; declare one".into()));
    };
    if let Some((_, other)) = others {
        let names = format!("{} and {}", arena.def.name, other.def.name);
        return Err(refused(format!("the object has the arenas {names}; declare only one")));
    }
    let most = u64::from(arena.def.max_entries) * PAGE;
    let Some(size) = u32::try_from(section.size).ok().filter(|size| u64::from(*size) <= most) else {
        let (name, size) = (&arena.def.name, section.size);
        return Err(refused(format!(
            "its {size} bytes exceed the {most} of the arena {name}; raise max_entries, its number of pages"
        )));
    };
    // Fits: there are fewer maps than bytes in the file's `.maps`, whose size has 32 bits.
    Ok((index as u32, size))
}
