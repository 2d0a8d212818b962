//! Control flow: `may_goto`, legacy packet loads, tail calls, chains of calls, results.

use crate::common::{accepted, kind, program, refused};
use skep_abi::{ProgramType, Results};
use skep_isa::Insn;
use skep_verifier::{CallFact, Code, Config, verify};

/// A loop with `may_goto` around `body`.
fn may_goto(before: &str, body: &str, after: &str) -> String {
    format!("{before}\nagain:\nmay_goto out\n{body}\ngoto again\nout:\n{after}\nexit")
}

#[test]
fn a_loop_with_may_goto_ends() {
    let walked = accepted("xdp", &may_goto("", "r0 = 0", "r0 = 0")).stats().walked;
    assert!(walked < 20, "{walked}");
    // The counter in its body may have any value.
    let walked = accepted("xdp", &may_goto("r6 = 0", "r6 += 1", "if r6 > 5 goto +0\nr0 = r6")).stats().walked;
    assert!(walked < 30, "{walked}");
    accepted("xdp", &may_goto("", "r7 = 0\ninner:\nmay_goto again\nr7 += 1\ngoto inner", "r0 = 0"));
    // That does not bound another loop inside of it.
    refused("xdp", &may_goto("", "inner:\ngoto inner", "r0 = 0"), Code::Loop, "never end");
    refused("xdp", "again:\nmay_goto out\nout:\ngoto again\nr0 = 0\nexit", Code::Loop, "never end");
}

#[test]
fn an_index_in_a_loop_with_may_goto_needs_its_own_bound() {
    let body = |bound: &str| format!("{bound}\nr1 = r7\nr1 += r6\n*(u8 *)(r1 + 0) = 0\nr6 += 1");
    let before = "r6 = 0\nr7 = map_value[1]+0x0 ll";
    accepted("xdp", &may_goto(before, &body("if r6 >= 64 goto out"), "r0 = 0"));
    accepted("xdp", &may_goto(before, &body("if r6 == 64 goto out"), "r0 = 0"));
    refused("xdp", &may_goto(before, &body("if r6 >= 65 goto out"), "r0 = 0"), Code::OutOfBounds, "64");
    refused("xdp", &may_goto(before, &body(""), "r0 = 0"), Code::OutOfBounds, "64");
}

#[test]
fn may_goto_in_a_function_counts_for_that_call() {
    let text = "call f\ncall f\nr0 = 0\nexit\nf:\nmay_goto out\ngoto f\nout:\nr0 = 0\nexit";
    accepted("xdp", text);
    // Each call starts with a new budget, so the loop around it makes no progress.
    let text = "again:\ncall f\ngoto again\nf:\nmay_goto out\ngoto f\nout:\nr0 = 0\nexit";
    refused("xdp", text, Code::Loop, "never end");
}

#[test]
fn long_jumps_are_jumps() {
    accepted("xdp", "r6 = 0\nagain:\nr6 += 1\nif r6 > 10 goto out\ngotol again\nout:\nr0 = 0\nexit");
    refused("xdp", "again:\ngotol again\nr0 = 0\nexit", Code::Loop, "never end");
}

#[test]
fn legacy_packet_loads_give_numbers_of_their_size() {
    accepted("tc", "r6 = r1\nr0 = *(u16 *)skb[12]\nexit");
    accepted(
        "socket",
        "r6 = r1\nr7 = 14\nr0 = *(u8 *)skb[r7 + 0]\nr2 = map_value[1]+0x0 ll\nr0 &= 63\nr2 += r0\nr0 = *(u8 *)(r2 + 0)\nexit",
    );
    refused("xdp", "r6 = r1\nr0 = *(u16 *)skb[12]\nexit", Code::Context, "traffic control");
    refused("tc", "r6 = 0\nr0 = *(u16 *)skb[12]\nexit", Code::Argument, "the context, unchanged, in r6");
    refused("tc", "r6 = r1\nr7 = r10\nr0 = *(u16 *)skb[r7 + 0]\nexit", Code::Argument, "a number");
    refused("tc", "r6 = r1\nr0 = *(u16 *)skb[12]\nr0 = r1\nexit", Code::Uninitialised, "r1");
    refused(
        "socket",
        "r6 = r1\nr0 = *(u8 *)skb[12]\nr2 = map_value[1]+0x0 ll\nr2 += r0\nr0 = *(u8 *)(r2 + 0)\nexit",
        Code::OutOfBounds,
        "0..=255",
    );
}

