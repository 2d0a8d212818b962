//! Runtimes for programs whose authors may attack the host.

#![allow(missing_docs)]

use std::time::Duration;

use skep::abi::ProgramType;
use skep::isa::assemble;
use skep::text::{Backing, Config};
use skep::{Object, Packet, Runtime, RuntimeBuilder};

/// A program of that type in assembly.
fn program(kind: &str, text: &str) -> Object {
    let kind = ProgramType::from_name(kind).expect("a type");
    Object::from_insns("program", kind, assemble(text).expect("assembles"))
}

fn times(builder: RuntimeBuilder, helper: u32) -> Vec<u64> {
    let runtime = builder.build().expect("a runtime");
    let module = runtime.load(&program("xdp", &format!("call {helper}\nexit"))).expect("loads");
    let program = &module.programs()[0];
    (0..2000).map(|_| program.run(&mut Packet::new(&[0; 64])).expect("runs")).collect()
}

/// `bpf_ktime_get_ns`, `_boot_ns`, `_coarse_ns` and `_tai_ns`.
const CLOCKS: [u32; 4] = [5, 125, 160, 208];

#[test]
fn programs_of_strangers_see_coarse_times_that_do_not_decrease() {
    for clock in CLOCKS {
        let coarse = times(Runtime::builder().untrusted(), clock);
        assert!(coarse.iter().all(|time| time % 100_000 == 0), "{clock}: {coarse:?}");
        assert!(coarse.is_sorted() && coarse[0] > 0, "{clock}: {coarse:?}");
        let own = times(Runtime::builder().clock_granularity(Duration::from_micros(7)).untrusted(), clock);
        assert!(own.iter().all(|time| time % 7_000 == 0), "{clock}: {own:?}");
    }
    let exact = times(Runtime::builder(), CLOCKS[0]);
    assert!(exact.iter().any(|time| time % 100_000 != 0), "{exact:?}");
}

#[test]
fn no_address_leaves_a_program_of_strangers_whatever_its_type_and_privileges() {
    let leaks = program("raw_tracepoint", "r0 = r1\nexit");
    Runtime::new().expect("a runtime").load(&leaks).expect("may read the host's addresses");
    for builder in [Runtime::builder(), Runtime::builder().privileged(true)] {
        let runtime = builder.untrusted().build().expect("a runtime");
        let refusal = runtime.load(&leaks).expect_err("leaks").to_string();
        assert!(refusal.contains("r0"), "{refusal}");
    }
}

#[test]
fn code_of_strangers_has_no_writable_view_unless_the_host_requires_one() {
    let backing = |builder: RuntimeBuilder| builder.build().expect("a runtime").occupancy().backing;
    assert_eq!(backing(Runtime::builder().untrusted()), Backing::Hardened);
    assert_eq!(backing(Runtime::builder().untrusted().code(Config::new())), Backing::Hardened);
    let required = Config::new().backing(Backing::Memfd);
    assert_eq!(backing(Runtime::builder().code(required).untrusted()), Backing::Memfd);
    assert_ne!(backing(Runtime::builder()), Backing::Hardened);
}
