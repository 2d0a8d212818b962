//! Packets: comparisons that find ranges, and calls that invalidate them.

use crate::common::{accepted, program, refused};
use skep_verifier::{Code, Config, verify};

/// Loads data into r2 and data_end into r3.
const PACKET: &str = "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\n";

#[test]
fn a_packet_range_is_exact_in_every_orientation_of_its_check() {
    // (check that jumps to `out`, bytes known if it does not jump)
    let checks = [
        ("if r4 > r3 goto out", 8),
        ("if r3 < r4 goto out", 8),
        ("if r4 >= r3 goto out", 9),
        ("if r3 <= r4 goto out", 9),
        ("if r4 != r3 goto out", 8),
        ("if r4 <= r3 goto +2\nr0 = 0\nexit", 8),
        ("if r3 >= r4 goto +2\nr0 = 0\nexit", 8),
        ("if r4 < r3 goto +2\nr0 = 0\nexit", 9),
        ("if r3 > r4 goto +2\nr0 = 0\nexit", 9),
        ("if r4 == r3 goto +2\nr0 = 0\nexit", 8),
    ];
    for (check, known) in checks {
        let text = |last: i32| {
            format!("{PACKET}r4 = r2\nr4 += 8\n{check}\nr0 = *(u8 *)(r2 + {last})\nexit\nout: r0 = 0\nexit")
        };
        accepted("xdp", &text(known - 1));
        refused("xdp", &text(known), Code::OutOfBounds, "data_end first");
    }
}

#[test]
fn the_other_branch_of_a_packet_check_proves_nothing() {
    for check in ["r4 > r3", "r4 >= r3", "r3 < r4", "r3 <= r4"] {
        let text =
            format!("{PACKET}r4 = r2\nr4 += 8\nif {check} goto +2\nr0 = 0\nexit\nr0 = *(u8 *)(r2 + 0)\nexit");
        refused("xdp", &text, Code::OutOfBounds, "data_end");
    }
    for check in ["r4 s> r3", "r3 s< r4"] {
        let text =
            format!("{PACKET}r4 = r2\nr4 += 8\nif {check} goto +2\nr0 = *(u8 *)(r2 + 0)\nexit\nr0 = 0\nexit");
        refused("xdp", &text, Code::OutOfBounds, "data_end");
    }
}

#[test]
fn packets_are_checked_before_they_are_touched() {
    refused("xdp", &format!("{PACKET}r0 = *(u8 *)(r2 + 0)\nexit"), Code::OutOfBounds, "data_end first");
    let checked = format!("{PACKET}r4 = r2\nr4 += 14\nif r4 > r3 goto out\n");
    let end = "\nexit\nout: r0 = 0\nexit";
    accepted("xdp", &format!("{checked}r0 = *(u16 *)(r2 + 12){end}"));
    refused("xdp", &format!("{checked}r0 = *(u32 *)(r2 + 12){end}"), Code::OutOfBounds, "bytes 12..16");
    refused("xdp", &format!("{checked}r0 = *(u8 *)(r2 - 1){end}"), Code::OutOfBounds, "bytes -1..0");
    refused("xdp", &format!("{checked}r0 = *(u8 *)(r3 - 1){end}"), Code::OutOfBounds, "pkt_end");
    // Negative offsets from a pointer that was moved are fine.
    accepted("xdp", &format!("{checked}r0 = *(u16 *)(r4 - 2){end}"));
    refused("xdp", &format!("{checked}r0 = *(u8 *)(r4 + 0){end}"), Code::OutOfBounds, "bytes 14..15");
    accepted(
        "tc",
        &format!(
            "r2 = *(u32 *)(r1 + 76)\nr3 = *(u32 *)(r1 + 80)\nr4 = r2\nr4 += 1\nif r4 > r3 goto out\n*(u8 *)(r2 + 0) = 1\nr0 = 0{end}"
        ),
    );
}

