//! A number keeps two states apart only if it decided something on the paths that were walked from the first of them.
//!
//! In every program here two paths meet. The first, which does not jump, is safe. The second brings another number in
//! place of the first one's. The verifier must find out whether it is safe wherever the number, or one that was made of
//! it, decides.

use crate::common::{accepted, kind, program, refused};
use skep_abi::{ArgKind, HelperProto, RetKind};
use skep_verifier::{Code, Config, verify};

/// Two paths meet: the first has done `first`, the other `second`. `r7` is a random number of 8 bits, `r8` a map's
/// value of 64 bytes.
fn meet(first: &str, second: &str, rest: &str) -> String {
    format!(
        "r6 = r1\nr8 = map_value[1]+0x0 ll\ncall 7\nr7 = r0\nr7 &= 255\ncall 7\nif r0 == 7 goto second\n{first}\ngoto meet\n\
         second: {second}\nmeet: {rest}"
    )
}

/// Reads byte `r4` of the map's value.
const INDEX: &str = "r8 += r4\nr0 = *(u8 *)(r8 + 0)\nr0 = 0\nexit";

/// With `safe` on the second path the program is accepted, with `unsafe` it is refused.
#[track_caller]
fn decides(first: &str, [safe, bad]: [&str; 2], rest: &str, code: Code) {
    accepted("tc", &meet(first, safe, rest));
    refused("tc", &meet(first, bad, rest), code, "");
    // The first path's number does not matter to itself.
    accepted("tc", &meet(safe, first, rest));
    refused("tc", &meet(bad, first, rest), code, "");
}

/// The same with another constant in `r4`.
#[track_caller]
fn index_decides(rest: &str) {
    decides("r4 = 3", ["r4 = 63", "r4 = 64"], &format!("{rest}\n{INDEX}"), Code::OutOfBounds);
}

#[test]
fn flags_that_decide_nothing_keep_no_paths_apart() {
    // Twelve flags of two constants each, a loop of 32 rounds over random numbers, and each flag is compared with a
    // random number, so that both ways are open.
    let mut text = String::new();
    for flag in 1..=12 {
        text += &format!("call 7\nr1 = 1\nif r0 > 1000 goto +1\nr1 = 2\n*(u64 *)(r10 - {}) = r1\n", 8 * flag);
    }
    text += "r7 = 32\nr8 = 0\nnext: call 7\nif r0 > 5 goto +1\nr8 += r0\nr7 += -1\nif r7 != 0 goto next\n";
    for flag in 1..=12 {
        text += &format!("call 7\nr1 = *(u64 *)(r10 - {})\nif r1 > r0 goto +1\nr8 += 1\n", 8 * flag);
    }
    let decide =
        text.clone() + "r1 = *(u64 *)(r10 - 8)\nr2 = map_value[1]+0x3e ll\nr2 += r1\nr0 = *(u8 *)(r2 - 1)\n";
    let walked = accepted("tc", &(text + "r0 = 0\nexit")).stats().walked;
    assert!(walked < 500, "{walked}");
    // One of them decides.
    refused("tc", &(decide.clone() + "r0 = *(u8 *)(r2 + 0)\nr0 = 0\nexit"), Code::OutOfBounds, "");
    let walked = accepted("tc", &(decide + "r0 = 0\nexit")).stats().walked;
    assert!(walked < 1000, "{walked}");
}

#[test]
fn an_index_decides_however_it_is_made() {
    index_decides("");
    index_decides("r5 = r4\nr4 = 0\nr4 += r5");
    index_decides("r5 = 1\nr5 *= r4\nr4 = r5");
    index_decides("r4 <<= 8\nr4 = be64 r4\nr4 = be64 r4\nr4 >>= 8");
    index_decides("r4 = -r4\nr4 = -r4");
    index_decides("r5 = (s16)r4\nr4 = r5");
    index_decides("w4 = w4");
    // Where paths meet again after the pointer was made of it.
    let rest = "r8 += r4\ncall 7\nif r0 == 9 goto +0\nr0 = *(u8 *)(r8 + 0)\nr0 = 0\nexit";
    decides("r4 = 3", ["r4 = 63", "r4 = 64"], rest, Code::OutOfBounds);
    // Overwritten, it does not.
    accepted("tc", &meet("r4 = 3", "r4 = 64", &format!("r4 ^= r4\n{INDEX}")));
    accepted("tc", &meet("r4 = 3", "r4 = 64", &format!("r4 = 5\n{INDEX}")));
}

