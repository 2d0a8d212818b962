//! Dynptrs: objects in the stack that only calls may touch.

use crate::common::{accepted, refused};
use skep_verifier::Code;

/// Creates a dynptr at r10-16 over the value of map 1. Eight slots.
const FROM_MEM: &str = "r1 = map_value[1] ll\nr2 = 64\nr3 = 0\nr4 = r10\nr4 += -16\ncall 197\n";
/// Reserves a record of 64 bytes and creates a dynptr over it at r10-16; the call is in slot 6.
const RESERVE: &str = "r1 = map[6] ll\nr2 = 64\nr3 = 0\nr4 = r10\nr4 += -16\ncall 198\n";
const DISCARD: &str = "r1 = r10\nr1 += -16\nr2 = 0\ncall 200\n";
/// A slice of 8 bytes of the dynptr, or null, in r0.
const DATA: &str = "r1 = r10\nr1 += -16\nr2 = 0\nr3 = 8\ncall 203\n";
/// Reads 8 bytes to r10-32.
const READ: &str = "r1 = r10\nr1 += -32\nr2 = 8\nr3 = r10\nr3 += -16\nr4 = 0\nr5 = 0\ncall 201\n";
const END: &str = "r0 = 0\nexit\n";

#[test]
fn a_dynptr_is_created_before_it_is_used() {
    accepted("xdp", &format!("{FROM_MEM}{READ}r0 = *(u64 *)(r10 - 32)\nexit"));
    refused("xdp", &format!("{READ}{END}"), Code::Argument, "an initialised dynptr in r3");
    let half = FROM_MEM.replace("r4 += -16", "r4 += -24");
    refused("xdp", &format!("{half}{READ}{END}"), Code::Argument, "an initialised dynptr");
    // Numbers in the stack are not a dynptr.
    let text = format!("*(u64 *)(r10 - 16) = 0\n*(u64 *)(r10 - 8) = 0\n{READ}{END}");
    refused("xdp", &text, Code::Argument, "an initialised dynptr");
    let text = READ.replace("r3 = r10\nr3 += -16", "r3 = map_value[1] ll");
    refused("xdp", &format!("{text}{END}"), Code::Argument, "a dynptr in the stack in r3");
}

#[test]
fn a_dynptr_has_its_place_in_the_stack() {
    for (place, ok) in [("-16", true), ("-512", true), ("-8", false), ("-20", false), ("-520", false)] {
        let text = format!("{}{END}", FROM_MEM.replace("r4 += -16", &format!("r4 += {place}")));
        if ok {
            accepted("xdp", &text);
        } else {
            refused("xdp", &text, Code::Argument, "a multiple of 8");
        }
    }
    let text = format!("{}{END}", FROM_MEM.replace("r4 = r10\nr4 += -16", "r4 = r1"));
    refused("xdp", &text, Code::Argument, "a dynptr in the stack");
}

#[test]
fn a_dynptr_is_created_over_memory_that_outlives_it() {
    let stack = FROM_MEM.replace("r1 = map_value[1] ll", "*(u64 *)(r10 - 64) = 0\nr1 = r10\nr1 += -64\n");
    refused("xdp", &format!("{stack}{END}"), Code::Argument, "a map's value in r1");
    let large = FROM_MEM.replace("r2 = 64", "r2 = 65");
    refused("xdp", &format!("{large}{END}"), Code::OutOfBounds, "64-byte value");
    let read_only = FROM_MEM.replace("map_value[1]", "map_value[2]");
    refused("xdp", &format!("{read_only}{END}"), Code::ReadOnly, "rodata");
}

#[test]
fn no_load_or_store_touches_a_dynptr() {
    for load in ["r0 = *(u64 *)(r10 - 16)", "r0 = *(u64 *)(r10 - 8)", "r0 = *(u64 *)(r10 - 12)"] {
        let text = format!("*(u64 *)(r10 - 24) = 0\n{FROM_MEM}{load}\n{END}");
        let refusal = crate::common::check("xdp", &text).expect_err("refused");
        assert!(matches!(refusal.code, Code::OutOfBounds | Code::PointerLeak), "{refusal}");
    }
    // A store invalidates it; that is allowed if it holds no reference.
    for store in ["*(u64 *)(r10 - 16) = 0", "*(u8 *)(r10 - 1) = 0"] {
        accepted("xdp", &format!("{FROM_MEM}{store}\n{END}"));
        refused("xdp", &format!("{FROM_MEM}{store}\n{READ}{END}"), Code::Argument, "an initialised dynptr");
        let text = format!("{RESERVE}{store}\n{DISCARD}{END}");
        refused("xdp", &text, Code::Resource, "the dynptr at r10-16 holds a record");
    }
    // So does a store at an unknown offset that may hit it.
    let text = format!(
        "r6 = *(u32 *)(r1 + 12)\nr6 &= 15\n{RESERVE}r1 = r10\nr1 += -32\nr1 += r6\n*(u8 *)(r1 + 2) = 0\n{DISCARD}{END}"
    );
    refused("xdp", &text, Code::Resource, "holds a record");
    // Calls may not use it as plain memory.
    let text = format!("{FROM_MEM}r2 = r10\nr2 += -16\nr1 = map[0] ll\ncall 1\n{END}");
    refused("xdp", &text, Code::OutOfBounds, "part of a dynptr");
    let text = format!("{FROM_MEM}{}{END}", READ.replace("r1 += -32", "r1 += -20"));
    refused("xdp", &text, Code::Resource, "would overwrite");
}

