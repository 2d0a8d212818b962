//! Sleepable programs: their read-side critical sections and virtual CPUs.

use skep::abi::{MapDef, MapFlags, MapKind, OWN_KFUNC, OWN_KFUNCS, RAW};
use skep::function::Caller;
use skep::isa::{assemble, encode_bytes};
use skep::jit::Target;
use skep::{Engine, Error, Map, Object, ProgramOptions, Runtime, UpdateFlags};
use skep_rcu::Grace;
use std::cell::RefCell;
use std::sync::Arc;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("../objects/sections/sleeping.bpf.o");

/// A run that is in a section of that flavour.
const NORMAL: u64 = 1;
const SLEEPABLE: u64 = 2;

thread_local! {
    /// The runtime of this thread's test, for `observe`, which must not see sections of other tests.
    static RUNTIME: Runtime = Runtime::builder()
        .function(1000, "observe", observe)
        .function(1001, "churn", churn)
        .build()
        .unwrap();
    /// The map that `churn` changes.
    static TABLE: RefCell<Option<Arc<Map>>> = const { RefCell::new(None) };
}

fn runtime() -> Runtime {
    RUNTIME.with(Runtime::clone)
}

/// Which grace periods the run delays.
fn observe(_: Caller<'_>) -> u64 {
    let runtime = runtime();
    let domain = runtime.arena().domain();
    let holds_up = |grace| !domain.try_pass(domain.cookie(), grace);
    let normal = if holds_up(Grace::Normal) { NORMAL } else { 0 };
    let sleepable = if holds_up(Grace::Sleepable) { SLEEPABLE } else { 0 };
    normal | sleepable
}

/// Deletes the element that a program found, and adds others that may reuse its memory as soon as possible.
fn churn(_: Caller<'_>) -> u64 {
    let (runtime, table) = (runtime(), TABLE.with_borrow(|table| table.clone().unwrap()));
    table.delete(&7u32.to_ne_bytes()).unwrap();
    let others = || (100..116u32).map(u32::to_ne_bytes);
    for _ in 0..300 {
        for key in others() {
            // Memory may be exhausted: between lock and unlock the thread waits for itself.
            let _ = table.update(&key, &OTHER.to_ne_bytes(), UpdateFlags::Any);
        }
        for key in others() {
            let _ = table.delete(&key);
        }
        if runtime.arena().domain().synchronize(Grace::Normal).is_err() {
            break; // no grace period will end
        }
    }
    for key in others() {
        let _ = table.update(&key, &OTHER.to_ne_bytes(), UpdateFlags::Any);
    }
    0
}

/// The keys that programs look up, and the other keys.
const OWN: u64 = 1;
const OTHER: u64 = 2;

fn results(program: &str) -> Vec<u64> {
    let module = runtime().linker(&Object::parse(OBJECT).unwrap()).load().unwrap();
    let program = module.program(program).unwrap();
    ENGINES.map(|engine| program.run_raw_with(engine, &mut []).unwrap()).to_vec()
}

#[test]
fn sleepable_programs_delay_normal_grace_periods_only_in_rcu_read_lock() {
    let expected = SLEEPABLE | (SLEEPABLE | NORMAL) << 8 | SLEEPABLE << 16;
    assert_eq!(results("brackets"), [expected; 2]);
}

#[test]
fn a_non_sleepable_program_is_always_in_a_normal_section() {
    assert_eq!(results("plain"), [NORMAL | NORMAL << 8 | NORMAL << 16; 2]);
}

#[test]
fn disabled_preemption_is_a_section_until_the_last_enable() {
    assert_eq!(results("preempt"), [SLEEPABLE | NORMAL | SLEEPABLE << 8; 2]);
}

#[test]
fn a_sleepable_program_changes_maps_outside_of_sections_too() {
    assert_eq!(results("counts"), [42 + SLEEPABLE; 2]);
}

#[test]
fn an_element_found_in_a_section_stays_until_its_end() {
    let module = runtime().load(&Object::parse(OBJECT).unwrap()).unwrap();
    let table = module.map("table").unwrap();
    TABLE.set(Some(table.clone()));
    for engine in ENGINES {
        let run = |program: &str| {
            for (key, _) in table.entries() {
                table.delete(&key).unwrap();
            }
            runtime().synchronize().unwrap();
            table.update(&7u32.to_ne_bytes(), &OWN.to_ne_bytes(), UpdateFlags::Any).unwrap();
            module.program(program).unwrap().run_raw_with(engine, &mut []).unwrap()
        };
        assert_eq!(run("inside"), OWN, "{engine:?}");
        assert_eq!(run("outside"), OTHER, "{engine:?}: the test can tell");
    }
}

fn bytecode(text: &str, maps: Vec<MapDef>) -> Object {
    let bytes = encode_bytes(&assemble(text).unwrap()).unwrap();
    Object::from_bytecode_and_maps("program", &RAW, &bytes, maps).unwrap()
}

