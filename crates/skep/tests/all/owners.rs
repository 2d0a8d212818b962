//! Objects that programs allocate, in both engines: programs in C compared with the standard library's collections, and
//! what is left when their maps are gone. Checking mode runs the same object (`src/checking.rs`).

use skep::{Engine, Map, Module, Object, Packet, Runtime, UpdateFlags};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("../objects/owners/owners.bpf.o");

fn runtime() -> Runtime {
    Runtime::builder().cpus(4).build().expect("a runtime")
}

fn load(runtime: &Runtime) -> Module {
    let object = Object::parse(OBJECT).expect("an object");
    runtime.load(&object).expect("it loads")
}

/// A module in one engine.
struct World<'a>(&'a Module, Engine);

impl World<'_> {
    fn set(&self, name: &str, value: u64) {
        let known = self.0.variables().iter().find(|known| known.name == name).expect("a variable");
        let section = self.0.map(".bss").expect("a map");
        let mut bytes = section.lookup(&[0; 4]).expect("a value").expect("a value");
        bytes[known.offset..known.offset + 8].copy_from_slice(&value.to_ne_bytes());
        section.update(&[0; 4], &bytes, UpdateFlags::Any).expect("an update");
    }

    fn get(&self, name: &str) -> u64 {
        let bytes = self.0.variable(name).expect("a variable");
        u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
    }

    fn error(&self) -> i32 {
        let bytes = self.0.variable("error").expect("a variable");
        i32::from_ne_bytes(bytes.try_into().expect("4 bytes"))
    }

    /// Runs a program with that key; returns what it returns.
    fn run(&self, name: &str, key: u64) -> u64 {
        self.set("key", key);
        let program = self.0.program(name).expect("a program");
        program.run_with(self.1, &mut Packet::new(&[0; 64])).expect("a run")
    }

    /// The same, for one that finds something: `found`, after a check of `other`.
    fn take(&self, name: &str) -> Option<u64> {
        (self.run(name, 0) == 1).then(|| {
            let found = self.get("found");
            assert_eq!(self.get("other"), 2 * found, "{name}");
            found
        })
    }
}

/// The same numbers each time.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn lists_and_trees_of_programs_are_the_standard_librarys() {
    for engine in ENGINES {
        let runtime = runtime();
        let module = load(&runtime);
        let (world, mut next) = (World(&module, engine), numbers(11));
        let (mut list, mut tree, mut turn) = (VecDeque::new(), BTreeSet::new(), 0u64);
        for _ in 0..1_500 {
            turn += 1;
            match next(7) {
                0 => {
                    assert_eq!(world.run("push_front", turn), 1);
                    list.push_front(turn);
                }
                1 => {
                    assert_eq!(world.run("push_back", turn), 1);
                    list.push_back(turn);
                }
                2 => assert_eq!(world.take("pop_front"), list.pop_front(), "{engine:?}"),
                3 => assert_eq!(world.take("pop_back"), list.pop_back(), "{engine:?}"),
                4 => {
                    let key = next(1 << 20) << 32 | turn;
                    assert_eq!(world.run("add", key), 1);
                    tree.insert(key);
                }
                5 => assert_eq!(world.take("take_least"), tree.pop_first(), "{engine:?}"),
                _ => {
                    let key = next(1 << 20) << 32 | turn;
                    assert_eq!(world.run("add_to_both", key), 1);
                    assert_eq!(world.error(), -22, "it is in the list already");
                    list.push_back(key);
                    tree.insert(key);
                }
            }
            assert!(world.error() == 0 || world.error() == -22);
        }
        let shared = list.iter().filter(|key| tree.contains(key)).count();
        assert!(shared > 0);
        assert_eq!(runtime.objects(), list.len() + tree.len() - shared, "{engine:?}");
        drop(module);
        assert_eq!(runtime.objects(), 0, "{engine:?}");
    }
}

#[test]
fn a_tree_in_one_run_is_ordered() {
    for engine in ENGINES {
        let runtime = runtime();
        let module = load(&runtime);
        let world = World(&module, engine);
        for seed in 0..20 {
            assert_eq!((world.run("sorts", seed), world.get("found")), (1, 40), "{engine:?}");
        }
        assert_eq!(runtime.objects(), 0);
    }
}

