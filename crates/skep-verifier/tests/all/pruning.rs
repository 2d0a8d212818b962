//! Where paths meet, the second may stop only if the rest of it cannot differ from the first.
//!
//! In each program the path without the jump is walked first, and is safe; the second path is unsafe unless the test
//! says otherwise.

use crate::common::{accepted, check, refused};
use skep_verifier::Code;

/// Goes one way or the other: r3 is unknown, r1 is the buffer of 16 bytes.
const FORK: &str = "r3 = *(u8 *)(r1 + 0)\nif r3 == 7 goto +1\n";

/// Uses r4 as an index.
const INDEX: &str = "r1 += r4\nr0 = *(u8 *)(r1 + 0)\nexit";

#[test]
fn a_number_that_becomes_an_index_matters() {
    let text = |first: &str| format!("{first}\n{FORK}r4 = 3\n{INDEX}");
    accepted("raw", &text("r4 = 15"));
    refused("raw", &text("r4 = 16"), Code::OutOfBounds, "bytes 16..17");
    // Through arithmetic, through another register, and through a comparison that it decides.
    let text = |first: &str| format!("{first}\n{FORK}r5 = 3\ngoto +0\nr4 = r5\nr4 += 1\nr4 *= 2\n{INDEX}");
    accepted("raw", &text("r5 = 6"));
    refused("raw", &text("r5 = 7"), Code::OutOfBounds, "bytes 16..17");
    let text =
        |first: &str| format!("{first}\n{FORK}r5 = 3\ngoto +0\nr4 = 0\nif r5 == 3 goto +1\nr4 = 16\n{INDEX}");
    refused("raw", &text("r5 = 4"), Code::OutOfBounds, "bytes 16..17");
}

#[test]
fn a_number_that_nothing_depends_on_does_not_matter() {
    let text = format!("r4 = 16\nr2 = r10\n{FORK}r4 = 3\nr4 *= 7\nr0 = r4\nexit");
    assert_eq!(accepted("raw", &text).stats().walked, 8);
    // But it must stay a number.
    refused("raw", &text.replace("r4 = 16", "r4 = r10"), Code::PointerArithmetic, "fp");
}

#[test]
fn stack_bytes_that_are_read_matter() {
    // A store of four bytes does not make the rest dead.
    let text = |other: i32, store: &str| {
        format!(
            "*(u16 *)(r10 - 8) = {other}\n{FORK}*(u16 *)(r10 - 8) = 3\n{store}\nr4 = *(u16 *)(r10 - 8)\n{INDEX}"
        )
    };
    for store in ["*(u8 *)(r10 - 5) = 0", "*(u16 *)(r10 - 6) = 0", "*(u16 *)(r10 - 10) = 0"] {
        accepted("raw", &text(15, store));
        refused("raw", &text(16, store), Code::OutOfBounds, "bytes 16..17");
    }
    accepted("raw", &text(16, "*(u32 *)(r10 - 8) = 1"));
    // Zeroes are numbers like others.
    let text =
        format!("*(u64 *)(r10 - 8) = 16\n{FORK}*(u64 *)(r10 - 8) = 0\nr4 = *(u64 *)(r10 - 8)\n{INDEX}");
    refused("raw", &text, Code::OutOfBounds, "bytes 16..17");
}

#[test]
fn stack_bytes_that_only_one_path_wrote_are_any_number() {
    let text = format!("{FORK}*(u64 *)(r10 - 8) = 3\nr0 = *(u64 *)(r10 - 8)\nexit");
    assert!(accepted("raw", &text).functions()[0].zeroed);
    refused(
        "raw",
        &text.replace("exit", INDEX).replace("r0 = *(u64", "r4 = *(u64"),
        Code::PointerArithmetic,
        "",
    );
    let text = "r3 = *(u32 *)(r1 + 12)\nif r3 == 7 goto +1\n*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\nr0 = 0\nexit";
    assert!(accepted("xdp", text).functions()[0].zeroed);
    // If they are not read, they do not matter.
    let text = format!("{FORK}*(u64 *)(r10 - 8) = 3\n*(u64 *)(r10 - 8) = 4\nr0 = *(u64 *)(r10 - 8)\nexit");
    assert!(!accepted("raw", &text).functions()[0].zeroed);
}

