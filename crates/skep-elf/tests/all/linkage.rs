//! References to code, maps and data in every form that clang emits, from `objects/linkage.bpf.c`. The numbers are
//! from `llvm-readelf` and `llvm-objdump`.

use crate::support::*;
use skep_abi::{MapFlags, MapKind, ProgramSource, RAW};
use skep_elf::{EntryTarget, LinkOptions, MapEntry, Object, ObjectMap};
use skep_isa::{CallTarget, Imm64, Insn, Reg};

const CLANG_19: &[u8] = include_bytes!("../objects/linkage.bpf.o");
const CLANG_13: &[u8] = include_bytes!("../objects/linkage.clang13.o");
const EXCEPTIONS: &[u8] = include_bytes!("../../../skep/tests/objects/exceptions/exceptions.bpf.o");
const PLAIN: &[u8] = include_bytes!("../objects/plain.bpf.o");

/// Functions without their prototypes, which `prototypes.rs` tests.
fn functions(source: &ProgramSource) -> Vec<(&str, u32, bool)> {
    source.functions.iter().map(|function| (&*function.name, function.start, function.global)).collect()
}

/// Maps without their type ids, which compilers choose.
fn maps(object: &Object) -> Vec<ObjectMap> {
    let mut maps = object.maps().to_vec();
    for map in &mut maps {
        (map.def.key_btf, map.def.value_btf) = (None, None);
        if let Some(inner) = &mut map.def.inner {
            (inner.key_btf, inner.value_btf) = (None, None);
        }
    }
    maps
}

#[test]
fn exported_functions_of_named_sections_are_the_programs() {
    let object = Object::parse(CLANG_19).unwrap();
    let programs: Vec<_> = object.programs().iter().map(|p| (p.name(), p.section())).collect();
    assert_eq!(
        programs,
        [("leaf", "xdp"), ("first", "xdp"), ("other", "xdp/other"), ("mystery", "mystery/thing")]
    );
}

#[test]
fn a_program_contains_each_function_it_reaches_once() {
    let object = Object::parse(CLANG_19).unwrap();
    let first = object.program("first").unwrap().source(None).unwrap();
    assert_eq!(
        functions(&first),
        [
            ("first", 0, true),
            ("callback", 27, false),
            ("global_in_text", 32, true),
            // Functions that global_in_text reaches come before those that its caller references later, as in libbpf.
            ("static_in_text", 40, false),
            ("hidden_in_text", 54, false),
            ("static_in_xdp", 60, false),
        ]
    );
    assert_eq!(first.insns.len(), 67);
    let leaf = object.program("leaf").unwrap().source(None).unwrap();
    assert_eq!(functions(&leaf), [("leaf", 0, true), ("static_in_xdp", 12, false)]);
}

#[test]
fn exception_callbacks_come_after_all_reached_functions() {
    let object = Object::parse(EXCEPTIONS).unwrap();
    let names = |program: &str| -> Vec<String> {
        let source = object.program(program).unwrap().link(None, &own_functions()).unwrap();
        source.functions.into_iter().map(|function| function.name).collect()
    };
    assert_eq!(names("plain"), ["plain", "first", "second", "third"]);
    assert_eq!(names("handled"), ["handled", "first", "second", "third", "handle", "doubled"]);
    assert_eq!(names("at_once"), ["at_once", "handle_otherwise"]);
    assert_eq!(names("drops"), ["drops"]);
}

/// A host with `bpf_throw` under an arbitrary number.
fn own_functions() -> LinkOptions<'static> {
    LinkOptions { functions: Some(&|name| (name == "bpf_throw").then_some(7)), ..LinkOptions::default() }
}

#[test]
fn calls_reach_functions_within_and_across_sections() {
    let object = Object::parse(CLANG_19).unwrap();
    let first = object.program("first").unwrap().source(None).unwrap();
    let calls: Vec<_> = (0i32..)
        .zip(&first.insns)
        .filter_map(|(slot, insn)| match insn {
            Insn::Call { target: CallTarget::Local(distance) } => Some((slot, slot + 1 + distance)),
            _ => None,
        })
        .collect();
    // To global_in_text and hidden_in_text by symbol, to static_in_xdp without a relocation, then twice to
    // static_in_text from inside its section.
    assert_eq!(calls, [(16, 32), (19, 54), (23, 60), (33, 40), (54, 40)]);
}