#[test]
fn a_branch_of_which_one_way_is_open_decides() {
    index_decides("if r4 == 3 goto +2\nif r4 == 63 goto +1\nr4 = 64");
    decides(
        "r4 = 3",
        ["r4 = 2", "r4 = 5"],
        "r5 = 4\nif r4 < r5 goto +1\nr8 += 64\nr4 = 0\nr8 += r4\nr0 = *(u8 *)(r8 + 0)\nr0 = 0\nexit",
        Code::OutOfBounds,
    );
    decides(
        "r4 = 3",
        ["r4 = 7", "r4 = 8"],
        "if r4 & 1 goto +1\nr8 += 64\nr0 = *(u8 *)(r8 + 0)\nr0 = 0\nexit",
        Code::OutOfBounds,
    );
}

#[test]
fn a_branch_of_which_both_ways_are_open_decides_if_its_operand_does_later() {
    index_decides("if r4 > r7 goto +0");
    index_decides("if r4 > r7 goto +1\nr4 += 0");
    // What is learned about the other operand.
    let rest = format!("if r7 >= r4 goto +2\nr4 = r7\ngoto +1\nr4 = 0\n{INDEX}");
    decides("r4 = 10", ["r4 = 64", "r4 = 65"], &rest, Code::OutOfBounds);
    // Nothing is used: one walk is enough.
    let rest = "if r4 > r7 goto +1\nr8 += 1\nr0 = 0\nexit";
    let walked = accepted("tc", &meet("r4 = 10", "r4 = 11", rest)).stats().walked;
    assert!(walked < 20, "{walked}");
}

#[test]
fn what_is_linked_to_an_operand_decides() {
    // `r9` is found to be below 64 by a comparison of its copy, if it is one.
    let index = "r8 += r9\nr0 = *(u8 *)(r8 + 0)\nout: r0 = 0\nexit";
    let rest = format!("if r5 > 63 goto out\n{index}");
    let copies = "r9 = r7\nr5 = r9";
    decides(copies, ["r5 = r7\nr9 = r5", "r9 = r7\ncall 7\nr5 = r0"], &rest, Code::OutOfBounds);
    decides(copies, ["r9 = r7\nr5 = r9", "r9 = r7\ncall 7\nr5 = r0\nr5 &= 255"], &rest, Code::OutOfBounds);
    // By way of the stack, where the copy is spilled.
    let rest = format!("r5 = *(u64 *)(r10 - 8)\nif r5 > 63 goto out\n{index}");
    decides(
        "r9 = r7\n*(u64 *)(r10 - 8) = r9",
        ["*(u64 *)(r10 - 8) = r7\nr9 = r7", "r9 = r7\ncall 7\nr0 &= 255\n*(u64 *)(r10 - 8) = r0"],
        &rest,
        Code::OutOfBounds,
    );
    // At a distance that is a number in a register.
    let rest = format!("r5 = r9\nr5 += r4\nif r5 > 70 goto out\n{index}");
    decides("r9 = r7\nr4 = 9", ["r9 = r7\nr4 = 7", "r9 = r7\nr4 = 6"], &rest, Code::OutOfBounds);
    // Where a copy is the same number only because of its range.
    let rest = format!("r5 = (s8)r9\nif r5 > 63 goto out\nif r5 < 0 goto out\n{index}");
    let bad = "r9 = r7";
    decides("r9 = r7\nr9 &= 127", ["r9 = r7\nr9 &= 63", bad], &rest, Code::OutOfBounds);
    let rest = format!("*(u8 *)(r10 - 1) = r9\nr5 = *(u8 *)(r10 - 1)\nif r5 > 63 goto out\n{index}");
    decides("r9 = r7", ["r9 = r7\nr9 &= 127", "r9 = r7\nr9 <<= 1"], &rest, Code::OutOfBounds);
    // In the frame of a caller.
    let rest = "r1 = r5\ncall f\nif r0 == 0 goto out\nr8 += r9\nr0 = *(u8 *)(r8 + 0)\nout: r0 = 0\nexit\n\
                f: r0 = 0\nif r1 > 63 goto +1\nr0 = 1\nexit";
    let other = "r9 = r7\ncall 7\nr5 = r0\nr5 &= 255";
    decides(copies, ["r5 = r7\nr9 = r5", other], rest, Code::OutOfBounds);
}

