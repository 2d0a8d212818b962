//! From a definition to a map: what is refused, and why.

use skep_abi::{MapDef, MapFlags, MapKind};
use skep_mem::Error;

use crate::array::Array;
use crate::error::MapError;
use crate::hash::{self, Hash};
use crate::map::{Options, Table};
use crate::prefix;
use crate::references::References;
use crate::trie::{self, Trie};

/// The kinds that this version provides.
pub(crate) const PROVIDED: &[MapKind] = &[
    MapKind::Hash,
    MapKind::Array,
    MapKind::ProgArray,
    MapKind::ArrayOfMaps,
    MapKind::PercpuHash,
    MapKind::PercpuArray,
    MapKind::LpmTrie,
];

pub(crate) fn table(def: &MapDef, options: &Options) -> Result<Table, MapError> {
    if !PROVIDED.contains(&def.kind) {
        return Err(MapError::KindNotProvided { map: def.name.clone(), kind: def.kind, provided: PROVIDED });
    }
    check(def, options)?;
    let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
    let fits = |bytes: Option<usize>| match bytes {
        Some(bytes) if bytes <= limit => Ok(()),
        _ => Err(too_large(def, options, bytes)),
    };
    let failed = |error| match error {
        Error::Limit { held, wanted, .. } => too_large(def, options, held.checked_add(wanted)),
        Error::TooLarge { .. } => too_large(def, options, None),
        source => MapError::NoMemory { map: def.name.clone(), source },
    };

    match def.kind {
        MapKind::LpmTrie => {
            // Elements take memory as they come, and meet the limit then.
            let plan = trie::Plan {
                key_size: def.key_size,
                value_size: def.value_size,
                max_entries: def.max_entries,
            };
            Trie::new(&plan, limit).map(Table::Trie).map_err(failed)
        }
        MapKind::Hash | MapKind::PercpuHash => {
            let plan = hash::Plan {
                key_size: def.key_size,
                value_size: def.value_size,
                max_entries: def.max_entries,
                cpus: options.cpus,
                per_cpu: def.kind.is_per_cpu(),
            };
            // Without the flag the map promises room for all elements, so all of it must fit from the start.
            let on_demand = def.flags.contains(MapFlags::NO_PREALLOC);
            fits(plan.bytes().map(|(least, most)| if on_demand { least } else { most }))?;
            Hash::new(&plan, limit).map(Table::Hash).map_err(failed)
        }
        MapKind::ProgArray | MapKind::ArrayOfMaps => {
            fits(References::bytes(def.max_entries))?;
            References::new(def.max_entries, def.value_size).map(Table::References).map_err(failed)
        }
        _ => {
            let cpus = def.kind.is_per_cpu().then_some(options.cpus);
            fits(Array::bytes(def.max_entries, def.value_size, cpus))?;
            Array::new(def.max_entries, def.value_size, cpus).map(Table::Array).map_err(failed)
        }
    }
}

fn check(def: &MapDef, options: &Options) -> Result<(), MapError> {
    let map = || def.name.clone();
    let kind = def.kind;
    let (least, most, wanted) = match kind {
        MapKind::Hash | MapKind::PercpuHash => (1, hash::MAX_KEY_SIZE, "1 to 512"),
        MapKind::LpmTrie => (
            prefix::LENGTH_BYTES + 1,
            prefix::LENGTH_BYTES + prefix::MAX_DATA,
            "5 to 260: a u32 prefix length and 1 to 256 bytes of data",
        ),
        _ => (4, 4, "4: a u32 index"),
    };
    if !(least..=most).contains(&def.key_size) {
        return Err(MapError::KeySize { map: map(), kind, key_size: def.key_size, wanted });
    }
    let (fits, wanted) = match kind {
        MapKind::ProgArray | MapKind::ArrayOfMaps => (def.value_size == 4, "4"),
        _ => (def.value_size > 0, "at least 1"),
    };
    if !fits {
        return Err(MapError::ValueSize { map: map(), kind, value_size: def.value_size, wanted });
    }
    if def.max_entries == 0 {
        return Err(MapError::NoEntries { map: map() });
    }
    check_flags(def)?;
    if options.cpus == 0 {
        return Err(MapError::NoCpus { map: map() });
    }
    Ok(())
}

fn check_flags(def: &MapDef) -> Result<(), MapError> {
    let map = || def.name.clone();
    let either = MapFlags::RDONLY_PROG.union(MapFlags::WRONLY_PROG);
    let provided = either.union(match def.kind {
        MapKind::Hash | MapKind::PercpuHash | MapKind::LpmTrie => MapFlags::NO_PREALLOC,
        MapKind::Array => MapFlags::MMAPABLE,
        _ => MapFlags(0),
    });
    let unknown = def.flags.0 & !provided.0;
    if unknown != 0 {
        let (flags, provided) = (def.flags.0, provided.0);
        return Err(MapError::CreateFlags { map: map(), kind: def.kind, flags, unknown, provided });
    }
    if def.flags.contains(either) {
        return Err(MapError::NeitherReadNorWrite { map: map() });
    }
    if def.kind == MapKind::LpmTrie && !def.flags.contains(MapFlags::NO_PREALLOC) {
        return Err(MapError::NeedsNoPrealloc { map: map() });
    }
    Ok(())
}

fn too_large(def: &MapDef, options: &Options, bytes: Option<usize>) -> MapError {
    MapError::TooLarge {
        map: def.name.clone(),
        bytes: bytes.map_or(u64::MAX, |bytes| bytes as u64),
        max_entries: def.max_entries,
        limit: options.limit,
    }
}
