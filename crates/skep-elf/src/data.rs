//! Global variables: the sections that become maps with a single element.
//!
//! `.data`, `.rodata`, `.bss` and sections named after them (`.rodata.str1.1`, `.data.config`) each become an
//! array of one element that is the section's image. Programs address it directly; the host finds variables
//! in it by name. Sections of zeroes have no image: their size is a claim that nothing in the file pays for.

use std::collections::HashMap;

use skep_abi::{MapDef, MapFlags, MapKind};

use crate::btf::Btf;
use crate::elf::{Content, Elf, Place, Section, SymbolKind};
use crate::error::Error;
use crate::object::{ObjectMap, Variable};

/// Whether a section is global data that programs may use.
pub(crate) fn is_data(section: &Section) -> bool {
    let family = |family: &str| {
        section.name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    matches!(section.content, Content::Data | Content::Zeroed)
        && section.size > 0
        && (family(".data") || family(".rodata") || family(".bss"))
}

/// The map that section number `index` becomes. Its variables are added by [`variables`].
pub(crate) fn map(elf: &Elf, index: usize) -> Result<ObjectMap, Error> {
    let section = &elf.sections[index];
    let value_size = u32::try_from(section.size).map_err(|_| Error::Damaged {
        place: format!("section {}", section.name),
        reason: format!("its {} bytes are more than a map's value may have", section.size),
    })?;
    let flags = if is_read_only(section) { MapFlags::RDONLY_PROG } else { MapFlags::default() };
    let def = MapDef {
        name: section.name.to_string(),
        kind: MapKind::Array,
        key_size: 4,
        value_size,
        max_entries: 1,
        flags,
        inner: None,
        fields: Vec::new(),
        frozen: None,
    };
    let initial = (section.content == Content::Data).then(|| elf.data(index).to_vec());
    Ok(ObjectMap { initial, ..ObjectMap::new(def) })
}

/// Adds its variables to each data section's map; `map_of` says which map a section became.
pub(crate) fn variables(
    elf: &Elf,
    btf: Option<&Btf>,
    map_of: impl Fn(usize) -> Option<usize>,
    maps: &mut [ObjectMap],
) -> Result<(), Error> {
    let mut types: HashMap<usize, HashMap<&str, u32>> = HashMap::new();
    for symbol in &elf.symbols {
        let (SymbolKind::Data, Place::Section(home)) = (symbol.kind, symbol.place) else { continue };
        let Some(index) = map_of(home) else { continue };
        let section = &elf.sections[home];
        let name = elf.symbol_name(symbol)?;
        let (offset, size) = match symbol.value.checked_add(symbol.size) {
            // The section's size was seen to have 32 bits.
            Some(end) if end <= section.size => (symbol.value as u32, symbol.size as u32),
            _ => {
                return Err(Error::Damaged {
                    place: format!("variable {name}"),
                    reason: format!("it lies beyond the end of section {}", section.name),
                });
            }
        };
        let type_name = match btf {
            None => None,
            Some(btf) => {
                let types = match types.entry(home) {
                    std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::hash_map::Entry::Vacant(entry) => {
                        entry.insert(types_by_name(btf, &section.name)?)
                    }
                };
                types.get(name).map(|&ty| btf.type_name(ty)).transpose()?
            }
        };
        let read_only = is_read_only(section);
        maps[index].variables.push(Variable { name: name.into(), offset, size, read_only, type_name });
    }
    for map in maps {
        map.variables.sort_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
    }
    Ok(())
}

fn types_by_name<'a>(btf: &'a Btf, section: &str) -> Result<HashMap<&'a str, u32>, Error> {
    let mut types = HashMap::new();
    if let Some(section) = btf.data_section(section)? {
        for variable in section.variables() {
            let variable = variable?;
            types.insert(variable.name, variable.ty);
        }
    }
    Ok(types)
}

fn is_read_only(section: &Section) -> bool {
    section.name.starts_with(".rodata")
}
