//! Programs written to get past the verifier: each is refused for the right reason, or does no harm. Accepted ones
//! run in checking mode, in the interpreter and as compiled code, over many inputs.

use crate::common::{Lab, verified};
use skep_isa::{CallTarget, Insn};
use skep_testgen::{Flavour, Host, TestProgram};
use skep_verifier::Code;
use std::collections::BTreeSet;

/// The expected outcome of an attack.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Refused with this code.
    Refused(Code),
    /// Accepted, and safe with every tested input.
    Safe,
}

use Fate::{Refused, Safe};

const BUFFER: Flavour = Flavour::Buffer { len: 64 };
const XDP: Flavour = Flavour::Xdp;

/// Inputs that each accepted attack runs over.
const INPUTS: u64 = 64;

struct Attack {
    name: &'static str,
    flavour: Flavour,
    text: &'static str,
    fate: Fate,
}

const fn attack(name: &'static str, flavour: Flavour, fate: Fate, text: &'static str) -> Attack {
    Attack { name, flavour, text, fate }
}

fn program(flavour: Flavour, text: &str) -> TestProgram {
    let insns = skep_isa::assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut functions = BTreeSet::from([0]);
    for (slot, insn) in insns.iter().enumerate() {
        if let Insn::Call { target: CallTarget::Local(offset) } = insn {
            functions.insert((slot as i64 + 1 + i64::from(*offset)) as u32);
        }
    }
    TestProgram { insns, functions: functions.into_iter().collect(), flavour }
}

