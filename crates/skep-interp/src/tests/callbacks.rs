//! Functions that helpers call, and the `may_goto` budget.

use super::calls::linkage;
use super::*;
use crate::watch::Checking;
use crate::{Reason, Regions, Violation};
use skep_abi::{ArgKind, Callback, HelperProto, MAX_LOOPS, RetKind};
use skep_isa::assemble;

/// A loop like Linux's `bpf_loop`: function, iterations, context.
pub(crate) const LOOP: u32 = 181;

pub(crate) unsafe extern "C" fn repeat(
    iterations: u64,
    function: u64,
    context: u64,
    _: u64,
    _: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: the interpreter provides the callback for its functions.
    let call = unsafe { (*env).callback }.unwrap();
    for iteration in 0..iterations {
        // SAFETY: the program passed that function.
        if unsafe { call(function, &[iteration, context, 0, 0, 0], env) } != 0 {
            return iteration + 1;
        }
    }
    iterations
}

pub(crate) fn program(text: &str, functions: &[u32]) -> Parts {
    let insns = assemble(text).unwrap_or_else(|error| panic!("{error}"));
    let ends = functions.iter().skip(1).copied().chain([insns.len() as u32]);
    let functions = functions.iter().zip(ends).map(|(start, end)| function("f", *start, end)).collect();
    Parts { functions, ..parts(&insns) }
}

fn runs(parts: &Parts) -> u64 {
    let linkage = linkage(&[(LOOP, repeat)]);
    let result = run(parts, &linkage, 7, 0);
    assert_eq!(checked(parts).expect("nothing is wrong"), result);
    result
}

fn checked(parts: &Parts) -> Result<u64, Violation> {
    use ArgKind::{CallbackContext, None, Scalar};
    let args = [Scalar, ArgKind::Callback(Callback::Loop), CallbackContext, Scalar, None];
    let proto = HelperProto::new(LOOP, "loop", args, RetKind::Scalar);
    let code = Code::new(parts.clone(), &linkage(&[(LOOP, repeat)])).unwrap();
    let by_id = |id| Some(&proto).filter(|proto| proto.id == id);
    let regions = Regions::new(&by_id).with_fuel(100_000);
    let mut env = RunEnv::default();
    let mut watch = Checking::new(&code, 7, 0, &regions);
    // SAFETY: the watch allows only accesses to the stack.
    unsafe { exec::run(&code, 7, 0, &mut env, &mut watch) }
}

const SUM: &str = "
        r6 = 6
        *(u64 *)(r10 - 8) = 0
        r1 = 10
        r2 = func[sum] ll
        r3 = r10
        r3 += -8
        r4 = 0
        call 181
        r0 *= 1000
        r1 = *(u64 *)(r10 - 8)
        r0 += r1
        r0 *= r6
        exit
   sum: r6 = r1
        *(u64 *)(r10 - 8) = 77
        r3 = *(u64 *)(r2 + 0)
        r3 += r6
        *(u64 *)(r2 + 0) = r3
        r0 = 0
        exit";

#[test]
fn helpers_call_functions_of_the_program_in_separate_frames() {
    assert_eq!(runs(&program(SUM, &[0, 14])), (10 * 1000 + 45) * 6);
    let stops = SUM.replace(
        "        r0 = 0\n        exit",
        "        r0 = 0\n        if r6 < 3 goto +1\n        r0 = 1\n        exit",
    );
    assert_eq!(runs(&program(&stops, &[0, 14])), (4 * 1000 + 6) * 6);
}

#[test]
fn callbacks_call_functions_and_helpers_that_call_back() {
    let text = "
        *(u64 *)(r10 - 8) = 0
        r1 = 5
        r2 = func[outer] ll
        r3 = r10
        r3 += -8
        r4 = 0
        call 181
        r0 = *(u64 *)(r10 - 8)
        exit
 outer: r3 = r2
        r1 = 4
        r2 = func[inner] ll
        r4 = 0
        call 181
        r0 = 0
        exit
 inner: r1 = r2
        call add
        r0 = 0
        exit
   add: r2 = *(u64 *)(r1 + 0)
        r2 += 1
        *(u64 *)(r1 + 0) = r2
        exit";
    // The starts of the functions, starts of other instructions, and their second slots.
    assert_eq!(runs(&program(text, &[0, 10, 18, 22])), 20);
}

#[test]
fn a_violation_in_a_callback_ends_the_whole_run() {
    let wrong = SUM.replace("r3 = *(u64 *)(r2 + 0)", "r3 = *(u64 *)(r10 - 16)");
    let violation = checked(&program(&wrong, &[0, 14])).unwrap_err();
    assert_eq!(violation.slot, 16);
    assert!(matches!(violation.reason, Reason::UninitialisedStack(_)), "{violation}");
    let more = SUM.replace("r3 = *(u64 *)(r2 + 0)", "r3 = r4");
    assert_eq!(
        checked(&program(&more, &[0, 14])).unwrap_err(),
        Violation { slot: 16, reason: Reason::UninitialisedRegister(R::R4) }
    );
    let none = SUM.replace("        r0 = 0\n        exit", "        exit");
    assert_eq!(
        checked(&program(&none, &[0, 14])).unwrap_err(),
        Violation { slot: 19, reason: Reason::UninitialisedRegister(R::R0) }
    );
    let number = SUM.replace("r2 = func[sum] ll", "r2 = 3 ll");
    assert_eq!(
        checked(&program(&number, &[0, 14])).unwrap_err(),
        Violation { slot: 8, reason: Reason::Argument { number: 2, value: 3 } }
    );
}

#[test]
fn the_address_of_no_function_is_refused() {
    let insns = [Insn::LoadImm64 { dst: R::R0, value: Imm64::Function(1) }, Insn::LoadImm64Tail, Insn::Exit];
    assert!(matches!(
        Code::new(parts(&insns), &Linkage::default()).unwrap_err(),
        crate::Error::Malformed { slot: 0, .. }
    ));
}

#[test]
fn each_call_of_a_function_has_its_may_goto_budget() {
    let text = "
        r0 = 0
  next: may_goto out
        r0 += 1
        goto next
   out: exit";
    assert_eq!(run(&program(text, &[0]), &Linkage::default(), 0, 0), MAX_LOOPS.into());
    // Two of them share one budget, and each call has its own.
    let text = "
        call f
        r6 = r0
        call f
        r0 += r6
        exit
     f: r0 = 0
  next: may_goto out
        r0 += 1
        may_goto out
        r0 += 1
        goto next
   out: may_goto end
        r0 = 0
   end: exit";
    assert_eq!(run(&program(text, &[0, 5]), &Linkage::default(), 0, 0), 2 * u64::from(MAX_LOOPS));
    let one = [Insn::MayGoto { offset: 1 }, mov_imm(R::R0, 5), Insn::Exit];
    assert_eq!(result(&one, 0, 0), 5, "it goes on at first");
}
