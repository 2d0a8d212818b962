//! Functions of the host that call functions of the program, and memory that they use where it is.

use skep::abi::{MapDef, MapKind, RAW, XDP};
use skep::function::{Callback, Errno, HostFunction, MemoryView, MemoryViewMut, PacketView};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Error, Module, Object, Packet, Runtime};
use std::sync::atomic::Ordering::Relaxed;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

fn load<S>(function: impl HostFunction<S>, text: &str) -> Result<Module, Error> {
    let runtime = Runtime::builder().function(1000, "function", function).build()?;
    let object = Object::from_insns("calling", &RAW, assemble(text).unwrap());
    runtime.linker(&object).buffer_len(16).load()
}

/// The program's result over a buffer of the bytes 1 to 16, and the buffer afterwards, by both engines.
#[track_caller]
fn run<S>(function: impl HostFunction<S>, text: &str) -> (i64, [u8; 16]) {
    let module = load(function, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let [compiled, interpreted] = ENGINES.map(|engine| {
        let mut buffer: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
        (module.programs()[0].run_raw_with(engine, &mut buffer).unwrap() as i64, buffer)
    });
    assert_eq!(compiled, interpreted, "{text}");
    compiled
}

/// The class of the refusal.
#[track_caller]
fn refused<S>(function: impl HostFunction<S>, text: &str) -> &'static str {
    match load(function, text) {
        Err(Error::Refused(refusal)) => refusal.code.name(),
        other => panic!("{other:?}"),
    }
}

/// Calls back with 3, 4 and so on, and adds up the results.
fn sums(mut callback: Callback<'_>, times: u32) -> Result<u32, Errno> {
    let mut sum = 0;
    for value in 3..3 + u64::from(times) {
        sum += callback.call(value)?;
    }
    Ok(sum.unsigned_abs())
}

#[test]
fn a_function_calls_back_with_values_and_the_programs_own_memory() {
    let text = "*(u64 *)(r10 - 8) = 0
                r1 = func[each] ll
                r2 = r10
                r2 += -8
                r3 = 4
                call 1000
                r6 = r0
                r0 = *(u64 *)(r10 - 8)
                r0 <<= 16
                r0 |= r6
                exit
          each: r3 = *(u64 *)(r2 + 0)
                r3 += r1
                *(u64 *)(r2 + 0) = r3
                r0 = r1
                r0 *= 2
                exit";
    assert_eq!(run(sums, text).0, (3 + 4 + 5 + 6) << 16 | 2 * (3 + 4 + 5 + 6));
    // Results may be negative, and the lower 32 bits count.
    let negative = "r1 = func[each] ll\nr2 = 0\nr3 = 2\ncall 1000\nexit\neach: r0 = -5 ll\nexit";
    assert_eq!(run(sums, negative).0, 10);
    // A callback calls functions of the program, and helpers of the host.
    let deeper = "r1 = func[each] ll\nr2 = 0\nr3 = 2\ncall 1000\nexit
                  each: call pc+1\nexit\nr0 = r1\nr0 += 1\nexit";
    assert_eq!(run(sums, deeper).0, 4 + 5);
}

#[test]
fn callbacks_nest_and_may_not_be_called_at_all() {
    let text = "r1 = func[outer] ll\nr2 = 0\nr3 = 3\ncall 1000\nexit
                outer: r1 = func[inner] ll\nr2 = 0\nr3 = 2\ncall 1000\nexit
                inner: r0 = r1\nexit";
    assert_eq!(run(sums, text).0, 3 * 7);
    let never = text.replacen("r3 = 3", "r3 = 0", 1);
    assert_eq!(run(sums, &never).0, 0);
}

