//! `bpf_user_ringbuf_drain`: records from the host, in both engines.

use skep::abi::{MapDef, MapKind, ProgramType};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Module, Object, Packet, Runtime, UserRingBuffer};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

/// Adds up the first eight bytes of each record, doubled by its last program, until a record begins with 77. The
/// result is the drain's, times 10,000, plus the sum.
fn load(kind: &str, flags: u64) -> Module {
    let text = format!(
        "*(u64 *)(r10 - 8) = 0
         r1 = map[0] ll
         r2 = func[add] ll
         r3 = r10
         r3 += -8
         r4 = {flags}
         call user_ringbuf_drain#209
         r1 = *(u64 *)(r10 - 8)
         if r0 s< 0 goto out
         r0 *= 10000
         r0 += r1
    out: exit
    add: r6 = r1
         r7 = r2
         r2 = 0
         r3 = 8
         call dynptr_data#203
         if r0 == 0 goto short
         r1 = *(u64 *)(r0 + 0)
         r2 = 0
         *(u64 *)(r0 + 0) = r2
         *(u64 *)(r10 - 8) = r1
         r1 = *(u64 *)(r7 + 0)
         r2 = *(u64 *)(r10 - 8)
         r1 += r2
         *(u64 *)(r7 + 0) = r1
         r0 = 0
         if r2 != 77 goto end
         r0 = 1
         goto end
  short: *(u64 *)(r10 - 8) = 0
         r1 = r10
         r1 += -8
         r2 = 2
         r3 = r6
         r4 = 0
         r5 = 0
         call dynptr_read#201
         r1 = *(u64 *)(r7 + 0)
         r1 += 1000
         *(u64 *)(r7 + 0) = r1
         r0 = 0
    end: exit"
    );
    let bytes = encode_bytes(&assemble(&text).unwrap_or_else(|e| panic!("{e}"))).unwrap();
    let requests = MapDef::new("requests", MapKind::UserRingbuf, 0, 0, 4096);
    let kind = ProgramType::from_name(kind).unwrap();
    let object = Object::from_bytecode_and_maps("drains", kind, &bytes, vec![requests]).unwrap();
    Runtime::new().unwrap().load(&object).unwrap()
}

fn run(module: &Module, engine: Engine) -> i64 {
    module.programs()[0].run_with(engine, &mut Packet::new(&[0; 64])).unwrap() as i32 as i64
}

fn put(host: &mut UserRingBuffer, bytes: &[u8]) {
    let mut sample = host.reserve(bytes.len() as u32).unwrap();
    sample.copy_from_slice(bytes);
    sample.submit();
}

#[test]
fn a_program_s_function_sees_each_record_until_it_stops_the_drain() {
    for engine in ENGINES {
        for kind in ["xdp", "sched_cls"] {
            let module = load(kind, 0);
            assert_eq!(run(&module, engine), 0, "{kind} {engine:?}");
            let mut host = UserRingBuffer::new(&module.maps()[0]).unwrap();
            assert_eq!(run(&module, engine), 0);
            put(&mut host, &5_u64.to_ne_bytes());
            drop(host.reserve(20));
            put(&mut host, &[6_u64.to_ne_bytes(), [9; 8]].concat());
            put(&mut host, b"abc"); // too short for the slice
            put(&mut host, &77_u64.to_ne_bytes());
            put(&mut host, &1_u64.to_ne_bytes());
            assert_eq!(run(&module, engine), 41_088, "{kind} {engine:?}");
            assert_eq!(run(&module, engine), 10_001, "the one behind");
            assert_eq!((run(&module, engine), host.pending()), (0, 0));
        }
    }
}

#[test]
fn unknown_flags_are_an_error_and_take_nothing() {
    for engine in ENGINES {
        let module = load("xdp", 4);
        let mut host = UserRingBuffer::new(&module.maps()[0]).unwrap();
        put(&mut host, &5_u64.to_ne_bytes());
        assert_eq!((run(&module, engine), host.pending()), (-22, 16));
    }
}
