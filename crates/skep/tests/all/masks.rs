//! CPU masks in both engines: programs in C compared with sets of the standard library, what keeps masks, and readers
//! of masks that others release. Checking mode runs the same object (`src/checking.rs`).

use skep::function::Caller;
use skep::{Context, Engine, Error, Map, Module, Object, Policy, Runtime, UpdateFlags};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("../objects/masks/masks.bpf.o");
const SHELVES: u32 = 4;

fn object() -> Object {
    Object::parse(OBJECT).expect("an object")
}

fn runtime(cpus: u32) -> Runtime {
    Runtime::builder().cpus(cpus).function(1000, "interrupt", |_: Caller<'_>| 0).build().expect("a runtime")
}

/// A module in one engine.
#[derive(Clone, Copy)]
struct World<'a>(&'a Module, Engine);

impl World<'_> {
    fn set(self, values: &[(&str, u32)]) {
        let section = self.0.map(".bss").expect("a map");
        let mut bytes = section.lookup(&[0; 4]).expect("a value").expect("a value");
        for (name, value) in values {
            let known = self.0.variables().iter().find(|known| known.name == *name).expect("a variable");
            bytes[known.offset..known.offset + 4].copy_from_slice(&value.to_ne_bytes());
        }
        section.update(&[0; 4], &bytes, UpdateFlags::Any).expect("an update");
    }

    fn found(self) -> u32 {
        let bytes = self.0.variable("found").expect("a variable");
        u32::from_ne_bytes(bytes.try_into().expect("4 bytes"))
    }

    fn run(self, name: &str, values: &[(&str, u32)]) -> i32 {
        self.set(values);
        let program = self.0.program(name).expect("a program");
        program.run_raw_with(self.1, &mut []).expect("a run") as i32
    }
}

/// The same numbers each time.
fn numbers(mut state: u64) -> impl FnMut(u32) -> u32 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    }
}

/// What a function returns of the sets on shelves `a` and `b`; `None` if that is not one number.
fn expected(name: &str, cpus: u32, cpu: u32, [a, b]: [&BTreeSet<u32>; 2]) -> Option<u32> {
    let first = |set: &mut dyn Iterator<Item = u32>| set.next().unwrap_or(cpus);
    Some(match name {
        "first" => first(&mut a.iter().copied()),
        "first_zero" => first(&mut (0..cpus).filter(|cpu| !a.contains(cpu))),
        "first_and" => first(&mut a.intersection(b).copied()),
        "empty" => a.is_empty().into(),
        "full" => (a.len() == cpus as usize).into(),
        "weight" => a.len() as u32,
        "equal" => (a == b).into(),
        "intersects" => (!a.is_disjoint(b)).into(),
        "subset" => a.is_subset(b).into(),
        "test_cpu" => a.contains(&cpu).into(),
        _ => return None,
    })
}

#[test]
fn masks_are_the_standard_librarys_sets() {
    const ASKED: [&str; 12] = [
        "first",
        "first_zero",
        "first_and",
        "empty",
        "full",
        "weight",
        "equal",
        "intersects",
        "subset",
        "test_cpu",
        "any_distribute",
        "any_and_distribute",
    ];
    for (engine, cpus) in
        ENGINES.into_iter().flat_map(|engine| [1, 3, 64, 65, 130].map(|cpus| (engine, cpus)))
    {
        let runtime = runtime(cpus);
        let module = runtime.load(&object()).expect("it loads");
        let (world, mut next) = (World(&module, engine), numbers(cpus.into()));
        let mut sets = vec![BTreeSet::new(); SHELVES as usize];
        for (to, set) in (0..).zip(&mut sets) {
            assert_eq!(world.run("make", &[("to", to), ("cpu", to)]), 1);
            set.extend((to < cpus).then_some(to));
        }
        for turn in 0..2_000 {
            let [to, a, b] = [0; 3].map(|_| next(SHELVES));
            // Some beyond the last CPU.
            let cpu = if turn % 50 == 0 { u32::MAX - next(4) } else { next(cpus + 2) };
            let [one, two] = [a, b].map(|at| sets[at as usize].clone());
            let values = [("to", to), ("a", a), ("b", b), ("cpu", cpu)];
            let (exists, at) = (cpu < cpus, to as usize);
            let run = |name| world.run(name, &values);
            match next(12) {
                0..3 => {
                    assert_eq!(run("set_cpu"), 0);
                    sets[at].extend(exists.then_some(cpu));
                }
                3 => {
                    assert_eq!(run("clear_cpu"), 0);
                    sets[at].remove(&cpu);
                }
                4 => {
                    assert_eq!(run("test_and_set_cpu"), i32::from(one.contains(&cpu)));
                    sets[a as usize].extend(exists.then_some(cpu));
                }
                5 => assert_eq!(run("test_and_clear_cpu"), i32::from(sets[a as usize].remove(&cpu))),
                6 => {
                    assert_eq!(run("and"), i32::from(!one.is_disjoint(&two)));
                    sets[at] = &one & &two;
                }
                7 => {
                    assert_eq!(run("or"), 0);
                    sets[at] = &one | &two;
                }
                8 => {
                    assert_eq!(run("xor"), 0);
                    sets[at] = &one ^ &two;
                }
                9 => {
                    assert_eq!(run("copy"), 0);
                    sets[at] = one;
                }
                10 if turn % 7 == 0 => {
                    assert_eq!(run("setall"), 0);
                    sets[at] = (0..cpus).collect();
                }
                10 => {
                    assert_eq!(run("clear"), 0);
                    sets[at].clear();
                }
                _ => {}
            }
            let sets = [a, b].map(|at| &sets[at as usize]);
            for name in ASKED {
                let found = world.run(name, &values) as u32;
                match expected(name, cpus, cpu, sets) {
                    Some(expected) => assert_eq!(found, expected, "{name} of {sets:?} and {cpu}, {engine:?}"),
                    None => {
                        let other = if name == "any_distribute" { sets[0] } else { sets[1] };
                        let from = sets[0] & other;
                        let fits = from.contains(&found) || (from.is_empty() && found == cpus);
                        assert!(fits, "{name} of {sets:?}: {found}");
                    }
                }
            }
        }
        assert_eq!(runtime.objects(), SHELVES as usize);
        drop(module);
        assert_eq!(runtime.objects(), 0);
    }
}