#[test]
fn the_address_of_a_function_is_its_distance() {
    let object = Object::parse(CLANG_19).unwrap();
    let first = object.program("first").unwrap().source(None).unwrap();
    // `callback` is byte 0xf8 of .text, which clang writes as an addend to the section; it starts at slot 27.
    assert_eq!(first.insns[6], Insn::LoadImm64 { dst: Reg::R2, value: Imm64::Function(20) });
    assert_eq!(first.insns[7], Insn::LoadImm64Tail);
}

#[test]
fn maps_and_variables_are_named_by_their_index() {
    let object = Object::parse(CLANG_19).unwrap();
    let index = |name| object.map(name).unwrap().0;
    let loads = |program: &str| -> Vec<Imm64> {
        let source = object.program(program).unwrap().source(None).unwrap();
        let loads = source.insns.into_iter().filter_map(|insn| match insn {
            Insn::LoadImm64 { value, .. } => Some(value),
            _ => None,
        });
        loads.filter(|value| !matches!(value, Imm64::Function(_))).collect()
    };
    let value = |name, offset| Imm64::MapValue { map: index(name), offset };
    assert_eq!(loads("leaf"), [Imm64::Map(index("jumps")), value(".bss.more", 0), value(".bss", 0)],);
    // The static `calls` is byte 32 of .bss, which clang writes as an addend.
    assert_eq!(loads("other")[..2], [value(".bss", 32), Imm64::Map(index("outer"))],);
    assert_eq!(
        loads("first"),
        [
            value(".rodata.str1.1", 0),
            value(".rodata", 0),
            value(".bss", 0),
            value(".data", 0),
            value(".data.shared", 0),
            value(".bss", 0),
        ]
    );
}

#[test]
fn declared_maps_are_as_declared() {
    let object = Object::parse(CLANG_19).unwrap();
    let names: Vec<_> = object.maps().iter().map(|map| &*map.def.name).collect();
    let declared = ["inner_a", "inner_b", "outer", "jumps", "ring"];
    let sections = [".rodata", ".data.shared", ".bss", ".rodata.str1.1", ".bss.more", ".data"];
    assert_eq!(names, [&declared[..], &sections[..]].concat());

    let (_, outer) = object.map("outer").unwrap();
    let inner = outer.def.inner.as_deref().unwrap();
    assert_eq!((outer.def.kind, outer.def.key_size, outer.def.value_size), (MapKind::ArrayOfMaps, 4, 4));
    assert_eq!((inner.kind, inner.key_size, inner.value_size, inner.max_entries), (MapKind::Hash, 4, 8, 8));
    let map = |index, map| MapEntry { index, target: EntryTarget::Map(map) };
    assert_eq!(outer.entries, [map(0, 0), map(2, 1)]);

    let (_, jumps) = object.map("jumps").unwrap();
    assert_eq!(jumps.entries, [MapEntry { index: 1, target: EntryTarget::Program("leaf".into()) }]);
    assert_eq!((jumps.def.kind, jumps.def.max_entries, jumps.pinned), (MapKind::ProgArray, 3, false));

    let (_, ring) = object.map("ring").unwrap();
    assert_eq!((ring.def.kind, ring.def.max_entries, ring.pinned), (MapKind::Ringbuf, 4096, true));

    let (_, inner_a) = object.map("inner_a").unwrap();
    assert_eq!((inner_a.key_type.as_deref(), inner_a.value_type.as_deref()), (Some("u32"), Some("u64")));
}

#[test]
fn sections_of_variables_are_arrays_of_one_element() {
    let object = Object::parse(CLANG_19).unwrap();
    let map = |name| object.map(name).unwrap().1;
    for (name, size, flags, initial) in [
        (".rodata", 4, MapFlags::RDONLY_PROG, Some(vec![5, 0, 0, 0])),
        (".data", 4, MapFlags::default(), Some(vec![7, 0, 0, 0])),
        (".data.shared", 8, MapFlags::default(), Some(vec![3, 0, 0, 0, 0, 0, 0, 0])),
        (".bss", 36, MapFlags::default(), None),
        (".rodata.str1.1", 8, MapFlags::RDONLY_PROG, Some(b"sum %d\n\0".to_vec())),
    ] {
        let def = &map(name).def;
        assert_eq!((def.kind, def.key_size, def.max_entries), (MapKind::Array, 4, 1), "{name}");
        assert_eq!(
            (def.value_size, def.flags, map(name).initial.as_deref()),
            (size, flags, initial.as_deref()),
            "{name}"
        );
    }
}

