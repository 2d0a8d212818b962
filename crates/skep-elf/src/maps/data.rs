//! Global variables: the sections that become maps with a single element.
//!
//! `.data`, `.rodata`, `.bss` and sections named after them (`.rodata.str1.1`, `.data.config`) each become an
//! array of one element that is the section's image. Programs address it directly; the host finds variables
//! in it by name. Sections of zeroes have no image: the file may claim any size for them, so nothing is allocated.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use skep_abi::{MapDef, MapFlags, MapKind};
use skep_btf::{Btf, Kind, Type};

use crate::elf::{Content, Elf, Place, Section, SymbolKind};
use crate::error::Error;
use crate::types::data_sections;

use super::{ObjectMap, Variable, set_fields};

/// Whether a section is global data that programs may use.
pub(crate) fn is_data(section: &Section) -> bool {
    let family = |family: &str| {
        section.name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    matches!(section.content, Content::Data | Content::Zeroed)
        && section.size > 0
        && (family(".data") || family(".rodata") || family(".bss"))
}

/// The map that section number `index` becomes. Its variables are added by [`set_variables`].
pub(crate) fn of_section(elf: &Elf, index: usize) -> Result<ObjectMap, Error> {
    let section = &elf.sections[index];
    let value_size = u32::try_from(section.size).map_err(|_| Error::Damaged {
        place: format!("section {}", section.name),
        reason: format!("its {} bytes are more than a map's value may have", section.size),
    })?;
    let flags = if is_read_only(section) { MapFlags::RDONLY_PROG } else { MapFlags::default() };
    let initial: Option<Arc<[u8]>> = (section.content == Content::Data).then(|| elf.data(index).into());
    let frozen = initial.clone().filter(|_| is_read_only(section));
    let def = MapDef { flags, frozen, ..MapDef::new(&*section.name, MapKind::Array, 4, value_size, 1) };
    Ok(ObjectMap { initial, variable_bytes: value_size, ..ObjectMap::new(def) })
}

/// Adds its variables to each data section's map; `map_of` says which map a section became.
pub(crate) fn set_variables(
    elf: &Elf,
    btf: Option<&Btf>,
    map_of: impl Fn(usize) -> Option<usize>,
    maps: &mut [ObjectMap],
) -> Result<(), Error> {
    let sections = btf.map(data_sections).transpose()?.unwrap_or_default();
    let mut types: HashMap<usize, HashMap<&str, u32>> = HashMap::new();
    for symbol in &elf.symbols {
        let (SymbolKind::Data, Place::Section(home)) = (symbol.kind, symbol.place) else { continue };
        let Some(index) = map_of(home) else { continue };
        let section = &elf.sections[home];
        let name = elf.symbol_name(symbol)?;
        let (offset, size) = match symbol.value.checked_add(symbol.size) {
            // `of_section` or `place_in_arena` has checked that the section's size has 32 bits.
            Some(end) if end <= section.size => (symbol.value as u32, symbol.size as u32),
            _ => {
                return Err(Error::Damaged {
                    place: format!("variable {name}"),
                    reason: format!("it lies beyond the end of section {}", section.name),
                });
            }
        };
        let types = match types.entry(home) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let ty = sections.get(&*section.name);
                // An arena has no value, so no fields of one.
                let arena = maps[index].def.kind == MapKind::Arena;
                if let (Some(ty), Some(btf), false) = (ty, btf, arena) {
                    maps[index].def.value_btf = Some(ty.id);
                    let def = &mut maps[index].def;
                    set_fields(def, btf, ty.id)?;
                    if def
                        .fields
                        .last()
                        .is_some_and(|last| u64::from(last.offset) + u64::from(last.size) > section.size)
                    {
                        return Err(Error::Damaged {
                            place: format!("section {}", section.name),
                            reason: "its types place a lock, timer or kept pointer beyond its end".into(),
                        });
                    }
                }
                entry.insert(ty.map(types_by_name).transpose()?.unwrap_or_default())
            }
        };
        let type_name = match (btf, types.get(name)) {
            (Some(btf), Some(&ty)) => Some(btf.type_name(ty)?),
            _ => None,
        };
        let read_only = is_read_only(section);
        maps[index].variables.push(Variable { name: name.into(), offset, size, read_only, type_name });
    }
    for map in maps {
        map.variables.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
    }
    Ok(())
}

fn types_by_name<'a>(section: &Type<'a>) -> Result<HashMap<&'a str, u32>, Error> {
    let variables = section.variables().filter(|variable| variable.var.kind == Kind::Var);
    variables.map(|variable| Ok((variable.var.name()?, variable.var.target()))).collect()
}

fn is_read_only(section: &Section) -> bool {
    section.name.starts_with(".rodata")
}
