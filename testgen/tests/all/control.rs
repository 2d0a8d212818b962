//! Random programs with functions that helpers call, timers, loops over iterators, `may_goto`, legacy packet loads,
//! and maps of maps: they are accepted, each concrete state is in a verifier state, and all engines agree.
//! `SKEP_SEED` sets the first seed, `SKEP_CASES` the number of programs.

use std::collections::BTreeMap;

use crate::common::{Lab, cases, fail, first_seed, verified};
use skep_isa::{CallTarget, Imm64, Insn};
use skep_testgen::{Flavour, Host, Options, Source, TestProgram, maps, structured};

const FLAVOURS: [Flavour; 4] =
    [Flavour::Buffer { len: 64 }, Flavour::Buffer { len: 13 }, Flavour::Xdp, Flavour::Skb];

/// Linux's `bpf_timer_set_callback`.
const SET_CALLBACK: u32 = 170;
/// Number of inputs for each program.
const INPUTS: u64 = 4;

#[test]
fn engines_agree_on_callbacks_loops_and_legacy_loads() {
    let mut labs = FLAVOURS.map(|flavour| Lab::new(Host::new(flavour)));
    let (mut accepted, mut refusals) = (0, BTreeMap::<String, u64>::new());
    let mut seen = [0u64; 6];
    let programs = cases(3000);
    for seed in first_seed()..first_seed() + programs {
        let mut source = Source::from_seed(seed);
        let flavour = source.below(FLAVOURS.len() as u32) as usize;
        let options =
            Options { statements: 2 + source.below(40), ..Options::with_control(FLAVOURS[flavour]) };
        let program = structured(&mut source, &options);
        let lab = &mut labs[flavour];
        (lab.options.landing_pads, lab.options.signed_returns) = (seed % 4 == 0, seed % 4 == 0);
        match verified(&program) {
            Err(refusal) => {
                *refusals.entry(refusal.code.name().into()).or_default() += 1;
                if std::env::var_os("SKEP_SHOW_REFUSED").is_some() {
                    println!("seed {seed}: {refusal}");
                }
            }
            Ok(verified) => {
                accepted += 1;
                for (count, kind) in seen.iter_mut().zip(kinds(&program)) {
                    *count += u64::from(kind);
                }
                if lab.agree(&program, &verified, INPUTS).is_err() {
                    fail(seed, &program, |program| disagreement(lab, program));
                }
            }
        }
    }
    println!(
        "{accepted} of {programs} accepted; refused: {refusals:?}; callbacks, may_goto, loads, maps in maps, iterators, timers: {seen:?}"
    );
    assert!(accepted * 10 >= programs * 8, "only {accepted} of {programs}: {refusals:?}");
    assert!(programs < 1000 || seen.iter().all(|count| count * 40 > programs), "{seen:?}");
}

/// Whether it has callbacks, `may_goto`, legacy packet loads, maps of maps, iterators, timer callbacks.
fn kinds(program: &TestProgram) -> [bool; 6] {
    let outer = maps().iter().position(|def| def.inner.is_some()).expect("there is one") as u32;
    let has = |wanted: &dyn Fn(&Insn) -> bool| program.insns.iter().any(wanted);
    [
        has(&|insn| matches!(insn, Insn::LoadImm64 { value: Imm64::Function(_), .. }))
            && has(&|insn| matches!(insn, Insn::Call { target: CallTarget::Helper(_) })),
        has(&|insn| matches!(insn, Insn::MayGoto { .. })),
        has(&|insn| matches!(insn, Insn::LoadPacket { .. })),
        has(&|insn| matches!(insn, Insn::LoadImm64 { value: Imm64::Map(map), .. } if *map == outer)),
        has(&|insn| matches!(insn, Insn::Call { target: CallTarget::Kfunc { .. } })),
        has(&|insn| *insn == Insn::Call { target: CallTarget::Helper(SET_CALLBACK) }),
    ]
}

/// The defect that an accepted program shows, if any.
fn disagreement(lab: &mut Lab, program: &TestProgram) -> Option<String> {
    let verified = verified(program).ok()?;
    lab.agree(program, &verified, INPUTS).err()
}
