//! Every rule, from both sides: programs that keep it and programs that break it.

mod common;

use common::{accepted, check, from_insns, kind, maps, program, refused};
use skep_abi::{Entry, Function, LineInfo};
use skep_isa::{Insn, Operand, Reg, Size};
use skep_verifier::{Code, Config, Unverified, verify};
use std::sync::Arc;

// ---- structure ------------------------------------------------------------------------------------------------

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
    let function = |start| Function { name: format!("f{start}"), start, global: false };
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
fn unreachable_code_is_left_out_and_not_judged() {
    let verified = accepted("xdp", "r0 = 2\nexit\nr1 = *(u64 *)(r9 + 0)\nexit");
    let reached: Vec<bool> = verified.facts().iter().map(|fact| fact.reached).collect();
    assert_eq!(reached, [true, true, false, false]);
}

// ---- registers ------------------------------------------------------------------------------------------------

#[test]
fn registers_are_written_before_they_are_read() {
    refused("xdp", "r0 = r3\nexit", Code::Uninitialised, "r3 is read but was never written");
    refused("xdp", "exit", Code::Uninitialised, "r0 is read but was never written");
    refused("xdp", "r0 += 1\nexit", Code::Uninitialised, "r0");
    refused("xdp", "if r4 == 0 goto +0\nr0 = 0\nexit", Code::Uninitialised, "r4");
    // On one of two paths.
    refused("tc", "r2 = *(u32 *)(r1 + 0)\nif r2 == 0 goto +1\nr0 = 1\nexit", Code::Uninitialised, "r0");
    accepted("tc", "r2 = *(u32 *)(r1 + 0)\nr0 = 0\nif r2 == 0 goto +1\nr0 = 1\nexit");
}

#[test]
fn the_frame_pointer_is_read_only() {
    refused("xdp", "r10 = 0\nr0 = 0\nexit", Code::ReadOnly, "r10");
    refused("xdp", "r10 += 8\nr0 = 0\nexit", Code::ReadOnly, "r10");
    refused("xdp", "*(u64 *)(r10 - 8) = 0\nr10 = *(u64 *)(r10 - 8)\nr0 = 0\nexit", Code::ReadOnly, "r10");
}

#[test]
fn calls_lose_their_argument_registers() {
    refused("xdp", "r2 = 1\ncall 7\nr0 = r2\nexit", Code::Uninitialised, "lost at the call in 1");
    refused(
        "xdp",
        "r1 = 1\ncall f\nr0 = r1\nexit\nf: r0 = 0\nexit",
        Code::Uninitialised,
        "lost at the call in 1",
    );
    accepted("xdp", "r6 = 1\ncall 7\nr0 = r6\nexit");
    // A callee has its own r6 to r9.
    refused("xdp", "r6 = 1\ncall f\nexit\nf: r0 = r6\nexit", Code::Uninitialised, "r6");
    accepted("xdp", "r6 = 1\ncall f\nr0 = r6\nexit\nf: r6 = 7\nr0 = 0\nexit");
}

// ---- arithmetic -----------------------------------------------------------------------------------------------

#[test]
fn division_by_zero_and_masked_shift_counts_are_defined() {
    accepted("xdp", "r0 = 1\nr1 = 0\nr0 /= r1\nr0 %= r1\nr0 s/= r1\nr0 s%= r1\nw0 /= w1\nw0 s%= w1\nexit");
    accepted("tc", "r2 = *(u32 *)(r1 + 0)\nr0 = 1\nr0 <<= r2\nr0 s>>= r2\nw0 >>= w2\nexit");
    // A constant count that is masked is a mistake in a program for Linux, which refuses it too.
    refused("xdp", "r0 = 1\nr0 <<= 64\nexit", Code::Structure, "shift count 64");
    refused("xdp", "r0 = 1\nw0 s>>= 32\nexit", Code::Structure, "shift count 32");
    refused("xdp", "r0 = 1\nr0 >>= -1\nexit", Code::Structure, "shift count -1");
    accepted("raw", "r0 = 1\nr0 <<= 64\nexit");
}

#[test]
fn pointers_take_part_in_little_arithmetic() {
    refused("xdp", "r1 *= 2\nr0 = 0\nexit", Code::PointerArithmetic, "r1 for *");
    refused("xdp", "r1 = -r1\nr0 = 0\nexit", Code::PointerArithmetic, "r1");
    refused("xdp", "r2 = r10\nr2 &= 7\nr0 = 0\nexit", Code::PointerArithmetic, "fp");
    refused("xdp", "w1 += 4\nr0 = 0\nexit", Code::PointerArithmetic, "32-bit");
    refused("xdp", "w0 = w1\nexit", Code::PointerLeak, "half of a pointer");
    refused("xdp", "r2 = 0\nr2 -= r1\nr0 = 0\nexit", Code::PointerArithmetic, "ctx");
    refused("xdp", "r2 = r10\nr2 += r1\nr0 = 0\nexit", Code::PointerArithmetic, "");
    refused("xdp", "r2 = r10\nr2 -= r1\nr0 = 0\nexit", Code::PointerArithmetic, "");
    refused("xdp", "r2 = (s8)r1\nr0 = 0\nexit", Code::PointerArithmetic, "ctx");
    refused("xdp", "r1 = be64 r1\nr0 = 0\nexit", Code::PointerArithmetic, "ctx");
    refused("xdp", "r2 = map[0] ll\nr2 += 8\nr0 = 0\nexit", Code::PointerArithmetic, "map_ptr");
    refused("xdp", "r2 = *(u32 *)(r1 + 4)\nr2 += 8\nr0 = 0\nexit", Code::PointerArithmetic, "pkt_end");
    accepted("raw", "r3 = 4\nr3 += r1\nr0 = *(u32 *)(r3 + 0)\nexit");
    accepted("raw", "r1 += 12\nr1 -= 4\nr0 = *(u64 *)(r1 + 0)\nexit");
}

#[test]
fn offsets_stay_far_from_where_sums_wrap() {
    refused("raw", "r1 += 0x20000000\nr0 = 0\nexit", Code::PointerArithmetic, "too much");
    refused("raw", "r1 += -0x20000000\nr0 = 0\nexit", Code::PointerArithmetic, "too much");
    refused("raw", "r1 += 0x10000000\nr1 += 0x10000000\nr0 = 0\nexit", Code::PointerArithmetic, "too much");
    let smallest = "r2 = 0x8000000000000000 ll\nr1 -= r2\nr0 = 0\nexit";
    refused("raw", smallest, Code::PointerArithmetic, "too much");
    refused(
        "raw",
        "r2 = *(u64 *)(r1 + 0)\nr1 += r2\nr0 = 0\nexit",
        Code::PointerArithmetic,
        "bound the number",
    );
    refused(
        "raw",
        "r2 = *(u64 *)(r1 + 0)\nr1 -= r2\nr0 = 0\nexit",
        Code::PointerArithmetic,
        "bound the number",
    );
}

