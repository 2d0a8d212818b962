//! Runs that the host looks at, step by step. Oracles: the same run without an observer, in both engines.

use skep::abi::RAW;
use skep::interp::{Callee, Observer, Step};
use skep::{Engine, Error, Module, Object, Packet, Runtime};
use std::panic::{AssertUnwindSafe, catch_unwind};

const FIREWALL: &[u8] = include_bytes!("../../../../examples/firewall.bpf.o");

fn firewall() -> Module {
    Runtime::builder().build().unwrap().load(&Object::parse(FIREWALL).unwrap()).unwrap()
}

/// A TCP segment to port 23 over IPv4.
fn telnet() -> Packet {
    let mut bytes = [0; 60];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6]);
    bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    bytes[36..38].copy_from_slice(&[0, 23]);
    bytes[46..48].copy_from_slice(&[0x50, 2]);
    Packet::new(&bytes)
}

fn frames_seen(module: &Module) -> Vec<u8> {
    module.variable("frames_seen").unwrap()
}

/// The slots, and the calls with the number of steps before them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Trace {
    slots: Vec<u32>,
    calls: Vec<(usize, Callee)>,
}

impl Observer for Trace {
    fn step(&mut self, step: &Step<'_>) {
        self.slots.push(step.slot);
    }
    fn call(&mut self, callee: Callee, _: [u64; 5]) {
        self.calls.push((self.slots.len(), callee));
    }
}

#[test]
fn an_observed_run_does_what_any_run_does_and_is_told_the_same_each_time() {
    let traces = [(); 2].map(|()| {
        let observed = firewall();
        let (mut packet, mut trace) = (telnet(), Trace::default());
        let result = observed.programs()[0].run_observed(&mut packet, &mut trace).unwrap();
        for engine in [Engine::Jit, Engine::Interpreter] {
            let (module, mut same) = (firewall(), telnet());
            assert_eq!(module.programs()[0].run_with(engine, &mut same).unwrap(), result);
            assert_eq!(same.bytes(), packet.bytes());
            assert_eq!(frames_seen(&module), frames_seen(&observed));
        }
        trace
    });
    let [first, second] = &traces;
    assert_eq!(first, second);
    assert!(first.slots.len() > 20 && first.slots[0] == 0, "{first:?}");
    assert!(first.calls.iter().any(|(_, callee)| *callee == Callee::Helper(1)), "no look-up: {first:?}");
}

/// Panics at its third step.
struct Panics(u32);

impl Observer for Panics {
    fn step(&mut self, _: &Step<'_>) {
        self.0 += 1;
        assert!(self.0 < 3, "at step {}", self.0);
    }
}

#[test]
fn the_panic_of_an_observer_waits_for_the_end_of_the_run() {
    let (module, expected) = (firewall(), firewall());
    let mut observer = Panics(0);
    let run = AssertUnwindSafe(|| module.programs()[0].run_observed(&mut telnet(), &mut observer));
    let panic = catch_unwind(run).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("at step 3"));
    assert_eq!(observer.0, 3, "it is told nothing after its panic");
    // The run went on: it counted the frame, as a run without an observer does.
    expected.programs()[0].run(&mut telnet()).unwrap();
    assert_eq!(frames_seen(&module), frames_seen(&expected));
    assert!(frames_seen(&module).iter().any(|byte| *byte != 0));
    module.programs()[0].run(&mut telnet()).unwrap();
}

#[test]
fn a_program_over_a_buffer_refuses_an_observed_packet() {
    let insns = skep::isa::assemble("r0 = 0\nexit").unwrap();
    let object = Object::from_insns("buffered", &RAW, insns);
    let runtime = Runtime::builder().build().unwrap();
    let module = runtime.linker(&object).buffer_len(4).load().unwrap();
    let mut trace = Trace::default();
    let error = module.programs()[0].run_observed(&mut telnet(), &mut trace).unwrap_err();
    assert!(matches!(error, Error::WrongInput { .. }), "{error}");
    assert_eq!(trace, Trace::default());
}
