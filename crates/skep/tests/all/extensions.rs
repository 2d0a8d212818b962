//! Extensions, which take the place of functions of loaded programs, and programs that watch functions, in both
//! engines.

use skep::{Attachment, Engine, Error, Module, Object, Packet, Program, Runtime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const CHAIN: &[u8] = include_bytes!("../objects/extensions/chain.bpf.o");
const PARTS: &[u8] = include_bytes!("../objects/extensions/parts.bpf.o");

const DROP: u64 = 1;
const PASS: u64 = 2;
const TX: u64 = 3;

fn chain(runtime: &Runtime) -> Module {
    runtime.linker(&Object::parse(CHAIN).unwrap()).patchable(true).load().unwrap()
}

/// A program of the other object, for a function of this program.
fn part(runtime: &Runtime, name: &str, target: &Program, function: &str) -> Result<Module, Error> {
    let object = Object::parse(PARTS).unwrap();
    runtime.linker(&object).only(name).patchable(true).target(name, target.function(function)?).load()
}

fn run(program: &Program, engine: Engine) -> u64 {
    program.run_with(engine, &mut Packet::new(&[0; 64])).unwrap()
}

fn number(module: &Module, variable: &str) -> u64 {
    u64::from_ne_bytes(module.variable(variable).unwrap().try_into().unwrap())
}

/// A loaded part, attached.
fn attached(runtime: &Runtime, name: &str, target: &Program, function: &str) -> (Module, Attachment) {
    let module = part(runtime, name, target, function).unwrap();
    let attachment = target.attach(function, &module.programs()[0]).unwrap();
    (module, attachment)
}

#[test]
fn an_extension_runs_in_the_place_of_a_function_until_it_is_detached() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let (chain, adds) = (module.program("chain").unwrap(), module.program("adds").unwrap());
    for engine in ENGINES {
        let firsts = number(&module, "firsts");
        assert_eq!(run(chain, engine), PASS, "{engine:?}");
        assert_eq!(number(&module, "firsts"), firsts + 1);

        let (_drops, drops) = attached(&runtime, "drops", chain, "first");
        assert_eq!(run(chain, engine), DROP, "{engine:?}");
        assert_eq!(number(&module, "firsts"), firsts + 1);
        drop(drops);
        assert_eq!(run(chain, engine), PASS, "{engine:?}");

        // Helpers, maps, functions and the stack.
        let (parts, counts) = attached(&runtime, "counts_and_passes", chain, "first");
        assert_eq!((run(chain, engine), run(chain, engine)), (PASS, PASS), "{engine:?}");
        let count = parts.map("counts").unwrap().lookup(&0u32.to_ne_bytes()).unwrap().unwrap();
        assert_eq!(count, 2u64.to_ne_bytes(), "{engine:?}");
        drop(counts);

        // All five registers, and memory of the caller, which sees what was written.
        assert_eq!(run(adds, engine), 65_433, "{engine:?}");
        let (_product, product) = attached(&runtime, "product", adds, "sum");
        assert_eq!(run(adds, engine), 2 * 400 * 5000 + 1, "{engine:?}");
        drop(product);
        assert_eq!(run(adds, engine), 65_433, "{engine:?}");

        // The program itself.
        let (_drops, drops) = attached(&runtime, "drops", chain, "chain");
        assert_eq!(run(chain, engine), DROP, "{engine:?}");
        drop(drops);
        assert_eq!(run(chain, engine), PASS, "{engine:?}");
    }
}

#[test]
fn a_program_that_watches_sees_arguments_and_the_result() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let (chain, adds) = (module.program("chain").unwrap(), module.program("adds").unwrap());
    for engine in ENGINES {
        let (before, entry) = attached(&runtime, "sees_arguments", adds, "sum");
        let (after, exit) = attached(&runtime, "sees_result", adds, "sum");
        assert_eq!(run(adds, engine), 65_433, "{engine:?}");
        assert_eq!((number(&before, "entries"), number(&after, "exits")), (1, 1));
        assert_eq!(number(&after, "result"), 65_433, "{engine:?}");
        let arguments: Vec<_> = before.variable("arguments").unwrap().chunks(8).map(|word| word[0]).collect();
        assert_eq!(arguments, [1, 2, 1, 1, 0x60], "{engine:?}");
        drop(entry);
        assert_eq!(run(adds, engine), 65_433);
        assert_eq!((number(&before, "entries"), number(&after, "exits")), (1, 2));
        drop(exit);
        assert_eq!(run(adds, engine), 65_433);
        assert_eq!((number(&before, "entries"), number(&after, "exits")), (1, 2));

        // Around the program itself, and around an extension, whose result it sees.
        let (before, _entry) = attached(&runtime, "enters", chain, "chain");
        let (drops, _drops) = attached(&runtime, "drops", chain, "first");
        let (after, _exit) = attached(&runtime, "returns", &drops.programs()[0], "drops");
        assert_eq!(run(chain, engine), DROP, "{engine:?}");
        assert_eq!((number(&before, "entries"), number(&after, "exits")), (1, 1), "{engine:?}");
        assert_eq!(number(&after, "result"), DROP);
    }
}