#[test]
fn a_stack_without_pointers_does_not_subsume_one_with_pointers() {
    // Each path meets the others where the bytes are live: whole pointers, halves, and clobbered pointers.
    for leaves in [
        "*(u64 *)(r10 - 8) = r1",
        "*(u64 *)(r10 - 8) = r1\n*(u32 *)(r10 - 8) = 0",
        "*(u64 *)(r10 - 8) = r1\n*(u32 *)(r10 - 4) = 0",
        "*(u64 *)(r10 - 8) = r1\nr2 = r10\nr4 = r3\nr4 &= 7\nr2 -= r4\n*(u8 *)(r2 - 1) = 0",
    ] {
        for other in ["r4 = 0", "*(u64 *)(r10 - 16) = 0", "*(u64 *)(r10 - 8) = 0", "*(u32 *)(r10 - 8) = 0"] {
            for (first, second) in [(leaves, other), (other, leaves)] {
                for load in ["r0 = *(u64 *)(r10 - 8)", "r5 = r10\nr5 += -8\nr0 = *(u64 *)(r5 + 0)\nr0 += 0"] {
                    let text = format!(
                        "r3 = *(u64 *)(r1 + 0)\nif r3 == 7 goto second\n{first}\ngoto meet\nsecond: {second}\n\
                         meet: r3 = 0\nr4 = 0\nr2 = 0\nr1 = 0\n{load}\nif r0 > 1 goto +0\nr0 = 0\nexit"
                    );
                    let code = check("raw", &text).map(|_| ()).map_err(|refusal| refusal.code);
                    assert!(matches!(code, Err(Code::Uninitialised | Code::PointerLeak)), "{code:?}\n{text}");
                }
            }
        }
    }
}

#[test]
fn a_pointer_on_the_stack_is_not_a_number() {
    let text = format!("*(u64 *)(r10 - 8) = r1\n{FORK}*(u64 *)(r10 - 8) = 3\nr0 = *(u64 *)(r10 - 8)\nexit");
    refused("raw", &text, Code::PointerLeak, "r0");
    let text = format!(
        "*(u64 *)(r10 - 8) = r1\n{FORK}*(u64 *)(r10 - 8) = r3\nr2 = map_value[1]+0x0 ll\nr0 = *(u64 *)(r10 - 8)\n\
         *(u64 *)(r2 + 0) = r0\nr0 = 0\nexit"
    );
    refused("raw", &text, Code::PointerLeak, "");
}

/// Two paths meet where the liveness of bytes 8..16 below `r10` is certain: the first has done `first`, the other
/// `second`.
fn meet(first: &str, second: &str, rest: &str) -> String {
    format!(
        "r6 = r1\nr8 = map_value[1]+0x0 ll\ncall 7\nif r0 == 7 goto second\n{first}\ngoto meet\n\
         second: {second}\nmeet: r2 = 0\nr3 = 0\nr4 = 0\nr5 = 0\n{rest}\nr0 = 0\nexit"
    )
}

const POINTERS: [&str; 3] = [
    "*(u64 *)(r10 - 16) = r10",
    "*(u64 *)(r10 - 16) = r8",
    "*(u64 *)(r10 - 16) = r8\n*(u8 *)(r10 - 16) = 0", // the rest of a pointer
];
const NUMBERS: [&str; 4] =
    ["r9 = 0", "*(u64 *)(r10 - 16) = 0", "*(u64 *)(r10 - 16) = 3", "r0 = r0\n*(u64 *)(r10 - 16) = r0"];