#[test]
fn a_callback_is_verified_for_any_value_and_any_number_of_calls() {
    let program = |body: &str| {
        format!(
            "*(u64 *)(r10 - 8) = 0\n*(u64 *)(r10 - 16) = 0\nr1 = func[each] ll\nr2 = r10\nr2 += -16\nr3 = 2
             call 1000\nexit\neach: {body}"
        )
    };
    let index = "if r1 > 15 goto +3\nr2 += r1\nr0 = *(u8 *)(r2 + 0)\nexit\nr0 = 0\nexit";
    assert_eq!(run(sums, &program(index)).0, 0);
    let beyond = "if r1 > 16 goto +3\nr2 += r1\nr0 = *(u8 *)(r2 + 0)\nexit\nr0 = 0\nexit";
    assert_eq!(refused(sums, &program(beyond)), "out-of-bounds");
    let unbounded = "r2 += r1\nr0 = *(u8 *)(r2 + 0)\nexit";
    assert_ne!(refused(sums, &program(unbounded)), "");
    // A counter in the context has no bound that holds for all calls.
    let counts = "r3 = *(u64 *)(r2 + 0)\nr4 = r3\nr4 += 1\n*(u64 *)(r2 + 0) = r4\nr2 += r3\nr0 = *(u8 *)(r2 + 0)\nexit";
    assert_ne!(refused(sums, &program(counts)), "");
    assert_eq!(refused(sums, &program("exit")), "uninitialised");
    assert_eq!(refused(sums, &program("r0 = r3\nexit")), "uninitialised");
    assert_ne!(refused(sums, &program("r0 = r2\nexit")), "", "an address is no result");
}

#[test]
fn only_functions_of_the_program_and_its_stack_are_callbacks_and_their_context() {
    let tail = "\nr3 = 1\ncall 1000\nexit\neach: r0 = 0\nexit";
    for wrong in ["r1 = 5\nr2 = 0", "r2 = 0", "r1 = func[each] ll\nr2 = 8", "r2 = r1\nr1 = func[each] ll"] {
        assert_eq!(refused(sums, &format!("{wrong}{tail}")), "argument", "{wrong}");
    }
}

#[test]
fn a_function_that_calls_back_has_no_memory_of_a_packet() {
    fn both(bytes: MemoryView<'_>, mut callback: Callback<'_>) -> Result<u32, Errno> {
        let _ = callback.call(0)?;
        Ok(bytes.len() as u32)
    }
    let runtime =
        Runtime::builder().function(1000, "both", both).function(1001, "sums", sums).build().unwrap();
    let in_packet = "r2 = *(u32 *)(r1 + 4)
                     r1 = *(u32 *)(r1 + 0)
                     r3 = r1
                     r3 += 8
                     if r3 > r2 goto +6
                     r2 = 8
                     r3 = func[each] ll
                     r4 = 0
                     call 1000
                     exit
                     r0 = 0
                     exit
               each: r0 = 0
                     exit";
    let load = |text: &str| runtime.load(&Object::from_insns("calling", &XDP, assemble(text).unwrap()));
    let error = load(in_packet).unwrap_err().to_string();
    assert!(error.contains("both may move the packet"), "{error}");
    // Nor has the program what it knew of the packet before the call.
    let after = "r6 = *(u32 *)(r1 + 0)
                 r2 = *(u32 *)(r1 + 4)
                 r3 = r6
                 r3 += 8
                 if r3 > r2 goto +7
                 r1 = func[each] ll
                 r2 = 0
                 r3 = 1
                 call 1001
                 r0 = *(u8 *)(r6 + 0)
                 exit
                 r0 = 0
                 exit
           each: r0 = 0
                 exit";
    assert!(matches!(load(after), Err(Error::Refused(_))));
}

#[test]
fn a_callback_that_moves_the_packet_is_seen_by_the_view_of_it() {
    fn shrink(packet: PacketView<'_>, mut callback: Callback<'_>) -> Result<u32, Errno> {
        let before = packet.len();
        let _ = callback.call(0)?;
        Ok((before - packet.len()) as u32)
    }
    let text = "r6 = r1
                *(u64 *)(r10 - 8) = r6
                r2 = func[each] ll
                r3 = r10
                r3 += -8
                call 1000
                exit
          each: r1 = *(u64 *)(r2 + 0)
                r2 = 3
                call xdp_adjust_head#44
                r0 = 0
                exit";
    let runtime = Runtime::builder().function(1000, "shrink", shrink).build().unwrap();
    let module = runtime.load(&Object::from_insns("calling", &XDP, assemble(text).unwrap())).unwrap();
    for engine in ENGINES {
        let mut packet = Packet::new(&[7; 64]);
        assert_eq!(module.programs()[0].run_with(engine, &mut packet).unwrap(), 3);
        assert_eq!(packet.bytes().len(), 61);
    }
}

