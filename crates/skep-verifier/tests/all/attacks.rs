//! Programs written to get past the verifier or to make it take too long. Each of them once did.

use crate::common::host::{accepted as host_accepted, refused as host_refused};
use crate::common::{accepted, check, refused};
use skep_verifier::Code;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A program in which `caller` calls a function that makes a tail call and goes on with `rest` if that fails.
fn with_tail_call(caller: &str, rest: &str) -> String {
    format!("r6 = r1\n{caller}\nexit\nf:\nr7 = r2\nr2 = map[4] ll\nr3 = 0\ncall 12\n{rest}\nexit")
}

#[test]
fn a_tail_call_s_result_is_its_function_s_result() {
    let index = "r2 = 0\ncall f\nr1 = map_value[1]+0x0 ll\nr1 += r0\nr0 = *(u8 *)(r1 + 0)";
    refused("xdp", &with_tail_call(index, "r0 = 0"), Code::PointerArithmetic, "bound the number");
    accepted("xdp", &with_tail_call(&index.replace("r1 += r0", "r0 &= 63\nr1 += r0"), "r0 = 0"));
    // Nothing after the tail call is executed either.
    let filled = "r2 = r10\nr2 += -8\ncall f\nr0 = *(u64 *)(r10 - 8)\nr1 = map_value[1]+0x0 ll\nr1 += r0\nr0 = *(u8 *)(r1 + 0)";
    let rest = "*(u64 *)(r7 + 0) = 5\nr0 = 0";
    refused("xdp", &with_tail_call(filled, rest), Code::PointerArithmetic, "bound the number");
    accepted("xdp", &with_tail_call(&format!("*(u64 *)(r10 - 8) = 1\n{filled}"), rest));
    // The main function's tail call never returns.
    accepted(
        "xdp",
        "r2 = map[4] ll\nr3 = 0\ncall 12\nr1 = map_value[1]+0x0 ll\nr0 = 63\nr1 += r0\nr0 = *(u8 *)(r1 + 0)\nexit",
    );
}

/// Creates a dynptr over the packet at r10 - 16 and takes a slice of 8 bytes, with a buffer at r10 - 24. `rest`
/// follows, with the slice in r7.
fn with_copy(rest: &str) -> String {
    format!(
        "r6 = r1\nr2 = 0\nr3 = r10\nr3 += -16\ncall @bpf_dynptr_from_xdp\nr1 = r10\nr1 += -16\nr2 = 0\nr3 = r10\nr3 += -24\nr4 = 8\n\
         call @bpf_dynptr_slice_rdwr\nif r0 == 0 goto end\nr7 = r0\n{rest}\nend:\nr0 = 0\nexit"
    )
}

#[test]
fn a_possibly_copied_slice_ends_at_stack_writes() {
    host_accepted("xdp", &with_copy("*(u64 *)(r7 + 0) = 1\nr1 = *(u64 *)(r10 - 24)"));
    host_accepted("xdp", &with_copy("*(u64 *)(r10 - 32) = 1\n*(u64 *)(r7 + 0) = 1"));
    // Otherwise a number could become a pointer, and a pointer a number.
    let made =
        "*(u64 *)(r10 - 24) = r6\n*(u64 *)(r7 + 0) = 1\nr1 = *(u64 *)(r10 - 24)\nr1 = *(u32 *)(r1 + 0)";
    host_refused("xdp", &with_copy(made), Code::Uninitialised, "r7");
    host_refused(
        "xdp",
        &with_copy("*(u64 *)(r10 - 24) = r6\nr1 = *(u64 *)(r7 + 0)"),
        Code::Uninitialised,
        "r7",
    );
    // And a known number would change.
    let known = "*(u64 *)(r10 - 24) = 0\n*(u64 *)(r7 + 0) = 99";
    host_refused("xdp", &with_copy(known), Code::Uninitialised, "r7");
    host_refused(
        "xdp",
        &with_copy("r1 = 1\nlock *(u32 *)(r10 - 20) += r1\nr1 = *(u8 *)(r7 + 0)"),
        Code::Uninitialised,
        "r7",
    );
    // A call that fills the buffer writes it, too.
    let filled = "r1 = r6\nr2 = 0\nr3 = r10\nr3 += -24\nr4 = 8\ncall 189\nr1 = *(u64 *)(r7 + 0)";
    host_refused("xdp", &with_copy(filled), Code::Uninitialised, "r7");
    let again = "r1 = r10\nr1 += -16\nr2 = 0\nr3 = r10\nr3 += -24\nr4 = 8\ncall @bpf_dynptr_slice_rdwr\n";
    host_refused("xdp", &with_copy(&format!("{again}r1 = *(u64 *)(r7 + 0)")), Code::Uninitialised, "r7");
    host_accepted("xdp", &with_copy(&format!("{again}if r0 == 0 goto end\nr1 = *(u64 *)(r0 + 0)")));
}

