//! Programs that write records into ring buffers: from their instructions to what the host reads, in both engines.

use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Error, Map, Module, Object, RingBuffer, Runtime};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

/// Reserves a record of two words, fills it from the buffer, and submits it, or discards it if the buffer's third
/// word is not 0. Returns 1 if there is no room.
const RECORDS: &str = "
        r6 = r1
        r1 = map[0] ll
        r2 = 16
        r3 = 0
        call 131
        if r0 == 0 goto full
        r7 = *(u64 *)(r0 + 8)
        r2 = *(u64 *)(r6 + 0)
        *(u64 *)(r0 + 0) = r2
        r2 = *(u64 *)(r6 + 8)
        *(u64 *)(r0 + 8) = r2
        r1 = r0
        r2 = 0
        r3 = *(u64 *)(r6 + 16)
        if r3 != 0 goto discard
        call 132
        r0 = r7
        exit
discard: call 133
        r0 = r7
        exit
full:   r0 = 1
        exit";

fn try_load(text: &str, bytes: u32) -> Result<Module, Error> {
    let program = encode_bytes(&assemble(text).unwrap()).unwrap();
    let map = MapDef::new("events", MapKind::Ringbuf, 0, 0, bytes);
    let object = Object::from_bytecode_and_maps("program", &RAW, &program, vec![map]).unwrap();
    Runtime::new().unwrap().linker(&object).buffer_len(24).load()
}

fn load(text: &str) -> Module {
    try_load(text, 4096).unwrap()
}

fn run(module: &Module, engine: Engine, words: [u64; 3]) -> u64 {
    let mut buffer = words.map(u64::to_ne_bytes).concat();
    module.programs()[0].run_raw_with(engine, &mut buffer).unwrap()
}

fn taken(consumer: &mut RingBuffer) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    consumer.for_each(|record| records.push(record.to_vec()));
    records
}

#[test]
fn records_that_programs_submit_reach_the_host_in_order() {
    for engine in ENGINES {
        let module = load(RECORDS);
        let mut consumer = RingBuffer::new(module.map("events").unwrap()).unwrap();
        let record = |a: u64, b: u64| [a, b].map(u64::to_ne_bytes).concat();
        assert_eq!([run(&module, engine, [1, 2, 0]), run(&module, engine, [3, 4, 1])], [0; 2]);
        assert_eq!(run(&module, engine, [5, 6, 0]), 0);
        assert_eq!(taken(&mut consumer), [record(1, 2), record(5, 6)], "{engine:?}");
        // 24 bytes each, and the ring buffer is never completely full.
        let results: Vec<u64> = (0..171).map(|number| run(&module, engine, [number, 0, 0])).collect();
        assert_eq!(results.iter().position(|result| *result == 1), Some(170));
        assert_eq!(taken(&mut consumer).len(), 170);
        // A new record does not contain old bytes.
        assert_eq!((0..300).map(|_| run(&module, engine, [9, 9, 1])).max(), Some(1));
        assert_eq!((taken(&mut consumer).len(), run(&module, engine, [9, 9, 0])), (0, 0));
    }
}

#[test]
fn programs_output_memory_and_query_the_fill_level() {
    let text = "
        r6 = r1
        r2 = r1
        r1 = map[0] ll
        r3 = 24
        r4 = *(u64 *)(r6 + 16)
        call 130
        r7 = r0
        r1 = map[0] ll
        r2 = *(u64 *)(r6 + 8)
        call 134
        *(u64 *)(r6 + 0) = r0
        r0 = r7
        exit";
    for engine in ENGINES {
        let module = load(text);
        let mut consumer = RingBuffer::new(module.map("events").unwrap()).unwrap();
        let run = |what: u64, flags: u64| {
            let mut buffer = [7, what, flags].map(u64::to_ne_bytes).concat();
            let result = module.programs()[0].run_raw_with(engine, &mut buffer).unwrap();
            (result as i64, u64::from_ne_bytes(buffer[..8].try_into().unwrap()))
        };
        // Queries: available bytes, size, the consumer's position, the producers' position, and an unknown one.
        let answers = [0, 1, 2, 3, 4].map(|what| run(what, 1));
        assert_eq!(answers, [(0, 32), (0, 4096), (0, 0), (0, 128), (0, 0)], "{engine:?}");
        assert_eq!(run(0, 4), (-22, 160));
        assert_eq!(taken(&mut consumer)[0], [7, 0, 1].map(u64::to_ne_bytes).concat());
        assert_eq!(run(2, 0), (0, 160));
        let full = (0..130).map(|_| run(0, 0).0).find(|result| *result != 0);
        assert_eq!(full, Some(-11));
    }
}