// ---- stack ----------------------------------------------------------------------------------------------------

#[test]
fn the_stack_has_512_bytes() {
    accepted("xdp", "*(u64 *)(r10 - 512) = 0\nr0 = *(u64 *)(r10 - 512)\nexit");
    refused("xdp", "*(u64 *)(r10 - 513) = 0\nr0 = 0\nexit", Code::Stack, "512 bytes of stack");
    refused("xdp", "*(u8 *)(r10 + 0) = 0\nr0 = 0\nexit", Code::OutOfBounds, "below r10");
    refused("xdp", "*(u64 *)(r10 - 4) = 0\nr0 = 0\nexit", Code::OutOfBounds, "bytes -4..4");
}

#[test]
fn stack_bytes_are_written_before_they_are_read() {
    refused("xdp", "r0 = *(u64 *)(r10 - 8)\nexit", Code::Uninitialised, "stack bytes at r10-8");
    refused("xdp", "*(u32 *)(r10 - 8) = 0\nr0 = *(u64 *)(r10 - 8)\nexit", Code::Uninitialised, "= {}");
    accepted("xdp", "*(u32 *)(r10 - 8) = 0\n*(u32 *)(r10 - 4) = 0\nr0 = *(u64 *)(r10 - 8)\nexit");
    // One byte of padding in a key.
    let key = |last: &str| {
        format!(
            "*(u16 *)(r10 - 4) = 1\n*(u8 *)(r10 - 2) = 1\n{last}\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\nr0 = 0\nexit"
        )
    };
    refused("xdp", &key("r3 = 0"), Code::Uninitialised, "4 stack bytes at r10-4");
    accepted("xdp", &key("*(u8 *)(r10 - 1) = 0"));
}

#[test]
fn spills_of_any_size_keep_their_ranges() {
    for (store, load) in [("u64", "u64"), ("u32", "u32"), ("u16", "u16"), ("u8", "u8")] {
        let text = format!(
            "r2 = *(u8 *)(r1 + 0)\nr2 &= 7\n*({store} *)(r10 - 8) = r2\nr3 = *({load} *)(r10 - 8)\n\
             r1 += r3\nr0 = *(u64 *)(r1 + 8)\nexit"
        );
        refused("raw", &text, Code::OutOfBounds, "16-byte buffer");
        accepted("raw", &text.replace("(r1 + 8)", "(r1 + 1)"));
    }
}

#[test]
fn a_partial_overwrite_or_a_wider_fill_forgets_a_spilled_range() {
    // The byte above the range is written after the spill.
    let text = "r2 = *(u8 *)(r1 + 0)\nr2 &= 7\n*(u64 *)(r10 - 8) = r2\nr4 = *(u8 *)(r1 + 1)\n\
                *(u8 *)(r10 - 7) = r4\nr3 = *(u64 *)(r10 - 8)\nr1 += r3\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", text, Code::PointerArithmetic, "too much");
    // Half of a register was spilled; the other half of what is filled is something else.
    let text = "r2 = *(u64 *)(r1 + 0)\n*(u64 *)(r10 - 8) = r2\nr2 &= 7\n*(u32 *)(r10 - 8) = r2\n\
                r3 = *(u64 *)(r10 - 8)\nr1 += r3\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", text, Code::PointerArithmetic, "too much");
    // The lower half of a number with bits above is not the number.
    let text = "r2 = *(u64 *)(r1 + 0)\nif r2 > 7 goto out\nr2 |= 8\nr3 = 0x100000000 ll\nr2 |= r3\n\
                *(u64 *)(r10 - 8) = r2\nr4 = *(u32 *)(r10 - 4)\nr1 += r4\nr0 = *(u8 *)(r1 + 15)\nexit\n\
                out: r0 = 0\nexit";
    refused("raw", text, Code::OutOfBounds, "bytes 16..17");
}

#[test]
fn a_check_after_a_spill_holds_for_the_spilled_copy() {
    let text = "r2 = *(u64 *)(r1 + 0)\n*(u64 *)(r10 - 8) = r2\nif r2 > 8 goto out\nr3 = *(u64 *)(r10 - 8)\n\
                r1 += r3\nr0 = *(u64 *)(r1 + 0)\nexit\nout: r0 = 0\nexit";
    accepted("raw", text);
    refused("raw", &text.replace("r2 > 8", "r2 > 9"), Code::OutOfBounds, "16-byte buffer");
    // But not where the copy was changed since.
    let changed = text.replace("if r2", "*(u8 *)(r10 - 8) = 9\nif r2");
    refused("raw", &changed, Code::PointerArithmetic, "too much");
}

#[test]
fn spilled_pointers_are_whole_or_nothing() {
    accepted("xdp", "*(u64 *)(r10 - 8) = r1\nr2 = *(u64 *)(r10 - 8)\nr0 = *(u32 *)(r2 + 12)\nexit");
    refused("xdp", "*(u32 *)(r10 - 8) = r1\nr0 = 0\nexit", Code::PointerLeak, "whole");
    refused(
        "xdp",
        "*(u64 *)(r10 - 8) = r1\nr0 = *(u32 *)(r10 - 8)\nexit",
        Code::PointerLeak,
        "hold a pointer",
    );
    refused(
        "xdp",
        "*(u64 *)(r10 - 8) = r1\nr0 = *(u8 *)(r10 - 1)\nexit",
        Code::PointerLeak,
        "hold a pointer",
    );
    refused("xdp", "*(u64 *)(r10 - 8) = r1\nr0 = *(u64 *)(r10 - 12)\nexit", Code::Uninitialised, "");
    refused(
        "xdp",
        "*(u64 *)(r10 - 8) = r1\n*(u8 *)(r10 - 8) = 0\nr0 = *(u32 *)(r10 - 4)\nexit",
        Code::Uninitialised,
        "",
    );
    // The place may be used again for something smaller.
    accepted("xdp", "*(u64 *)(r10 - 8) = r1\n*(u32 *)(r10 - 8) = 0\nr0 = *(u32 *)(r10 - 8)\nexit");
    refused("xdp", "r1 = *(u64 *)(r10 - 8)\nr0 = 0\nexit", Code::Uninitialised, "");
}

