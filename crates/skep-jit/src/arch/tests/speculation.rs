//! What code does on a path that the processor takes by mistake. The mistake is made real: every conditional jump of
//! the code is turned round, and the code is run. So it takes exactly the paths that a wrong prediction leads to, and
//! what it reads there can be seen.

use std::os::unix::process::ExitStatusExt;

use skep_abi::RunEnv;

use super::{NEAR, PLAIN, Program, Ready, UNTRUSTED};
use crate::Options;
use crate::arch::{Native, testing};
use crate::port::Home;

/// Masks alone.
const MASKED: Options = Options { mask_speculation: true, ..PLAIN };

/// What lies behind the memory that programs may read.
const SECRET: u8 = 0x5a;

/// The secret's address plus one: a masked base and this make its address, if the index is not masked too.
const SECRET_BEHIND_NULL: u64 = u64::MAX;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With the secret as its result.
    Told,
    /// With another result.
    Silent,
    /// It touched memory that is not there.
    Faulted,
    /// It changed what lies behind its memory.
    Wrote,
}

/// A program that takes 64 bytes in `r1`, of which it may read and write the first 16, and a number in `r2`.
///
/// On the right path it reads nothing else; on the wrong one it would.
struct Gadget {
    name: &'static str,
    text: &'static str,
    /// [`SECRET_BEHIND_NULL`] stands for a number that leads from the end of the address space to the secret.
    number: u64,
    /// How it ends on the wrong path without masks, and with.
    ends: (End, End),
}

