//! What the linker does with the maps, variables and program types that a host passes.

use skep::abi::{Context, ContextField, ContextLayout, FieldKind, Parts, ProgramType, RAW, XDP};
use skep::abi::{MapDef, MapKind};
use skep::isa::{Size, assemble, encode_bytes};
use skep::{Engine, Error, MapError, Object, Packet, Runtime, UpdateFlags};

fn example(name: &str) -> Object {
    Object::open(format!("{}/../../examples/{name}.bpf.o", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn a_variable_in_a_section_of_zeroes_can_be_set() {
    let object = example("firewall");
    let runtime = Runtime::new().unwrap();
    let module = runtime.linker(&object).variable("drop_fragments", &7u32.to_ne_bytes()).load().unwrap();
    assert_eq!(module.variable("drop_fragments").unwrap(), 7u32.to_ne_bytes());
    let home = module.variables().iter().find(|v| v.name == "drop_fragments").unwrap().map;
    assert_eq!(module.maps()[home].name(), ".bss");
    let rest = module.maps()[home].lookup(&[0; 4]).unwrap().unwrap();
    assert_eq!(rest.iter().filter(|byte| **byte != 0).count(), 1, "the rest stays zero");
}

#[test]
fn options_that_cannot_apply_to_a_given_map_are_refused() {
    let object = example("firewall");
    let runtime = Runtime::new().unwrap();
    let module = runtime.load(&object).unwrap();
    let bss = module.map(".bss").unwrap();
    let given = runtime.linker(&object).map(".bss", bss.clone());
    let error = given.variable("drop_fragments", &1u32.to_ne_bytes()).load().unwrap_err();
    assert!(matches!(&error, Error::GivenMap { map, what } if map == ".bss" && what == "drop_fragments"));
    let given = runtime.linker(&object).map(".bss", bss.clone());
    let error = given.max_entries(".bss", 2).load().unwrap_err();
    assert!(matches!(&error, Error::GivenMap { map, .. } if map == ".bss"), "{error}");
    // Sharing the map without these options works.
    runtime.linker(&object).map(".bss", bss.clone()).load().unwrap();
}

#[test]
fn constants_are_frozen_once_they_are_filled() {
    let object = example("firewall");
    let module = Runtime::new().unwrap().load(&object).unwrap();
    let constants = module.map(".rodata").unwrap();
    let value = constants.lookup(&[0; 4]).unwrap().unwrap();
    assert!(value.iter().any(|byte| *byte != 0));
    let error = constants.update(&[0; 4], &value, UpdateFlags::Any).unwrap_err();
    assert!(matches!(error, MapError::Frozen { .. }), "{error}");
    for name in [".bss", ".data", "verdicts"] {
        assert!(!module.map(name).unwrap().is_frozen(), "{name}");
    }
}

/// A type with the name of skep's own structure and a field far outside of it.
static LYING: ProgramType = ProgramType {
    name: "lying",
    number: None,
    sections: &[],
    context: Context::Struct(&ContextLayout {
        name: "xdp_md",
        size: 4,
        fields: &[ContextField {
            name: "far",
            offset: 0,
            size: Size::B4,
            kind: FieldKind::Scalar,
            reads: Parts::any(Size::B4),
            writes: Parts::any(Size::B4),
            native_offset: Some(32000),
            native_size: Size::B4,
        }],
    }),
    reads_packet: true,
    writes_packet: true,
    ..ProgramType::PLAIN
};

#[test]
fn a_program_type_defined_by_the_host_is_refused() {
    let runtime = Runtime::new().unwrap();
    let insns = assemble("r0 = 2\nexit").unwrap();
    let own = Object::from_insns("program", &LYING, insns.clone());
    let error = runtime.load(&own).unwrap_err();
    assert!(matches!(&error, Error::ForeignType { program_type: "lying", .. }), "{error}");
    assert!(matches!(own.verify("program", Default::default()), Err(Error::ForeignType { .. })));
    let object = Object::from_insns("program", &XDP, insns);
    let error = runtime.linker(&object).program_type(&LYING).load().unwrap_err();
    assert!(matches!(error, Error::ForeignType { .. }), "{error}");
    runtime.load(&object).unwrap();
}

#[test]
fn programs_that_can_only_be_verified_are_refused_at_load() {
    let types: &[u8] = include_bytes!("../../../skep-verifier/verdicts/linux.btf");
    let types = std::sync::Arc::new(skep::Btf::parse(types).unwrap());
    let mut files = Object::parse(include_bytes!("../objects/verdicts/files.bpf.o")).unwrap();
    files.set_host_types(std::sync::Arc::clone(&types));
    files.verify("reads", Default::default()).unwrap();
    let runtime = Runtime::new().unwrap();
    let error = runtime.linker(&files).only("reads").load().unwrap_err();
    assert!(matches!(error, Error::TypeNotProvided { program_type: "tracing", .. }), "{error}");
    assert!(error.to_string().contains("xdp"), "{error} says what can be run");

    let text = "r2 = 0\nr3 = r10\nr3 += -8\nr4 = 8\nr5 = 0\ncall 66\nr0 = 0\nexit";
    let tc = ProgramType::from_name("tc").unwrap();
    let mut object = Object::from_insns("program", tc, assemble(text).unwrap());
    object.set_host_types(types);
    object.verify("program", Default::default()).unwrap();
    let error = runtime.load(&object).unwrap_err();
    assert!(error.to_string().contains("skb_get_xfrm_state (66) is not provided"), "{error}");
}

#[test]
fn types_that_share_a_context_run_like_the_first_of_them() {
    for name in ["xdp/devmap", "xdp/cpumap", "tcx/egress", "netkit/peer", "action"] {
        let kind = ProgramType::from_name(name).unwrap();
        let object = Object::from_insns("program", kind, assemble("r0 = 2\nexit").unwrap());
        let module = Runtime::new().unwrap().load(&object).unwrap();
        assert_eq!(module.programs()[0].run(&mut Packet::new(&[0; 14])).unwrap(), 2, "{name}");
    }
}

#[test]
fn a_released_virtual_cpu_is_available_to_another_thread() {
    // One of the two is shared for the time of a run.
    let runtime = Runtime::builder().cpus(2).build().unwrap();
    let object = Object::from_insns("program", &XDP, assemble("call 8\nexit").unwrap());
    let module = runtime.load(&object).unwrap();
    let program = &module.programs()[0];
    let elsewhere = || {
        std::thread::scope(|scope| {
            scope.spawn(|| program.run(&mut Packet::new(&[0; 14]))).join().expect("the thread returns")
        })
    };
    assert!(!runtime.release_cpu(), "this thread has not run anything");
    let kept = program.run(&mut Packet::new(&[0; 14])).unwrap();
    let shared = elsewhere().unwrap();
    assert_ne!(kept, shared);
    assert_eq!(elsewhere().unwrap(), shared, "the thread before kept nothing");
    assert!(runtime.release_cpu());
    assert_eq!(elsewhere().unwrap(), kept);
}

#[test]
fn a_log_may_load_and_run_other_programs() {
    use std::sync::{Arc, Mutex, OnceLock};
    static INNER: OnceLock<skep::Program> = OnceLock::new();
    let said = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&said);
    let runtime = Runtime::builder()
        .cpus(1)
        .log(move |program, message| {
            let verdict = INNER.get().unwrap().run(&mut Packet::new(&[0; 14])).unwrap();
            let other = Runtime::builder().cpus(1).build().unwrap();
            let loaded = other.load(&example("remark")).unwrap().programs().len();
            log.lock().unwrap().push(format!("{program} {message} {verdict} {loaded}"));
        })
        .build()
        .unwrap();
    let inner = Object::from_insns("inner", &XDP, assemble("r0 = 1\nexit").unwrap());
    INNER.set(runtime.load(&inner).unwrap().programs()[0].clone()).unwrap();
    let printing = example("hello");
    let module = runtime.load(&printing).unwrap();
    let verdict = module.programs()[0].run(&mut Packet::new(&[0; 14])).unwrap();
    assert_eq!(verdict & 0xffff_ffff, 2);
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 1);
    assert!(said[0].ends_with(" 1 1"), "{said:?}");
}

#[test]
fn bare_instructions_refer_to_the_maps_passed_with_them() {
    let map = MapDef::new("counts", MapKind::Array, 4, 8, 1);
    let text = "r1 = map_value[0]+0 ll
                r0 = *(u64 *)(r1 + 0)
                r0 += 1
                *(u64 *)(r1 + 0) = r0
                exit";
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let runtime = Runtime::new().unwrap();
    let object = Object::from_bytecode_and_maps("count", &RAW, &bytes, [map]).unwrap();
    let module = runtime.load(&object).unwrap();
    for count in 1..=3 {
        assert_eq!(module.programs()[0].run_raw(&mut []).unwrap(), count);
    }
    assert_eq!(module.map("counts").unwrap().lookup(&[0; 4]).unwrap().unwrap(), 3u64.to_ne_bytes());
    let without = Object::from_bytecode("count", &RAW, &bytes).unwrap();
    assert!(matches!(runtime.load(&without).unwrap_err(), Error::Refused(_)));
}

#[test]
fn a_too_deep_call_chain_is_refused_even_if_never_taken() {
    // Each function calls the next one only if it receives a 1, and passes a 0. So no run has more than three
    // frames, but the call graph has a chain of ten.
    const CHAIN: usize = 10;
    let calls: String =
        (0..CHAIN).map(|at| format!("r1 = 1\ncall pc+{}\n", 2 * (CHAIN - at - 1) + 2 + 5 * at)).collect();
    let function = "r0 = 7\nif r1 == 0 goto +2\nr1 = 0\ncall pc+1\nexit\n";
    let text = format!("{calls}r0 = 7\nexit\n{}r0 = 7\nexit", function.repeat(CHAIN - 1));
    let object = Object::from_insns("chain", &RAW, assemble(&text).unwrap());
    let runtime = Runtime::new().unwrap();
    let error = runtime.load(&object).unwrap_err();
    assert!(matches!(&error, Error::Refused(refusal) if refusal.code.name() == "stack"), "{error}");
}

#[test]
fn a_buffer_at_any_address_is_accessed_atomically() {
    let text = "
        r2 = 5
        r2 = atomic_fetch_add((u64 *)(r1 + 8), r2)
        r3 = load_acquire((u64 *)(r1 + 8))
        store_release((u32 *)(r1 + 4), r3)
        r0 = r2
        exit";
    let object = Object::from_insns("adding", &RAW, assemble(text).unwrap());
    let module = Runtime::new().unwrap().linker(&object).buffer_len(16).load().unwrap();
    for engine in [Engine::Jit, Engine::Interpreter] {
        for start in 0..64 {
            let mut memory = [0u64; 12].map(u64::to_ne_bytes).concat();
            let buffer = &mut memory[start..start + 16];
            buffer[8] = 200;
            assert_eq!(module.programs()[0].run_raw_with(engine, buffer).unwrap(), 200, "{engine:?} {start}");
            assert_eq!(buffer, [0, 0, 0, 0, 205, 0, 0, 0, 205, 0, 0, 0, 0, 0, 0, 0], "{engine:?} {start}");
        }
    }
}

#[test]
fn strict_alignment_is_optional() {
    let insns = skep::isa::assemble("r0 = *(u32 *)(r1 + 2)\nexit").unwrap();
    let object = Object::from_insns("unaligned", &skep::abi::RAW, insns);
    let options = skep::ProgramOptions { buffer_len: 16, ..Default::default() };
    assert!(object.verify("unaligned", options).is_ok());
    let strict = skep::VerifyOptions { strict_alignment: true, ..Default::default() };
    match object.verify_with("unaligned", options, strict) {
        Err(skep::Error::Refused(refusal)) => assert_eq!(refusal.code.name(), "misaligned"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_leave_a_runtime_only_if_its_host_allows_it() {
    let insns = skep::isa::assemble("r0 = r1\nexit").unwrap();
    let object = Object::from_insns("address", &skep::abi::RAW, insns);
    let options = skep::ProgramOptions { buffer_len: 16, ..Default::default() };
    let load = |runtime: &Runtime| runtime.linker(&object).buffer_len(16).load();
    match load(&Runtime::new().unwrap()) {
        Err(skep::Error::Refused(refusal)) => assert_eq!(refusal.code.name(), "pointer-leak"),
        other => panic!("{other:?}"),
    }
    let runtime = Runtime::builder().privileged(true).build().unwrap();
    let module = load(&runtime).unwrap();
    for engine in [Engine::Jit, Engine::Interpreter] {
        let mut buffer = [0u8; 16];
        let address = buffer.as_mut_ptr().addr() as u64;
        assert_eq!(module.programs()[0].run_raw_with(engine, &mut buffer).unwrap(), address, "{engine:?}");
    }
    // What a privileged program stored somewhere is a number.
    let insns =
        skep::isa::assemble("*(u64 *)(r1 + 0) = r1\nr1 = *(u64 *)(r1 + 0)\nr0 = *(u8 *)(r1 + 0)\nexit")
            .unwrap();
    let object = Object::from_insns("forged", &skep::abi::RAW, insns);
    let privileged = skep::VerifyOptions { privileged: true, ..Default::default() };
    match object.verify_with("forged", options, privileged) {
        Err(skep::Error::Refused(refusal)) => assert_eq!(refusal.code.name(), "out-of-bounds"),
        other => panic!("{other:?}"),
    }
}

/// A program that names the first of these maps, and the second where no run gets.
fn with_maps(maps: Vec<MapDef>) -> Object {
    let text = "r1 = map[0] ll\n*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\ncall 1\nr0 = 0\nif r0 == 0 goto +2\nr1 = map[1] ll\nr0 = 0\nexit";
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    Object::from_bytecode_and_maps("main", &XDP, &bytes, maps).unwrap()
}

fn map(name: &str, kind: MapKind) -> MapDef {
    MapDef::new(name, kind, 4, 4, 8)
}

#[test]
fn a_map_that_no_program_reaches_does_not_fail_a_load() {
    let runtime = Runtime::new().unwrap();
    let object = with_maps(vec![
        map("counts", MapKind::Array),
        map("ops", MapKind::StructOps),
        map("spare", MapKind::Hash),
    ]);
    let module = runtime.load(&object).unwrap();
    let names: Vec<_> = module.maps().iter().map(|map| map.name().to_owned()).collect();
    assert_eq!(names, ["counts", "spare"]);
    let [unused] = module.unused_maps() else { panic!("{:?}", module.unused_maps()) };
    assert_eq!(unused.name, "ops");
    assert!(matches!(unused.error, Some(MapError::KindNotProvided { .. })), "{:?}", unused.error);
    for engine in [Engine::Jit, Engine::Interpreter] {
        assert_eq!(module.programs()[0].run_with(engine, &mut Packet::new(&[0; 64])).unwrap(), 0);
    }
    // A capacity asks for the map.
    let error = runtime.linker(&object).max_entries("ops", 4).load().unwrap_err();
    assert!(matches!(error, Error::Map(MapError::KindNotProvided { .. })), "{error}");
    // One that is reached is needed.
    let error = runtime
        .load(&with_maps(vec![map("ops", MapKind::StructOps), map("spare", MapKind::Hash)]))
        .unwrap_err();
    assert!(matches!(error, Error::Map(MapError::KindNotProvided { .. }) | Error::Refused(_)), "{error}");
}

#[test]
fn a_load_of_one_program_creates_the_maps_that_it_reaches() {
    let runtime = Runtime::new().unwrap();
    let object = with_maps(vec![
        map("counts", MapKind::Array),
        map("ops", MapKind::StructOps),
        map("spare", MapKind::Hash),
    ]);
    let module = runtime.linker(&object).only("main").load().unwrap();
    assert_eq!((module.maps().len(), module.maps()[0].name()), (1, "counts"));
    let unused: Vec<_> = module.unused_maps().iter().map(|map| (&*map.name, map.error.is_some())).collect();
    assert_eq!(unused, [("ops", false), ("spare", false)]);
    let module = runtime.linker(&object).only("main").max_entries("spare", 4).load().unwrap();
    assert_eq!(module.map("spare").unwrap().def().max_entries, 4);
}

#[test]
fn variables_are_found_in_the_maps_that_were_created() {
    // The program that is loaded alone needs no constants and no counters.
    let object = example("firewall");
    let runtime = Runtime::new().unwrap();
    let all = runtime.load(&object).unwrap();
    let one = runtime.linker(&object).only(object.programs()[0]).load().unwrap();
    for variable in one.variables() {
        assert_eq!(one.variable(&variable.name).unwrap(), all.variable(&variable.name).unwrap());
        let home = all.variables().iter().find(|other| other.name == variable.name).unwrap().map;
        assert_eq!(one.maps()[variable.map].name(), all.maps()[home].name());
    }
}