#[test]
fn pointers_in_the_stack_keep_paths_apart_only_if_they_are_read() {
    let mut text = String::from("r6 = 0\nr8 = map_value[1]+0x0 ll\n");
    for slot in 1..=12 {
        let at = 8 * slot;
        text += &format!("call 7\nr1 = r10\nif r0 > 1000 goto +1\nr1 = r8\n*(u64 *)(r10 - {at}) = r1\n");
    }
    text += "call 7\n";
    let read: String = (1..=12).map(|slot| format!("r1 = *(u64 *)(r10 - {})\n", 8 * slot)).collect();
    let walked = |first: &str| {
        let text = format!("{text}{first}\nif r6 == 1 goto reads\nr0 = 0\nexit\nreads: {read}r0 = 0\nexit");
        check("tc", &text).map(|verified| verified.stats().walked)
    };
    // Liveness says that they may be read, but no path that is walked reads them.
    let unread = walked("").unwrap();
    assert!(unread < 200, "{unread}");
    let all = walked("r6 = 1").unwrap();
    assert!(all > 10_000, "{all}");
}

#[test]
fn a_pointer_in_the_stack_that_is_read_as_a_number_is_found() {
    // Each leaks what it reads into the map. `goto +0` lets paths meet again, so that the needs of one state come from
    // another that subsumes it.
    let leaks = [
        "r1 = *(u64 *)(r10 - 16)\n*(u64 *)(r8 + 0) = r1",
        "r1 = *(u32 *)(r10 - 12)\n*(u64 *)(r8 + 0) = r1",
        "r1 = *(u8 *)(r10 - 13)\n*(u64 *)(r8 + 0) = r1",
        "*(u8 *)(r10 - 16) = 1\nr1 = *(u8 *)(r10 - 15)\n*(u64 *)(r8 + 0) = r1",
        "*(u32 *)(r10 - 16) = 1\nr1 = *(u32 *)(r10 - 12)\n*(u64 *)(r8 + 0) = r1",
        "call 7\nif r0 == 8 goto +0\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r8 + 0) = r1",
        "call 7\nif r0 == 8 goto +2\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r8 + 0) = r1",
        "call 7\nif r0 == 8 goto +1\n*(u64 *)(r10 - 16) = 5\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r8 + 0) = r1",
        "call 7\nr0 &= 7\nr5 = r10\nr5 += r0\nr1 = *(u8 *)(r5 - 16)\n*(u64 *)(r8 + 0) = r1",
        "call 7\nr0 &= 7\nr5 = r10\nr5 += r0\n*(u8 *)(r5 - 16) = 0\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r8 + 0) = r1",
        "r5 = r10\nr5 += -16\n*(u64 *)(r10 - 32) = r5\ncall 7\nr5 = *(u64 *)(r10 - 32)\nr1 = *(u64 *)(r5 + 0)\n\
         *(u64 *)(r8 + 0) = r1",
        "r1 = r10\nr2 = r8\ncall f\nr0 = 0\nexit\nf: r1 = *(u64 *)(r1 - 16)\n*(u64 *)(r2 + 0) = r1",
        "r2 = r10\nr2 += -16\nr1 = map[0] ll\ncall 1",
        "r2 = r10\nr2 += -14\nr1 = map[0] ll\ncall 1",
    ];
    for leak in leaks {
        for number in NUMBERS {
            accepted("tc", &meet(number, NUMBERS[2], leak));
            for pointer in POINTERS {
                for text in [meet(number, pointer, leak), meet(pointer, number, leak)] {
                    let code = check("tc", &text).map(|_| ()).map_err(|refusal| refusal.code);
                    let found = matches!(code, Err(Code::Uninitialised | Code::PointerLeak | Code::Helper));
                    assert!(found, "{code:?}\n{text}");
                }
            }
        }
    }
}