#[test]
fn any_cpu_of_a_mask_is_found_sooner_or_later() {
    for engine in ENGINES {
        let runtime = runtime(70);
        let module = runtime.load(&object()).expect("it loads");
        let world = World(&module, engine);
        let set: BTreeSet<u32> = [1, 31, 68].into();
        assert_eq!(world.run("make", &[("to", 0), ("cpu", 1)]), 1);
        set.iter().for_each(|cpu| {
            assert_eq!(world.run("test_and_set_cpu", &[("cpu", *cpu)]), i32::from(*cpu == 1))
        });
        let found: BTreeSet<u32> = (0..1_000).map(|_| world.run("any_distribute", &[]) as u32).collect();
        assert_eq!(found, set, "{engine:?}");
    }
}

#[test]
fn whatever_keeps_a_mask_frees_it() {
    for engine in ENGINES {
        let runtime = runtime(4);
        let module = runtime.load(&object()).expect("it loads");
        let world = World(&module, engine);
        assert_eq!(world.run("take", &[("to", 2)]), 1, "nothing is there");
        assert_eq!([1, 2, 2].map(|_| world.run("make", &[("to", 2)])), [1, 2, 2]);
        assert_eq!(runtime.objects(), 1, "the older ones are released");
        assert_eq!([1, 2].map(|_| world.run("share", &[("a", 2), ("to", 3)])), [1, 2]);
        assert_eq!(runtime.objects(), 1, "it is on two shelves");
        assert_eq!(world.run("test_and_set_cpu", &[("a", 2), ("cpu", 3)]), 0);
        assert_eq!(world.run("test_cpu", &[("a", 3), ("cpu", 3)]), 1);
        assert_eq!(world.run("take", &[("to", 2)]), 2);
        assert_eq!((runtime.objects(), world.run("test_cpu", &[("a", 3)])), (1, 1), "{engine:?}");
        assert_eq!(world.run("take", &[("to", 3)]), 2);
        assert_eq!(runtime.objects(), 0);

        let drawers = Arc::clone(module.map("drawers").expect("a map"));
        assert_eq!(world.run("file", &[("to", 7)]), 1);
        assert_eq!(
            (world.run("file", &[("to", 7)]), runtime.objects()),
            (1, 1),
            "an update frees the old one"
        );
        drawers.delete(&7u32.to_ne_bytes()).expect("it is there");
        assert_eq!(runtime.objects(), 0, "deleted");
        assert_eq!(world.run("file", &[("to", 8)]), 1);
        let shelves: Arc<Map> = Arc::clone(module.map("shelves").expect("a map"));
        assert_eq!(world.run("make", &[("to", 0)]), 1);
        shelves.update(&[0; 4], &[0; 8], UpdateFlags::Any).expect("an update");
        assert_eq!(runtime.objects(), 1, "the host overwrote the one on the shelf");

        assert_eq!(world.run("in_a_box", &[]), 1);
        assert_eq!(runtime.objects(), 1, "{engine:?}: a dropped object takes its mask along");
        assert_eq!([1, 2, 3].map(|_| world.run("beside_globals", &[])), [1, 2, 3]);
        assert_eq!(runtime.objects(), 3);
        drop((drawers, shelves, module));
        assert_eq!(runtime.objects(), 0, "{engine:?}");
    }
}