#[test]
fn stack_accesses_at_unknown_places_stay_inside_and_touch_all() {
    let prologue = "r3 = *(u8 *)(r1 + 0)\nr3 &= 7\n*(u64 *)(r10 - 16) = 0\n*(u64 *)(r10 - 8) = 0\n\
                    r2 = r10\nr2 += -16\nr2 += r3\n";
    accepted("raw", &format!("{prologue}r0 = *(u64 *)(r2 + 0)\nexit"));
    refused("raw", &format!("{prologue}r0 = *(u64 *)(r2 + 8)\nexit"), Code::OutOfBounds, "below r10");
    refused("raw", &format!("{prologue}r0 = *(u64 *)(r2 - 8)\nexit"), Code::Uninitialised, "r10-24");
    // After a store at an unknown place, no constant there is known any more.
    let text = format!(
        "{prologue}*(u8 *)(r2 + 0) = 9\nr4 = *(u64 *)(r10 - 16)\nr1 += r4\nr0 = *(u8 *)(r1 + 0)\nexit"
    );
    refused("raw", &text, Code::PointerArithmetic, "too much");
    // And a pointer there may be broken.
    let text = "r3 = *(u8 *)(r1 + 0)\nr3 &= 7\n*(u64 *)(r10 - 8) = r1\nr2 = r10\nr2 += -8\nr2 += r3\n\
                *(u8 *)(r2 + 0) = 1\nr4 = *(u64 *)(r10 - 8)\nr0 = *(u8 *)(r4 + 0)\nexit";
    refused("raw", text, Code::Uninitialised, "r10-8");
    // A pointer may not be stored at an unknown place.
    refused(
        "raw",
        &format!("{prologue}*(u64 *)(r2 + 0) = r1\nr0 = 0\nexit"),
        Code::PointerLeak,
        "constant offset",
    );
}

// ---- context --------------------------------------------------------------------------------------------------

#[test]
fn context_accesses_hit_fields_and_are_rewritten() {
    let verified = accepted("xdp", "r0 = *(u32 *)(r1 + 12)\nexit");
    let expected = std::mem::offset_of!(skep_abi::XdpContext, ingress_ifindex) as i16;
    assert!(matches!(verified.insns()[0], Insn::Load { size: Size::B4, offset, .. } if offset == expected));
    // A part of a field, through a moved pointer.
    let verified = accepted("xdp", "r1 += 4\nr0 = *(u8 *)(r1 + 10)\nexit");
    assert!(
        matches!(verified.insns()[1], Insn::Load { size: Size::B1, offset, .. } if offset == expected + 2 - 4)
    );
    // A pointer field has 8 bytes in truth.
    let verified = accepted("xdp", "r2 = *(u32 *)(r1 + 4)\nr0 = 0\nexit");
    let expected = std::mem::offset_of!(skep_abi::XdpContext, data_end) as i16;
    assert!(matches!(verified.insns()[0], Insn::Load { size: Size::B8, offset, .. } if offset == expected));
    let verified = accepted("tc", "*(u32 *)(r1 + 8) = 7\nr0 = 0\nexit");
    let expected = std::mem::offset_of!(skep_abi::SkbContext, mark) as i16;
    assert!(matches!(verified.insns()[0], Insn::Store { offset, .. } if offset == expected));
}

#[test]
fn context_accesses_outside_of_fields_are_refused() {
    refused("xdp", "r0 = *(u32 *)(r1 + 24)\nexit", Code::Context, "bytes 24..28");
    refused("xdp", "r0 = *(u32 *)(r1 - 4)\nexit", Code::Context, "bytes -4..0");
    refused("xdp", "r0 = *(u64 *)(r1 + 12)\nexit", Code::Context, "bytes 12..20");
    refused("xdp", "r2 = *(u16 *)(r1 + 0)\nr0 = 0\nexit", Code::Context, "accessed whole");
    refused("xdp", "r2 = *(s32 *)(r1 + 0)\nr0 = 0\nexit", Code::Context, "sign extended");
    refused("xdp", "r0 = *(u16 *)(r1 + 13)\nexit", Code::Misaligned, "aligned");
    refused("xdp", "*(u32 *)(r1 + 12) = 1\nr0 = 0\nexit", Code::ReadOnly, "ingress_ifindex");
    refused("tc", "*(u32 *)(r1 + 8) = r1\nr0 = 0\nexit", Code::PointerLeak, "");
    refused("xdp", "r2 = 1\nlock *(u32 *)(r1 + 12) += r2\nr0 = 0\nexit", Code::Misaligned, "atomic");
    refused(
        "tc",
        "r2 = *(u32 *)(r1 + 0)\nr2 &= 4\nr1 += r2\nr0 = 0\nexit",
        Code::PointerArithmetic,
        "constant offset",
    );
    // Socket filters see less of the same structure.
    refused("socket", "r2 = *(u32 *)(r1 + 76)\nr0 = 0\nexit", Code::Context, "socket_filter");
}

#[test]
fn an_access_that_is_the_context_on_one_path_and_memory_on_another_is_refused() {
    let text = "r2 = *(u32 *)(r1 + 0)\n*(u64 *)(r10 - 8) = 0\nr3 = r1\nif r2 == 0 goto +2\nr3 = r10\nr3 += -8\n\
                r0 = *(u32 *)(r3 + 0)\nexit";
    refused("tc", text, Code::Context, "cannot be rewritten");
    // Different fields likewise.
    let text = "r2 = *(u32 *)(r1 + 0)\nr3 = r1\nif r2 == 0 goto +1\nr3 += 84\nr0 = *(u32 *)(r3 + 0)\nexit";
    refused("tc", text, Code::Context, "different context fields");
}

// ---- packets --------------------------------------------------------------------------------------------------

/// Loads data into r2 and data_end into r3.
const PACKET: &str = "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\n";

