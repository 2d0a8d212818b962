//! How many low bits of each register can be set, within straight-line code.
//!
//! The compiler of a BPF program truncates often, and loads and 32-bit operations have mostly truncated
//! already. Knowing that the upper half is zero saves the extension, and lets 64-bit operations use their
//! shorter 32-bit forms. Nothing is known where a jump leads to.

use skep_isa::{AluOp, AtomicOp, Cond, Imm64, Insn, Operand, Reg, Size, Width};

/// For each register, the number of its low bits that may be set; all above are zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known([u8; 11]);

impl Known {
    /// Nothing.
    pub(super) const NOTHING: Self = Self([64; 11]);

    /// The number of low bits that may be set.
    pub(super) fn bits(&self, reg: Reg) -> u8 {
        self.0[reg.index()]
    }

    /// Takes note of what the instruction does.
    pub(super) fn step(&mut self, insn: &Insn) {
        match *insn {
            Insn::Alu { width, op, dst, src } => {
                let bits = self.alu(width, op, dst, src);
                self.set(dst, bits);
            }
            Insn::Neg { width, dst } | Insn::MovSx { width, dst, .. } => self.set(dst, width.bits() as u8),
            Insn::Endian { size, dst, .. }
            | Insn::Load { size, signed: false, dst, .. }
            | Insn::LoadAcquire { size, dst, .. } => self.set(dst, size.bits() as u8),
            Insn::AddrSpaceCast { dst, to: 0, .. } => self.set(dst, 32),
            Insn::LoadImm64 { dst, value: Imm64::Value(value) } => self.set(dst, significant(value)),
            Insn::Atomic { op: AtomicOp::CmpXchg, size, .. } => self.set(Reg::R0, size.bits() as u8),
            Insn::Atomic { op, size, src, .. } if op.fetches() => self.set(src, size.bits() as u8),
            _ => insn.writes().iter().for_each(|reg| self.set(reg, 64)),
        }
    }

    /// The width in which the operation can be done with the same result.
    pub(super) fn narrow(&self, op: AluOp, width: Width, dst: Reg, src: Operand) -> Width {
        let (a, b) = (self.bits(dst), self.operand(src));
        let narrow = match op {
            AluOp::Mov => b <= 32,
            AluOp::And => a <= 32 || b <= 32,
            AluOp::Or | AluOp::Xor | AluOp::Div | AluOp::Mod => a <= 32 && b <= 32,
            AluOp::Add | AluOp::Mul | AluOp::Lsh => self.alu(Width::W64, op, dst, src) <= 32,
            AluOp::Rsh => a <= 32 && matches!(src, Operand::Imm(0..32)),
            AluOp::Arsh => a < 32 && matches!(src, Operand::Imm(0..32)),
            AluOp::Sub | AluOp::Sdiv | AluOp::Smod => false,
        };
        if narrow { Width::W32 } else { width }
    }

    /// The width in which the operands can be compared with the same result.
    pub(super) fn narrow_cond(&self, cond: Cond, width: Width, dst: Reg, src: Operand) -> Width {
        let bits = self.bits(dst).max(self.operand(src));
        let signed = matches!(cond, Cond::Sgt | Cond::Sge | Cond::Slt | Cond::Sle);
        if bits < 32 || bits == 32 && !signed { Width::W32 } else { width }
    }

    /// Whether zero-extending the lowest bytes changes nothing.
    pub(super) fn is_extended(&self, from: Size, reg: Reg) -> bool {
        u32::from(self.bits(reg)) <= from.bits()
    }

    fn set(&mut self, reg: Reg, bits: u8) {
        self.0[reg.index()] = bits;
    }

    fn operand(&self, src: Operand) -> u8 {
        match src {
            Operand::Reg(src) => self.bits(src),
            Operand::Imm(imm) => significant(i64::from(imm) as u64),
        }
    }

    /// Bits of the result.
    fn alu(&self, width: Width, op: AluOp, dst: Reg, src: Operand) -> u8 {
        let limit = width.bits() as u8;
        let (a, b) = (self.bits(dst).min(limit), self.operand(src).min(limit));
        let count = match src {
            Operand::Imm(imm) => Some(imm as u8 & (limit - 1)),
            Operand::Reg(_) => None,
        };
        let bits = match (op, count) {
            (AluOp::Mov, _) => b,
            (AluOp::And, _) => a.min(b),
            (AluOp::Or | AluOp::Xor, _) => a.max(b),
            (AluOp::Add, _) => a.max(b) + 1,
            (AluOp::Mul, _) => a + b,
            (AluOp::Div | AluOp::Mod, _) => a,
            (AluOp::Lsh, Some(count)) => a + count,
            (AluOp::Rsh, Some(count)) => a.saturating_sub(count),
            (AluOp::Rsh, None) => a,
            _ => limit,
        };
        bits.min(limit)
    }
}

fn significant(value: u64) -> u8 {
    64 - value.leading_zeros() as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;

    /// Registers with numbers in them, and what is known of them when they came from truncations.
    fn loaded(a: u64, b: u64) -> Known {
        let mut known = Known::NOTHING;
        known.set(Reg::R1, significant(a));
        known.set(Reg::R2, significant(b));
        known
    }

    fn sources(b: u64) -> [(Operand, u64); 2] {
        let imm = b as i32;
        [(Operand::Reg(Reg::R2), b), (Operand::Imm(imm), i64::from(imm) as u64)]
    }

    #[test]
    fn results_have_no_more_bits_than_are_foretold() {
        for op in AluOp::ALL {
            for width in [Width::W32, Width::W64] {
                for a in model::EDGES {
                    for (src, b) in model::EDGES.into_iter().flat_map(sources) {
                        let mut known = loaded(a, b);
                        known.step(&Insn::Alu { width, op, dst: Reg::R1, src });
                        let result = model::alu(op, width, a, b);
                        assert!(significant(result) <= known.bits(Reg::R1), "{a:#x} {op:?} {b:#x} {width:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn narrowed_operations_and_comparisons_have_the_same_results() {
        let mut narrowed = 0;
        for a in model::EDGES {
            for (src, b) in model::EDGES.into_iter().flat_map(sources) {
                let known = loaded(a, b);
                for op in AluOp::ALL {
                    let width = known.narrow(op, Width::W64, Reg::R1, src);
                    narrowed += u32::from(width == Width::W32);
                    let wide = model::alu(op, Width::W64, a, b);
                    assert_eq!(model::alu(op, width, a, b), wide, "{a:#x} {op:?} {b:#x}");
                    assert_eq!(known.narrow(op, Width::W32, Reg::R1, src), Width::W32);
                }
                for cond in Cond::ALL {
                    let width = known.narrow_cond(cond, Width::W64, Reg::R1, src);
                    let wide = model::holds(cond, Width::W64, a, b);
                    assert_eq!(model::holds(cond, width, a, b), wide, "{a:#x} {cond:?} {b:#x}");
                }
            }
        }
        assert!(narrowed > 1000);
    }
}
