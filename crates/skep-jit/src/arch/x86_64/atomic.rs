//! Atomic read-modify-writes. All are sequentially consistent, as every locked instruction is.

use skep_isa::{AtomicOp, Reg, RegSet, Size, Width};

use super::encode::{self, Cc, Group1, Mem};
use super::regs::{Gpr, SCRATCH, SCRATCH2};
use super::{Emitter, gpr};

impl Emitter<'_> {
    /// `*(width *)mem op= src`; with `fetch`, `src` becomes what was there before. `live` are the
    /// registers that are live afterwards.
    pub(super) fn read_modify_write(&mut self, op: AtomicOp, width: Width, mem: Mem, src: Reg, live: RegSet) {
        // The fetched value is dead: use the shorter form.
        let wanted = live.contains(src);
        match op {
            AtomicOp::Add { fetch } if !(fetch && wanted) => {
                self.put(encode::lock_alu(Group1::Add, width, mem, gpr(src)))
            }
            AtomicOp::Or { fetch } if !(fetch && wanted) => {
                self.put(encode::lock_alu(Group1::Or, width, mem, gpr(src)))
            }
            AtomicOp::And { fetch } if !(fetch && wanted) => {
                self.put(encode::lock_alu(Group1::And, width, mem, gpr(src)))
            }
            AtomicOp::Xor { fetch } if !(fetch && wanted) => {
                self.put(encode::lock_alu(Group1::Xor, width, mem, gpr(src)))
            }
            AtomicOp::Add { .. } => self.put(encode::xadd(width, mem, gpr(src))),
            AtomicOp::Or { .. } => self.fetch(Group1::Or, width, mem, src, live),
            AtomicOp::And { .. } => self.fetch(Group1::And, width, mem, src, live),
            AtomicOp::Xor { .. } => self.fetch(Group1::Xor, width, mem, src, live),
            AtomicOp::Xchg => self.put(encode::xchg(width, mem, gpr(src))),
            AtomicOp::CmpXchg => {
                self.put(encode::cmpxchg(width, mem, gpr(src)));
                if width == Width::W32 {
                    // A successful exchange leaves `rax` alone, upper half included.
                    self.put(encode::mov_rr(Width::W32, Gpr::RAX, Gpr::RAX));
                }
            }
        }
    }

    /// Operations without a fetching instruction: a compare-exchange loop.
    ///
    /// ```text
    ///         mov r10, rax           ; r10 stands in for rax from here on
    ///         mov rax, [mem]
    ///   try:  mov r11, rax
    ///         op r11, src
    ///         lock cmpxchg [mem], r11
    ///         jne try                ; rax was loaded anew
    ///         mov src, rax
    ///         mov rax, r10
    /// ```
    fn fetch(&mut self, op: Group1, width: Width, mem: Mem, src: Reg, live: RegSet) {
        let stand_in = |reg: Reg| if reg == Reg::R0 { SCRATCH2 } else { gpr(reg) };
        let mem = mem.rebased(Gpr::RAX, SCRATCH2);
        let size = match width {
            Width::W32 => Size::B4,
            Width::W64 => Size::B8,
        };
        self.copy(SCRATCH2, Gpr::RAX);
        self.put(encode::load(size, false, Gpr::RAX, mem));
        let again = self.code.here();
        self.copy(SCRATCH, Gpr::RAX);
        self.put(encode::alu_rr(op, width, SCRATCH, stand_in(src)));
        self.put(encode::cmpxchg(width, mem, SCRATCH));
        let back = again as i64 - (self.code.here() as i64 + 2);
        self.put(encode::jcc8(Cc::NotEqual.number(), back as i8));
        if src != Reg::R0 {
            self.copy(gpr(src), Gpr::RAX);
            if live.contains(Reg::R0) {
                self.copy(Gpr::RAX, SCRATCH2);
            }
        }
    }
}
