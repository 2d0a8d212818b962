//! Invalid declarations of maps.

use super::refused;
use crate::support::btf::Attribute::{self, Member, Number, Type};
use crate::support::btf::{Types, object_with_map};
use crate::support::*;
use skep_abi::{MapDef, MapKind};
use skep_elf::Object;
use skep_isa::{Imm64, Insn, Reg};

#[test]
fn old_map_declarations_are_read() {
    let object = Object::parse(include_bytes!("../../objects/legacy.bpf.o")).unwrap();
    assert_eq!(object.maps()[0].def, MapDef::new("old", MapKind::Hash, 4, 4, 10));
    let source = object.program("program").unwrap().source(None).unwrap();
    let loads = |insn: &Insn| matches!(insn, Insn::LoadImm64 { value: Imm64::Map(0), .. });
    assert!(source.insns.iter().any(loads), "the program names it");
}

/// An object whose section `maps` holds these numbers, with symbols at these bytes.
fn with_old_maps(words: &[u32], names: &[(&str, u64)]) -> Vec<u8> {
    let mut file = ObjectFile::with_program();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let maps = file.data("maps", &bytes);
    for (name, at) in names {
        file.variable(name, maps, *at, 0);
    }
    file.build()
}

#[test]
fn old_maps_of_maps_name_their_template() {
    let defs = |bytes: &[u8]| {
        let object = Object::parse(bytes).unwrap();
        object.maps().iter().map(|map| map.def.clone()).collect::<Vec<_>>()
    };
    let inner = |def: &MapDef| def.inner.as_deref().map(|inner| (inner.kind, inner.value_size));
    // As in Linux's samples: the sixth number is a place among the maps.
    let words = [[2, 4, 8, 1, 0, 0, 0], [12, 4, 4, 2, 0, 0, 0], [13, 4, 4, 2, 0, 1, 0]].concat();
    let maps = defs(&with_old_maps(&words, &[("third", 56), ("first", 0), ("second", 28)]));
    assert_eq!(maps.iter().map(|def| &*def.name).collect::<Vec<_>>(), ["first", "second", "third"]);
    assert_eq!(inner(&maps[1]), Some((MapKind::Array, 8)));
    assert_eq!(inner(&maps[2]), None, "a map of maps is no template");
    // As iproute2 has it: the eighth is the sixth of the template.
    let words = [[12, 4, 4, 2, 0, 9, 0, 7, 0], [1, 4, 16, 1, 0, 7, 0, 0, 0]].concat();
    let maps = defs(&with_old_maps(&words, &[("outer", 0), ("template", 36)]));
    assert_eq!(inner(&maps[0]), Some((MapKind::Hash, 16)));
}

#[test]
fn damaged_old_map_declarations_are_refused() {
    let start = "section maps declares maps in the old form (struct bpf_map_def), but ";
    let end = "; declare them in SEC(\".maps\") with __uint() and __type()";
    let words = [2, 4, 8, 1, 0];
    assert_eq!(
        refused(&with_old_maps(&words, &[])),
        format!("{start}no symbol says where each of them begins{end}")
    );
    let short = |at| refused(&with_old_maps(&words, &[("a", 0), ("b", at)]));
    assert_eq!(short(8), format!("{start}map a has 8 bytes, at least 16 are needed{end}"));
    assert_eq!(short(u64::MAX), format!("{start}map a has 0 bytes, at least 16 are needed{end}"));
    assert_eq!(short(20), format!("{start}map b has 0 bytes, at least 16 are needed{end}"));
    let unknown = refused(&with_old_maps(&[99, 4, 8, 1, 0], &[("a", 0)]));
    assert_eq!(unknown, "map a is of the unknown type 99; the last that is known is 33 (arena)");
}

