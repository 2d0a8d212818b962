//! Maps in the old form: structures of numbers in the sections `maps` and `maps/NAME`, without types.
//!
//! Loaders disagree about the structure, but not about its first numbers. A symbol marks the start of each structure,
//! which ends where the next one begins:
//!
//! ```text
//!   word   0     1         2           3            4      5        6        7         8
//!          type  key_size  value_size  max_entries  flags  ...                              16 bytes or more
//!                                                          inner    node                    28: samples of Linux
//!                                                          id       pinning  inner_id  inner_idx    36: iproute2
//! ```
//!
//! `inner` is the place of the map among the section's that maps inside of this one look like; `inner_id` is the `id`
//! of that map. Both are used for maps of maps alone. All later words are ignored.

use std::ops::Range;

use skep_abi::{MapDef, MapFlags, MapKind};

use crate::elf::{Content, Elf, Place, Section, SymbolKind};
use crate::error::Error;

use super::ObjectMap;
use super::declared::complete;

/// Bytes in the structure of Linux's samples.
const OF_SAMPLES: usize = 28;
/// Bytes in iproute2's structure.
const OF_IPROUTE2: usize = 36;

/// Whether a section declares maps in the old form.
pub(crate) fn is_legacy(section: &Section) -> bool {
    let named = &*section.name == "maps" || section.name.starts_with("maps/");
    named && section.content == Content::Data && section.size > 0
}

/// Reads the declarations in section number `index`, in the section's order, each with its place.
pub(crate) fn legacy(elf: &Elf, index: usize) -> Result<Vec<(ObjectMap, Range<u64>)>, Error> {
    let section = &elf.sections[index];
    let refused = |reason: String| Error::LegacyMaps { section: section.name.to_string(), reason };
    let here = |symbol: &&crate::elf::Symbol| {
        symbol.place == Place::Section(index) && !matches!(symbol.kind, SymbolKind::Section)
    };
    let mut starts = Vec::new();
    for symbol in elf.symbols.iter().filter(here) {
        starts.push((symbol.value, elf.symbol_name(symbol)?));
    }
    starts.retain(|(_, name)| !name.is_empty());
    starts.sort_unstable();
    starts.dedup_by_key(|(start, _)| *start);
    if starts.is_empty() {
        return Err(refused("no symbol says where each of them begins".into()));
    }
    let data = elf.data(index);
    let mut maps: Vec<(MapDef, Vec<u32>, Range<u64>)> = Vec::with_capacity(starts.len());
    for (at, &(start, name)) in starts.iter().enumerate() {
        let end = starts.get(at + 1).map_or(section.size, |(next, _)| *next);
        let bytes = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let bytes = bytes.and_then(|(start, end)| data.get(start..end)).unwrap_or_default();
        let words: Vec<u32> =
            bytes.as_chunks().0.iter().take(OF_IPROUTE2 / 4).map(|word| u32::from_le_bytes(*word)).collect();
        let [kind, key_size, value_size, max_entries, ref rest @ ..] = words[..] else {
            return Err(refused(format!("map {name} has {} bytes, at least 16 are needed", bytes.len())));
        };
        let kind = MapKind::from_number(kind)
            .ok_or_else(|| Error::MapKindUnknown { map: name.to_owned(), number: kind })?;
        let flags = MapFlags(rest.first().copied().unwrap_or(0));
        let mut def = MapDef { flags, ..MapDef::new(name, kind, key_size, value_size, max_entries) };
        complete(&mut def)?;
        maps.push((def, words, start..end));
    }
    let templates: Vec<_> =
        maps.iter().map(|(def, words, place)| template(def, words, place, &maps)).collect();
    let with = |((mut def, _, place), inner): ((MapDef, _, _), Option<MapDef>)| {
        def.inner = inner.map(Box::new);
        (ObjectMap::new(def), place)
    };
    Ok(maps.into_iter().zip(templates).map(with).collect())
}

/// What the maps inside of a map look like, if it holds maps and the structure says so.
fn template(
    def: &MapDef,
    words: &[u32],
    place: &Range<u64>,
    all: &[(MapDef, Vec<u32>, Range<u64>)],
) -> Option<MapDef> {
    if !def.kind.holds_maps() {
        return None;
    }
    let size = (place.end - place.start) as usize;
    let found = match *words {
        [_, _, _, _, _, inner, ..] if size == OF_SAMPLES => all.get(inner as usize),
        [_, _, _, _, _, _, _, inner, ..] if size == OF_IPROUTE2 && inner != 0 => {
            all.iter().find(|(_, words, _)| words.get(5) == Some(&inner))
        }
        _ => None,
    };
    let (inner, ..) = found.filter(|(inner, ..)| !inner.kind.holds_maps())?;
    Some(MapDef { name: format!("{}.inner", def.name), ..inner.clone() })
}
