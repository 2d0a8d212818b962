//! Statements over numbers.

use skep_isa::{AluOp, ByteOrder, Cond, Imm64, Insn, Operand, Reg, Size, Width};

use super::Generator;
use super::state::{Kind, State};

impl Generator<'_> {
    pub(super) fn width(&mut self) -> Width {
        self.source.pick(&[Width::W32, Width::W64])
    }

    pub(super) fn cond(&mut self) -> Cond {
        self.source.pick(&Cond::ALL)
    }

    /// Two-operand arithmetic.
    pub(super) fn arithmetic(&mut self, state: &mut State) {
        let op = self.source.pick(&AluOp::ALL);
        let dst = match op {
            AluOp::Mov => self.destination(state),
            _ => self.number(state, true),
        };
        let width = self.width();
        let src = self.operand(state);
        let src = self.allowed(op, width, src);
        self.code.alu(width, op, dst, src);
        state.set(dst, Kind::Number);
    }

    /// The operand, or a valid one if verifiers refuse it for that operation.
    pub(super) fn allowed(&self, op: AluOp, width: Width, operand: Operand) -> Operand {
        let Operand::Imm(imm) = operand else { return operand };
        Operand::Imm(match op {
            AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => imm & (width.bits() as i32 - 1),
            AluOp::Div | AluOp::Sdiv | AluOp::Mod | AluOp::Smod if imm == 0 => 1,
            _ => imm,
        })
    }

    /// One-operand arithmetic, sign extension, byte order, wide immediates.
    pub(super) fn conversion(&mut self, state: &mut State) {
        let width = self.width();
        match self.source.below(4) {
            0 => {
                let dst = self.number(state, true);
                self.code.push(Insn::Neg { width, dst });
            }
            1 => {
                let src = self.number(state, false);
                let dst = self.destination(state);
                let from = match width {
                    Width::W32 => self.source.pick(&[Size::B1, Size::B2]),
                    Width::W64 => self.source.pick(&[Size::B1, Size::B2, Size::B4]),
                };
                self.code.push(Insn::MovSx { width, from, dst, src });
                state.set(dst, Kind::Number);
            }
            2 => {
                let dst = self.number(state, true);
                let order = self.source.pick(&[ByteOrder::ToLittle, ByteOrder::ToBig, ByteOrder::Swap]);
                let size = self.source.pick(&[Size::B2, Size::B4, Size::B8]);
                self.code.push(Insn::Endian { order, size, dst });
            }
            _ => {
                let dst = self.destination(state);
                let value = Imm64::Value(self.source.number());
                self.code.load_imm64(dst, value);
                state.set(dst, Kind::Number);
            }
        }
    }

    /// A register that may be written.
    pub(super) fn destination(&mut self, state: &State) -> Reg {
        let free: Vec<Reg> = Reg::ALL.into_iter().filter(|reg| state.is_free(*reg)).collect();
        let chosen = self.source.pick(&free);
        // Addresses are rarer than numbers, so they are kept for a while.
        match state.kind(chosen) {
            Kind::Address(_) if self.source.chance(75) => self.source.pick(&free),
            _ => chosen,
        }
    }

    /// A register that holds a number; with `writable`, one that may be written.
    pub(super) fn number(&mut self, state: &mut State, writable: bool) -> Reg {
        let numbers: Vec<Reg> =
            state.numbers().into_iter().filter(|reg| !writable || state.is_free(*reg)).collect();
        if !numbers.is_empty() {
            return self.source.pick(&numbers);
        }
        let reg = self.scratch(state);
        self.number_into(state, reg);
        reg
    }

    /// A register without a useful value, if there is one.
    pub(super) fn scratch(&mut self, state: &State) -> Reg {
        let of = |wanted: fn(Kind) -> bool| -> Vec<Reg> {
            Reg::ALL.into_iter().filter(|reg| state.is_free(*reg) && wanted(state.kind(*reg))).collect()
        };
        for wanted in [|kind| kind == Kind::Unknown, |kind| kind == Kind::Number, |_| true] {
            let regs = of(wanted);
            if !regs.is_empty() {
                return self.source.pick(&regs);
            }
        }
        unreachable!("r0 is never pinned")
    }

    /// Loads a constant into that register.
    pub(super) fn number_into(&mut self, state: &mut State, reg: Reg) {
        if self.source.chance(30) {
            let value = Imm64::Value(self.source.number());
            self.code.load_imm64(reg, value);
        } else {
            let width = self.width();
            let imm = self.source.imm();
            self.code.alu(width, AluOp::Mov, reg, Operand::Imm(imm));
        }
        state.set(reg, Kind::Number);
    }

    /// A register with a number, or an immediate.
    pub(super) fn operand(&mut self, state: &State) -> Operand {
        let numbers = state.numbers();
        if numbers.is_empty() || self.source.chance(40) {
            Operand::Imm(self.source.imm())
        } else {
            Operand::Reg(self.source.pick(&numbers))
        }
    }
}
