//! Random programs that end by exceptions inside their functions: they are accepted, each concrete state is in a
//! verifier state, and all engines agree. `SKEP_SEED` sets the first seed, `SKEP_CASES` the number of programs.

use crate::common::{Lab, cases, fail, first_seed, verified};
use skep_testgen::{Flavour, Host, Options, Source, TestProgram, structured, with_throws};

const FLAVOURS: [Flavour; 3] = [Flavour::Buffer { len: 64 }, Flavour::Xdp, Flavour::Skb];

/// Number of inputs for each program.
const INPUTS: u64 = 4;

#[test]
fn exceptions_end_programs_equally_in_every_engine() {
    let mut labs = FLAVOURS.map(|flavour| Lab::new(Host::new(flavour)));
    let (mut throwing, mut from_functions) = (0u64, 0u64);
    let programs = cases(1500);
    for seed in first_seed()..first_seed() + programs {
        let mut source = Source::from_seed(seed);
        let flavour = source.below(FLAVOURS.len() as u32) as usize;
        let options =
            Options { statements: 10 + source.below(60), ..Options::with_control(FLAVOURS[flavour]) };
        let (program, throws) = with_throws(structured(&mut source, &options), &mut source);
        let Ok(verified) = verified(&program) else { continue };
        if throws == 0 || !verified.functions().iter().any(|function| function.may_throw) {
            continue;
        }
        throwing += 1;
        from_functions += u64::from(verified.functions()[1..].iter().any(|function| function.may_throw));
        let lab = &mut labs[flavour];
        (lab.options.landing_pads, lab.options.signed_returns) = (seed % 4 == 0, seed % 4 == 0);
        if lab.agree(&program, &verified, INPUTS).is_err() {
            fail(seed, &program, |program| disagreement(lab, program));
        }
    }
    println!("{throwing} of {programs} throw, {from_functions} from functions of theirs");
    assert!(programs < 1000 || from_functions * 40 > programs, "{from_functions} of {programs}");
}

/// The defect that an accepted program shows, if any.
fn disagreement(lab: &mut Lab, program: &TestProgram) -> Option<String> {
    let verified = verified(program).ok()?;
    lab.agree(program, &verified, INPUTS).err()
}
