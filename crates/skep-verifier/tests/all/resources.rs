//! What a program must release: records of ring buffers, sockets, dynptrs, locks.

use crate::common::{accepted, refused};
use skep_verifier::Code;

/// Reserves 16 bytes in the ring buffer; r0 is the record or null. Slot of the call: 4.
const RESERVE: &str = "r1 = map[6] ll\nr2 = 16\nr3 = 0\ncall 131\n";
const SUBMIT: &str = "r2 = 0\ncall 132\n";
/// Looks up a socket; r0 is the socket or null. Slot of the call: 9.
const SOCKET: &str = "*(u64 *)(r10 - 16) = 0\n*(u32 *)(r10 - 8) = 0\nr2 = r10\nr2 += -16\nr3 = 12\nr4 = 0\nr5 = 0\n\
                      call 84\n";
const END: &str = "r0 = 0\nexit\n";

#[test]
fn a_record_is_released_once_on_every_path() {
    let good = format!("{RESERVE}if r0 == 0 goto out\nr1 = r0\n{SUBMIT}out: {END}");
    accepted("xdp", &good);
    accepted("xdp", &good.replace("call 132", "call 133"));
    // Never released, not released on one path, released twice.
    let leak = refused(
        "xdp",
        &format!("{RESERVE}{END}"),
        Code::Resource,
        "the call of bpf_ringbuf_reserve in 4 is still held",
    );
    assert!(leak.suggestion.is_some_and(|text| text.contains("submit or discard")));
    let text = format!(
        "{RESERVE}if r0 == 0 goto out\nr1 = *(u64 *)(r0 + 0)\nif r1 == 5 goto out\nr1 = r0\n{SUBMIT}out: {END}"
    );
    refused("xdp", &text, Code::Resource, "where the program ends");
    let text = format!("{RESERVE}if r0 == 0 goto out\nr6 = r0\nr1 = r6\n{SUBMIT}r1 = r6\n{SUBMIT}out: {END}");
    refused("xdp", &text, Code::Uninitialised, "r1 held an object that the call of bpf_ringbuf_submit in");
    // A pointer that may be null cannot be released.
    refused("xdp", &format!("{RESERVE}r1 = r0\n{SUBMIT}{END}"), Code::MaybeNull, "record");
}

#[test]
fn after_its_release_every_copy_of_a_record_is_invalid() {
    let text =
        format!("{RESERVE}if r0 == 0 goto out\nr6 = r0\nr1 = r0\n{SUBMIT}*(u64 *)(r6 + 0) = 1\nout: {END}");
    refused("xdp", &text, Code::Uninitialised, "released or ended");
    // A copy in the stack.
    let text = format!(
        "{RESERVE}if r0 == 0 goto out\n*(u64 *)(r10 - 8) = r0\nr1 = r0\n{SUBMIT}r1 = *(u64 *)(r10 - 8)\n{{use}}out: {END}"
    );
    accepted("xdp", &text.replace("{use}", ""));
    refused(
        "xdp",
        &text.replace("{use}", "r1 = *(u64 *)(r1 + 0)\n"),
        Code::Uninitialised,
        "released or ended",
    );
    // A copy in a caller's frame: the callee releases it.
    let text = format!(
        "{RESERVE}if r0 == 0 goto out\nr6 = r0\nr1 = r0\ncall give\n{{use}}out: {END}give: {SUBMIT}r0 = 0\nexit\n"
    );
    accepted("xdp", &text.replace("{use}", ""));
    refused("xdp", &text.replace("{use}", "*(u8 *)(r6 + 0) = 1\n"), Code::Uninitialised, "released or ended");
}

#[test]
fn a_tail_call_may_not_hold_references() {
    let text = |before: &str| {
        format!(
            "r6 = r1\n{RESERVE}if r0 == 0 goto out\nr7 = r0\n{before}r1 = r6\nr2 = map[4] ll\nr3 = 0\ncall 12\nr0 = 0\nexit\n\
             out: {END}"
        )
    };
    accepted("xdp", &text(&format!("r1 = r7\n{SUBMIT}")));
    refused("xdp", &text(""), Code::Resource, "may leave by a tail call");
}

