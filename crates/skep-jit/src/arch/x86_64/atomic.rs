//! Atomic read-modify-writes. All are sequentially consistent, as every locked instruction is.

use skep_isa::{AtomicOp, Reg, Width};

use super::encode::{self, Cc, Group1, Mem};
use super::memory::at;
use super::regs::{Gpr, SCRATCH, SCRATCH2};
use super::{Emitter, gpr};

impl Emitter<'_> {
    /// `*(width *)(base + offset) op= src`; with `fetch`, `src` becomes what was there before.
    pub(crate) fn atomic(&mut self, op: AtomicOp, width: Width, base: Reg, offset: i16, src: Reg) {
        let mem = at(base, offset);
        match op {
            AtomicOp::Add { fetch: false } => self.put(encode::lock_alu(Group1::Add, width, mem, gpr(src))),
            AtomicOp::Or { fetch: false } => self.put(encode::lock_alu(Group1::Or, width, mem, gpr(src))),
            AtomicOp::And { fetch: false } => self.put(encode::lock_alu(Group1::And, width, mem, gpr(src))),
            AtomicOp::Xor { fetch: false } => self.put(encode::lock_alu(Group1::Xor, width, mem, gpr(src))),
            AtomicOp::Add { fetch: true } => self.put(encode::xadd(width, mem, gpr(src))),
            AtomicOp::Or { fetch: true } => self.fetch(Group1::Or, width, base, offset, src),
            AtomicOp::And { fetch: true } => self.fetch(Group1::And, width, base, offset, src),
            AtomicOp::Xor { fetch: true } => self.fetch(Group1::Xor, width, base, offset, src),
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

    /// The operations that have no fetching instruction: tried until nobody came between.
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
    fn fetch(&mut self, op: Group1, width: Width, base: Reg, offset: i16, src: Reg) {
        let stand_in = |reg: Reg| if reg == Reg::R0 { SCRATCH2 } else { gpr(reg) };
        let mem = Mem::at(stand_in(base), offset.into());
        let size = match width {
            Width::W32 => skep_isa::Size::B4,
            Width::W64 => skep_isa::Size::B8,
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
            self.copy(Gpr::RAX, SCRATCH2);
        }
    }
}
