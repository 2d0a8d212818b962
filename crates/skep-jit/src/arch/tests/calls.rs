//! Calls between functions of a program and calls of helpers: frames, preserved registers, arguments.

use std::sync::atomic::{AtomicU64, Ordering};

use skep_abi::RunEnv;

use super::{Program, run};
use crate::arch::testing::{self, ALIGNED, CLOBBER};

/// Its first five arguments as the digits of a number, and the environment's CPU number.
unsafe extern "C" fn digits(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: compiled code passes the environment that it received.
    let cpu = u64::from(unsafe { (*env).cpu });
    ((((a * 10 + b) * 10 + c) * 10 + d) * 10 + e) * 10 + cpu
}

/// Counts in the cell that the environment's `host` points to.
unsafe extern "C" fn count(_: u64, _: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the tests that call this put the address of a live cell there.
    unsafe { (*((*env).host as *const AtomicU64)).fetch_add(1, Ordering::Relaxed) }
}

#[test]
fn helpers_receive_five_arguments_and_the_environment() {
    let program =
        Program::new("r1 = 1\nr2 = 2\nr3 = 3\nr4 = 4\nr5 = 5\ncall 9\nexit").helpers(&[(9, digits)]);
    let mut env = RunEnv { cpu: 6, ..RunEnv::default() };
    assert_eq!(program.run_in(0, 0, &mut env), 123_456);
}

#[test]
fn arguments_of_the_program_are_r1_and_r2() {
    assert_eq!(Program::new("r0 = r1\nr0 *= 10\nr0 += r2\nexit").run(4, 2), 42);
    let with_env = Program::new("r3 = 0\nr4 = 0\nr5 = 0\ncall 9\nexit").helpers(&[(9, digits)]);
    assert_eq!(with_env.run_in(7, 8, &mut RunEnv::default()), 780_000);
}

#[test]
fn functions_called_from_functions_reach_the_environment() {
    let text = "call outer
                exit
         outer: call inner
                r0 += 1
                exit
         inner: r1 = 1
                call 9
                exit";
    let cell = AtomicU64::new(40);
    let mut env = RunEnv { host: &raw const cell as u64, ..RunEnv::default() };
    let program = Program::new(text).helpers(&[(9, count)]);
    // SAFETY: the program receives the environment that its helper requires.
    let result = unsafe { program.compile().entry().call(0, 0, &mut env) };
    assert_eq!((result, cell.into_inner()), (41, 41));
}

#[test]
fn live_values_survive_a_helper_that_clobbers_all_it_may() {
    let text = "r6 = 6\nr7 = 7\nr8 = 8\nr9 = 9
                *(u64 *)(r10 - 8) = 10
                *(u64 *)(r10 - 512) = 11
                call 5
                r0 += r6\nr0 *= r7\nr0 += r8\nr0 *= r9
                r1 = *(u64 *)(r10 - 8)\nr0 += r1
                r1 = *(u64 *)(r10 - 512)\nr0 += r1
                call 5
                r0 += 0
                r0 += r6\nr0 += r7\nr0 += r8\nr0 += r9
                exit";
    assert_eq!(Program::new(text).helpers(&[(5, CLOBBER)]).run(0, 0), 42 + 6 + 7 + 8 + 9);
    let first = text.replace("call 5\n                r0 += 0", "exit");
    let expected = ((42 + 6) * 7 + 8) * 9 + 10 + 11;
    assert_eq!(Program::new(&first).helpers(&[(5, CLOBBER)]).run(0, 0), expected);
}

#[test]
fn the_environment_survives_a_helper_that_clobbers_all_it_may() {
    let text = "call 5\ncall 5\nr1 = 1\nr2 = 1\nr3 = 1\nr4 = 1\nr5 = 1\ncall 9\nexit";
    let program = Program::new(text).helpers(&[(5, CLOBBER), (9, digits)]);
    assert_eq!(program.run_in(0, 0, &mut RunEnv { cpu: 3, ..RunEnv::default() }), 111_113);
}

/// Programs with frames of every kind: all numbers of preserved registers, with and without stack, helper calls
/// and calls of functions.
fn frames() -> impl Iterator<Item = (String, bool)> {
    (0..16u32).flat_map(|saved| (0..64u32).map(move |kind| (saved, kind))).map(|(saved, kind)| {
        let (helper, local, stack, early) = (kind & 1 != 0, kind & 2 != 0, kind & 4 != 0, kind & 8 != 0);
        let deep = [8, 16, 120, 128, 136, 264, 504, 512][(saved as usize + kind as usize / 16) % 8];
        let mut text = String::from("r0 = r1\n");
        for reg in (0..4).filter(|reg| saved & 1 << reg != 0) {
            text += &format!("r{} = {}\n", reg + 6, 100 + reg);
        }
        if stack {
            text += &format!("*(u64 *)(r10 - 8) = 1\n*(u64 *)(r10 - {deep}) = 2\n");
        }
        if early {
            text += "if r1 == 12345 goto end\n";
        }
        if helper {
            text += "call 7\n";
        }
        if local {
            text += "call inner\n";
        }
        for reg in (0..4).filter(|reg| saved & 1 << reg != 0) {
            text += &format!("if r{} != {} goto bad\n", reg + 6, 100 + reg);
        }
        if stack {
            text += &format!("r1 = *(u64 *)(r10 - {deep})\nif r1 != 2 goto bad\n");
        }
        if kind & 16 != 0 {
            text += "if r0 != 77 goto bad\n";
        }
        text += "exit\nbad: r0 = 1\nexit\nend: r0 = 2\nexit\n";
        if local {
            // Changes every preserved register, and fills its own frame.
            text += "inner: r6 = 0\nr7 = 0\nr8 = 0\nr9 = 0\n*(u64 *)(r10 - 8) = 99\n";
            if kind & 32 != 0 {
                text += "*(u64 *)(r10 - 512) = 99\n";
            }
            if helper {
                text += "r1 = 77\ncall 7\nexit\n";
            } else {
                text += "r0 = 77\nexit\n";
            }
        }
        (text, local)
    })
}