#[test]
fn a_packet_range_is_exact_in_every_orientation_of_its_check() {
    // (check that leaves at `out`, bytes known where it does not)
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
fn the_wrong_side_of_a_packet_check_says_nothing() {
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
    // A copy that was moved by an unknown number is another pointer.
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
    refused("xdp", &text("-1").replace("r5 &= -1\n", ""), Code::PointerArithmetic, "too much");
    // What is left of a range after a known one was shortened by a bounded number.
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
    // A range of nothing is no permission to look back.
    let back =
        text("0xff").replace("if r4 > r3 goto out\nr0 = *(u32 *)(r2 + 0)", "r2 += 14\nr0 = *(u8 *)(r2 - 14)");
    refused("xdp", &back.replace("out: ", ""), Code::OutOfBounds, "data_end");
}

#[test]
fn a_packet_may_not_be_written_by_types_that_only_read() {
    // No such type exists among those that read packets, so the flag is tried on a copy of one.
    let reader: &'static skep_abi::ProgramType = Box::leak(Box::new(skep_abi::ProgramType {
        writes_packet: false,
        name: "reader",
        number: None,
        sections: &[],
        context: skep_abi::XDP.context,
        reads_packet: true,
        helpers: &[],
        verdicts: &[],
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
    refused("xdp", &moved("r7 = *(u64 *)(r10 - 8)\nr0 = 0"), Code::Uninitialised, "r10-8");
    accepted("xdp", &moved("r2 = *(u32 *)(r6 + 0)\nr0 = 0"));
    // In the frames of callers too.
    refused(
        "xdp",
        &format!(
            "r6 = r1\n{PACKET}r4 = r2\nr4 += 14\nif r4 > r3 goto out\nr7 = r2\ncall f\nr0 = *(u8 *)(r7 + 0)\nexit\n\
             out: r0 = 0\nexit\nf: r2 = 4\ncall 44\nexit"
        ),
        Code::Uninitialised,
        "may have moved the packet",
    );
    // And what such a helper reads may not lie in the packet that it moves.
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

// ---- maps -----------------------------------------------------------------------------------------------------

/// Looks up key 0 of map 0; r0 is the value or null.
const LOOKUP: &str = "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\n";

#[test]
fn a_looked_up_value_is_checked_against_null() {
    let refusal = refused(
        "xdp",
        &format!("{LOOKUP}r0 = *(u64 *)(r0 + 0)\nexit"),
        Code::MaybeNull,
        "against NULL first",
    );
    assert_eq!((refusal.slot, &*refusal.insn), (6, "r0 = *(u64 *)(r0 + 0x0)"));
    accepted("xdp", &format!("{LOOKUP}if r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nr0 = 0\nexit"));
    accepted("xdp", &format!("{LOOKUP}if r0 != 0 goto +1\nexit\nr0 = *(u64 *)(r0 + 8)\nexit"));
    accepted("xdp", &format!("{LOOKUP}r1 = 0\nif r0 == r1 goto +1\nr0 = *(u64 *)(r0 + 0)\nr0 = 0\nexit"));
    accepted("xdp", &format!("{LOOKUP}r1 = 0\nif r1 == r0 goto +1\nr0 = *(u64 *)(r0 + 0)\nr0 = 0\nexit"));
    refused(
        "xdp",
        &format!("{LOOKUP}if r0 == 0 goto +2\nr0 = 0\nexit\nr0 = *(u64 *)(r0 + 0)\nexit"),
        Code::MaybeNull,
        "null here",
    );
    refused("xdp", &format!("{LOOKUP}r0 += 8\nr0 = 0\nexit"), Code::MaybeNull, "NULL");
    refused("xdp", &format!("{LOOKUP}if r0 > 0 goto +0\nr0 = 0\nexit"), Code::PointerLeak, "compared");
    refused("xdp", &format!("{LOOKUP}if w0 == 0 goto +0\nr0 = 0\nexit"), Code::PointerLeak, "64 bits");
}

#[test]
fn copies_of_one_maybe_null_pointer_share_its_check() {
    accepted("xdp", &format!("{LOOKUP}r6 = r0\nif r0 == 0 goto +1\nr0 = *(u64 *)(r6 + 0)\nr0 = 0\nexit"));
    accepted(
        "xdp",
        &format!(
            "{LOOKUP}*(u64 *)(r10 - 16) = r0\nif r0 == 0 goto +2\nr6 = *(u64 *)(r10 - 16)\nr0 = *(u64 *)(r6 + 0)\nr0 = 0\nexit"
        ),
    );
    // Two look-ups of the same key are two pointers.
    refused(
        "xdp",
        &format!("{LOOKUP}r6 = r0\n{LOOKUP}if r0 == 0 goto +1\nr0 = *(u64 *)(r6 + 0)\nr0 = 0\nexit"),
        Code::MaybeNull,
        "r6",
    );
    refused(
        "xdp",
        &format!("{LOOKUP}r6 = r0\n{LOOKUP}if r6 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nr0 = 0\nexit"),
        Code::MaybeNull,
        "r0",
    );
}

#[test]
fn map_values_have_their_size() {
    let text = |access: &str| format!("{LOOKUP}if r0 == 0 goto out\n{access}\nout: r0 = 0\nexit");
    accepted("xdp", &text("r1 = *(u64 *)(r0 + 8)"));
    refused(
        "xdp",
        &text("r1 = *(u64 *)(r0 + 9)"),
        Code::OutOfBounds,
        "16-byte value of the map hash, found bytes 9..17",
    );
    refused("xdp", &text("r1 = *(u8 *)(r0 - 1)"), Code::OutOfBounds, "bytes -1..0");
    accepted("xdp", &text("*(u64 *)(r0 + 8) = 5"));
    refused("xdp", &text("*(u64 *)(r0 + 0) = r10"), Code::PointerLeak, "only be stored to the stack");
    // Variable offsets: bounded from above, and from below.
    let variable =
        |bound: &str| text(&format!("r1 = *(u64 *)(r0 + 0)\n{bound}\nr0 += r1\nr2 = *(u8 *)(r0 + 0)"));
    accepted("xdp", &variable("r1 &= 15"));
    refused("xdp", &variable("r1 &= 16"), Code::OutOfBounds, "bound the variable part");
    accepted("xdp", &variable("if r1 > 15 goto out"));
    refused("xdp", &variable("if r1 s> 15 goto out"), Code::PointerArithmetic, "too much");
    accepted("xdp", &variable("if r1 s> 15 goto out\nif r1 s< 0 goto out"));
    refused("xdp", &variable("if r1 s> 15 goto out\nif r1 s< -1 goto out"), Code::OutOfBounds, "-1..=15");
    accepted("xdp", &variable("if w1 > 15 goto out\nw1 = w1"));
    refused("xdp", &variable("if w1 > 15 goto out"), Code::PointerArithmetic, "too much");
}

#[test]
fn direct_values_of_arrays_are_bounded_too() {
    accepted("xdp", "r1 = map_value[1]+0x38 ll\nr0 = *(u64 *)(r1 + 0)\nexit");
    refused(
        "xdp",
        "r1 = map_value[1]+0x39 ll\nr0 = *(u64 *)(r1 + 0)\nexit",
        Code::OutOfBounds,
        "bytes 57..65",
    );
    refused("xdp", "r1 = map_value[1]+0x40 ll\nr0 = 0\nexit", Code::OutOfBounds, "offset 64");
    refused("xdp", "r1 = map_value[0]+0x0 ll\nr0 = 0\nexit", Code::Structure, "no fixed address");
    refused("xdp", "r1 = map[99] ll\nr0 = 0\nexit", Code::Structure, "no map of index 99");
}

#[test]
fn flags_say_whether_programs_may_read_or_write() {
    accepted("xdp", "r1 = map_value[2]+0x0 ll\nr0 = *(u64 *)(r1 + 0)\nexit");
    refused("xdp", "r1 = map_value[2]+0x0 ll\n*(u64 *)(r1 + 0) = 1\nr0 = 0\nexit", Code::ReadOnly, "rodata");
    refused("xdp", "r1 = map_value[3]+0x0 ll\nr0 = *(u64 *)(r1 + 0)\nexit", Code::ReadOnly, "sink");
    accepted("xdp", "r1 = map_value[3]+0x0 ll\n*(u64 *)(r1 + 0) = 1\nr0 = 0\nexit");
    let add =
        |map: u32| format!("r1 = map_value[{map}]+0x0 ll\nr2 = 1\nlock *(u64 *)(r1 + 0) += r2\nr0 = 0\nexit");
    accepted("xdp", &add(1));
    refused("xdp", &add(2), Code::ReadOnly, "rodata");
    refused("xdp", &add(3), Code::ReadOnly, "sink");
    let update = |map: u32| {
        format!(
            "*(u32 *)(r10 - 4) = 0\nr1 = map[{map}] ll\nr2 = r10\nr2 += -4\nr3 = map_value[1]+0x0 ll\nr4 = 0\ncall 2\nr0 = 0\nexit"
        )
    };
    accepted("xdp", &update(1));
    refused("xdp", &update(2), Code::ReadOnly, "by its flags");
    refused(
        "xdp",
        &LOOKUP.replace("map[0]", "map[3]").replace("call 1\n", "call 1\nr0 = 0\nexit"),
        Code::ReadOnly,
        "by its flags",
    );
    // What a look-up in a read-only map finds is read-only as well.
    let found = LOOKUP.replace("map[0]", "map[2]");
    refused(
        "xdp",
        &format!("{found}if r0 == 0 goto +1\n*(u8 *)(r0 + 0) = 1\nr0 = 0\nexit"),
        Code::ReadOnly,
        "rodata",
    );
}

// ---- leaks ----------------------------------------------------------------------------------------------------

#[test]
fn pointers_leave_a_program_nowhere() {
    for kind in ["xdp", "tc", "raw"] {
        refused(kind, "r0 = r1\nexit", Code::PointerLeak, "result in r0");
        refused(
            kind,
            "r1 = map_value[1]+0x0 ll\n*(u64 *)(r1 + 0) = r10\nr0 = 0\nexit",
            Code::PointerLeak,
            "",
        );
        refused(kind, "r0 = 0\nif r1 > 5 goto +0\nexit", Code::PointerLeak, "compared");
        refused(kind, "r0 = 0\nif r1 == r10 goto +0\nexit", Code::PointerLeak, "different kinds");
        refused(kind, "r0 = 0\nif r1 & 1 goto +0\nexit", Code::PointerLeak, "");
        let atomic = "r1 = map_value[1]+0x0 ll\nr2 = r10\nlock *(u64 *)(r1 + 0) += r2\nr0 = 0\nexit";
        refused(kind, atomic, Code::PointerLeak, "operands of an atomic");
        let exchange =
            "r0 = 0\nr1 = map_value[1]+0x0 ll\nr2 = r10\nr0 = cmpxchg_64(r1 + 0x0, r0, r2)\nr0 = 0\nexit";
        refused(kind, exchange, Code::PointerLeak, "operands of an atomic");
    }
    refused("raw", "*(u64 *)(r1 + 0) = r1\nr0 = 0\nexit", Code::PointerLeak, "");
    refused(
        "xdp",
        &format!("{PACKET}r4 = r2\nr4 += 8\nif r4 > r3 goto +1\n*(u64 *)(r2 + 0) = r2\nr0 = 0\nexit"),
        Code::PointerLeak,
        "",
    );
    // Through a helper that copies stack bytes into a map.
    let text = "*(u64 *)(r10 - 16) = r1\n*(u64 *)(r10 - 8) = 0\n*(u32 *)(r10 - 20) = 0\nr1 = map[0] ll\nr2 = r10\n\
                r2 += -20\nr3 = r10\nr3 += -16\nr4 = 0\ncall 2\nr0 = 0\nexit";
    refused("xdp", text, Code::PointerLeak, "hold a pointer");
}

#[test]
fn distances_inside_of_a_packet_are_numbers() {
    accepted("xdp", &format!("{PACKET}r0 = r3\nr0 -= r2\nexit"));
    accepted("xdp", &format!("{PACKET}r3 -= r2\nr0 = r3\nexit"));
    accepted("xdp", &format!("{PACKET}w3 -= w2\nw0 = w3\nexit"));
    accepted("xdp", &format!("{PACKET}w4 = w3\nw4 -= w2\nw0 = w4\nexit"));
    accepted("xdp", &format!("{PACKET}w4 = w3\nw5 = w2\nw4 -= w5\nw0 = w4\nexit"));
    // A half alone is still an address.
    refused("xdp", &format!("{PACKET}w0 = w2\nexit"), Code::PointerLeak, "half of a packet pointer");
    refused("xdp", &format!("{PACKET}w4 = w3\nr4 -= r2\nr0 = r4\nexit"), Code::PointerArithmetic, "half");
    refused("xdp", &format!("{PACKET}w4 = w3\nw4 += 1\nr0 = 0\nexit"), Code::PointerArithmetic, "half");
    refused("xdp", &format!("{PACKET}w4 = w3\nif r4 > r3 goto +0\nr0 = 0\nexit"), Code::PointerLeak, "half");
    refused("xdp", &format!("{PACKET}w4 = w3\nif w4 > w3 goto +0\nr0 = 0\nexit"), Code::PointerLeak, "half");
    refused(
        "xdp",
        &format!("r6 = r1\n{PACKET}w7 = w3\nr2 = 4\ncall 44\nr3 = *(u32 *)(r6 + 4)\nw3 -= w7\nr0 = 0\nexit"),
        Code::Uninitialised,
        "may have moved",
    );
    // Of which nothing is known.
    refused(
        "xdp",
        &format!("{PACKET}r4 = r3\nr4 -= r2\nr2 += r4\nr0 = 0\nexit"),
        Code::PointerArithmetic,
        "too much",
    );
}

// ---- helpers --------------------------------------------------------------------------------------------------

#[test]
fn helpers_get_what_their_prototypes_ask_for() {
    refused("xdp", "call 4\nr0 = 0\nexit", Code::Helper, "no helper 4");
    refused("xdp", "call 26\nr0 = 0\nexit", Code::Helper, "may not call skb_load_bytes");
    refused("xdp", "r1 = 5\nr2 = r10\ncall 1\nr0 = 0\nexit", Code::Argument, "expects a map in r1, found 5");
    refused("xdp", "r1 = map[0] ll\nr2 = 0\ncall 1\nr0 = 0\nexit", Code::Argument, "expects memory in r2");
    refused("xdp", "r1 = map[0] ll\ncall 1\nr0 = 0\nexit", Code::Uninitialised, "r2");
    refused(
        "xdp",
        "r1 = map[4] ll\nr2 = r10\nr2 += -4\n*(u32 *)(r10 - 4) = 0\ncall 1\nr0 = 0\nexit",
        Code::Argument,
        "prog_array",
    );
    refused("xdp", "r1 = map[6] ll\nr2 = r10\ncall 1\nr0 = 0\nexit", Code::Unsupported, "ringbuf");
    refused("xdp", "r1 += 4\nr2 = 0\ncall 44\nr0 = 0\nexit", Code::Argument, "the context, unchanged");
    refused("xdp", "r2 = r10\ncall 44\nr0 = 0\nexit", Code::Argument, "a number in r2");
    accepted("xdp", "r2 = 0\ncall 44\nr0 = 0\nexit");
    // A key in a packet or in a map's value.
    accepted(
        "xdp",
        &format!("{PACKET}r4 = r2\nr4 += 4\nif r4 > r3 goto +3\nr1 = map[0] ll\ncall 1\nr0 = 0\nexit"),
    );
    accepted("xdp", "r1 = map[0] ll\nr2 = map_value[1]+0x3c ll\ncall 1\nr0 = 0\nexit");
    refused(
        "xdp",
        "r1 = map[0] ll\nr2 = map_value[1]+0x3d ll\ncall 1\nr0 = 0\nexit",
        Code::OutOfBounds,
        "bytes 61..65",
    );
    refused(
        "xdp",
        &format!("{LOOKUP}r1 = map[0] ll\nr2 = r0\ncall 1\nr0 = 0\nexit"),
        Code::MaybeNull,
        "map_lookup_elem is given r2",
    );
}

#[test]
fn gpl_helpers_need_a_licence() {
    let text = "*(u64 *)(r10 - 8) = 0\nr1 = r10\nr1 += -8\nr2 = 8\ncall 6\nr0 = 0\nexit";
    accepted("xdp", text); // r3 to r5 may be unset: the format names nothing
    let mut unverified = program(kind("xdp"), text);
    unverified.source.gpl_compatible = false;
    let refusal = verify(unverified, &Config::default()).unwrap_err();
    assert_eq!(refusal.code, Code::Helper);
    assert!(refusal.suggestion.unwrap().contains("LICENSE"));
}

#[test]
fn sizes_are_judged_by_their_greatest_value() {
    // skb_load_bytes(ctx, offset, to, size)
    let text = |size: &str| {
        format!("r4 = *(u32 *)(r1 + 0)\n{size}\nr2 = 0\nr3 = r10\nr3 += -16\ncall 26\nr0 = 0\nexit")
    };
    accepted("tc", &text("r4 = 16"));
    refused("tc", &text("r4 = 17"), Code::OutOfBounds, "bytes -16..1");
    refused("tc", &text("r4 = 0"), Code::Argument, "size that is not 0");
    refused("tc", &text("r4 = -1"), Code::Argument, "bounded size");
    refused("tc", &text("r4 = r10"), Code::Argument, "a size in r4");
    refused("tc", &text("r4 &= 15"), Code::Argument, "size that is not 0");
    accepted("tc", &text("r4 &= 15\nr4 += 1"));
    refused("tc", &text("r4 &= 16\nr4 += 1"), Code::OutOfBounds, "");
    refused("tc", &text("r5 = 0"), Code::Argument, "bounded size");
}

#[test]
fn what_a_helper_writes_is_initialised_as_far_as_it_is_sure() {
    let text = |size: &str, load: &str| {
        format!("r4 = *(u32 *)(r1 + 0)\n{size}\nr2 = 0\nr3 = r10\nr3 += -16\ncall 26\nr0 = {load}\nexit")
    };
    accepted("tc", &text("r4 = 16", "*(u64 *)(r10 - 8)"));
    refused("tc", &text("r4 = 8", "*(u64 *)(r10 - 8)"), Code::Uninitialised, "r10-8");
    refused("tc", &text("r4 &= 7\nr4 += 9", "*(u64 *)(r10 - 8)"), Code::Uninitialised, "r10-8");
    accepted("tc", &text("r4 &= 7\nr4 += 8", "*(u64 *)(r10 - 16)"));
    // What was known of the bytes before is no longer known.
    let text = "*(u64 *)(r10 - 8) = 0\nr2 = 0\nr3 = r10\nr3 += -8\nr4 = 1\ncall 26\nr2 = *(u64 *)(r10 - 8)\n\
                r1 = map_value[1]+0x0 ll\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("tc", text, Code::PointerArithmetic, "too much");
    // A pointer in their way is gone.
    let text = "*(u64 *)(r10 - 8) = r1\nr2 = 0\nr3 = r10\nr3 += -8\nr4 = 1\ncall 26\nr2 = *(u64 *)(r10 - 8)\nr0 = 0\nexit";
    refused("tc", text, Code::Uninitialised, "r10-8");
}

#[test]
fn null_is_memory_only_where_the_prototype_says_so() {
    let diff = |from: &str, size: &str| {
        format!("{from}\n{size}\nr3 = r10\nr3 += -8\n*(u64 *)(r10 - 8) = 0\nr4 = 8\nr5 = 0\ncall 28\nexit")
    };
    accepted("xdp", &diff("r1 = 0", "r2 = 0"));
    refused("xdp", &diff("r1 = 0", "r2 = 4"), Code::Argument, "null in r1");
    accepted("xdp", &diff("r1 = r10\nr1 += -8\n*(u64 *)(r10 - 8) = 0", "r2 = 0"));
    refused("xdp", &diff("r1 = 5", "r2 = 0"), Code::Argument, "memory in r1");
    // Size zero of memory whose place is not even readable.
    accepted("xdp", &diff("r1 = r10", "r2 = 0"));
}

#[test]
fn results_have_the_ranges_that_prototypes_promise() {
    let text = "call 8\nr1 = 0xffffffff ll\nif r0 > r1 goto bad\nr0 = 0\nexit\nbad: r0 = r9\nexit";
    accepted("xdp", text);
    let text =
        "r2 = 0\ncall 44\nif r0 s> 0 goto bad\nif r0 s< -4095 goto bad\nr0 = 0\nexit\nbad: r0 = r9\nexit";
    accepted("xdp", text);
    refused("xdp", &text.replace("-4095", "-4094"), Code::Uninitialised, "r9");
    let text = "r2 = 0\ncall 44\nif r0 s< 0 goto bad\nr0 = 0\nexit\nbad: r0 = r9\nexit";
    refused("xdp", text, Code::Uninitialised, "r9");
}

#[test]
fn constant_maps_and_keys_are_facts_where_every_path_agrees() {
    let verified =
        accepted("xdp", "*(u32 *)(r10 - 4) = 3\nr1 = map[5] ll\nr2 = r10\nr2 += -4\ncall 1\nr0 = 0\nexit");
    let fact = verified.facts()[5].call.unwrap();
    assert_eq!((fact.map, fact.key), (Some(5), Some(3)));
    let two = |second: &str| {
        format!(
            "r3 = *(u32 *)(r1 + 12)\n*(u32 *)(r10 - 4) = 3\nr1 = map[5] ll\nif r3 == 0 goto +2\n{second}\ngoto +0\n\
             r2 = r10\nr2 += -4\ncall 1\nr0 = 0\nexit"
        )
    };
    let key = accepted("xdp", &two("*(u32 *)(r10 - 4) = 4"));
    let fact = key.facts().iter().find_map(|fact| fact.call).unwrap();
    assert_eq!((fact.map, fact.key), (Some(5), None));
    let same = accepted("xdp", &two("*(u32 *)(r10 - 4) = 3"));
    assert_eq!(same.facts().iter().find_map(|fact| fact.call).unwrap().key, Some(3));
    let map = accepted("xdp", &two("r1 = map[1] ll").replace("goto +2\n", "goto +3\n"));
    let fact = map.facts().iter().find_map(|fact| fact.call).unwrap();
    assert_eq!((fact.map, fact.key), (None, Some(3)));
    // The key of a hash is no index.
    let hash = accepted("xdp", &format!("{LOOKUP}r0 = 0\nexit"));
    assert_eq!(hash.facts()[5].call.map(|fact| (fact.map, fact.key)), Some((Some(0), None)));
}

// ---- atomics --------------------------------------------------------------------------------------------------

#[test]
fn atomics_work_on_aligned_memory_that_stays_put() {
    accepted(
        "xdp",
        "*(u64 *)(r10 - 8) = 1\nr0 = 1\nlock *(u64 *)(r10 - 8) += r0\nr0 = *(u64 *)(r10 - 8)\nexit",
    );
    refused("xdp", "r0 = 1\nlock *(u64 *)(r10 - 8) += r0\nexit", Code::Uninitialised, "r10-8");
    refused(
        "xdp",
        "*(u64 *)(r10 - 8) = 1\nr0 = 1\nlock *(u32 *)(r10 - 7) += r0\nexit",
        Code::Misaligned,
        "multiple of 4",
    );
    accepted("raw", "r0 = 1\nlock *(u64 *)(r1 + 8) += r0\nexit");
    refused("raw", "r0 = 1\nlock *(u64 *)(r1 + 4) += r0\nexit", Code::Misaligned, "multiple of 8");
    refused("raw", "r0 = 1\nlock *(u64 *)(r1 + 16) += r0\nexit", Code::OutOfBounds, "bytes 16..24");
    let packet =
        format!("{PACKET}r4 = r2\nr4 += 8\nr0 = 1\nif r4 > r3 goto +1\nlock *(u64 *)(r2 + 0) += r0\nexit");
    refused("xdp", &packet, Code::Misaligned, "pkt");
    accepted("raw", "r0 = load_acquire((u64 *)(r1 + 8))\nexit");
    refused("raw", "r0 = load_acquire((u64 *)(r1 + 9))\nexit", Code::Misaligned, "multiple of 8");
    refused("xdp", "w0 = load_acquire((u32 *)(r1 + 12))\nexit", Code::Misaligned, "atomic");
    accepted("raw", "r0 = 0\nstore_release((u32 *)(r1 + 4), w0)\nexit");
}

#[test]
fn fetched_values_are_unknown_and_of_their_size() {
    // The number in r2 is no longer 0 after the fetch.
    let text = "r2 = 0\nr2 = atomic_fetch_add((u64 *)(r1 + 0), r2)\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", text, Code::PointerArithmetic, "too much");
    let text = "r2 = -1\nw2 = atomic_fetch_or((u32 *)(r1 + 0), w2)\nr2 >>= 32\nr1 += r2\nr0 = *(u8 *)(r1 + 15)\nexit";
    accepted("raw", text); // zero-extended: the upper half is 0
    let text = "r0 = 0\nr2 = 1\nr0 = cmpxchg_64(r1 + 0x0, r0, r2)\nr1 += r0\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", text, Code::PointerArithmetic, "too much");
    // What is in memory is unknown too, and the operand of a plain addition stays what it was.
    let text = "*(u64 *)(r10 - 8) = 0\nr2 = 3\nlock *(u64 *)(r10 - 8) += r2\nr3 = *(u64 *)(r10 - 8)\nr1 += r2\nr1 += r3\nr0 = 0\nexit";
    refused("raw", text, Code::PointerArithmetic, "r1");
}

