//! Iterators in both engines: what they show, and attackers of each door. The objects are linked with the runtime's own
//! types, since the host has none.

use skep::abi::{MapDef, MapFlags, MapKind, RAW};
use skep::world::Socket;
use skep::{
    Engine, Error, Iterate, IterateFault, Map, Module, Object, Program, Runtime, ShownLink, ShownMap,
    ShownProgram, UpdateFlags,
};
use std::sync::Arc;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const ELEMENTS: &[u8] = include_bytes!("../objects/iterate/elements.bpf.o");
const OBJECTS: &[u8] = include_bytes!("../objects/iterate/objects.bpf.o");
const REFUSED: &[u8] = include_bytes!("../objects/iterate/refused.bpf.o");

fn load(bytes: &[u8]) -> Module {
    Runtime::new().expect("a runtime").load(&Object::parse(bytes).expect("an object")).expect("a load")
}

fn program<'a>(module: &'a Module, name: &str) -> &'a Program {
    module.program(name).expect("a program")
}

fn put(map: &Map, key: u32, value: u64) {
    let value = [value.to_ne_bytes()].repeat(map.host_value_size() / 8).concat();
    map.update(&key.to_ne_bytes(), &value, UpdateFlags::Any).expect("an update");
}

fn over(program: &Program, engine: Engine, map: &Map) -> Result<Vec<u8>, Error> {
    program.iterate_with(engine, Iterate::Elements { map, shown: &ShownMap::of(map) })
}

fn text(bytes: Result<Vec<u8>, Error>) -> String {
    String::from_utf8(bytes.expect("a walk")).expect("text")
}

fn fault(result: Result<Vec<u8>, Error>) -> IterateFault {
    match result.expect_err("a fault") {
        Error::Iterate { fault, .. } => fault,
        other => panic!("{other}"),
    }
}

/// A map of that runtime, which a program names so that it is made.
fn map(runtime: &Runtime, kind: MapKind, key: u32, value: u32, flags: MapFlags) -> Arc<Map> {
    let def = MapDef { flags, ..MapDef::new("other", kind, key, value, 8) };
    let insns = skep::isa::assemble("r1 = map[0] ll\nr0 = 0\nexit").expect("instructions");
    let bytes = skep::isa::encode_bytes(&insns).expect("bytes");
    let object = Object::from_bytecode_and_maps("names_it", &RAW, &bytes, vec![def]).expect("an object");
    let module = runtime.load(&object).expect("a load");
    Arc::clone(module.map("other").expect("a map"))
}