#[test]
fn a_buffer_for_a_copy_may_still_hold_what_it_held() {
    let made = "r6 = r1\nr2 = 0\nr3 = r10\nr3 += -16\ncall @bpf_dynptr_from_xdp\n";
    let slice = "r1 = r10\nr1 += -16\nr2 = 0\nr3 = r10\nr3 += -24\nr4 = 8\ncall @bpf_dynptr_slice\n";
    let read = "r0 = *(u64 *)(r10 - 24)\nr0 &= 1\nexit";
    // An address, if the slice is in the packet itself.
    host_refused(
        "xdp",
        &format!("{made}*(u64 *)(r10 - 24) = r6\n{slice}{read}"),
        Code::Uninitialised,
        "what is left of it would leak",
    );
    // Nothing was written: then the frame is zeroed.
    let accepted = host_accepted("xdp", &format!("{made}{slice}{read}"));
    assert!(accepted.functions()[0].zeroed);
    let written = host_accepted("xdp", &format!("{made}*(u64 *)(r10 - 24) = 1\n{slice}{read}"));
    assert!(!written.functions()[0].zeroed);
}

#[test]
fn a_possibly_copied_slice_ends_with_the_frame() {
    let text = "r2 = 0\nr3 = r10\nr3 += -16\ncall @bpf_dynptr_from_xdp\nr1 = r10\nr1 += -16\ncall f\nif r0 == 0 goto end\n\
                r1 = *(u64 *)(r0 + 0)\nend:\nr0 = 0\nexit\n\
                f:\nr2 = 0\nr3 = r10\nr3 += -8\nr4 = 8\ncall @bpf_dynptr_slice_rdwr\nexit";
    host_refused("xdp", text, Code::Uninitialised, "r0");
    host_accepted("xdp", &text.replace("r3 = r10\nr3 += -8", "r3 = 0"));
}

#[test]
fn a_slice_is_copied_only_to_what_outlives_it() {
    let text = "r2 = 0\nr3 = r10\nr3 += -16\nr6 = r1\ncall @bpf_dynptr_from_xdp\nr1 = *(u32 *)(r6 + 0)\nr2 = *(u32 *)(r6 + 4)\nr3 = r1\n\
                r3 += 8\nif r3 > r2 goto end\nr3 = r1\nr1 = r10\nr1 += -16\nr2 = 0\nr4 = 8\ncall @bpf_dynptr_slice_rdwr\nend:\nr0 = 0\nexit";
    host_refused("xdp", text, Code::Argument, "outlives");
}

#[test]
fn callbacks_of_a_helper_that_holds_a_lock_may_not_sleep() {
    // copy_from_user(fp - 8, 8, 0) in the callback of for_each_map_elem, and in that of bpf_loop, which may sleep.
    let body = "f:\nr1 = r10\nr1 += -8\nr2 = 8\nr3 = 0\ncall 148\nr0 = 0\nexit";
    let each = format!("r1 = map[0] ll\nr2 = func[f] ll\nr3 = 0\nr4 = 0\ncall 164\nr0 = 0\nexit\n{body}");
    host_refused("fentry.s/__x64_sys_read", &each, Code::Resource, "may sleep");
    host_accepted(
        "fentry.s/__x64_sys_read",
        &format!("r1 = 2\nr2 = func[f] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 0\nexit\n{body}"),
    );
}