// ---- calls and returns ----------------------------------------------------------------------------------------

#[test]
fn callees_may_use_their_callers_stack_but_not_leave_their_own_there() {
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
    // A caller's own address may come back.
    accepted(
        "xdp",
        "*(u64 *)(r10 - 8) = 1\nr1 = r10\nr1 += -8\ncall f\nr0 = *(u64 *)(r0 + 0)\nexit\nf: r0 = r1\nexit",
    );
    // What a callee wrote in its own frame is not there in the next one.
    refused(
        "xdp",
        "call f\ncall g\nexit\nf: *(u64 *)(r10 - 8) = 1\nr0 = 0\nexit\ng: r0 = *(u64 *)(r10 - 8)\nexit",
        Code::Uninitialised,
        "r10-8",
    );
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

// ---- loops ----------------------------------------------------------------------------------------------------

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
    // Two backward jumps that take turns.
    refused(
        "xdp",
        "r0 = 0\nr1 = 0\na: r0 += 1\nr0 = 0\nif r1 == 0 goto a\nb: if r1 == 0 goto a\ngoto b",
        Code::Loop,
        "",
    );
    refused("xdp", "r0 = 0\na: r0 ^= 1\nif r0 != 0 goto b\ngoto a\nb: goto a", Code::Loop, "may never end");
    // Something changes, but nothing that matters.
    refused(
        "tc",
        "r3 = 0\nnext: r3 += 1\nr2 = *(u32 *)(r1 + 0)\nif r2 != 7 goto next\nr0 = r3\nexit",
        Code::Loop,
        "",
    );
    // Something that matters changes for ever.
    refused("xdp", "r0 = 0\nnext: r0 += 1\nif r0 != -1 goto next\nexit", Code::Limit, "1000000 instructions");
}