#[test]
fn an_index_in_the_stack_decides() {
    let stack = |put: &str, get: &str| index_decides(&format!("{put}\ncall 7\n{get}"));
    stack("*(u64 *)(r10 - 8) = r4", "r4 = *(u64 *)(r10 - 8)");
    stack("*(u32 *)(r10 - 8) = r4\n*(u32 *)(r10 - 4) = 0", "r4 = *(u64 *)(r10 - 8)");
    stack("*(u8 *)(r10 - 3) = r4", "r4 = *(u8 *)(r10 - 3)");
    stack("*(u64 *)(r10 - 8) = r4", "r4 = *(u16 *)(r10 - 8)");
    stack(
        "r2 = r10\nr2 += -16\n*(u64 *)(r2 + 8) = r4\n*(u64 *)(r10 - 24) = r2",
        "r2 = *(u64 *)(r10 - 24)\nr4 = *(u64 *)(r2 + 8)",
    );
    // A store to another part does not end its life.
    stack("*(u16 *)(r10 - 8) = r4\n*(u16 *)(r10 - 6) = 0", "r4 = *(u16 *)(r10 - 8)");
    // Paths meet while it is there.
    let there = |first: &str, other: &str, rest: &str, code| {
        let put = |number: &str| format!("*(u64 *)(r10 - 8) = {number}");
        accepted("tc", &meet(&put(first), &put("9"), &format!("{rest}\n{INDEX}")));
        refused("tc", &meet(&put(first), &put(other), &format!("{rest}\n{INDEX}")), code, "");
    };
    there("0", "64", "r4 = *(u64 *)(r10 - 8)", Code::OutOfBounds);
    there("3", "64", "r4 = *(u64 *)(r10 - 8)", Code::OutOfBounds);
    there("3", "64", "r4 = *(u8 *)(r10 - 8)", Code::OutOfBounds);
    // A load somewhere among zeroes, and a store there.
    let (zero, other) = ("*(u64 *)(r10 - 8) = 0", "*(u64 *)(r10 - 8) = 64");
    let load = format!("r5 = r10\nr7 &= 3\nr5 += r7\nr4 = *(u8 *)(r5 - 8)\n{INDEX}");
    decides(zero, [zero, other], &load, Code::OutOfBounds);
    let store = format!("r5 = r10\nr7 &= 7\nr5 += r7\n*(u8 *)(r5 - 8) = 0\nr4 = *(u64 *)(r10 - 8)\n{INDEX}");
    decides(zero, [zero, other], &store, Code::PointerArithmetic);
}

#[test]
fn a_number_stored_somewhere_among_zeroes_decides() {
    let rest = format!(
        "*(u64 *)(r10 - 8) = 0\nr5 = r10\nr7 &= 3\nr5 += r7\n*(u8 *)(r5 - 8) = r4\nr4 = *(u64 *)(r10 - 8)\n{INDEX}"
    );
    accepted("tc", &meet("r4 = 0", "r4 = 0", &rest));
    refused("tc", &meet("r4 = 0", "r4 = 64", &rest), Code::PointerArithmetic, "");
}

