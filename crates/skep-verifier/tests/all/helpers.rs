//! Calls of helpers by their prototypes, and atomics.

use crate::common::{accepted, kind, program, refused};
use skep_verifier::{Code, Config, verify};

/// Loads data into r2 and data_end into r3.
const PACKET: &str = "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\n";

/// Looks up key 0 of map 0; r0 is the value or null.
const LOOKUP: &str = "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\n";

#[test]
fn helpers_receive_what_their_prototypes_declare() {
    refused("xdp", "call 4\nr0 = 0\nexit", Code::Helper, "may not call probe_read (4)");
    refused("xdp", "call 212\nr0 = 0\nexit", Code::Helper, "no helper 212");
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
    refused("xdp", "r1 = map[6] ll\nr2 = r10\ncall 1\nr0 = 0\nexit", Code::Argument, "ringbuf");
    refused("xdp", "r1 += 4\nr2 = 0\ncall 44\nr0 = 0\nexit", Code::Argument, "the context, unchanged");
    refused("xdp", "r2 = r10\ncall 44\nr0 = 0\nexit", Code::Argument, "a number in r2");
    accepted("xdp", "r2 = 0\ncall 44\nr0 = 0\nexit");
    // The key may be in a packet or in a map's value.
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
    accepted("xdp", text); // r3 to r5 may be unset: the format has no conversions
    let mut unverified = program(kind("xdp"), text);
    unverified.source.gpl_compatible = false;
    let refusal = verify(unverified, &Config::default()).unwrap_err();
    assert_eq!(refusal.code, Code::Helper);
    assert!(refusal.suggestion.unwrap().contains("LICENSE"));
}

#[test]
fn sizes_are_checked_by_their_maximum() {
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
fn only_bytes_that_a_helper_surely_writes_are_initialised() {
    let text = |size: &str, load: &str| {
        format!("r4 = *(u32 *)(r1 + 0)\n{size}\nr2 = 0\nr3 = r10\nr3 += -16\ncall 26\nr0 = {load}\nexit")
    };
    accepted("tc", &text("r4 = 16", "*(u64 *)(r10 - 8)"));
    let zeroed = |size: &str, load: &str| accepted("tc", &text(size, load)).functions()[0].zeroed;
    assert!(!zeroed("r4 = 16", "*(u64 *)(r10 - 8)"));
    assert!(zeroed("r4 = 8", "*(u64 *)(r10 - 8)"));
    assert!(zeroed("r4 &= 7\nr4 += 9", "*(u64 *)(r10 - 8)"));
    accepted("tc", &text("r4 &= 7\nr4 += 8", "*(u64 *)(r10 - 16)"));
    // Former values of the bytes are forgotten.
    let text = "*(u64 *)(r10 - 8) = 0\nr2 = 0\nr3 = r10\nr3 += -8\nr4 = 1\ncall 26\nr2 = *(u64 *)(r10 - 8)\n\
                r1 = map_value[1]+0x0 ll\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("tc", text, Code::PointerArithmetic, "too large");
    // A pointer that they overwrite is invalidated.
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
    // Size zero, of memory that is not readable.
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
    // The key of a hash is not an index.
    let hash = accepted("xdp", &format!("{LOOKUP}r0 = 0\nexit"));
    assert_eq!(hash.facts()[5].call.map(|fact| (fact.map, fact.key)), Some((Some(0), None)));
}

#[test]
fn atomics_work_on_aligned_memory_that_stays_put() {
    accepted(
        "xdp",
        "*(u64 *)(r10 - 8) = 1\nr0 = 1\nlock *(u64 *)(r10 - 8) += r0\nr0 = *(u64 *)(r10 - 8)\nexit",
    );
    let unwritten = accepted("xdp", "r0 = 1\nlock *(u64 *)(r10 - 8) += r0\nexit");
    assert!(unwritten.functions()[0].zeroed);
    // A spilled pointer is not a valid operand, and must not be fetched as a number.
    let spilled = "*(u64 *)(r10 - 8) = r1\nr0 = 0\nr0 = atomic_fetch_add((u64 *)(r10 - 8), r0)\nexit";
    refused("xdp", spilled, Code::PointerLeak, "hold a pointer");
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
    refused("raw", text, Code::PointerArithmetic, "too large");
    let text = "r2 = -1\nw2 = atomic_fetch_or((u32 *)(r1 + 0), w2)\nr2 >>= 32\nr1 += r2\nr0 = *(u8 *)(r1 + 15)\nexit";
    accepted("raw", text); // zero-extended: the upper half is 0
    let text = "r0 = 0\nr2 = 1\nr0 = cmpxchg_64(r1 + 0x0, r0, r2)\nr1 += r0\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", text, Code::PointerArithmetic, "too large");
    // The value in memory is unknown as well; a plain addition does not change its operand.
    let text = "*(u64 *)(r10 - 8) = 0\nr2 = 3\nlock *(u64 *)(r10 - 8) += r2\nr3 = *(u64 *)(r10 - 8)\nr1 += r2\nr1 += r3\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", text, Code::PointerArithmetic, "r1");
}

#[test]
fn missing_host_types_are_not_reported_as_missing_helpers() {
    refused("xdp", "call 195896080\nr0 = 0\nexit", Code::Types, "CO-RE");
    refused("xdp", "call 2002000000\nr0 = 0\nexit", Code::Types, "weak");
    refused("xdp", "call 195896081\nr0 = 0\nexit", Code::Helper, "no helper 195896081");
    // After a check with a constant answer, neither is reached.
    accepted("xdp", "r0 = 0\nif r0 == 0 goto +1\ncall 195896080\nexit");
}