#[test]
fn a_repeated_state_is_no_loop_where_something_that_matters_changed() {
    // An inner loop that is entered again and again with the same counter of its own.
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
    // Little memory for remembered states slows the walk but changes nothing.
    assert!(limited(text, 2002, 4096).is_ok());
    // Paths put aside cannot be forgotten: each round leaves one.
    let forks = "r6 = r1\nr0 = 0\nnext: r0 += 1\nr2 = *(u32 *)(r6 + 0)\nif r2 == 5 goto out\nif r0 < 100 goto next\nout: exit";
    assert!(limited(forks, 100_000, 1 << 20).is_ok());
    assert_eq!(limited(forks, 100_000, 20_000).unwrap_err().code, Code::Limit);
}

#[test]
fn joining_paths_are_walked_once_unless_they_differ_in_what_matters() {
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
    // Where the number is used as an index in the end, every value of it must be looked at.
    let text =
        format!("{}r1 = map_value[1]+0x0 ll\nr1 += r7\nr0 = *(u8 *)(r1 + 0)\nexit", diamonds("r7 += 1"));
    let verified = accepted("tc", &text);
    assert!((100..10_000).contains(&verified.stats().walked), "{}", verified.stats().walked);
    refused("tc", &text.replace("r7 += 1", "r7 += 4"), Code::OutOfBounds, "64-byte value");
}