#[test]
fn a_record_is_released_even_if_its_reservation_failed() {
    accepted("xdp", &format!("{RESERVE}{DISCARD}{END}"));
    accepted("xdp", &format!("{RESERVE}{}{END}", DISCARD.replace("200", "199")));
    refused(
        "xdp",
        &format!("{RESERVE}{END}"),
        Code::Resource,
        "the dynptr acquired by the call of bpf_ringbuf_reserve_dynptr in 6",
    );
    let text = format!("{RESERVE}if r0 != 0 goto out\n{DISCARD}out: {END}");
    refused("xdp", &text, Code::Resource, "also where the reservation");
    refused("xdp", &format!("{RESERVE}{DISCARD}{DISCARD}{END}"), Code::Argument, "an initialised dynptr");
    refused("xdp", &format!("{FROM_MEM}{DISCARD}{END}"), Code::Resource, "over a ring buffer's record");
    // Two dynptrs in the same stack slots: the first record would leak.
    refused("xdp", &format!("{RESERVE}{RESERVE}{DISCARD}{END}"), Code::Resource, "holds a record");
    accepted("xdp", &format!("{FROM_MEM}{FROM_MEM}{READ}{END}"));
}

#[test]
fn slices_end_with_their_dynptr() {
    let text = |middle: &str| {
        format!("{FROM_MEM}{DATA}if r0 == 0 goto out\nr6 = r0\n{middle}*(u64 *)(r6 + 0) = 1\nout: {END}")
    };
    accepted("xdp", &text(""));
    refused("xdp", &text("r6 += 1\n"), Code::OutOfBounds, "8-byte memory");
    refused("xdp", &text("*(u64 *)(r10 - 16) = 0\n"), Code::Uninitialised, "r6 held an object");
    refused("xdp", &text(FROM_MEM), Code::Uninitialised, "r6 held an object");
    refused("xdp", &format!("{FROM_MEM}{DATA}*(u8 *)(r0 + 0) = 1\n{END}"), Code::MaybeNull, "null");
    let text = |end: &str| {
        format!("{RESERVE}{DATA}if r0 == 0 goto out\nr6 = r0\n*(u64 *)(r6 + 0) = 1\n{end}out: {DISCARD}{END}")
    };
    accepted("xdp", &text(""));
    let after = format!("{DISCARD}*(u64 *)(r6 + 0) = 1\n{END}");
    refused("xdp", &text(&after), Code::Uninitialised, "r6 held an object");
    // A slice is not a record.
    let submit = format!("r1 = r6\nr2 = 0\ncall 132\n{END}");
    refused("xdp", &text(&submit), Code::Resource, "made from the dynptr");
    let unknown = DATA.replace("r3 = 8", "r3 = *(u32 *)(r10 - 24)");
    let text = format!("*(u32 *)(r10 - 24) = r1\n{FROM_MEM}{unknown}{END}");
    let text = text.replace("*(u32 *)(r10 - 24) = r1", "r1 = *(u32 *)(r1 + 12)\n*(u32 *)(r10 - 24) = r1");
    refused("xdp", &text, Code::Argument, "a constant size");
}

#[test]
fn a_callee_uses_and_releases_its_caller_s_dynptr() {
    let text = format!("{RESERVE}r1 = r10\nr1 += -16\ncall give\n{END}give: r2 = 0\ncall 200\nr0 = 0\nexit");
    accepted("xdp", &text);
    // A dynptr in a callee's frame could never be released after it returns.
    refused("xdp", &format!("call take\n{END}take: {RESERVE}r0 = 0\nexit"), Code::Resource, "dynptr");
}
