//! The structure of programs: jumps, functions, calls, loops, limits.

use crate::common::{accepted, from_insns, kind, program, refused};
use skep_abi::Function;
use skep_isa::{Insn, Reg};
use skep_verifier::{Code, Config, verify};

#[test]
fn control_may_not_leave_a_function() {
    refused("xdp", "r0 = 0", Code::Structure, "falls off the end");
    refused("xdp", "r0 = 0\ngoto +5\nexit", Code::Structure, "out of its function");
    refused("xdp", "r0 = 0\ngoto -5\nexit", Code::Structure, "out of its function");
    refused("xdp", "r0 = 0\nif r0 == 0 goto -1", Code::Structure, "falls off the end");
    // Into another function, or falling into it.
    refused("xdp", "call f\nexit\nf: r0 = 0\nexit\ngoto -5", Code::Structure, "out of its function");
    refused("xdp", "call f\nr0 = 0\nf: r0 = 0\nexit", Code::Structure, "falls off the end");
}

#[test]
fn no_jump_leads_into_a_wide_load() {
    refused("xdp", "r0 = 0\ngoto +1\nr1 = 0x100000000 ll\nexit", Code::Structure, "middle of a 64-bit");
    let halves = vec![Insn::LoadImm64Tail, Insn::Exit];
    let refusal = verify(from_insns(kind("xdp"), halves), &Config::default()).unwrap_err();
    assert!(refusal.reason.contains("stands alone"), "{refusal}");
    let value = skep_isa::Imm64::Value(7);
    let half = vec![Insn::LoadImm64 { dst: Reg::R0, value }, Insn::Exit];
    let refusal = verify(from_insns(kind("xdp"), half), &Config::default()).unwrap_err();
    assert!(refusal.reason.contains("lacks its second slot"), "{refusal}");
}

#[test]
fn functions_must_be_whole_and_in_order() {
    let broken = |functions: Vec<Function>, insns: Vec<Insn>| {
        let mut unverified = from_insns(kind("xdp"), insns);
        unverified.source.functions = functions;
        *verify(unverified, &Config::default()).unwrap_err()
    };
    let function = |start| Function::new(format!("f{start}"), start, false);
    let two = skep_isa::assemble("r0 = 0\nexit").unwrap();
    assert_eq!(broken(vec![], two.clone()).code, Code::Structure);
    assert_eq!(broken(vec![function(1)], two.clone()).code, Code::Structure);
    assert_eq!(broken(vec![function(0), function(0)], two.clone()).code, Code::Structure);
    assert_eq!(broken(vec![function(0), function(2)], two.clone()).code, Code::Structure);
    assert_eq!(broken(vec![function(0), function(9), function(1)], two).code, Code::Structure);
    assert_eq!(broken(vec![function(0)], vec![]).code, Code::Structure);
}

#[test]
fn calls_lead_to_functions_and_never_back() {
    let mut unverified = program(kind("xdp"), "call f\nexit\nf: r0 = 0\nexit");
    unverified.source.functions.truncate(1);
    let refusal = verify(unverified, &Config::default()).unwrap_err();
    assert!(refusal.reason.contains("start of a function"), "{refusal}");
    refused("xdp", "call f\nexit\nf: call f\nexit", Code::Structure, "recursive");
    refused("xdp", "call f\nexit\nf: call g\nexit\ng: call f\nexit", Code::Structure, "recursive");
}

#[test]
fn unreachable_code_is_removed_and_not_checked() {
    let verified = accepted("xdp", "r0 = 2\nexit\nr1 = *(u64 *)(r9 + 0)\nexit");
    let reached: Vec<bool> = verified.facts().iter().map(|fact| fact.reached).collect();
    assert_eq!(reached, [true, true, false, false]);
}

#[test]
fn callees_may_not_leave_their_stack_s_address_to_callers() {
    accepted(
        "xdp",
        "r1 = r10\nr1 += -8\ncall f\nr0 = *(u64 *)(r10 - 8)\nexit\nf: *(u64 *)(r1 + 0) = 5\nr0 = 0\nexit",
    );
    refused(
        "xdp",
        "r1 = r10\nr1 += -8\ncall f\nr0 = 0\nexit\nf: *(u64 *)(r1 + 0) = r10\nr0 = 0\nexit",
        Code::PointerLeak,
        "outlives",
    );
    refused("xdp", "call f\nr0 = 0\nexit\nf: r0 = r10\nexit", Code::Return, "its own stack");
    // An address of the caller's stack may be returned.
    accepted(
        "xdp",
        "*(u64 *)(r10 - 8) = 1\nr1 = r10\nr1 += -8\ncall f\nr0 = *(u64 *)(r0 + 0)\nexit\nf: r0 = r1\nexit",
    );
    // A callee's stores to its frame are not visible in the next callee's.
    let verified = accepted(
        "xdp",
        "call f\ncall g\nexit\nf: *(u64 *)(r10 - 8) = 1\nr0 = 0\nexit\ng: r0 = *(u64 *)(r10 - 8)\nexit",
    );
    let zeroed: Vec<_> = verified.functions().iter().map(|function| function.zeroed).collect();
    assert_eq!(zeroed, [false, false, true]);
}