// ---- refusals -------------------------------------------------------------------------------------------------

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let unsupported = [
        ("xdp", "r0 = *(u8 *)skb[0]\nexit", "legacy packet loads"),
        ("xdp", "callx r1\nexit", "through registers"),
        ("xdp", "call kfunc[5]\nexit", "kernel functions"),
        ("xdp", "r1 = map_fd[3] ll\nr0 = 0\nexit", "was not linked"),
        ("xdp", "r1 = map_fd_value[3]+0x4 ll\nr0 = 0\nexit", "was not linked"),
        ("xdp", "r1 = var[7] ll\nr0 = 0\nexit", "variables"),
        ("xdp", "r1 = func[+0x1] ll\nr0 = 0\nexit", "callbacks"),
        ("xdp", "r2 = map[4] ll\nr3 = 0\ncall 12\nr0 = 0\nexit", "tail calls"),
    ];
    for (kind, text, phrase) in unsupported {
        refused(kind, text, Code::Unsupported, phrase);
    }
}

#[test]
fn entries_fit_their_types() {
    let entered = |kind_name, entry| {
        let mut unverified = program(kind(kind_name), "r0 = 0\nexit");
        unverified.entry = entry;
        verify(unverified, &Config::default()).map_err(|refusal| refusal.code)
    };
    assert!(entered("xdp", Entry::Context).is_ok());
    assert_eq!(entered("xdp", Entry::Buffer { len: 4 }).unwrap_err(), Code::Context);
    assert!(entered("raw", Entry::Buffer { len: 0 }).is_ok());
    assert_eq!(entered("raw", Entry::Context).unwrap_err(), Code::Context);
}

