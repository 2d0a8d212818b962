//! Arenas in C: a tree that programs build and the host walks by the same pointers, in both engines.

use std::collections::BTreeMap;

use skep::{Arena, Context, Engine, Module, Object, Packet, Runtime};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("../objects/arenas/tree.bpf.o");

const XDP_ABORTED: u64 = 0;
const XDP_DROP: u64 = 1;
const XDP_PASS: u64 = 2;
const XDP_TX: u64 = 3;

fn load(step: Option<u64>) -> Module {
    let object = Object::parse(OBJECT).unwrap();
    let runtime = Runtime::new().unwrap();
    let linker = runtime.linker(&object);
    match step {
        Some(step) => linker.variable("step", &step.to_ne_bytes()).load().unwrap(),
        None => linker.load().unwrap(),
    }
}

fn call(module: &Module, name: &str, engine: Engine) -> u64 {
    let program = module.program(name).unwrap();
    program.run_context_with(engine, &mut Context::of(program).unwrap()).unwrap()
}

fn add(module: &Module, key: u64, engine: Engine) -> u64 {
    module.program("add").unwrap().run_with(engine, &mut Packet::new(&key.to_ne_bytes())).unwrap()
}

fn arena(module: &Module) -> Arena<'_> {
    module.map("heap").unwrap().arena().unwrap()
}

fn word(arena: Arena<'_>, address: u64) -> u64 {
    let mut bytes = [0; 8];
    arena.read(address, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

fn number(module: &Module, name: &str) -> u64 {
    u64::from_ne_bytes(module.variable(name).unwrap().try_into().unwrap())
}

/// The keys below a node in order, each with its count.
fn walk(arena: Arena<'_>, node: u64, found: &mut Vec<(u64, u64)>) {
    if node == 0 {
        return;
    }
    let [smaller, larger, key, count] = [0, 8, 16, 24].map(|offset| word(arena, node + offset));
    walk(arena, smaller, found);
    found.push((key, count));
    walk(arena, larger, found);
}

#[test]
fn the_host_follows_the_pointers_that_programs_store() {
    for engine in ENGINES {
        let module = load(None);
        assert_eq!(add(&module, 1, engine), XDP_DROP, "there are no nodes yet");
        assert_eq!(number(&module, "refused"), 1);
        assert_eq!([call(&module, "grow", engine), call(&module, "grow", engine)], [0, 0]);
        let (mut model, mut random) = (BTreeMap::new(), 1_u64);
        for _ in 0..2000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = (random >> 33) % 200;
            let count = model.entry(key + 7).or_insert(0);
            *count += 1;
            let expected = if *count == 1 { XDP_TX } else { XDP_PASS };
            assert_eq!(add(&module, key, engine), expected, "{key}");
        }
        let mut found = Vec::new();
        walk(arena(&module), number(&module, "root"), &mut found);
        assert_eq!(found, model.into_iter().collect::<Vec<_>>(), "{engine:?}");
        assert_eq!(number(&module, "nodes"), found.len() as u64);
        let program = module.program("add").unwrap();
        assert_eq!(program.run_with(engine, &mut Packet::new(&[1; 7])).unwrap(), XDP_ABORTED);
    }
}

#[test]
fn variables_in_an_arena_have_their_values_and_pages_from_the_start() {
    let module = load(None);
    assert_eq!(number(&module, "step"), 7);
    assert_eq!(arena(&module).pages(), 1, "those of the variables");
    let module = load(Some(1 << 40));
    assert_eq!(number(&module, "step"), 1 << 40);
    let step = module.variables().iter().find(|variable| variable.name == "step").unwrap();
    let address = arena(&module).start() + step.offset as u64;
    for engine in ENGINES {
        arena(&module).write(address, &5u64.to_ne_bytes()).unwrap();
        call(&module, "grow", engine);
        add(&module, 3, engine);
        assert_eq!(word(arena(&module), number(&module, "root") + 16), 8, "what the host wrote");
    }
}

#[test]
fn pointers_into_freed_pages_lead_to_zeroes() {
    for engine in ENGINES {
        let module = load(None);
        call(&module, "grow", engine);
        assert_eq!(add(&module, 1, engine), XDP_TX);
        let root = number(&module, "root");
        assert_eq!(call(&module, "shrink", engine), 0);
        // The root leads to a node with the key 0 and no children, which cannot be changed.
        assert_eq!(word(arena(&module), root + 16), 0);
        assert_eq!(add(&module, 1, engine), XDP_TX, "it seems to be added");
        assert_eq!((0..4).map(|i| word(arena(&module), root + 8 * i)).sum::<u64>(), 0, "{engine:?}");
        assert_eq!(number(&module, "root"), root);
    }
}

#[test]
fn an_exhausted_arena_gives_null_until_pages_are_freed() {
    for engine in ENGINES {
        let module = load(None);
        // One page has the variables.
        assert!((0..15).all(|_| call(&module, "grow", engine) == 0));
        assert_eq!(call(&module, "grow", engine), 1);
        assert_eq!(arena(&module).pages(), 16);
        call(&module, "shrink", engine);
        assert_eq!(call(&module, "grow", engine), 0);
    }
}

#[test]
fn threads_that_allocate_free_and_follow_stale_pointers_do_no_harm() {
    let module = load(None);
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let module = &module;
            scope.spawn(move || {
                for turn in 0..300 {
                    match (turn + number) % 5 {
                        0 => call(module, "grow", Engine::Jit),
                        1 => call(module, "shrink", ENGINES[(turn % 2) as usize]),
                        _ => add(module, turn * number, ENGINES[(number % 2) as usize]),
                    };
                }
            });
        }
    });
    assert!(arena(&module).pages() <= 16);
    assert!(arena(&module).is_there(arena(&module).start()), "the variables are still there");
}
