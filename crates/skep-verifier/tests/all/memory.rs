//! Loads and stores: stack, context, map values, buffers.

use crate::common::{accepted, refused};
use skep_isa::{Insn, Size};
use skep_verifier::Code;

/// Looks up key 0 of map 0; r0 is the value or null.
const LOOKUP: &str = "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\n";

#[test]
fn the_stack_has_512_bytes() {
    accepted("xdp", "*(u64 *)(r10 - 512) = 0\nr0 = *(u64 *)(r10 - 512)\nexit");
    refused("xdp", "*(u64 *)(r10 - 513) = 0\nr0 = 0\nexit", Code::Stack, "512 bytes of stack");
    refused("xdp", "*(u8 *)(r10 + 0) = 0\nr0 = 0\nexit", Code::OutOfBounds, "below r10");
    refused("xdp", "*(u64 *)(r10 - 4) = 0\nr0 = 0\nexit", Code::OutOfBounds, "bytes -4..4");
}

#[test]
fn a_stack_with_unwritten_reads_is_zeroed() {
    let zeroed = |ty: &str, text: &str| -> Vec<bool> {
        accepted(ty, text).functions().iter().map(|function| function.zeroed).collect()
    };
    for ty in ["xdp", "raw", "tracing"] {
        assert_eq!(zeroed(ty, "r0 = *(u64 *)(r10 - 8)\nr0 = 0\nexit"), [true]);
        assert_eq!(zeroed(ty, "*(u32 *)(r10 - 8) = 0\nr0 = *(u64 *)(r10 - 8)\nr0 = 0\nexit"), [true]);
    }
    let written = "*(u32 *)(r10 - 8) = 0\n*(u32 *)(r10 - 4) = 0\nr0 = *(u64 *)(r10 - 8)\nexit";
    assert_eq!(zeroed("xdp", written), [false]);
    // The number is not known to be zero.
    refused(
        "raw",
        "r0 = *(u32 *)(r10 - 4)\nr1 = r10\nr1 += r0\nr0 = *(u8 *)(r1 - 1)\nexit",
        Code::PointerArithmetic,
        "",
    );
    // Only the frame that is read is zeroed.
    let callee = "r1 = r10\nr1 += -8\ncall f\nexit\nf: r0 = *(u64 *)(r1 + 0)\nexit";
    assert_eq!(zeroed("xdp", callee), [true, false]);
    let own = "call f\nexit\nf: r0 = *(u64 *)(r10 - 8)\nexit";
    assert_eq!(zeroed("xdp", own), [false, true]);
    // A key with one byte of padding.
    let key = |last: &str| {
        format!(
            "*(u16 *)(r10 - 4) = 1\n*(u8 *)(r10 - 2) = 1\n{last}\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\nr0 = 0\nexit"
        )
    };
    assert_eq!(zeroed("xdp", &key("r3 = 0")), [true]);
    assert_eq!(zeroed("xdp", &key("*(u8 *)(r10 - 1) = 0")), [false]);
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
    refused("raw", text, Code::PointerArithmetic, "too large");
    // Half of a register was spilled; the fill reads another half beside it.
    let text = "r2 = *(u64 *)(r1 + 0)\n*(u64 *)(r10 - 8) = r2\nr2 &= 7\n*(u32 *)(r10 - 8) = r2\n\
                r3 = *(u64 *)(r10 - 8)\nr1 += r3\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", text, Code::PointerArithmetic, "too large");
    // The lower half of a number with upper bits is not the number.
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
    // But not if the copy was changed since.
    let changed = text.replace("if r2", "*(u8 *)(r10 - 8) = 9\nif r2");
    refused("raw", &changed, Code::PointerArithmetic, "too large");
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
    // The slot may be reused for something smaller.
    accepted("xdp", "*(u64 *)(r10 - 8) = r1\n*(u32 *)(r10 - 8) = 0\nr0 = *(u32 *)(r10 - 8)\nexit");
    let again = "*(u64 *)(r10 - 8) = r1\n*(u32 *)(r10 - 8) = 0\nr0 = *(u64 *)(r10 - 8)\nexit";
    refused("xdp", again, Code::Uninitialised, "stack bytes at r10-8");
    accepted("xdp", &again.replace("r0 =", "*(u32 *)(r10 - 4) = 0\nr0 ="));
}

