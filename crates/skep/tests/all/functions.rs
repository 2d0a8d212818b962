//! Helpers defined by the host: which arguments programs may pass, and what the functions receive and return.

use skep::abi::{MapDef, MapKind, RAW, XDP};
use skep::function::{Caller, HostFunction, Out, PacketView};
use skep::isa::{assemble, encode_bytes};
use skep::{Error, Map, Module, Object, Packet, Runtime, UpdateFlags};

fn load<S>(function: impl HostFunction<S>, text: &str) -> Result<Module, Error> {
    let runtime = Runtime::builder().cpus(2).function(1000, "function", function).build()?;
    let object = Object::from_insns("calling", &RAW, assemble(text).unwrap());
    runtime.linker(&object).buffer_len(16).load()
}

/// The program's result over a buffer of the bytes 1 to 16, and the buffer afterwards.
#[track_caller]
fn run<S>(function: impl HostFunction<S>, text: &str) -> (u64, [u8; 16]) {
    let module = load(function, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut buffer: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
    let result = module.programs()[0].run_raw(&mut buffer).unwrap();
    (result, buffer)
}

/// The class of the refusal.
#[track_caller]
fn refused<S>(function: impl HostFunction<S>, text: &str) -> &'static str {
    match load(function, text) {
        Err(Error::Refused(refusal)) => refusal.code.name(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_are_truncated_to_their_type_and_results_have_its_range() {
    let text = "r1 = -2\nr2 = 0x1ff\nr3 = 0x123456789 ll\ncall 1000\nexit";
    fn sum(a: i8, b: u8, c: u32) -> i64 {
        i64::from(a) + i64::from(b) + i64::from(c)
    }
    assert_eq!(run(sum, text).0, (-2 + 0xff + 0x2345_6789) as u64);
    assert_eq!(run(|| -> i32 { -7 }, "call 1000\nexit").0 as i64, -7);
    assert_eq!(run(|a: bool| -> bool { !a }, "r1 = 8\ncall 1000\nexit").0, 0);
    // The verifier knows the range of the result: an index of 0..=15 needs no check.
    let index = "r6 = r1\ncall 1000\nr6 += r0\nr0 = *(u8 *)(r6 + 0)\nexit";
    assert_eq!(refused(|| -> u8 { 3 }, index), "out-of-bounds");
    assert_eq!(run(|| -> bool { true }, index).0, 2);
    // The function returns nothing, so r0 must not be read.
    assert_eq!(refused(|| {}, "call 1000\nexit"), "uninitialised");
    assert_eq!(run(|| {}, "call 1000\nr0 = 4\nexit").0, 4);
}

#[test]
fn memory_of_a_size_is_read_filled_and_changed() {
    let first = |bytes: &[u8; 4]| -> u32 { u32::from_ne_bytes(*bytes) };
    assert_eq!(run(first, "call 1000\nexit").0, u64::from(u32::from_ne_bytes([1, 2, 3, 4])));
    assert_eq!(refused(first, "r1 += 13\ncall 1000\nexit"), "out-of-bounds");
    assert_eq!(refused(first, "r1 = 5\ncall 1000\nexit"), "argument");
    // Stack bytes that a function reads without the program having written them are zero.
    assert_eq!(run(first, "r1 = r10\nr1 += -8\ncall 1000\nexit").0, 0);
    let left = "*(u64 *)(r10 - 8) = r1\n*(u8 *)(r10 - 8) = 0\nr1 = r10\nr1 += -8\ncall 1000\nexit";
    assert_eq!(refused(first, left), "uninitialised");
    let change = |word: &mut u16| *word = word.swap_bytes();
    assert_eq!(run(change, "call 1000\nr0 = 0\nexit").1[..3], [2, 1, 3]);
    let fill = |mut out: Out<'_, u64>| out.set(0x0102_0304);
    assert_eq!(run(fill, "r1 = r10\nr1 += -8\ncall 1000\nr0 = *(u64 *)(r10 - 8)\nexit").0, 0x0102_0304);
    let leave = |_: Out<'_, u64>| {};
    assert_eq!(run(leave, "call 1000\nr0 = 0\nexit").1[..9], [0, 0, 0, 0, 0, 0, 0, 0, 9]);
}

#[test]
fn slices_take_their_size_from_the_next_register() {
    let sum = |bytes: &[u8]| -> u32 { bytes.iter().map(|byte| u32::from(*byte)).sum() };
    assert_eq!(run(sum, "call 1000\nexit").0, 136);
    assert_eq!(run(sum, "r2 = 3\ncall 1000\nexit").0, 6);
    assert_eq!(run(sum, "r2 = 0\ncall 1000\nexit").0, 0);
    assert_eq!(refused(sum, "r2 = 17\ncall 1000\nexit"), "out-of-bounds");
    assert_eq!(refused(sum, "r1 = 0\nr2 = 0\ncall 1000\nexit"), "argument");
    let reverse = |bytes: &mut [u8]| bytes.reverse();
    assert_eq!(run(reverse, "r2 = 4\ncall 1000\nr0 = 0\nexit").1[..5], [4, 3, 2, 1, 5]);
    let length = |bytes: Option<&[u8]>| -> i32 { bytes.map_or(-1, |bytes| bytes.len() as i32) };
    assert_eq!(run(length, "r1 = 0\nr2 = 0\ncall 1000\nexit").0 as i64, -1);
    assert_eq!(run(length, "call 1000\nexit").0, 16);
    assert_eq!(refused(length, "r1 = 0\nr2 = 1\ncall 1000\nexit"), "argument");
}

#[test]
fn one_memory_may_be_passed_twice() {
    let swap = |to: &mut [u8], from: &mut [u8]| {
        to.copy_from_slice(from);
        from.fill(9);
    };
    let text = "r3 = r1\nr2 = 2\nr4 = 2\ncall 1000\nr0 = 0\nexit";
    assert_eq!(run(swap, text).1[..3], [9, 9, 3], "the last copy back wins");
}

#[test]
fn functions_borrow_maps_packets_and_the_caller() {
    fn count(map: &Map, caller: Caller<'_>, packet: PacketView<'_>) -> u32 {
        assert_eq!(caller.program(), "counting");
        let mut first = [0; 2];
        assert!(packet.read(0, &mut first) && !packet.read(packet.len() - 1, &mut first.clone()));
        map.update(&0u32.to_ne_bytes(), &u64::from(first[1]).to_ne_bytes(), UpdateFlags::Any).unwrap();
        packet.len() as u32
    }
    let runtime = Runtime::builder().function(1000, "count", count).build().unwrap();
    let def = MapDef::new("counts", MapKind::Array, 4, 8, 1);
    let text = "r2 = r1\nr1 = map[0] ll\ncall 1000\nexit";
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let object = Object::from_bytecode_and_maps("counting", &XDP, &bytes, [def]).unwrap();
    let module = runtime.load(&object).unwrap();
    let result = module.programs()[0].run(&mut Packet::new(&[5, 77, 1])).unwrap();
    assert_eq!(result, 3);
    let value = module.maps()[0].lookup(&0u32.to_ne_bytes()).unwrap().unwrap();
    assert_eq!(value, 77u64.to_ne_bytes());
}

#[test]
fn the_number_of_a_virtual_cpu_is_an_index_into_as_many_elements() {
    // A value of the array has room for one word of each of 4 CPUs.
    let text = "call 8\nr0 <<= 3\nr1 = map_value[0]+0x0 ll\nr1 += r0\n*(u64 *)(r1 + 0) = 1\nr0 = 0\nexit";
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let def = MapDef::new("words", MapKind::Array, 4, 4 * 8, 1);
    let object = Object::from_bytecode_and_maps("main", &XDP, &bytes, [def]).unwrap();
    let with = |cpus| Runtime::builder().cpus(cpus).build().unwrap().load(&object);
    let module = with(4).unwrap();
    module.programs()[0].run(&mut Packet::new(&[0; 64])).unwrap();
    assert!(matches!(with(5), Err(Error::Refused { .. })));
}

#[test]
fn a_helper_number_is_used_only_once() {
    let taken = Runtime::builder().function(1, "mine", || {}).build();
    assert!(matches!(taken, Err(Error::HelperTaken { id: 1, .. })), "{taken:?}");
}

#[test]
fn a_function_that_takes_a_packet_refuses_a_buffer() {
    fn length(packet: skep::function::PacketView<'_>) -> u32 {
        packet.len() as u32
    }
    let runtime = Runtime::builder().function(1000, "length", length).build().unwrap();
    let insns = skep::isa::assemble("call 1000\nexit").unwrap();
    let object = Object::from_insns("main", &skep::abi::RAW, insns);
    let error = runtime.linker(&object).buffer_len(64).load().unwrap_err().to_string();
    assert!(error.contains("context"), "{error}");
}
