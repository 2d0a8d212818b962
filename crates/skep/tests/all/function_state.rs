//! What functions of the host own, and the state that a run lends to them.

use skep::abi::{MapDef, MapKind, RAW, XDP};
use skep::function::{Callback, Caller, Errno, Out, State};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Error, Module, Object, Packet, Runtime, RuntimeBuilder};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

fn load(runtime: &Runtime, text: &str) -> Result<Module, Error> {
    let object = Object::from_insns("calling", &RAW, assemble(text).unwrap());
    runtime.linker(&object).buffer_len(16).load()
}

/// A program in a runtime with these functions.
#[track_caller]
fn loaded(builder: RuntimeBuilder, text: &str) -> Module {
    load(&builder.build().unwrap(), text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn run(module: &Module, engine: Engine) -> i64 {
    module.programs()[0].run_raw_with(engine, &mut [0; 16]).unwrap() as i64
}

fn run_with<T: 'static>(module: &Module, engine: Engine, state: &mut T) -> i64 {
    module.programs()[0].with_state(state).run_raw_with(engine, &mut [0; 16]).unwrap() as i64
}

/// A function that returns its own number; all have one type.
fn own(number: u64) -> impl Fn() -> u64 + Send + Sync + 'static {
    move || number
}

#[test]
fn functions_of_one_type_own_different_values() {
    let text = "call 1000\nr6 = r0\nr6 *= 10\ncall 1001\nr0 += r6\nexit";
    let builder = |a, b| Runtime::builder().function(1000, "a", own(a)).function(1001, "b", own(b));
    let (first, second) = (loaded(builder(1, 2), text), loaded(builder(3, 4), text));
    for engine in ENGINES {
        assert_eq!(
            (run(&first, engine), run(&second, engine), run(&first, engine)),
            (12, 34, 12),
            "{engine:?}"
        );
    }
}

#[test]
fn what_a_function_owns_changes_for_all_threads_and_is_seen_by_the_host() {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let add = move |by: u32| -> u64 { counted.fetch_add(by.into(), Ordering::Relaxed) };
    let module = loaded(Runtime::builder().function(1000, "add", add), "r1 = 3\ncall 1000\nexit");
    std::thread::scope(|scope| {
        for engine in [ENGINES, ENGINES].concat() {
            let module = &module;
            scope.spawn(move || (0..100).for_each(|_| assert!(run(module, engine) >= 0)));
        }
    });
    assert_eq!(count.load(Ordering::Relaxed), 4 * 100 * 3);
}

#[test]
fn what_a_function_owns_lives_as_long_as_the_last_program() {
    struct Noted(Arc<AtomicU64>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicU64::new(0));
    let noted = Noted(Arc::clone(&dropped));
    let owns = move || -> u64 { noted.0.load(Ordering::Relaxed) + 7 };
    let module = loaded(Runtime::builder().function(1000, "owns", owns), "call 1000\nexit");
    for engine in ENGINES {
        assert_eq!(run(&module, engine), 7, "the runtime's handle is gone");
    }
    let program = module.programs()[0].clone();
    drop(module);
    assert_eq!(program.run_raw(&mut [0; 16]).unwrap(), 7);
    drop(program);
    while dropped.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn a_function_that_owns_a_type_without_bytes_drops_it_once() {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let nothing = Nothing;
    let owns = move || -> u64 {
        let _here = &nothing;
        DROPPED.load(Ordering::Relaxed)
    };
    assert_eq!(size_of_val(&owns), 0);
    let module = loaded(Runtime::builder().function(1000, "owns", owns), "call 1000\ncall 1000\nexit");
    for engine in ENGINES {
        assert_eq!(run(&module, engine), 0);
    }
    drop(module);
    while DROPPED.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
}

#[test]
fn helpers_after_a_function_that_owns_something_do_not_find_its_address() {
    let printed = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&printed);
    // "%d\n" at r10-8; the number that it prints is not told by the address of anything.
    let text = "r6 = 0x0a6425
                *(u64 *)(r10 - 8) = r6
                call 1000
                r3 = r0
                r1 = r10
                r1 += -8
                r2 = 4
                call trace_printk#6
                call 1001
                exit";
    let builder = Runtime::builder()
        .log(move |_, message| log.lock().unwrap().push(message.to_owned()))
        .function(1000, "a", own(41))
        .function(1001, "none", || -> u64 { 5 });
    let module = loaded(builder, text);
    for engine in ENGINES {
        assert_eq!(run(&module, engine), 5);
    }
    assert_eq!(*printed.lock().unwrap(), ["41", "41"]);
}

