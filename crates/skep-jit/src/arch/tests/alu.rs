//! Compares arithmetic with its definition.

use skep_isa::{AluOp, ByteOrder, Insn, Operand, Reg, Size, Width};

use super::Program;
use crate::model::{self, EDGES};

const WIDTHS: [Width; 2] = [Width::W32, Width::W64];

fn mov_imm(dst: Reg, imm: i32) -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Imm(imm) }
}

/// A program that loads `dst` and `src`, marks all other registers, runs the instructions, and returns `dst` after
/// checking that the other registers are unchanged.
fn around(dst: Reg, src: Reg, middle: &[Insn]) -> Program {
    // r1 points to the numbers; a register that is live until the end cannot be an operand.
    let others: Vec<Reg> =
        Reg::ALL.into_iter().filter(|&reg| reg != dst && reg != src && reg != Reg::R10).collect();
    let load = |dst, offset| Insn::Load { size: Size::B8, signed: false, dst, base: Reg::R10, offset };
    let store = |src, offset| Insn::Store { size: Size::B8, base: Reg::R10, offset, src: Operand::Reg(src) };
    let mut insns = vec![store(Reg::R1, -8), store(Reg::R2, -16)];
    insns.extend(others.iter().map(|&reg| mov_imm(reg, 1000 + i32::from(reg.number()))));
    insns.push(load(dst, -8));
    if src != dst {
        insns.push(load(src, -16));
    }
    insns.extend(middle);
    insns.push(store(dst, -8));
    if src != dst {
        insns.push(store(src, -24));
    } else {
        insns.push(store(Reg::R10, -24));
    }
    insns.extend(others.iter().enumerate().map(|(i, &reg)| store(reg, -32 - 8 * i as i16)));
    // Adds all up: a changed register almost certainly changes the result.
    insns.push(load(Reg::R0, -8));
    insns.push(mov_imm(Reg::R3, 0));
    for (i, &reg) in others.iter().enumerate() {
        insns.push(load(Reg::R2, -32 - 8 * i as i16));
        let expected = Operand::Imm(1000 + i32::from(reg.number()));
        insns.push(Insn::JumpIf {
            width: Width::W64,
            cond: skep_isa::Cond::Eq,
            dst: Reg::R2,
            src: expected,
            offset: 1,
        });
        insns.push(mov_imm(Reg::R3, 1));
    }
    if src != dst {
        insns.push(load(Reg::R2, -16));
        insns.push(load(Reg::R4, -24));
        insns.push(Insn::JumpIf {
            width: Width::W64,
            cond: skep_isa::Cond::Eq,
            dst: Reg::R2,
            src: Operand::Reg(Reg::R4),
            offset: 1,
        });
        insns.push(mov_imm(Reg::R3, 1));
    }
    insns.push(Insn::JumpIf {
        width: Width::W64,
        cond: skep_isa::Cond::Eq,
        dst: Reg::R3,
        src: Operand::Imm(0),
        offset: 1,
    });
    insns.push(mov_imm(Reg::R0, 0x0bad_0bad));
    insns.push(Insn::Exit);
    Program::of(insns)
}

fn writable() -> impl Iterator<Item = Reg> {
    Reg::ALL.into_iter().filter(|&reg| reg != Reg::R10)
}

#[test]
fn every_operation_on_every_register_pair_changes_only_its_result() {
    let (a, b) = (0xfedc_ba98_7654_3210, 0x1_0000_0007);
    for op in AluOp::ALL {
        for width in WIDTHS {
            for dst in writable() {
                for src in writable() {
                    let b = if src == dst { a } else { b };
                    let insn = Insn::Alu { width, op, dst, src: Operand::Reg(src) };
                    let got = around(dst, src, &[insn]).run(a, b);
                    assert_eq!(got, model::alu(op, width, a, b), "{insn}");
                }
            }
        }
    }
}