#[test]
fn at_most_eight_frames() {
    let chain = |calls: usize| {
        let mut text = String::new();
        for at in 0..calls {
            text += &format!("f{at}: call f{}\nexit\n", at + 1);
        }
        text + &format!("f{calls}: r0 = 0\nexit\n")
    };
    accepted("xdp", &chain(7));
    refused("xdp", &chain(8), Code::Stack, "8 frames");
}

#[test]
fn functions_use_only_the_stack_they_touch() {
    let verified = accepted(
        "xdp",
        "r1 = r10\nr1 += -20\ncall f\nr0 = 0\nexit\nf: *(u8 *)(r1 + 0) = 0\n*(u64 *)(r10 - 8) = 0\nr0 = 0\nexit",
    );
    let used: Vec<u32> = verified.functions().iter().map(|function| function.stack_bytes).collect();
    assert_eq!(used, [24, 8]);
    let verified = accepted("tc", "r2 = 0\nr3 = r10\nr3 += -61\nr4 = 4\ncall 26\nr0 = 0\nexit");
    assert_eq!(verified.functions()[0].stack_bytes, 64);
}

#[test]
fn bounded_loops_are_walked_to_their_end() {
    let verified = accepted("xdp", "r0 = 0\nnext: r0 += 1\nif r0 < 1000 goto next\nexit");
    assert_eq!(verified.stats().walked, 2002);
    assert!(verified.facts()[1].loop_head && verified.facts()[1].jump_target);
    accepted(
        "tc",
        "r2 = *(u32 *)(r1 + 0)\nr0 = 0\nnext: r0 += 1\nif r0 > 64 goto out\nif r0 < r2 goto next\nout: exit",
    );
}

#[test]
fn loops_that_may_never_end_are_found() {
    refused("xdp", "r0 = 0\nnext: goto next\nexit", Code::Loop, "may never end");
    refused("xdp", "goto -1", Code::Loop, "may never end");
    refused("xdp", "next: call 7\nif r0 != 0 goto next\nexit", Code::Loop, "constant bound");
    // Two backward jumps that alternate.
    refused(
        "xdp",
        "r0 = 0\nr1 = 0\na: r0 += 1\nr0 = 0\nif r1 == 0 goto a\nb: if r1 == 0 goto a\ngoto b",
        Code::Loop,
        "",
    );
    refused("xdp", "r0 = 0\na: r0 ^= 1\nif r0 != 0 goto b\ngoto a\nb: goto a", Code::Loop, "may never end");
    // Only a value that does not matter changes.
    refused(
        "tc",
        "r3 = 0\nnext: r3 += 1\nr2 = *(u32 *)(r1 + 0)\nif r2 != 7 goto next\nr0 = r3\nexit",
        Code::Loop,
        "",
    );
    // A value that matters changes for ever.
    refused("xdp", "r0 = 0\nnext: r0 += 1\nif r0 != -1 goto next\nexit", Code::Limit, "1000000 instructions");
}

#[test]
fn a_state_is_not_repeated_if_a_relevant_value_changed() {
    // A value that is unknown in the first iteration is known in the second, which ends the loop.
    let text = |load: &str, store: &str| {
        format!(
            "r6 = *(u64 *)(r1 + 0)\n*(u64 *)(r10 - 8) = r6\nnext: {load}\nif r6 == 5 goto +2\n{store}\ngoto next\nr0 = 0\nexit"
        )
    };
    accepted("raw", &text("r0 = 0", "r6 = 5"));
    accepted("raw", &text("r6 = *(u64 *)(r10 - 8)", "*(u64 *)(r10 - 8) = 5"));
    accepted(
        "tc",
        "r2 = 0\nr3 = r10\nr3 += -8\nr4 = 8\ncall 26\nnext: r6 = *(u8 *)(r10 - 8)\nif r6 == 0 goto +2\n\
         *(u8 *)(r10 - 8) = 0\ngoto next\nr0 = 0\nexit",
    );
    refused("raw", &text("r0 = 0", "r0 = 5"), Code::Loop, "");
    // An inner loop that is entered repeatedly with the same counter value.
    accepted(
        "xdp",
        "r6 = 0\nouter: r7 = 0\ninner: r7 += 1\nif r7 < 4 goto inner\nr6 += 1\nif r6 < 4 goto outer\nr0 = 0\nexit",
    );
}