#[test]
fn variable_stack_accesses_may_touch_every_byte_in_range() {
    let prologue = "r3 = *(u8 *)(r1 + 0)\nr3 &= 7\n*(u64 *)(r10 - 16) = 0\n*(u64 *)(r10 - 8) = 0\n\
                    r2 = r10\nr2 += -16\nr2 += r3\n";
    accepted("raw", &format!("{prologue}r0 = *(u64 *)(r2 + 0)\nexit"));
    refused("raw", &format!("{prologue}r0 = *(u64 *)(r2 + 8)\nexit"), Code::OutOfBounds, "below r10");
    let below = accepted("raw", &format!("{prologue}r0 = *(u64 *)(r2 - 8)\nexit"));
    assert!(below.functions()[0].zeroed && below.functions()[0].stack_bytes == 24);
    let left =
        format!("*(u64 *)(r10 - 24) = r1\n*(u8 *)(r10 - 24) = 0\n{prologue}r0 = *(u64 *)(r2 - 8)\nexit");
    refused("raw", &left, Code::Uninitialised, "r10-24");
    // A store at an unknown offset makes constants in its range unknown.
    let text = format!(
        "{prologue}*(u8 *)(r2 + 0) = 9\nr4 = *(u64 *)(r10 - 16)\nr1 += r4\nr0 = *(u8 *)(r1 + 0)\nexit"
    );
    refused("raw", &text, Code::PointerArithmetic, "too large");
    // And it may break a pointer there.
    let text = "r3 = *(u8 *)(r1 + 0)\nr3 &= 7\n*(u64 *)(r10 - 8) = r1\nr2 = r10\nr2 += -8\nr2 += r3\n\
                *(u8 *)(r2 + 0) = 1\nr4 = *(u64 *)(r10 - 8)\nr0 = *(u8 *)(r4 + 0)\nexit";
    refused("raw", text, Code::Uninitialised, "r10-8");
    // A pointer may not be stored at an unknown offset.
    refused(
        "raw",
        &format!("{prologue}*(u64 *)(r2 + 0) = r1\nr0 = 0\nexit"),
        Code::PointerLeak,
        "constant offset",
    );
}

#[test]
fn context_accesses_hit_fields_and_are_rewritten() {
    let verified = accepted("xdp", "r0 = *(u32 *)(r1 + 12)\nexit");
    let expected = std::mem::offset_of!(skep_abi::XdpContext, ingress_ifindex) as i16;
    assert!(matches!(verified.insns()[0], Insn::Load { size: Size::B4, offset, .. } if offset == expected));
    // A part of a field, through a moved pointer.
    let verified = accepted("tc", "r1 += 4\nr0 = *(u8 *)(r1 + 6)\nexit");
    let expected = std::mem::offset_of!(skep_abi::SkbContext, mark) as i16;
    assert!(
        matches!(verified.insns()[1], Insn::Load { size: Size::B1, offset, .. } if offset == expected + 2 - 4)
    );
    // The native pointer field has 8 bytes.
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
    refused("xdp", "r2 = *(s32 *)(r1 + 0)\nr0 = 0\nexit", Code::Context, "sign extension");
    refused("xdp", "r0 = *(u16 *)(r1 + 13)\nexit", Code::Misaligned, "aligned");
    refused("xdp", "*(u32 *)(r1 + 12) = 1\nr0 = 0\nexit", Code::ReadOnly, "ingress_ifindex");
    refused("tc", "*(u32 *)(r1 + 8) = r1\nr0 = 0\nexit", Code::PointerLeak, "");
    refused("xdp", "r2 = 1\nlock *(u32 *)(r1 + 12) += r2\nr0 = 0\nexit", Code::Misaligned, "atomic");
    refused(
        "tc",
        "r2 = *(u32 *)(r1 + 0)\nr2 &= 4\nr1 += r2\nr0 = *(u32 *)(r1 + 0)\nexit",
        Code::PointerArithmetic,
        "constant offset",
    );
    // Socket filters may access fewer fields of the same structure.
    refused("socket", "r2 = *(u32 *)(r1 + 76)\nr0 = 0\nexit", Code::Context, "socket_filter");
}

#[test]
fn one_access_may_not_read_both_context_and_memory() {
    let text = "r2 = *(u32 *)(r1 + 0)\n*(u64 *)(r10 - 8) = 0\nr3 = r1\nif r2 == 0 goto +2\nr3 = r10\nr3 += -8\n\
                r0 = *(u32 *)(r3 + 0)\nexit";
    refused("tc", text, Code::Context, "cannot be rewritten");
    // Different fields likewise.
    let text = "r2 = *(u32 *)(r1 + 0)\nr3 = r1\nif r2 == 0 goto +1\nr3 += 84\nr0 = *(u32 *)(r3 + 0)\nexit";
    refused("tc", text, Code::Context, "different context fields");
}

#[test]
fn a_looked_up_value_is_checked_against_null() {
    let refusal = refused(
        "xdp",
        &format!("{LOOKUP}r0 = *(u64 *)(r0 + 0)\nexit"),
        Code::MaybeNull,
        "compare it with NULL first",
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
    refused("xdp", &variable("if r1 s> 15 goto out"), Code::PointerArithmetic, "too large");
    accepted("xdp", &variable("if r1 s> 15 goto out\nif r1 s< 0 goto out"));
    refused("xdp", &variable("if r1 s> 15 goto out\nif r1 s< -1 goto out"), Code::OutOfBounds, "-1..=15");
    accepted("xdp", &variable("if w1 > 15 goto out\nw1 = w1"));
    refused("xdp", &variable("if w1 > 15 goto out"), Code::PointerArithmetic, "too large");
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
    // A looked-up value may still be written.
    let found = LOOKUP.replace("map[0]", "map[3]");
    accepted("xdp", &format!("{found}if r0 == 0 goto +1\n*(u64 *)(r0 + 0) = 1\nr0 = 0\nexit"));
    let read = format!("{found}if r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nr0 = 0\nexit");
    refused("xdp", &read, Code::ReadOnly, "sink");
    // A value looked up in a read-only map is read-only as well.
    let found = LOOKUP.replace("map[0]", "map[2]");
    refused(
        "xdp",
        &format!("{found}if r0 == 0 goto +1\n*(u8 *)(r0 + 0) = 1\nr0 = 0\nexit"),
        Code::ReadOnly,
        "rodata",
    );
}
