//! Tasks and cgroups of a world that programs hold, and storages of them, in both engines: what programs read follows
//! the world, elements end with their owners, and nothing of an object that is gone reaches another one.

use skep::world::{Cgroup, Machine, Task, World};
use skep::{Context, Engine, Error, Map, Module, Object, Runtime, UpdateFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("../objects/machine/machine.bpf.o");
const ENOENT: i64 = -2;

/// Two tasks of one process, and another; three cgroups below each other.
fn world() -> World {
    let mut machine = Machine::new();
    for (id, path, parent) in [(1, "/", None), (2, "/shop", Some(1)), (3, "/shop/till", Some(2))] {
        machine.cgroups.insert(id, Cgroup { id, path: path.to_owned(), parent, ..Cgroup::default() });
    }
    machine.task = Some(task(7, 3));
    machine.tasks = [(8, task(8, 2)), (9, task(9, 1))].into();
    World::new(machine)
}

fn task(pid: u32, cgroup: u64) -> Task {
    Task { pid, tgid: pid.min(7), cgroup, comm: format!("task-{pid}"), ..Task::default() }
}

fn change(world: &World, change: impl FnOnce(&mut Machine)) {
    world
        .change(|machine| {
            change(machine);
            Ok::<(), ()>(())
        })
        .expect("a change");
}

struct Loaded {
    module: Module,
    engine: Engine,
}

impl Loaded {
    fn new(world: &World, engine: Engine) -> Self {
        let runtime = Runtime::builder().world(world).cpus(8).build().expect("a runtime");
        let module = runtime.load(&Object::parse(OBJECT).expect("an object")).expect("a module");
        Self { module, engine }
    }

    fn run(&self, name: &str) -> i64 {
        let program = self.module.program(name).unwrap_or_else(|| panic!("{name}"));
        let mut context = Context::of(program).expect("a context");
        let result = program.run_context_with(self.engine, &mut context).expect("a run");
        // Programs that run for a system call return 32 bits, of which these return a number of 64.
        result.cast_signed()
    }

    fn asked(&self, name: &str, wanted: u64) -> i64 {
        let section = self.module.map(".bss").expect("variables");
        section.update(&[0; 4], &wanted.to_ne_bytes(), UpdateFlags::Any).expect("an update");
        self.run(name)
    }

    fn map(&self, name: &str) -> Arc<Map> {
        Arc::clone(self.module.map(name).expect("a map"))
    }

    fn count(&self, map: &str, number: u32) -> Option<u64> {
        let value = self.map(map).lookup(&number.to_ne_bytes()).expect("a look-up")?;
        Some(u64::from_ne_bytes(value[..8].try_into().expect("8 bytes")))
    }
}

/// In both engines, each with a world of its own.
fn in_each(test: impl Fn(&World, &Loaded)) {
    for engine in ENGINES {
        let world = world();
        test(&world, &Loaded::new(&world, engine));
    }
}

#[test]
fn members_are_those_of_the_world_at_the_places_of_the_programs_own_structures() {
    in_each(|world, loaded| {
        assert_eq!(loaded.run("current_task"), 7 << 32 | 7);
        assert_eq!(loaded.run("current_level"), 2);
        assert_eq!(loaded.run("current_group"), 3 << 32 | 3);
        assert_eq!(loaded.asked("found_tgid", 8), 7);
        assert_eq!(loaded.asked("found_tgid", 5), -1);
        change(world, |machine| machine.task = Some(Task { tgid: 70, cgroup: 1, ..task(7, 1) }));
        assert_eq!(loaded.run("current_task"), 70 << 32 | 7);
        assert_eq!(loaded.run("current_level"), 0);
        change(world, |machine| machine.cgroups.get_mut(&1).expect("the root").parent = Some(9));
        change(world, |machine| machine.task = Some(task(8, 2)));
        assert_eq!(loaded.run("current_task"), 7 << 32 | 8);
        change(world, |machine| machine.task = None);
        assert_eq!(loaded.run("current_task"), 0, "the idle task");
        assert_eq!(loaded.run("current_level"), 0);
    });
}

#[test]
fn ancestors_and_membership_are_those_of_the_worlds_cgroups() {
    in_each(|world, loaded| {
        for (level, found) in [(0, 0), (1, 1), (2, 2), (3, -1), (u64::MAX, -1)] {
            assert_eq!(loaded.asked("ancestor", level), found, "{level}");
        }
        change(world, |machine| machine.task = Some(task(7, 2)));
        for (group, under) in [(1, 1), (2, 1), (3, 0), (4, -1)] {
            assert_eq!(loaded.asked("is_under", group), under, "{group}");
        }
    });
}

#[test]
fn a_kept_task_outlives_its_end_but_is_found_no_more() {
    in_each(|world, loaded| {
        assert_eq!(loaded.asked("keep_task", 8), 0);
        assert_eq!((loaded.run("kept_pid"), loaded.run("kept_level")), (8, 1));
        change(world, |machine| {
            machine.tasks.clear();
            machine.cgroups.remove(&2);
        });
        assert_eq!(loaded.asked("found_tgid", 8), -1);
        // Its memory is the program's as long as it is kept, and so is that of its cgroup.
        assert_eq!((loaded.run("kept_pid"), loaded.run("kept_level")), (8, 1));
        assert_eq!(loaded.run("kept_acquired"), 1);
        assert_eq!((loaded.run("drop_task"), loaded.run("drop_task")), (1, 0));
        assert_eq!(loaded.run("kept_pid"), -1);
    });
}

#[test]
fn elements_end_with_their_tasks_and_cgroups() {
    in_each(|world, loaded| {
        assert_eq!([loaded.run("count_current"), loaded.run("count_current")], [1, 2]);
        assert_eq!(loaded.asked("count_found", 8), 1);
        assert_eq!(loaded.run("count_group"), 1);
        let counts = || [7, 8, 9].map(|pid| loaded.count("of_tasks", pid));
        assert_eq!(counts(), [Some(2), Some(1), None]);
        change(world, |machine| drop(machine.tasks.remove(&8)));
        assert_eq!(counts(), [Some(2), None, None]);
        assert_eq!(loaded.count("of_groups", 3), Some(1));
        change(world, |machine| machine.task = Some(task(9, 1)));
        assert_eq!(counts(), [None; 3]);
        change(world, |machine| drop(machine.cgroups.remove(&3)));
        assert_eq!(loaded.count("of_groups", 3), None);
        // Without a task it is the idle one, which never ends.
        change(world, |machine| machine.task = None);
        assert_eq!([loaded.run("count_current"), loaded.run("count_current")], [1, 2]);
        assert_eq!([loaded.run("count_group"), loaded.run("count_group")], [1, 2]);
        change(world, |machine| machine.tasks.clear());
        assert_eq!(loaded.run("count_current"), 3);
    });
}

#[test]
fn what_is_gone_gets_no_element_and_reaches_none_of_its_successor() {
    in_each(|world, loaded| {
        assert_eq!(loaded.asked("keep_task", 8), 0);
        assert_eq!(loaded.run("count_kept"), 1);
        change(world, |machine| drop(machine.tasks.remove(&8)));
        assert_eq!(loaded.run("count_kept"), -1);
        assert_eq!(loaded.count("of_tasks", 8), None);
        // Another task has the number now.
        change(world, |machine| drop(machine.tasks.insert(8, task(8, 1))));
        assert_eq!(loaded.asked("count_found", 8), 1);
        assert_eq!(loaded.run("count_kept"), -1);
        assert_eq!(loaded.run("uncount_kept"), ENOENT);
        assert_eq!(loaded.count("of_tasks", 8), Some(1));
    });
}

#[test]
fn the_host_reads_and_writes_elements_by_number() {
    in_each(|_, loaded| {
        let map = loaded.map("of_tasks");
        let value = |runs: u64| [runs.to_ne_bytes(), [0; 8]].concat();
        map.update(&7u32.to_ne_bytes(), &value(40), UpdateFlags::NoExist).expect("an update");
        assert_eq!(loaded.run("count_current"), 41);
        assert_eq!(loaded.count("of_tasks", 7), Some(41));
        map.delete(&7u32.to_ne_bytes()).expect("a deletion");
        assert_eq!(loaded.run("count_current"), 1);
        let groups = loaded.map("of_groups");
        groups.update(&3u32.to_ne_bytes(), &9u64.to_ne_bytes(), UpdateFlags::Any).expect("an update");
        assert_eq!(loaded.run("count_group"), 10);
    });
}

#[test]
fn an_element_releases_what_it_keeps() {
    in_each(|world, loaded| {
        assert_eq!(loaded.asked("keep_group", 2), 0);
        assert_eq!(loaded.asked("keep_group", 4), -1);
        assert_eq!(loaded.asked("keep_group", 3), 1);
        change(world, |machine| {
            machine.task = None;
            machine.cgroups.clear();
        });
        assert_eq!(loaded.count("of_tasks", 7), None);
    });
}

#[test]
fn objects_of_two_runtimes_over_one_world_are_apart() {
    let world = world();
    let [a, b] = ENGINES.map(|engine| Loaded::new(&world, engine));
    assert_eq!((a.asked("keep_task", 8), b.run("kept_pid")), (0, -1));
    drop(a);
    assert_eq!((b.asked("keep_task", 8), b.run("kept_pid")), (0, 8));
}

#[test]
fn threads_find_keep_and_count_while_tasks_come_and_go() {
    for engine in ENGINES {
        let world = world();
        let loaded = Loaded::new(&world, engine);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for name in
                ["keep_task", "kept_level", "kept_acquired", "count_kept", "drop_task", "current_level"]
            {
                let (loaded, done) = (&loaded, &done);
                scope.spawn(move || {
                    // Relaxed: it only ends the loop.
                    while !done.load(Ordering::Relaxed) {
                        let result =
                            if name == "keep_task" { loaded.asked(name, 8) } else { loaded.run(name) };
                        assert!((-3..1 << 40).contains(&result), "{name}: {result}");
                    }
                });
            }
            for round in 0..300u64 {
                change(&world, |machine| match round % 3 {
                    0 => drop(machine.tasks.remove(&8)),
                    1 => drop(machine.tasks.insert(8, task(8, 1 + round % 2))),
                    _ => machine.task = Some(task(7, 1 + round % 3)),
                });
            }
            done.store(true, Ordering::Relaxed);
        });
        change(&world, |machine| machine.tasks.clear());
        assert_eq!(loaded.count("of_tasks", 8), None);
    }
}

/// A program over bytes that has no structure to find members by.
#[test]
fn without_types_nothing_is_read_of_a_task() {
    let text = "call get_current_task_btf#158\nr0 = *(u32 *)(r0 + 16)\nexit";
    let bytes = skep::isa::encode_bytes(&skep::isa::assemble(text).expect("a program")).expect("bytes");
    let kind = skep::abi::ProgramType::from_name("syscall").expect("a type");
    let object = Object::from_bytecode("reads", kind, &bytes).expect("an object");
    let error =
        Runtime::builder().world(&world()).build().expect("a runtime").load(&object).expect_err("refused");
    assert!(
        matches!(error, Error::Refused(_))
            && error.to_string().contains("programs load pid, tgid, cgroups whole"),
        "{error}"
    );
}
