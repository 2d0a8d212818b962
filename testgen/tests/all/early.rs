//! Random programs that end early, at any charge or call: every engine leaves the same state, and the same units.
//! Without an end they do what they do without checks. `SKEP_SEED` sets the first seed,
//! `SKEP_CASES` the number of programs.

use crate::common::{Lab, Outcome, cases, difference, fail, first_seed, verified};
use skep_testgen::{End, Flavour, Host, Options, Source, TestProgram, structured, with_throws};

const FLAVOURS: [Flavour; 3] = [Flavour::Buffer { len: 64 }, Flavour::Xdp, Flavour::Skb];

/// Units that most programs do not use up.
const MANY: i32 = 300_000;
/// Ends for each program.
const ENDS: u32 = 6;

/// What was tried.
#[derive(Default)]
struct Counts {
    whole: u64,
    short_of_units: u64,
    ended_by_calls: u64,
}

#[test]
fn programs_that_end_early_leave_the_same_state_in_every_engine() {
    let mut labs = FLAVOURS.map(|flavour| Lab::new(Host::new(flavour)));
    let mut counts = Counts::default();
    let programs = cases(1500);
    for seed in first_seed()..first_seed() + programs {
        let mut source = Source::from_seed(seed);
        let flavour = source.below(FLAVOURS.len() as u32) as usize;
        let options =
            Options { statements: 5 + source.below(60), ..Options::with_control(FLAVOURS[flavour]) };
        let mut program = structured(&mut source, &options);
        if source.chance(30) {
            program = with_throws(program, &mut source).0;
        }
        let lab = &mut labs[flavour];
        if let Some(text) = disagreement(lab, &program, seed, &mut counts) {
            drop(text);
            fail(seed, &program, |program| disagreement(lab, program, seed, &mut Counts::default()));
        }
    }
    let Counts { whole, short_of_units, ended_by_calls } = counts;
    println!("{whole} to their ends, {short_of_units} out of units, {ended_by_calls} by calls");
    let enough = [whole, short_of_units, ended_by_calls * 8].iter().all(|count| *count * 2 > programs);
    assert!(programs < 1000 || enough, "{whole}, {short_of_units}, {ended_by_calls}");
}

/// The defect that an accepted program shows, if any.
fn disagreement(lab: &mut Lab, program: &TestProgram, seed: u64, counts: &mut Counts) -> Option<String> {
    let verified = verified(program).ok()?;
    lab.set_hints(program);
    let input = seed;
    lab.host.set_end(None);
    let (plain, plainly) = (lab.interpreter(&verified).ok()?, lab.compiled(&verified).ok()?);
    lab.host.set_end(Some(End { units: MANY, call: 0 }));
    let (interpreter, compiled) = (lab.interpreter(&verified).ok()?, lab.compiled(&verified).ok()?);
    let both = |lab: &mut Lab, end: End| -> Result<Outcome, String> {
        lab.host.set_end(Some(end));
        let (mut a, mut b) = (lab.interpret(&interpreter, input), lab.execute(&compiled, input));
        if a.1.over.0 && b.1.over.0 {
            (a.0, b.0) = (0, 0); // means nothing
        }
        difference("the interpreter", &a, "compiled code", &b).map_err(|text| format!("{end:?}: {text}"))?;
        Ok(a)
    };
    let (used, wanted) = match both(lab, End { units: MANY, call: 0 }) {
        Err(text) => return Some(text),
        Ok((_, state)) if state.over.0 => (MANY, false),
        Ok((result, mut state)) => {
            counts.whole += 1;
            let used = MANY - state.over.1;
            // Without checks it does the same.
            state.over = (false, 0);
            lab.host.set_end(None);
            for (engine, outcome) in [
                ("the plain interpreter", lab.interpret(&plain, input)),
                ("plain code", lab.execute(&plainly, input)),
            ] {
                if let Err(text) = difference("checked code", &(result, state.clone()), engine, &outcome) {
                    return Some(text);
                }
            }
            (used, used > 0)
        }
    };
    let mut source = Source::from_seed(seed ^ 0xe9d);
    for turn in 0..ENDS {
        let end = match turn % 2 {
            0 => End { units: source.below(used.max(1) as u32) as i32, call: 0 },
            _ => {
                let most = 1 << source.below(3);
                End { units: MANY, call: 1 + u64::from(source.below(most)) }
            }
        };
        match both(lab, end) {
            Err(text) => return Some(text),
            Ok((_, state)) if turn % 2 == 0 => {
                if wanted && !state.over.0 {
                    return Some(format!("{end:?} did not end a run that uses {used}"));
                }
                counts.short_of_units += u64::from(state.over.0);
            }
            Ok((_, state)) => counts.ended_by_calls += u64::from(state.over.0),
        }
    }
    None
}
