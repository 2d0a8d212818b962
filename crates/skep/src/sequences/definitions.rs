//! Random definitions of maps: most of them make maps, some of them no library should accept.

use skep_abi::{MapDef, MapFlags, MapKind};
use skep_btf::{SpecialField, SpecialKind};
use skep_testgen::Source;
use std::sync::Arc;

/// The kinds, those more often that programs do most with.
const KINDS: &[MapKind] = &[
    MapKind::Array,
    MapKind::Array,
    MapKind::Array,
    MapKind::Array,
    MapKind::Hash,
    MapKind::Hash,
    MapKind::PercpuArray,
    MapKind::PercpuHash,
    MapKind::LruHash,
    MapKind::LruPercpuHash,
    MapKind::LpmTrie,
    MapKind::Queue,
    MapKind::Stack,
    MapKind::BloomFilter,
    MapKind::Ringbuf,
    MapKind::ProgArray,
    MapKind::ProgArray,
    MapKind::ArrayOfMaps,
    MapKind::ArrayOfMaps,
    MapKind::ArrayOfMaps,
    MapKind::HashOfMaps,
    MapKind::HashOfMaps,
];
/// How deep templates of inner maps go.
const DEPTH: u32 = 3;
const ENTRIES: &[u32] = &[1, 1, 2, 4, 4, 4, 5, 8, 16];
const FIELDS: &[SpecialKind] = &[
    SpecialKind::SpinLock,
    SpecialKind::SpinLock,
    SpecialKind::SpinLock,
    SpecialKind::Timer,
    SpecialKind::ResSpinLock,
    SpecialKind::Workqueue,
    SpecialKind::Refcount,
    SpecialKind::KptrUntrusted { to: 1 },
    SpecialKind::Kptr { to: 1 },
    SpecialKind::ListHead { holds: 1, node: 0 },
];

/// Whether maps of that kind hold maps.
pub(super) fn holds_maps(kind: MapKind) -> bool {
    matches!(kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps)
}

/// The definitions of an object's maps: among them often some that look like what others hold.
pub(super) fn definitions(source: &mut Source) -> Vec<MapDef> {
    let mut maps: Vec<MapDef> = Vec::new();
    for number in 0..source.between(1, 4) {
        let name = format!("m{number}");
        let template = maps.iter().find_map(|def| def.inner.as_deref()).cloned();
        maps.push(match template {
            Some(template) if source.chance(60) => MapDef { name, ..similar(source, &template) },
            _ => definition(source, name, 0),
        });
    }
    maps
}

/// Any definition. `depth` of templates are around it.
pub(super) fn definition(source: &mut Source, name: String, depth: u32) -> MapDef {
    let kind = match source.chance(2) {
        true => source.pick(MapKind::ALL),
        false if depth == DEPTH => MapKind::Array,
        false => source.pick(KINDS),
    };
    let mut def = MapDef::new(name, kind, key_size(source, kind), value_size(source, kind), 1);
    def.max_entries = match kind {
        MapKind::Ringbuf => 4096,
        _ if source.chance(2) => source.pick(&[0, 1 << 20, u32::MAX]),
        _ => source.pick(ENTRIES),
    };
    def.flags = flags(source, kind);
    if holds_maps(kind) != source.chance(3) {
        def.inner = Some(Box::new(definition(source, "inner".into(), depth + 1)));
    }
    if source.chance(10) {
        def.fields = fields(source);
        if matches!(def.kind, MapKind::Array | MapKind::Hash) && source.chance(90) {
            (def.value_size, def.flags) = (def.value_size.max(24), MapFlags(0));
        }
    }
    if source.chance(1) {
        def.extra = source.number();
    }
    if source.chance(8) {
        freeze(source, &mut def);
    }
    def
}

/// A definition that differs from another in one way, or not at all.
pub(super) fn similar(source: &mut Source, def: &MapDef) -> MapDef {
    let mut def = def.clone();
    match source.below(16) {
        0..=3 => {}
        4..=7 => def.max_entries = def.max_entries.saturating_mul(source.pick(&[2, 4, 4, 8])),
        8 => def.max_entries = source.pick(ENTRIES),
        9 => def.value_size = value_size(source, def.kind),
        10 => def.flags = flags(source, def.kind),
        11 => def.fields = fields(source),
        12 => def.fields.clear(),
        13 => def.kind = source.pick(KINDS),
        14 => match &mut def.inner {
            Some(inner) => **inner = similar(source, inner),
            None => freeze(source, &mut def),
        },
        _ => def.key_size = key_size(source, def.kind),
    }
    def
}

fn key_size(source: &mut Source, kind: MapKind) -> u32 {
    if source.chance(2) {
        return source.pick(&[0, 3, 4, 8, 600]);
    }
    match kind {
        MapKind::Queue | MapKind::Stack | MapKind::BloomFilter | MapKind::Ringbuf => 0,
        MapKind::LpmTrie => source.pick(&[8, 8, 5]),
        MapKind::Hash | MapKind::PercpuHash | MapKind::LruHash | MapKind::LruPercpuHash => {
            source.pick(&[4, 4, 8, 3, 16])
        }
        _ => 4,
    }
}

fn value_size(source: &mut Source, kind: MapKind) -> u32 {
    if source.chance(2) {
        return source.pick(&[0, 1, 4, 8, 5000]);
    }
    match kind {
        MapKind::Ringbuf => 0,
        kind if holds_maps(kind) || kind == MapKind::ProgArray => 4,
        _ => source.pick(&[8, 8, 8, 16, 64, 4, 1, 12, 24]),
    }
}

fn flags(source: &mut Source, kind: MapKind) -> MapFlags {
    let mut flags = match kind {
        MapKind::LpmTrie => MapFlags::NO_PREALLOC,
        MapKind::Hash | MapKind::PercpuHash | MapKind::HashOfMaps if source.chance(25) => {
            MapFlags::NO_PREALLOC
        }
        _ => MapFlags(0),
    };
    if source.chance(6) {
        flags = flags.union(source.pick(&[MapFlags::RDONLY_PROG, MapFlags::WRONLY_PROG]));
    }
    if source.chance(2) {
        flags = flags.union(MapFlags(1 << source.below(16)));
    }
    flags
}

fn fields(source: &mut Source) -> Vec<SpecialField> {
    let mut at = source.pick(&[0, 0, 0, 0, 0, 0, 4, 4, 8, 8, 2]);
    let mut fields = Vec::new();
    for _ in 0..source.pick(&[1, 1, 2]) {
        let kind = source.pick(FIELDS);
        let size = match kind {
            _ if source.chance(3) => source.pick(&[0, 3, 64, u32::MAX]),
            SpecialKind::SpinLock | SpecialKind::ResSpinLock | SpecialKind::Refcount => 4,
            SpecialKind::KptrUntrusted { .. } | SpecialKind::Kptr { .. } => 8,
            _ => 16,
        };
        fields.push(SpecialField { kind, offset: at, size });
        at = at.wrapping_add(size).wrapping_add(source.pick(&[0, 0, 4]));
    }
    fields
}

/// Says what the only value holds, as a loader of constants does and a caller may.
fn freeze(source: &mut Source, def: &mut MapDef) {
    let bytes = if source.chance(90) { def.value_size } else { source.below(100) };
    def.frozen = Some((0..bytes.min(64)).map(|_| source.below(64) as u8).collect::<Arc<[u8]>>());
    if source.chance(80) {
        (def.kind, def.key_size, def.max_entries) = (MapKind::Array, 4, 1);
        def.flags = MapFlags::RDONLY_PROG;
        def.value_size = def.value_size.max(1);
    }
}