#[test]
fn a_state_that_a_later_iteration_subsumes_reads_what_that_one_reads() {
    // The second path comes into the middle of a loop that was walked.
    let text = |second: &str| {
        format!(
            "r8 = map_value[1]+0x0 ll\n*(u64 *)(r10 - 16) = 0\ncall 7\nif r0 == 1 goto second\n\
             next: may_goto end\nr1 = *(u64 *)(r10 - 16)\n*(u64 *)(r8 + 0) = r1\ncall 7\n*(u64 *)(r10 - 16) = r0\n\
             goto meet\nsecond: *(u64 *)(r10 - 16) = {second}\nmeet: r0 = 0\nr1 = 0\ngoto next\nend: r0 = 0\nexit"
        )
    };
    accepted("tc", &text("3"));
    refused("tc", &text("r8"), Code::PointerLeak, "");
}

#[test]
fn another_pointer_in_the_stack_that_is_accessed_is_found() {
    let access = "r1 = *(u64 *)(r10 - 16)\nr0 = *(u8 *)(r1 + 60)";
    let put = |pointer: &str| format!("*(u64 *)(r10 - 16) = {pointer}");
    for (first, second) in [("r8", "r10"), ("r8", "r6"), ("r8", "3")] {
        for rest in [access.to_owned(), format!("call 7\nif r0 == 8 goto +0\n{access}")] {
            accepted("tc", &meet(&put(first), &put(first), &rest));
            for text in [meet(&put(first), &put(second), &rest), meet(&put(second), &put(first), &rest)] {
                assert!(check("tc", &text).is_err(), "{text}");
            }
        }
    }
}

#[test]
fn caller_stack_bytes_that_a_callee_reads_matter() {
    let text = |other: i32| {
        format!(
            "*(u64 *)(r10 - 8) = {other}\n{FORK}*(u64 *)(r10 - 8) = 3\nr2 = r10\ncall f\nexit\n\
             f: r4 = *(u64 *)(r2 - 8)\n{INDEX}"
        )
    };
    accepted("raw", &text(15));
    refused("raw", &text(16), Code::OutOfBounds, "bytes 16..17");
    // Through an address that was spilled before.
    let text = |other: i32| {
        format!(
            "r2 = r10\nr2 += -8\n*(u64 *)(r10 - 16) = r2\n*(u64 *)(r10 - 8) = {other}\n{FORK}*(u64 *)(r10 - 8) = 3\n\
             r2 = *(u64 *)(r10 - 16)\nr4 = *(u64 *)(r2 + 0)\n{INDEX}"
        )
    };
    accepted("raw", &text(15));
    refused("raw", &text(16), Code::OutOfBounds, "bytes 16..17");
    // In the caller's frame, while paths meet in the callee.
    let text = |other: i32| {
        format!(
            "r6 = r1\n*(u64 *)(r10 - 8) = 0\nr2 = r10\ncall f\nr1 = r6\nr4 = *(u64 *)(r10 - 8)\n{INDEX}\n\
             f: *(u64 *)(r2 - 8) = {other}\n{FORK}*(u64 *)(r2 - 8) = 3\nr0 = 0\nexit"
        )
    };
    accepted("raw", &text(15));
    refused("raw", &text(16), Code::OutOfBounds, "bytes 16..17");
}

#[test]
fn a_callee_s_stores_and_result_matter_to_its_caller() {
    let text = |other: i32| {
        format!(
            "r6 = r1\n*(u64 *)(r10 - 8) = 0\nr2 = r10\nr2 += -8\ncall f\nr1 = r6\nr4 = *(u64 *)(r10 - 8)\n{INDEX}\n\
             f: r5 = {other}\n{FORK}r5 = 3\n*(u64 *)(r2 + 0) = r5\nr0 = 0\nexit"
        )
    };
    accepted("raw", &text(15));
    refused("raw", &text(16), Code::OutOfBounds, "bytes 16..17");
    let text = |other: i32| {
        format!("r6 = r1\ncall f\nr1 = r6\nr4 = r0\n{INDEX}\nf: r0 = {other}\n{FORK}r0 = 3\ngoto +0\nexit")
    };
    accepted("raw", &text(15));
    refused("raw", &text(16), Code::OutOfBounds, "bytes 16..17");
    // The caller's own registers do not matter in the callee, but they do in the caller.
    let text = |other: i32| {
        format!(
            "r6 = r1\nr7 = {other}\n{FORK}r7 = 3\ncall f\nr1 = r6\nr4 = r7\n{INDEX}\nf: r0 = 0\nif r3 == 5 goto +0\nexit"
        )
    };
    accepted("raw", &text(15));
    refused("raw", &text(16), Code::OutOfBounds, "bytes 16..17");
}

