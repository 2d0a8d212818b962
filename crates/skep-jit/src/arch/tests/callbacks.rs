//! Functions that helpers call, and the budget of `may_goto`.

use skep_abi::{HelperFn, MAX_LOOPS, RunEnv};

use super::{Program, run};
use crate::arch::testing::CLOBBER;

/// A loop like Linux's `bpf_loop`: iterations, function, context.
unsafe extern "C" fn repeat(
    rounds: u64,
    function: u64,
    context: u64,
    _: u64,
    _: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: compiled code passes the address of a function with the signature of a helper.
    let function = unsafe { std::mem::transmute::<usize, HelperFn>(function as usize) };
    for round in 0..rounds {
        // SAFETY: as above.
        if unsafe { function(round, context, 3, 4, 5, env) } != 0 {
            return round + 1;
        }
    }
    rounds
}

/// The environment's CPU number, returned after clobbering every register that calls may clobber.
unsafe extern "C" fn cpu(_: u64, _: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: a helper of these tests, which reads no memory; and the environment of the run.
    unsafe {
        CLOBBER(0, 0, 0, 0, 0, env);
        (*env).cpu.into()
    }
}

const HELPERS: [(u32, HelperFn); 3] = [(5, CLOBBER), (7, cpu), (181, repeat)];

fn in_env(text: &str) -> u64 {
    let mut env = RunEnv { cpu: 9, ..RunEnv::default() };
    Program::new(text).helpers(&HELPERS).run_in(0, 0, &mut env)
}

#[test]
fn helpers_call_functions_of_the_program_with_five_arguments() {
    let text = "
        r6 = 6
        *(u64 *)(r10 - 8) = 0
        r1 = 10
        r2 = func[sum] ll
        r3 = r10
        r3 += -8
        call 181
        r0 *= 10000
        r1 = *(u64 *)(r10 - 8)
        r0 += r1
        r0 *= r6
        exit
   sum: r6 = r1
        r7 = r2
        *(u64 *)(r10 - 8) = 77
        r6 += r3
        r6 += r4
        r6 += r5
        call 7
        r6 += r0
        r3 = *(u64 *)(r7 + 0)
        r3 += r6
        *(u64 *)(r7 + 0) = r3
        r0 = 0
        exit";
    assert_eq!(in_env(text), (10 * 10_000 + 45 + 10 * (12 + 9)) * 6);
}

#[test]
fn nested_callbacks_preserve_callers_registers() {
    let text = "
        r6 = 1\nr7 = 20\nr8 = 300\nr9 = 4000
        *(u64 *)(r10 - 8) = 0
        r1 = 5
        r2 = func[outer] ll
        r3 = r10
        r3 += -8
        call 181
        r0 = *(u64 *)(r10 - 8)
        r0 *= 10000
        r0 += r6\nr0 += r7\nr0 += r8\nr0 += r9
        exit
 outer: r3 = r2
        r9 = r1
        r6 = 77
        call 5
        r3 = *(u64 *)(r10 - 16)
        exit
 inner: r0 = 0
        exit";
    // A call clobbers `r2`, so the context is saved on the stack first.
    let text = text.replace(
        "r3 = r2\n        r9 = r1\n        r6 = 77\n        call 5\n        r3 = *(u64 *)(r10 - 16)\n        exit",
        "*(u64 *)(r10 - 16) = r2
        r6 = 77\nr7 = 77\nr8 = 77\nr9 = 77
        call 5
        r3 = *(u64 *)(r10 - 16)
        r1 = 4
        r2 = func[inner] ll
        call 181
        r0 = 0
        exit",
    );
    let text = text.replace(
        "inner: r0 = 0",
        "inner: r6 = r2\nr7 = 5\ncall 7\nr0 -= 8\nr1 = *(u64 *)(r6 + 0)\nr1 += r0\n*(u64 *)(r6 + 0) = r1\nr0 = 0",
    );
    assert_eq!(in_env(&text), 20 * 10_000 + 4321);
}

#[test]
fn a_callback_that_stops_the_loop_does() {
    let text = "
        r1 = 10
        r2 = func[f] ll
        r3 = 0
        call 181
        exit
     f: r0 = 0
        if r1 < 3 goto out
        r0 = 1
   out: exit";
    assert_eq!(in_env(text), 4);
}

#[test]
fn may_goto_leaves_the_loop_after_its_budget() {
    let text = "
        r0 = 0
  next: may_goto out
        r0 += 1
        goto next
   out: exit";
    assert_eq!(run(text), MAX_LOOPS.into());
}

#[test]
fn each_call_has_its_own_may_goto_budget_below_its_stack() {
    for bytes in [0, 8, 16, 120, 128, 504, 512] {
        let fill = if bytes > 0 { format!("*(u64 *)(r10 - {bytes}) = -1") } else { String::new() };
        let text = format!(
            "   r9 = 1
                call f
                r6 = r0
                call f
                r0 += r6
                r0 += r9
                exit
             f: r0 = 0
                {fill}
          next: may_goto out
                r0 += 1
                may_goto out
                r0 += 1
                goto next
           out: may_goto end
                r0 = 0
           end: exit"
        );
        assert_eq!(Program::new(&text).stack(bytes).run(0, 0), 2 * u64::from(MAX_LOOPS) + 1, "{bytes}");
    }
}

#[test]
fn a_result_survives_may_goto() {
    let text = "
        r1 = 5
        call 7
        may_goto +1
        r0 += 1
        exit";
    assert_eq!(in_env(text), 10);
}