const GADGETS: &[Gadget] = &[
    Gadget {
        name: "an index behind a comparison",
        text: "if r2 > 15 goto out\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit\nout: r0 = 0\nexit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "an index that leads from a mask to the secret",
        text: "if r2 > 15 goto out\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit\nout: r0 = 0\nexit",
        number: SECRET_BEHIND_NULL,
        ends: (End::Faulted, End::Faulted),
    },
    Gadget {
        name: "the same where the jump is taken",
        text: "r0 = 0\nif r2 < 16 goto in\nexit\nin: r1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "an index that is shifted, with an offset",
        text: "if r2 > 1 goto out\nr2 <<= 3\nr1 += r2\nr0 = *(u8 *)(r1 + 4)\nexit\nout: r0 = 0\nexit",
        number: 2,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "the lower half of an index",
        text: "if w2 > 15 goto out\nw2 = w2\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit\nout: r0 = 0\nexit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "a load and an operation in one",
        text: "r0 = 0\nif r2 > 15 goto out\nr1 += r2\nr3 = *(u64 *)(r1 + 0)\nr0 += r3\nr0 &= 0xff\nout: exit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "two loads of neighbours",
        text: "r0 = 0\nif r2 > 15 goto out\nr1 += r2\nr3 = *(u64 *)(r1 + 0)\nr4 = *(u64 *)(r1 + 8)\nr0 = r3\nr0 += r4\nr0 \
               -= r4\nr0 &= 0xff\nout: exit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "a store",
        text: "r0 = 0\nif r2 > 15 goto out\nr1 += r2\n*(u8 *)(r1 + 0) = 1\nout: exit",
        number: 20,
        ends: (End::Wrote, End::Faulted),
    },
    Gadget {
        name: "an atomic operation",
        text: "r0 = 0\nr3 = 1\nif r2 > 8 goto out\nr1 += r2\nr3 = atomic_fetch_or((u64 *)(r1 + 0), r3)\nout: exit",
        number: 24,
        ends: (End::Wrote, End::Faulted),
    },
    Gadget {
        name: "what the stack holds",
        text: "r1 += 20\nr1 = *(u8 *)(r1 + 0)\n*(u64 *)(r10 - 8) = r1\nr0 = 0\nif r2 > 15 goto out\nr0 = *(u64 *)(r10 - \
               8)\nout: exit",
        number: 20,
        ends: (End::Told, End::Silent),
    },
    Gadget {
        name: "a comparison in another function",
        text: "r6 = r1\nr1 = r2\ncall check\nr6 += r0\nr0 = *(u8 *)(r6 + 0)\nexit\ncheck: r0 = r1\nif r1 > 15 goto \
               not\nexit\nnot: r0 = 0\nexit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "a comparison with a register, after a division",
        text: "r3 = 16\nif r2 >= r3 goto out\nr4 = r2\nr4 /= 3\nr5 = r2\nr5 s%= r4\nr1 += r2\nr0 = *(u8 *)(r1 + \
               0)\nexit\nout: r0 = 0\nexit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "a test of a bit",
        text: "r0 = 0\nif r2 & 16 goto out\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nout: exit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
    Gadget {
        name: "a sign",
        text: "r0 = 0\nr2 -= 30\nif r2 s>= 0 goto in\ngoto out\nin: r1 += r2\nr1 += 30\nr0 = *(u8 *)(r1 + 0)\nout: exit",
        number: 20,
        ends: (End::Told, End::Faulted),
    },
];

/// Runs the code with every conditional jump turned round.
fn mistaken(gadget: &Gadget, options: Options) -> End {
    let program = Program::new(gadget.text);
    let emitted = program.emit::<Native>(options, &Home::anywhere(), 0x1000).expect("compiles");
    let turned = testing::mistaken(&emitted.bytes);
    assert_ne!(turned, emitted.bytes, "{} has no conditional jump", gadget.name);
    let mut draft = NEAR.draft_aligned(turned.len(), 64).expect("room");
    draft.bytes_mut().copy_from_slice(&turned);
    let text = draft.finalize().expect("is installed");
    let mut memory = [SECRET; 64];
    memory[..16].fill(0);
    let number = match gadget.number {
        SECRET_BEHIND_NULL => (&raw const memory[20]).addr() as u64 + 1,
        number => number,
    };
    let run = || {
        // SAFETY: the code is a function with these arguments. What it does to memory ends this process, or is seen.
        let result = unsafe {
            let entry: unsafe extern "C" fn(*mut u8, u64, *mut RunEnv) -> u64 =
                std::mem::transmute(text.as_ptr());
            entry(memory.as_mut_ptr(), number, std::ptr::null_mut())
        };
        let written = memory[16..].iter().any(|byte| *byte != SECRET);
        if written { 3 } else { i32::from(result == u64::from(SECRET)) }
    };
    // SAFETY: the child runs nothing but compiled code.
    let status = unsafe { skep_testkit::in_a_child(run) };
    match (status.code(), status.signal()) {
        (Some(1), _) => End::Told,
        (Some(0), _) => End::Silent,
        (Some(3), _) => End::Wrote,
        (_, Some(libc::SIGSEGV | libc::SIGBUS)) => End::Faulted,
        _ => panic!("{}: {status}", gadget.name),
    }
}

#[test]
fn a_path_that_is_taken_by_mistake_reads_and_writes_nothing() {
    for gadget in GADGETS {
        let (open, masked) = gadget.ends;
        assert_eq!(mistaken(gadget, PLAIN), open, "{} without masks", gadget.name);
        assert_eq!(mistaken(gadget, MASKED), masked, "{}", gadget.name);
        assert_eq!(mistaken(gadget, UNTRUSTED), masked, "{} with everything", gadget.name);
    }
}

#[test]
fn gadgets_are_programs_that_read_what_they_may() {
    for gadget in GADGETS {
        let mut memory = [SECRET; 64];
        memory[..16].fill(0);
        let ready: Ready = Program::new(gadget.text).ready();
        let result = ready.run(memory.as_mut_ptr() as u64, gadget.number);
        assert_ne!(result, u64::from(SECRET), "{}", gadget.name);
        assert!(memory[16..].iter().all(|byte| *byte == SECRET), "{}", gadget.name);
    }
}
