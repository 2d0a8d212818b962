//! Programs whose functions helpers call, programs with `may_goto` loops, and programs with legacy packet loads:
//! from their instructions to a result, in both engines.

use skep::abi::{MapDef, MapKind, ProgramType, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Module, Object, Packet, Runtime, UpdateFlags};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

fn load(kind: &'static ProgramType, text: &str, maps: impl Into<std::sync::Arc<[MapDef]>>) -> Module {
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let object = Object::from_bytecode_and_maps("program", kind, &bytes, maps).unwrap();
    Runtime::new().unwrap().load(&object).unwrap()
}

#[test]
fn a_callback_runs_for_each_iteration_until_it_stops_the_loop() {
    let text = "
        *(u64 *)(r10 - 8) = 0
        r1 = 100
        r2 = func[add] ll
        r3 = r10
        r3 += -8
        r4 = 0
        call 181
        r0 *= 10000
        r1 = *(u64 *)(r10 - 8)
        r0 += r1
        exit
   add: r3 = *(u64 *)(r2 + 0)
        r3 += r1
        *(u64 *)(r2 + 0) = r3
        r0 = 0
        if r1 != 40 goto +1
        r0 = 1
        exit";
    let module = load(&RAW, text, []);
    for engine in ENGINES {
        // 41 iterations, and the sum of 0 to 40.
        assert_eq!(module.programs()[0].run_raw_with(engine, &mut []).unwrap(), 410_820, "{engine:?}");
    }
}

#[test]
fn a_callback_sees_each_element_of_a_map() {
    let text = "
        *(u64 *)(r10 - 8) = 0
        r1 = map[0] ll
        r2 = func[add] ll
        r3 = r10
        r3 += -8
        r4 = 0
        call 164
        r0 *= 10000
        r1 = *(u64 *)(r10 - 8)
        r0 += r1
        exit
   add: r1 = *(u32 *)(r2 + 0)
        r5 = *(u64 *)(r3 + 0)
        r1 *= r5
        r5 = *(u64 *)(r4 + 0)
        r5 += r1
        *(u64 *)(r4 + 0) = r5
        r0 = 0
        exit";
    let module = load(&RAW, text, [MapDef::new("weights", MapKind::Hash, 4, 8, 8)]);
    let weights = module.map("weights").unwrap();
    for key in 1..=5u32 {
        weights.update(&key.to_ne_bytes(), &u64::from(10 * key).to_ne_bytes(), UpdateFlags::Any).unwrap();
    }
    for engine in ENGINES {
        // 5 elements, and ten times the squares of 1 to 5.
        assert_eq!(module.programs()[0].run_raw_with(engine, &mut []).unwrap(), 50_550, "{engine:?}");
    }
}

#[test]
fn a_callback_may_replace_and_delete_elements_it_sees() {
    // Doubles what is at even keys, and deletes the others.
    let text = "
        r1 = map[0] ll
        r2 = func[change] ll
        r3 = 0
        r4 = 0
        call 164
        exit
change: r6 = r1
        r7 = *(u32 *)(r2 + 0)
        *(u32 *)(r10 - 4) = r7
        r8 = *(u64 *)(r3 + 0)
        r8 += r8
        *(u64 *)(r10 - 16) = r8
        r1 = r6
        r2 = r10
        r2 += -4
        r7 &= 1
        if r7 != 0 goto drop
        r3 = r10
        r3 += -16
        r4 = 2
        call 2
        r0 = 0
        exit
  drop: call 3
        r0 = 0
        exit";
    let module = load(&RAW, text, [MapDef::new("weights", MapKind::Hash, 4, 8, 64)]);
    let weights = module.map("weights").unwrap();
    for engine in ENGINES {
        for key in 0..40u32 {
            weights.update(&key.to_ne_bytes(), &u64::from(key).to_ne_bytes(), UpdateFlags::Any).unwrap();
        }
        assert_eq!(module.programs()[0].run_raw_with(engine, &mut []).unwrap(), 40, "{engine:?}");
        for key in 0..40u32 {
            let expected = key.is_multiple_of(2).then(|| u64::from(2 * key).to_ne_bytes().to_vec());
            assert_eq!(weights.lookup(&key.to_ne_bytes()).unwrap(), expected, "{engine:?}: {key}");
        }
    }
}

#[test]
fn a_program_finds_the_values_of_other_cpus() {
    let text = "
        r3 = *(u32 *)(r1 + 0)
        *(u32 *)(r10 - 4) = 1
        r1 = map[0] ll
        r2 = r10
        r2 += -4
        call 195
        if r0 == 0 goto none
        r0 = *(u64 *)(r0 + 0)
        exit
  none: r0 = -1
        exit";
    for kind in [MapKind::PercpuArray, MapKind::PercpuHash] {
        let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
        let maps = [MapDef::new("counts", kind, 4, 8, 2)];
        let object = Object::from_bytecode_and_maps("program", &RAW, &bytes, maps).unwrap();
        let runtime = Runtime::builder().cpus(3).build().unwrap();
        let module = runtime.linker(&object).buffer_len(4).load().unwrap();
        let values: Vec<u8> = (10..13u64).flat_map(u64::to_ne_bytes).collect();
        module.map("counts").unwrap().update(&1u32.to_ne_bytes(), &values, UpdateFlags::Any).unwrap();
        for engine in ENGINES {
            let of =
                |cpu: u32| module.programs()[0].run_raw_with(engine, &mut cpu.to_ne_bytes()).unwrap() as i64;
            assert_eq!([of(0), of(1), of(2), of(3), of(u32::MAX)], [10, 11, 12, -1, -1], "{engine:?} {kind}");
        }
    }
}

#[test]
fn a_may_goto_loop_ends_when_its_budget_is_spent() {
    let text = "
        r0 = 0
  next: may_goto done
        r0 += 1
        goto next
  done: exit";
    let module = load(&RAW, text, []);
    let rounds = ENGINES.map(|engine| module.programs()[0].run_raw_with(engine, &mut []).unwrap());
    assert!(rounds[0] > 1000 && rounds[0] == rounds[1], "{rounds:?}");
}

#[test]
fn legacy_packet_loads_read_the_packet() {
    let text = "
        r6 = r1
        r0 = *(u16 *)skb[12]
        if r0 == 0x800 goto +2
        r0 = 7
        exit
        r0 = *(u8 *)skb[23]
        exit";
    let module = load(ProgramType::from_name("socket").unwrap(), text, []);
    for engine in ENGINES {
        let run = |frame: &[u8]| module.programs()[0].run_with(engine, &mut Packet::new(frame)).unwrap();
        let mut frame = [0; 34];
        assert_eq!(run(&frame), 7, "{engine:?}: another protocol");
        (frame[12], frame[23]) = (8, 17);
        assert_eq!(run(&frame), 17, "{engine:?}: UDP");
        // A load beyond the packet ends the program with 0.
        assert_eq!(run(&frame[..20]), 0, "{engine:?}: cut short");
    }
}