#[test]
fn limits_hold_whatever_the_program_does() {
    let limited = |text: &str, walked, bytes| {
        let config = Config { max_walked: walked, max_state_bytes: bytes, ..Config::default() };
        verify(program(kind("tc"), text), &config)
    };
    let text = "r0 = 0\nnext: r0 += 1\nif r0 < 1000 goto next\nexit";
    assert!(limited(text, 2002, 1 << 20).is_ok());
    assert_eq!(limited(text, 2001, 1 << 20).unwrap_err().code, Code::Limit);
    // Little memory for remembered states slows the walk, but the verdict is the same.
    assert!(limited(text, 2002, 150_000).is_ok());
    // But it must hold the unfinished iterations.
    assert_eq!(limited(text, 2002, 10_000).unwrap_err().code, Code::Limit);
    // Pending paths cannot be dropped: each iteration adds one.
    let forks = "r6 = r1\nr0 = 0\nnext: r0 += 1\nr2 = *(u32 *)(r6 + 0)\nif r2 == 5 goto out\nif r0 < 100 goto next\nout: exit";
    assert!(limited(forks, 100_000, 1 << 20).is_ok());
    assert_eq!(limited(forks, 100_000, 20_000).unwrap_err().code, Code::Limit);
}

#[test]
fn joining_paths_are_walked_once_unless_a_relevant_value_differs() {
    // Twenty diamonds that leave nothing behind: a million paths, walked as one.
    let diamonds = |keep: &str| {
        let mut text = "r6 = r1\nr7 = 0\n".to_owned();
        for at in 0..20 {
            text += &format!("r2 = *(u32 *)(r6 + 0)\nif r2 == {at} goto +1\n{keep}\n");
        }
        text
    };
    let verified = accepted("tc", &format!("{}r0 = r7\nexit", diamonds("r7 += 1")));
    assert!(verified.stats().walked < 100, "{}", verified.stats().walked);
    // If the number is used as an index in the end, each of its values must be walked.
    let text =
        format!("{}r1 = map_value[1]+0x0 ll\nr1 += r7\nr0 = *(u8 *)(r1 + 0)\nexit", diamonds("r7 += 1"));
    let verified = accepted("tc", &text);
    assert!((100..10_000).contains(&verified.stats().walked), "{}", verified.stats().walked);
    refused("tc", &text.replace("r7 += 1", "r7 += 4"), Code::OutOfBounds, "64-byte value");
}

#[test]
fn irreducible_backward_jumps_are_walked_like_others() {
    // Blocks in reverse order: each pass over the program propagates facts by one block only.
    let blocks = 20_000;
    let mut text =
        format!("r0 = 0\nr6 = 1\n*(u64 *)(r10 - 8) = 0\ngotol b{blocks}\nb0: r0 = r6\nr0 += r7\nexit\n");
    for at in 1..=blocks {
        text += &format!("b{at}: r7 = *(u64 *)(r10 - 8)\ngoto b{}\n", at - 1);
    }
    let verified = accepted("xdp", &text);
    assert_eq!(verified.stats().walked, 4 + 2 * blocks + 3);
    assert_eq!(verified.functions()[0].stack_bytes, 8);
}

#[test]
fn programs_made_to_explode_are_stopped_by_a_limit() {
    // Eight frames of 64 spilled values each, all of them live, under a loop whose states never repeat.
    let mut text = String::new();
    for frame in 0..8 {
        text += &format!("f{frame}:\n");
        for slot in 1..=64 {
            text += &format!("call 7\n*(u64 *)(r10 - {}) = r0\n", slot * 8);
        }
        if frame < 7 {
            text += &format!("r1 = r10\ncall f{}\nr0 = 0\nexit\n", frame + 1);
        }
    }
    text += "r6 = 0\nnext: r6 += 1\ncall 7\nif r0 == 5 goto +1\nr6 += 1\nr7 = r10\nr7 += -512\nr8 = *(u64 *)(r7 + 0)\n\
             if r6 < 1000000 goto next\nr0 = r8\nexit\n";
    refused("xdp", &text, Code::Limit, "");
    // Each step makes another number or does not: 2^30 numbers that all matter.
    let mut text = "r6 = 1\n".to_owned();
    for step in 0..30 {
        text += &format!("call 7\nr0 &= 1\nif r0 == 0 goto +2\nr6 *= 5\nr6 += {step}\n");
    }
    text += "if r6 != 7 goto +1\nr0 = r9\nr0 = 0\nexit";
    refused("xdp", &text, Code::Limit, "");
}
