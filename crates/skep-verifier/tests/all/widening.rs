//! Which numbers are widened, and where: only where a construct that ends by itself iterates, only where nothing but
//! numbers changed, and no number that a failed speculation showed to decide something.

use crate::common::{accepted, check, refused};
use skep_verifier::Code;

/// A loop of a million iterations, at most, whose callback does `body`: `r9` points to two numbers of 8 bytes, which
/// are 0 at first. `rest` comes after it.
fn called(body: &str, rest: &str) -> String {
    format!(
        "*(u64 *)(r10 - 16) = 0\n*(u64 *)(r10 - 8) = 0\nr1 = 1000000\nr2 = func[f] ll\nr3 = r10\nr3 += -16\nr4 = 0\n\
         call 181\n{rest}\nr0 = 0\nexit\nf: r9 = r2\n{body}\nr0 = 0\nexit"
    )
}

/// Counts in `r9[8]`, and compares the count with a random number: both ways are open, whatever it is.
const COUNT: &str =
    "r7 = *(u64 *)(r9 + 8)\nr7 += 1\n*(u64 *)(r9 + 8) = r7\ncall 7\nif r7 > r0 goto +1\nr7 = 0";

#[track_caller]
fn walked(text: &str, most: u64) {
    let walked = accepted("xdp", text).stats().walked;
    assert!(walked <= most, "{walked}");
}

#[test]
fn a_number_that_decides_does_not_keep_others_from_being_widened() {
    // A cursor goes round in 8 bytes; the loop repeats once it is back at the start.
    let cursor = "r1 = *(u64 *)(r9 + 0)\nr2 = map_value[1]+0x38 ll\nr2 += r1\nr0 = *(u8 *)(r2 + 0)\nr1 += 1\n\
                  if r1 != 8 goto +1\nr1 = 0\n*(u64 *)(r9 + 0) = r1";
    walked(&called(&format!("{cursor}\n{COUNT}"), ""), 1000);
    let far = cursor.replace("r1 != 8", "r1 != 9");
    refused("xdp", &called(&format!("{far}\n{COUNT}"), ""), Code::OutOfBounds, "");
}

#[test]
fn a_loop_inside_of_an_iteration_is_walked_exactly() {
    // Its index must be known, iteration by iteration.
    let inner = "r8 = 0\nnext: r1 = map_value[1]+0x0 ll\nr1 += r8\nr1 = *(u8 *)(r1 + 0)\nr8 += 1\nif r8 != 64 goto next";
    walked(&called(&format!("{inner}\n{COUNT}"), ""), 2000);
    let far = inner.replace("r8 != 64", "r8 != 65");
    refused("xdp", &called(&format!("{far}\n{COUNT}"), ""), Code::OutOfBounds, "");
}

#[test]
fn nothing_is_widened_where_pointers_changed() {
    // The counter would be unknown while the pointer is not: no state would be another's.
    let text = |count: u32| {
        format!(
            "r1 = 0\nr2 = map_value[1]+0x0 ll\nagain: may_goto out\n*(u8 *)(r2 + 0) = r1\nr2 += 1\nr1 += 1\n\
             if r1 != {count} goto again\nout: r0 = 0\nexit"
        )
    };
    walked(&text(64), 2 + 64 * 7);
    refused("xdp", &text(65), Code::OutOfBounds, "");
}

#[test]
fn a_loop_s_end_is_walked_before_its_next_iteration() {
    // After 64 iterations the index is out of bounds: no more are walked, for each kind of loop.
    let index = "r8 = map_value[1]+0x0 ll\nr8 += r6\nr0 = *(u8 *)(r8 + 0)\nr0 = 0\nexit";
    let jump = format!("r6 = 0\nagain: may_goto out\nr6 += 1\ngoto again\nout: {index}");
    let call = called(
        "r1 = *(u64 *)(r9 + 0)\nr1 += 1\n*(u64 *)(r9 + 0) = r1",
        &format!("r6 = *(u64 *)(r10 - 16)\n{index}"),
    );
    for text in [jump, call] {
        let refusal = check("xdp", &text).expect_err(&text);
        assert_eq!(refusal.code, Code::OutOfBounds, "{refusal}");
        assert!(refusal.walked < 2000, "{}", refusal.walked);
    }
}

#[test]
fn a_number_that_leads_to_a_violation_by_a_branch_is_not_widened() {
    let stops = |at: u32| {
        let body = format!(
            "r1 = *(u64 *)(r9 + 0)\nif r1 > 5 goto bad\nif r1 == {at} goto stop\nr1 += 1\n*(u64 *)(r9 + 0) = r1\n{COUNT}\n\
             r0 = 0\nexit\nbad: r0 = *(u8 *)(r9 - 1000)\nstop: r0 = 1\nexit"
        );
        called(&body, "")
    };
    walked(&stops(5), 1000);
    // Here it is a violation in itself. What else was widened did not lead to it, and is not looked at again.
    let refusal = check("xdp", &stops(6)).expect_err("it is reached");
    assert_eq!(refusal.code, Code::Stack, "{refusal}");
    assert!(refusal.walked < 1000, "{}", refusal.walked);
}

#[test]
fn a_violation_that_no_widened_number_led_to_ends_the_walk() {
    // The sum is widened, and then a random number leads to the violation: no exact sum would change that.
    let body = "r1 = *(u64 *)(r9 + 0)\nr1 += 1\n*(u64 *)(r9 + 0) = r1\ncall 7\nif r0 == 7 goto bad\nr0 = 0\nexit\n\
                bad: r0 = *(u8 *)(r9 - 1000)";
    let refusal = check("xdp", &called(body, "")).expect_err("it is reached");
    assert_eq!(refusal.code, Code::Stack, "{refusal}");
    assert!(refusal.walked < 100, "{}", refusal.walked);
}

#[test]
fn nothing_is_widened_between_one_iteration_and_the_next() {
    // A cursor goes round in 8 bytes and must be exact where `may_goto` iterates. Paths meet thirty times before it is
    // used: were it widened there as well, each of these guesses would fail only after the long way to the use.
    let text = |last: u32| {
        let (meet, long) = ("call 7\nif r0 > 5 goto +0\n".repeat(30), "r8 += 3\n".repeat(400));
        format!(
            "r6 = 0\nr8 = 0\nagain: may_goto out\n{meet}{long}r1 = map_value[1]+0x38 ll\nr1 += r6\nr0 = *(u8 *)(r1 + 0)\n\
             r6 += 1\nif r6 != {last} goto again\nr6 = 0\ngoto again\nout: r0 = 0\nexit"
        )
    };
    let iteration = 30 * 2 + 400 + 10;
    walked(&text(8), 12 * iteration);
    refused("xdp", &text(9), Code::OutOfBounds, "");
}
