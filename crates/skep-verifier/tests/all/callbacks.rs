//! Functions that helpers call. Each call is one iteration, and is walked like one.

use crate::common::{accepted, refused};
use skep_verifier::Code;

/// `loop` with `r1` iterations over the function `body`, which receives `r10 - 8` and sets `r0`.
fn looped(iterations: &str, before: &str, body: &str, after: &str) -> String {
    format!(
        "*(u64 *)(r10 - 8) = 0\n{before}\nr1 = {iterations}\nr2 = func[body] ll\nr3 = r10\nr3 += -8\nr4 = 0\ncall 181\n\
         {after}\nr0 = 0\nexit\nbody:\n{body}\nexit"
    )
}

#[test]
fn a_callback_that_changes_nothing_is_walked_once() {
    let walked = accepted("xdp", &looped("1000000", "", "r0 = 0", "")).stats().walked;
    assert!(walked < 20, "{walked}");
    // Also if the number of calls is unknown.
    accepted("tc", &looped("*(u32 *)(r1 + 8)", "", "r0 = 0", ""));
}

#[test]
fn a_callback_receives_an_index_below_the_iteration_count() {
    let body = |limit: u32| {
        format!("r2 = map_value[1]+0x0 ll\nif r1 >= {limit} goto +2\nr2 += r1\nr0 = *(u8 *)(r2 + 0)\nr0 = 0")
    };
    accepted("xdp", &looped("1000", "", &body(64), ""));
    refused("xdp", &looped("1000", "", &body(65), ""), Code::OutOfBounds, "64");
    accepted("xdp", &looped("64", "", &body(1000), ""));
    refused("xdp", &looped("65", "", &body(1000), ""), Code::OutOfBounds, "64");
}

#[test]
fn a_callback_s_result_is_zero_or_one() {
    accepted("xdp", &looped("9", "", "r0 = 1", ""));
    refused("xdp", &looped("9", "", "r0 = 2", ""), Code::Return, "0 to 1");
    refused("xdp", &looped("9", "", "r0 = r1", ""), Code::Return, "0 to 1");
    refused("xdp", &looped("9", "", "r0 = -1", ""), Code::Return, "0 to 1");
    refused("xdp", &looped("9", "", "r3 = 1", ""), Code::Uninitialised, "callback");
    refused("xdp", &looped("9", "", "r0 = r2", ""), Code::PointerLeak, "r0");
}

#[test]
fn callbacks_are_functions_of_the_program() {
    refused("xdp", "r1 = 5\nr2 = 7\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit", Code::Argument, "function");
    refused(
        "xdp",
        "start:\nr1 = 5\nr2 = func[start] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit",
        Code::Argument,
        "",
    );
    // Its context is an address in the stack, or 0.
    refused(
        "xdp",
        "r3 = r1\nr1 = 5\nr2 = func[f] ll\nr4 = 0\ncall 181\nr0 = 0\nexit\nf:\nr0 = 0\nexit",
        Code::Argument,
        "stack",
    );
    refused(
        "xdp",
        "r1 = func[f] ll\nr0 = *(u64 *)(r1 + 0)\nexit\nf:\nr0 = 0\nexit",
        Code::OutOfBounds,
        "func",
    );
    refused("xdp", "r0 = func[f] ll\nexit\nf:\nr0 = 0\nexit", Code::PointerLeak, "func");
}

#[test]
fn a_callback_s_stores_to_its_caller_s_stack_are_seen() {
    let after = "r1 = *(u64 *)(r10 - 8)\nr2 = map_value[1]+0x0 ll\nr2 += r1\nr0 = *(u8 *)(r2 + 0)";
    accepted("xdp", &looped("9", "", "*(u64 *)(r2 + 0) = 63\nr0 = 0", after));
    refused("xdp", &looped("9", "", "*(u64 *)(r2 + 0) = 64\nr0 = 0", after), Code::OutOfBounds, "64");
    // Twelve steps of five leave the bounds, ten do not.
    let add = "r1 = *(u64 *)(r2 + 0)\nr1 += 5\n*(u64 *)(r2 + 0) = r1\nr0 = 0";
    accepted("xdp", &looped("12", "", add, after));
    refused("xdp", &looped("13", "", add, after), Code::OutOfBounds, "");
    // The second iteration sees the stores of the first.
    let once = "r1 = *(u64 *)(r2 + 0)\n*(u64 *)(r2 + 0) = 64\nr2 = map_value[1]+0x0 ll\nr2 += r1\nr0 = *(u8 *)(r2 + 0)\nr0 = 0";
    accepted("xdp", &looped("1", "", once, ""));
    refused("xdp", &looped("2", "", once, ""), Code::OutOfBounds, "64");
}

#[test]
fn sums_over_many_iterations_may_be_any_number() {
    let add = "r3 = *(u64 *)(r2 + 0)\nr3 += r1\n*(u64 *)(r2 + 0) = r3\nr0 = 0";
    let walked = accepted(
        "xdp",
        &looped(
            "1000000",
            "",
            add,
            "r1 = *(u64 *)(r10 - 8)\nr2 = map_value[1]+0x0 ll\n*(u64 *)(r2 + 0) = r1",
        ),
    )
    .stats()
    .walked;
    assert!(walked < 200, "{walked}");
}

