//! RFC 9669 section 4.3.2 and 4.3.3: helpers, local calls and their frames.

use super::*;
use skep_abi::HelperFn;
use skep_isa::{CallTarget, Size};

pub(crate) fn call(offset: i32) -> Insn {
    Insn::Call { target: CallTarget::Local(offset) }
}

pub(crate) fn helper(id: u32) -> Insn {
    Insn::Call { target: CallTarget::Helper(id) }
}

pub(crate) fn store(base: Reg, offset: i16, src: Reg) -> Insn {
    Insn::Store { size: Size::B8, base, offset, src: Operand::Reg(src) }
}

pub(crate) fn load(dst: Reg, base: Reg, offset: i16) -> Insn {
    Insn::Load { size: Size::B8, signed: false, dst, base, offset }
}

/// Combines its arguments into decimal digits, and counts calls in the environment's program field.
unsafe extern "C" fn digits(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the interpreter passes the environment of the run.
    unsafe { (*env).program += 1 };
    a * 10_000 + b * 1_000 + c * 100 + d * 10 + e
}

pub(crate) fn linkage(helpers: &[(u32, HelperFn)]) -> Linkage {
    Linkage { maps: Vec::new(), helpers: helpers.into(), ..Linkage::default() }
}

#[test]
fn helpers_get_five_arguments_and_the_environment() {
    let mut program: Vec<Insn> = (1..=5).map(|i| mov_imm(R::ALL[i], i as i32)).collect();
    program.extend([helper(77), Insn::Exit]);
    let code = Code::new(parts(&program), &linkage(&[(77, digits)])).unwrap();
    let mut env = RunEnv::default();
    // SAFETY: the program touches no memory.
    let result = unsafe { exec::run(&code, 0, 0, &mut env, &mut exec::Unwatched) };
    assert_eq!((result, env.program), (Ok(12345), 1));
}

#[test]
fn helpers_keep_r6_to_r10() {
    let mut program: Vec<Insn> = (6..=9).map(|i| mov_imm(R::ALL[i], i as i32)).collect();
    program.extend([mov(R::R1, R::R10), store(R::R10, -8, R::R6), helper(77)]);
    program.push(load(R::R0, R::R10, -8));
    program.extend((6..=9).map(|i| alu(Width::W64, AluOp::Add, R::R0, Operand::Reg(R::ALL[i]))));
    program.push(Insn::Exit);
    let linkage = linkage(&[(77, digits)]);
    assert_eq!(run(&parts(&program), &linkage, 0, 0), 36);
}

#[test]
fn local_calls_pass_five_arguments_and_keep_the_callers_registers_and_frame() {
    let mut main: Vec<Insn> = (1..=9).map(|i| mov_imm(R::ALL[i], i as i32)).collect();
    main.push(store(R::R10, -512, R::R9));
    let call_at = main.len();
    main.push(call(0));
    main.extend((6..=9).map(|i| alu(Width::W64, AluOp::Add, R::R0, Operand::Reg(R::ALL[i]))));
    main.push(load(R::R1, R::R10, -512));
    main.push(alu(Width::W64, AluOp::Add, R::R0, Operand::Reg(R::R1)));
    main.push(Insn::Exit);
    let start = main.len();
    main[call_at] = call((start - call_at - 1) as i32);
    // The function sums its arguments and overwrites r6 to r9 and its own frame.
    let mut callee = vec![mov_imm(R::R0, 0)];
    callee.extend((1..=5).map(|i| alu(Width::W64, AluOp::Add, R::R0, Operand::Reg(R::ALL[i]))));
    callee.extend((6..=9).map(|i| mov_imm(R::ALL[i], -1)));
    callee.extend((1..=64).map(|i| store(R::R10, -8 * i, R::R6)));
    callee.push(Insn::Exit);
    let mut parts = parts(&[main, callee].concat());
    parts.functions =
        vec![function("main", 0, start as u32), function("callee", start as u32, parts.insns.len() as u32)];
    assert_eq!(run(&parts, &Linkage::default(), 0, 0), 15 + 30 + 9);
}

/// `f(n)`: fills 512 bytes of its frame with its depth, calls the next function with a pointer to its frame, and
/// sums what it finds in its caller's frame, in its own afterwards, and the callee's result.
fn nested(depth: u32) -> Parts {
    let mut insns = Vec::new();
    let mut functions = Vec::new();
    for level in 0..depth {
        let start = insns.len() as u32;
        let last = level + 1 == depth;
        insns.push(mov_imm(R::R6, level as i32 + 1));
        insns.push(mov_imm(R::R7, 0));
        if level > 0 {
            insns.push(load(R::R7, R::R1, 0));
        }
        insns.extend((1..=64).map(|i| store(R::R10, -8 * i, R::R6)));
        insns.push(mov_imm(R::R0, 0));
        if !last {
            insns.push(mov(R::R1, R::R10));
            insns.push(alu(Width::W64, AluOp::Add, R::R1, Operand::Imm(-512)));
            // Code after the call in every function: 64 loads with an addition each, an addition, exit.
            insns.push(call(64 * 2 + 2));
        }
        for i in 1..=64 {
            insns.push(load(R::R1, R::R10, -8 * i));
            insns.push(alu(Width::W64, AluOp::Add, R::R0, Operand::Reg(R::R1)));
        }
        insns.push(alu(Width::W64, AluOp::Add, R::R0, Operand::Reg(R::R7)));
        insns.push(Insn::Exit);
        functions.push(function("f", start, insns.len() as u32));
    }
    Parts { functions, ..parts(&insns) }
}

#[test]
fn eight_nested_functions_have_512_bytes_each_and_reach_their_callers_frame() {
    for depth in 1..=8 {
        let own: u64 = (1..=depth).map(|level| 64 * level).sum();
        let callers: u64 = (1..depth).sum();
        assert_eq!(run(&nested(depth as u32), &Linkage::default(), 0, 0), own + callers, "{depth}");
    }
}

#[test]
fn nine_nested_functions_are_refused() {
    let error = Code::new(nested(9), &Linkage::default()).unwrap_err();
    assert_eq!(error.to_string(), "instruction 69 is malformed: the call needs more than 8 frames");
}

#[test]
fn recursion_is_refused() {
    let program = [mov_imm(R::R0, 0), call(-2), Insn::Exit];
    assert!(matches!(
        Code::new(parts(&program), &Linkage::default()),
        Err(crate::Error::Malformed { slot: 1, .. })
    ));
}
