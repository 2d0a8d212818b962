//! Programs written to take very long to verify: the limits hold, and work with a bound of its own needs none.

use crate::common::{accepted, check};
use skep_verifier::Code;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Verifies within the limits and in reasonable time, with either verdict.
#[track_caller]
fn bounded(text: &str) -> Option<Code> {
    let start = Instant::now();
    let outcome = check("xdp", text).map(|verified| verified.stats().walked).map_err(|refusal| *refusal);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let (walked, code) = match outcome {
        Ok(walked) => (walked, None),
        Err(refusal) => (refusal.walked, Some(refusal.code)),
    };
    // A refusal is confirmed by a second walk.
    assert!(walked <= 2_000_000, "{walked}");
    code
}

/// `depth` nested calls of `loop`, each with `iterations`; the innermost runs `body`, which has r6 and the context in
/// r2.
fn nested(depth: usize, iterations: u32, body: &str) -> String {
    let call = |to: usize| {
        format!(
            "r1 = {iterations}\nr2 = func[f{to}] ll\nr3 = r10\nr3 += -8\n*(u64 *)(r10 - 8) = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\n"
        )
    };
    let mut text = call(1);
    for at in 1..depth {
        let _ = write!(text, "f{at}:\n{}", call(at + 1));
    }
    let _ = write!(text, "f{depth}:\n{body}\nr0 = 0\nexit");
    text
}

#[test]
fn callbacks_nest_as_deep_as_frames() {
    for depth in 1..=7 {
        let walked = accepted("xdp", &nested(depth, 1_000_000, "r0 = 0")).stats().walked;
        assert!(walked < 60 * depth as u64, "{depth} deep: {walked}");
    }
    assert_eq!(bounded(&nested(8, 9, "r0 = 0")), Some(Code::Stack));
}

#[test]
fn sums_in_nested_callbacks_are_widened_in_few_iterations() {
    let body = "r1 = *(u64 *)(r2 + 0)\nr1 += 1\n*(u64 *)(r2 + 0) = r1";
    for depth in 1..=7 {
        let walked = accepted("xdp", &nested(depth, 1_000_000, body)).stats().walked;
        assert!(walked < 10_000, "{depth} deep: {walked}");
    }
}

#[test]
fn an_index_growing_in_nested_callbacks_is_refused() {
    let body = "r1 = *(u64 *)(r2 + 0)\nr3 = map_value[1]+0x0 ll\nr3 += r1\nr0 = *(u8 *)(r3 + 0)\nr1 += 1\n*(u64 *)(r2 + 0) = r1";
    for depth in [1, 4] {
        let code = bounded(&nested(depth, 1_000_000, body));
        assert!(
            matches!(code, Some(Code::OutOfBounds | Code::Limit | Code::PointerArithmetic)),
            "{depth}: {code:?}"
        );
        // Loops of few iterations are walked one by one.
        accepted("xdp", &nested(depth, 3, body));
    }
}

#[test]
fn distinct_states_of_many_branches_reach_a_limit() {
    // Each branch makes another number, and what the bits of all of them have in common says nothing about safety.
    let mut text = "r6 = *(u32 *)(r1 + 12)\nr7 = 1\n".to_owned();
    for bit in 0..40 {
        let _ =
            write!(text, "r2 = r6\nr2 >>= {}\nr2 &= 1\nif r2 == 0 goto +2\nr7 *= 5\nr7 += {bit}\n", bit % 30);
    }
    text += "if r7 != 7 goto +1\nr0 = r9\nr0 = 0\nexit";
    assert_eq!(bounded(&text), Some(Code::Limit));
    // In a callback as well, and in a loop with may_goto.
    let body = text.trim_end_matches("exit").replace("r6 = *(u32 *)(r1 + 12)", "call 7\nr6 = r0");
    assert_eq!(bounded(&nested(3, 9, &body)), Some(Code::Limit));
    bounded(&format!("again:\nmay_goto out\n{body}\ngoto again\nout:\nr0 = 0\nexit"));
}

#[test]
fn ten_thousand_joins_in_a_loop_are_walked_once() {
    let mut text = "r6 = *(u32 *)(r1 + 12)\nagain:\nmay_goto out\n".to_owned();
    for at in 0..10_000 {
        let _ = write!(text, "call 7\nif r0 > {at} goto +0\n");
    }
    text += "goto again\nout:\nr0 = 0\nexit";
    // The back edge is too far for a short jump.
    let text =
        text.replace("goto again", "gotol again").replace("may_goto out", "may_goto +1\ngoto +1\ngotol out");
    assert_eq!(bounded(&text), None);
}

#[test]
fn nested_loops_with_may_goto_are_bounded() {
    let mut text = "r6 = 0\n".to_owned();
    for at in 0..12 {
        let _ = write!(text, "l{at}:\nmay_goto o{at}\nr6 += {at}\n");
    }
    for at in (0..12).rev() {
        let _ = write!(text, "goto l{at}\no{at}:\n");
    }
    text += "r0 = r6\nexit";
    assert_eq!(bounded(&text), None);
}

#[test]
fn failed_speculations_in_every_iteration_count_as_work() {
    // A counter that must be known at the end of each of many inner loops.
    let text = "r6 = 0\nagain:\nmay_goto out\nr7 = 0\ninner:\nr7 += 1\nif r7 != 50 goto inner\nr8 = map_value[1]+0x0 ll\n\
                r8 += r7\nr1 = *(u8 *)(r8 + 0)\nr6 += r1\ngoto again\nout:\nr0 = 0\nexit";
    assert_eq!(bounded(text), None);
    let text = text.replace("r7 = 0\ninner", "r7 = r6\nr7 &= 31\ninner");
    bounded(&text);
}