#[test]
fn symbols_say_where_maps_are() {
    let mut types = Types::new();
    let sizes = [("type", 2), ("key_size", 4), ("value_size", 4), ("max_entries", 1)];
    let map = types.map(&sizes.map(|(name, number)| Number(name, number)));
    // As old compilers wrote it: all offsets are 0.
    types.data_section(".maps", &[("a", map, 0, 32), ("b", map, 0, 32)]);
    let mut file = ObjectFile::new();
    let code = file.program("f", &[&LOAD_R1[..], &[0; 8], &RETURN_0].concat());
    let maps = file.data(".maps", &[0; 64]);
    file.info(".BTF", types.build());
    file.variable("a", maps, 32, 32);
    let b = file.variable("b", maps, 0, 32);
    file.relocate(code, 0, R_BPF_64_64, b);
    let object = Object::parse(&file.build()).unwrap();
    assert_eq!(object.maps().iter().map(|map| &*map.def.name).collect::<Vec<_>>(), ["b", "a"]);
    let source = object.program("f").unwrap().source(None).unwrap();
    assert_eq!(source.insns[0], Insn::LoadImm64 { dst: Reg::R1, value: Imm64::Map(0) });
}

#[test]
fn maps_without_type_information_are_refused() {
    assert_eq!(
        refused(include_bytes!("../../objects/linkage.nobtf.o")),
        "section .maps declares maps by their types, but the object has no .BTF; compile with `clang -g`"
    );
    let mut file = ObjectFile::with_program();
    file.data(".maps", &[0; 8]);
    file.info(".BTF", Types::new().build());
    assert!(refused(&file.build()).contains("but the object has no types for them"));
}

#[test]
fn a_map_of_unknown_kind_is_refused() {
    let bytes = object_with_map(Types::new(), &[Number("type", 99), Number("max_entries", 1)]);
    assert_eq!(refused(&bytes), "map m is of the unknown type 99; the last that is known is 33 (arena)");
    let bytes = object_with_map(Types::new(), &[Number("max_entries", 1)]);
    assert_eq!(refused(&bytes), "map m has no type; add __uint(type, BPF_MAP_TYPE_...)");
}

#[test]
fn a_size_of_zero_is_refused() {
    let hash = |key, value, entries| {
        let sizes = [("key_size", key), ("value_size", value), ("max_entries", entries)];
        let mut attributes = vec![Number("type", 1)];
        attributes
            .extend(sizes.into_iter().filter(|(_, size)| *size > 0).map(|(name, size)| Number(name, size)));
        object_with_map(Types::new(), &attributes)
    };
    assert!(Object::parse(&hash(4, 4, 4)).is_ok());
    assert_eq!(
        refused(&hash(0, 4, 4)),
        "map m: key_size is 0, but a map of type hash needs one; add __type(key, ...)"
    );
    assert_eq!(
        refused(&hash(4, 0, 4)),
        "map m: value_size is 0, but a map of type hash needs one; add __type(value, ...)"
    );
    // The number of elements may be left to the host, which knows the machine.
    assert_eq!(Object::parse(&hash(4, 4, 0)).unwrap().maps()[0].def.max_entries, 0);
    let empty_key = {
        let mut types = Types::new();
        let int = types.int("int", 4);
        let none = types.array(int, 0);
        let attributes =
            [Number("type", 1), Type("key", none), Number("value_size", 4), Number("max_entries", 1)];
        object_with_map(types, &attributes)
    };
    assert!(refused(&empty_key).contains("key_size is 0"));
}

#[test]
fn a_size_that_the_kind_lacks_is_refused() {
    let array = [Number("type", 2), Number("key_size", 8), Number("value_size", 4), Number("max_entries", 1)];
    assert_eq!(
        refused(&object_with_map(Types::new(), &array)),
        "map m: key_size is 8, but a map of type array needs 4"
    );
    let ring = [Number("type", 27), Number("value_size", 4), Number("max_entries", 4096)];
    assert_eq!(
        refused(&object_with_map(Types::new(), &ring)),
        "map m: value_size is 4, but a map of type ringbuf needs 0"
    );
}

#[test]
fn two_sizes_that_disagree_are_refused() {
    let mut types = Types::new();
    let long = types.int("long", 8);
    let attributes = [Number("type", 1), Type("key", long), Number("key_size", 4)];
    assert_eq!(
        refused(&object_with_map(types, &attributes)),
        "map m: key_size says 4 bytes, but the type has 8; drop one of the two"
    );
}

