//! The verifier's knowledge of a number holds for every concrete value: it never treats a result that a program
//! really has as impossible. `SKEP_SEED` sets the first seed, `SKEP_CASES` the number of programs.

use crate::common::{Lab, cases, fail, first_seed, verified};
use skep_isa::Width;
use skep_testgen::{Flavour, Host, Question, Source, TestProgram};

/// Maximum number of inputs for each program.
const INPUTS: u64 = 24;

#[test]
fn real_results_are_never_treated_as_impossible() {
    let mut lab = Lab::new(Host::new(Flavour::Buffer { len: 64 }));
    let (mut accepted, mut told) = (0, 0);
    let programs = cases(6000);
    for seed in first_seed()..first_seed() + programs {
        let mut source = Source::from_seed(seed);
        let question = Question::random(&mut source);
        let program = question.returning();
        let Ok(returning) = verified(&program) else { continue };
        accepted += 1;
        let interpreter = lab.interpreter(&returning).unwrap();
        lab.set_hints(&program);
        let mut values: Vec<u64> = (0..INPUTS).map(|input| lab.interpret(&interpreter, input).0).collect();
        values.sort_unstable();
        values.dedup();
        told += values.len();
        for width in [Width::W64, Width::W32] {
            let program = question.recognising(&values, width);
            let problem = |lab: &mut Lab, program: &TestProgram| {
                let accepted = verified(program).ok()?;
                lab.agree(program, &accepted, INPUTS).err()
            };
            // Inputs derive from the numbers in the program; use those of the first program.
            lab.keep_hints();
            if problem(&mut lab, &program).is_some() {
                fail(seed, &program, |program| problem(&mut lab, program));
            }
        }
    }
    println!("{accepted} of {programs} accepted, {told} results");
    assert!(accepted * 10 > programs * 9, "only {accepted} of {programs}");
    assert!(told as u64 > 3 * programs, "only {told} different results of {programs} programs");
}