#[test]
fn kept_pointers_are_exchanged_and_read() {
    for engine in ENGINES {
        let runtime = runtime();
        let module = load(&runtime);
        let world = World(&module, engine);
        let shelves = Arc::clone(module.map("shelves").expect("a map"));
        shelves.update(&3u32.to_ne_bytes(), &vec![0; shelves.host_value_size()], UpdateFlags::Any).unwrap();
        assert_eq!(world.run("look", 3), 0, "nothing is kept");
        for (round, first) in [(1, 70), (2, 80), (3, 90)] {
            world.set("other", first + 1);
            assert_eq!(world.run("keep", 3), 1);
            world.set("other", 0);
            assert_eq!(world.run("look", 3), 1);
            assert_eq!((world.get("found"), world.get("other")), (3, first + 1), "{engine:?}");
            assert_eq!(runtime.objects(), round, "each keeps the one before it");
        }
        drop(shelves);
        drop(module);
        assert_eq!(runtime.objects(), 0, "{engine:?}");
    }
}

#[test]
fn an_object_per_cpu_counts_on_each() {
    for engine in ENGINES {
        let runtime = runtime();
        let module = load(&runtime);
        let shelves = Arc::clone(module.map("shelves").expect("a map"));
        shelves.update(&5u32.to_ne_bytes(), &vec![0; shelves.host_value_size()], UpdateFlags::Any).unwrap();
        let world = World(&module, engine);
        for round in 1..=3 {
            assert_eq!(world.run("count", 5), 1);
            let counted = (world.get("found"), world.get("other"), world.error());
            assert_eq!(counted, (round, 5 * round, 4), "CPUs 4 to 7 do not exist");
        }
        assert_eq!(runtime.objects(), 1);
        shelves.delete(&5u32.to_ne_bytes()).unwrap();
        assert_eq!(runtime.objects(), 0);
    }
}

#[test]
fn lists_stand_beside_global_variables() {
    for engine in ENGINES {
        let runtime = runtime();
        let module = load(&runtime);
        let world = World(&module, engine);
        let mut model = VecDeque::new();
        for key in 1..100 {
            model.push_back(key);
            match world.run("beside_globals", key) {
                1 => assert_eq!((key % 3, Some(world.get("found"))), (0, model.pop_front())),
                result => assert_eq!(result, 2),
            }
        }
        assert_eq!(runtime.objects(), model.len());
        drop(module);
        assert_eq!(runtime.objects(), 0);
    }
}

/// What the host or the map itself does to elements frees what they own, whatever they own, at once.
#[test]
fn elements_free_what_they_own_when_they_go() {
    for engine in ENGINES {
        let runtime = runtime();
        let module = load(&runtime);
        let world = World(&module, engine);
        let shelves = Arc::clone(module.map("shelves").expect("a map"));
        let empty = vec![0; shelves.host_value_size()];
        let key = 1u32.to_ne_bytes();
        let fill = || {
            shelves.update(&key, &empty, UpdateFlags::Any).unwrap();
            assert_eq!((world.run("grow", 1), world.run("grow", 1), world.run("keep", 1)), (1, 1, 1));
            // Two branches with two leaves each, and a note.
            assert_eq!(runtime.objects(), 7);
        };
        fill();
        shelves.delete(&key).unwrap();
        assert_eq!(runtime.objects(), 0, "deleted");
        fill();
        shelves.update(&key, &empty, UpdateFlags::Any).unwrap();
        assert_eq!(runtime.objects(), 0, "replaced");
        fill();
        shelves.update(&key, &empty, UpdateFlags::Any.locked()).unwrap();
        assert_eq!(runtime.objects(), 7, "written in place under the lock, as in Linux");
        assert!(shelves.lookup_and_delete(&key).unwrap().is_some());
        assert_eq!(runtime.objects(), 0, "taken");

        let stores = Arc::clone(module.map("stores").expect("a map"));
        (0..5).for_each(|key| assert_eq!(world.run("add_to_both", key), 1));
        assert_eq!(runtime.objects(), 5);
        stores.update(&0u32.to_ne_bytes(), &vec![0; stores.host_value_size()], UpdateFlags::Any).unwrap();
        assert_eq!(runtime.objects(), 0, "an array's value was overwritten");

        for key in 0..200 {
            world.run("file", key);
        }
        assert!(runtime.objects() <= 8 + 2, "{} drawers and desks have notes", runtime.objects());
        fill_and_drop(runtime, module, engine);
    }
}