#[test]
fn errors_are_negated_numbers_and_the_verifier_knows_their_range() {
    let half = |number: u32| -> Result<u8, Errno> {
        if number % 2 == 1 {
            return Err(Errno::EINVAL);
        }
        u8::try_from(number / 2).map_err(|_| Errno::ERANGE)
    };
    let builder = |text: &str| loaded(Runtime::builder().function(1000, "half", half), text);
    for (number, expected) in [(8, 4), (7, -22), (512, -34), (510, 255)] {
        let module = builder(&format!("r1 = {number}\ncall 1000\nexit"));
        for engine in ENGINES {
            assert_eq!(run(&module, engine), expected);
        }
    }
    // A result that is no error is an index of 0..=255 and no more.
    let index =
        "r6 = r1\ncall 1000\nif r0 s< 0 goto +4\nr0 &= 15\nr6 += r0\nr0 = *(u8 *)(r6 + 0)\nexit\nexit";
    builder(&format!("r1 += 0\n{index}").replace("r6 = r1\n", "r6 = r1\nr1 = 4\n"));
    let unchecked =
        "r6 = r1\nr1 = 4\ncall 1000\nif r0 > 15 goto +3\nr6 += r0\nr0 = *(u8 *)(r6 + 0)\nexit\nr0 = 0\nexit";
    builder(unchecked);
    let runtime = Runtime::builder().function(1000, "half", half).build().unwrap();
    let wrong =
        "r6 = r1\nr1 = 4\ncall 1000\nif r0 s> 15 goto +3\nr6 += r0\nr0 = *(u8 *)(r6 + 0)\nexit\nr0 = 0\nexit";
    assert!(matches!(load(&runtime, wrong), Err(Error::Refused(_))), "it may be an error");
    let module = loaded(
        Runtime::builder()
            .function(1000, "io", || -> Result<(), Errno> { Err(std::io::Error::from_raw_os_error(28))? }),
        "call 1000\nexit",
    );
    assert_eq!(run(&module, Engine::Jit), -28);
    for number in [0, -1, 4096, i32::MAX] {
        assert_eq!(Errno::new(number), None);
    }
    assert_eq!(Errno::new(4095).map(Errno::number), Some(4095));
    assert_eq!(format!("{:?} {}", Errno::EBUSY, Errno::EBUSY), "EBUSY Device or resource busy (os error 16)");
}

fn add(mut sum: State<'_, u64>, by: u32) -> Result<u32, Errno> {
    *sum += u64::from(by);
    Ok(*sum as u32)
}

const ADD_FIVE: &str = "r1 = 5\ncall 1000\nexit";

#[test]
fn a_run_lends_its_state_and_has_it_back() {
    let module = loaded(Runtime::builder().function(1000, "add", add), ADD_FIVE);
    for engine in ENGINES {
        let (mut first, mut second) = (1u64, 100u64);
        assert_eq!(run_with(&module, engine, &mut first), 6);
        assert_eq!(run_with(&module, engine, &mut second), 105);
        assert_eq!(run_with(&module, engine, &mut first), 11);
        assert_eq!((first, second), (11, 105));
    }
}