thread_local! {
    /// What the host does in the middle of a run.
    static MEANWHILE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Another thread releases the mask that a run has found, and makes as many others as the memory takes.
#[test]
fn a_mask_that_was_found_stays_what_it_is() {
    for (policy, engine) in [Policy::None, Policy::FreeAfterGp, Policy::default()]
        .into_iter()
        .flat_map(|p| ENGINES.map(|e| (p, e)))
    {
        let interrupt = |_: Caller<'_>| {
            MEANWHILE.with_borrow(|meanwhile| meanwhile.as_ref().expect("it is set")());
            0
        };
        let runtime = Runtime::builder().cpus(8).policy(policy).function(1000, "interrupt", interrupt);
        let runtime = runtime.build().expect("a runtime");
        let module = runtime.load(&object()).expect("it loads");
        let other = module.clone();
        MEANWHILE.set(Some(Box::new(move || {
            let other = &other;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let world = World(other, engine);
                    assert_eq!(world.run("take", &[("to", 1)]), 2);
                    for round in 0..400 {
                        assert_ne!(world.run("make", &[("to", round % 2), ("cpu", 7)]), 0);
                    }
                    assert_eq!(world.run("take", &[("to", 1)]), 2);
                });
            });
        })));
        let world = World(&module, engine);
        assert_eq!(world.run("make", &[("to", 1), ("cpu", 5)]), 1);
        assert_eq!((world.run("read_through", &[("a", 1)]), world.found()), (5, 5), "{policy:?}, {engine:?}");

        assert_eq!(world.run("make", &[("to", 1), ("cpu", 3)]), 1);
        world.set(&[("found", 0)]);
        let program = module.program("read_in_section").expect("a program");
        let mut context = Context::of(program).expect("a context");
        let before = program.run_context_with(engine, &mut context).expect("a run");
        assert_eq!((before, world.found()), (3, 3), "{policy:?}, {engine:?}");
        MEANWHILE.take();
    }
}

#[test]
fn threads_share_masks_and_nothing_is_lost() {
    for engine in ENGINES {
        let runtime = runtime(8);
        let module = runtime.load(&object()).expect("it loads");
        World(&module, engine).set(&[("to", 1), ("a", 0), ("b", 1), ("cpu", 2)]);
        std::thread::scope(|scope| {
            for name in ["make", "take", "share", "set_cpu", "and", "weight"] {
                let program = module.program(name).expect("a program");
                scope.spawn(move || {
                    for _ in 0..3_000 {
                        program.run_raw_with(engine, &mut []).expect("a run");
                    }
                });
            }
        });
        assert!(runtime.objects() <= 2, "{}", runtime.objects());
        drop(module);
        assert_eq!(runtime.objects(), 0, "{engine:?}");
    }
}

/// With a kernel's types, `struct bpf_cpumask` is that of the runtime all the same.
#[test]
fn the_types_of_a_kernel_change_nothing() {
    let types = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../skep-verifier/verdicts/linux.btf");
    let types = skep::Btf::parse(std::fs::read(types).expect("the file")).expect("types");
    let mut object = object();
    object.set_host_types(Arc::new(types));
    let runtime = runtime(4);
    let module = runtime.load(&object).expect("it loads");
    let world = World(&module, Engine::Jit);
    assert_eq!((world.run("make", &[("cpu", 2)]), world.run("first", &[])), (1, 2));
    assert_eq!(world.run("in_a_box", &[]), 1);
}

#[test]
fn a_map_of_masks_takes_no_program_that_has_something_else_there() {
    let runtime = runtime(4);
    let module = runtime.load(&object()).expect("it loads");
    assert_eq!(World(&module, Engine::Jit).run("make", &[("to", 0)]), 1);
    let shelves = Arc::clone(module.map("shelves").expect("a map"));
    let strangers = Object::parse(include_bytes!("../objects/masks/strangers.bpf.o")).expect("an object");
    let error = runtime.linker(&strangers).map("shelves", Arc::clone(&shelves)).load().unwrap_err();
    assert!(matches!(error, Error::MapMismatch { field: "special fields", .. }), "{error}");
    // What its objects lead to is compared as well.
    assert_eq!(World(&module, Engine::Jit).run("rack", &[]), 1);
    let racks = Arc::clone(module.map("racks").expect("a map"));
    let error = runtime.linker(&strangers).map("racks", racks).load().unwrap_err();
    assert!(error.to_string().contains("the layout of the objects in it"), "{error}");
    runtime.load(&strangers).expect("with maps of its own it loads");
    // Masks of another runtime have other bits.
    let other = Runtime::builder().cpus(100).function(1000, "interrupt", |_: Caller<'_>| 0).build().unwrap();
    let error = other.linker(&object()).map("shelves", shelves).load().unwrap_err();
    assert!(matches!(error, Error::OtherRuntime { .. }), "{error}");
}