#[test]
fn a_watched_function_may_leave_by_a_tail_call() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let (chain, leaves) = (module.program("chain").unwrap(), module.program("leaves").unwrap());
    let next = module.program_array("next").unwrap();
    for engine in ENGINES {
        let (after, _exit) = attached(&runtime, "returns", leaves, "leaves");
        let (own, _own) = attached(&runtime, "returns", chain, "chain");
        next.remove(0).unwrap();
        assert_eq!(run(leaves, engine), TX, "{engine:?}");
        assert_eq!((number(&after, "exits"), number(&own, "exits")), (1, 0));
        next.set(0, chain).unwrap();
        assert_eq!(run(leaves, engine), PASS, "{engine:?}");
        // A tail call enters the other program behind its beginning.
        assert_eq!((number(&after, "exits"), number(&own, "exits")), (2, 0), "{engine:?}");
        assert_eq!(number(&after, "result"), PASS);
        // To itself: the last of 33 tail calls falls through.
        next.set(0, leaves).unwrap();
        assert_eq!(run(leaves, engine), TX, "{engine:?}");
        assert_eq!(number(&after, "exits"), 3, "{engine:?}");
        drop(_own);
    }
}

#[test]
fn an_extension_leaves_by_a_tail_call() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let program = |name: &str| module.program(name).unwrap();
    let (adds, leaves) = (program("adds"), program("leaves"));
    for engine in ENGINES {
        // A function of a program that makes no tail calls itself, and a program that does.
        for (target, function, own) in [(adds, "moves", 0), (leaves, "leaves", TX)] {
            let (parts, _extension) = attached(&runtime, "tail_calls", target, function);
            let after = parts.program_array("after").unwrap();
            assert_eq!(run(target, engine), own, "{engine:?}");
            after.set(0, program("chain")).unwrap();
            let firsts = number(&module, "firsts");
            assert_eq!(run(target, engine), if own == TX { PASS } else { 0 }, "{engine:?}");
            assert_eq!(number(&module, "firsts"), firsts + 1, "{engine:?}");
            // 33 tail calls of the program that the extension leads to, less its own.
            let next = module.program_array("next").unwrap();
            after.set(0, program("turns")).unwrap();
            next.set(1, program("turns")).unwrap();
            let turns = number(&module, "turned");
            run(target, engine);
            assert_eq!(number(&module, "turned") - turns, 33, "{engine:?}");
            next.remove(1).unwrap();
        }
    }
}

#[test]
fn a_program_in_an_array_is_not_extended_and_an_extended_one_is_put_into_none() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let chain = module.program("chain").unwrap();
    let next = module.program_array("next").unwrap();
    let drops = part(&runtime, "drops", chain, "first").unwrap().programs()[0].clone();
    next.set(0, chain).unwrap();
    next.set(1, chain).unwrap();
    next.remove(0).unwrap();
    assert!(matches!(chain.attach("first", &drops), Err(Error::TailCallee { .. })));
    next.remove(1).unwrap();
    let attachment = chain.attach("first", &drops).unwrap();
    assert!(matches!(next.set(0, chain), Err(Error::TailCallee { .. })));
    assert!(matches!(chain.attach("first", &drops), Err(Error::TargetTaken { .. })));
    drop(attachment);
    next.set(0, chain).unwrap();
    // The extension itself is put into no array.
    assert!(matches!(next.set(1, &drops), Err(Error::WrongProgram { .. })));
}

