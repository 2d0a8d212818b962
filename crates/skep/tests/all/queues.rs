//! Programs that use maps without keys, from their instructions to a result, in both engines.

use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Module, Object, Runtime, UpdateFlags};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

fn load(text: &str, map: MapDef) -> Module {
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let object = Object::from_bytecode_and_maps("program", &RAW, &bytes, vec![map]).unwrap();
    Runtime::new().unwrap().linker(&object).buffer_len(24).load().unwrap()
}

/// Calls the helper with `r1 = map, r2 = value, r3 = flags`; value and flags come from the buffer. The value and
/// then the helper's result are written back.
fn calls(helper: u32) -> String {
    format!(
        "r6 = r1
         r1 = *(u64 *)(r6 + 0)
         *(u64 *)(r10 - 8) = r1
         r3 = *(u64 *)(r6 + 8)
         r1 = map[0] ll
         r2 = r10
         r2 += -8
         call {helper}
         *(u64 *)(r6 + 16) = r0
         r1 = *(u64 *)(r10 - 8)
         *(u64 *)(r6 + 0) = r1
         r0 = 0
         exit"
    )
}

/// The program's result, and the value that it left.
fn run(module: &Module, engine: Engine, value: u64, flags: u64) -> (i64, u64) {
    let mut buffer = [value, flags, 0].map(u64::to_ne_bytes).concat();
    module.programs()[0].run_raw_with(engine, &mut buffer).unwrap();
    let word = |at: usize| u64::from_ne_bytes(buffer[at..at + 8].try_into().unwrap());
    (word(16) as i64, word(0))
}

#[test]
fn programs_push_pop_and_peek_in_the_order_of_the_kind() {
    for (kind, order) in [(MapKind::Queue, [2, 3]), (MapKind::Stack, [3, 2])] {
        for engine in ENGINES {
            let def = MapDef::new("ends", kind, 0, 8, 2);
            let [push, pop, peek] = [87, 88, 89].map(calls);
            let first = load(&push, def.clone());
            let runtime = first.maps()[0].clone();
            let share = |text: &str| {
                let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
                let object =
                    Object::from_bytecode_and_maps("program", &RAW, &bytes, vec![def.clone()]).unwrap();
                let other = Runtime::new().unwrap();
                other.linker(&object).buffer_len(24).map("ends", runtime.clone()).load().unwrap()
            };
            let (pop, peek) = (share(&pop), share(&peek));
            let push = |value, flags| run(&first, engine, value, flags).0;
            assert_eq!(
                [push(1, 0), push(2, 0), push(3, 0), push(3, 1)],
                [0, 0, -7, -22],
                "{kind} {engine:?}"
            );
            assert_eq!([push(3, 2), push(3, 4), push(3, 1 << 32)], [0, -22, -22]);
            assert_eq!(runtime.len(), 2);
            assert_eq!(run(&peek, engine, 9, 0), (0, order[0]));
            assert_eq!([0; 2].map(|_| run(&pop, engine, 9, 0)), order.map(|value| (0, value)));
            assert_eq!(
                [&pop, &peek].map(|module| run(module, engine, 9, 0)),
                [(-2, 0); 2],
                "empty, and zeroed"
            );
            // The host and programs see the same elements.
            runtime.push(&7_u64.to_ne_bytes(), UpdateFlags::Any).unwrap();
            assert_eq!(run(&pop, engine, 9, 0), (0, 7));
        }
    }
}

#[test]
fn programs_query_a_bloom_filter() {
    let def = MapDef { extra: 3, ..MapDef::new("seen", MapKind::BloomFilter, 0, 8, 100) };
    for engine in ENGINES {
        let (push, ask) = (load(&calls(87), def.clone()), load(&calls(89), def.clone()));
        assert_eq!(run(&push, engine, 5, 0), (0, 5));
        assert_eq!(run(&push, engine, 5, 2).0, -22);
        assert_eq!(push.maps()[0].contains(&5_u64.to_ne_bytes()), Ok(true));
        assert_eq!(run(&ask, engine, 5, 0), (-2, 5), "another filter");
        ask.maps()[0].push(&5_u64.to_ne_bytes(), UpdateFlags::Any).unwrap();
        assert_eq!(run(&ask, engine, 5, 0), (0, 5), "{engine:?}");
    }
}