#[test]
fn every_frame_keeps_the_stack_aligned_and_callers_registers() {
    for (text, local) in frames() {
        let input = if local { 76 } else { 77 };
        for bytes in [512, 520 - 8] {
            let program = Program::new(&text).stack(bytes).helpers(&[(7, ALIGNED)]);
            let compiled = program.compile();
            let mut env = RunEnv::default();
            // SAFETY: the program only uses its own stack.
            let called = unsafe { testing::call(compiled.entry(), input, 0, &mut env) };
            // r0 is 77 from the helper, the function or the start.
            assert_eq!(called, (if local { 77 } else { input }, 0), "{text}");
            // SAFETY: as above.
            let early = unsafe { testing::call(compiled.entry(), 12345, 0, &mut env) };
            assert_eq!(early.1, 0, "{text}");
        }
    }
}

#[test]
fn eight_nested_calls_keep_and_share_400_live_bytes_each() {
    const DEPTH: usize = 8;
    let mut text = String::new();
    for level in 0..DEPTH {
        if level > 0 {
            // r1 points to a number on the caller's stack: add to it there.
            text += &format!(
                "level{level}: r6 = r1\nr0 = *(u64 *)(r6 + 0)\nr0 += {level}\n*(u64 *)(r6 + 0) = r0\n"
            );
        } else {
            text += "r6 = 0\n";
        }
        for slot in 0..50 {
            text += &format!("*(u64 *)(r10 - {}) = {}\n", 8 * (slot + 1), level * 1000 + slot);
        }
        text += &format!("r7 = {level}\nr8 = {}\nr9 = {}\n", level + 100, level + 200);
        if level + 1 < DEPTH {
            text += &format!("r1 = r10\nr1 += -400\ncall level{}\nr5 = r0\n", level + 1);
        } else {
            text += "r5 = 0\n";
        }
        // Everything is unchanged except the last number, to which the callee added its level.
        for slot in 0..50 {
            let mut expected = level * 1000 + slot;
            if slot == 49 && level + 1 < DEPTH {
                expected += level + 1;
            }
            text +=
                &format!("r1 = *(u64 *)(r10 - {})\nif r1 != {expected} goto bad{level}\n", 8 * (slot + 1));
        }
        text += &format!(
            "if r7 != {level} goto bad{level}\nif r8 != {} goto bad{level}\nif r9 != {} goto bad{level}\n",
            level + 100,
            level + 200
        );
        text += &format!("r0 = r5\nr0 += {}\nexit\nbad{level}: r0 = -1000000\nexit\n", 1 << level);
    }
    assert_eq!(Program::new(&text).stack(400).run(0, 0), 255);
}

#[test]
fn a_zeroed_frame_has_no_bytes_of_earlier_calls() {
    for bytes in (8..=512).step_by(8) {
        let places = || (8..=bytes).step_by(8);
        let fill: String = places().map(|at| format!("*(u64 *)(r10 - {at}) = -1\n")).collect();
        let sum: String = places().map(|at| format!("r9 = *(u64 *)(r10 - {at})\nr0 |= r9\n")).collect();
        // With and without calls, with and without saved registers, with a `may_goto` budget below the stack.
        for (before, after) in [
            ("", ""),
            ("r6 = 0\nr8 = 0\n", ""),
            ("", "may_goto +0\n"),
            ("", "r6 = r0\ncall leaf\nr0 = r6\n"),
            ("r6 = 5\nr7 = 6\n", "r6 = r0\nr7 = 1\nr8 = 1\ncall leaf\nr0 = r6\n"),
        ] {
            let text = format!(
                "   r6 = 1\nr7 = 2\nr8 = 3\nr9 = 4
                    r1 = 10\nr2 = 20\nr3 = 30\nr4 = 40\nr5 = 50
                    call dirty
                    r1 = 10\nr2 = 20\nr3 = 30\nr4 = 40\nr5 = 50
                    call clean
                    r0 *= 1000
                    r0 += r6\nr0 += r7\nr0 += r8\nr0 += r9
                    exit
             leaf:  r0 = 1
                    exit
             dirty: {before}{fill}{after}r0 = 0
                    exit
             clean: {before}r0 = r1\nr0 += r2\nr0 += r3\nr0 += r4\nr0 += r5\nr0 -= 150
                    {sum}{after}exit"
            );
            let program = Program::new(&text).stack(bytes).zeroed();
            assert_eq!(program.run(0, 0), 10, "{bytes} bytes, {before:?}, {after:?}");
        }
    }
}

#[test]
fn calls_pass_five_arguments_and_one_result() {
    let text = "r1 = 1\nr2 = 2\nr3 = 3\nr4 = 4\nr5 = 5
                call weigh
                exit
         weigh: r0 = r1
                r0 *= 10\nr0 += r2\nr0 *= 10\nr0 += r3\nr0 *= 10\nr0 += r4\nr0 *= 10\nr0 += r5
                exit";
    assert_eq!(run(text), 12345);
}

#[test]
fn functions_may_be_called_backward_forward_and_repeatedly() {
    let text = "r1 = 3\ncall twice\nr1 = r0\ncall twice\nr1 = r0\ncall next\nexit
         next:  r0 = r1\nr0 += 1\nr1 = r0\ncall twice\nexit
         twice: r0 = r1\nr0 += r1\nexit";
    assert_eq!(run(text), 26);
}
