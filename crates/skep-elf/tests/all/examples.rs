//! Compares the project's objects with their sources.

use object::{Object as _, ObjectSection, ObjectSymbol, SymbolKind};
use skep_abi::{MapKind, ProgramSource};
use skep_elf::Object;
use skep_isa::{CallTarget, Imm64, Insn};

fn example(name: &str) -> Vec<u8> {
    let path = format!("{}/../../examples/{name}.bpf.o", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[track_caller]
fn parse(name: &str) -> Object {
    Object::parse(&example(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Programs with their types.
fn programs(object: &Object) -> Vec<(&str, &str)> {
    object
        .programs()
        .iter()
        .map(|p| (p.name(), p.program_type().expect("its section is known").name))
        .collect()
}

/// Maps with kind, sizes of key and value, and the most entries.
fn maps(object: &Object) -> Vec<(&str, MapKind, u32, u32, u32)> {
    let maps = object.maps().iter().map(|map| &map.def);
    maps.map(|def| (&*def.name, def.kind, def.key_size, def.value_size, def.max_entries)).collect()
}

#[test]
fn the_firewall_matches_its_source() {
    let object = parse("firewall");
    assert_eq!(programs(&object), [("firewall", "xdp")]);
    assert_eq!(
        maps(&object)[..5],
        [
            ("verdicts", MapKind::PercpuArray, 4, 16, 12),
            ("blocked4", MapKind::LpmTrie, 8, 4, 1024),
            ("blocked6", MapKind::LpmTrie, 20, 4, 1024),
            ("blocked_services", MapKind::Hash, 4, 4, 256),
            ("offenders", MapKind::Hash, 16, 8, 1024),
        ]
    );
    let variable = |name| {
        let (map, variable) = object.variable(name).unwrap();
        (object.maps()[map as usize].def.name.as_str(), variable.size, variable.type_name.as_deref().unwrap())
    };
    assert_eq!(variable("frames_seen"), (".bss", 8, "__u64"));
    assert_eq!(variable("track_offenders"), (".data", 4, "__u32"));
    assert_eq!(variable("static_prefixes4"), (".rodata", 32, "struct prefix4[4]"));
    assert_eq!(variable("static_prefixes6"), (".rodata", 64, "struct prefix6[2]"));
    assert_eq!(object.initial_value("track_offenders").unwrap(), Some(&[1, 0, 0, 0][..]));
    let prefixes = object.initial_value("static_prefixes4").unwrap().unwrap();
    assert_eq!(prefixes[..8], [192, 0, 2, 0, 255, 255, 255, 0]);
    assert_eq!(object.map("blocked4").unwrap().1.key_type.as_deref(), Some("struct lpm_key4"));
    assert_eq!(object.license(), "Dual MIT/GPL");
}

#[test]
fn the_flow_table_calls_its_static_functions() {
    let object = parse("flows");
    assert_eq!(programs(&object), [("account_flows", "sched_cls")]);
    assert_eq!(maps(&object)[0].1, MapKind::Hash);
    let source = object.only_program().unwrap().source(None).unwrap();
    let mut names: Vec<_> = source.functions.iter().map(|function| &*function.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["account", "account_flows", "count", "parse_ipv4", "parse_ipv6", "parse_transport"]);
    assert!(source.functions[1..].iter().all(|function| !function.global));
}

#[test]
fn the_balancer_calls_across_sections() {
    let object = parse("balancer");
    assert_eq!(programs(&object), [("balancer", "xdp")]);
    let kinds: Vec<_> = maps(&object).into_iter().map(|map| (map.0, map.1)).collect();
    assert_eq!(
        kinds,
        [
            ("overrides", MapKind::Array),
            ("connections", MapKind::Hash),
            ("per_backend", MapKind::PercpuArray),
            (".rodata", MapKind::Array),
            (".bss", MapKind::Array),
        ]
    );
    let source = object.only_program().unwrap().source(None).unwrap();
    let names: Vec<_> = source.functions.iter().map(|function| &*function.name).collect();
    assert_eq!(names, ["balancer", "choose", "find_backend", "tally_backend"]);
}

#[test]
fn the_small_examples_match_their_sources() {
    for (name, expected) in [
        ("hello", &[("hello", "xdp")][..]),
        ("raw", &[("sum_bytes", "raw")]),
        ("remark", &[("remark", "sched_cls")]),
        ("socket_filter", &[("keep_dns", "socket_filter"), ("keep_headers", "socket_filter")]),
        ("unvlan", &[("unvlan", "xdp")]),
    ] {
        assert_eq!(programs(&parse(name)), expected, "{name}");
    }
    let hello = parse("hello");
    let format = hello.initial_value("hello.____fmt").unwrap();
    assert_eq!(format, Some(&b"hello, packet of %llu bytes\0"[..]));
    assert_eq!(hello.variable("hello.____fmt").unwrap().1.type_name.as_deref(), Some("char[28]"));
    assert_eq!(parse("unvlan").variable("untagged").unwrap().1.type_name.as_deref(), Some("__u64"));
}

#[test]
fn lines_are_those_of_the_sources() {
    let mut compared = 0;
    for (path, bytes) in every_object() {
        let source = std::fs::read_to_string(path.with_extension("c")).expect("sources stand beside objects");
        let source: Vec<_> = source.lines().collect();
        let file = path.with_extension("c");
        let file = file.file_name().unwrap().to_str().unwrap();
        for program in Object::parse(&bytes).unwrap().programs() {
            let program = program.source(None).unwrap();
            assert_eq!(program.lines[0].slot, 0, "{path:?}");
            // Lines from headers are not compared: this system's headers may differ.
            for line in program.lines.iter().filter(|line| line.line > 0 && line.file.ends_with(file)) {
                assert_eq!(source.get(line.line as usize - 1), Some(&&*line.text), "{path:?} {}", line.line);
                compared += 1;
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn every_program_contains_exactly_the_functions_it_reaches() {
    for (path, bytes) in every_object() {
        let object = Object::parse(&bytes).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let file = object::File::parse(&*bytes).expect("an independent reader reads it too");
        let size = |name: &str| {
            let symbol =
                file.symbols().find(|s| s.kind() == SymbolKind::Text && s.name() == Ok(name)).unwrap();
            symbol.size() / 8
        };
        let exported = file.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_global());
        assert_eq!(object.programs().len(), exported.count(), "{path:?}");
        for program in object.programs() {
            let source = program.source(None).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let ends = source.functions.iter().skip(1).map(|f| f.start).chain([source.insns.len() as u32]);
            for (function, end) in source.functions.iter().zip(ends) {
                assert_eq!(
                    u64::from(end - function.start),
                    size(&function.name),
                    "{path:?} {}",
                    function.name
                );
            }
            references_lead_somewhere(&object, &source);
        }
    }
}

#[test]
fn programs_have_the_tags_that_linux_shows_for_them() {
    // The tags that BPF_OBJ_GET_INFO_BY_FD reports on Linux 6.18 for these objects loaded by libbpf 1.1. A different
    // order of functions or different call offsets would change them.
    for (name, program, tag) in [
        ("firewall", "firewall", "e8edf68aa4a80bb9"),
        ("flows", "account_flows", "ad67c3d78e801bf2"),
        ("unvlan", "unvlan", "0699880369aa59d5"),
    ] {
        let source = parse(name).program(program).unwrap().source(None).unwrap();
        let insns = skep_isa::with_map_descriptors(&source.insns);
        assert_eq!(skep_isa::tag(&insns).unwrap().to_string(), tag, "{program}");
    }
}

#[test]
fn every_section_of_variables_is_loaded_byte_for_byte() {
    for (path, bytes) in every_object() {
        let object = Object::parse(&bytes).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        for map in object.maps().iter().filter(|map| map.def.name.starts_with('.')) {
            let section = file.section_by_name(&map.def.name).unwrap();
            assert_eq!(u64::from(map.def.value_size), section.size(), "{path:?} {}", map.def.name);
            match &map.initial {
                Some(initial) => assert_eq!(**initial, *section.data().unwrap(), "{path:?} {}", map.def.name),
                None => assert_eq!(map.def.name.split('.').nth(1), Some("bss"), "{path:?}"),
            }
        }
    }
}

/// Asserts that calls lead to functions and loads name maps of the object.
fn references_lead_somewhere(object: &Object, source: &ProgramSource) {
    let is_function = |slot: i64| source.functions.iter().any(|function| i64::from(function.start) == slot);
    for (slot, insn) in (1i64..).zip(&source.insns) {
        match *insn {
            Insn::Call { target: CallTarget::Local(distance) } => {
                assert!(is_function(slot + i64::from(distance)))
            }
            Insn::LoadImm64 { value: Imm64::Map(map), .. } => {
                assert!(!object.maps()[map as usize].def.name.starts_with('.'));
            }
            Insn::LoadImm64 { value: Imm64::MapValue { map, offset }, .. } => {
                let def = &object.maps()[map as usize].def;
                assert!(def.name.starts_with('.') && offset < def.value_size);
            }
            _ => {}
        }
    }
}

/// The examples and the benchmarks' programs.
fn every_object() -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut objects = Vec::new();
    for folder in ["examples", "bench/programs"] {
        for entry in std::fs::read_dir(format!("{root}/{folder}")).expect("the folder is part of the project")
        {
            let path = entry.unwrap().path();
            if path.to_str().is_some_and(|path| path.ends_with(".bpf.o")) {
                let bytes = std::fs::read(&path).unwrap();
                objects.push((path, bytes));
            }
        }
    }
    objects.sort();
    assert!(objects.len() >= 20, "{} objects", objects.len());
    objects
}
