//! Creating a map from its definition: which definitions are refused, and why.

use skep_abi::{
    Defect, MAX_SPECIAL, MapDef, MapFlags, MapKind, SpecialField, SpecialFieldAt, SpecialKind, holders,
};
use skep_mem::{Error, Window};

use crate::arena::Arena;
use crate::array::Array;
use crate::bloom::{self, Bloom};
use crate::elements::Reclamation;
use crate::error::MapError;
use crate::hash::{self, Hash};
use crate::members::{self, Members};
use crate::objects::{field_size, owns};
use crate::options::Options;
use crate::perf::PerfEvents;
use crate::prefix;
use crate::queue::Queue;
use crate::references::{ADDRESS, References};
use crate::ring::{PAGE, Ring};
use crate::seed::Seed;
use crate::table::Table;
use crate::targets::Targets;
use crate::trie::{self, Trie};
use crate::user_ring::UserRing;

/// The most addresses of a stack, as Linux's `kernel.perf_event_max_stack` says unless somebody changes it.
pub(crate) const MAX_STACK: u32 = 127;

/// The kinds that skep provides.
pub(crate) const PROVIDED: &[MapKind] = &[
    MapKind::Hash,
    MapKind::Array,
    MapKind::ProgArray,
    MapKind::ArrayOfMaps,
    MapKind::HashOfMaps,
    MapKind::PercpuHash,
    MapKind::PercpuArray,
    MapKind::LruHash,
    MapKind::LruPercpuHash,
    MapKind::LpmTrie,
    MapKind::Queue,
    MapKind::Stack,
    MapKind::BloomFilter,
    MapKind::Ringbuf,
    MapKind::Devmap,
    MapKind::DevmapHash,
    MapKind::Cpumap,
    MapKind::Xskmap,
    MapKind::Sockmap,
    MapKind::Sockhash,
    MapKind::ReuseportSockarray,
    MapKind::CgroupArray,
    MapKind::UserRingbuf,
    MapKind::PerfEventArray,
    MapKind::StackTrace,
    MapKind::Arena,
    MapKind::SkStorage,
    MapKind::InodeStorage,
    MapKind::TaskStorage,
    MapKind::CgrpStorage,
    MapKind::CgroupStorage,
    MapKind::PercpuCgroupStorage,
];

/// The name of files with maps, as Linux names the files behind descriptors of maps.
const FILE: &str = "bpf-map";

/// The most owners with an element in a map of storages, which Linux does not limit by a number either.
const MOST_OWNERS: u32 = 1 << 16;