#[test]
fn a_run_without_the_state_or_with_another_is_an_error_before_it_begins() {
    let touch = |bytes: &mut [u8]| bytes.fill(9);
    let builder = Runtime::builder().function(1000, "add", add).function(1001, "touch", touch);
    let module = loaded(builder, "call 1001\nr1 = 5\ncall 1000\nexit");
    let program = &module.programs()[0];
    let mut buffer = [0; 16];
    for engine in ENGINES {
        let none = program.run_raw_with(engine, &mut buffer).unwrap_err();
        assert!(matches!(none, Error::StateMissing { wanted: "u64", given: None, .. }), "{none}");
        let text = none.to_string();
        assert!(text.contains("program calling") && text.contains("Program::with_state"), "{text}");
        let other = program.with_state(&mut 7u32).run_raw_with(engine, &mut buffer).unwrap_err();
        assert!(matches!(other, Error::StateMissing { given: Some("u32"), .. }), "{other}");
        assert!(program.with_state(&mut 7i64).run_raw_with(engine, &mut buffer).is_err(), "of the same size");
    }
    assert_eq!(buffer, [0; 16], "the program did not run");
    assert!(program.run_raw_with_state(&mut buffer, &mut 0u64).is_ok());
    assert_eq!(buffer, [9; 16]);
    // A program that needs none takes any.
    let module = loaded(Runtime::builder(), "r0 = 3\nexit");
    assert_eq!(run_with(&module, Engine::Jit, &mut "text"), 3);
}

#[test]
fn a_program_needs_one_state_at_most() {
    fn other(_: State<'_, String>) -> Result<(), Errno> {
        Ok(())
    }
    let builder = || Runtime::builder().function(1000, "add", add).function(1001, "other", other);
    let both = load(&builder().build().unwrap(), "r1 = 0\ncall 1000\ncall 1001\nexit").unwrap_err();
    assert!(matches!(both, Error::StateTypes { first: "u64", .. }), "{both}");
    let unreached = "r1 = 0\ncall 1000\nexit\ncall 1001\nexit";
    let _ = load(&builder().build().unwrap(), unreached);
}

/// Calls the program's function and adds what it returned; the state is lent meanwhile, unless it is dropped first.
fn holding(mut sum: State<'_, u64>, mut inner: Callback<'_>, what: u32) -> Result<u32, Errno> {
    let result = match what {
        0 => inner.call(1)?,
        1 => {
            drop(sum);
            return Ok(inner.call(1)?.unsigned_abs());
        }
        _ => {
            std::mem::forget(sum);
            return Ok(inner.call(1)?.unsigned_abs());
        }
    };
    *sum += 1000;
    Ok(result.unsigned_abs())
}

#[test]
fn two_functions_of_a_run_never_have_its_state_at_once() {
    let text = |what: u32| {
        format!(
            "r1 = func[inner] ll
             r2 = 0
             r3 = {what}
             call 1001
             exit
      inner: r1 = 5
             call 1000
             exit"
        )
    };
    let builder = || Runtime::builder().function(1000, "add", add).function(1001, "holding", holding);
    for engine in ENGINES {
        let mut sum = 1u64;
        assert_eq!(run_with(&loaded(builder(), &text(0)), engine, &mut sum), 16, "EBUSY in the callback");
        assert_eq!(sum, 1001, "the inner function was not called");
        assert_eq!(run_with(&loaded(builder(), &text(1)), engine, &mut sum), 1006, "it was given back");
        assert_eq!(run_with(&loaded(builder(), &text(2)), engine, &mut sum), 16, "a forgotten one is not");
        // After the call it is free again.
        let again = text(2).replacen("             exit", "             r1 = 1\ncall 1000\nexit", 1);
        assert_eq!(run_with(&loaded(builder(), &again), engine, &mut sum), 1007);
    }
}

#[test]
fn memory_that_a_refused_function_would_have_filled_is_zero() {
    fn fill(_: State<'_, u64>, mut out: Out<'_, u64>) -> Result<(), Errno> {
        out.set(u64::MAX);
        Ok(())
    }
    let text = "r1 = func[inner] ll
                r2 = 0
                r3 = 0
                call 1001
                exit
         inner: r1 = r10
                r1 += -8
                call 1000
                r0 = *(u64 *)(r10 - 8)
                exit";
    let builder = Runtime::builder().function(1000, "fill", fill).function(1001, "holding", holding);
    let module = loaded(builder, text);
    for engine in ENGINES {
        assert_eq!(run_with(&module, engine, &mut 0u64), 0);
    }
}