#[test]
fn unknown_attributes_are_refused() {
    assert_eq!(
        refused(&object_with_map(Types::new(), &[Number("max_entires", 1)])),
        "map m: unknown attribute max_entires; known are type, key, value, key_size, value_size, max_entries, \
         map_flags, numa_node, pinning, map_extra, values"
    );
    let mut types = Types::new();
    let int = types.int("int", 4);
    assert_eq!(
        refused(&object_with_map(types, &[Member("type", int)])),
        "map m: attribute type is malformed; write __uint(name, number)"
    );
    let mut types = Types::new();
    let int = types.int("int", 4);
    assert!(refused(&object_with_map(types, &[Member("key", int)])).contains("write __type(name, type)"));
    assert_eq!(
        refused(&object_with_map(Types::new(), &[Number("type", 1), Number("type", 2)])),
        "map m: its declaration says an attribute twice; declare it as an anonymous struct in SEC(\".maps\")"
    );
}

#[test]
fn maps_of_maps_must_declare_their_inner_map() {
    let outer = [Number("type", 12), Number("key_size", 4), Number("max_entries", 1)];
    assert_eq!(
        refused(&object_with_map(Types::new(), &outer)),
        "map m of type array_of_maps: it does not say what its maps look like; add __array(values, struct ...)"
    );
    let nested = |kind: u32, inner: &[Attribute]| {
        let mut types = Types::new();
        let inner = types.map(inner);
        let pointer = types.pointer(inner);
        let values = types.array(pointer, 0);
        let attributes = [
            Number("type", kind),
            Number("key_size", 4),
            Number("value_size", 4),
            Number("max_entries", 1),
            Member("values", values),
        ];
        Object::parse(&object_with_map(types, &attributes)).map(|object| object.maps()[0].def.clone())
    };
    let array = [Number("type", 2), Number("key_size", 4), Number("value_size", 4), Number("max_entries", 1)];
    assert_eq!(nested(12, &array).unwrap().inner.unwrap().value_size, 4);
    assert_eq!(
        nested(2, &array).unwrap_err().to_string(),
        "map m of type array: only maps of maps and of programs have values; remove __array(values, ...)"
    );
    assert_eq!(
        nested(12, &[]).unwrap_err().to_string(),
        "map m.inner has no type; add __uint(type, BPF_MAP_TYPE_...)"
    );
    let mut types = Types::new();
    let innermost = types.map(&array);
    let pointer = types.pointer(innermost);
    let values = types.array(pointer, 0);
    let middle = types.map(&[
        Number("type", 12),
        Number("key_size", 4),
        Number("max_entries", 1),
        Member("values", values),
    ]);
    let pointer = types.pointer(middle);
    let values = types.array(pointer, 0);
    let outer =
        [Number("type", 12), Number("key_size", 4), Number("max_entries", 1), Member("values", values)];
    assert_eq!(
        refused(&object_with_map(types, &outer)),
        "map m.inner of type array_of_maps: a map inside a map cannot hold maps itself"
    );
}

#[test]
fn a_declaration_outside_its_section_is_refused() {
    let mut types = Types::new();
    let map = types.map(&[
        Number("type", 2),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
    ]);
    types.data_section(".maps", &[("m", map, 8, 32)]);
    let mut file = ObjectFile::with_program();
    file.data(".maps", &[0; 32]);
    file.info(".BTF", types.build());
    assert_eq!(
        refused(&file.build()),
        "map m: its declaration lies beyond the end of section .maps; declare it as an anonymous struct in \
         SEC(\".maps\")"
    );
}

#[test]
fn a_reference_between_maps_is_refused() {
    let mut types = Types::new();
    let map = types.map(&[
        Number("type", 2),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
    ]);
    types.data_section(".maps", &[("a", map, 0, 32), ("b", map, 32, 32)]);
    let types = types.build();
    let link = |address| {
        let mut file = ObjectFile::new();
        let code = file.program("f", &[&LOAD_R1[..], &[0; 8], &RETURN_0].concat());
        let maps = file.data(".maps", &[0; 64]);
        file.info(".BTF", types.clone());
        let symbol = file.variable("x", maps, address, 8);
        file.relocate(code, 0, R_BPF_64_64, symbol);
        Object::parse(&file.build()).unwrap().program("f").unwrap().source(None)
    };
    assert!(link(32).is_ok());
    assert_eq!(
        link(8).unwrap_err().to_string(),
        "section xdp, byte 0: x is not a map; build the object again"
    );
}