#[test]
fn variables_have_offsets_types_and_values() {
    let mut object = Object::parse(CLANG_19).unwrap();
    let place = |name| {
        let (map, variable) = object.variable(name).unwrap();
        let type_name = variable.type_name.clone().unwrap();
        (object.maps()[map as usize].def.name.clone(), variable.offset, variable.size, type_name)
    };
    assert_eq!(place("counters"), (".bss".into(), 0, 32, "u64[4]".into()));
    assert_eq!(place("other.calls"), (".bss".into(), 32, 4, "u32".into()));
    assert_eq!(place("shared"), (".data.shared".into(), 0, 8, "u64".into()));
    let read_only = |name| object.variable(name).unwrap().1.read_only;
    assert!(read_only("limit") && !read_only("knob"));

    assert_eq!(object.initial_value("knob").unwrap(), Some(&[7, 0, 0, 0][..]));
    assert_eq!(object.initial_value("counters").unwrap(), None);
    object.set_initial_value("limit", &9u32.to_le_bytes()).unwrap();
    object.set_initial_value("other.calls", &1u32.to_le_bytes()).unwrap();
    assert_eq!(object.initial_value("limit").unwrap(), Some(&[9, 0, 0, 0][..]));
    assert_eq!(
        object.map(".bss").unwrap().1.initial.as_deref(),
        Some(&[[0; 32].as_slice(), &[1, 0, 0, 0]].concat()[..])
    );
    assert_eq!(
        object.initial_value("nothing").unwrap_err().to_string(),
        "the object has no variable nothing"
    );
    assert_eq!(
        object.set_initial_value("limit", &[0; 8]).unwrap_err().to_string(),
        "variable limit has 4 bytes, but 8 were given"
    );
}

#[test]
fn lines_follow_their_functions_into_the_program() {
    let object = Object::parse(CLANG_19).unwrap();
    let first = object.program("first").unwrap().source(None).unwrap();
    let at = |slot| {
        let line = first.lines.iter().find(|line| line.slot == slot).unwrap();
        (line.line, line.column, &*line.text)
    };
    assert_eq!(at(5), (82, 2, "\tbpf_loop(4, callback, &sum, 0);"));
    assert_eq!(at(27), (68, 15, "\t*(u32 *)data += i;"));
    assert_eq!(at(33), (53, 9, "\treturn static_in_text(x * 3) + limit;"));
    assert_eq!(at(40), (47, 13, "\tcounters[x & 3]++;"));
    assert!(first.lines.iter().all(|line| &*line.file == "./linkage.bpf.c"));
    assert!(first.lines.is_sorted_by_key(|line| line.slot));
}

#[test]
fn an_object_of_an_older_clang_is_the_same() {
    let (old, new) = (Object::parse(CLANG_13).unwrap(), Object::parse(CLANG_19).unwrap());
    assert_eq!(maps(&old), maps(&new));
    assert_eq!(old.license(), new.license());
    for (old, new) in old.programs().iter().zip(new.programs()) {
        let (old, new) = (old.source(Some(&RAW)).unwrap(), new.source(Some(&RAW)).unwrap());
        assert_eq!((&old.name, functions(&old)), (&new.name, functions(&new)));
        assert_eq!(old.insns.len(), new.insns.len());
        assert!(!old.lines.is_empty());
    }
}

#[test]
fn without_sections_the_exported_functions_are_the_programs() {
    let object = Object::parse(PLAIN).unwrap();
    let twice = object.only_program().unwrap();
    assert_eq!((twice.name(), twice.section()), ("twice", ".text"));
    let source = twice.source(Some(&RAW)).unwrap();
    assert_eq!(functions(&source), [("twice", 0, true), ("half", 4, false)]);
    assert!(!source.gpl_compatible && object.license().is_empty() && object.maps().is_empty());
}

#[test]
fn a_section_may_be_marked_as_loaded_on_demand() {
    let mut file = ObjectFile::new();
    let code = file.code("?xdp/spare", &RETURN_0);
    file.function("spare", code, 0, 16);
    let object = Object::parse(&file.build()).unwrap();
    assert_eq!(object.only_program().unwrap().program_type().unwrap().name, "xdp");
}