#[test]
fn a_packet_range_found_on_one_path_only_is_unknown() {
    let text = |check: &str| {
        format!(
            "r5 = *(u32 *)(r1 + 12)\nr2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = r2\nr4 += 8\n\
             if r5 == 7 goto +1\nif r4 > r3 goto out\n{check}\nr0 = *(u8 *)(r2 + 7)\nexit\nout: r0 = 0\nexit"
        )
    };
    refused("xdp", &text("r0 = 0"), Code::OutOfBounds, "data_end");
    accepted("xdp", &text("if r4 > r3 goto out"));
}

#[test]
fn packet_pointers_equal_on_one_path_only_are_distinct() {
    // r6 and r7 are moved by the same number on the first path, by two numbers on the second.
    let text = |other: &str| {
        format!(
            "r5 = *(u32 *)(r1 + 12)\nr5 &= 15\nr4 = *(u32 *)(r1 + 16)\nr4 &= 15\nr2 = *(u32 *)(r1 + 0)\n\
             r3 = *(u32 *)(r1 + 4)\nr6 = r2\nr6 += r5\nr7 = r2\nr7 += {other}\nif r5 == 7 goto +1\nr7 = r6\n\
             goto +0\nr6 += 8\nif r6 > r3 goto +2\nr0 = *(u8 *)(r7 + 0)\nexit\nr0 = 0\nexit"
        )
    };
    refused("xdp", &text("r4"), Code::OutOfBounds, "data_end");
    let same = text("r4").replace("r7 = r2\nr7 += r4\n", "r7 = r6\n");
    accepted("xdp", &same);
}

#[test]
fn maybe_null_pointers_equal_on_one_path_only_are_distinct() {
    let lookup = "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\n";
    // On the first path r6 and r7 are the same pointer; on the second r7 comes from another look-up.
    let text = format!(
        "r8 = *(u32 *)(r1 + 12)\n{lookup}r7 = r0\n{lookup}r6 = r0\nif r8 == 7 goto +1\nr7 = r6\ngoto +0\n\
         if r6 == 0 goto +1\nr0 = *(u64 *)(r7 + 0)\nr0 = 0\nexit"
    );
    refused("xdp", &text, Code::MaybeNull, "r7");
    // On the second, r6 is known not to be null, but r7 may be.
    let text = format!(
        "r8 = *(u32 *)(r1 + 12)\n{lookup}r7 = r0\n{lookup}r6 = r0\nif r6 == 0 goto out\nif r8 == 7 goto +3\n{lookup}\
         r6 = r0\nr7 = r0\nif r6 == 0 goto +1\nr0 = *(u64 *)(r7 + 0)\nout: r0 = 0\nexit"
    );
    let text = text
        .replace("goto +3\n", "goto join\n")
        .replace("r7 = r0\nif r6 == 0 goto +1", "r7 = r0\njoin: if r6 == 0 goto +1");
    refused("xdp", &text, Code::MaybeNull, "r7");
}