#[test]
fn a_callback_preserves_its_caller_s_registers() {
    let after = "r0 = *(u8 *)(r6 + 63)";
    accepted("xdp", &looped("9", "r6 = map_value[1]+0x0 ll", "r0 = 0", after));
    refused("xdp", &looped("9", "", "r6 = map_value[1]+0x0 ll\nr0 = 0", after), Code::Uninitialised, "r6");
    refused("xdp", &looped("9", "", "r0 = 0", "r0 = r3"), Code::Uninitialised, "r3");
    // Its result is a number.
    refused(
        "xdp",
        &looped("9", "", "r0 = 0", "r2 = map_value[1]+0x0 ll\nr2 += r0\nr0 = *(u8 *)(r2 + 0)"),
        Code::PointerArithmetic,
        "",
    );
}

#[test]
fn packet_pointers_do_not_survive_a_callback_that_moves_the_packet() {
    let before = "r6 = r1\n*(u64 *)(r10 - 16) = r6\nr7 = *(u32 *)(r6 + 0)\nr8 = *(u32 *)(r6 + 4)\nr1 = r7\nr1 += 1\nif r1 > r8 goto done";
    let text = |body: &str| {
        format!(
            "{before}\nr1 = 5\nr2 = func[body] ll\nr3 = r10\nr3 += -16\nr4 = 0\ncall 181\nr0 = *(u8 *)(r7 + 0)\n\
             done:\nr0 = 0\nexit\nbody:\n{body}\nr0 = 0\nexit"
        )
    };
    accepted("xdp", &text("r1 = *(u64 *)(r2 + 0)"));
    refused("xdp", &text("r1 = *(u64 *)(r2 + 0)\nr2 = 0\ncall 44"), Code::Uninitialised, "may have moved");
}

#[test]
fn a_callback_receives_each_element_s_key_and_value() {
    let text = |map: u32, body: &str| {
        format!(
            "r1 = map[{map}] ll\nr2 = func[body] ll\nr3 = 0\nr4 = 0\ncall 164\nr0 = 0\nexit\nbody:\n{body}\nexit"
        )
    };
    accepted("xdp", &text(0, "r0 = *(u8 *)(r3 + 15)\nr0 = 0"));
    refused("xdp", &text(0, "r0 = *(u8 *)(r3 + 16)\nr0 = 0"), Code::OutOfBounds, "16..17");
    accepted("xdp", &text(0, "*(u64 *)(r3 + 0) = 1\nr0 = 0"));
    // The context is the fourth argument.
    refused("xdp", &text(0, "r0 = *(u8 *)(r4 + 0)\nr0 = 0"), Code::MaybeNull, "null");
    refused("xdp", &text(0, "r0 = r5\nr0 = 0"), Code::Uninitialised, "r5");
    // The callback may look up elements of the map.
    accepted("xdp", &text(0, "*(u32 *)(r10 - 4) = 1\nr2 = r10\nr2 += -4\ncall 1\nr0 = 0"));
}

#[test]
fn callbacks_may_loop_and_call_back_themselves() {
    let text = "r1 = 100\nr2 = func[outer] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\n\
                outer:\nr1 = 100\nr2 = func[inner] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\n\
                inner:\nr3 = 0\nagain:\nr3 += 1\nif r3 < 5 goto again\nr0 = 0\nexit";
    accepted("xdp", text);
    // An endless loop is refused in a callback, too.
    refused("xdp", &looped("9", "", "again:\ngoto again\nr0 = 0", ""), Code::Loop, "never end");
    // Progress inside the call is no progress of the loop around it.
    let text = "again:\nr1 = 100\nr2 = func[f] ll\nr3 = 0\nr4 = 0\ncall 181\ngoto again\nf:\nr0 = 0\nexit";
    refused("xdp", text, Code::Loop, "never end");
    let text = "r6 = 0\nagain:\nr1 = 100\nr2 = func[f] ll\nr3 = 0\nr4 = 0\ncall 181\nr6 += 1\nif r6 < 10 goto again\nr0 = 0\nexit\nf:\nr0 = 0\nexit";
    accepted("xdp", text);
}

#[test]
fn a_callback_that_calls_itself_runs_out_of_frames() {
    let text = "r1 = 100\nr2 = func[f] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\n\
                f:\nr1 = 100\nr2 = func[f] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit";
    refused("xdp", text, Code::Stack, "8 frames");
}

#[test]
fn a_key_is_invalid_after_its_callback() {
    // The callback stores the key's address in the caller's stack, which is read after the call or in the next
    // iteration.
    let each = |map: u32, behind: &str, body: &str| {
        format!(
            "*(u64 *)(r10 - 8) = 0\nr1 = map[{map}] ll\nr2 = func[body] ll\nr3 = r10\nr3 += -8\nr4 = 0\ncall 164\n\
             r1 = *(u64 *)(r10 - 8)\nif r1 == 0 goto out\n{behind}\nout:\nr0 = 0\nexit\nbody:\n{body}\nr0 = 0\nexit"
        )
    };
    let keep = "*(u64 *)(r4 + 0) = r2";
    for map in [0, 1] {
        refused("xdp", &each(map, "r0 = *(u8 *)(r1 + 0)", keep), Code::Uninitialised, "ended");
        accepted("xdp", &each(map, "", &format!("r1 = *(u32 *)(r2 + 0)\n{keep}")));
    }
    let next = format!("r1 = *(u64 *)(r4 + 0)\nif r1 == 0 goto first\nr1 = *(u8 *)(r1 + 0)\nfirst:\n{keep}");
    refused("xdp", &each(0, "", &next), Code::Uninitialised, "ended");
    // The key of the outer call outlives the inner one.
    let nested = "r6 = r2\nr1 = map[1] ll\nr2 = func[inner] ll\nr3 = 0\nr4 = 0\ncall 164\nr1 = *(u32 *)(r6 + 0)\n\
                  r0 = 0\nexit\ninner:\nr0 = *(u32 *)(r2 + 0)";
    accepted("xdp", &each(0, "", nested));
}