#[test]
fn each_element_of_a_table_is_shown_once_and_then_the_end() {
    for engine in ENGINES {
        let module = load(ELEMENTS);
        let table = module.map("table").unwrap();
        let mut expected: Vec<_> = (0..20).map(|key| format!("{key} = {}", key * 7)).collect();
        (0..20).for_each(|key| put(table, key, u64::from(key) * 7));
        let all = text(over(program(&module, "dump"), engine, table));
        let (end, lines) =
            all.lines().collect::<Vec<_>>().split_last().map(|(a, b)| (*a, b.to_vec())).unwrap();
        assert_eq!(end, "20 in table");
        let mut found = Vec::new();
        for (number, line) in lines.into_iter().enumerate() {
            let (shown, element) = line.split_once(": ").unwrap();
            assert_eq!(shown, number.to_string());
            found.push(element.to_owned());
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(program(&module, "dump").iterates(), Some("bpf_map_elem"));
    }
}

#[test]
fn arrays_are_walked_in_order_and_their_values_can_be_changed() {
    for engine in ENGINES {
        let runtime = Runtime::new().unwrap();
        let module = runtime.load(&Object::parse(ELEMENTS).unwrap()).unwrap();
        for kind in [MapKind::Array, MapKind::Hash, MapKind::LruHash] {
            let map = map(&runtime, kind, 4, 8, MapFlags::default());
            (0..8).for_each(|key| put(&map, key, u64::from(key) + 5));
            over(program(&module, "twice"), engine, &map).unwrap();
            for key in 0..8u32 {
                let value = map.lookup(&key.to_ne_bytes()).unwrap().unwrap();
                assert_eq!(value, (u64::from(key) * 2 + 10).to_ne_bytes(), "{kind} {key}");
            }
            if kind == MapKind::Array {
                let all = text(over(program(&module, "dump"), engine, &map));
                assert!(all.starts_with("0: 0 = 10\n1: 1 = 12\n") && all.ends_with("8 in other\n"), "{all}");
            }
        }
    }
}

#[test]
fn of_values_per_cpu_a_copy_of_all_is_shown() {
    for engine in ENGINES {
        let runtime = Runtime::builder().cpus(4).build().unwrap();
        let object = Object::parse(ELEMENTS).unwrap();
        let module = runtime.linker(&object).variable("cpus", &4u32.to_ne_bytes()).load().unwrap();
        for kind in [MapKind::PercpuHash, MapKind::PercpuArray, MapKind::LruPercpuHash] {
            let map = map(&runtime, kind, 4, 8, MapFlags::default());
            let value: Vec<u8> = [1u64, 20, 300, 4000].iter().flat_map(|value| value.to_ne_bytes()).collect();
            map.update(&3u32.to_ne_bytes(), &value, UpdateFlags::Any).unwrap();
            let all = over(program(&module, "over_cpus"), engine, &map).unwrap();
            let sums = all.chunks_exact(8).map(|sum| u64::from_ne_bytes(sum.try_into().unwrap()));
            assert_eq!(sums.sum::<u64>(), 4321, "{kind}");
            // The copy is the program's own.
            over(program(&module, "twice"), engine, &map).unwrap();
            assert_eq!(map.lookup(&3u32.to_ne_bytes()).unwrap().unwrap(), value, "{kind}");
        }
        // Values of fewer CPUs are too short.
        let small = Runtime::builder().cpus(2).build().unwrap();
        let module = small.linker(&object).variable("cpus", &4u32.to_ne_bytes()).load().unwrap();
        let map = map(&small, MapKind::PercpuArray, 4, 8, MapFlags::default());
        let found = fault(over(program(&module, "over_cpus"), engine, &map));
        assert!(
            matches!(&found, IterateFault::Size { value: 16, used, .. } if used.value == 32),
            "{found:?}"
        );
    }
}

#[test]
fn an_element_that_is_replaced_and_deleted_while_it_is_shown_stays_what_it_was() {
    for engine in ENGINES {
        let module = load(ELEMENTS);
        let table = module.map("table").unwrap();
        (0..40).for_each(|key| put(table, key, 100 + u64::from(key)));
        let all = over(program(&module, "without_ground"), engine, table).unwrap();
        let shown: Vec<(u32, u64)> = all
            .chunks_exact(12)
            .map(|element| {
                let (key, value) = element.split_at(4);
                (u32::from_ne_bytes(key.try_into().unwrap()), u64::from_ne_bytes(value.try_into().unwrap()))
            })
            .collect();
        let mut own: Vec<_> = shown.iter().filter(|(key, _)| *key < 1000).collect();
        own.sort();
        let expected: Vec<_> = (0..40).map(|key| (key, 100 + u64::from(key))).collect();
        assert!(own.iter().copied().eq(&expected), "{own:?}");
        assert!(shown.iter().filter(|(key, _)| *key >= 1000).all(|(_, value)| *value == 7777), "{shown:?}");
        assert_eq!(table.len(), 0);
    }
}

#[test]
fn a_map_with_smaller_keys_or_values_than_the_program_uses_is_refused() {
    let runtime = Runtime::new().unwrap();
    let module = runtime.load(&Object::parse(ELEMENTS).unwrap()).unwrap();
    for engine in ENGINES {
        for (key, value) in [(3, 8), (4, 4), (1, 1)] {
            let map = map(&runtime, MapKind::Hash, key, value, MapFlags::default());
            let found = fault(over(program(&module, "dump"), engine, &map));
            assert!(
                matches!(&found, IterateFault::Size { used, .. } if (used.key, used.value) == (4, 8)),
                "{found:?}"
            );
        }
        let fits = map(&runtime, MapKind::Hash, 4, 9, MapFlags::default());
        assert_eq!(text(over(program(&module, "dump"), engine, &fits)), "0 in other\n");
    }
}

#[test]
fn values_are_used_only_as_their_map_allows() {
    let runtime = Runtime::new().unwrap();
    let module = runtime.load(&Object::parse(ELEMENTS).unwrap()).unwrap();
    let (dump, twice) = (program(&module, "dump"), program(&module, "twice"));
    for engine in ENGINES {
        let read_only = map(&runtime, MapKind::Array, 4, 8, MapFlags::RDONLY_PROG);
        assert!(matches!(fault(over(twice, engine, &read_only)), IterateFault::Rights { .. }));
        assert!(over(dump, engine, &read_only).is_ok());
        let write_only = map(&runtime, MapKind::Array, 4, 8, MapFlags::WRONLY_PROG);
        assert!(matches!(fault(over(dump, engine, &write_only)), IterateFault::Rights { .. }));
    }
    // Constants of the module itself, which the verifier has folded.
    let constants = module.map(".rodata").unwrap();
    assert!(matches!(fault(over(twice, Engine::Jit, constants)), IterateFault::Rights { .. }));
}

#[test]
fn maps_of_other_kinds_and_of_other_runtimes_are_refused() {
    let (runtime, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let module = runtime.load(&Object::parse(ELEMENTS).unwrap()).unwrap();
    let dump = program(&module, "dump");
    let queue = map(&runtime, MapKind::Queue, 0, 8, MapFlags::default());
    assert!(matches!(fault(over(dump, Engine::Jit, &queue)), IterateFault::Kind { .. }));
    let foreign = map(&other, MapKind::Hash, 4, 8, MapFlags::default());
    assert!(matches!(fault(over(dump, Engine::Jit, &foreign)), IterateFault::OtherRuntime { .. }));
    assert!(matches!(fault(dump.iterate(Iterate::Maps(&[]))), IterateFault::OtherObjects { .. }));
    let maps = load(OBJECTS);
    let found = fault(over(program(&maps, "maps"), Engine::Jit, &queue));
    assert_eq!(found, IterateFault::OtherObjects { expected: "bpf_map", given: "bpf_map_elem" });
}

#[test]
fn a_record_has_at_most_the_bytes_of_linuxs_buffer() {
    for engine in ENGINES {
        let object = Object::parse(ELEMENTS).unwrap();
        for (excess, fits) in [(0u32, true), (1, false)] {
            let runtime = Runtime::new().unwrap();
            let module = runtime.linker(&object).variable("excess", &excess.to_ne_bytes()).load().unwrap();
            let table = module.map("table").unwrap();
            (0..3).for_each(|key| put(table, key, 0));
            let found = over(program(&module, "long_record"), engine, table);
            match fits {
                true => assert_eq!(found.unwrap().len(), 3 * 32768),
                false => assert_eq!(fault(found), IterateFault::ObjectTooLong),
            }
        }
    }
}

#[test]
fn an_object_is_shown_again_if_the_program_asks_and_what_it_wrote_is_dropped() {
    for engine in ENGINES {
        let object = Object::parse(ELEMENTS).unwrap();
        let module = Runtime::new().unwrap().load(&object).unwrap();
        let table = module.map("table").unwrap();
        put(table, 1, 1);
        put(table, 2, 2);
        assert_eq!(text(over(program(&module, "again"), engine, table)), "0 after 2\n1 after 5\n");
        let runtime = Runtime::new().unwrap();
        let module = runtime.linker(&object).variable("wanted", &u32::MAX.to_ne_bytes()).load().unwrap();
        let table = module.map("table").unwrap();
        put(table, 1, 1);
        assert_eq!(fault(over(program(&module, "again"), engine, table)), IterateFault::Again);
    }
}

#[test]
fn maps_programs_and_links_show_what_the_host_says() {
    let module = load(OBJECTS);
    for engine in ENGINES {
        let first = ShownMap {
            id: 7,
            name: "a_name_that_is_too_long".to_owned(),
            map_type: 1,
            key_size: 4,
            value_size: 8,
            max_entries: 16,
            references: 3,
            uses: 2,
            ..ShownMap::default()
        };
        let second = ShownMap { id: 9, name: "b".to_owned(), ..first.clone() };
        let all = program(&module, "maps").iterate_with(engine, Iterate::Maps(&[first, second]));
        assert_eq!(text(all), "7 a_name_that_is_ 1 4 8 16 3 2\n9 b 1 4 8 16 3 2\n2 maps\n");

        let shown = ShownProgram {
            id: 5,
            name: "count".to_owned(),
            program_type: 6,
            tag: [0, 0, 0, 0, 0, 0, 0, 0xab],
            ..ShownProgram::default()
        };
        let all = program(&module, "programs")
            .iterate_with(engine, Iterate::Programs(std::slice::from_ref(&shown)));
        assert_eq!(text(all), "5 count 6 ab\n");

        let link = ShownLink { id: 3, link_type: 6, program: shown };
        let all = program(&module, "links").iterate_with(engine, Iterate::Links(&[link]));
        assert_eq!(text(all), "3 6 count\n");
    }
}

#[test]
fn sockets_of_each_protocol_have_their_addresses_and_ports() {
    let module = load(OBJECTS);
    let mut receiver = Socket::bound("127.0.0.2:80".parse().unwrap());
    receiver.uid = 7;
    let from_ipv6 = Socket::bound("[::1]:53".parse().unwrap());
    let listener = Socket::listening("0.0.0.0:443".parse().unwrap());
    let sockets = [receiver, from_ipv6, listener].map(Arc::new);
    for engine in ENGINES {
        let over = |name| text(program(&module, name).iterate_with(engine, Iterate::Sockets(&sockets)));
        // Both ends, the other's first; the own port in the order of the machine.
        assert_eq!(over("udp"), "udp 2 200007f00000000 500000 of 7 in 0\nudp 10 0 350000 of 0 in 0\n");
        assert_eq!(over("tcp"), "tcp 2 10 of 0\n");
    }
}

#[test]
fn a_call_that_prints_more_values_on_another_path_prints_numbers() {
    for engine in ENGINES {
        let module = load(ELEMENTS);
        let table = module.map("table").unwrap();
        put(table, 3, 4);
        assert_eq!(text(over(program(&module, "one_call"), engine, table)), "3 = 4\nend\n");
    }
}

#[test]
fn each_walk_is_a_session_of_its_own() {
    let module = load(ELEMENTS);
    let found = over(program(&module, "dump"), Engine::Jit, module.map("table").unwrap()).unwrap();
    assert_eq!(found, b"0 in table\n");
    assert!(matches!(
        program(&module, "dump").run(&mut skep::Packet::new(&[0; 64])),
        Err(Error::WrongInput { .. })
    ));
}

#[test]
fn objects_have_the_layout_of_the_hosts_types_and_no_other_members() {
    let types = skep::Btf::parse(&include_bytes!("../../../skep-verifier/verdicts/linux.btf")[..]).unwrap();
    let types = Arc::new(types);
    let load = |bytes: &[u8], name: &str| {
        let mut object = Object::parse(bytes).unwrap();
        object.set_host_types(Arc::clone(&types));
        let runtime = Runtime::new().unwrap();
        if name.is_empty() { runtime.load(&object) } else { runtime.linker(&object).only(name).load() }
    };
    for engine in ENGINES {
        let module = load(ELEMENTS, "").unwrap();
        let table = module.map("table").unwrap();
        put(table, 6, 60);
        assert_eq!(text(over(program(&module, "dump"), engine, table)), "0: 6 = 60\n1 in table\n");
    }
    let error = load(REFUSED, "unknown_member").unwrap_err().to_string();
    assert!(error.contains("struct bpf_map has no member ops") && error.contains("max_entries"), "{error}");
    assert!(error.contains("refused.bpf.c"), "{error}");
}

#[test]
fn attackers_are_refused_with_the_reason() {
    let object = Object::parse(REFUSED).unwrap();
    let cases = [
        ("unknown_member", "needs struct bpf_map.ops (CO-RE)"),
        ("writes_key", "may only be read"),
        ("writes_map", "may only be read"),
        ("leaves", "tail call"),
        ("null_value", "null"),
        ("before_value", "65536-byte memory"),
        ("map_by_address", "expects a map"),
        ("other_target", "bpf_iter_ksym"),
        ("two", "from 0 to 1"),
    ];
    let runtime = Runtime::new().unwrap();
    for (name, reason) in cases {
        let error = runtime.linker(&object).only(name).load().expect_err(name);
        let text = error.to_string();
        assert!(text.contains(reason), "{name}: {text}");
    }
    assert_eq!(object.programs().len(), cases.len());
}
