//! Builds instruction lists: jumps are emitted before their targets are known.

use skep_isa::{AluOp, CallTarget, Cond, Imm64, Insn, Operand, Reg, Size, Width};

/// A list of instructions under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Builder {
    pub(crate) insns: Vec<Insn>,
}

/// A forward jump whose target is not known yet.
#[must_use]
#[derive(Clone, Debug)]
pub(crate) struct Open(usize);

impl Builder {
    pub(crate) fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    /// The slot of the next instruction.
    pub(crate) fn here(&self) -> usize {
        self.insns.len()
    }

    pub(crate) fn mov(&mut self, dst: Reg, src: Reg) {
        self.alu(Width::W64, AluOp::Mov, dst, Operand::Reg(src));
    }

    pub(crate) fn mov_imm(&mut self, dst: Reg, imm: i32) {
        self.alu(Width::W64, AluOp::Mov, dst, Operand::Imm(imm));
    }

    pub(crate) fn add_imm(&mut self, dst: Reg, imm: i32) {
        self.alu(Width::W64, AluOp::Add, dst, Operand::Imm(imm));
    }

    pub(crate) fn alu(&mut self, width: Width, op: AluOp, dst: Reg, src: Operand) {
        self.push(Insn::Alu { width, op, dst, src });
    }

    pub(crate) fn load_imm64(&mut self, dst: Reg, value: Imm64) {
        self.push(Insn::LoadImm64 { dst, value });
        self.push(Insn::LoadImm64Tail);
    }

    pub(crate) fn load(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) {
        self.push(Insn::Load { size, signed: false, dst, base, offset });
    }

    pub(crate) fn store(&mut self, size: Size, base: Reg, offset: i16, src: Operand) {
        self.push(Insn::Store { size, base, offset, src });
    }

    pub(crate) fn call_helper(&mut self, id: u32) {
        self.push(Insn::Call { target: CallTarget::Helper(id) });
    }

    /// A conditional jump forward.
    pub(crate) fn jump_if(&mut self, width: Width, cond: Cond, dst: Reg, src: Operand) -> Open {
        self.push(Insn::JumpIf { width, cond, dst, src, offset: 0 });
        Open(self.here() - 1)
    }

    /// A jump forward.
    pub(crate) fn jump(&mut self, long: bool) -> Open {
        self.push(Insn::Jump { offset: 0, long });
        Open(self.here() - 1)
    }

    /// A `may_goto` forward.
    pub(crate) fn may_goto(&mut self) -> Open {
        self.push(Insn::MayGoto { offset: 0 });
        Open(self.here() - 1)
    }

    /// A jump backward, conditional if `test` is given.
    pub(crate) fn jump_back(&mut self, target: usize, test: Option<(Width, Cond, Reg, Operand)>) {
        let distance = target as i32 - self.here() as i32 - 1;
        self.push(match test {
            Some((width, cond, dst, src)) => Insn::JumpIf { width, cond, dst, src, offset: distance as i16 },
            None => Insn::Jump { offset: distance, long: false },
        });
    }

    /// Sets the jump's target to the next instruction.
    pub(crate) fn land(&mut self, open: Open) {
        self.land_at(open, self.here());
    }

    /// Sets the jump's target to a slot after it.
    pub(crate) fn land_at(&mut self, open: Open, slot: usize) {
        let distance = (slot - open.0 - 1) as i32;
        match &mut self.insns[open.0] {
            Insn::JumpIf { offset, .. } | Insn::MayGoto { offset } => *offset = distance as i16,
            Insn::Jump { offset, .. } => *offset = distance,
            other => unreachable!("{other:?} is not a jump"),
        }
    }
}