#[test]
fn maps_that_overlap_are_refused() {
    let mut types = Types::new();
    let map = types.map(&[
        Number("type", 2),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
    ]);
    types.data_section(".maps", &[("a", map, 0, 32), ("b", map, 24, 32)]);
    let mut file = ObjectFile::with_program();
    file.data(".maps", &[0; 64]);
    file.info(".BTF", types.build());
    assert!(refused(&file.build()).starts_with("map b: its declaration overlaps another map's"));
}

#[test]
fn an_initial_value_that_is_not_a_map_is_refused() {
    let with = |place: fn(&mut ObjectFile, SectionId) -> (u64, SymbolId)| {
        let mut types = Types::new();
        let inner = types.map(&[
            Number("type", 2),
            Number("key_size", 4),
            Number("value_size", 4),
            Number("max_entries", 1),
        ]);
        let pointer = types.pointer(inner);
        let values = types.array(pointer, 0);
        let outer = types.map(&[
            Number("type", 12),
            Number("key_size", 4),
            Number("max_entries", 2),
            Member("values", values),
        ]);
        types.data_section(".maps", &[("m", outer, 0, 32)]);
        let mut file = ObjectFile::with_program();
        let maps = file.data(".maps", &[0; 64]);
        file.info(".BTF", types.build());
        let (offset, symbol) = place(&mut file, maps);
        file.relocate(maps, offset, R_BPF_64_ABS64, symbol);
        refused(&file.build())
    };
    assert_eq!(
        with(|file, _| (24, file.undefined("elsewhere"))),
        "map m: the initial value at byte 24 of section .maps names elsewhere, which is not a map"
    );
    assert!(
        with(|file, maps| (40, file.variable("m", maps, 0, 32)))
            .contains("has initial values beyond max_entries")
    );
    assert!(with(|file, maps| (8, file.variable("m", maps, 0, 32))).contains("section .maps, byte 8"));
}

/// An object with these maps of type arena, of one page, and a program that loads the address of byte 8 of so many
/// bytes of variables.
fn with_arenas(names: &[&str], variables: &[u8]) -> Vec<u8> {
    let mut types = Types::new();
    let map = types.map(&[Number("type", 33), Number("map_flags", 1 << 10), Number("max_entries", 1)]);
    let places: Vec<_> = names.iter().zip(0..).map(|(name, at)| (*name, map, at * 24, 24)).collect();
    types.data_section(".maps", &places);
    let mut file = ObjectFile::new();
    let code = file.program("f", &[&LOAD_R1[..], &[0; 8], &RETURN_0].concat());
    if !names.is_empty() {
        file.data(".maps", &vec![0; 24 * names.len()]);
    }
    file.info(".BTF", types.build());
    let data = file.data(".addr_space.1", variables);
    let symbol = file.variable("v", data, 8, 8);
    file.relocate(code, 0, R_BPF_64_64, symbol);
    file.build()
}

#[test]
fn variables_in_an_arena_are_at_its_start() {
    let object = Object::parse(&with_arenas(&["heap"], &[1; 4096])).unwrap();
    let source = object.program("f").unwrap().source(None).unwrap();
    let place = Imm64::MapValue { map: 0, offset: 8 };
    assert_eq!(source.insns[0], Insn::LoadImm64 { dst: Reg::R1, value: place });
    assert_eq!(object.maps().len(), 1, "the section is no map of its own");
}

#[test]
fn variables_in_an_arena_need_one_with_room() {
    let start = "section .addr_space.1 holds variables in an arena, but ";
    assert_eq!(
        refused(&with_arenas(&[], &[0; 16])),
        format!("{start}the object declares no map of type BPF_MAP_TYPE_ARENA; declare one")
    );
    assert_eq!(
        refused(&with_arenas(&["a", "b"], &[0; 16])),
        format!("{start}the object has the arenas a and b; declare only one")
    );
    assert_eq!(
        refused(&with_arenas(&["heap"], &[0; 4097])),
        format!(
            "{start}its 4097 bytes exceed the 4096 of the arena heap; raise max_entries, its number of pages"
        )
    );
}