#[test]
fn an_index_that_functions_pass_on_decides() {
    let through = |call: &str, function: &str| {
        let rest = format!("{call}\n{INDEX}\nf: {function}\nexit");
        decides("r4 = 3", ["r4 = 63", "r4 = 64"], &rest, Code::OutOfBounds);
    };
    through("r1 = r4\ncall f\nr4 = r0", "r0 = r1");
    through("r1 = r4\ncall f\nr4 = r0", "r6 = r1\ncall 7\nif r0 == 9 goto +0\nr0 = r6");
    through("*(u64 *)(r10 - 8) = r4\ncall f\nr4 = *(u64 *)(r10 - 8)", "r0 = 0");
    through("*(u64 *)(r10 - 8) = r4\nr1 = r10\ncall f\nr4 = r0", "r0 = *(u64 *)(r1 - 8)");
    through("r1 = r10\nr2 = r4\ncall f\nr4 = *(u64 *)(r10 - 8)", "*(u64 *)(r1 - 8) = r2\nr0 = 0");
    // It decides in the function, which has its own branches and states.
    through(
        "r1 = r4\nr2 = r8\ncall f\nr4 = 0",
        "r6 = r1\nr7 = r2\ncall 7\nif r0 == 9 goto +1\nr0 = 1\nr7 += r6\nr0 = *(u8 *)(r7 + 0)",
    );
}

#[test]
fn what_calls_are_given_decides() {
    // The size of memory.
    let sized = "r1 = r6\nr2 = 0\nr3 = r10\nr3 += -16\ncall 26\nr0 = 0\nexit";
    decides("r4 = 8", ["r4 = 16", "r4 = 17"], sized, Code::OutOfBounds);
    // How often a function is called back.
    let looped = "r1 = r4\nr2 = func[body] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\n\
                  body: r2 = map_value[1]+0x0 ll\nr2 += r1\nr0 = *(u8 *)(r2 + 0)\nr0 = 0\nexit";
    decides("r4 = 8", ["r4 = 64", "r4 = 65"], looped, Code::OutOfBounds);
    // What the function called back returns.
    let looped = "*(u64 *)(r10 - 8) = r4\nr1 = 4\nr2 = func[body] ll\nr3 = r10\nr4 = 0\ncall 181\nr0 = 0\nexit\n\
                  body: r0 = *(u64 *)(r2 - 8)\nexit";
    decides("r4 = 0", ["r4 = 1", "r4 = 2"], looped, Code::Return);
}

#[test]
fn what_a_function_called_back_leaves_or_returns_decides() {
    // Its path ends at the call, which is still open.
    let text = |other: &str| {
        format!(
            "*(u64 *)(r10 - 8) = 3\nr1 = 4\nr2 = func[body] ll\nr3 = r10\nr4 = 0\ncall 181\nr8 = map_value[1]+0x0 ll\n\
             r4 = *(u64 *)(r10 - 8)\n{INDEX}\nbody: r6 = r2\ncall 7\nif r0 == 7 goto second\n*(u64 *)(r6 - 8) = 3\n\
             goto meet\nsecond: *(u64 *)(r6 - 8) = {other}\nmeet: r0 = 0\nexit"
        )
    };
    accepted("tc", &text("63"));
    refused("tc", &text("64"), Code::OutOfBounds, "");
    let text = |other: &str| {
        format!(
            "r1 = 4\nr2 = func[body] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\nbody: call 7\nif r0 == 7 goto second\n\
             r6 = 0\ngoto meet\nsecond: r6 = {other}\nmeet: call 7\nr0 = r6\nexit"
        )
    };
    accepted("tc", &text("1"));
    refused("tc", &text("2"), Code::Return, "");
}

