//! Addresses: where they may leave a program as numbers, and where they may not.

use crate::common::{accepted, kind, program, refused};
use skep_verifier::{Code, Config, Refusal, Verified, verify};

/// The verdict by root's rules.
fn privileged(kind_name: &str, text: &str) -> Result<Verified, Box<Refusal>> {
    verify(program(kind(kind_name), text), &Config { privileged: true, ..Config::default() })
}

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
        for kind in ["xdp", "tc", "socket"] {
            privileged(kind, &text).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"));
        }
    }
}

#[test]
fn addresses_leave_no_program_that_is_confined() {
    let confined = Config { confined: true, privileged: true, ..Config::default() };
    for (leak, code) in LEAKS {
        let text = format!("{LOOKUP}{leak}\nout: r0 = 0\nexit");
        for name in ["tracing", "xdp"] {
            let refusal = verify(program(kind(name), &text), &confined).expect_err(&text);
            assert_eq!(refusal.code, *code, "{refusal}\n{text}");
        }
    }
    let harmless = format!("{LOOKUP}r1 = 1\n*(u64 *)(r0 + 0) = r1\nout: r0 = 0\nexit");
    verify(program(kind("tracing"), &harmless), &confined).expect("leaks nothing");
}

#[test]
fn privileged_programs_make_no_pointer_of_a_number() {
    // A packet's address, once kept anywhere but in a register or whole in the stack, is a number.
    const PACKET: &str =
        "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = r2\nr4 += 8\nif r4 > r3 goto out\n";
    for [way, phrase] in [
        // Through a map's value.
        ["*(u64 *)(r0 + 0) = r6\nr6 = *(u64 *)(r0 + 0)", "pointer to memory"],
        ["lock *(u64 *)(r0 + 0) += r6\nr6 = *(u64 *)(r0 + 0)", "pointer to memory"],
        // Through the stack in halves, and back.
        [
            "*(u64 *)(r10 - 16) = r6\nw1 = *(u32 *)(r10 - 16)\nw2 = *(u32 *)(r10 - 12)\nr2 <<= 32\nr1 |= r2\nr6 = r1",
            "hold a pointer",
        ],
        ["*(u64 *)(r10 - 16) = r6\n*(u32 *)(r10 - 16) = 0\nr6 = *(u64 *)(r10 - 16)", "pointer to memory"],
        // By arithmetic that gives the same bits.
        ["r6 = -r6\nr6 = -r6", "pointer to memory"],
        ["r6 = be64 r6\nr6 = be64 r6", "pointer to memory"],
        ["r1 = r6\nr1 -= r10\nr6 = r10\nr6 += r1", "too large"],
        ["w6 = w6", "pointer to memory"],
    ] {
        let text = format!(
            "{LOOKUP}r9 = r0\nr1 = r6\n{PACKET}r6 = r2\nr0 = r9\n{way}\nr0 = *(u8 *)(r6 + 0)\nout: r0 = 0\nexit"
        );
        match privileged("xdp", &text) {
            Ok(_) => panic!("accepted\n{text}"),
            Err(refusal) => assert!(refusal.to_string().contains(phrase), "{refusal}\n{text}"),
        }
    }
    // A stale address is a number too: the packet may have moved.
    let stale = format!(
        "r6 = r1\n{PACKET}r7 = r2\nr1 = r6\nr2 = 0\ncall 44\nr0 = *(u8 *)(r7 + 0)\nout: r0 = 0\nexit"
    );
    let refusal = privileged("xdp", &stale).expect_err("the packet may have moved");
    assert_eq!(refusal.code, Code::OutOfBounds, "{refusal}");
    let returned = stale.replace("r0 = *(u8 *)(r7 + 0)", "if r7 > 5 goto out");
    privileged("xdp", &returned).unwrap_or_else(|refusal| panic!("{refusal}\n{returned}"));
}

#[test]
fn calls_take_no_number_for_an_address_from_privileged_programs() {
    let text = format!(
        "{LOOKUP}*(u64 *)(r0 + 0) = r0\nr2 = *(u64 *)(r0 + 0)\nr1 = map[0] ll\ncall 1\nout: r0 = 0\nexit"
    );
    assert_eq!(privileged("xdp", &text).expect_err("a key that is a number").code, Code::Argument);
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
