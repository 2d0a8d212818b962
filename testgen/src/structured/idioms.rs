//! Instruction sequences that compilers emit and that a JIT may fuse, and near misses of them: a part of an address
//! changes between its computation and its use, a count is off by one, a register has two roles.

use skep_isa::{AluOp, Operand, Reg, Size, Width};

use super::Generator;
use super::state::{Area, Kind, State};

impl Generator<'_> {
    /// A few instructions that belong together.
    pub(super) fn idiom(&mut self, state: &mut State) {
        match self.source.below(8) {
            0..=2 => self.computed_address(state),
            3 => self.operand_from_memory(state),
            4 => self.rotation(state),
            5 => self.extension(state),
            _ => self.three_operands(state),
        }
    }

    /// `t = base; t += index << shift`, and accesses through `t`, with other instructions in between.
    fn computed_address(&mut self, state: &mut State) {
        let index = self.number(state, true);
        let areas: Vec<(Reg, i32)> = state
            .addresses()
            .into_iter()
            .filter(|(_, address)| {
                matches!(address.area, Area::Buffer(_) | Area::Value(_)) && address.offset >= 0
            })
            .map(|(reg, address)| (reg, address.area.bytes() - address.offset))
            .filter(|(_, room)| *room >= 32)
            .collect();
        let spare: Vec<Reg> = Reg::ALL
            .into_iter()
            .filter(|reg| state.is_free(*reg) && state.kind(*reg) == Kind::Unknown)
            .collect();
        if areas.is_empty() || spare.is_empty() {
            return self.arithmetic(state);
        }
        let (base, _) = self.source.pick(&areas);
        let at = self.source.pick(&spare);
        let shift = self.source.below(3) as i32;
        // index <= 3, so that (index << shift) + offset + 8 <= 3 * 4 + 12 + 8 = 32.
        self.code.alu(Width::W64, AluOp::And, index, Operand::Imm(3));
        let scaled = if shift > 0 && spare.len() > 1 && self.source.chance(60) {
            let scaled = spare.iter().copied().find(|reg| *reg != at).unwrap_or(index);
            self.code.mov(scaled, index);
            scaled
        } else {
            index
        };
        if shift > 0 {
            self.code.alu(Width::W64, AluOp::Lsh, scaled, Operand::Imm(shift));
        }
        let (first, second) = if self.source.chance(50) { (base, scaled) } else { (scaled, base) };
        self.code.mov(at, first);
        self.code.alu(Width::W64, AluOp::Add, at, Operand::Reg(second));
        let mut moved = 0;
        if self.source.chance(30) {
            moved = self.source.below(5) as i32;
            self.code.add_imm(at, moved);
        }
        for _ in 0..self.source.between(1, 4) {
            let offset = (self.source.below(13) as i32 - moved) as i16;
            let size = self.source.pick(&Size::ALL);
            match self.source.below(6) {
                0 | 1 => {
                    let src = self.operand(state);
                    self.code.store(size, at, offset, src);
                }
                2 => {
                    let dst = self.number(state, true);
                    self.code.load(size, dst, at, offset);
                }
                3 => {
                    // A part of the address changes: the address does not.
                    let width = self.width();
                    self.code.alu(width, AluOp::Add, index, Operand::Imm(5));
                }
                4 => {
                    let (test, width, cond) = (self.number(state, false), self.width(), self.cond());
                    let over = self.code.jump_if(width, cond, test, Operand::Imm(3));
                    self.code.store(size, at, offset, Operand::Imm(1));
                    self.code.land(over);
                }
                _ if state.is_free(base) && base != Reg::R10 && state.loops == 0 => {
                    // The base changes as well, and is restored afterwards.
                    self.code.add_imm(base, 8);
                    self.code.load(size, at, at, offset);
                    self.code.add_imm(base, -8);
                    return state.set(at, Kind::Number);
                }
                _ => {}
            }
        }
        if scaled != index {
            state.set(scaled, Kind::Number);
        }
    }

    /// A load whose result is an operand of the next instruction.
    fn operand_from_memory(&mut self, state: &mut State) {
        self.load(state);
        let loaded = match self.code.insns.last() {
            Some(skep_isa::Insn::Load { dst, .. }) if state.kind(*dst) == Kind::Number => *dst,
            _ => return self.arithmetic(state),
        };
        let op = self.source.pick(&[AluOp::Add, AluOp::Sub, AluOp::Or, AluOp::And, AluOp::Xor, AluOp::Mul]);
        let width = self.width();
        let other = self.number(state, true);
        let (dst, src) =
            if self.source.chance(70) || !state.is_free(loaded) { (other, loaded) } else { (loaded, other) };
        self.code.alu(width, op, dst, Operand::Reg(src));
        if self.source.chance(60) && state.is_free(loaded) {
            // The loaded value is dead.
            self.number_into(state, loaded);
        }
    }

    /// Two shifts and an or.
    fn rotation(&mut self, state: &mut State) {
        let (width, x) = (self.width(), self.number(state, true));
        let part = self.destination(state);
        if part == x || state.kind(part) == Kind::Unknown && !state.is_free(part) {
            return self.extension(state);
        }
        let bits = width.bits() as i32;
        let left = self.source.between(1, bits as u32 - 1) as i32;
        let right = if self.source.chance(80) { bits - left } else { self.source.below(bits as u32) as i32 };
        let (one, other) = match self.source.chance(50) {
            true => ((AluOp::Lsh, left), (AluOp::Rsh, right)),
            false => ((AluOp::Rsh, right), (AluOp::Lsh, left)),
        };
        let moves = if self.source.chance(80) { Width::W64 } else { width };
        let join = self.source.pick(&[AluOp::Or, AluOp::Or, AluOp::Add, AluOp::Xor]);
        self.code.alu(moves, AluOp::Mov, part, Operand::Reg(x));
        self.code.alu(width, one.0, part, Operand::Imm(one.1));
        self.code.alu(width, other.0, x, Operand::Imm(other.1));
        let (dst, src) = if self.source.chance(50) { (x, part) } else { (part, x) };
        self.code.alu(width, join, dst, Operand::Reg(src));
        state.set(part, Kind::Number);
        if self.source.chance(60) && state.is_free(src) {
            self.number_into(state, src);
        }
    }

    /// A left shift, and a right shift back.
    fn extension(&mut self, state: &mut State) {
        let (width, x) = (self.width(), self.number(state, true));
        let count = self.source.pick(&[8, 16, 24, 31, 32, 48, 56]) & (width.bits() as i32 - 1);
        let back = if self.source.chance(80) { count } else { count ^ 8 } & (width.bits() as i32 - 1);
        self.code.alu(width, AluOp::Lsh, x, Operand::Imm(count));
        let op = self.source.pick(&[AluOp::Rsh, AluOp::Arsh]);
        self.code.alu(width, op, x, Operand::Imm(back));
    }

    /// A move and an operation on its result.
    fn three_operands(&mut self, state: &mut State) {
        let src = self.number(state, false);
        let dst = self.destination(state);
        let (move_width, width) = (self.width(), self.width());
        self.code.alu(move_width, AluOp::Mov, dst, Operand::Reg(src));
        state.set(dst, Kind::Number);
        let op = self.source.pick(&AluOp::ALL);
        let operand = match self.source.below(4) {
            0 => Operand::Reg(dst),
            1 => self.operand(state),
            2 => Operand::Imm(self.source.pick(&[1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, -1, 127, 128, 255])),
            _ => Operand::Reg(src),
        };
        let operand = self.allowed(op, width, operand);
        self.code.alu(width, op, dst, operand);
    }
}
