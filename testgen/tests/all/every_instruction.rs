//! Compiled code does what the interpreter does, for every instruction: each operation in each width, with
//! every pair of registers, with immediates and operands at the edges.
//!
//! All registers hold numbers when the instruction under test runs, and all of them are compared afterwards, so that
//! a clobbered register shows:
//!
//! ```text
//!   r10 - 8           the buffer's address, saved during the test
//!   r10 - 88 .. - 16  r0 to r9 afterwards
//!   buffer  0 .. 80   r0 to r9 before and afterwards
//!          80 .. 96   memory for loads, stores and atomics, through an address in one of the registers
//! ```

use crate::common::{Lab, fail, verified};
use skep_isa::{AluOp, AtomicOp, ByteOrder, Cond, Imm64, Insn, Operand, Reg, Size, Width};
use skep_testgen::{EDGES, Flavour, Host, TestProgram};

/// Bytes of the buffer.
const LEN: u32 = 96;
/// Offset in it of the memory under test.
const MEMORY: i16 = 80;
const WIDTHS: [Width; 2] = [Width::W32, Width::W64];

/// The numbers that general-purpose registers may hold: all but `r10`.
fn general() -> &'static [Reg] {
    &Reg::ALL[..10]
}

/// A program that loads `r0` to `r9`, executes `tested` and stores them again. `base`, if given, holds the
/// address of the memory under test instead of a number, and a number again afterwards.
fn around(tested: &[Insn], base: Option<Reg>) -> TestProgram {
    let load = |dst, base, offset| Insn::Load { size: Size::B8, signed: false, dst, base, offset };
    let store = |base, offset, src| Insn::Store { size: Size::B8, base, offset, src: Operand::Reg(src) };
    let word = |reg: Reg| i16::from(reg.number()) * 8;

    let mut insns = vec![store(Reg::R10, -8, Reg::R1)];
    // Registers in descending order except r1, which holds the buffer's address until its turn.
    insns.extend(
        general().iter().rev().filter(|reg| **reg != Reg::R1).map(|reg| load(*reg, Reg::R1, word(*reg))),
    );
    insns.push(load(Reg::R1, Reg::R1, word(Reg::R1)));
    if let Some(base) = base {
        insns.push(load(base, Reg::R10, -8));
    }
    insns.extend_from_slice(tested);
    if let Some(base) = base {
        // A load or a fetch may have replaced the address by a number.
        insns.push(Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: base, src: Operand::Imm(0) });
    }
    insns.extend(general().iter().map(|reg| store(Reg::R10, -16 - word(*reg), *reg)));
    insns.push(load(Reg::R1, Reg::R10, -8));
    for reg in general() {
        insns.push(load(Reg::R0, Reg::R10, -16 - word(*reg)));
        insns.push(store(Reg::R1, word(*reg), Reg::R0));
    }
    insns.push(Insn::Exit);
    TestProgram { insns, functions: vec![0], flavour: Flavour::Buffer { len: LEN } }
}

/// The number of runs over random edge values that covers every pair in `dst` and `src`.
const INPUTS: u64 = 24;

/// Under an emulator, one program in this many runs: a prime, so that every register, width and operation is covered.
const EMULATED: u64 = 11;

struct Tester {
    lab: Lab,
    programs: u64,
}

impl Tester {
    fn new() -> Self {
        Self { lab: Lab::new(Host::new(Flavour::Buffer { len: LEN })), programs: 0 }
    }

    fn test(&mut self, tested: &[Insn], base: Option<Reg>) {
        let program = around(tested, base);
        self.programs += 1;
        if skep_testkit::is_emulated() && !self.programs.is_multiple_of(EMULATED) {
            return;
        }
        let outcome = self.try_program(&program);
        if outcome.is_err() {
            fail(0, &program, |program| self.try_program(program).err());
        }
    }

    fn try_program(&mut self, program: &TestProgram) -> Result<(), String> {
        let verified = verified(program).map_err(|refusal| format!("refused: {refusal}"))?;
        self.lab.agree(program, &verified, INPUTS)
    }
}

#[test]
fn arithmetic_of_registers() {
    let mut tester = Tester::new();
    for op in AluOp::ALL {
        for width in WIDTHS {
            for &dst in general() {
                for &src in general() {
                    tester.test(&[Insn::Alu { width, op, dst, src: Operand::Reg(src) }], None);
                }
            }
        }
    }
    assert_eq!(tester.programs, 14 * 2 * 100);
}