#[test]
fn a_callee_may_acquire_for_its_caller() {
    let text = format!("call take\nif r0 == 0 goto out\nr1 = r0\n{SUBMIT}out: {END}take: {RESERVE}exit\n");
    accepted("xdp", &text);
    refused("xdp", &text.replace("r1 = r0\nr2 = 0\ncall 132\n", ""), Code::Resource, "record");
}

#[test]
fn only_the_start_of_a_record_can_be_released() {
    let text = |change: &str| format!("{RESERVE}if r0 == 0 goto out\nr1 = r0\n{change}{SUBMIT}out: {END}");
    refused("xdp", &text("r1 += 8\n"), Code::Resource, "does not point to its start");
    let back = "r1 += 8\nr1 += -8\n";
    accepted("xdp", &text(back));
    refused("xdp", &text("r1 = r10\n"), Code::Argument, "expects a ring buffer's record");
    refused("xdp", &format!("r1 = map_value[1] ll\n{SUBMIT}{END}"), Code::Argument, "record");
}

#[test]
fn a_record_has_the_requested_size() {
    let text = |access: &str| format!("{RESERVE}if r0 == 0 goto out\n{access}r1 = r0\n{SUBMIT}out: {END}");
    accepted("xdp", &text("*(u64 *)(r0 + 8) = 1\nr2 = *(u8 *)(r0 + 15)\n"));
    refused("xdp", &text("*(u64 *)(r0 + 9) = 1\n"), Code::OutOfBounds, "16-byte memory");
    refused("xdp", &text("r2 = *(u8 *)(r0 - 1)\n"), Code::OutOfBounds, "bytes -1..0");
    let text = "r6 = *(u32 *)(r1 + 12)\nr1 = map[6] ll\nr2 = r6\nr3 = 0\ncall 131\nr0 = 0\nexit";
    refused("xdp", text, Code::Argument, "a constant size");
    refused("xdp", &format!("r1 = map[0] ll\nr2 = 8\nr3 = 0\ncall 131\n{END}"), Code::Argument, "a hash");
}

#[test]
fn one_null_check_covers_all_copies() {
    let text = format!("{RESERVE}r6 = r0\nif r6 == 0 goto out\nr1 = r0\n{SUBMIT}out: {END}");
    accepted("xdp", &text);
    let text = format!(
        "{RESERVE}r6 = r0\n*(u64 *)(r10 - 8) = r0\nif r6 != 0 goto full\n{END}full: r1 = *(u64 *)(r10 - 8)\n{SUBMIT}{END}"
    );
    accepted("xdp", &text);
}

#[test]
fn records_of_a_loop_are_released_in_each_iteration() {
    let text = |middle: &str| {
        format!(
            "r6 = 0\nmore: {RESERVE}if r0 == 0 goto next\n{middle}next: r6 += 1\nif r6 < 50 goto more\n{END}"
        )
    };
    accepted("xdp", &text(&format!("r1 = r0\n{SUBMIT}")));
    refused("xdp", &text(""), Code::Resource, "record");
}

#[test]
fn too_many_references_are_refused() {
    let text = "r6 = 0\nmore: r1 = map[6] ll\nr2 = 8\nr3 = 0\nr4 = r10\nr4 += -16\ncall 131\nif r0 == 0 goto next\n\
                next: r6 += 1\nif r6 < 500000 goto more\nr0 = 0\nexit";
    let refusal = refused("xdp", text, Code::Limit, "");
    assert!(refusal.walked < 100_000, "{}", refusal.walked);
}

#[test]
fn releasing_a_socket_invalidates_its_other_views() {
    let text =
        |middle: &str| format!("{SOCKET}if r0 == 0 goto out\nr6 = r0\n{middle}r1 = r6\ncall 86\nout: {END}");
    accepted("tc", &text(""));
    refused(
        "tc",
        &format!("{SOCKET}{END}"),
        Code::Resource,
        "the object acquired by the call of bpf_sk_lookup_tcp in 7",
    );
    refused("tc", &format!("{SOCKET}r1 = r0\ncall 86\n{END}"), Code::MaybeNull, "compare it with NULL first");
    // Another view needs no release of its own; releasing the socket invalidates it.
    let view = "r1 = r0\ncall 96\nr7 = r0\n";
    accepted("tc", &text(view));
    let text = |after: &str| {
        format!("{SOCKET}if r0 == 0 goto out\nr6 = r0\n{view}r1 = r6\ncall 86\n{after}out: {END}")
    };
    refused("tc", &text("if r7 == 0 goto out\nr1 = r7\ncall 96\n"), Code::Uninitialised, "released or ended");
    // A listener is another socket, which the look-up does not acquire.
    let listener = text("if r7 == 0 goto out\nr1 = r7\ncall 96\n").replace("call 96\nr7", "call 98\nr7");
    accepted("tc", &listener);
}

