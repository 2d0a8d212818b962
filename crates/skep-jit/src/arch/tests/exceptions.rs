//! Throws: from any depth, with and without a callback, in all variants of the code, hardened ones included.

use skep_abi::{HelperFn, RunEnv};

use super::Program;
use crate::arch::testing::{self, ALIGNED, CLOBBER};

/// A program whose third function throws the second argument if the first is 1.
const DEEP: &str = "
        r6 = 100
        r7 = r2
        call outer
        r0 += r6
        exit
        call end ; nothing gets here, but that makes a function of it
 outer: r6 = 10
        r8 = r1
        r9 = r2
        *(u64 *)(r10 - 8) = r6
        call inner
        r0 += r6
        exit
 inner: r6 = 1
        r8 = r1
        r7 = r2
        call 5
        r1 = r7
        if r8 != 1 goto +1
        call kfunc[77]
        r0 = r6
        exit
   end: r6 = r1
        call 5
        r1 = 5
        call 6
        r0 += r6
        exit";

fn deep(callback: bool) -> Program {
    let program = Program::new(DEEP).helpers(&[(5, CLOBBER), (6, ALIGNED)]);
    program.throwing(callback.then_some(3))
}

#[test]
fn a_cookie_passes_frames_that_save_registers() {
    for cookie in [0, 7, u64::MAX] {
        assert_eq!(deep(false).run(1, cookie), cookie);
        assert_eq!(deep(false).run(0, cookie), 111);
    }
}

#[test]
fn the_exception_callback_can_call_helpers_and_sets_the_result() {
    for cookie in [0, 7, 1 << 40] {
        assert_eq!(deep(true).run(1, cookie), cookie + 5);
        assert_eq!(deep(true).run(0, cookie), 111);
    }
}

#[test]
fn a_throw_restores_the_host_s_registers() {
    for callback in [false, true] {
        let compiled = deep(callback).compile();
        // SAFETY: the test's own program, which receives the arguments that it expects.
        let (result, lost) = unsafe { testing::call(compiled.entry(), 1, 7, &mut RunEnv::default()) };
        assert_eq!((result, lost), (if callback { 12 } else { 7 }, 0));
    }
}

#[test]
fn an_exception_ends_with_its_program() {
    for callback in [false, true] {
        let mut env = RunEnv::default();
        deep(callback).run_in(1, 7, &mut env);
        assert_eq!(env.thrown, 0);
    }
}

#[test]
fn a_throw_in_the_main_function_needs_no_environment() {
    let program =
        Program::new("r6 = r2\nif r1 == 0 goto +2\nr1 = r6\ncall kfunc[77]\nr0 = 3\nexit").throwing(None);
    assert_eq!((program.run(1, 9), program.run(0, 9)), (9, 3));
    let helpers: [(u32, HelperFn); 1] = [(5, CLOBBER)];
    let text = "r6 = r2\nif r1 == 0 goto +2\nr1 = r6\ncall kfunc[77]\nr0 = 3\nexit\ncall end\nend: r0 = r1\nr0 *= 2\nexit";
    let program = Program::new(text).helpers(&helpers).throwing(Some(1));
    assert_eq!((program.run(1, 9), program.run(0, 9)), (18, 3));
}