fn each_meets_its_fate(attacks: &[Attack]) {
    let mut failures = Vec::new();
    for attack in attacks {
        let program = program(attack.flavour, attack.text);
        let found = match (verified(&program), attack.fate) {
            (Err(refusal), Refused(code)) if refusal.code == code => continue,
            (Err(refusal), _) => format!("refused: {:?}: {refusal}", refusal.code),
            (Ok(accepted), fate) => {
                let mut lab = Lab::new(Host::new(attack.flavour));
                match (lab.agree(&program, &accepted, INPUTS), fate) {
                    (Ok(()), Safe) => continue,
                    (Ok(()), _) => "accepted, no harm seen".to_owned(),
                    (Err(harm), _) => format!("HARM: {harm}"),
                }
            }
        };
        failures.push(format!("{}: expected {:?}, {found}", attack.name, attack.fate));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn addresses_do_not_become_numbers() {
    each_meets_its_fate(&[
        attack(
            "an exchange takes a spilled address as a number",
            BUFFER,
            Refused(Code::PointerLeak),
            "*(u64 *)(r10 - 8) = r1\nr2 = 1\nr2 = xchg_64(r10 - 8, r2)\nr0 = r2\nexit",
        ),
        attack(
            "an addition moves a spilled address",
            BUFFER,
            Refused(Code::PointerLeak),
            "*(u64 *)(r10 - 8) = r10\nr2 = 8\nlock *(u64 *)(r10 - 8) += r2\nr0 = *(u64 *)(r10 - 8)\nexit",
        ),
        attack(
            "a compare-and-exchange tells an address",
            BUFFER,
            Refused(Code::PointerLeak),
            "*(u64 *)(r10 - 8) = r1\nr0 = 0\nr2 = 0\nr0 = cmpxchg_64(r10 - 8, r0, r2)\nexit",
        ),
        attack(
            "load-acquire of a spilled address keeps it one",
            BUFFER,
            Refused(Code::PointerLeak),
            "*(u64 *)(r10 - 8) = r1\nr0 = load_acquire((u64 *)(r10 - 8))\nexit",
        ),
        attack(
            "half of a spilled address",
            BUFFER,
            Refused(Code::PointerLeak),
            "*(u64 *)(r10 - 8) = r1\nr0 = *(u32 *)(r10 - 8)\nexit",
        ),
        attack(
            "the rest of an overwritten address",
            BUFFER,
            Refused(Code::Uninitialised),
            "*(u64 *)(r10 - 8) = r1\n*(u8 *)(r10 - 8) = 0\nr0 = *(u64 *)(r10 - 8)\nexit",
        ),
        attack(
            "the rest of an address after a store at an unknown place",
            BUFFER,
            Refused(Code::Uninitialised),
            "r3 = *(u8 *)(r1 + 0)\nr3 &= 8\n*(u64 *)(r10 - 16) = 0\n*(u64 *)(r10 - 8) = r1\nr2 = r10\nr2 += r3\n\
             *(u8 *)(r2 - 16) = 0\nr0 = *(u64 *)(r10 - 8)\nexit",
        ),
        attack(
            "the rest of an address that a helper wrote over",
            BUFFER,
            Refused(Code::Uninitialised),
            "*(u64 *)(r10 - 8) = r1\nr1 = r10\nr1 += -8\nr2 = 4\nr3 = 0\ncall 1002\nr0 = *(u64 *)(r10 - 8)\nexit",
        ),
        attack(
            "half of a packet's address",
            XDP,
            Refused(Code::PointerLeak),
            "r2 = *(u32 *)(r1 + 0)\nw0 = w2\nexit",
        ),
        attack(
            "the difference of two stack addresses",
            BUFFER,
            Refused(Code::PointerArithmetic),
            "r2 = r10\nr2 += -8\nr0 = r10\nr0 -= r2\nexit",
        ),
    ]);
}

#[test]
fn links_between_numbers_prove_only_what_holds() {
    each_meets_its_fate(&[
        attack(
            "distances that differ by 2^32 are taken for one",
            BUFFER,
            Refused(Code::OutOfBounds),
            "r6 = r1\nr1 = *(u64 *)(r6 + 0)\nr3 = *(u64 *)(r6 + 8)\nr2 = r1\n\
             if r3 == 0 goto other\nr2 += -0x80000000\ngoto meet\n\
             other: r1 += -1\nr2 += 0x7fffffff\n\
             meet: r0 = 0\nif r1 > 10 goto done\n\
             r2 += 0x40000000\nr2 += 0x40000000\n\
             if r2 > 0x20000000 goto wrong\nr6 += r2\nr0 = *(u8 *)(r6 + 0)\ndone: exit\n\
             wrong: r0 = *(u8 *)(r6 + 64)\nexit",
        ),
        attack(
            "a number tied before it was truncated",
            BUFFER,
            Refused(Code::PointerArithmetic),
            "r3 = *(u64 *)(r1 + 0)\nw2 = w3\nr0 = 0\nif r2 > 7 goto out\nif r3 > 63 goto in\nr0 = 0\nout: exit\n\
             in: r1 += r3\nr0 = *(u8 *)(r1 + 0)\nexit",
        ),
        attack(
            "a spilled number is narrowed with its register, a truncated one is not",
            BUFFER,
            Refused(Code::PointerArithmetic),
            "r3 = *(u64 *)(r1 + 0)\n*(u32 *)(r10 - 8) = r3\nr4 = *(u32 *)(r10 - 8)\nr0 = 0\nif r4 > 63 goto out\n\
             r1 += r3\nr0 = *(u8 *)(r1 + 0)\nout: exit",
        ),
        attack(
            "a tie survives an addition to its copy only at its distance",
            BUFFER,
            Safe,
            "r3 = *(u8 *)(r1 + 0)\nr4 = r3\nr4 += 1\nr0 = 0\nif r4 > 64 goto out\nr1 += r3\nr0 = *(u8 *)(r1 + 0)\nout: exit",
        ),
        attack(
            "and no further",
            BUFFER,
            Refused(Code::OutOfBounds),
            "r3 = *(u8 *)(r1 + 0)\nr4 = r3\nr4 += 1\nr0 = 0\nif r4 > 65 goto out\nr1 += r3\nr0 = *(u8 *)(r1 + 0)\nout: exit",
        ),
    ]);
}

#[test]
fn keys_treated_as_constant_are_constant() {
    each_meets_its_fate(&[
        attack(
            "two paths with two keys",
            BUFFER,
            Safe,
            "r6 = r1\n*(u32 *)(r10 - 4) = 1\nr3 = *(u8 *)(r6 + 0)\nif r3 s> 7 goto +1\n*(u32 *)(r10 - 4) = 2\n\
             r1 = map[0] ll\nr2 = r10\nr2 += -4\ncall 1\nif r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nexit",
        ),
        attack(
            "a key written through its second byte",
            BUFFER,
            Safe,
            "r6 = r1\n*(u32 *)(r10 - 4) = 1\nr3 = *(u8 *)(r6 + 0)\nr3 &= 1\n*(u8 *)(r10 - 3) = r3\n\
             r1 = map[0] ll\nr2 = r10\nr2 += -4\ncall 1\nif r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nexit",
        ),
        attack(
            "a key written by a callee",
            BUFFER,
            Safe,
            "r6 = r1\n*(u32 *)(r10 - 4) = 1\nr1 = *(u8 *)(r6 + 0)\nr2 = r10\nr2 += -4\ncall f\n\
             r1 = map[0] ll\nr2 = r10\nr2 += -4\ncall 1\nif r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nexit\n\
             f: r0 = 0\nif r1 > 100 goto +1\n*(u32 *)(r2 + 0) = 3\nexit",
        ),
        attack(
            "a key in the caller's stack, looked up by a callee that two paths reach",
            BUFFER,
            Safe,
            "r6 = r1\n*(u32 *)(r10 - 4) = 1\nr3 = *(u8 *)(r6 + 0)\nif r3 > 100 goto +1\n*(u32 *)(r10 - 4) = 2\n\
             r1 = r10\nr1 += -4\ncall f\nexit\n\
             f: r2 = r1\nr1 = map[0] ll\ncall 1\nif r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nr1 = r0\nr0 = r1\nexit",
        ),
        attack(
            "a key whose address was spilled",
            BUFFER,
            Safe,
            "r6 = r1\n*(u32 *)(r10 - 4) = 1\nr3 = *(u8 *)(r6 + 0)\nr2 = r10\nr2 += -4\n*(u64 *)(r10 - 16) = r2\n\
             if r3 > 100 goto +1\n*(u32 *)(r10 - 4) = 2\n\
             r2 = *(u64 *)(r10 - 16)\nr1 = map[0] ll\ncall 1\nif r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nexit",
        ),
        attack(
            "a key at a place that varies",
            BUFFER,
            Safe,
            "r6 = r1\n*(u32 *)(r10 - 4) = 1\n*(u32 *)(r10 - 8) = 2\nr3 = *(u8 *)(r6 + 0)\nr3 &= 4\nr2 = r10\nr2 += -8\nr2 += r3\n\
             r1 = map[0] ll\ncall 1\nif r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nexit",
        ),
        attack(
            "a key two calls up, passed on through memory",
            BUFFER,
            Safe,
            "r6 = r1\n*(u32 *)(r10 - 4) = 1\nr3 = *(u8 *)(r6 + 0)\nr2 = r10\nr2 += -4\n*(u64 *)(r10 - 16) = r2\n\
             if r3 > 100 goto +1\n*(u32 *)(r10 - 4) = 2\n\
             r1 = r10\nr1 += -16\ncall f\nexit\n\
             f: *(u64 *)(r10 - 8) = r1\nr1 = r10\nr1 += -8\ncall g\nexit\n\
             g: r2 = *(u64 *)(r1 + 0)\nr2 = *(u64 *)(r2 + 0)\nr1 = map[0] ll\ncall 1\nif r0 == 0 goto +2\n\
             r0 = *(u64 *)(r0 + 0)\nexit\nr0 = 0\nexit",
        ),
        attack(
            "a key that hangs over the end of the stack",
            BUFFER,
            Refused(Code::OutOfBounds),
            "*(u64 *)(r10 - 8) = 0\nr1 = map[0] ll\nr2 = r10\nr2 += -3\ncall 1\nr0 = 0\nexit",
        ),
        attack(
            "a key of which half was never written",
            BUFFER,
            Safe,
            "*(u32 *)(r10 - 8) = 0\nr1 = map[3] ll\nr2 = r10\nr2 += -8\ncall 1\nr0 = 0\nexit",
        ),
        attack(
            "a key below the stack",
            BUFFER,
            Refused(Code::Stack),
            "r1 = map[0] ll\nr2 = r10\nr2 += -516\ncall 1\nr0 = 0\nexit",
        ),
    ]);
}

#[test]
fn pointers_to_a_frame_end_with_its_function() {
    each_meets_its_fate(&[
        attack(
            "a callee returns its own stack",
            BUFFER,
            Refused(Code::Return),
            "call f\nr0 = *(u64 *)(r0 - 8)\nexit\nf: *(u64 *)(r10 - 8) = 0\nr0 = r10\nexit",
        ),
        attack(
            "a callee leaves its stack's address in its caller's",
            BUFFER,
            Refused(Code::PointerLeak),
            "r1 = r10\nr1 += -8\ncall f\nr1 = *(u64 *)(r10 - 8)\nr0 = *(u64 *)(r1 - 8)\nexit\n\
             f: *(u64 *)(r10 - 8) = 0\n*(u64 *)(r1 + 0) = r10\nr0 = 0\nexit",
        ),
        attack(
            "a callee's stack is as deep as its caller makes it, and the other way round",
            BUFFER,
            Safe,
            "r1 = r10\nr1 += -192\ncall f\nr0 = *(u64 *)(r10 - 192)\nexit\n\
             f: r6 = r1\n*(u64 *)(r6 + 0) = 7\nr1 = r10\nr1 += -8\n*(u64 *)(r10 - 8) = 3\ncall g\nexit\n\
             g: r0 = 1\n*(u64 *)(r1 - 184) = r0\nexit",
        ),
        attack(
            "a callee's stack is deeper than what its caller leaves of it",
            BUFFER,
            Refused(Code::Stack),
            "r1 = r10\nr1 += -8\ncall f\nr0 = *(u64 *)(r10 - 8)\nexit\n\
             f: r6 = r1\n*(u64 *)(r6 + 0) = 7\n*(u64 *)(r10 - 512) = 3\nr0 = 0\nexit",
        ),
        attack(
            "a helper writes deeper than any instruction",
            BUFFER,
            Safe,
            "r1 = r10\nr1 += -512\nr2 = 16\nr3 = 1\ncall 1002\nr1 = r10\nr1 += -512\ncall 1004\nr0 = *(u64 *)(r10 - 512)\nexit",
        ),
        attack(
            "a callee reads registers of its caller",
            BUFFER,
            Refused(Code::Uninitialised),
            "r6 = r1\ncall f\nexit\nf: r0 = *(u64 *)(r6 + 0)\nexit",
        ),
        attack(
            "arguments after a call",
            BUFFER,
            Refused(Code::Uninitialised),
            "r5 = 1\ncall f\nr0 = r5\nexit\nf: r0 = 0\nexit",
        ),
        attack(
            "nine frames",
            BUFFER,
            Refused(Code::Stack),
            "call a\nexit\na: call b\nexit\nb: call c\nexit\nc: call d\nexit\nd: call e\nexit\ne: call f\nexit\n\
             f: call g\nexit\ng: call h\nexit\nh: r0 = 0\nexit",
        ),
        attack(
            "old bytes of a frame that was there before",
            BUFFER,
            Safe,
            "call f\ncall g\nexit\nf: *(u64 *)(r10 - 8) = 7\nr0 = 0\nexit\ng: r0 = *(u64 *)(r10 - 8)\nexit",
        ),
        attack(
            "a caller's packet pointer after its callee moved the packet",
            XDP,
            Refused(Code::Uninitialised),
            "r6 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)\nr2 = r6\nr2 += 14\nr0 = 0\nif r2 > r7 goto out\n\
             call f\nr0 = *(u8 *)(r6 + 0)\nout: exit\nf: r2 = 0\ncall 44\nr0 = 0\nexit",
        ),
        attack(
            "a packet pointer that was spilled by a caller's caller",
            XDP,
            Refused(Code::Uninitialised),
            "r6 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)\nr2 = r6\nr2 += 14\nr0 = 0\nif r2 > r7 goto out\n\
             *(u64 *)(r10 - 8) = r6\ncall f\nr6 = *(u64 *)(r10 - 8)\nr0 = *(u8 *)(r6 + 0)\nout: exit\n\
             f: call g\nexit\ng: r2 = 0\ncall 44\nr0 = 0\nexit",
        ),
    ]);
}

#[test]
fn packet_accesses_stay_in_the_checked_range() {
    each_meets_its_fate(&[
        attack(
            "the check of a sum that was moved back",
            XDP,
            Refused(Code::OutOfBounds),
            "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = *(u32 *)(r1 + 12)\nr4 &= 0xff\nr5 = r2\nr5 += r4\nr5 += 8\n\
             r0 = 0\nif r5 > r3 goto out\nr5 -= 9\nr0 = *(u8 *)(r5 + 9)\nout: exit",
        ),
        attack(
            "before the packet, through an unknown number",
            XDP,
            Refused(Code::OutOfBounds),
            "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = *(u32 *)(r1 + 12)\nr4 &= 0xff\nr5 = r2\nr5 -= r4\nr5 += 8\n\
             r0 = 0\nif r5 > r3 goto out\nr0 = *(u8 *)(r5 - 1)\nout: exit",
        ),
        attack(
            "a range for one sum used for another",
            XDP,
            Refused(Code::OutOfBounds),
            "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = *(u32 *)(r1 + 12)\nr4 &= 0xff\nr5 = r2\nr5 += r4\nr6 = r2\nr6 += r4\n\
             r7 = r5\nr7 += 8\nr0 = 0\nif r7 > r3 goto out\nr0 = *(u64 *)(r6 + 0)\nout: exit",
        ),
        attack(
            "metadata's range is not the packet's",
            XDP,
            Refused(Code::OutOfBounds),
            "r2 = *(u32 *)(r1 + 8)\nr3 = *(u32 *)(r1 + 0)\nr4 = r2\nr4 += 8\nr0 = 0\nif r4 > r3 goto out\nr0 = *(u64 *)(r3 + 0)\nout: exit",
        ),
        attack(
            "equality with the end, the byte at it",
            XDP,
            Refused(Code::OutOfBounds),
            "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = r2\nr4 += 8\nr0 = 0\nif r4 != r3 goto out\nr0 = *(u8 *)(r2 + 8)\nout: exit",
        ),
        attack(
            "a longer range on one path, pruned by the other",
            XDP,
            Refused(Code::OutOfBounds),
            "r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr5 = *(u32 *)(r1 + 12)\nr0 = 0\nr4 = r2\nr4 += 8\nif r4 > r3 goto out\n\
             if r5 == 0 goto meet\nr4 += 8\nif r4 > r3 goto out\nmeet: r0 = *(u8 *)(r2 + 15)\nout: exit",
        ),
        attack(
            "an empty range of memory at the end",
            XDP,
            Safe,
            "r2 = *(u32 *)(r1 + 0)\nr1 = r2\nr2 = 0\nr3 = 0\ncall 1001\nr0 = 0\nexit",
        ),
        attack("a write to the context", XDP, Refused(Code::ReadOnly), "*(u32 *)(r1 + 0) = 0\nr0 = 0\nexit"),
        attack(
            "two context fields by one instruction",
            XDP,
            Safe,
            "r2 = *(u32 *)(r1 + 12)\nr3 = r1\nif r2 == 0 goto +1\nr3 += 4\nr0 = *(u32 *)(r3 + 12)\nexit",
        ),
    ]);
}

#[test]
fn sizes_and_null_are_checked_before_helpers() {
    each_meets_its_fate(&[
        attack(
            "a size that may be one too many",
            BUFFER,
            Refused(Code::OutOfBounds),
            "r2 = *(u8 *)(r1 + 0)\nr2 &= 63\nr2 += 2\nr3 = 0\ncall 1001\nexit",
        ),
        attack(
            "a size that may be negative",
            BUFFER,
            Refused(Code::Argument),
            "r2 = *(u64 *)(r1 + 0)\nr3 = 0\nif r2 s> 64 goto +1\ncall 1001\nr0 = 0\nexit",
        ),
        attack(
            "a helper that may write less initialises only the least",
            BUFFER,
            Safe,
            "r2 = *(u8 *)(r1 + 0)\nr2 &= 7\nr2 += 1\nr1 = r10\nr1 += -8\nr3 = 0\ncall 1002\nr0 = *(u64 *)(r10 - 8)\nexit",
        ),
        attack("nothing at the top of the stack", BUFFER, Safe, "r1 = r10\nr2 = 0\nr3 = 7\ncall 1001\nexit"),
        attack(
            "a value beside the one that was checked",
            BUFFER,
            Refused(Code::MaybeNull),
            "*(u64 *)(r10 - 8) = 0\nr1 = map[3] ll\nr2 = r10\nr2 += -8\ncall 1\nr6 = r0\n\
             r1 = map[3] ll\nr2 = r10\nr2 += -8\ncall 1\nr7 = r0\nr0 = 0\nif r7 == 0 goto +1\nr0 = *(u64 *)(r6 + 0)\nexit",
        ),
        attack(
            "a value moved before it was checked",
            BUFFER,
            Refused(Code::MaybeNull),
            "*(u64 *)(r10 - 8) = 0\nr1 = map[3] ll\nr2 = r10\nr2 += -8\ncall 1\nr0 += 8\nif r0 == 0 goto +1\nr0 = *(u64 *)(r0 + 0)\nexit",
        ),
        attack(
            "a checked value spilled and pruned with an unchecked one",
            BUFFER,
            Refused(Code::MaybeNull),
            "r6 = *(u64 *)(r1 + 0)\n*(u64 *)(r10 - 8) = 0\nr1 = map[3] ll\nr2 = r10\nr2 += -8\ncall 1\n*(u64 *)(r10 - 16) = r0\n\
             if r6 == 0 goto meet\nif r0 != 0 goto meet\nr0 = 0\nexit\nmeet: r1 = *(u64 *)(r10 - 16)\nr0 = *(u64 *)(r1 + 0)\nexit",
        ),
    ]);
}

/// Puts a number in r3 that is known to be 8 only by its range and its bits together. Ends with r0 = 0.
const EIGHT: &str =
    "r6 = r1\nr3 = *(u8 *)(r6 + 0)\nr7 = *(u64 *)(r6 + 8)\nr3 &= 8\nr0 = 0\nif r3 < 4 goto out\n";

#[test]
fn constant_offsets_found_later_are_not_forgotten() {
    let refused = |text: &str, code| {
        let program = program(BUFFER, &format!("{EIGHT}{text}\nout: exit"));
        match verified(&program) {
            Err(refusal) => assert_eq!(refusal.code, code, "{refusal}"),
            Ok(accepted) => {
                let harm = Lab::new(Host::new(BUFFER)).agree(&program, &accepted, INPUTS);
                panic!("accepted: {harm:?}\n{program}")
            }
        }
    };
    let safe = |text: &str| {
        let program = program(BUFFER, &format!("{EIGHT}{text}\nout: exit"));
        let accepted = verified(&program).unwrap_or_else(|refusal| panic!("{refusal}\n{program}"));
        if let Err(harm) = Lab::new(Host::new(BUFFER)).agree(&program, &accepted, INPUTS) {
            panic!("{harm}\n{program}");
        }
    };
    // The state of a pointer that was moved back is remembered; one that was not moved reaches the same instruction.
    refused("r6 += 8\nif r7 == 0 goto meet\nr6 -= r3\nmeet: r0 = *(u8 *)(r6 + 63)", Code::OutOfBounds);
    refused(
        "r6 += 8\n*(u64 *)(r10 - 8) = r6\nif r7 == 0 goto meet\nr6 -= r3\n*(u64 *)(r10 - 8) = r6\n\
         meet: r6 = *(u64 *)(r10 - 8)\nr0 = *(u8 *)(r6 + 63)",
        Code::OutOfBounds,
    );
    // The key is not at the fixed part of its address.
    let lookup = "r1 = map[0] ll\ncall 1\nif r0 == 0 goto out\nr0 = *(u64 *)(r0 + 0)";
    safe(&format!("*(u64 *)(r10 - 8) = 1\nr2 = r10\nr2 -= r3\n{lookup}"));
    safe(&format!("*(u32 *)(r10 - 4) = 1\n*(u64 *)(r10 - 12) = 2\nr2 = r10\nr2 += -4\nr2 -= r3\n{lookup}"));
}

/// Eight nested functions, each with 512 numbers on its stack. The last one runs `body`; r6 holds the first caller's
/// argument in all of them.
fn deep(body: &str) -> String {
    let fill: String = (1..=512).map(|at| format!("*(u8 *)(r10 - {at}) = {}\n", 1 + at % 100)).collect();
    let mut text = String::new();
    for frame in 0..8 {
        text += &format!("f{frame}: r6 = r1\n{fill}");
        if frame < 7 {
            // Stack that a callee might read through r2 stays live.
            text += &format!("r1 = r6\nr2 = r10\ncall f{}\nexit\n", frame + 1);
        }
    }
    text + body + "r0 = 0\nexit"
}

#[test]
fn work_over_whole_states_counts_against_the_limit() {
    let stopped = |flavour, body: &str| {
        let Err(refusal) = verified(&program(flavour, &deep(body))) else { panic!("it is too much") };
        assert_eq!(refusal.code, Code::Limit, "{refusal}");
        assert!(refusal.walked < 20_000, "after {} instructions", refusal.walked);
    };
    // One side of each branch is impossible, but that is found only after the state was copied for it.
    let impossible = "r1 = *(u64 *)(r6 + 0)\nr2 = r1\nr2 += 1\nif r2 & 2 goto +2\nr0 = 0\nexit\n".to_owned()
        + &"if r1 == 4 goto never\n".repeat(3_000)
        + "never: ";
    stopped(BUFFER, &impossible);
    // Each call looks for packet pointers in all frames.
    stopped(XDP, &"r1 = r6\nr2 = 0\ncall 44\n".repeat(3_000));
}

#[test]
fn extreme_offsets_are_refused_without_overflow() {
    for text in ["r1 = r10\nr1 += -0x80000000", "r1 = r10\nr1 -= -0x80000000", "r1 += -0x80000000"] {
        let refusal = verified(&program(BUFFER, &format!("{text}\nr0 = *(u8 *)(r1 + 0)\nexit")));
        assert_eq!(refusal.expect_err("out of reach").code, Code::PointerArithmetic);
    }
}