#[test]
fn a_socket_may_be_released_by_another_of_its_views() {
    let text = format!(
        "{SOCKET}if r0 == 0 goto out\nr6 = r0\nr1 = r0\ncall 96\nif r0 == 0 goto none\nr1 = r0\ncall 86\ngoto out\n\
         none: r1 = r6\ncall 86\nout: {END}"
    );
    accepted("tc", &text);
}

#[test]
fn arguments_that_may_be_null_take_null() {
    let text = |socket: &str| format!("r2 = {socket}\nr3 = 0\ncall 124\nr0 = 1\nexit\n");
    accepted("sk_lookup", &text("0"));
    refused("sk_lookup", &text("1"), Code::Argument, "or null in r2");
    // Also a pointer that may be null.
    let found = "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[14] ll\ncall 1\n";
    let text = format!(
        "r6 = r1\n{found}r7 = r0\nr1 = r6\nr2 = r0\nr3 = 0\ncall 124\nif r7 == 0 goto out\nr1 = r7\ncall 86\n\
         out: r0 = 1\nexit"
    );
    accepted("sk_lookup", &text);
    refused("tc", &text, Code::MaybeNull, "sock");
    refused("tc", &format!("{SOCKET}r1 = r0\ncall 95\n{END}"), Code::MaybeNull, "sock");
}

#[test]
fn arithmetic_on_sockets_is_refused() {
    let text = format!("{SOCKET}if r0 == 0 goto out\nr1 = r0\nr1 += 8\nr1 += -8\ncall 86\nout: {END}");
    refused("tc", &text, Code::PointerArithmetic, "sock");
}

/// Looks up the value of key 0 in the map with locks; r6 points to it and is not null.
const LOCKED: &str =
    "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[8] ll\ncall 1\nif r0 == 0 goto out\nr6 = r0\n";

#[test]
fn a_lock_is_released_on_every_path() {
    let text = |middle: &str| format!("{LOCKED}r1 = r6\ncall 93\n{middle}out: {END}");
    let unlock = "r1 = r6\ncall 94\n";
    accepted("xdp", &text(unlock));
    refused("xdp", &text(""), Code::Resource, "taken by the call of bpf_spin_lock in 9 is still held");
    let some = "r2 = *(u32 *)(r6 + 8)\nif r2 == 1 goto out\n";
    refused("xdp", &text(&format!("{some}{unlock}")), Code::Resource, "still held");
    refused("xdp", &text(&format!("{unlock}{unlock}")), Code::Resource, "holds no lock");
    refused("xdp", &text(&format!("r1 = r6\ncall 93\n{unlock}")), Code::Resource, "a second lock");
    refused("xdp", &text(&format!("call 5\n{unlock}")), Code::Resource, "ktime_get_ns is called while");
    accepted("xdp", &text(&format!("*(u64 *)(r6 + 8) = 1\n{unlock}")));
    // A subprogram may run while the lock is held, and may release it.
    accepted("xdp", &format!("{}f: r0 = 0\nexit", text(&format!("call f\n{unlock}"))));
    accepted("xdp", &format!("{}f: call 94\nr0 = 0\nexit", text("r1 = r6\ncall f\n")));
}

#[test]
fn only_the_taken_lock_can_be_released() {
    let again = LOCKED.replace("r6 = r0", "r7 = r0");
    let text = format!("{LOCKED}{again}r1 = r6\ncall 93\nr1 = {{which}}\ncall 94\nout: {END}");
    accepted("xdp", &text.replace("{which}", "r6"));
    refused("xdp", &text.replace("{which}", "r7"), Code::Resource, "another value");
    // A copy is the same value.
    accepted("xdp", &text.replace("{which}", "r8").replace("r1 = r6\ncall 93", "r8 = r6\nr1 = r6\ncall 93"));
    // A pointer to another part of the value is not a lock.
    let text = format!("{LOCKED}r1 = r6\nr1 += 4\ncall 93\nr1 = r6\ncall 94\nout: {END}");
    refused("xdp", &text, Code::Argument, "the bpf_spin_lock at 0");
    refused("xdp", &format!("r1 = map_value[1] ll\ncall 93\n{END}"), Code::Argument, "have none");
    refused("xdp", &format!("r1 = r10\nr1 += -4\ncall 93\n{END}"), Code::Argument, "in a map's value");
}