#[test]
fn a_record_must_be_released_exactly_once() {
    let cases = [
        (
            "r1 = r0\nr2 = 0\nr3 = *(u64 *)(r6 + 16)\n        if r3 != 0 goto discard",
            "exit\nr3 = 1\nif r3 != 0 goto discard",
        ),
        ("call 132", "call 132\nr1 = r8\nr2 = 0\ncall 132"),
        ("call 132", "call 132\n*(u64 *)(r8 + 0) = 1"),
        ("*(u64 *)(r0 + 8) = r2", "*(u64 *)(r0 + 16) = r2"),
    ];
    let kept = RECORDS.replace("if r0 == 0 goto full", "if r0 == 0 goto full\nr8 = r0");
    assert!(try_load(&kept, 4096).is_ok());
    for (from, to) in cases {
        let text = kept.replace("        r1 = r0\n        r2 = 0\n        r3", "r1 = r0\nr2 = 0\nr3");
        assert!(text.contains(from), "{from}");
        let error = try_load(&text.replace(from, to), 4096).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{to}: {error}");
    }
    let error = try_load(RECORDS, 4095).unwrap_err().to_string();
    assert!(error.contains("power of two"), "{error}");
}

#[test]
fn a_host_sleeps_until_a_program_submits_a_record() {
    for engine in ENGINES {
        let module = load(RECORDS);
        let map: &Arc<Map> = module.map("events").unwrap();
        let mut consumer = RingBuffer::new(map).unwrap();
        assert!(!consumer.poll(Some(Duration::from_millis(1))));
        thread::scope(|scope| {
            for producer in 0..3u64 {
                let module = &module;
                scope.spawn(move || {
                    for number in 0..5_000 {
                        while run(module, engine, [producer, number, 0]) == 1 {
                            thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0u64; 3];
            while next != [5_000; 3] {
                assert!(consumer.poll(Some(Duration::from_secs(60))), "a wake-up was lost: {next:?}");
                consumer.for_each(|record| {
                    let word = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().unwrap());
                    let next = &mut next[word(0) as usize];
                    assert_eq!(word(8), *next);
                    *next += 1;
                });
            }
        });
    }
}

/// Reserves the number of bytes in the buffer's first word, writes the second word to the offset in the third, and
/// submits. Returns the results of reservation and write, and the first byte read back.
const SIZED: &str = "
        r6 = r1
        r1 = map[0] ll
        r2 = *(u32 *)(r6 + 0)
        r3 = 0
        r4 = r10
        r4 += -16
        call 198
        *(u64 *)(r6 + 0) = r0
        r1 = r10
        r1 += -16
        r2 = *(u64 *)(r6 + 16)
        r3 = r6
        r3 += 8
        r4 = 8
        r5 = 0
        call 202
        *(u64 *)(r6 + 8) = r0
        r1 = r10
        r1 += -24
        r2 = 8
        r3 = r10
        r3 += -16
        r4 = *(u64 *)(r6 + 16)
        r5 = 0
        call 201
        r1 = *(u64 *)(r10 - 24)
        *(u64 *)(r6 + 16) = r1
        r7 = 0
        r1 = r10
        r1 += -16
        r2 = 0
        r3 = 8
        call 203
        if r0 == 0 goto none
        r7 = 1
        r1 = 77
        *(u8 *)(r0 + 0) = r1
none:   r1 = r10
        r1 += -16
        r2 = 0
        call 199
        r0 = r7
        exit";

#[test]
fn records_whose_size_is_known_at_run_time() {
    for engine in ENGINES {
        let module = load(SIZED);
        let mut consumer = RingBuffer::new(module.map("events").unwrap()).unwrap();
        let mut run = |words: [u64; 3]| {
            let mut buffer = words.map(u64::to_ne_bytes).concat();
            let result = module.programs()[0].run_raw_with(engine, &mut buffer).unwrap();
            let word = |at: usize| i64::from_ne_bytes(buffer[at..at + 8].try_into().unwrap());
            ([word(0), word(8), word(16)], result, taken(&mut consumer))
        };
        let record = |bytes: &[u8]| vec![bytes.to_vec()];
        assert_eq!(
            run([11, 0x0101, 3]),
            ([0, 0, 0x0101], 1, record(&[77, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0])),
            "{engine:?}"
        );
        // The write begins out of bounds, and the destination of the read is zeroed.
        assert_eq!(run([11, 5, 4]), ([0, -7, 0], 1, record(&[77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])));
        assert_eq!(run([7, 5, 0]), ([0, -7, 0], 0, record(&[0; 7])));
        assert_eq!(run([8, 5, 1 << 31]), ([0, -7, 0], 1, record(&[77, 0, 0, 0, 0, 0, 0, 0])));
        // Without a record all calls on the dynptr fail, and nothing is submitted.
        assert_eq!(run([4096, 5, 0]), ([-22, -22, 0], 0, vec![]));
        assert_eq!(run([1 << 24, 5, 0]), ([-7, -22, 0], 0, vec![]));
    }
}