/// Immediates at which encodings change: signs, bytes, powers of two and their neighbours.
fn immediates() -> Vec<i32> {
    let mut immediates: Vec<i32> = EDGES.iter().map(|edge| *edge as i32).collect();
    immediates.extend([-128, -129, 127, 128, 5, 9, 15, 16, 1000, -1000, 0x1234_5678, -0x1234_5678]);
    immediates.extend((0..32).step_by(5).map(|bit| 1 << bit));
    immediates.sort_unstable();
    immediates.dedup();
    immediates
}

#[test]
fn arithmetic_with_immediates() {
    let mut tester = Tester::new();
    let immediates = immediates();
    for op in AluOp::ALL {
        for width in WIDTHS {
            for (i, &imm) in immediates.iter().enumerate() {
                // Every register is tested with every operation, but not with every immediate.
                for step in [0, 3, 7] {
                    let dst = general()[(i + step) % general().len()];
                    tester.test(&[Insn::Alu { width, op, dst, src: Operand::Imm(imm) }], None);
                }
            }
        }
    }
    assert!(tester.programs > 14 * 2 * 3 * 30);
}

/// Compilers divide by constants with shifts and multiplications that differ for each constant.
#[test]
fn division_by_every_kind_of_constant() {
    let mut tester = Tester::new();
    let mut divisors: Vec<i32> = (-20..=130).chain(immediates()).collect();
    divisors.extend((0..31).flat_map(|bit| [1 << bit, -(1 << bit), (1 << bit) - 1, 1 - (1 << bit)]));
    divisors.extend((1..60).map(|i: i32| i.wrapping_mul(0x9e37_79b1_u32 as i32)));
    divisors.sort_unstable();
    divisors.dedup();
    for op in [AluOp::Div, AluOp::Mod, AluOp::Sdiv, AluOp::Smod] {
        for width in WIDTHS {
            for (i, &divisor) in divisors.iter().enumerate() {
                let with = |op, dst, imm| Insn::Alu { width, op, dst, src: Operand::Imm(imm) };
                // Any number, a multiple of the divisor, and one less than that.
                let [any, whole, less] = [0, 3, 7].map(|step| general()[(i + step) % general().len()]);
                let tested = [
                    with(op, any, divisor),
                    with(AluOp::Mul, whole, divisor),
                    with(op, whole, divisor),
                    with(AluOp::Mul, less, divisor),
                    with(AluOp::Sub, less, 1),
                    with(op, less, divisor),
                ];
                tester.test(&tested, None);
            }
        }
    }
    assert!(tester.programs > 4 * 2 * 300, "{}", tester.programs);
}

#[test]
fn arithmetic_with_one_operand() {
    let mut tester = Tester::new();
    for &dst in general() {
        for width in WIDTHS {
            tester.test(&[Insn::Neg { width, dst }], None);
            for &src in general() {
                for from in [Size::B1, Size::B2, Size::B4] {
                    if (width, from) != (Width::W32, Size::B4) {
                        tester.test(&[Insn::MovSx { width, from, dst, src }], None);
                    }
                }
            }
        }
        for order in [ByteOrder::ToLittle, ByteOrder::ToBig, ByteOrder::Swap] {
            for size in [Size::B2, Size::B4, Size::B8] {
                tester.test(&[Insn::Endian { order, size, dst }], None);
            }
        }
        for &edge in EDGES {
            let value = Imm64::Value(edge);
            tester.test(&[Insn::LoadImm64 { dst, value }, Insn::LoadImm64Tail], None);
        }
    }
    assert_eq!(tester.programs, 10 * (2 + 10 * 5 + 9 + EDGES.len() as u64));
}

/// Two moves record in `r9`, which is neither operand, which branch was taken.
fn jump(width: Width, cond: Cond, dst: Reg, src: Operand) -> [Insn; 3] {
    let mark = |imm| Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R9, src: Operand::Imm(imm) };
    [mark(1), Insn::JumpIf { width, cond, dst, src, offset: 1 }, mark(2)]
}

