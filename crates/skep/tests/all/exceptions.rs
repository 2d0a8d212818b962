//! Programs that end by exceptions, from C and from instructions, in both engines. Checking mode runs the same
//! object (`src/checking.rs`).

use skep::abi::{RAW, own_kfunc_number};
use skep::isa::{assemble, encode_bytes};
use skep::jit::Options;
use skep::{Engine, Module, Object, Packet, Runtime};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("../objects/exceptions/exceptions.bpf.o");

fn load(fixed_code: bool) -> Module {
    let mut options = Options::default();
    options.fixed_code = fixed_code;
    let runtime = Runtime::builder().compile(options).build().unwrap();
    runtime.load(&Object::parse(OBJECT).unwrap()).unwrap()
}

fn number(module: &Module, variable: &str) -> u64 {
    u64::from_ne_bytes(module.variable(variable).unwrap().try_into().unwrap())
}

/// The result of a program for a packet of that length, and what it adds to `steps` and to `unwound`.
fn run(module: &Module, engine: Engine, program: &str, length: usize) -> (u32, u64, u64) {
    let before = (number(module, "steps"), number(module, "unwound"));
    let program = module.program(program).unwrap();
    let result = program.run_with(engine, &mut Packet::new(&vec![0; length])).unwrap();
    (result as u32, number(module, "steps") - before.0, number(module, "unwound") - before.1)
}

#[test]
fn a_throw_unwinds_all_functions_without_running_them_further() {
    let module = load(false);
    for engine in ENGINES {
        // The cookie is the result.
        assert_eq!(run(&module, engine, "plain", 61), (61, 1, 0), "{engine:?}");
        assert_eq!(run(&module, engine, "plain", 60), (61 + 71 + 5, 10_102, 0), "{engine:?}");
        // The callback computes the result from the cookie.
        assert_eq!(run(&module, engine, "handled", 61), (1122, 1, 1), "{engine:?}");
        assert_eq!(run(&module, engine, "handled", 60), (61 + 71 + 5, 10_102, 0), "{engine:?}");
        // From the program's own frame, and after a helper that called back.
        assert_eq!(run(&module, engine, "at_once", 61), (42, 0, 0), "{engine:?}");
        assert_eq!(run(&module, engine, "at_once", 60), (20, 0, 0), "{engine:?}");
        assert_eq!(run(&module, engine, "after_rounds", 61), (1090, 0, 1), "{engine:?}");
        assert_eq!(run(&module, engine, "after_rounds", 60), (45, 0, 0), "{engine:?}");
        assert_eq!(run(&module, engine, "drops", 61), (1, 0, 0), "{engine:?}");
        assert_eq!(run(&module, engine, "drops", 20), (2, 0, 0), "{engine:?}");
    }
}

#[test]
fn a_tail_called_program_ends_alone_by_its_own_callback() {
    // Tail calls by patched branches, and by look-ups.
    tail_called(&load(false));
    tail_called(&load(true));
}

fn tail_called(module: &Module) {
    let programs = module.program_array("programs").unwrap();
    let set = |name: &str| programs.set(0, module.program(name).unwrap()).unwrap();
    for engine in ENGINES {
        programs.remove(0).unwrap();
        assert_eq!(run(module, engine, "jumps", 61), (3, 1_000_000, 0), "{engine:?}");
        for round in 0..3 {
            // The result is that of the function that made the tail call; its caller continues.
            set("at_once");
            assert_eq!(run(module, engine, "jumps", 61), (42, 1_000_000, 0), "{engine:?} {round}");
            set("handled");
            assert_eq!(run(module, engine, "jumps", 61), (1122, 1_000_001, 1), "{engine:?} {round}");
            set("plain");
            assert_eq!(run(module, engine, "jumps", 61), (61, 1_000_001, 0), "{engine:?} {round}");
            // The caller also throws, after the first exception has ended: its own callback runs.
            assert_eq!(run(module, engine, "jumps", 7), (2, 1_000_002, 0), "{engine:?} {round}");
        }
    }
}

/// A program over a buffer of a byte.
fn raw(text: &str) -> Module {
    let throw = format!("call kfunc[{}]", own_kfunc_number("bpf_throw").unwrap());
    let bytes = encode_bytes(&assemble(&text.replace("throw", &throw)).unwrap()).unwrap();
    let object = Object::from_bytecode("program", &RAW, &bytes).unwrap();
    Runtime::new().unwrap().linker(&object).buffer_len(1).load().unwrap()
}

#[test]
fn all_64_bits_of_a_cookie_pass_through_the_deepest_stack() {
    let mut text = String::from("r6 = r1\ncall f1\nr0 = 1\nexit\n");
    for depth in 1..7 {
        // Each has its own registers and stack to unwind.
        text += &format!(
            "f{depth}:\nr6 = {depth}\nr7 = 5\n*(u64 *)(r10 - {}) = r7\ncall f{}\nr0 += 1\nexit\n",
            8 * depth,
            depth + 1
        );
    }
    text += "f7:\nr2 = *(u8 *)(r1 + 0)\nr0 = 100\nif r2 == 0 goto out\nr1 = 0x8877665544332211 ll\nthrow\nout:\nexit";
    let module = raw(&text);
    for engine in ENGINES {
        let run = |byte: u8| module.programs()[0].run_raw_with(engine, &mut [byte]).unwrap();
        for _ in 0..100 {
            assert_eq!(run(1), 0x8877_6655_4433_2211, "{engine:?}");
            assert_eq!(run(0), 1, "{engine:?}");
        }
    }
}

#[test]
fn calls_of_functions_that_always_throw_need_no_continuation() {
    let module = raw("r6 = 3\ncall ends\nexit\nends:\nr1 = 9\nthrow\nexit");
    for engine in ENGINES {
        assert_eq!(module.programs()[0].run_raw_with(engine, &mut [0]).unwrap(), 9, "{engine:?}");
    }
}