#[test]
fn bare_instructions_may_sleep_and_call_functions_by_their_numbers() {
    let (enter, leave) = (OWN_KFUNC, OWN_KFUNC + 1);
    let text =
        format!("call kfunc[{enter}]\ncall 1000\nr6 = r0\ncall kfunc[{leave}]\nr0 = r6\nr0 <<= 8\nexit");
    for (sleepable, expected) in [(true, NORMAL | SLEEPABLE), (false, NORMAL)] {
        let object = bytecode(&text, Vec::new());
        let module = runtime().linker(&object).sleepable(sleepable).load().unwrap();
        for engine in ENGINES {
            assert_eq!(module.programs()[0].run_raw_with(engine, &mut []).unwrap(), expected << 8);
        }
        assert_eq!(module.programs()[0].verified().is_sleepable(), sleepable);
    }
}

#[test]
fn a_sleepable_program_uses_tries_with_and_without_a_section() {
    let mut trie = MapDef::new("routes", MapKind::LpmTrie, 8, 8, 4);
    trie.flags = MapFlags::NO_PREALLOC;
    let text = |enter: &str, leave: &str| {
        format!(
            "{enter}*(u32 *)(r10 - 8) = 32\n*(u32 *)(r10 - 4) = 7\n*(u64 *)(r10 - 16) = 42\nr6 = 1\n\
             r1 = map[0] ll\nr2 = r10\nr2 += -8\nr3 = r10\nr3 += -16\nr4 = 0\ncall 2\n\
             r1 = map[0] ll\nr2 = r10\nr2 += -8\ncall 1\nif r0 == 0 goto end\nr6 = *(u64 *)(r0 + 0)\n\
             end:\n{leave}r0 = r6\nexit"
        )
    };
    let (enter, leave) = (format!("call kfunc[{OWN_KFUNC}]\n"), format!("call kfunc[{}]\n", OWN_KFUNC + 1));
    for text in [text("", ""), text(&enter, &leave)] {
        let module = runtime().linker(&bytecode(&text, vec![trie.clone()])).sleepable(true).load().unwrap();
        for engine in ENGINES {
            assert_eq!(module.programs()[0].run_raw_with(engine, &mut []).unwrap(), 42, "{engine:?}");
        }
    }
}

#[test]
fn rcu_read_lock_compiles_to_a_call_on_every_architecture() {
    let module = runtime().load(&Object::parse(OBJECT).unwrap()).unwrap();
    for target in Target::ALL {
        let bytes = |name| module.program(name).unwrap().emit(target).unwrap().bytes.len();
        assert!(bytes("brackets") > 0 && bytes("counts") > bytes("brackets"), "{target:?}");
    }
}

#[test]
fn the_run_has_the_virtual_cpu_of_its_section() {
    let (runtime, object) = (runtime(), bytecode("call 8\nexit", Vec::new()));
    let module = runtime.linker(&object).sleepable(true).load().unwrap();
    let run = || {
        let own = runtime.arena().domain().enter_sleepable().unwrap().number();
        for engine in ENGINES {
            assert_eq!(module.programs()[0].run_raw_with(engine, &mut []).unwrap(), u64::from(own));
        }
        own
    };
    let here = run();
    assert_ne!(here, std::thread::scope(|scope| scope.spawn(run).join().unwrap()));
}

#[test]
fn unbalanced_rcu_read_lock_is_refused() {
    let (enter, leave) = (OWN_KFUNC, OWN_KFUNC + 1);
    let twice = format!("call kfunc[{enter}]\ncall kfunc[{enter}]\nr0 = 0\nexit");
    for text in
        [format!("call kfunc[{enter}]\nr0 = 0\nexit"), format!("call kfunc[{leave}]\nr0 = 0\nexit"), twice]
    {
        let object = bytecode(&text, Vec::new());
        let error = runtime().linker(&object).sleepable(true).load().unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
        // The same without a known runtime.
        let options = ProgramOptions { sleepable: true, ..Default::default() };
        assert!(object.verify("program", options).is_err());
    }
}

#[test]
fn other_kernel_functions_are_refused() {
    let behind = OWN_KFUNCS.len() as u32;
    let object = bytecode(&format!("call kfunc[{}]\nr0 = 0\nexit", OWN_KFUNC + behind), Vec::new());
    assert!(runtime().load(&object).is_err());
}

#[test]
fn sleepable_and_other_programs_do_not_call_each_other() {
    let text = "r2 = map[0] ll\nr3 = 0\ncall 12\nr0 = 1\nexit";
    let maps = vec![MapDef::new("programs", MapKind::ProgArray, 4, 4, 2)];
    let load = |sleepable, map: Option<&skep::Module>| {
        let object = bytecode(text, maps.clone());
        let linker = runtime().linker(&object).sleepable(sleepable);
        match map {
            Some(other) => linker.map("programs", other.map("programs").unwrap().clone()).load(),
            None => linker.load(),
        }
    };
    let first = load(true, None).unwrap();
    let error = load(false, Some(&first)).unwrap_err();
    assert!(error.to_string().contains("sleepable"), "{error}");
    load(true, Some(&first)).unwrap();
}

#[test]
fn a_hook_of_sleepable_programs_is_not_in_a_normal_section() {
    let object = Object::parse(OBJECT).unwrap();
    let module = runtime().load(&object).unwrap();
    let hook = runtime().hook();
    let _link = hook.attach(module.program("brackets").unwrap()).unwrap();
    assert!(hook.attach(module.program("plain").unwrap()).is_err());
    let mut seen = Vec::new();
    hook.run_raw(&mut [], |_, result| {
        seen.push(result & 0xff);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, [SLEEPABLE]);
}
