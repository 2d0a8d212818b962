//! Addresses: where they may leave a program as numbers, and where they may not.

use crate::common::{accepted, refused};
use skep_verifier::Code;

/// Looks up key 0 of map 0; r0 is the value, r6 the context.
const LOOKUP: &str =
    "r6 = r1\n*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\nif r0 == 0 goto out\n";

/// Leaks that only programs that trace the host may do, each with its refusal for other types.
const LEAKS: &[(&str, Code)] = &[
    ("*(u64 *)(r0 + 0) = r6", Code::PointerLeak),
    ("*(u64 *)(r0 + 0) = r10", Code::PointerLeak),
    ("w1 = w6\n*(u64 *)(r0 + 0) = r1", Code::PointerLeak),
    ("r1 = r10\nr1 -= r0\n*(u64 *)(r0 + 0) = r1", Code::PointerArithmetic),
    ("r1 = r0\nw0 -= w6\n*(u64 *)(r1 + 0) = r0", Code::PointerArithmetic),
    ("if r6 == 5 goto out", Code::PointerLeak),
    ("if r6 > 0 goto out", Code::PointerLeak),
    ("if w6 == 0 goto out", Code::PointerLeak),
    ("if r6 & 7 goto out", Code::PointerLeak),
    ("if r6 > r10 goto out", Code::PointerLeak),
    // A copy of a context pointer in the stored value.
    (
        "*(u64 *)(r10 - 24) = r6\n*(u64 *)(r10 - 16) = 0\nr1 = map[0] ll\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -24\nr4 = 0\ncall 2",
        Code::PointerLeak,
    ),
    // Half of a context pointer remains in the value.
    (
        "*(u64 *)(r10 - 24) = r6\n*(u32 *)(r10 - 24) = 0\nr1 = map[0] ll\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -24\nr4 = 0\ncall 2",
        Code::Uninitialised,
    ),
    ("*(u64 *)(r10 - 32) = r6\n*(u8 *)(r10 - 32) = 0\nr1 = *(u64 *)(r10 - 32)", Code::Uninitialised),
    ("lock *(u64 *)(r0 + 0) += r6", Code::PointerLeak),
    ("r6 = -r6\n*(u64 *)(r0 + 0) = r6", Code::PointerArithmetic),
    ("r6 = be64 r6\n*(u64 *)(r0 + 0) = r6", Code::PointerArithmetic),
    ("r6 = (s32)r6\n*(u64 *)(r0 + 0) = r6", Code::PointerArithmetic),
];

#[test]
fn addresses_leave_only_programs_that_may_read_host_addresses() {
    for (leak, code) in LEAKS {
        let text = format!("{LOOKUP}{leak}\nout: r0 = 0\nexit");
        accepted("tracing", &text);
        refused("xdp", &text, *code, "");
    }
}

#[test]
fn a_number_made_from_an_address_is_not_a_pointer() {
    let text = format!(
        "{LOOKUP}*(u64 *)(r0 + 0) = r6\nr1 = *(u64 *)(r0 + 0)\nr2 = *(u64 *)(r1 + 0)\nout: r0 = 0\nexit"
    );
    refused("tracing", &text, Code::OutOfBounds, "pointer to memory");
    let text = format!("{LOOKUP}r1 = r0\nr1 -= r6\nr6 += r1\nr2 = *(u64 *)(r6 + 0)\nout: r0 = 0\nexit");
    refused("tracing", &text, Code::OutOfBounds, "pointer to memory");
}

#[test]
fn no_program_calculates_with_the_bits_of_an_address() {
    for op in
        ["r6 &= 7", "r6 |= 1", "r6 *= 2", "r6 <<= 1", "r6 ^= 1", "r6 += r10", "w6 += 1", "r1 = 5\nr1 -= r6"]
    {
        let text = format!("{LOOKUP}{op}\nout: r0 = 0\nexit");
        refused("tracing", &text, Code::PointerArithmetic, "");
    }
}

#[test]
fn contexts_of_bytes_are_read_as_they_are_declared() {
    accepted("tracing", "r0 = *(u64 *)(r1 + 56)\nexit");
    refused("tracing", "r0 = *(u64 *)(r1 + 64)\nexit", Code::Context, "bytes 64..72");
    refused("tracing", "r0 = *(u64 *)(r1 - 8)\nexit", Code::Context, "bytes -8..0");
    refused("tracing", "r0 = *(u64 *)(r1 + 4)\nexit", Code::Context, "multiple of their size");
    refused("tracing", "r0 = *(u32 *)(r1 + 8)\nexit", Code::Context, "8 bytes");
    refused("tracing", "*(u64 *)(r1 + 8) = 0\nr0 = 0\nexit", Code::ReadOnly, "may not write pt_regs");
}
