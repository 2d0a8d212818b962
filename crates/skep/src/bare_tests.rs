//! What a program takes besides its code: no virtual CPU if it calls nothing, and few bytes.

use crate::{Budget, Engine, Module, Object, Packet, Runtime, RuntimeBuilder};
use skep_abi::{MapDef, MapKind, ProgramType, RAW};
use skep_isa::{assemble, encode_bytes};
use std::sync::{Arc, Barrier};
use std::thread;

const ADDS: &str = "r0 = *(u32 *)(r1 + 0)\nr0 += 1\n*(u32 *)(r1 + 0) = r0\nexit";
const HAS_FUNCTION: &str = "r6 = r1\ncall pc+0x2\nr0 += 5\nexit\nr0 = 2\nexit";
const ASKS_CPU: &str = "call get_smp_processor_id#8\nexit";
const LOOKS_UP: &str =
    "*(u32 *)(r10 - 4) = 0\nr1 = map[0] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem#1\nr0 = 0\nexit";
const GLOBAL: &str = "r1 = map_value[0]+0 ll\nr0 = *(u64 *)(r1 + 0)\nr0 += 1\n*(u64 *)(r1 + 0) = r0\nexit";

fn array() -> MapDef {
    MapDef::new("numbers", MapKind::Array, 4, 8, 1)
}

fn load(builder: RuntimeBuilder, text: &str) -> Module {
    let runtime = builder.build().unwrap();
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let maps: Vec<MapDef> = text.contains("[0]").then(array).into_iter().collect();
    let object = Object::from_bytecode_and_maps("main", &RAW, &bytes, maps).unwrap();
    runtime.linker(&object).buffer_len(8).load().unwrap()
}

fn is_bare(module: &Module) -> bool {
    module.programs()[0].image().needs_no_cpu
}

#[test]
fn programs_that_call_only_their_own_functions_need_no_virtual_cpu() {
    for text in [ADDS, HAS_FUNCTION, GLOBAL, "r0 = 2\nexit"] {
        assert!(is_bare(&load(Runtime::builder(), text)), "{text}");
    }
    for text in [ASKS_CPU, LOOKS_UP] {
        assert!(!is_bare(&load(Runtime::builder(), text)), "{text}");
    }
}

#[test]
fn a_loaded_program_keeps_four_bytes_for_each_instruction() {
    let text =
        "r0 = *(u32 *)(r1 + 0)\nr0 *= 3\nr0 ^= 77\nif r0 > 5 goto +1\nr0 += 1\n*(u32 *)(r1 + 0) = r0\n"
            .repeat(500);
    let module = load(Runtime::builder(), &format!("{text}exit"));
    let program = &module.programs()[0];
    let bytes = program.verified().packed_bytes().unwrap();
    assert!(bytes < 3001 * 4, "{bytes} bytes");
    let shown = program.verified().insns();
    assert_eq!(shown.len(), 3001);
}

#[test]
fn programs_whose_runs_may_end_early_need_an_environment() {
    let counts = "r0 = 0\nr0 += 1\nif r0 < 10 goto -2\nexit";
    assert!(is_bare(&load(Runtime::builder(), counts)));
    let module = load(Runtime::builder().budget(Budget::UNLIMITED), counts);
    assert!(!is_bare(&module));
    let short = module.programs()[0].with_budget(Budget::units(1)).unwrap();
    assert!(short.run_raw(&mut [0; 8]).is_err());
}

#[test]
fn they_run_alike_in_both_engines_and_are_counted() {
    for (text, expected) in [(ADDS, 8), (HAS_FUNCTION, 7), (GLOBAL, 1)] {
        for engine in [Engine::Jit, Engine::Interpreter] {
            let module = load(Runtime::builder(), text);
            let (program, mut buffer) = (&module.programs()[0], [7u32, 0].map(u32::to_ne_bytes).concat());
            assert_eq!(program.run_raw_with(engine, &mut buffer).unwrap(), expected, "{text}");
            assert_eq!(buffer[0], if text == ADDS { 8 } else { 7 });
        }
    }
    let runtime = Runtime::new().unwrap();
    let xdp = ProgramType::from_name("xdp").unwrap();
    let object = Object::from_insns("two", xdp, assemble("r0 = 2\nexit").unwrap());
    let module = runtime.load(&object).unwrap();
    let program = &module.programs()[0];
    assert!(program.image().needs_no_cpu);
    runtime.enable_stats(true);
    for _ in 0..3 {
        assert_eq!(program.run(&mut Packet::new(&[0; 64])).unwrap(), 2);
    }
    assert_eq!(program.stats().run_cnt, 3);
}

#[test]
fn they_run_while_all_virtual_cpus_are_in_runs() {
    let (inside, go_on) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let stop = {
        let (inside, go_on) = (Arc::clone(&inside), Arc::clone(&go_on));
        move || {
            inside.wait();
            go_on.wait();
        }
    };
    let runtime = Runtime::builder().cpus(2).function(1000, "stop", stop).build().unwrap();
    let load = |text: &str| {
        let object = Object::from_insns("main", &RAW, assemble(text).unwrap());
        runtime.linker(&object).buffer_len(8).load().unwrap()
    };
    let (waits, bare) = (load("call 1000\nr0 = 0\nexit"), load(ADDS));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| waits.programs()[0].run_raw(&mut [0; 8]).unwrap());
        }
        inside.wait();
        assert_eq!(bare.programs()[0].run_raw(&mut [0; 8]).unwrap(), 1);
        go_on.wait();
    });
}