#[test]
fn a_found_range_reaches_every_copy() {
    // Spilled before the check.
    accepted(
        "xdp",
        &format!(
            "{PACKET}*(u64 *)(r10 - 8) = r2\nr4 = r2\nr4 += 14\nif r4 > r3 goto out\nr5 = *(u64 *)(r10 - 8)\n\
             r0 = *(u8 *)(r5 + 13)\nexit\nout: r0 = 0\nexit"
        ),
    );
    // Checked by a callee: the caller's copies know too.
    accepted(
        "xdp",
        &format!(
            "{PACKET}r6 = r2\nr1 = r2\nr2 = r3\ncall check\nif r0 == 0 goto out\nr0 = *(u8 *)(r6 + 13)\nexit\n\
             out: r0 = 0\nexit\ncheck: r1 += 14\nr0 = 0\nif r1 > r2 goto +1\nr0 = 1\nexit"
        ),
    );
    // A copy plus an unknown number is another pointer.
    refused(
        "xdp",
        &format!(
            "r5 = *(u32 *)(r1 + 12)\nr5 &= 1\n{PACKET}r6 = r2\nr6 += r5\nr4 = r2\nr4 += 14\nif r4 > r3 goto out\n\
             r0 = *(u8 *)(r6 + 0)\nexit\nout: r0 = 0\nexit"
        ),
        Code::OutOfBounds,
        "data_end first",
    );
}

#[test]
fn variable_packet_offsets_are_bounded_by_the_longest_packet() {
    let text = |mask: &str| {
        format!(
            "r5 = *(u32 *)(r1 + 12)\nr5 &= {mask}\n{PACKET}r2 += r5\nr4 = r2\nr4 += 4\nif r4 > r3 goto out\n\
             r0 = *(u32 *)(r2 + 0)\nexit\nout: r0 = 0\nexit"
        )
    };
    accepted("xdp", &text("0x7fff"));
    refused("xdp", &text("0xffff"), Code::OutOfBounds, ""); // 65535 + 4
    refused("xdp", &text("0x1ffff"), Code::OutOfBounds, "at most 65535");
    refused("xdp", &text("-1").replace("r5 &= -1\n", ""), Code::PointerArithmetic, "too large");
    // The rest of a known range after adding a bounded number.
    let after = "r2 += 16\nif r2 > r3 goto out\nr2 -= 16\nr5 &= 7\nr2 += r5\n";
    let text_after = |last: i32| {
        format!("r5 = *(u32 *)(r1 + 12)\n{PACKET}{after}r0 = *(u8 *)(r2 + {last})\nexit\nout: r0 = 0\nexit")
    };
    accepted("xdp", &text_after(8));
    refused("xdp", &text_after(9), Code::OutOfBounds, "r=9");
    refused(
        "xdp",
        &text_after(0).replace("r5 &= 7\nr2 += r5", "r5 &= 7\nr5 -= 1\nr2 += r5"),
        Code::OutOfBounds,
        "",
    );
    accepted("xdp", &text_after(8).replace("r2 += r5", "r2 -= r5\nr2 += 7"));
    // A negative variable part would point before the packet.
    let negative = text("0xff").replace("r2 += r5", "r5 -= 16\nr2 += r5");
    refused("xdp", &negative, Code::OutOfBounds, "not negative");
    // A pointer that was never compared may be beyond the end, and so may the bytes before it.
    let back =
        format!("r5 = *(u32 *)(r1 + 12)\nr5 &= 255\nr5 += 16\n{PACKET}r2 += r5\nr0 = *(u8 *)(r2 - 8)\nexit");
    refused("xdp", &back, Code::OutOfBounds, "data_end first");
}

#[test]
fn a_packet_may_not_be_written_by_types_that_only_read() {
    // No such type exists among those that read packets, so the flag is tried on a copy of one.
    let reader: &'static skep_abi::ProgramType = Box::leak(Box::new(skep_abi::ProgramType {
        name: "reader",
        context: skep_abi::XDP.context,
        reads_packet: true,
        ..skep_abi::ProgramType::PLAIN
    }));
    let text = format!("{PACKET}r4 = r2\nr4 += 8\nif r4 > r3 goto +1\n*(u8 *)(r2 + 0) = 1\nr0 = 0\nexit");
    let refusal = verify(program(reader, &text), &Config::default()).unwrap_err();
    assert_eq!(refusal.code, Code::ReadOnly, "{refusal}");
}