/// Verifies with either verdict within a generous time; returns the number of instructions walked.
#[track_caller]
fn quick(text: &str) -> u64 {
    let start = Instant::now();
    let walked = check("xdp", text).map_or_else(|refusal| refusal.walked, |verified| verified.stats().walked);
    let took = start.elapsed();
    println!("{walked} walked in {took:?}: {} ns each", took.as_nanos() / u128::from(walked.max(1)));
    assert!(took < Duration::from_secs(60), "{took:?} for {walked} instructions");
    walked
}

#[test]
fn each_remembered_state_with_references_costs_the_same() {
    // The program holds a record over 40 branches on different bits, so that no two states are equal.
    let mut text = "r6 = *(u32 *)(r1 + 12)\nr1 = map[6] ll\nr2 = 8\nr3 = 0\ncall 131\nif r0 == 0 goto end\nr8 = r0\nr7 = 0\n".to_owned();
    for bit in 0..40 {
        let _ = write!(
            text,
            "r2 = r6\nr2 >>= {}\nr2 &= 1\nif r2 == 0 goto +1\nr7 |= {}\n",
            bit % 30,
            1u32 << (bit % 30)
        );
    }
    text += "if r7 > 5 goto +1\nr7 = 1\nr1 = r8\nr2 = 0\ncall 132\nend:\nr0 = 0\nexit";
    quick(&text);
}

#[test]
fn comparing_states_full_of_linked_numbers_counts_as_work() {
    // Eight frames, each with 500 bytes linked to a number of its own.
    let mut text = String::new();
    for depth in 0..8 {
        if depth > 0 {
            let _ = writeln!(text, "f{depth}:");
        }
        for at in 1..=500 {
            let _ = write!(text, "call 7\nr0 &= 255\n*(u8 *)(r10 - {at}) = r0\n");
        }
        if depth < 7 {
            let _ = writeln!(text, "call f{}", depth + 1);
        } else {
            text += "r9 = 0\nagain:\nmay_goto out\ncall 7\nif r0 > 1 goto +0\nr9 += 1\nif r9 > 2000 goto out\ngoto again\nout:\n";
        }
        for at in 1..=500 {
            let _ = write!(text, "r1 = *(u8 *)(r10 - {at})\nif r1 > 300 goto +0\n");
        }
        text += "r0 = 0\nexit\n";
    }
    quick(text.trim_end());
}

#[test]
fn the_end_of_a_callback_loop_does_not_prune_its_beginning() {
    // Two paths lead to a loop of one iteration: with index 1, and with an unknown index. The iteration leaves any
    // number, so the first path's state after it could subsume the second path's state before it.
    let text = "r6 = r1\nr1 = *(u32 *)(r6 + 12)\nif r1 == 0 goto other\n*(u64 *)(r10 - 8) = 1\ngoto meet\n\
                other:\ncall 7\nr0 &= 255\n*(u64 *)(r10 - 8) = r0\n\
                meet:\nr1 = 1\nr2 = func[body] ll\nr3 = r10\nr3 += -8\nr4 = 0\ncall 181\nr0 = 0\nexit\n\
                body:\nr6 = r2\nr7 = *(u64 *)(r6 + 0)\nr1 = map_value[1]+0x0 ll\nr1 += r7\nr0 = *(u8 *)(r1 + 0)\ncall 7\n\
                *(u64 *)(r6 + 0) = r0\nr0 = 0\nexit";
    refused("xdp", text, Code::OutOfBounds, "64-byte value");
    // Every index that an iteration receives is in bounds.
    accepted("xdp", &text.replace("r0 &= 255", "r0 &= 63"));
    // The same for the entries of an array.
    let each = text.replace("r1 = 1\nr2 = func", "r1 = map[1] ll\nr2 = func").replace("call 181", "call 164");
    let each = each.replace("r6 = r2\nr7", "r6 = r4\nr7");
    refused("xdp", &each, Code::OutOfBounds, "64-byte value");
    accepted("xdp", &each.replace("r0 &= 255", "r0 &= 63"));
}
