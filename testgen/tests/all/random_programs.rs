//! Compares compiled code with the interpreter on random programs. `SKEP_SEED` sets the first seed, `SKEP_CASES` the
//! number of programs.

use std::collections::BTreeMap;

use crate::common::{Lab, cases, fail, first_seed, verified};
use skep_jit::Passes;
use skep_testgen::{Flavour, Host, Options, Source, TestProgram, structured};

const FLAVOURS: [Flavour; 4] =
    [Flavour::Buffer { len: 64 }, Flavour::Buffer { len: 256 }, Flavour::Buffer { len: 13 }, Flavour::Xdp];

/// Number of inputs for each program.
const INPUTS: u64 = 4;

/// The reasons of refusals, with their counts.
#[derive(Default)]
struct Refusals(BTreeMap<String, u64>);

impl Refusals {
    fn count(&mut self, refusal: &skep_verifier::Refusal) {
        *self.0.entry(refusal.code.name().into()).or_default() += 1;
    }
}

#[test]
fn interpreter_and_jit_agree_on_random_verified_programs() {
    let mut labs = FLAVOURS.map(|flavour| Lab::new(Host::new(flavour)));
    let (mut accepted, mut refusals) = (0, Refusals::default());
    let programs = cases(3000);
    for seed in first_seed()..first_seed() + programs {
        let mut source = Source::from_seed(seed);
        let flavour = source.below(FLAVOURS.len() as u32) as usize;
        let options = Options { statements: 2 + source.below(60), ..Options::all(FLAVOURS[flavour]) };
        let program = structured(&mut source, &options);
        let lab = &mut labs[flavour];
        // A program in four is hardened.
        (lab.options.landing_pads, lab.options.signed_returns) = (seed % 4 == 0, seed % 4 == 0);
        // One in three is compiled as those of strangers are.
        let defended = seed % 3 == 0;
        lab.options.blind_constants = defended;
        lab.options.mask_speculation = defended;
        lab.options.order_reloads = defended;
        lab.options.retpolines = defended;
        // And one in five instruction by instruction.
        lab.options.passes = if seed % 5 == 0 { Passes::NONE } else { Passes::ALL };
        match verified(&program) {
            Err(refusal) => {
                refusals.count(&refusal);
                if std::env::var_os("SKEP_SHOW_REFUSED").is_some() {
                    println!("seed {seed}: {refusal}");
                }
            }
            Ok(verified) => {
                accepted += 1;
                if lab.agree(&program, &verified, INPUTS).is_err() {
                    fail(seed, &program, |program| disagreement(lab, program));
                }
            }
        }
    }
    println!("{accepted} of {programs} accepted; refused: {:?}", refusals.0);
    assert!(accepted * 10 >= programs * 9, "only {accepted} of {programs}: {:?}", refusals.0);
}

#[test]
fn programs_from_a_fuzzer_s_bytes_are_accepted_and_agree() {
    let mut lab = Lab::new(Host::new(FLAVOURS[0]));
    let options = Options::all(FLAVOURS[0]);
    let mut accepted = 0;
    for seed in 0..300 {
        let mut source = Source::from_seed(seed);
        let bytes: Vec<u8> = (0..source.below(600)).map(|_| source.below(256) as u8).collect();
        let program = structured(&mut Source::from_bytes(&bytes), &options);
        let Ok(verified) = verified(&program) else { continue };
        accepted += 1;
        if let Err(reason) = lab.agree(&program, &verified, 1) {
            panic!("bytes {bytes:?}: {reason}\n{program}");
        }
    }
    assert!(accepted > 250, "only {accepted} of 300");
}

/// The defect that an accepted program shows, if any.
fn disagreement(lab: &mut Lab, program: &TestProgram) -> Option<String> {
    let verified = verified(program).ok()?;
    lab.agree(program, &verified, INPUTS).err()
}