/// `shared`: memory that other processes can map is in files.
pub(crate) fn table(
    def: &MapDef,
    options: &Options,
    memory: &Reclamation,
    shared: bool,
) -> Result<Table, MapError> {
    let options = &Options { cpus: memory.domain.limit(), ..*options };
    if !PROVIDED.contains(&def.kind) {
        return Err(MapError::KindNotProvided { map: def.name.clone(), kind: def.kind, provided: PROVIDED });
    }
    check(def)?;
    let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
    let fits = |bytes: Option<usize>| match bytes {
        Some(bytes) if bytes <= limit => Ok(()),
        _ => Err(too_large(def, options, bytes)),
    };
    let failed = |error| match error {
        Error::Limit { held, wanted, .. } => too_large(def, options, held.checked_add(wanted)),
        Error::TooLarge { .. } => too_large(def, options, None),
        source => MapError::no_memory(def.name.clone(), source, memory.account.as_deref()),
    };

    if let Some(rules) = members::rules(def.kind) {
        let table = if rules.keyed {
            let plan = hash::Plan {
                key_size: def.key_size,
                value_size: ADDRESS,
                max_entries: def.max_entries,
                cpus: options.cpus,
                per_cpu: false,
                lru: false,
                on_demand: true,
                owns: false,
                seed: Seed::random(),
            };
            fits(plan.bytes().map(|(least, _)| least))?;
            let hash = Hash::new(&plan, limit, memory, None).map_err(failed)?;
            References::keyed(hash, def.max_entries, def.value_size)
        } else {
            fits(References::bytes(def.max_entries))?;
            References::new(def.max_entries, def.value_size).map_err(failed)?
        };
        return Ok(Table::Members(Members::new(def, rules, table)));
    }
    match def.kind {
        MapKind::LpmTrie => {
            // Memory is taken as elements are added; the limit applies then.
            let plan = trie::Plan {
                key_size: def.key_size,
                value_size: def.value_size,
                max_entries: def.max_entries,
            };
            Trie::new(&plan, limit, memory).map(Table::Trie).map_err(failed)
        }
        MapKind::Devmap | MapKind::Cpumap | MapKind::Xskmap => {
            fits(Targets::bytes(def.max_entries))?;
            Targets::new(def.kind, def.max_entries, def.value_size).map(Table::Targets).map_err(failed)
        }
        MapKind::PerfEventArray => {
            fits(PerfEvents::bytes(def.max_entries, options.cpus))?;
            Ok(Table::Perf(PerfEvents::new(def.max_entries, options.cpus)))
        }
        MapKind::Hash
        | MapKind::PercpuHash
        | MapKind::LruHash
        | MapKind::LruPercpuHash
        | MapKind::DevmapHash
        | MapKind::HashOfMaps => {
            let of_maps = def.kind == MapKind::HashOfMaps;
            // Without the flag the map promises room for all elements, so all of it must fit from the start.
            let on_demand = def.flags.contains(MapFlags::NO_PREALLOC);
            let plan = hash::Plan {
                key_size: def.key_size,
                value_size: if of_maps { ADDRESS } else { def.value_size },
                max_entries: def.max_entries,
                cpus: options.cpus,
                per_cpu: def.kind.is_per_cpu(),
                lru: is_lru(def.kind),
                on_demand,
                owns: owns(&def.fields),
                seed: Seed::of(def.flags),
            };
            fits(plan.bytes().map(|(least, most)| if on_demand { least } else { most }))?;
            // Others only look up: what is more than bytes to them stays here, and so does a table for which there are
            // no descriptors left.
            let plain =
                !matches!(def.kind, MapKind::DevmapHash | MapKind::HashOfMaps) && def.fields.is_empty();
            let in_files = (shared && plain).then(|| Hash::new(&plan, limit, memory, Some(FILE)).ok());
            let mut hash = match in_files.flatten() {
                Some(hash) => hash,
                None => Hash::new(&plan, limit, memory, None).map_err(failed)?,
            };
            hash.values_mut().set_fields(&def.fields);
            Ok(match of_maps {
                true => Table::References(References::keyed(hash, def.max_entries, def.value_size)),
                false => Table::Hash(hash),
            })
        }
        kind if kind.is_storage() => {
            let plan = hash::Plan {
                key_size: def.key_size,
                value_size: def.value_size,
                max_entries: MOST_OWNERS,
                cpus: options.cpus,
                per_cpu: def.kind.is_per_cpu(),
                lru: false,
                on_demand: true,
                owns: owns(&def.fields),
                seed: Seed::random(),
            };
            fits(plan.bytes().map(|(least, _)| least))?;
            let mut hash = Hash::new(&plan, limit, memory, None).map_err(failed)?;
            hash.values_mut().set_fields(&def.fields);
            Ok(Table::Hash(hash))
        }
        MapKind::StackTrace => {
            let plan = hash::Plan {
                key_size: def.key_size,
                value_size: def.value_size,
                max_entries: def.max_entries.checked_next_power_of_two().unwrap_or(u32::MAX),
                cpus: options.cpus,
                per_cpu: false,
                lru: false,
                on_demand: true,
                owns: false,
                seed: Seed::random(),
            };
            fits(plan.bytes().map(|(least, _)| least))?;
            Hash::new(&plan, limit, memory, None).map(Table::Hash).map_err(failed)
        }
        MapKind::Queue | MapKind::Stack => {
            fits(Queue::bytes(def.max_entries, def.value_size))?;
            let stack = def.kind == MapKind::Stack;
            Queue::new(def.max_entries, def.value_size, stack).map(Table::Queue).map_err(failed)
        }
        MapKind::BloomFilter => {
            let hashes = if def.extra == 0 { bloom::USUAL_HASHES } else { def.extra as u32 };
            fits(Bloom::bytes(def.max_entries, hashes))?;
            Bloom::new(def.max_entries, def.value_size, hashes, Seed::of(def.flags))
                .map(Table::Bloom)
                .map_err(failed)
        }
        MapKind::Ringbuf => {
            fits(Ring::bytes(def.max_entries))?;
            let ring =
                if shared { Ring::mirrored(FILE, def.max_entries) } else { Ring::new(def.max_entries) };
            ring.map(Table::Ring).map_err(failed)
        }
        MapKind::UserRingbuf => {
            fits(Ring::bytes(def.max_entries))?;
            let ring = if shared {
                UserRing::in_file(FILE, def.max_entries)
            } else {
                UserRing::new(def.max_entries)
            };
            ring.map(Table::UserRing).map_err(failed)
        }
        // The limit applies as pages are allocated.
        MapKind::Arena => {
            let file = shared.then_some(FILE);
            Arena::new(def, limit, memory, file).map(Table::Arena).map_err(failed)
        }
        MapKind::ProgArray | MapKind::ArrayOfMaps => {
            fits(References::bytes(def.max_entries))?;
            References::new(def.max_entries, def.value_size).map(Table::References).map_err(failed)
        }
        _ => {
            let cpus = def.kind.is_per_cpu().then_some(options.cpus);
            fits(Array::bytes(def.max_entries, def.value_size, cpus))?;
            // As in Linux, values with special fields cannot be mapped; nobody else may write those.
            let plain = matches!(def.kind, MapKind::Array | MapKind::PercpuArray) && def.fields.is_empty();
            let file = (shared && plain).then_some(FILE);
            let mut array = Array::new(def.max_entries, def.value_size, cpus, file).map_err(failed)?;
            array.values_mut().set_fields(&def.fields);
            Ok(Table::Array(array))
        }
    }
}

