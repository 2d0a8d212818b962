//! A program cannot learn the addresses of its memory: each accepted program runs on two hosts whose addresses all
//! differ, and must leave the same state on both. `SKEP_SEED` sets the first seed, `SKEP_CASES` the number of
//! programs.

use crate::common::{Lab, cases, fail, first_seed, has_long_loops, verified};
use skep_testgen::{Flavour, Host, Options, Source, TestProgram, stale, wild};
use skep_verifier::Verified;

/// Number of inputs for each program.
const INPUTS: u64 = 8;

/// Two hosts at once, so that no address is the same.
struct Twins([Lab; 2]);

impl Twins {
    fn new(flavour: Flavour) -> Self {
        Self([Lab::new(Host::new(flavour)), Lab::new(Host::new(flavour))])
    }

    /// The difference of the states that the program leaves on the two hosts.
    fn differ(&mut self, program: &TestProgram, accepted: &Verified) -> Option<String> {
        let [one, other] = &mut self.0;
        for lab in [&mut *one, &mut *other] {
            lab.set_hints(program);
        }
        let engines = [one.interpreter(accepted), other.interpreter(accepted)]
            .map(|made| made.expect("it was verified"));
        (0..INPUTS).find_map(|input| {
            let found = [one.interpret(&engines[0], input), other.interpret(&engines[1], input)];
            (found[0] != found[1]).then(|| {
                format!("input {input}: {:#x} on one host, {:#x} on the other", found[0].0, found[1].0)
            })
        })
    }
}

/// Runs the accepted ones of `programs` programs; at least one in `least` must be accepted.
fn nothing_is_told(programs: u64, least: u64, make: impl Fn(&mut Source) -> TestProgram) {
    let flavours = [Flavour::Buffer { len: 64 }, Flavour::Xdp, Flavour::Skb];
    let mut twins = flavours.map(Twins::new);
    let mut accepted = 0;
    for seed in first_seed()..first_seed() + programs {
        let program = make(&mut Source::from_seed(seed));
        let Some(at) = flavours.iter().position(|flavour| *flavour == program.flavour) else { continue };
        // Millions of iterations show no more than a few.
        if has_long_loops(&program) {
            continue;
        }
        let Ok(verified_program) = verified(&program) else { continue };
        accepted += 1;
        if twins[at].differ(&program, &verified_program).is_some() {
            let twins = &mut twins[at];
            fail(seed, &program, |program| twins.differ(program, &verified(program).ok()?));
        }
    }
    println!("{accepted} of {programs} accepted");
    assert!(accepted * least >= programs, "only {accepted} of {programs} accepted");
}

#[test]
fn stale_addresses_reveal_nothing() {
    nothing_is_told(cases(4000), 20, stale);
}

#[test]
fn no_accepted_program_depends_on_its_memory_s_addresses() {
    nothing_is_told(cases(1000), 20, |source| {
        let flavour = source.pick(&[Flavour::Buffer { len: 64 }, Flavour::Xdp, Flavour::Skb]);
        let options = Options { statements: 2 + source.below(20), ..Options::with_control(flavour) };
        wild(source, &options)
    });
}
