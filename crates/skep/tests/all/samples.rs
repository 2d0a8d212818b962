//! Programs that output samples, in both engines.

use skep::abi::{MapDef, MapKind, ProgramType};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Module, Object, Packet, PerfReader, RingBuffer, Runtime};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

/// Outputs 8 bytes of the stack with these flags; returns the status.
fn load(program_type: &str, flags: u64) -> Module {
    let text = format!(
        "r2 = 0x0807060504030201 ll
         *(u64 *)(r10 - 8) = r2
         r2 = map[0] ll
         r3 = {flags:#x} ll
         r4 = r10
         r4 += -8
         r5 = 8
         call perf_event_output#25
         exit"
    );
    let bytes = encode_bytes(&assemble(&text).unwrap()).unwrap();
    let map = MapDef::new("samples", MapKind::PerfEventArray, 4, 4, 64);
    let kind = ProgramType::from_name(program_type).unwrap();
    let object = Object::from_bytecode_and_maps("p", kind, &bytes, vec![map]).unwrap();
    Runtime::new().unwrap().load(&object).unwrap()
}

const CURRENT: u64 = 0xffff_ffff;

#[test]
fn a_sample_has_the_programs_bytes_and_then_the_packets() {
    for program_type in ["xdp", "tc", "socket_filter"] {
        for engine in ENGINES {
            for from_packet in [0, 1, 20, 60] {
                let module = load(program_type, CURRENT | from_packet << 32);
                let mut reader = PerfReader::new(&module.maps()[0], 4096).unwrap();
                let mut packet = Packet::new(&std::array::from_fn::<u8, 60, _>(|at| at as u8 + 100));
                let outcome = module.programs()[0].outcome_with(engine, &mut packet).unwrap();
                assert_eq!(outcome.result, 0);
                let expected = [&[1, 2, 3, 4, 5, 6, 7, 8], &packet.bytes()[..from_packet as usize]].concat();
                assert_eq!(&reader.next_sample().unwrap()[..], expected);
                assert_eq!((outcome.events.len(), &outcome.events[0].bytes), (1, &expected));
                assert_eq!(outcome.events[0].map, "samples");
            }
        }
    }
}

#[test]
fn wrong_flags_and_a_missing_reader_are_errors() {
    for (flags, status) in [
        (CURRENT | 61 << 32, -14), // longer than the packet
        (CURRENT | 1 << 52, -22),
        (64, -7),
        (CURRENT, 0),
    ] {
        for engine in ENGINES {
            let module = load("xdp", flags);
            let _reader = PerfReader::new(&module.maps()[0], 4096).unwrap();
            let outcome = module.programs()[0].outcome_with(engine, &mut Packet::new(&[0; 60])).unwrap();
            assert_eq!(
                (outcome.result as i64, outcome.events.is_empty()),
                (status, status != 0),
                "{flags:#x}"
            );
        }
    }
    let module = load("xdp", CURRENT);
    assert_eq!(module.programs()[0].run(&mut Packet::new(&[0; 60])).unwrap() as i64, -2);
}

#[test]
fn records_of_ring_buffers_are_events_of_the_run_too() {
    let text = "
         *(u64 *)(r10 - 8) = 7
         r1 = map[1] ll
         r2 = r10
         r2 += -8
         r3 = 8
         r4 = 0
         call ringbuf_output#130
         r1 = map[0] ll
         r2 = 3
         r3 = 0
         call ringbuf_reserve#131
         if r0 == 0 goto end
         *(u8 *)(r0 + 0) = 1
         *(u8 *)(r0 + 1) = 2
         *(u8 *)(r0 + 2) = 3
         r1 = r0
         r2 = 0
         call ringbuf_submit#132
         r1 = map[0] ll
         r2 = 16
         r3 = 0
         call ringbuf_reserve#131
         if r0 == 0 goto end
         r1 = r0
         r2 = 0
         call ringbuf_discard#133
    end: r0 = 2
         exit";
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let rings = ["first", "second"].map(|name| MapDef::new(name, MapKind::Ringbuf, 0, 0, 4096));
    let kind = ProgramType::from_name("xdp").unwrap();
    let object = Object::from_bytecode_and_maps("p", kind, &bytes, rings).unwrap();
    for engine in ENGINES {
        let module = Runtime::new().unwrap().load(&object).unwrap();
        let outcome = module.programs()[0].outcome_with(engine, &mut Packet::new(&[0; 60])).unwrap();
        let events: Vec<_> = outcome.events.iter().map(|event| (&*event.map, &event.bytes[..])).collect();
        assert_eq!(events, [("second", &[7, 0, 0, 0, 0, 0, 0, 0][..]), ("first", &[1, 2, 3])]);
        let mut ring = RingBuffer::new(&module.maps()[0]).unwrap();
        let mut seen = Vec::new();
        ring.for_each(|record| seen.push(record.to_vec()));
        assert_eq!(seen, [[1, 2, 3]], "the host reads it all the same");
        assert!(
            module.programs()[0].run_with(engine, &mut Packet::new(&[0; 60])).is_ok(),
            "without listeners"
        );
    }
}
