//! What programs execute, counted in three ways: each instruction by itself, and at few places by both engines.
//! `SKEP_SEED` sets the first seed, `SKEP_CASES` the number of programs.

use crate::common::{Lab, cases, fail, first_seed, verified};
use skep_abi::CountsLink;
use skep_isa::Insn;
use skep_testgen::{End, Flavour, Host, Options, Source, TestProgram, structured, with_throws};
use skep_verifier::Verified;

const FLAVOURS: [Flavour; 3] = [Flavour::Buffer { len: 64 }, Flavour::Xdp, Flavour::Skb];

/// Inputs for each program: counts add up.
const INPUTS: u64 = 3;

#[test]
fn both_engines_count_what_each_instruction_counted_by_itself_says() {
    let mut labs = FLAVOURS.map(|flavour| Lab::new(Host::new(flavour)));
    let (mut compared, mut branches) = (0, 0);
    let programs = cases(2500);
    for seed in first_seed()..first_seed() + programs {
        let mut source = Source::from_seed(seed);
        let flavour = source.below(FLAVOURS.len() as u32) as usize;
        let options =
            Options { statements: 2 + source.below(60), ..Options::with_control(FLAVOURS[flavour]) };
        let mut program = structured(&mut source, &options);
        if source.chance(20) {
            program = with_throws(program, &mut source).0;
        }
        let end = source.chance(40).then(|| End { units: 1 + source.below(3000) as i32, call: 0 });
        let lab = &mut labs[flavour];
        lab.host.set_end(end);
        match difference(lab, &program, seed, end) {
            Ok(None) => {}
            Ok(Some(jumps)) => (compared, branches) = (compared + 1, branches + jumps),
            Err(_) => fail(seed, &program, |program| difference(lab, program, seed, end).err()),
        }
    }
    println!("{compared} programs with {branches} jumps that were taken on both sides");
    assert!(programs < 1000 || compared * 3 > programs && branches > 500, "{compared}, {branches}");
}

fn counters(program: &Verified, ends: &[u32]) -> CountsLink {
    let starts = program.functions().iter().map(|function| function.start as usize);
    let facts = program.facts();
    CountsLink::new(program.insns(), |slot| facts[slot].reached, starts, |helper| ends.contains(&helper))
}

/// How many jumps were taken on both sides; `None` if the program is refused or would run for too long.
fn difference(
    lab: &mut Lab,
    program: &TestProgram,
    seed: u64,
    end: Option<End>,
) -> Result<Option<usize>, String> {
    let Ok(accepted) = verified(program) else { return Ok(None) };
    lab.set_hints(program);
    let ends = lab.host.linkage().ends.as_ref().map(|ends| ends.after.clone()).unwrap_or_default();
    lab.counts = None;
    let plain = lab.interpreter(&accepted)?;
    let (by_interpreter, by_code) = (counters(&accepted, &ends), counters(&accepted, &ends));
    lab.counts = Some(by_interpreter.clone());
    let interpreter = lab.interpreter(&accepted)?;
    lab.counts = Some(by_code.clone());
    let compiled = lab.compiled(&accepted)?;
    lab.counts = None;
    let mut expected = vec![0; accepted.insns().len()];
    for input in seed..seed + INPUTS {
        // A run that ends early is short. Another one may take long only in these loops.
        if end.is_none() && crate::common::has_long_loops(program) {
            return Ok(None);
        }
        lab.reset(input);
        // SAFETY: the host's memory, maps and helpers outlive the run, and the run starts as the program was verified.
        lab.host.run(|r1, r2, env| unsafe { plain.run_counted(r1, r2, env, &mut expected) });
        lab.interpret(&interpreter, input);
        lab.execute(&compiled, input);
    }
    for (engine, counts) in [("the interpreter", &by_interpreter), ("compiled code", &by_code)] {
        for (slot, (expected, found)) in expected.iter().zip(counts.executions()).enumerate() {
            match found {
                Some(found) if found == *expected => {}
                None if *expected == 0 || accepted.insns()[slot] == Insn::LoadImm64Tail => {}
                found => return Err(format!("slot {slot}: {expected} executions, {found:?} by {engine}")),
            }
        }
    }
    let branches = by_code.branches();
    if branches != by_interpreter.branches() {
        return Err("the engines count branches differently".to_owned());
    }
    for branch in &branches {
        let all = expected[branch.slot as usize];
        if branch.taken + branch.passed != all {
            return Err(format!("{branch:?} of {all} executions"));
        }
    }
    Ok(Some(branches.iter().filter(|branch| branch.taken > 0 && branch.passed > 0).count()))
}