#[test]
fn programs_that_do_not_fit_a_function_are_refused_with_the_reason() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let program = |name: &str| module.program(name).unwrap();
    let (chain, adds) = (program("chain"), program("adds"));
    for (name, target, function, why) in [
        ("fewer", adds, "sum", "fewer has 4 arguments, but sum has 5"),
        ("wider", adds, "sum", "argument 1 of wider has another type"),
        ("otherwise", adds, "sum", "argument 3 of otherwise has another type"),
        ("nothing", chain, "first", "return different types"),
        ("of_skb", chain, "first", "argument 1 of of_skb has another type"),
        ("drops", adds, "sum", "drops has 1 argument"),
        ("drops", chain, "hidden", "static"),
        ("writes", adds, "reads", "argument 1 of writes promises more"),
        ("drops", chain, "none", "the program has the functions chain, first, second, hidden"),
        ("moves_head", chain, "first", "may move the packet"),
        ("tail_calls", program("loops"), "first", "called by a callback"),
        ("tail_calls", chain, "first", "may move the packet"),
        ("beyond", chain, "first", "first of chain"),
        ("follows", chain, "first", "found"),
        // A context of another type.
        ("drops", program("classifies"), "classifies", "another type"),
    ] {
        let error = part(&runtime, name, target, function).unwrap_err();
        let mut text = error.to_string();
        if let Error::Refused(refusal) = &error {
            text = format!("{text} {refusal:?}");
        }
        assert!(text.contains(why), "{name} for {function}: {text}");
    }
    // What only reads may get constants.
    let reads = part(&runtime, "reads_too", adds, "reads").unwrap().programs()[0].clone();
    let reads = adds.attach("reads", &reads).unwrap();
    assert_eq!(run(adds, Engine::Jit), 65_433);
    drop(reads);
    // Where callers expect it, and in callbacks what makes no tail call.
    part(&runtime, "moves_head", adds, "moves").unwrap();
    part(&runtime, "moves_head", chain, "chain").unwrap();
    part(&runtime, "counts_and_passes", program("loops"), "first").unwrap();
}

#[test]
fn an_attachment_checks_the_function_again() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let program = |name: &str| module.program(name).unwrap();
    let (chain, adds, loops) = (program("chain"), program("adds"), program("loops"));
    let load = |name: &str, target: &Program, function: &str| {
        part(&runtime, name, target, function).unwrap().programs()[0].clone()
    };
    let drops = load("drops", chain, "first");
    let product = load("product", adds, "sum");
    // Another function of the same prototype, of this program or of another one.
    drop(chain.attach("second", &drops).unwrap());
    drop(loops.attach("first", &drops).unwrap());
    let refused = |target: &Program, function: &str, part: &Program, why: &str| {
        let error = target.attach(function, part).unwrap_err().to_string();
        assert!(error.contains(why), "{function}: {error}");
    };
    refused(chain, "first", &product, "product has 5 arguments");
    refused(adds, "sum", &drops, "drops has 1 argument");
    refused(chain, "hidden", &drops, "static");
    refused(program("classifies"), "classifies", &drops, "of type");
    refused(loops, "first", &load("tail_calls", chain, "chain"), "called by a callback");
    refused(chain, "first", &load("moves_head", adds, "moves"), "may move the packet");
    refused(chain, "first", chain, "was not loaded to replace");
    refused(chain, "first", &load("sees_result", adds, "sum"), "other arguments");
    // One at a time, and an extension of an extension never.
    let held = chain.attach("first", &drops).unwrap();
    refused(chain, "first", &drops, "already");
    refused(chain, "first", &load("enters", chain, "first"), "already");
    refused(&drops, "drops", &load("counts_and_passes", chain, "first"), "an extension itself");
    let other = chain.attach("second", &drops).unwrap();
    drop(held);
    let watch = chain.attach("first", &load("enters", chain, "first")).unwrap();
    refused(chain, "first", &drops, "already");
    drop((watch, other));
    drop(chain.attach("first", &drops).unwrap());
    // Programs that were loaded without it, and those of another runtime.
    let fixed = runtime.load(&Object::parse(CHAIN).unwrap()).unwrap();
    refused(fixed.program("chain").unwrap(), "first", &drops, "Linker::patchable");
    let foreign = Runtime::new().unwrap();
    let module = self::chain(&foreign);
    let error = module.program("chain").unwrap().attach("first", &drops).unwrap_err();
    assert!(matches!(error, Error::ForeignProgram { .. }), "{error}");
}

