//! Types of maps: their C spelling, their sizes, and the sizes that each kind of map accepts.

use crate::support::btf::{Attribute, Types, object_with_map};
use skep_abi::{MapDef, MapKind};
use skep_elf::{Object, ObjectMap};

use Attribute::{Member, Number, Type};

/// The map whose key has that type.
#[track_caller]
fn map_with_key(types: Types, key: u32) -> ObjectMap {
    let attributes = [Number("type", 1), Type("key", key), Number("value_size", 4), Number("max_entries", 1)];
    Object::parse(&object_with_map(types, &attributes)).unwrap().maps()[0].clone()
}

#[test]
fn types_are_written_as_c_writes_them() {
    type Make = fn(&mut Types) -> u32;
    let cases: [(Make, &str, u32); 12] = [
        (|t| t.int("unsigned int", 4), "unsigned int", 4),
        (|t| t.structure("ip", &[("a", 0), ("b", 0)]), "struct ip", 16),
        (|t| t.structure("", &[("a", 0)]), "struct {...}", 8),
        (|t| t.add("pair", 5, 0, 12, &[]), "union pair", 12),
        (|t| t.add("color", 6, 0, 4, &[]), "enum color", 4),
        (|t| t.pointer(0), "void *", 8),
        (
            |t| {
                let int = t.int("int", 4);
                let pointer = t.pointer(int);
                t.array(pointer, 3)
            },
            "int *[3]",
            24,
        ),
        (
            |t| {
                let int = t.int("int", 4);
                let array = t.array(int, 3);
                t.pointer(array)
            },
            "int (*)[3]",
            8,
        ),
        (
            |t| {
                let int = t.int("int", 4);
                let inner = t.array(int, 2);
                t.array(inner, 3)
            },
            "int[3][2]",
            24,
        ),
        (
            |t| {
                let function = t.function_type();
                t.pointer(function)
            },
            "void (*)()",
            8,
        ),
        (
            |t| {
                let int = t.int("int", 4);
                let qualified = t.add("", 10, 0, int, &[]); // const
                let volatile = t.add("", 9, 0, qualified, &[]);
                t.typedef("counter", volatile)
            },
            "counter",
            4,
        ),
        (
            |t| {
                let int = t.int("int", 4);
                let qualified = t.add("", 10, 0, int, &[]);
                t.array(qualified, 5)
            },
            "int[5]",
            20,
        ),
    ];
    for (make, expected, size) in cases {
        let mut types = Types::new();
        let key = make(&mut types);
        let map = map_with_key(types, key);
        assert_eq!((map.key_type.as_deref(), map.def.key_size), (Some(expected), size));
    }
}

/// The definition of a map of that kind with those sizes.
fn sized(kind: MapKind, key: u32, value: u32, entries: u32) -> Result<MapDef, skep_elf::Error> {
    let mut types = Types::new();
    let inner = types.map(&[
        Number("type", 2),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
    ]);
    let pointer = types.pointer(inner);
    let values = types.array(pointer, 0);
    let mut attributes = vec![Number("type", kind.number())];
    let sizes = [("key_size", key), ("value_size", value), ("max_entries", entries)];
    attributes.extend(sizes.into_iter().filter(|(_, size)| *size > 0).map(|(name, size)| Number(name, size)));
    if matches!(kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps) {
        attributes.push(Member("values", values));
    }
    Object::parse(&object_with_map(types, &attributes)).map(|object| object.maps()[0].def.clone())
}

#[test]
fn every_kind_of_map_accepts_valid_sizes() {
    use MapKind::*;
    for &kind in MapKind::ALL {
        let (key, value, entries) = match kind {
            Queue | Stack | BloomFilter => (0, 8, 16),
            Ringbuf | UserRingbuf | Arena => (0, 0, 4096),
            SkStorage | InodeStorage | TaskStorage | CgrpStorage | CgroupStorage | PercpuCgroupStorage => {
                (4, 8, 0)
            }
            PerfEventArray => (4, 4, 0),
            _ => (4, 4, 16),
        };
        let def = sized(kind, key, value, entries).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!((def.kind, def.key_size, def.value_size, def.max_entries), (kind, key, value, entries));
    }
}

#[test]
fn maps_of_references_have_4_byte_values_by_default() {
    for kind in [MapKind::ProgArray, MapKind::ArrayOfMaps, MapKind::HashOfMaps, MapKind::PerfEventArray] {
        assert_eq!(sized(kind, 4, 0, 1).unwrap().value_size, 4, "{kind}");
        assert!(sized(kind, 4, 8, 1).unwrap_err().to_string().contains("value_size is 8"), "{kind}");
    }
}

#[test]
fn kinds_without_keys_refuse_one() {
    for kind in [MapKind::Queue, MapKind::Stack, MapKind::BloomFilter, MapKind::Ringbuf] {
        let error = sized(kind, 4, 0, 4096).unwrap_err().to_string();
        assert!(error.ends_with(&format!("key_size is 4, but a map of type {kind} needs 0")), "{error}");
    }
}

#[test]
fn a_ring_buffer_may_declare_its_record_type() {
    for (kind, size) in [(MapKind::Ringbuf, 0), (MapKind::PerfEventArray, 4)] {
        let mut types = Types::new();
        let record = types.structure("record", &[("a", 0), ("b", 0)]);
        let attributes = [Number("type", kind.number()), Type("value", record), Number("max_entries", 4096)];
        let map = Object::parse(&object_with_map(types, &attributes)).unwrap().maps()[0].clone();
        assert_eq!((map.def.key_size, map.def.value_size, map.def.value_btf), (size, size, Some(record)));
        assert_eq!(map.value_type.as_deref(), Some("struct record"));
    }
}

#[test]
fn flags_extras_and_pinning_are_passed_on() {
    let attributes = [
        Number("type", 1),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
        Number("map_flags", 1 << 10 | 1),
        Number("numa_node", 1),
        Number("pinning", 1),
        Number("map_extra", 5),
    ];
    let object = Object::parse(&object_with_map(Types::new(), &attributes)).unwrap();
    let (index, map) = object.map("m").unwrap();
    assert_eq!((index, map.def.flags.0, map.pinned, map.def.extra), (0, 0x401, true, 5));

    // `__ulong(map_extra, number)`: an enumeration of 64-bit values with one of them.
    let mut types = Types::new();
    let number = types.add("", 19, 1, 8, &[0, 0x5678, 0x1234]);
    let attributes = [
        Number("type", 1),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
        Member("map_extra", number),
    ];
    let object = Object::parse(&object_with_map(types, &attributes)).unwrap();
    assert_eq!(object.maps()[0].def.extra, 0x1234_0000_5678);
}
