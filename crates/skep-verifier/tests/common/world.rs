//! The tests' host beyond the tables of `skep-abi`: tracing program types, and maps with every kind of value.

use skep_abi::{Context, HelperSet, MapDef, MapFlags, MapKind, ProgramType, SpecialField, SpecialKind};
use std::sync::Arc;

/// A type whose programs may read the host's addresses.
pub(crate) static TRACING: ProgramType = ProgramType {
    name: "tracing",
    number: Some(26),
    context: Context::Bytes { name: "pt_regs", first: 0, bytes: 64, writable: false, words: true },
    may_leak: true,
    helpers: HelperSet::of(&[1, 2, 3, 5, 6, 7, 8, 148]),
    ..ProgramType::PLAIN
};

/// A type whose programs interrupt others.
pub(crate) static PROBE: ProgramType = ProgramType { number: Some(2), name: "probe", ..TRACING };

/// Maps from index 8 on:
///
/// 8: array whose 48-byte values have a lock at 0, a timer at 16 and a pointer to an object of type 7 at 32; 9: the
/// same as 8; 10: array of maps like 8; 11: queue of 8-byte values; 12: bloom filter of 4-byte values; 13: xskmap;
/// 14: sockmap; 15: devmap; 16: constants, "skep" and the numbers 1 to 12 behind its zero byte; 17: sk_storage of
/// 8-byte values; 18: stack traces; 19: hash of maps like 0 with 8-byte values; 20: array whose 16-byte values are an
/// owning pointer to an object of type 7 and one without ownership.
pub(crate) fn maps() -> Vec<MapDef> {
    let map = |name: &str, kind, sizes: (u32, u32), max_entries, flags| MapDef {
        flags,
        ..MapDef::new(name, kind, sizes.0, sizes.1, max_entries)
    };
    let plain = MapFlags(0);
    let field = |kind, offset, size| SpecialField { kind, offset, size };
    let locked = |name| MapDef {
        fields: vec![
            field(SpecialKind::SpinLock, 0, 4),
            field(SpecialKind::Timer, 16, 16),
            field(SpecialKind::Kptr { to: 7 }, 32, 8),
        ],
        ..map(name, MapKind::Array, (4, 48), 8, plain)
    };
    let constants: Vec<u8> = b"skep\0".iter().copied().chain(1..12).collect();
    vec![
        locked("locked"),
        locked("twin"),
        MapDef {
            inner: Some(Box::new(locked("outer.inner"))),
            ..map("outer", MapKind::ArrayOfMaps, (4, 4), 8, plain)
        },
        map("queue", MapKind::Queue, (0, 8), 8, plain),
        map("bloom", MapKind::BloomFilter, (0, 4), 8, plain),
        map("xsks", MapKind::Xskmap, (4, 4), 8, plain),
        map("socks", MapKind::Sockmap, (4, 4), 8, plain),
        map("devices", MapKind::Devmap, (4, 4), 8, plain),
        MapDef {
            frozen: Some(Arc::from(constants)),
            ..map("constants", MapKind::Array, (4, 16), 1, MapFlags::RDONLY_PROG)
        },
        map("storage", MapKind::SkStorage, (4, 8), 0, plain),
        map("traces", MapKind::StackTrace, (4, 64), 8, plain),
        MapDef {
            inner: Some(Box::new(map("tables.inner", MapKind::Hash, (4, 8), 8, plain))),
            ..map("tables", MapKind::HashOfMaps, (4, 4), 8, plain)
        },
        MapDef {
            fields: vec![
                field(SpecialKind::Kptr { to: 7 }, 0, 8),
                field(SpecialKind::KptrUntrusted { to: 7 }, 8, 8),
            ],
            ..map("kept", MapKind::Array, (4, 16), 8, plain)
        },
    ]
}