#[test]
fn helpers_that_move_the_packet_end_every_pointer_into_it() {
    let moved = |after: &str| {
        format!(
            "r6 = r1\n{PACKET}r4 = r2\nr4 += 14\nif r4 > r3 goto out\nr7 = r2\n*(u64 *)(r10 - 8) = r2\nr1 = r6\nr2 = 4\n\
             call 44\n{after}\nexit\nout: r0 = 0\nexit"
        )
    };
    let refusal =
        refused("xdp", &moved("r0 = *(u8 *)(r7 + 0)"), Code::Uninitialised, "may have moved the packet");
    assert!(refusal.suggestion.is_some_and(|text| text.contains("read data and data_end")));
    let spilled = "r7 = *(u64 *)(r10 - 8)\nr0 = *(u8 *)(r7 + 0)";
    refused("xdp", &moved(spilled), Code::Uninitialised, "may have moved the packet");
    accepted("xdp", &moved("r7 = *(u64 *)(r10 - 8)\nr0 = 0"));
    accepted("xdp", &moved("r2 = *(u32 *)(r6 + 0)\nr0 = 0"));
    // In the frames of callers, too.
    refused(
        "xdp",
        &format!(
            "r6 = r1\n{PACKET}r4 = r2\nr4 += 14\nif r4 > r3 goto out\nr7 = r2\ncall f\nr0 = *(u8 *)(r7 + 0)\nexit\n\
             out: r0 = 0\nexit\nf: r2 = 4\ncall 44\nexit"
        ),
        Code::Uninitialised,
        "may have moved the packet",
    );
    // Such a helper may not read from the packet that it moves.
    let text = "r6 = r1\nr2 = *(u32 *)(r1 + 76)\nr3 = *(u32 *)(r1 + 80)\nr4 = r2\nr4 += 8\nif r4 > r3 goto out\n\
                r3 = r2\nr1 = r6\nr2 = 0\nr4 = 8\nr5 = 0\ncall 9\nout: r0 = 0\nexit";
    refused("tc", text, Code::Argument, "may move the packet");
}

#[test]
fn metadata_ends_where_the_packet_starts() {
    let text = |check: &str| {
        format!(
            "r2 = *(u32 *)(r1 + 8)\nr3 = *(u32 *)(r1 + 0)\nr5 = *(u32 *)(r1 + 4)\nr4 = r2\nr4 += 4\n{check}\n\
             r0 = *(u32 *)(r2 + 0)\nexit\nout: r0 = 0\nexit"
        )
    };
    accepted("xdp", &text("if r4 > r3 goto out"));
    refused("xdp", &text("if r4 > r5 goto out"), Code::OutOfBounds, "pkt_meta");
    refused("xdp", &text("r3 += 8\nif r4 > r3 goto out"), Code::OutOfBounds, "pkt_meta");
}

#[test]
fn a_repeated_packet_check_is_walked_one_way_only() {
    // The code on the impossible branch would be refused.
    let again = |first: &str, second: &str| {
        format!(
            "{PACKET}r4 = r2\nr4 += 8\n{first}\nr4 = r2\nr4 += 8\n{second}\nr0 = 0\nexit\n\
             wrong: r0 = *(u64 *)(r2 + 8)\nexit\nout: r0 = 0\nexit"
        )
    };
    for second in ["if r4 > r3 goto wrong", "if r3 < r4 goto wrong", "if r4 <= r3 goto out\ngoto wrong"] {
        accepted("xdp", &again("if r4 > r3 goto out", second));
        accepted("xdp", &again("if r4 >= r3 goto out", second));
    }
    for second in ["if r4 >= r3 goto wrong", "if r4 == r3 goto wrong", "if r4 != r3 goto out\ngoto wrong"] {
        refused("xdp", &again("if r4 > r3 goto out", second), Code::OutOfBounds, "data_end");
        accepted("xdp", &again("if r4 >= r3 goto out", second));
    }
    // One byte further, nothing is known.
    let further = again("if r4 > r3 goto out", "r4 += 1\nif r4 > r3 goto wrong");
    refused("xdp", &further, Code::OutOfBounds, "data_end");
}