#[test]
fn every_operation_is_right_at_all_edge_values() {
    // The test above covers all registers; these are one of each kind.
    for (dst, src) in [(Reg::R0, Reg::R3), (Reg::R3, Reg::R0), (Reg::R1, Reg::R2), (Reg::R7, Reg::R4)] {
        for op in AluOp::ALL {
            for width in WIDTHS {
                let insn = Insn::Alu { width, op, dst, src: Operand::Reg(src) };
                let program = around(dst, src, &[insn]);
                let compiled: Vec<_> = program.variants().collect();
                for a in EDGES {
                    for b in EDGES {
                        for compiled in &compiled {
                            // SAFETY: the program takes two numbers.
                            let got = unsafe { compiled.entry().call(a, b, std::ptr::null_mut()) };
                            assert_eq!(got, model::alu(op, width, a, b), "{a:#x} {b:#x} {insn}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_operation_with_a_constant_is_right_at_all_edge_values() {
    let constants =
        EDGES.map(|n| n as i32).into_iter().chain([-1, -2, -3, -7, -127, -128, -129, 127, 128, 129]).chain([
            5,
            6,
            9,
            10,
            11,
            12,
            14,
            21,
            28,
            56,
            60,
            86_400,
            100,
            255,
            256,
            641,
            1000,
            4096,
            65535,
            65536,
            1_000_000_007,
            i32::MIN,
            i32::MAX,
        ]);
    for imm in constants {
        for op in AluOp::ALL {
            for width in WIDTHS {
                for dst in [Reg::R0, Reg::R1, Reg::R3, Reg::R4, Reg::R7] {
                    let insn = Insn::Alu { width, op, dst, src: Operand::Imm(imm) };
                    for compiled in around(dst, dst, &[insn]).variants().take(2) {
                        for a in EDGES {
                            // SAFETY: the program takes two numbers.
                            let got = unsafe { compiled.entry().call(a, 0, std::ptr::null_mut()) };
                            let expected = model::alu(op, width, a, i64::from(imm) as u64);
                            assert_eq!(got, expected, "{a:#x} {insn}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn negation_wraps() {
    for dst in writable() {
        for width in WIDTHS {
            let program = around(dst, dst, &[Insn::Neg { width, dst }]);
            for a in EDGES {
                assert_eq!(program.run(a, 0), model::alu(AluOp::Sub, width, 0, a), "-{a:#x}");
            }
        }
    }
}

#[test]
fn sign_extending_moves_extend_to_their_width_only() {
    for (width, from) in [
        (Width::W32, Size::B1),
        (Width::W32, Size::B2),
        (Width::W64, Size::B1),
        (Width::W64, Size::B2),
        (Width::W64, Size::B4),
    ] {
        for (dst, src) in [(Reg::R0, Reg::R1), (Reg::R1, Reg::R2), (Reg::R2, Reg::R7), (Reg::R8, Reg::R8)] {
            let program = around(dst, src, &[Insn::MovSx { width, from, dst, src }]);
            for a in EDGES {
                let extended = match from {
                    Size::B1 => i64::from(a as i8),
                    Size::B2 => i64::from(a as i16),
                    _ => i64::from(a as i32),
                } as u64;
                let expected = if width == Width::W32 { extended & 0xffff_ffff } else { extended };
                assert_eq!(program.run(a, a), expected, "{a:#x} from {from:?} to {width:?}");
            }
        }
    }
}

#[test]
fn byte_swaps_swap_their_size_and_clear_the_rest() {
    for dst in writable() {
        for size in [Size::B2, Size::B4, Size::B8] {
            for order in [ByteOrder::ToLittle, ByteOrder::ToBig, ByteOrder::Swap] {
                let program = around(dst, dst, &[Insn::Endian { order, size, dst }]);
                for a in [0x0102_0304_0506_0708u64, 0xfffe_fdfc_fbfa_f9f8] {
                    let bits = size.bits();
                    let low = a << (64 - bits) >> (64 - bits);
                    let swapped = low.swap_bytes() >> (64 - bits);
                    let expected = if order == ByteOrder::ToLittle { low } else { swapped };
                    assert_eq!(program.run(a, 0), expected, "{order:?} {size:?} {dst}");
                }
            }
        }
    }
}

#[test]
fn swapping_two_zero_extended_bytes_saves_an_instruction() {
    let known = "r0 = *(u16 *)(r1 + 0)\nr0 = be16 r0\nexit";
    let number = 0xaabb_ccdd_1122_3344u64;
    assert_eq!(Program::new(known).run(&raw const number as u64, 0), 0x4433);
}

#[test]
fn fused_sequences_equal_their_single_instructions() {
    type Meaning = fn(u64, u64) -> u64;
    let pairs: [(&str, Meaning); 33] = [
        ("r3 = r1\nr3 <<= 2\nr0 = r3\nr0 += r3", |a, _| a.wrapping_mul(8)),
        ("r3 = r1\nr3 <<= 2\nr0 = r2\nr0 += r3", |a, b| a.wrapping_mul(4).wrapping_add(b)),
        ("r3 = r1\nr3 <<= 3\nr0 = r2\nr0 += r3\nr0 += r3", |a, b| a.wrapping_mul(16).wrapping_add(b)),
        ("r0 = r1\nr0 += 1", |a, _| a.wrapping_add(1)),
        ("r0 = r1\nr0 += -129", |a, _| a.wrapping_sub(129)),
        ("r0 = r1\nr0 -= 128", |a, _| a.wrapping_sub(128)),
        ("r0 = r1\nr0 -= -2147483648", |a, _| a.wrapping_add(1 << 31)),
        ("r0 = r1\nr0 += r2", u64::wrapping_add),
        ("r0 = r1\nr0 += r0", |a, _| a.wrapping_mul(2)),
        ("w0 = w1\nw0 += w2", |a, b| u64::from((a as u32).wrapping_add(b as u32))),
        ("w0 = w1\nr0 += r2", |a, b| u64::from(a as u32).wrapping_add(b)),
        ("w0 = w1\nr0 += 7", |a, _| u64::from(a as u32).wrapping_add(7)),
        ("r0 = r1\nw0 += 7", |a, _| u64::from((a as u32).wrapping_add(7))),
        ("w1 = w1\nw0 = w1\nr0 += 7", |a, _| u64::from(a as u32).wrapping_add(7)),
        ("r0 = r1\nr0 *= 3", |a, _| a.wrapping_mul(3)),
        ("r0 = r1\nr0 *= 9", |a, _| a.wrapping_mul(9)),
        ("r0 = r1\nr0 *= 2", |a, _| a.wrapping_mul(2)),
        ("r0 = r1\nr0 *= 1000", |a, _| a.wrapping_mul(1000)),
        ("r0 = r1\nr0 *= 16", |a, _| a.wrapping_mul(16)),
        ("r0 = r1\nr0 <<= 1", |a, _| a << 1),
        ("r0 = r1\nr0 &= 255", |a, _| a & 0xff),
        ("r0 = r1\nr0 &= 65535", |a, _| a & 0xffff),
        ("r1 &= 255\nr0 = r1\nr0 &= 65535", |a, _| a & 0xff),
        ("r0 = r1\nr0 <<= 32\nr0 >>= 32", |a, _| a & 0xffff_ffff),
        ("r0 = r1\nr0 <<= 32\nr0 s>>= 32", |a, _| i64::from(a as i32) as u64),
        ("r0 = r1\nr0 <<= 48\nr0 >>= 48", |a, _| a & 0xffff),
        ("r0 = r1\nr0 <<= 56\nr0 s>>= 56", |a, _| i64::from(a as i8) as u64),
        ("w0 = w1\nw0 <<= 24\nw0 s>>= 24", |a, _| u64::from(i32::from(a as i8) as u32)),
        ("w0 = w1\nw0 <<= 16\nw0 >>= 16", |a, _| a & 0xffff),
        ("r0 = r1\nr0 <<= 8\nr0 >>= 8", |a, _| a << 8 >> 8),
        ("r7 = r1\nr0 = r7\nr0 += r7", |a, _| a.wrapping_mul(2)),
        ("r7 = r1\nr8 = r2\nr0 = r7\nr0 += r8", u64::wrapping_add),
        ("r7 = r1\nr0 = r7\nr0 += 4", |a, _| a.wrapping_add(4)),
    ];
    for (text, meaning) in pairs {
        let program = Program::new(&format!("{text}\nexit"));
        for a in EDGES {
            for b in [0, 1, 0xffff_ffff, u64::MAX] {
                assert_eq!(program.run(a, b), meaning(a, b), "{a:#x} {b:#x}\n{text}");
            }
        }
    }
}