#[test]
fn a_state_that_another_subsumes_needs_what_that_one_needs() {
    // The first path is walked to its end. The second stops where it meets the first: there the number was found to
    // decide. The third meets the second before.
    let text = |third: &str| {
        format!(
            "r8 = map_value[1]+0x0 ll\nr4 = 3\nr9 = 0\ncall 7\nr7 = r0\nr7 &= 3\nif r7 == 3 goto three\nif r7 == 2 goto two\n\
             r4 = 3\ngoto inner\ntwo: r4 = 3\nr9 = 1\ngoto outer\nthree: r4 = {third}\nr9 = 2\nouter: r9 += 1\ncall 7\n\
             r4 = r4\ngoto inner\ninner: {INDEX}"
        )
    };
    let text = |third| text(third).replace("call 7\nr4 = r4", "r5 = r4\nr4 = r5");
    accepted("tc", &text("63"));
    refused("tc", &text("64"), Code::OutOfBounds, "");
}

#[test]
fn facts_that_compilers_rely_on_decide() {
    let lookup = |first: &str, second: &str| {
        let rest = "*(u32 *)(r10 - 4) = r4\nr2 = r10\nr2 += -4\nr1 = map[5] ll\ncall 1\nr0 = 0\nexit";
        let verified = accepted("tc", &meet(first, second, rest));
        let at = verified.facts().iter().filter_map(|fact| fact.call).find(|call| call.map.is_some());
        at.map(|call| (call.key, call.in_bounds))
    };
    assert_eq!(lookup("r4 = 3", "r4 = 3"), Some((Some(3), true)));
    assert_eq!(lookup("r4 = 3", "r4 = 15"), Some((None, true)));
    assert_eq!(lookup("r4 = 3", "r4 = 16"), Some((None, false)));
    assert_eq!(lookup("r4 = r7\nr4 &= 15", "r4 = r7\nr4 &= 31"), Some((None, false)));
    assert_eq!(lookup("r4 = r7\nr4 &= 15", "r4 = r7\nr4 &= 7"), Some((None, true)));
    // A branch that only ever goes one way is none.
    assert_eq!(branches("r4 = 3", "r4 = 9"), 1);
    assert_eq!(branches("r4 = 3", "r4 = 10"), 2);
    // Bytes that one path leaves unwritten.
    let rest = "r0 = *(u64 *)(r10 - 8)\nr0 = 0\nexit";
    let zeroed =
        |second: &str| accepted("tc", &meet("*(u64 *)(r10 - 8) = 1", second, rest)).functions()[0].zeroed;
    assert!(!zeroed("*(u64 *)(r10 - 8) = 2") && zeroed("r4 = 0"));
}

/// How many conditional jumps are left.
fn branches(first: &str, second: &str) -> usize {
    let rest = "r0 = 0\nif r4 > 9 goto +1\nr0 = 1\nexit";
    let verified = accepted("tc", &meet(first, second, rest));
    verified.insns().iter().filter(|insn| matches!(insn, skep_isa::Insn::JumpIf { .. })).count()
}

#[test]
fn a_key_decides_in_whatever_register_a_helper_takes_it() {
    let args = [ArgKind::Anything, ArgKind::Map, ArgKind::MapKey, ArgKind::None, ArgKind::None];
    let own = HelperProto::new(5000, "own", args, RetKind::Scalar);
    let key = |second: &str| {
        let rest =
            "*(u32 *)(r10 - 4) = r4\nr1 = 0\nr2 = map[5] ll\nr3 = r10\nr3 += -4\ncall 5000\nr0 = 0\nexit";
        let helpers = |id| if id == 5000 { Some(&own) } else { skep_abi::linux_helper(id) };
        let config = Config { helpers: &helpers, ..Config::default() };
        let verified =
            verify(program(kind("raw"), &meet("r4 = 3", second, rest)), &config).expect("accepted");
        let at = verified.facts().iter().filter_map(|fact| fact.call).find(|call| call.map.is_some());
        at.map(|call| (call.key, call.in_bounds))
    };
    assert_eq!(key("r4 = 3"), Some((Some(3), true)));
    assert_eq!(key("r4 = 9"), Some((None, true)));
    assert_eq!(key("r4 = 16"), Some((None, false)));
}
