//! Tasks and cgroups of a world get the verdicts that Linux gives to those of a kernel, and what is accepted runs in
//! checking mode, in the interpreter and in the processor's JIT: the programs of `machine.verdicts`.

use crate::mask_tests::load_with;
use crate::world::{Cgroup, Machine, Task};
use crate::{Context, Engine, Error, Module, Object, Runtime, World};
use skep_abi::{MapDef, SpecialKind, machine_type};
use skep_isa::{CallTarget, Insn};
use skep_verdicts::{Entry, Verdict, entries};

fn all() -> Vec<Entry> {
    let text = include_str!("../../skep-verifier/verdicts/machine.verdicts");
    entries(text).expect("entries")
}

/// The maps of an entry: what they keep is the world's.
fn maps(entry: &Entry) -> Vec<MapDef> {
    let mut defs: Vec<MapDef> = entry.maps.iter().map(|map| map.def.clone()).collect();
    for (def, line) in defs.iter_mut().zip(&entry.maps) {
        for (field, of) in def.fields.iter_mut().zip(&line.fields) {
            if let SpecialKind::Kptr { to } | SpecialKind::KptrUntrusted { to } = &mut field.kind {
                *to = of.of.as_deref().and_then(machine_type).expect("a type of a machine");
            }
        }
    }
    defs
}

fn load(runtime: &Runtime, entry: &Entry) -> Result<Module, Error> {
    load_with(runtime, entry, maps(entry))
}

/// The first process, in the root of the cgroups.
fn world() -> World {
    let mut machine = Machine::new();
    machine.cgroups.insert(1, Cgroup { id: 1, path: "/".to_owned(), ..Cgroup::default() });
    machine.task = Some(Task { pid: 1, tgid: 1, cgroup: 1, ..Task::default() });
    World::new(machine)
}

fn runtime(world: &World) -> Runtime {
    Runtime::builder().privileged(true).cpus(4).world(world).build().expect("a runtime")
}

#[test]
fn tasks_and_cgroups_of_a_world_get_linuxs_verdicts() {
    let (mut accepted, mut refused) = (0, 0);
    for entry in all() {
        let name = &entry.name;
        match (load(&runtime(&world()), &entry), entry.linux.as_ref().expect("a verdict")) {
            (Ok(_), Verdict::Accept) => accepted += 1,
            (Err(Error::Refused(refusal)), verdict) => {
                assert_ne!(*verdict, Verdict::Accept, "{name}: {refusal}");
                refused += 1;
            }
            (Ok(_), verdict) => panic!("{name}: it loads, but Linux says {verdict:?}"),
            (Err(error), _) => panic!("{name}: {error}"),
        }
    }
    assert!(accepted >= 16 && refused >= 40, "{accepted} accepted, {refused} refused");
}

#[test]
fn accepted_programs_leave_no_object_but_the_worlds() {
    for entry in all() {
        let name = &entry.name;
        let world = world();
        let runtime = runtime(&world);
        runtime.trace_objects();
        let Ok(module) = load(&runtime, &entry) else { continue };
        let program = &module.programs()[0];
        for engine in [None, Some(Engine::Interpreter), Some(Engine::Jit), None] {
            let mut context = Context::of(program).expect("a context");
            let result = match engine {
                None => program.run_context_checked(&mut context).expect("a run").map_err(|v| v.to_string()),
                Some(engine) => Ok(program.run_context_with(engine, &mut context).expect("a run")),
            };
            assert!(result.is_ok(), "{name}, {engine:?}: {result:?}");
        }
        // The idle task and its cgroup stay with the runtime; those of the world end with it.
        world
            .change(|machine| {
                machine.task = None;
                machine.cgroups.clear();
                Ok::<(), ()>(())
            })
            .expect("a change");
        // A task that is kept keeps its cgroup.
        let kept = match name.as_str() {
            "kept-and-released-before" => 2,
            "cgroup-kept" => 1,
            _ => 0,
        };
        let idle = runtime.objects() - kept;
        assert!(idle == 0 || idle == 2, "{name}: {idle}");
        drop(module);
        assert_eq!(runtime.objects(), idle, "{name}");
    }
}

#[test]
fn programs_in_c_are_in_every_state_what_the_verifier_says() {
    let bytes: &[u8] = include_bytes!("../tests/objects/machine/machine.bpf.o");
    let object = Object::parse(bytes).expect("an object");
    let world = world();
    let runtime = runtime(&world);
    runtime.trace_objects();
    let module = runtime.load(&object).expect("it loads");
    let variables = module.map(".bss").expect("variables");
    let mut results = std::collections::BTreeSet::new();
    for round in 0u64..9 {
        variables.update(&[0; 4], &(round % 3).to_ne_bytes(), crate::UpdateFlags::Any).expect("an update");
        for program in module.programs() {
            let mut context = Context::of(program).expect("a context");
            let result = match round % 2 {
                0 => program.run_context_with(Engine::Jit, &mut context).expect("a run"),
                _ => program
                    .run_context_checked(&mut context)
                    .expect("a run")
                    .unwrap_or_else(|violation| panic!("{}: {violation}", program.name())),
            };
            results.insert((program.name().to_owned(), result));
        }
        let changed = world.change(|machine| {
            // Tasks and cgroups come and go.
            match machine.tasks.remove(&2) {
                Some(_) => drop(machine.cgroups.remove(&2)),
                None => {
                    machine.cgroups.insert(2, Cgroup { id: 2, parent: Some(1), ..Cgroup::default() });
                    machine.tasks.insert(2, Task { pid: 2, tgid: 1, cgroup: 2, ..Task::default() });
                }
            }
            Ok::<(), ()>(())
        });
        changed.expect("a change");
    }
    assert!(results.len() > 30, "{results:?}");
    drop(module);
    // The idle task and the world's, and their cgroups.
    assert!(runtime.objects() <= 6, "{}", runtime.objects());
}

/// Programs of which the calls that begin and end a read section are taken out: nothing that was found there can be
/// read, since it may be gone.
#[test]
fn what_may_be_gone_is_not_read() {
    let bytes: &[u8] = include_bytes!("../tests/objects/machine/machine.bpf.o");
    let object = Object::parse(bytes).expect("an object");
    let section = ["bpf_rcu_read_lock", "bpf_rcu_read_unlock"].map(skep_abi::own_kfunc_number);
    for name in ["kept_pid", "kept_level", "kept_acquired", "count_kept", "current_level", "current_group"] {
        let mut source = object.linked(name, crate::ProgramOptions::default()).expect("a program");
        for insn in &mut source.insns {
            if let Insn::Call { target: CallTarget::Kfunc { id, .. } } = insn
                && section.contains(&Some(*id as u32))
            {
                *insn = skep_isa::assemble("r0 = 0").expect("an instruction")[0];
            }
        }
        let attack = Object::from_sources(vec![source], object.maps().to_vec(), object.types().cloned());
        let error = runtime(&world()).load(&attack).expect_err(name);
        let Error::Refused(refusal) = &error else { panic!("{name}: {error}") };
        let words = ["known to be alive", "which is untrusted"];
        assert!(words.iter().any(|word| refusal.to_string().contains(word)), "{name}: {refusal}");
    }
}