#[test]
fn programs_that_interrupt_others_take_no_locks() {
    refused("probe", &format!("r1 = map[8] ll\n{END}"), Code::Argument, "may not use the map locked");
    refused("socket", &format!("r1 = map[8] ll\n{END}"), Code::Argument, "bpf_spin_lock");
    accepted("xdp", &format!("r1 = map[8] ll\n{END}"));
}

#[test]
fn only_calls_may_access_special_fields() {
    for access in
        ["r1 = *(u32 *)(r6 + 0)", "*(u8 *)(r6 + 3) = 0", "r1 = *(u64 *)(r6 + 16)", "*(u64 *)(r6 + 24) = 0"]
    {
        refused("xdp", &format!("{LOCKED}{access}\nout: {END}"), Code::OutOfBounds, "only calls may touch");
    }
    accepted("xdp", &format!("{LOCKED}r1 = *(u32 *)(r6 + 4)\n*(u64 *)(r6 + 8) = 0\nout: {END}"));
    // An unknown offset that may hit a special field.
    let text = format!("{LOCKED}r1 = *(u32 *)(r6 + 4)\nr1 &= 7\nr6 += r1\nr2 = *(u8 *)(r6 + 4)\nout: {END}");
    accepted("xdp", &text);
    refused("xdp", &text.replace("r6 + 4)\nout", "r6 + 3)\nout"), Code::OutOfBounds, "bpf_spin_lock");
    // As a helper's memory.
    let text = format!("{LOCKED}r2 = r6\nr1 = map[0] ll\ncall 1\nout: {END}");
    refused("xdp", &text, Code::OutOfBounds, "bpf_spin_lock");
    accepted("xdp", &text.replace("r2 = r6", "r2 = r6\nr2 += 4"));
    let kptr = format!("{LOCKED}r2 = r6\nr2 += 32\nr1 = map[7] ll\ncall 1\nout: {END}");
    refused("xdp", &kptr, Code::OutOfBounds, "kptr");
}

#[test]
fn timers_are_used_with_the_map_that_contains_them() {
    let text =
        |map: &str| format!("{LOCKED}r1 = r6\nr1 += 16\nr2 = map[{map}] ll\nr3 = 0\ncall 169\nout: {END}");
    accepted("xdp", &text("8"));
    refused("xdp", &text("9"), Code::Argument, "map that holds it, locked, in r2, found twin");
    accepted("xdp", &format!("{LOCKED}r1 = r6\nr1 += 16\nr2 = 5\nr3 = 0\ncall 171\nout: {END}"));
    refused("xdp", &format!("{LOCKED}r1 = r6\ncall 172\nout: {END}"), Code::Argument, "bpf_timer at 16");
}

#[test]
fn timers_of_inner_maps_are_used_with_their_inner_map() {
    let outer = "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[10] ll\ncall 1\nif r0 == 0 goto out\n";
    let inner = |map: &str| format!("r2 = r10\nr2 += -4\nr1 = {map}\ncall 1\nif r0 == 0 goto out\n");
    let text = |given: &str| {
        format!(
            "{outer}r7 = r0\n{outer}r8 = r0\n{}r1 = r0\nr1 += 16\nr2 = {given}\nr3 = 0\ncall 169\nout: {END}",
            inner("r7")
        )
    };
    accepted("xdp", &text("r7"));
    refused("xdp", &text("r8"), Code::Argument, "another that looks like it");
    refused("xdp", &text("map[8] ll"), Code::Argument, "outer.inner");
}

#[test]
fn only_sleepable_programs_call_functions_that_sleep() {
    let text = format!("r1 = r10\nr1 += -8\nr2 = 8\nr3 = 0\ncall 148\n{END}");
    accepted("tracing.s", &text);
    refused("tracing", &text, Code::Helper, "may sleep, but the program may not");
}