#[test]
fn numbers_equal_on_one_path_only_are_distinct() {
    // The check of r4 narrows r5 on the first path only.
    let text = |other: &str| {
        format!(
            "r4 = *(u32 *)(r1 + 0)\nr5 = *(u32 *)(r1 + 4)\n{FORK}r5 = {other}\ngoto +0\nif r4 > 15 goto +3\nr1 += r5\n\
             r0 = *(u8 *)(r1 + 0)\nexit\nr0 = 0\nexit"
        )
    };
    refused("raw", &text("r4"), Code::PointerArithmetic, "too large");
    // Nor does a fixed distance between them: the same on the first path, one more on the second.
    let text = |distance: i32| {
        format!(
            "r4 = *(u8 *)(r1 + 0)\nr5 = r4\nr5 += {distance}\n{FORK}goto wide\n\
             join: if r4 > 15 goto out\nr1 += r5\nr0 = *(u8 *)(r1 + 0)\nexit\nout: r0 = 0\nexit\n\
             wide: r4 = *(u16 *)(r1 + 2)\nr5 = r4\ngoto join"
        )
    };
    accepted("raw", &text(0));
    refused("raw", &text(1), Code::OutOfBounds, "1..=16");
}

#[test]
fn a_loop_ends_with_the_state_of_its_last_iteration() {
    // The states of the iterations meet again and again, but the counter matters.
    let text = |iterations: i32| format!("r4 = 0\nnext: r4 += 1\nif r4 < {iterations} goto next\n{INDEX}");
    accepted("raw", &text(15));
    refused("raw", &text(16), Code::OutOfBounds, "bytes 16..17");
    // A value that an iteration leaves in the stack for the next one.
    let text = |iterations: i32| {
        format!(
            "*(u64 *)(r10 - 8) = 0\nr5 = 0\nnext: r4 = *(u64 *)(r10 - 8)\nr4 += 1\n*(u64 *)(r10 - 8) = r4\nr5 += 1\n\
             if r5 < {iterations} goto next\nr4 = *(u64 *)(r10 - 8)\n{INDEX}"
        )
    };
    accepted("raw", &text(15));
    refused("raw", &text(16), Code::OutOfBounds, "bytes 16..17");
}

#[test]
fn facts_forgotten_at_a_join_narrow_nothing_afterwards() {
    // On the first path r7 is 224 less than a copy that is below 224, and so, as an unsigned number, never below
    // r8. The copy is not read again: the state in which it is forgotten must not claim what it knew.
    let text = |copy: &str, last: &str| {
        format!(
            "r7 = *(u64 *)(r1 + 0)\nr8 = *(u16 *)(r1 + 8)\n{copy}\nif r7 s>= 0xe0 goto +1\nr7 -= 0xe0\n\
             if r7 >= r8 goto out\nr0 = *(u8 *)(r1 + 16)\nout: {last}\nexit"
        )
    };
    for (copy, last) in [
        ("r9 = r7", "r0 = 0"),
        ("*(u64 *)(r10 - 8) = r7", "r0 = 0"),
        ("r9 = r7", "r0 = r9"),
        ("*(u64 *)(r10 - 8) = r7", "r0 = *(u64 *)(r10 - 8)"),
    ] {
        refused("raw", &text(copy, last), Code::OutOfBounds, "bytes 16..17");
    }
    // Where the copy is still read in a comparison, it is part of the state, and the paths stay apart.
    refused("raw", &text("r9 = r7", "r0 = 0\nif r9 > 5 goto +0"), Code::OutOfBounds, "bytes 16..17");
}

#[test]
fn a_loop_that_is_entered_again_in_the_same_way_is_walked_once() {
    // Each turn of the first loop may be its last, and then comes the second, from an unknown number in both.
    let lap = |name: &str| {
        format!(
            "r6 = *(u8 *)(r1 + 0)\nif r6 > 199 goto end\n{name}:\nr7 = r6\nr6 += 1\nif r7 < 199 goto {name}\n"
        )
    };
    let text = format!("{}{}end:\nr0 = 0\nexit", lap("first"), lap("second"));
    let walked = accepted("raw", &text).stats().walked;
    assert!(walked < 2000, "{walked}");
}
