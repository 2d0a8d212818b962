//! Probes: what runs when, and what an attacker's program cannot read.

use super::{Clock, Fired, Function, Machine, Probe, ProbeOptions, ProbePoint, Random, Registers, World};
use crate::{Error, Object, Program, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn world() -> World {
    let mut machine = Machine::new();
    for name in ["first", "second"] {
        machine.probes.add_function(Function { name: name.to_owned(), address: 0, size: 64 }).unwrap();
    }
    machine.probes.add_tracepoint("group", "point", ["u64 small"]).unwrap();
    machine.probes.add_tracepoint("other", "point", ["u64 one", "u64 two"]).unwrap();
    machine.probes.add_binary("/bin/true");
    World::with(machine, Clock::stepped(Duration::ZERO), Random::seeded(1))
}

fn program(world: &World, kind: &str, text: &str) -> Program {
    let runtime = Runtime::builder().world(world).build().unwrap();
    let kind = skep_abi::ProgramType::from_name(kind).unwrap();
    let insns = skep_isa::assemble(text).unwrap();
    let module = runtime.load(&Object::from_insns("p", kind, insns)).unwrap();
    module.programs()[0].clone()
}

/// Lets something happen. Returns how many programs ran.
fn fire(world: &World, fired: Fired<'_>) -> u64 {
    world.fire(fired, None).unwrap().programs
}

#[test]
fn programs_run_where_they_are_attached_and_no_longer() {
    let world = world();
    let watch = program(&world, "kprobe", "r0 = 0\nexit");
    let (first, second) = (ProbePoint::function("first"), ProbePoint::function("second"));
    let registers = &Registers::call(&[1, 2]);
    let entry = world.probe(&watch, Probe::Entry(first.clone()), ProbeOptions::default()).unwrap();
    let back = world.probe(&watch, Probe::Return(first.clone()), ProbeOptions::default()).unwrap();
    assert_eq!(fire(&world, Fired::Entry { point: &first, registers }), 1);
    assert_eq!(fire(&world, Fired::Return { point: &first, registers }), 1);
    assert_eq!(fire(&world, Fired::Call { point: &first, registers, result: 3 }), 2);
    assert_eq!(fire(&world, Fired::Call { point: &second, registers, result: 3 }), 0);
    let inside = ProbePoint::Function { name: "first".to_owned(), offset: 4 };
    assert_eq!(fire(&world, Fired::Entry { point: &inside, registers }), 0);
    drop(entry);
    assert_eq!(fire(&world, Fired::Call { point: &first, registers, result: 3 }), 1);
    drop(back);
    assert_eq!(fire(&world, Fired::Call { point: &first, registers, result: 3 }), 0);
}

#[test]
fn a_session_ends_at_the_start_if_its_program_says_so() {
    let world = world();
    let point = ProbePoint::function("first");
    let registers = &Registers::new();
    for (text, runs) in [("r0 = 0\nexit", 2), ("r0 = 1\nexit", 1)] {
        let program = program(&world, "kprobe", text);
        let _link = world.probe(&program, Probe::Session(point.clone()), ProbeOptions::default()).unwrap();
        assert_eq!(fire(&world, Fired::Call { point: &point, registers, result: 0 }), runs, "{text}");
    }
}

#[test]
fn a_session_program_is_told_registers_cookie_and_address() {
    let world = world();
    let point = ProbePoint::function("second");
    let address = world.machine().probes.function("second").unwrap().address;
    // It ends its session only if all is as the host said.
    let di = Registers::FIRST_ARGUMENT;
    let text = format!(
        "r6 = r1\nr7 = *(u64 *)(r6 + {di})\nr0 = 0\nif r7 != 42 goto +11\ncall 174\nr8 = r0\nr1 = r6\n\
         call 173\nr9 = {address:#x} ll\nr1 = r0\nr0 = 0\nif r8 != 77 goto +2\nif r1 != r9 goto +1\nr0 = 1\nexit"
    );
    let options = ProbeOptions { cookie: 77, ..ProbeOptions::default() };
    let _link =
        world.probe(&program(&world, "kprobe", &text), Probe::Session(point.clone()), options).unwrap();
    let call = |argument| {
        let registers = Registers::call(&[argument]);
        fire(&world, Fired::Call { point: &point, registers: &registers, result: 0 })
    };
    assert_eq!((call(42), call(43)), (1, 2));
}

#[test]
fn a_program_that_reads_behind_a_record_is_not_attached() {
    let world = world();
    let at = |group: &str| Probe::Tracepoint { group: group.to_owned(), name: "point".to_owned() };
    let wide = program(&world, "tracepoint", "r0 = *(u64 *)(r1 + 16)\nexit");
    let refused = world.probe(&wide, at("group"), ProbeOptions::default());
    assert!(matches!(refused, Err(Error::RecordSize { reads: 24, record: 16, .. })), "{refused:?}");
    let _link = world.probe(&wide, at("other"), ProbeOptions::default()).unwrap();
    // A host that fires too little shows zeroes and nothing else.
    let bytes = [1; 8193];
    let fired =
        |len| Fired::Tracepoint { group: "other", name: "point", record: &bytes[..len], arguments: &[] };
    for len in [0, 8, 16, 17, 24, 8192] {
        assert_eq!(fire(&world, fired(len)), 1, "{len}");
    }
    assert!(matches!(world.fire(fired(8193), None), Err(Error::ContextBytes { .. })));
}

#[test]
fn raw_tracepoints_have_the_arguments() {
    let world = world();
    let raw = program(&world, "raw_tracepoint", "r0 = *(u64 *)(r1 + 88)\nexit");
    let probe = Probe::RawTracepoint("point".to_owned());
    let _link = world.probe(&raw, probe, ProbeOptions::default()).unwrap();
    let fired = |arguments| Fired::Tracepoint { group: "group", name: "point", record: &[], arguments };
    assert_eq!(fire(&world, fired(&[1, 2])), 1);
    assert!(world.fire(fired(&[0; 13]), None).is_err());
    let none = Probe::RawTracepoint("bogus".to_owned());
    assert!(matches!(world.probe(&raw, none, ProbeOptions::default()), Err(Error::World(_))));
}

#[test]
fn programs_run_in_their_process_and_while_they_are_enabled() {
    let world = world();
    let watch = program(&world, "kprobe", "r0 = 0\nexit");
    let point = ProbePoint::binary("/bin/true", 64);
    let enabled = Arc::new(AtomicBool::new(true));
    let options = ProbeOptions { process: Some(7), enabled: Some(Arc::clone(&enabled)), cookie: 0 };
    let _link = world.probe(&watch, Probe::Entry(point.clone()), options).unwrap();
    let fired = Fired::Entry { point: &point, registers: &Registers::new() };
    let runs = |process| world.fire(fired, process).unwrap().programs;
    assert_eq!((runs(Some(7)), runs(Some(8)), runs(None)), (1, 0, 0));
    enabled.store(false, Ordering::Relaxed);
    assert_eq!(runs(Some(7)), 0);
}

#[test]
fn what_there_is_not_and_what_does_not_fit_is_refused() {
    let world = world();
    let watch = program(&world, "kprobe", "r0 = 0\nexit");
    let inside = ProbePoint::Function { name: "first".to_owned(), offset: 4 };
    let tracepoint = Probe::Tracepoint { group: "group".to_owned(), name: "point".to_owned() };
    for probe in [
        Probe::Entry(ProbePoint::function("bogus")),
        Probe::Entry(ProbePoint::binary("/bin/false", 0)),
        Probe::Return(inside.clone()),
        Probe::Entry(ProbePoint::Function { name: "first".to_owned(), offset: 64 }),
    ] {
        let refused = world.probe(&watch, probe, ProbeOptions::default());
        assert!(matches!(refused, Err(Error::World(_))), "{refused:?}");
    }
    assert!(world.probe(&watch, Probe::Entry(inside), ProbeOptions::default()).is_ok());
    let refused = world.probe(&watch, tracepoint, ProbeOptions::default());
    assert!(matches!(refused, Err(Error::WrongAttachment { .. })));
    let elsewhere = program(&self::world(), "kprobe", "r0 = 0\nexit");
    let probe = Probe::Entry(ProbePoint::function("first"));
    let refused = world.probe(&elsewhere, probe, ProbeOptions::default());
    assert!(matches!(refused, Err(Error::OtherWorld { .. })));
}
