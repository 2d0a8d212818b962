//! The values of registers: initialisation, arithmetic, addresses.

use crate::common::{accepted, refused};
use skep_verifier::Code;

/// Loads data into r2 and data_end into r3.
const PACKET: &str = "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\n";

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
fn calls_clobber_their_argument_registers() {
    refused(
        "xdp",
        "r2 = 1\ncall 7\nr0 = r2\nexit",
        Code::Uninitialised,
        "the call of bpf_get_prandom_u32 in 1 clobbered it",
    );
    refused(
        "xdp",
        "r1 = 1\ncall f\nr0 = r1\nexit\nf: r0 = 0\nexit",
        Code::Uninitialised,
        "the call in 1 clobbered it",
    );
    accepted("xdp", "r6 = 1\ncall 7\nr0 = r6\nexit");
    // A callee has its own r6 to r9.
    refused("xdp", "r6 = 1\ncall f\nexit\nf: r0 = r6\nexit", Code::Uninitialised, "r6");
    accepted("xdp", "r6 = 1\ncall f\nr0 = r6\nexit\nf: r6 = 7\nr0 = 0\nexit");
}

#[test]
fn division_by_zero_and_masked_shift_counts_are_defined() {
    accepted("xdp", "r0 = 1\nr1 = 0\nr0 /= r1\nr0 %= r1\nr0 s/= r1\nr0 s%= r1\nw0 /= w1\nw0 s%= w1\nexit");
    accepted("tc", "r2 = *(u32 *)(r1 + 0)\nr0 = 1\nr0 <<= r2\nr0 s>>= r2\nw0 >>= w2\nexit");
    // A constant count that would be masked is a mistake; Linux refuses it, too.
    refused("xdp", "r0 = 1\nr0 <<= 64\nexit", Code::Structure, "shift count 64");
    refused("xdp", "r0 = 1\nw0 s>>= 32\nexit", Code::Structure, "shift count 32");
    refused("xdp", "r0 = 1\nr0 >>= -1\nexit", Code::Structure, "shift count -1");
    accepted("raw", "r0 = 1\nr0 <<= 64\nexit");
}

#[test]
fn pointers_take_part_in_little_arithmetic() {
    refused("xdp", "r1 *= 2\nr0 = 0\nexit", Code::PointerArithmetic, "r1 for *");
    refused("xdp", "r1 = -r1\nr0 = r1\nexit", Code::PointerArithmetic, "r1");
    refused("xdp", "r2 = r10\nr2 &= 7\nr0 = 0\nexit", Code::PointerArithmetic, "fp");
    refused("xdp", "w1 += 4\nr0 = 0\nexit", Code::PointerArithmetic, "32-bit");
    refused("xdp", "w0 = w1\nexit", Code::PointerLeak, "half of a pointer");
    refused("xdp", "r2 = 0\nr2 -= r1\nr0 = 0\nexit", Code::PointerArithmetic, "ctx");
    refused("xdp", "r2 = r10\nr2 += r1\nr0 = 0\nexit", Code::PointerArithmetic, "");
    refused("xdp", "r2 = r10\nr2 -= r1\nr0 = r2\nexit", Code::PointerArithmetic, "");
    refused("xdp", "r2 = (s8)r1\nr0 = r2\nexit", Code::PointerArithmetic, "ctx");
    refused("xdp", "r1 = be64 r1\nr0 = r1\nexit", Code::PointerArithmetic, "ctx");
    refused("xdp", "r2 = map[0] ll\nr2 += 8\nr0 = 0\nexit", Code::PointerArithmetic, "map_ptr");
    refused("xdp", "r2 = *(u32 *)(r1 + 4)\nr2 += 8\nr0 = 0\nexit", Code::PointerArithmetic, "pkt_end");
    // Its result is not read.
    for dead in
        ["r1 = -r1", "r1 = be64 r1", "r2 = (s8)r1", "w2 = w1", "r2 = r10\nr2 -= r1", "r1 += 0x20000000"]
    {
        accepted("xdp", &format!("{dead}\nr0 = 0\nexit"));
    }
    accepted("raw", "r3 = 4\nr3 += r1\nr0 = *(u32 *)(r3 + 0)\nexit");
    accepted("raw", "r1 += 12\nr1 -= 4\nr0 = *(u64 *)(r1 + 0)\nexit");
}

#[test]
fn offsets_are_bounded_so_that_sums_cannot_wrap() {
    refused("raw", "r1 += 0x20000000\nr0 = *(u8 *)(r1 + 0)\nexit", Code::PointerArithmetic, "too large");
    refused("raw", "r1 += -0x20000000\nr0 = *(u8 *)(r1 + 0)\nexit", Code::PointerArithmetic, "too large");
    refused(
        "raw",
        "r1 += 0x10000000\nr1 += 0x10000000\nr0 = *(u8 *)(r1 + 0)\nexit",
        Code::PointerArithmetic,
        "too large",
    );
    let smallest = "r2 = 0x8000000000000000 ll\nr1 -= r2\nr0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", smallest, Code::PointerArithmetic, "too large");
    refused(
        "raw",
        "r2 = *(u64 *)(r1 + 0)\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit",
        Code::PointerArithmetic,
        "bound the number",
    );
    refused(
        "raw",
        "r2 = *(u64 *)(r1 + 0)\nr1 -= r2\nr0 = *(u8 *)(r1 + 0)\nexit",
        Code::PointerArithmetic,
        "bound the number",
    );
    // Useless, but it cannot leak by being returned.
    let text = "r2 = *(u64 *)(r1 + 0)\nr1 += r2\nr0 = r1\nexit";
    refused("raw", text, Code::PointerLeak, "a number that the instruction in 1 computed from an address");
    accepted("raw", &text.replace("r0 = r1", "r0 = 0"));
}

#[test]
fn pointers_cannot_leave_a_program() {
    for kind in ["xdp", "tc", "raw"] {
        refused(kind, "r0 = r1\nexit", Code::PointerLeak, "result in r0");
        refused(
            kind,
            "r1 = map_value[1]+0x0 ll\n*(u64 *)(r1 + 0) = r10\nr0 = 0\nexit",
            Code::PointerLeak,
            "",
        );
        refused(kind, "r0 = 0\nif r1 > 5 goto +0\nexit", Code::PointerLeak, "compared");
        refused(kind, "r0 = 0\nif r1 > r10 goto +0\nexit", Code::PointerLeak, "different kinds");
        accepted(kind, "r0 = 0\nif r1 == r10 goto +0\nexit");
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
        &format!("r6 = r1\n{PACKET}w7 = w3\nr2 = 4\ncall 44\nr3 = *(u32 *)(r6 + 4)\nw3 -= w7\nw0 = w3\nexit"),
        Code::PointerLeak,
        "computed from an address",
    );
    // A difference of unknown pointers is an unknown number.
    refused(
        "xdp",
        &format!("{PACKET}r4 = r3\nr4 -= r2\nr2 += r4\nr0 = *(u8 *)(r2 + 0)\nexit"),
        Code::PointerArithmetic,
        "too large",
    );
}
