//! Accepted programs do no harm, and the verifier's states contain every concrete state: programs that attack it run
//! in the interpreter's checking mode, which checks every access, and before every instruction compares every
//! register and stack slot with the states of the walk. `SKEP_SEED` sets the first seed, `SKEP_CASES` the number of
//! programs, `SKEP_INPUTS` the number of inputs of each.

use std::collections::BTreeMap;

use crate::common::{Lab, cases, fail, first_seed, inputs, verified, verified_by};
use skep_testgen::{Flavour, Host, Options, Source, TestProgram, decided, iterated, mutated, washed, wild};

const FLAVOURS: [Flavour; 4] =
    [Flavour::Buffer { len: 64 }, Flavour::Buffer { len: 13 }, Flavour::Xdp, Flavour::Skb];

/// Number of inputs for each program: a range that is off by one shows only with the right number.
const INPUTS: u64 = 32;
/// Number of inputs for programs of loops.
const SOME_INPUTS: u64 = 6;
/// Number of inputs for larger programs.
const FEW_INPUTS: u64 = 6;

#[test]
fn accepted_programs_never_touch_memory_outside_their_regions() {
    let mut labs = FLAVOURS.map(|flavour| Lab::new(Host::new(flavour)));
    let mut accepted = 0;
    let programs = cases(12_000);
    for seed in first_seed()..first_seed() + programs {
        let mut source = Source::from_seed(seed);
        let flavour = source.pick(&FLAVOURS);
        let options = Options { statements: 2 + source.below(20), ..Options::with_control(flavour) };
        let program = wild(&mut source, &options);
        let Some(at) = FLAVOURS.iter().position(|flavour| *flavour == program.flavour) else {
            unreachable!("wild makes programs of known flavours")
        };
        let lab = &mut labs[at];
        let Ok(verified) = verified(&program) else { continue };
        accepted += 1;
        if lab.agree(&program, &verified, inputs(INPUTS)).is_err() {
            fail(seed, &program, |program| disagreement(lab, program));
        }
    }
    println!("{accepted} of {programs} accepted");
    assert!(accepted * 20 >= programs, "only {accepted} of {programs}: the verifier refuses everything");
}

#[test]
fn accepted_mutants_stay_in_their_verifier_states() {
    let mut labs = FLAVOURS.map(|flavour| Lab::new(Host::new(flavour)));
    let mut accepted = 0;
    let programs = cases(5000);
    for seed in first_seed()..first_seed() + programs {
        let mut source = Source::from_seed(seed);
        let flavour = source.below(FLAVOURS.len() as u32) as usize;
        let options =
            Options { statements: 2 + source.below(30), ..Options::with_control(FLAVOURS[flavour]) };
        let program = mutated(&mut source, &options);
        let lab = &mut labs[flavour];
        let Ok(verified) = verified(&program) else { continue };
        accepted += 1;
        if lab.agree(&program, &verified, inputs(FEW_INPUTS)).is_err() {
            fail(seed, &program, |program| disagreement(lab, program));
        }
    }
    println!("{accepted} of {programs} accepted");
    assert!(accepted * 20 >= programs, "only {accepted} of {programs}: the verifier refuses everything");
}

#[test]
fn numbers_that_decide_keep_paths_apart() {
    let mut lab = Lab::new(Host::new(FLAVOURS[0]));
    let mut accepted = 0;
    let programs = cases(6000);
    for seed in first_seed()..first_seed() + programs {
        let program = decided(&mut Source::from_seed(seed));
        let Ok(verified) = verified(&program) else { continue };
        accepted += 1;
        if lab.agree(&program, &verified, inputs(INPUTS)).is_err() {
            fail(seed, &program, |program| disagreement(&mut lab, program));
        }
    }
    println!("{accepted} of {programs} accepted");
    assert!(accepted * 20 >= programs, "only {accepted} of {programs}: the verifier refuses everything");
}

#[test]
fn numbers_in_iterating_constructs_stay_in_their_verifier_states() {
    let mut lab = Lab::new(Host::new(FLAVOURS[0]));
    // Loops that only the verifier's bound ends show within a few iterations what they do.
    lab.fuel = 20_000;
    let (mut accepted, mut refusals) = (0, BTreeMap::<String, u64>::new());
    let programs = cases(2000);
    for seed in first_seed()..first_seed() + programs {
        let program = iterated(&mut Source::from_seed(seed));
        let walked = match verified(&program) {
            Ok(walked) => walked,
            Err(refusal) => {
                *refusals.entry(refusal.code.name().to_owned()).or_default() += 1;
                continue;
            }
        };
        accepted += 1;
        if lab.is_sound(&program, &walked, inputs(SOME_INPUTS)).is_err() {
            fail(seed, &program, |program| {
                let walked = verified(program).ok()?;
                lab.is_sound(program, &walked, inputs(SOME_INPUTS)).err()
            });
        }
    }
    println!("{accepted} of {programs} accepted; refused: {refusals:?}");
    assert!(accepted * 4 >= programs, "only {accepted} of {programs}: the verifier refuses everything");
}

#[test]
fn addresses_that_became_numbers_stay_numbers() {
    let mut lab = Lab::new(Host::new(FLAVOURS[0]));
    let (mut accepted, mut as_numbers, mut refused) = (0, 0, 0);
    let programs = cases(6000);
    for seed in first_seed()..first_seed() + programs {
        let probe = washed(&mut Source::from_seed(seed));
        let program = &probe.program;
        let Ok(privileged) = verified_by(program, true) else {
            refused += u64::from(probe.uses_a_number);
            continue;
        };
        accepted += 1;
        as_numbers += u64::from(verified(program).is_err());
        assert!(!probe.uses_a_number, "seed {seed}: uses a number as an address\n{program}");
        if lab.is_sound(program, &privileged, inputs(FEW_INPUTS)).is_err() {
            fail(seed, program, |program| {
                let privileged = verified_by(program, true).ok()?;
                lab.is_sound(program, &privileged, inputs(FEW_INPUTS)).err()
            });
        }
    }
    println!(
        "{accepted} of {programs} accepted, {as_numbers} only if privileged; {refused} use numbers as addresses"
    );
    assert!(as_numbers * 5 >= programs && refused * 10 >= programs, "{accepted}, {as_numbers}, {refused}");
}

/// The defect that an accepted program shows, if any.
fn disagreement(lab: &mut Lab, program: &TestProgram) -> Option<String> {
    let verified = verified(program).ok()?;
    lab.agree(program, &verified, inputs(INPUTS)).err()
}
