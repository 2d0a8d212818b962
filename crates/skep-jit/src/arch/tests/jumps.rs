//! Jumps: every condition, every distance, and the patterns that compilers emit.

use skep_isa::{Cond, Insn, Operand, Reg, Width};

use super::{Program, run};
use crate::Compiled;
use crate::arch::{Native, testing};
use crate::model::{self, EDGES};
use crate::port::Home;

/// `if dst cond src` as 1 or 0.
fn test_of(width: Width, cond: Cond, dst: Reg, src: Operand) -> Program {
    let mov =
        |dst, imm| Insn::Alu { width: Width::W64, op: skep_isa::AluOp::Mov, dst, src: Operand::Imm(imm) };
    let copy =
        |dst, src| Insn::Alu { width: Width::W64, op: skep_isa::AluOp::Mov, dst, src: Operand::Reg(src) };
    let mut insns = vec![copy(Reg::R5, Reg::R2), copy(dst, Reg::R1)];
    if let Operand::Reg(src) = src {
        insns.push(copy(src, Reg::R5));
    }
    insns.extend([
        Insn::JumpIf { width, cond, dst, src, offset: 2 },
        mov(Reg::R0, 0),
        Insn::Exit,
        mov(Reg::R0, 1),
        Insn::Exit,
    ]);
    Program::of(insns)
}