#[test]
fn a_function_that_loads_a_packet_may_return_zero() {
    let text = |limit: u32| {
        format!(
            "call f\nr0 -= {limit}\nr2 = map_value[1]+0x0 ll\nr2 += r0\nr0 = *(u8 *)(r2 + 0)\nexit\n\
             f:\nr6 = r1\nr0 = *(u8 *)skb[12]\nr0 = 9\nexit"
        )
    };
    accepted("tc", &text(0));
    refused("tc", &text(9), Code::OutOfBounds, "-9");
}

#[test]
fn tail_calls_take_context_program_array_and_index() {
    accepted("xdp", "r2 = map[4] ll\nr3 = 0\ncall 12\nr0 = 0\nexit");
    refused("xdp", "r2 = map[4] ll\nr3 = 0\ncall 12\nexit", Code::Uninitialised, "");
    refused("xdp", "r2 = map[4] ll\nr3 = 0\ncall 12\nr0 = r1\nexit", Code::Uninitialised, "r1");
    refused(
        "xdp",
        "r2 = map[1] ll\nr3 = 0\ncall 12\nr0 = 0\nexit",
        Code::Argument,
        "tail_call does not work on the map bss",
    );
    refused("xdp", "r2 = map[4] ll\nr3 = r10\ncall 12\nr0 = 0\nexit", Code::Argument, "number");
    refused("xdp", "r1 = 0\nr2 = map[4] ll\nr3 = 0\ncall 12\nr0 = 0\nexit", Code::Argument, "context");
    accepted("xdp", "r6 = 7\nr2 = map[4] ll\nr3 = 0\ncall 12\nr0 = r6\nexit");
    // The code after the tail call is walked.
    refused("xdp", "r2 = map[4] ll\nr3 = 0\ncall 12\nr0 = *(u8 *)(r10 + 0)\nexit", Code::OutOfBounds, "r10");
    let held = "r6 = r1\nr1 = map[6] ll\nr2 = 8\nr3 = 0\ncall 131\nif r0 == 0 goto out\nr7 = r0\nr1 = r6\n\
                r2 = map[4] ll\nr3 = 0\ncall 12\nr1 = r7\nr2 = 0\ncall 132\nout:\nr0 = 0\nexit";
    refused("xdp", held, Code::Resource, "tail call");
}

#[test]
fn a_tail_call_with_constant_map_and_index_says_so() {
    let fact = |text: &str| {
        let verified = accepted("xdp", text);
        let call = verified.insns().iter().position(|insn| matches!(insn, Insn::Call { .. }));
        verified.facts()[call.expect("a call")].call
    };
    let text = "r2 = map[4] ll\nr3 = 5\ncall 12\nr0 = 0\nexit";
    assert_eq!(fact(text), Some(CallFact { map: Some(4), key: Some(5), in_bounds: false }));
    let text = "r3 = *(u32 *)(r1 + 12)\nr2 = map[4] ll\ncall 12\nr0 = 0\nexit";
    assert_eq!(fact(text), Some(CallFact { map: Some(4), key: None, in_bounds: false }));
    let text =
        "r4 = *(u32 *)(r1 + 12)\nr3 = 5\nif r4 == 9 goto +1\nr3 = 6\nr2 = map[4] ll\ncall 12\nr0 = 0\nexit";
    assert_eq!(fact(text), Some(CallFact { map: Some(4), key: None, in_bounds: false }));
    let text =
        "r4 = *(u32 *)(r1 + 12)\nr3 = 5\nif r4 == 9 goto +1\nr3 = 5\nr2 = map[4] ll\ncall 12\nr0 = 0\nexit";
    assert_eq!(fact(text), Some(CallFact { map: Some(4), key: Some(5), in_bounds: false }));
}