fn check(def: &MapDef) -> Result<(), MapError> {
    let map = || def.name.clone();
    let kind = def.kind;
    let (least, most, wanted) = match kind {
        MapKind::Hash
        | MapKind::PercpuHash
        | MapKind::LruHash
        | MapKind::LruPercpuHash
        | MapKind::HashOfMaps => (1, crate::error::MAX_KEY_SIZE, "1 to 4194240"),
        MapKind::Sockhash => (1, hash::MAX_STACK_KEY, "1 to 512"),
        MapKind::LpmTrie => (
            prefix::LENGTH_BYTES + 1,
            prefix::LENGTH_BYTES + prefix::MAX_DATA,
            "5 to 260: a u32 prefix length and 1 to 256 bytes of data",
        ),
        MapKind::Queue
        | MapKind::Stack
        | MapKind::BloomFilter
        | MapKind::Ringbuf
        | MapKind::UserRingbuf
        | MapKind::Arena => (0, 0, "0"),
        _ => (4, 4, "4: a u32 index"),
    };
    let of_cgroups = matches!(kind, MapKind::CgroupStorage | MapKind::PercpuCgroupStorage);
    if of_cgroups && !matches!(def.key_size, 8 | 16) {
        let wanted = "8: the cgroup's number, or 16: a struct bpf_cgroup_storage_key";
        return Err(MapError::KeySize { map: map(), kind, key_size: def.key_size, wanted });
    }
    if !of_cgroups && !(least..=most).contains(&def.key_size) {
        return Err(MapError::KeySize { map: map(), kind, key_size: def.key_size, wanted });
    }
    let (fits, wanted) = match kind {
        MapKind::ProgArray | MapKind::ArrayOfMaps | MapKind::HashOfMaps => (def.value_size == 4, "4"),
        MapKind::Ringbuf | MapKind::UserRingbuf | MapKind::Arena => (def.value_size == 0, "0"),
        MapKind::CgroupArray => (def.value_size == 4, "4"),
        kind if members::rules(kind).is_some() => (matches!(def.value_size, 4 | 8), "4 or 8"),
        MapKind::Devmap | MapKind::DevmapHash | MapKind::Cpumap => {
            (matches!(def.value_size, 4 | 8), "4, or 8 with a program")
        }
        MapKind::Xskmap | MapKind::PerfEventArray => (def.value_size == 4, "4"),
        MapKind::StackTrace => (
            def.value_size.is_multiple_of(8) && (1..=MAX_STACK).contains(&(def.value_size / 8)),
            "8 for each address, of which there are at most 127",
        ),
        _ => (def.value_size > 0, "at least 1"),
    };
    if !fits {
        return Err(MapError::ValueSize { map: map(), kind, value_size: def.value_size, wanted });
    }
    if kind.is_storage() {
        if def.max_entries != 0 {
            return Err(MapError::Entries { map: map(), kind, max_entries: def.max_entries });
        }
    } else if def.max_entries == 0 {
        return Err(MapError::NoEntries { map: map() });
    }
    let is_ring = matches!(kind, MapKind::Ringbuf | MapKind::UserRingbuf);
    if is_ring && !(def.max_entries.is_power_of_two() && def.max_entries >= PAGE) {
        return Err(MapError::RingSize { map: map(), bytes: def.max_entries });
    }
    if kind == MapKind::Arena && def.max_entries > Window::PAGES {
        return Err(MapError::ArenaPages { map: map(), max_entries: def.max_entries });
    }
    check_flags(def)?;
    check_extra(def)?;
    check_fields(def)?;
    check_frozen(def)
}