#[test]
fn every_condition_holds_as_defined() {
    for (dst, src) in [(Reg::R1, Reg::R2), (Reg::R0, Reg::R7), (Reg::R8, Reg::R3), (Reg::R6, Reg::R6)] {
        for cond in Cond::ALL {
            for width in [Width::W32, Width::W64] {
                let compiled = test_of(width, cond, dst, Operand::Reg(src)).compile();
                for a in EDGES {
                    for b in EDGES {
                        // SAFETY: the program takes two numbers.
                        let got = unsafe { compiled.entry().call(a, b, std::ptr::null_mut()) };
                        let a = if dst == src { b } else { a };
                        let expected = model::holds(cond, width, a, b);
                        assert_eq!(got, u64::from(expected), "{a:#x} {cond:?} {b:#x} {width:?} {dst} {src}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_condition_with_a_constant_holds_as_defined() {
    for imm in
        EDGES.map(|n| n as i32).into_iter().chain([-1, -128, -129, 127, 128, 255, 256, i32::MIN, i32::MAX])
    {
        for dst in [Reg::R0, Reg::R1, Reg::R2, Reg::R5, Reg::R6, Reg::R9] {
            for cond in Cond::ALL {
                for width in [Width::W32, Width::W64] {
                    let compiled = test_of(width, cond, dst, Operand::Imm(imm)).compile();
                    for a in EDGES {
                        // SAFETY: the program takes two numbers.
                        let got = unsafe { compiled.entry().call(a, 0, std::ptr::null_mut()) };
                        let expected = model::holds(cond, width, a, i64::from(imm) as u64);
                        assert_eq!(got, u64::from(expected), "{a:#x} {cond:?} {imm:#x} {width:?} {dst}");
                    }
                }
            }
        }
    }
}

/// A loop of `rounds` iterations whose body has that many four-byte instructions, with a jump over them.
fn with_body(insns: usize) -> String {
    let body = "w3 += 1000\n".repeat(insns);
    format!(
        "w0 = 0
         w3 = 0
    next:
         w0 += 1
         if w0 == 2 goto over
         {body}
    over:
         if w0 < 3 goto next
         r0 = r3
         exit"
    )
}

#[test]
fn jumps_of_every_length_arrive() {
    // Every length around 127 bytes in both directions at once, and some far ones.
    for insns in (0..40).chain([100, 1000, 5000]) {
        assert_eq!(run(&with_body(insns)), 2 * 1000 * insns as u64, "{insns} instructions between");
    }
}

#[test]
fn branches_that_lengthen_each_other_become_long_enough() {
    // Each jump crosses the next ones; all are at the edge of the short form, so that one that becomes long
    // pushes the others over it.
    for padding in 0..12 {
        let mut text = String::from("r0 = 0\n");
        let count = 40;
        for i in 0..count {
            text += &format!("if r1 == {i} goto to{i}\n");
        }
        text += &"r0 += 1\n".repeat(padding);
        for i in 0..count {
            text += &format!("to{i}: r0 += {}\n", 1 << (i % 8));
        }
        text += "exit\n";
        let program = Program::new(&text);
        for i in 0..=count {
            let steps: u64 = (i % count..count).map(|i| 1 << (i % 8)).sum();
            let expected = if i == count { steps + padding as u64 } else { steps };
            assert_eq!(program.run(i, 0), expected, "padding {padding}, jump {i}");
        }
    }
}

#[test]
fn conditional_jumps_beyond_one_instruction_s_range_arrive() {
    // Over 32 KiB of code and over 1 MiB, in both directions: branches on flags, on zero and on one bit.
    for (insn, count) in [("r3 += 1000", 9_000), ("r3 %= 7", 32_000)] {
        let body = format!("{insn}\n").repeat(count);
        for (test, taken, other) in
            [("r1 == 0", 0, 5), ("r1 & 4", 4, 3), ("r1 s< 0", u64::MAX, 1), ("r1 > 100", 101, 100)]
        {
            let forward =
                Program::new(&format!("r0 = 1\nr3 = 0\nif {test} goto out\nr0 = 2\n{body}out: exit"))
                    .compile();
            let text = format!(
                "r0 = 0\nr3 = 0\nnext: r0 += 1\nif r0 == 2 goto out\n{body}if {test} goto next\nout: exit"
            );
            let backward = Program::new(&text).compile();
            for (r1, results) in [(taken, (1, 2)), (other, (2, 1))] {
                // SAFETY: the programs take a number.
                let run = |program: &Compiled| unsafe { program.entry().call(r1, 0, std::ptr::null_mut()) };
                assert_eq!((run(&forward), run(&backward)), results, "if {test} over {count} times {insn}");
            }
        }
    }
}

#[test]
fn jumps_to_the_next_instruction_need_no_code() {
    assert_eq!(run("r0 = 1\ngoto +0\ngoto +0\nif r0 == 1 goto +0\nif r0 == 2 goto +0\nexit"), 1);
    let store = "*(u64 *)(r10 - 8) = r1";
    let plain = Program::new(&format!("{store}\nr0 = 1\nexit")).compile().code_bytes();
    let jumps = Program::new(&format!("{store}\ngoto +0\nif r1 == 1 goto +0\nr0 = 1\nexit"));
    assert_eq!(jumps.compile().code_bytes(), plain);
}

#[test]
fn a_jump_over_a_jump_is_one_jump() {
    let text = "r0 = 1\nif r1 > r2 goto +1\ngoto out\nr0 = 2\nout: exit";
    let program = Program::new(text);
    for (a, b) in [(1, 2), (2, 1), (3, 3)] {
        assert_eq!(program.run(a, b), if a > b { 2 } else { 1 });
    }
    let one = Program::new("r0 = 1\nif r1 <= r2 goto out\nr0 = 2\nout: exit");
    assert_eq!(program.compile().code_bytes(), one.compile().code_bytes());
}

#[test]
fn a_jump_over_a_branch_target_stays() {
    let text = "r0 = 1
                if r1 == 7 goto to_jump
                if r1 > r2 goto +1
        to_jump: goto out
                r0 = 2
           out: exit";
    let program = Program::new(text);
    assert_eq!(program.run(7, 0), 1);
    assert_eq!(program.run(8, 0), 2);
    assert_eq!(program.run(0, 8), 1);
}

#[test]
fn instructions_are_not_fused_across_a_branch_target() {
    let text = "r0 = 100
                r3 = r1
                if r2 == 1 goto add
                r3 = r0
           add: r3 += 5
                r0 = r3
                exit";
    let program = Program::new(text);
    assert_eq!(program.run(1, 1), 6);
    assert_eq!(program.run(1, 0), 105);
}

#[test]
fn facts_about_registers_end_at_a_branch_target() {
    let text = "r0 = r1
                if r2 == 1 goto cut
                w0 = w0
           cut: w0 = w0
                exit";
    let program = Program::new(text);
    assert_eq!(program.run(u64::MAX, 1), u64::from(u32::MAX));
    assert_eq!(program.run(u64::MAX, 0), u64::from(u32::MAX));
}

#[test]
fn loops_may_begin_at_a_functions_first_instruction() {
    // The frame is built once, not in each iteration.
    let text = "top: r1 += -1
                *(u64 *)(r10 - 8) = r1
                r6 = r1
                if r1 != 0 goto top
                r0 = r6
                exit";
    assert_eq!(Program::new(text).run(1000, 0), 0);
    let called = "r1 = 5
                  r2 = 0
                  call sum
                  exit
             sum: r2 += r1
                  r1 += -1
                  if r1 != 0 goto sum
                  r0 = r2
                  exit";
    assert_eq!(run(called), 15);
}

#[test]
fn long_jumps_are_jumps() {
    assert_eq!(run("r0 = 1\ngotol +1\nr0 = 2\nexit"), 1);
}

#[test]
fn unreached_instructions_have_no_code_and_trap_if_entered() {
    let mut program = Program::new("r0 = 1\nif r1 == 0 goto +2\nr0 = 0x123456789abcdef ll\nexit");
    let whole = program.compile().code_bytes();
    program.facts[2..4].iter_mut().for_each(|fact| fact.reached = false);
    let compiled = program.compile();
    assert!(compiled.code_bytes() < whole);
    // SAFETY: with 0 the path through the trap is not taken.
    assert_eq!(unsafe { compiled.entry().call(0, 0, std::ptr::null_mut()) }, 1);
    let (code, _) = program.code::<Native>(&Home::anywhere(), 0x1000);
    assert!(code.windows(testing::TRAP.len()).any(|bytes| bytes == testing::TRAP), "{code:x?}");
}

#[test]
fn a_jump_over_other_instructions_stays() {
    let text = "r0 = 1
                if r1 > r2 goto far
                goto out
                r0 = 2
           far: r0 = 3
           out: exit";
    let program = Program::new(text);
    assert_eq!([program.run(1, 2), program.run(2, 1)], [1, 3]);
}

#[test]
fn a_zero_test_reads_the_register_not_an_older_result() {
    // The result before the test has another register or width, or was overwritten since.
    for (text, meaning) in [
        ("r3 += r2\nr3 = r1", (|a, _| a == 0) as fn(u64, u64) -> bool),
        ("r3 += r2\nr3 = *(u64 *)(r10 - 8)", |a, _| a == 0),
        ("r3 = r1\nr4 = r1\nr4 -= r2", |a, _| a == 0),
        ("r3 = r1\nr3 -= r2", |a, b| a == b),
        ("r3 = r1\nr3 -= r2\nr5 = r3\n*(u64 *)(r10 - 16) = r5", |a, b| a == b),
        ("r3 = r1\nw3 -= w2", |a, b| a as u32 == b as u32),
        ("r3 = r1\nr3 &= r2", |a, b| a & b == 0),
        ("r3 = r1\nr3 -= r2\nr3 = 5", |_, _| false),
        ("r3 = r1\nr3 ^= -1", |a, _| a == u64::MAX),
        ("r3 = r1\nr3 >>= 8", |a, _| a >> 8 == 0),
        ("r3 = r1\nr3 *= 3", |a, _| a.wrapping_mul(3) == 0),
        ("r3 = r1\nr3 -= r2\nr3 = bswap64 r3", |a, b| a == b),
    ] {
        for (test, wide) in [("if r3 == 0", true), ("if r3 != 0", true), ("if w3 == 0", false)] {
            let program = Program::new(&format!(
                "*(u64 *)(r10 - 8) = r1\nr3 = r1\n{text}\n{test} goto yes\nr0 = 0\nexit\nyes: r0 = 1\nexit"
            ))
            .ready();
            let value = format!("*(u64 *)(r10 - 8) = r1\nr3 = r1\n{text}\nr0 = r3\nexit");
            let value = Program::new(&value).ready();
            for a in EDGES {
                for b in EDGES {
                    let number = value.run(a, b);
                    assert_eq!(number == 0, meaning(a, b) || text.contains("w3") && number == 0, "{text}");
                    let zero = if wide { number == 0 } else { number as u32 == 0 };
                    let expected = zero != test.contains("!=");
                    assert_eq!(program.run(a, b), u64::from(expected), "{a:#x} {b:#x}\n{text}\n{test}");
                }
            }
        }
    }
}

#[test]
fn a_zero_test_that_is_a_branch_target_stays() {
    let text = "if r2 == 1 goto test
                r1 -= 5
          test: if r1 == 0 goto yes
                r0 = 0
                exit
           yes: r0 = 1
                exit";
    let program = Program::new(text);
    // The flags of the first comparison say equal where r1 is not zero.
    assert_eq!([program.run(5, 1), program.run(0, 1), program.run(5, 0), program.run(0, 0)], [0, 1, 1, 0]);
}

#[test]
fn liveness_that_takes_many_iterations_is_right() {
    // Blocks run in reverse order; the first one executed computes a value that the last one uses.
    let blocks = 40;
    let mut text = format!("r6 = r1\nr7 = 3\ngoto block{blocks}\nblock0: r0 = r6\nr0 += r7\nexit\n");
    for block in 1..=blocks {
        text +=
            &format!("block{block}: r8 = {block}\nif r8 == 0 goto block{block}\ngoto block{}\n", block - 1);
    }
    assert_eq!(Program::new(&text).run(39, 0), 42);
}

#[test]
fn tests_of_the_lower_half_prove_nothing_about_the_upper() {
    let number = 1u64 << 40;
    for (first, second, expected) in [
        ("if w1 s< 0 goto out", "if r1 == 0 goto out", 1),
        ("if w1 != 0 goto out", "if r1 == 0 goto out", 1),
        ("if w1 s> 0 goto out", "if r1 != 0 goto out", 2),
        ("if r1 == 0 goto out", "if w1 == 0 goto out", 2),
        ("if r1 s< 0 goto out", "if w1 != 0 goto out", 1),
    ] {
        let text = format!("r0 = 2\n{first}\n{second}\nr0 = 1\nout: exit");
        assert_eq!(Program::new(&text).run(number, 0), expected, "{text}");
    }
}