#[test]
fn views_read_and_write_the_programs_memory_where_it_is() {
    fn look(bytes: MemoryView<'_>, at: u32) -> u64 {
        assert_eq!(bytes.at(bytes.len()), None);
        assert_eq!(bytes.read::<u64>(bytes.len() - 7), None);
        assert_eq!(bytes.read::<u8>(usize::MAX), None);
        assert_eq!(bytes.bytes().collect::<Vec<_>>(), bytes.to_vec());
        let mut some = [0; 3];
        assert!(bytes.copy_to(1, &mut some) && !bytes.copy_to(bytes.len() - 2, &mut some));
        assert_eq!(some, [2, 3, 4]);
        bytes.read::<u32>(at as usize).map_or(0, u64::from)
    }
    assert_eq!(run(look, "r3 = 3\ncall 1000\nexit").0, 0x0706_0504);
    assert_eq!(run(look, "r3 = 13\ncall 1000\nexit").0, 0);
    assert_eq!(refused(look, "r2 = 17\nr3 = 0\ncall 1000\nexit"), "out-of-bounds");
    fn change(mut bytes: MemoryViewMut<'_>) -> u32 {
        assert!(bytes.write(2, 0xaabb_u16.to_be()) && !bytes.write(bytes.len() - 1, 5u16));
        assert!(bytes.copy_from(4, &[50, 60]) && !bytes.copy_from(usize::MAX, &[1]));
        bytes.as_atomics()[7].store(70, Relaxed);
        assert_eq!(bytes.view().at(7), Some(70));
        bytes.view().at(0).map_or(0, u32::from)
    }
    let (result, after) = run(change, "r2 = 9\ncall 1000\nexit");
    assert_eq!(result, 1);
    assert_eq!(after[..10], [1, 2, 0xaa, 0xbb, 50, 60, 7, 70, 9, 10]);
    let empty = |bytes: MemoryViewMut<'_>| -> bool { bytes.is_empty() && bytes.as_atomics().is_empty() };
    assert_eq!(run(empty, "r2 = 0\ncall 1000\nexit").0, 1);
}

#[test]
fn two_views_of_one_memory_see_each_other() {
    fn both(read: MemoryView<'_>, mut write: MemoryViewMut<'_>) -> u32 {
        let _ = write.write(0, 0x01u8);
        let before = read.at(0).map_or(0, u32::from);
        let _ = write.write(0, 0x20u8);
        before | read.at(0).map_or(0, u32::from)
    }
    assert_eq!(
        run(both, "r3 = r1\nr4 = r2\ncall 1000\nexit"),
        (0x21, {
            let mut after: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
            after[0] = 0x20;
            after
        })
    );
}

#[test]
fn constants_of_the_program_can_be_viewed_but_not_changed() {
    let constants =
        MapDef { flags: skep::abi::MapFlags::RDONLY_PROG, ..MapDef::new("c", MapKind::Array, 4, 16, 1) };
    let text = "r1 = map_value[0]+0 ll\nr2 = 16\ncall 1000\nexit";
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    let object = Object::from_bytecode_and_maps("calling", &RAW, &bytes, [constants]).unwrap();
    let load = |runtime: Runtime| runtime.linker(&object).buffer_len(16).load();
    let look = |bytes: MemoryView<'_>| -> u32 { bytes.bytes().map(u32::from).sum() };
    let module = load(Runtime::builder().function(1000, "look", look).build().unwrap()).unwrap();
    assert_eq!(module.programs()[0].run_raw(&mut [0; 16]).unwrap(), 0);
    let change = |mut bytes: MemoryViewMut<'_>| -> bool { bytes.write(0, 1u8) };
    let changed = load(Runtime::builder().function(1000, "change", change).build().unwrap());
    assert!(matches!(changed, Err(Error::Refused(_))), "{changed:?}");
}