#[test]
fn a_chain_of_calls_has_512_bytes_of_stack() {
    let chain = |a: u32, b: u32| {
        format!("*(u8 *)(r10 - {a}) = 0\ncall f\nr0 = 0\nexit\nf:\n*(u8 *)(r10 - {b}) = 0\nr0 = 0\nexit")
    };
    accepted("xdp", &chain(496, 16));
    accepted("xdp", &chain(480, 32));
    refused("xdp", &chain(480, 33), Code::Stack, "528 in f0 (480) -> f4 (48)");
    refused("xdp", &chain(497, 8), Code::Stack, "528");
    // Functions that are called one after the other share stack.
    let text = "*(u8 *)(r10 - 200) = 0\ncall f\ncall g\nr0 = 0\nexit\nf:\n*(u8 *)(r10 - 300) = 0\nr0 = 0\nexit\n\
                g:\n*(u8 *)(r10 - 300) = 0\nr0 = 0\nexit";
    accepted("xdp", text);
    // A callback's frame adds to that of its caller.
    let text = "*(u8 *)(r10 - 200) = 0\nr1 = 9\nr2 = func[f] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\n\
                f:\n*(u8 *)(r10 - 400) = 0\nr0 = 0\nexit";
    refused("xdp", text, Code::Stack, "608");
}

#[test]
fn callers_of_tail_calling_functions_have_half_the_stack() {
    let text = |bytes: u32| {
        format!(
            "*(u8 *)(r10 - {bytes}) = 0\ncall f\nr0 = 0\nexit\n\
             f:\n*(u8 *)(r10 - 200) = 0\nr2 = map[4] ll\nr3 = 0\ncall 12\nr0 = 0\nexit"
        )
    };
    accepted("xdp", &text(240));
    refused("xdp", &text(241), Code::Stack, "found 256 in");
    // The main function has no callers.
    accepted("xdp", "*(u8 *)(r10 - 512) = 0\nr2 = map[4] ll\nr3 = 0\ncall 12\nr0 = 0\nexit");
}

#[test]
fn calls_nest_eight_frames_deep() {
    let nested = |depth: usize| {
        let functions = (1..=depth).map(|at| {
            let call = if at < depth { format!("call f{}\n", at + 1) } else { String::new() };
            format!("f{at}:\n{call}r0 = 0\nexit\n")
        });
        format!("call f1\nr0 = 0\nexit\n{}", functions.collect::<String>())
    };
    accepted("xdp", &nested(7));
    refused("xdp", &nested(8), Code::Stack, "8 frames");
}

#[test]
fn results_are_in_the_range_of_the_type() {
    static LIMITED: ProgramType = ProgramType {
        name: "limited",
        results: Results::Range { min: 0, max: 1 },
        context: skep_abi::XDP.context,
        helpers: skep_abi::XDP.helpers,
        ..ProgramType::PLAIN
    };
    let outcome = |text: &str| {
        verify(program(&LIMITED, text), &Config::default()).map_err(|refusal| (refusal.code, refusal.reason))
    };
    assert!(outcome("r0 = 0\nexit").is_ok());
    assert!(outcome("r0 = 1\nexit").is_ok());
    let (code, reason) = outcome("r0 = 2\nexit").unwrap_err();
    assert_eq!(code, Code::Return);
    assert!(reason.contains("a number from 0 to 1") && reason.contains("found 2"), "{reason}");
    assert!(outcome("call 7\nexit").is_err());
    assert!(outcome("call 7\nr0 &= 1\nexit").is_ok());
    assert!(outcome("call 7\nif r0 > 1 goto +1\nexit\nr0 = 0\nexit").is_ok());
    // Both branches count, also where they meet again.
    assert!(outcome("r2 = *(u32 *)(r1 + 12)\nr0 = 1\nif r2 == 7 goto +1\nr0 = 3\nexit").is_err());
    assert!(outcome("r2 = *(u32 *)(r1 + 12)\nr0 = 3\nif r2 == 7 goto +1\nr0 = 1\nexit").is_err());
    assert!(verify(program(kind("xdp"), "r0 = -7\nexit"), &Config::default()).is_ok());
}