#[test]
fn conditional_jumps() {
    let mut tester = Tester::new();
    let immediates = immediates();
    let operands = &general()[..9];
    for cond in Cond::ALL {
        for width in WIDTHS {
            for &dst in operands {
                for &src in operands {
                    tester.test(&jump(width, cond, dst, Operand::Reg(src)), None);
                }
            }
            for (i, &imm) in immediates.iter().enumerate() {
                let dst = operands[i % operands.len()];
                tester.test(&jump(width, cond, dst, Operand::Imm(imm)), None);
            }
        }
    }
    assert!(tester.programs > 11 * 2 * 81);
}

#[test]
fn jumps_of_every_length_around_the_short_limit() {
    let mut tester = Tester::new();
    let pad = Insn::Alu { width: Width::W64, op: AluOp::Add, dst: Reg::R8, src: Operand::Imm(0x1234_5678) };
    let mark = |imm| Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R9, src: Operand::Imm(imm) };
    for count in (0..60).chain([1000, 4600]) {
        for long in [false, true] {
            let mut tested = vec![mark(1), Insn::Jump { offset: count, long }];
            tested.extend((0..count).map(|_| pad));
            tester.test(&tested, None);
        }
        let condition = |offset| Insn::JumpIf {
            width: Width::W64,
            cond: Cond::Gt,
            dst: Reg::R1,
            src: Operand::Reg(Reg::R2),
            offset,
        };
        let mut forward = vec![mark(1), condition(count as i16)];
        forward.extend((0..count).map(|_| pad));
        tester.test(&forward, None);
        // Backward: into the padding, which runs again; r7 counts the iterations.
        let rounds = Insn::Alu { width: Width::W64, op: AluOp::Add, dst: Reg::R7, src: Operand::Imm(1) };
        let mut backward =
            vec![Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R7, src: Operand::Imm(0) }, rounds];
        backward.extend((0..count).map(|_| pad));
        backward.push(Insn::JumpIf {
            width: Width::W64,
            cond: Cond::Lt,
            dst: Reg::R7,
            src: Operand::Imm(3),
            offset: -(count as i16) - 2,
        });
        tester.test(&backward, None);
    }
    assert_eq!(tester.programs, 62 * 4);
}

#[test]
fn loads_and_stores() {
    let mut tester = Tester::new();
    for &base in general() {
        for &other in general() {
            for size in Size::ALL {
                let offsets =
                    (0..=8).map(|at| MEMORY + at).filter(|at| at + size.bytes() as i16 <= LEN as i16);
                for offset in offsets.step_by(3) {
                    for signed in [false, true] {
                        if !(signed && size == Size::B8) {
                            tester.test(&[Insn::Load { size, signed, dst: other, base, offset }], Some(base));
                        }
                    }
                    if other != base {
                        let src = Operand::Reg(other);
                        tester.test(&[Insn::Store { size, base, offset, src }], Some(base));
                    }
                }
            }
        }
        for size in Size::ALL {
            for imm in [0, 1, -1, 0x7f, 0x80, -0x80, 0x7fff_ffff, i32::MIN] {
                let store = Insn::Store { size, base, offset: MEMORY, src: Operand::Imm(imm) };
                tester.test(&[store], Some(base));
            }
        }
    }
    assert!(tester.programs > 10 * 10 * 4 * 3);
}

#[test]
fn atomics() {
    let mut tester = Tester::new();
    for &base in general() {
        for &other in general().iter().filter(|reg| **reg != base) {
            for size in [Size::B4, Size::B8] {
                for op in AtomicOp::ALL {
                    if op == AtomicOp::CmpXchg && base == Reg::R0 {
                        continue; // would compare memory with an address
                    }
                    let atomic = |offset| Insn::Atomic { op, size, base, offset, src: other };
                    tester.test(&[atomic(MEMORY)], Some(base));
                    if op == AtomicOp::CmpXchg {
                        // Equal numbers are rare: make the lower halves equal, with different upper halves.
                        let low =
                            Insn::Load { size, signed: size == Size::B4, dst: Reg::R0, base, offset: MEMORY };
                        tester.test(&[low, atomic(MEMORY)], Some(base));
                    }
                }
            }
            for size in Size::ALL {
                let offset = MEMORY + size.bytes() as i16;
                tester.test(&[Insn::StoreRelease { size, base, offset, src: other }], Some(base));
                tester.test(&[Insn::LoadAcquire { size, dst: other, base, offset }], Some(base));
            }
        }
    }
    assert!(tester.programs > 90 * 2 * 10);
}