#[test]
fn no_host_runs_a_program_that_belongs_inside_of_another() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let (chain, adds) = (module.program("chain").unwrap(), module.program("adds").unwrap());
    let mut packet = Packet::new(&[0; 64]);
    for (name, target, function) in
        [("drops", chain, "first"), ("product", adds, "sum"), ("enters", chain, "first")]
    {
        let part = part(&runtime, name, target, function).unwrap().programs()[0].clone();
        assert!(matches!(part.run(&mut packet), Err(Error::WrongInput { .. })), "{name}");
        assert!(matches!(part.run_raw(&mut [0; 8]), Err(Error::WrongInput { .. })), "{name}");
        assert!(matches!(runtime.hook().attach(&part), Err(Error::WrongAttachment { .. })), "{name}");
    }
    let next = module.program_array("next").unwrap();
    let product = part(&runtime, "product", adds, "sum").unwrap().programs()[0].clone();
    let error = next.set(0, &product).unwrap_err();
    assert!(matches!(error, Error::WrongProgram { .. }), "{error}");
    let enters = part(&runtime, "enters", chain, "first").unwrap().programs()[0].clone();
    assert!(matches!(next.set(0, &enters), Err(Error::WrongProgram { .. })));
}

#[test]
fn an_attachment_outlives_the_hosts_handles_of_both_programs() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let (parts, attachment) = attached(&runtime, "drops", module.program("chain").unwrap(), "first");
    drop((module, parts));
    runtime.synchronize().unwrap();
    for engine in ENGINES {
        assert_eq!(run(attachment.target(), engine), DROP, "{engine:?}");
    }
    let target = attachment.target().clone();
    drop(attachment);
    assert_eq!(run(&target, Engine::Jit), PASS);
}

/// Ends the other threads.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn functions_are_replaced_and_watched_while_other_threads_run_them() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let [chain, leaves, adds] = ["chain", "leaves", "adds"].map(|name| module.program(name).unwrap());
    module.program_array("next").unwrap().set(0, module.program("turns").unwrap()).unwrap();
    let (stop, runs) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = if std::env::var_os("SKEP_EMULATED").is_some() { 10 } else { 100 };
    std::thread::scope(|scope| {
        for at in 0..3 {
            let (stop, runs) = (&stop, &runs);
            scope.spawn(move || {
                let engine = ENGINES[usize::from(at == 2)];
                let mut packet = Packet::new(&[0; 64]);
                while !stop.load(Ordering::Relaxed) {
                    for program in [chain, leaves, adds] {
                        let result = program.run_with(engine, &mut packet).unwrap();
                        assert!([DROP, PASS, TX, 65_433, 4_000_001].contains(&result), "{result}");
                    }
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Also if this thread panics.
        let _stop = Stop(&stop);
        for round in 0..rounds {
            for (name, target, function) in [
                ("drops", chain, "first"),
                ("tail_calls", leaves, "leaves"),
                ("product", adds, "sum"),
                ("enters", chain, "first"),
                ("returns", leaves, "leaves"),
            ] {
                let (module, attachment) = attached(&runtime, name, target, function);
                if round % 3 == 0 {
                    std::thread::yield_now();
                }
                // The part is dropped while runs are in it.
                drop(module);
                drop(attachment);
            }
        }
    });
    assert!(runs.into_inner() > 0);
    assert_eq!(run(chain, Engine::Jit), PASS);
}

#[test]
fn attaching_a_thousand_times_leaves_no_code_behind() {
    let runtime = Runtime::new().unwrap();
    let module = chain(&runtime);
    let (chain, adds) = (module.program("chain").unwrap(), module.program("adds").unwrap());
    let drops = part(&runtime, "drops", chain, "first").unwrap().programs()[0].clone();
    let enters = part(&runtime, "sees_arguments", adds, "sum").unwrap().programs()[0].clone();
    let used = || {
        runtime.synchronize().unwrap();
        runtime.occupancy().used_bytes
    };
    drop((chain.attach("first", &drops).unwrap(), adds.attach("sum", &enters).unwrap()));
    let before = used();
    for _ in 0..1000 {
        drop((chain.attach("first", &drops).unwrap(), adds.attach("sum", &enters).unwrap()));
    }
    // Stubs that are still waited for are not left behind.
    assert!((0..100).any(|_| used() <= before), "{} bytes are used, {before} were", used());
}
