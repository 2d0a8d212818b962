//! Programs that once misbehaved, found by the other tests here and reduced. Each is refused, or it is accepted,
//! stays in its memory and in its verifier states, and gives equal results in all engines.

use crate::common::{Lab, verified};
use skep_isa::assemble;
use skep_testgen::{Flavour, Host, TestProgram};
use skep_verifier::Code;

const FLAVOUR: Flavour = Flavour::Buffer { len: 64 };

fn program(text: &str) -> TestProgram {
    let insns = assemble(text).unwrap_or_else(|error| panic!("{error}"));
    TestProgram { insns, functions: vec![0], flavour: FLAVOUR }
}

/// Runs an accepted program over a buffer of 64 bytes in checking mode.
fn watch(text: &str) {
    let program = program(text);
    let accepted = verified(&program).unwrap_or_else(|refusal| panic!("{refusal}\n{program}"));
    if let Err(reason) = Lab::new(Host::new(FLAVOUR)).agree(&program, &accepted, 200) {
        panic!("{reason}\n{program}");
    }
}

#[test]
fn facts_about_dead_copies_decide_no_branch_of_another_path() {
    // On the path that subtracts, r7 is at most 9 and r9 is r7 - 10: there the last comparison never holds.
    watch(
        "   r7 = *(u64 *)(r1 + 0x18)
            r0 = 0
            r9 = r7
            if r9 s>= 10 goto meet
            r9 -= 10
        meet:
            r1 = 0x100000 ll
            if r9 == r1 goto found
            exit
        found:
            r0 = 1
            exit",
    );
    watch(
        "   r8 = *(s16 *)(r1 + 0x30)
            r0 = 0
            *(u64 *)(r10 - 0x10) = r8
            r7 = *(u64 *)(r10 - 0x10)
            r8 += 0x10
            if w7 < 0x47 goto meet
            r0 = 2
        meet:
            if r8 == 0x55 goto found
            exit
        found:
            r0 = 1
            exit",
    );
}

#[test]
fn a_pointer_moved_by_the_smallest_immediate_is_refused() {
    let program = program(
        "   r1 = r10
            r1 += -0x80000000
            r2 = 8
            r3 = 0
            call 1001
            exit",
    );
    let refusal = verified(&program).expect_err("the pointer is moved out of reach");
    assert_eq!(refusal.code, Code::PointerArithmetic, "{refusal}");
}