/// Maps that outlive their programs and their runtime.
fn fill_and_drop(runtime: Runtime, module: Module, engine: Engine) {
    World(&module, engine).run("add_to_both", 1);
    let stores: Arc<Map> = Arc::clone(module.map("stores").expect("a map"));
    drop(module);
    assert_eq!(runtime.objects(), 1, "the map is still there");
    drop(runtime);
    drop(stores);
}

#[test]
fn what_is_put_into_a_deleted_element_is_freed_with_it() {
    for engine in ENGINES {
        let runtime = runtime();
        let module = load(&runtime);
        let world = World(&module, engine);
        let shelves = Arc::clone(module.map("shelves").expect("a map"));
        let empty = vec![0; shelves.host_value_size()];
        for round in 0..1_000u64 {
            let key = round % 8;
            shelves.update(&(key as u32).to_ne_bytes(), &empty, UpdateFlags::Any).unwrap();
            assert_eq!(world.run("delete_and_grow", key), 1, "round {round}");
        }
        // Elements wait for readers, of which there are none: later changes notice it.
        assert!(runtime.objects() < 1_000, "{}", runtime.objects());
        drop(shelves);
        drop(module);
        assert_eq!(runtime.objects(), 0, "{engine:?}");
    }
}

#[test]
fn programs_push_and_pop_while_the_host_deletes() {
    for engine in ENGINES {
        let runtime = runtime();
        let module = load(&runtime);
        let shelves = Arc::clone(module.map("shelves").expect("a map"));
        let (empty, key) = (vec![0; shelves.host_value_size()], 0u32.to_ne_bytes());
        // The key is 0 for all of them.
        std::thread::scope(|scope| {
            for name in
                ["grow", "keep", "delete_and_grow", "look", "count", "add_to_both", "take_least", "pop_front"]
            {
                let program = module.program(name).expect("a program");
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        match program.run_with(engine, &mut Packet::new(&[0; 64])) {
                            Ok(_) => {}
                            // Four CPUs for more threads.
                            Err(_) => std::thread::yield_now(),
                        }
                    }
                });
            }
            for _ in 0..2_000 {
                let _ = shelves.update(&key, &empty, UpdateFlags::Any);
                let _ = shelves.delete(&key);
            }
        });
        drop(shelves);
        drop(module);
        assert_eq!(runtime.objects(), 0, "{engine:?}");
    }
}

#[test]
fn a_map_with_objects_belongs_to_one_runtime() {
    let (one, other) = (runtime(), runtime());
    let module = load(&one);
    let object = Object::parse(OBJECT).expect("an object");
    let stores = Arc::clone(module.map("stores").expect("a map"));
    let error = other.linker(&object).map("stores", Arc::clone(&stores)).load().unwrap_err();
    assert!(matches!(error, skep::Error::OtherRuntime { .. }), "{error}");
    // In the same runtime programs of another load find the objects.
    let second = one.linker(&object).map("stores", stores).load().expect("it loads");
    World(&module, Engine::Jit).run("push_back", 9);
    drop(module);
    assert_eq!(World(&second, Engine::Jit).take("pop_front"), Some(9));
    assert_eq!(one.objects(), 0);
}

#[test]
fn programs_that_share_objects_agree_on_what_they_look_like() {
    let runtime = runtime();
    let module = load(&runtime);
    assert_eq!(World(&module, Engine::Jit).run("push_back", 9), 1);
    let stores = Arc::clone(module.map("stores").expect("a map"));
    let object = Object::parse(include_bytes!("../objects/owners/others.bpf.o")).expect("an object");
    let error = runtime.linker(&object).map("stores", stores).load().unwrap_err();
    assert!(error.to_string().contains("the layout of the objects in it"), "{error}");
    runtime.load(&object).expect("with a map of its own it loads");
}