#[test]
fn a_buffer_has_exactly_its_length() {
    accepted("raw", "r0 = *(u64 *)(r1 + 8)\nexit");
    refused("raw", "r0 = *(u64 *)(r1 + 9)\nexit", Code::OutOfBounds, "16-byte buffer, found bytes 9..17");
    refused("raw", "r0 = *(u8 *)(r1 - 1)\nexit", Code::OutOfBounds, "bytes -1..0");
    // r2 is its length, a known number.
    accepted("raw", "r1 += r2\nr0 = *(u8 *)(r1 - 1)\nexit");
    refused("raw", "r1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit", Code::OutOfBounds, "bytes 16..17");
    let mut empty = program(kind("raw"), "r0 = *(u8 *)(r1 + 0)\nexit");
    empty.entry = Entry::Buffer { len: 0 };
    assert_eq!(verify(empty, &Config::default()).unwrap_err().code, Code::OutOfBounds);
}

#[test]
fn strict_alignment_is_the_hosts_choice() {
    let aligned = |text: &str| {
        let config = Config { strict_alignment: true, ..Config::default() };
        verify(program(kind("raw"), text), &config).map(|_| ()).map_err(|refusal| refusal.code)
    };
    accepted("raw", "r0 = *(u32 *)(r1 + 2)\nexit");
    assert_eq!(aligned("r0 = *(u32 *)(r1 + 2)\nexit"), Err(Code::Misaligned));
    assert_eq!(aligned("r0 = *(u32 *)(r1 + 4)\nexit"), Ok(()));
    assert_eq!(
        aligned("r2 = *(u8 *)(r1 + 0)\nr2 &= 7\nr1 += r2\nr0 = *(u16 *)(r1 + 0)\nexit"),
        Err(Code::Misaligned)
    );
    assert_eq!(aligned("r2 = *(u8 *)(r1 + 0)\nr2 &= 6\nr1 += r2\nr0 = *(u16 *)(r1 + 0)\nexit"), Ok(()));
}

#[test]
fn a_refusal_names_the_line_and_the_path() {
    let mut unverified: Unverified = program(
        kind("xdp"),
        &format!("{LOOKUP}r6 = *(u32 *)(r10 - 4)\nif r6 == 1 goto +0\nr0 = *(u64 *)(r0 + 0)\nexit"),
    );
    unverified.maps = maps();
    let line = |slot, line, text: &str| LineInfo {
        slot,
        file: Arc::from("a.bpf.c"),
        text: Arc::from(text),
        line,
        column: 1,
    };
    unverified.source.lines =
        vec![line(0, 3, "key = 0;"), line(6, 7, "if (key == 1)"), line(8, 9, "return *value;")];
    let refusal = verify(unverified, &Config::default()).unwrap_err();
    assert_eq!((refusal.slot, refusal.line, refusal.file.as_deref()), (8, Some(9), Some("a.bpf.c")));
    assert_eq!(refusal.source.as_deref(), Some("return *value;"));
    assert_eq!(
        refusal.to_string(),
        "program test refused at instruction 8 `r0 = *(u64 *)(r0 + 0x0)` (a.bpf.c:9): r0 may be null: \
         map_value_or_null(map=0,id=1,off=0); check the result of map_lookup_elem against NULL first"
    );
    let refusal = refused(
        "tc",
        "r2 = *(u32 *)(r1 + 0)\nif r2 == 1 goto +2\nr0 = 0\nexit\nif r2 > 5 goto +0\nr0 = r7\nexit",
        Code::Uninitialised,
        "r7",
    );
    let path: Vec<&str> = refusal.path.iter().map(|step| &*step.text).collect();
    assert_eq!(path, ["if r2 == 0x1 goto +0x2: taken"]);
    assert_eq!(refusal.walked, 6);
}

#[test]
fn a_branch_that_goes_one_way_only_becomes_a_jump() {
    let verified = accepted("xdp", "r0 = 1\nif r0 == 1 goto +1\nr0 = r9\nexit");
    assert!(matches!(verified.insns()[1], Insn::Jump { offset: 1, .. }));
    assert!(!verified.facts()[2].reached);
    let verified = accepted("xdp", "r0 = 1\nif r0 != 1 goto +1\nexit\nr0 = r9\nexit");
    assert!(matches!(verified.insns()[1], Insn::Jump { offset: 0, .. }));
    assert!(!verified.facts()[3].reached && !verified.facts()[3].jump_target);
}

#[test]
fn the_tag_is_that_of_the_program_as_given() {
    let text = "r0 = *(u32 *)(r1 + 12)\nexit";
    let verified = accepted("xdp", text);
    assert_ne!(verified.insns(), program(kind("xdp"), text).source.insns);
    let tag = skep_isa::tag(&program(kind("xdp"), text).source.insns).unwrap();
    assert_eq!(verified.tag(), tag.0);
}

#[test]
fn no_program_makes_the_verifier_panic() {
    // Every instruction on its own, with every register, in every type.
    let mut tried = 0;
    for kind_name in ["xdp", "tc", "socket", "raw"] {
        for opcode in 0..=255u8 {
            for regs in [0x00, 0x10, 0x21, 0x3a, 0xa1, 0x1a] {
                for (offset, imm) in [(0i16, 0i32), (-8, 1), (0, -1), (1, i32::MIN), (8, 16), (256, 7)] {
                    let mut bytes = vec![opcode, regs];
                    bytes.extend(offset.to_le_bytes());
                    bytes.extend(imm.to_le_bytes());
                    let Ok(mut insns) = skep_isa::decode_bytes(&bytes) else { continue };
                    insns.push(Insn::Store {
                        size: Size::B8,
                        base: Reg::R10,
                        offset: -8,
                        src: Operand::Reg(Reg::R1),
                    });
                    insns.push(Insn::Exit);
                    let _ = verify(from_insns(kind(kind_name), insns), &Config::default());
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 2_000, "{tried}");
    assert!(check("raw", "r0 = 0\nexit").is_ok());
}