fn is_lru(kind: MapKind) -> bool {
    matches!(kind, MapKind::LruHash | MapKind::LruPercpuHash)
}

fn check_flags(def: &MapDef) -> Result<(), MapError> {
    let map = || def.name.clone();
    let either = MapFlags::RDONLY_PROG.union(MapFlags::WRONLY_PROG);
    // As in Linux: programs neither read nor write arrays of programs as bytes, and ring buffers have helpers of
    // their own.
    let access = match def.kind {
        MapKind::ProgArray
        | MapKind::Ringbuf
        | MapKind::UserRingbuf
        | MapKind::StackTrace
        | MapKind::PerfEventArray
        | MapKind::Devmap
        | MapKind::DevmapHash
        | MapKind::Cpumap
        | MapKind::Xskmap
        | MapKind::Arena
        | MapKind::SkStorage
        | MapKind::InodeStorage
        | MapKind::TaskStorage
        | MapKind::CgrpStorage => MapFlags(0),
        // It has those of an array, although no program reads or writes its elements.
        MapKind::ReuseportSockarray => either,
        kind if members::rules(kind).is_some() => MapFlags(0),
        _ => either,
    };
    let provided = access.union(match def.kind {
        MapKind::Hash | MapKind::PercpuHash | MapKind::HashOfMaps => {
            MapFlags::NO_PREALLOC.union(MapFlags::ZERO_SEED)
        }
        MapKind::LpmTrie => MapFlags::NO_PREALLOC,
        // There is one clock for all CPUs, whether or not one for each is requested.
        MapKind::LruHash | MapKind::LruPercpuHash => MapFlags::NO_COMMON_LRU.union(MapFlags::ZERO_SEED),
        MapKind::BloomFilter => MapFlags::ZERO_SEED,
        MapKind::Arena => MapFlags::MMAPABLE.union(MapFlags::SEGV_ON_FAULT).union(MapFlags::NO_USER_CONV),
        // Linux takes the flag for all of them, although only sockets are cloned.
        MapKind::SkStorage | MapKind::InodeStorage | MapKind::TaskStorage | MapKind::CgrpStorage => {
            MapFlags::NO_PREALLOC.union(MapFlags::CLONE)
        }
        MapKind::Array => MapFlags::MMAPABLE.union(MapFlags::INNER_MAP),
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
    let of_owners =
        def.kind.is_storage() && !matches!(def.kind, MapKind::CgroupStorage | MapKind::PercpuCgroupStorage);
    if (def.kind == MapKind::LpmTrie || of_owners) && !def.flags.contains(MapFlags::NO_PREALLOC) {
        return Err(MapError::NeedsNoPrealloc { map: map(), kind: def.kind });
    }
    if def.kind == MapKind::Arena && !def.flags.contains(MapFlags::MMAPABLE) {
        return Err(MapError::NeedsMmapable { map: map() });
    }
    Ok(())
}

fn check_extra(def: &MapDef) -> Result<(), MapError> {
    if def.kind == MapKind::Arena {
        let wanted = "0, or the address of the first page: a multiple of 4096 so that no page is behind the next multiple \
                      of 4 GiB";
        return match Arena::takes_start(def) {
            true => Ok(()),
            false => Err(MapError::Extra { map: def.name.clone(), kind: def.kind, extra: def.extra, wanted }),
        };
    }
    let (most, wanted) = match def.kind {
        MapKind::BloomFilter => (u64::from(bloom::MAX_HASHES), "the number of hash functions, at most 15"),
        _ => (0, "0"),
    };
    if def.extra <= most {
        return Ok(());
    }
    Err(MapError::Extra { map: def.name.clone(), kind: def.kind, extra: def.extra, wanted })
}

/// Special fields, which copies skip.
fn check_fields(def: &MapDef) -> Result<(), MapError> {
    let map = || def.name.clone();
    // No memory of a process is pinned here, so nothing makes such a pointer true.
    let pinned = |field: &&SpecialField| matches!(field.kind, SpecialKind::Uptr { .. });
    if let Some(field) = def.misplaced().or_else(|| def.fields.iter().find(pinned)) {
        let holds = |kind: &MapKind| holders(field.kind).contains(kind) && !pinned(&field);
        let allowed = PROVIDED.iter().copied().filter(holds).collect();
        return Err(MapError::FieldNotAllowed {
            map: map(),
            kind: def.kind,
            field: field.kind.name(),
            allowed,
        });
    }
    if let Some(inner) = &def.inner {
        check_fields(inner)?;
    }
    let lock = def.fields.iter().any(|field| field.kind == SpecialKind::SpinLock);
    if lock && (def.flags.0 & MapFlags::RDONLY_PROG.union(MapFlags::WRONLY_PROG).0) != 0 {
        return Err(MapError::LockNotWritable { map: map() });
    }
    // The calls on lists and trees, and their destruction, know these sizes; a lock guards them.
    let unfit = |field: &&SpecialField| {
        field_size(field.kind)
            .is_some_and(|(size, align)| field.size != size || !field.offset.is_multiple_of(align))
    };
    let many = def.fields.get(MAX_SPECIAL);
    if let Some(&SpecialField { offset, size, .. }) = def.fields.iter().find(unfit).or(many) {
        return Err(MapError::Field { map: map(), value_size: def.value_size, offset, size });
    }
    match def.defect() {
        None => Ok(()),
        Some(Defect::Field(SpecialFieldAt { offset, size, .. })) => {
            Err(MapError::Field { map: map(), value_size: def.value_size, offset, size })
        }
        Some(Defect::Repeated(SpecialFieldAt { name, offset, .. })) => {
            Err(MapError::FieldRepeated { map: map(), name, offset })
        }
        Some(_) => Err(MapError::NestedMaps { map: map() }),
    }
}

/// Frozen contents.
fn check_frozen(def: &MapDef) -> Result<(), MapError> {
    let Some(frozen) = &def.frozen else { return Ok(()) };
    // Copies skip special fields, so the value would not be what the definition says.
    if def.kind == MapKind::Array && frozen.len() == def.value_size as usize && def.fields.is_empty() {
        return Ok(());
    }
    let (map, kind) = (def.name.clone(), def.kind);
    Err(MapError::FrozenContents { map, kind, value_size: def.value_size, given: frozen.len() })
}

fn too_large(def: &MapDef, options: &Options, bytes: Option<usize>) -> MapError {
    MapError::TooLarge {
        map: def.name.clone(),
        bytes: bytes.map_or(u64::MAX, |bytes| bytes as u64),
        max_entries: def.max_entries,
        limit: options.limit,
    }
}