/// Timers: map 8 holds one at byte 16 of its values.
fn timer(callback: &str) -> String {
    format!(
        "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[8] ll\ncall 1\nif r0 == 0 goto out\nr1 = r0\n\
         r1 += 16\nr2 = func[cb] ll\ncall 170\nout:\nr0 = 0\nexit\ncb:\n{callback}\nexit"
    )
}

#[test]
fn the_callback_of_a_timer_is_walked_on_its_own() {
    accepted("tc", &timer("r0 = 0"));
    refused("tc", &timer("r0 = 1"), Code::Return, "expected 0");
    accepted("tc", &timer("r0 = *(u64 *)(r3 + 8)\nr0 = 0"));
    refused("tc", &timer("r0 = *(u64 *)(r3 + 48)\nr0 = 0"), Code::OutOfBounds, "48");
    refused("tc", &timer("r0 = r4"), Code::Uninitialised, "r4");
    // It may start its timer again.
    accepted("tc", &timer("r1 = r3\nr1 += 16\nr2 = func[cb] ll\ncall 170\nr0 = 0"));
    refused("tc", &timer("again:\ngoto again"), Code::Loop, "never end");
    // It has a stack of its own.
    let text = format!("*(u8 *)(r10 - 400) = 0\n{}", timer("*(u8 *)(r10 - 512) = 0\nr0 = 0"));
    accepted("tc", &text);
}

#[test]
fn an_endless_loop_inside_a_bounded_loop_is_refused() {
    // Two blocks that branch to each other, and both back to the head.
    let text = |to: &str| {
        format!(
            "head:\nmay_goto out\na:\ncall 7\nif r0 > 5 goto b\ngoto head\nb:\ncall 7\nif r0 > 5 goto {to}\n\
             goto head\nout:\nr0 = 0\nexit"
        )
    };
    accepted("xdp", &text("head"));
    refused("xdp", &text("a"), Code::Loop, "never end");
    refused("xdp", &text("b"), Code::Loop, "never end");
    // The same where a callback is between them.
    let text = |to: &str| {
        format!(
            "head:\nmay_goto out\na:\nr1 = 9\nr2 = func[f] ll\nr3 = 0\nr4 = 0\ncall 181\ncall 7\n\
             if r0 > 5 goto {to}\ngoto head\nout:\nr0 = 0\nexit\nf:\nr0 = 0\nexit"
        )
    };
    accepted("xdp", &text("head"));
    refused("xdp", &text("a"), Code::Loop, "never end");
}

#[test]
fn a_failed_speculation_leaves_no_trace() {
    // In the widened state r6 may be 6; in no execution is it.
    let text = "r6 = 0\nagain:\nmay_goto out\nif r6 > 5 goto bad\nif r6 == 5 goto out\nr6 += 1\ngoto again\n\
                bad:\nr0 = r9\nr0 = *(u8 *)(r10 - 1)\nout:\nr0 = 0\nexit";
    let verified = accepted("xdp", text);
    let bad = verified.insns().iter().position(|insn| matches!(insn, Insn::Load { .. })).expect("the load");
    assert!(!verified.facts()[bad].reached);
    assert!(!verified.facts()[bad].jump_target);
    // If it can be, the program is refused for that reason.
    let text = text
        .replace("if r6 == 5 goto out", "if r6 == 500000 goto out")
        .replace("r6 > 5 goto", "r6 > 400000 goto");
    refused("xdp", &text, Code::Uninitialised, "r9");
}
