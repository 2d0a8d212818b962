//! Legacy packet loads. They are rare and need many checks, so compiled code calls a function for them.

use skep_abi::{RunEnv, SkbContext};
use skep_isa::{AluOp, Cond, Operand, PacketBase, Reg, RegSet, Size, Width};

use super::Lowering;
use crate::port::{Arch, Arithmetic, Branches, Calls, Emitter, Frames};

impl<A: Arch> Lowering<'_, A> {
    /// A legacy packet load: a call. If the packet has no such bytes, the function exits.
    pub(super) fn load_packet(&mut self, slot: usize, size: Size, base: PacketBase, imm: i32) {
        // No hints for a sequence of operations.
        self.emit.next(Reg::ALL.into_iter().collect(), false);
        match base {
            PacketBase::Absolute => self.emit.mov_imm(Reg::R2, i64::from(imm) as u64),
            PacketBase::Indirect(reg) => {
                self.emit.mov_reg(Width::W64, Reg::R2, reg);
                self.emit.mov_imm(Reg::R3, i64::from(imm) as u64);
                let live_out = RegSet::EMPTY.with(Reg::R2).with(Reg::R6);
                self.emit.alu(AluOp::Add, Width::W32, Reg::R2, Operand::Reg(Reg::R3), live_out);
            }
        }
        self.emit.mov_reg(Width::W64, Reg::R1, Reg::R6);
        self.emit.mov_imm(Reg::R3, size.bytes().into());
        self.emit.call_helper(load as *const () as usize as u64);
        let behind = self.labels.slot(slot + 1);
        let missing = Operand::Imm(MISSING as i32);
        self.emit.jump_if(Width::W64, (Reg::R0, Cond::Ne, missing), false, behind);
        self.emit.mov_imm(Reg::R0, 0);
        self.emit.exit(self.labels.exit(self.function));
    }
}

/// What [`load`] returns where the packet has no such bytes: more than any load of 4 bytes.
const MISSING: u64 = u64::MAX;

/// The bytes at `offset` of the packet of a [`SkbContext`], in network order; [`MISSING`] where there are none.
///
/// # Safety
///
/// `context` is the address of the run's native context, whose packet is valid.
unsafe extern "C" fn load(context: u64, offset: u64, bytes: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the caller's promise.
    let skb = unsafe { &*(context as *const SkbContext) };
    let Some(size) = Size::from_bytes(bytes as u32) else { return MISSING };
    let Some(at) = skb.legacy_load(offset as i32, size) else { return MISSING };
    (0..bytes).fold(0, |value, byte| {
        // SAFETY: that many bytes lie in the packet.
        value << 8 | u64::from(unsafe { *((at + byte) as *const u8) })
    })
}