#[test]
fn a_program_that_is_reached_by_a_tail_call_has_the_state_of_the_run_or_gets_an_error() {
    let programs = MapDef::new("programs", MapKind::ProgArray, 4, 4, 2);
    let runtime = Runtime::builder().function(1000, "add", add).build().unwrap();
    let jump = "r6 = r1\nr2 = map[0] ll\nr3 = 0\ncall 12\nr0 = 77\nexit";
    let bytes = |text: &str| encode_bytes(&assemble(text).unwrap()).unwrap();
    let jumps = Object::from_bytecode_and_maps("jumps", &XDP, &bytes(jump), [programs]).unwrap();
    let jumps = runtime.load(&jumps).unwrap();
    let target = runtime.load(&Object::from_insns("target", &XDP, assemble(ADD_FIVE).unwrap())).unwrap();
    jumps.program_array("programs").unwrap().set(0, &target.programs()[0]).unwrap();
    let program = &jumps.programs()[0];
    for engine in ENGINES {
        let mut packet = Packet::new(&[0; 64]);
        let mut sum = 2u64;
        assert_eq!(program.with_state(&mut sum).run_with(engine, &mut packet).unwrap() as i64, 7);
        assert_eq!(sum, 7);
        assert_eq!(program.run_with(engine, &mut packet).unwrap() as i64, -6, "ENXIO");
        assert_eq!(program.with_state(&mut 5i64).run_with(engine, &mut packet).unwrap() as i64, -6);
        let outcome = program.with_state(&mut sum).outcome_with(engine, &mut packet).unwrap();
        assert_eq!((outcome.result, sum), (12, 12));
        sum = 2;
        assert_eq!(program.run_with_state(&mut packet, &mut sum).unwrap(), 7);
    }
}

#[test]
fn a_run_inside_of_a_function_has_a_state_of_its_own() {
    let inner: Arc<OnceLock<skep::Program>> = Arc::default();
    let there = Arc::clone(&inner);
    let nested = move |mut sum: State<'_, u64>, lends: bool| -> Result<u32, Errno> {
        let program = there.get().ok_or(Errno::ENOENT)?;
        let result = match lends {
            // A reborrow of what this function has.
            true => program.run_raw_with_state(&mut [0; 16], &mut *sum),
            false => program.run_raw_with_state(&mut [0; 16], &mut 1000u64),
        };
        Ok(result.map_err(|_| Errno::EIO)? as u32)
    };
    let runtime = Runtime::builder().function(1000, "add", add).function(1001, "nested", nested);
    let runtime = runtime.build().unwrap();
    let program = load(&runtime, ADD_FIVE).unwrap().programs()[0].clone();
    assert!(inner.set(program).is_ok());
    for (lends, expected, left) in [(1, 7, 7), (0, 1005, 2)] {
        let module = load(&runtime, &format!("r1 = {lends}\ncall 1001\nexit")).unwrap();
        for engine in ENGINES {
            let mut sum = 2u64;
            assert_eq!((run_with(&module, engine, &mut sum), sum), (expected, left));
        }
    }
}

#[test]
fn a_function_for_some_program_types_is_refused_in_others() {
    let runtime = Runtime::builder().function_for(&[&XDP], 1000, "mine", |_: Caller<'_>| -> u32 { 2 });
    let runtime = runtime.build().unwrap();
    let refused = load(&runtime, "call 1000\nexit").unwrap_err().to_string();
    assert!(
        refused.contains("type raw may not call mine (1000)") && refused.contains("for xdp"),
        "{refused}"
    );
    let module =
        runtime.load(&Object::from_insns("one", &XDP, assemble("call 1000\nexit").unwrap())).unwrap();
    assert_eq!(module.programs()[0].run(&mut Packet::new(&[0; 64])).unwrap(), 2);
}