#[test]
fn functions_without_a_size_end_at_the_next() {
    let mut file = ObjectFile::new();
    let code = file.code("xdp", &[RETURN_0, RETURN_0].concat());
    file.function("a", code, 0, 0);
    file.function("b", code, 16, 0);
    let object = Object::parse(&file.build()).unwrap();
    let length = |name| object.program(name).unwrap().source(None).unwrap().insns.len();
    assert_eq!((length("a"), length("b")), (2, 2));
}

#[test]
fn one_function_may_have_several_names() {
    let mut file = ObjectFile::new();
    let code = file.program("program", &RETURN_0);
    file.static_function("local", code, 0, 16);
    file.function("alias", code, 0, 16);
    let object = Object::parse(&file.build()).unwrap();
    assert_eq!(object.programs().iter().map(|p| p.name()).collect::<Vec<_>>(), ["program", "alias"]);
    assert_eq!(object.program("alias").unwrap().source(None).unwrap().name, "alias");
}

#[test]
fn static_functions_are_programs_where_their_section_exports_none_and_nothing_refers_to_it() {
    let names = |file: ObjectFile| -> Vec<String> {
        let object = Object::parse(&file.build()).unwrap();
        object.programs().iter().map(|program| program.name().to_owned()).collect()
    };
    let with_static = |section: &str| {
        let mut file = ObjectFile::new();
        let code = file.code(section, &[RETURN_0, RETURN_0].concat());
        file.static_function("alone", code, 0, RETURN_0.len() as u64);
        (file, code)
    };
    assert_eq!(names(with_static("xdp").0), ["alone"]);
    assert_eq!(names(with_static("tc/ingress").0), ["alone"]);
    // Of a section that stands for no type it is a subprogram, and so it is beside an exported function.
    assert_eq!(names(with_static("inlined").0), [""; 0]);
    let (mut file, code) = with_static("xdp");
    file.function("exported", code, RETURN_0.len() as u64, 0);
    assert_eq!(names(file), ["exported"]);
    // A program elsewhere calls it.
    let (mut file, code) = with_static("xdp/callee");
    let call = [0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let caller = file.program("caller", &[&call[..], &RETURN_0].concat());
    let callee = file.section_symbol(code);
    file.relocate(caller, 0, 10, callee);
    assert_eq!(names(file), ["caller"]);
}

#[test]
fn a_function_may_call_the_program_itself() {
    let mut file = ObjectFile::new();
    let back = [0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff];
    file.program("f", &[&back[..], &RETURN_0].concat());
    let source = Object::parse(&file.build()).unwrap().program("f").unwrap().source(None).unwrap();
    assert_eq!(source.insns[0], Insn::Call { target: CallTarget::Local(-1) });
    assert_eq!(source.functions.len(), 1);
}

#[test]
fn a_pointer_may_point_just_past_the_data() {
    let mut file = ObjectFile::new();
    let mut load = LOAD_R1;
    load[4] = 8;
    let code = file.program("f", &[&load[..], &[0; 8], &RETURN_0].concat());
    let data = file.data(".rodata", &[1; 8]);
    let section = file.section_symbol(data);
    file.relocate(code, 0, R_BPF_64_64, section);
    let source = Object::parse(&file.build()).unwrap().program("f").unwrap().source(None).unwrap();
    assert_eq!(
        source.insns[0],
        Insn::LoadImm64 { dst: Reg::R1, value: Imm64::MapValue { map: 0, offset: 8 } }
    );
}

#[test]
fn gpl_compatible_licences_are_linux_s_list() {
    let gpl = |license: &[u8]| {
        let mut file = ObjectFile::with_program();
        file.data("license", license);
        let object = Object::parse(&file.build()).unwrap();
        let source = object.only_program().unwrap().source(None).unwrap();
        assert_eq!(source.gpl_compatible, object.gpl_compatible());
        source.gpl_compatible
    };
    for license in
        ["GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"]
    {
        assert!(gpl(license.as_bytes()) && gpl(&[license.as_bytes(), b"\0\0"].concat()), "{license}");
    }
    for license in [&b"Proprietary\0"[..], b"gpl\0", b"GPL v3\0", b"", b"\0GPL\0", b"MIT\0", b"\xff\xfe\0"] {
        assert!(!gpl(license), "{license:?}");
    }
}
