//! Which registers are masked before an access, and which loads wait for stores
//! ([`Options::mask_speculation`](crate::Options::mask_speculation),
//! [`Options::order_reloads`](crate::Options::order_reloads)).
//!
//! On a path that the processor takes by mistake, a register may hold anything: a number where the verifier saw a
//! pointer, an index that a comparison has excluded. So what is part of an address is masked, in its own register.
//! That changes nothing on the right path, and the register stays masked until it is written or a jump may have been
//! predicted wrongly.
//!
//! ```text
//!   if r2 > 15 goto out        on the wrong path:
//!   r1 += r2
//!   r1 |= wrong                r1 = -1
//!   r3 = *(u8 *)(r1 + 0)       faults, and so reads nothing
//! ```
//!
//! The stack at constant distances from `r10` is in place on every path, but what is there may not be what the right
//! path would find. So what is loaded from it is masked as well; with a masked index that is one byte below the place
//! at index 0. Addresses in arenas are made from the lower half of a register on every path, and lead nowhere else.
//!
//! A masked address is within 32 KiB of the end of the address space, where nothing is, before or behind. It would
//! break if a larger constant, or a part of a register that is extended, were added to it: such addresses are
//! computed first ([`Lowering::is_maskable`]).

use skep_isa::{Insn, Reg, RegSet};

use super::Lowering;
use crate::options::Options;
use crate::port::operand::{Address, Part};
use crate::port::{Arch, Guards};

/// What is known in straight-line code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guarded {
    masks: bool,
    orders: bool,
    /// Registers that are masked since the last jump.
    masked: RegSet,
    /// No store since loads were last made to wait.
    ordered: bool,
}

impl Guarded {
    pub(super) fn new(options: Options) -> Self {
        let Options { mask_speculation: masks, order_reloads: orders, .. } = options;
        Self { masks, orders, masked: RegSet::EMPTY, ordered: false }
    }

    /// Control may come from elsewhere.
    pub(super) fn join(&mut self) {
        *self = Self { masked: RegSet::EMPTY, ordered: false, ..*self };
    }

    /// Takes note of what the instruction does.
    pub(super) fn step(&mut self, insn: &Insn) {
        self.masked = self.masked.difference(insn.writes());
        match insn {
            Insn::Alu { .. } | Insn::Load { .. } => {}
            Insn::Store { .. } | Insn::StoreRelease { .. } | Insn::Atomic { .. } => self.ordered = false,
            Insn::JumpIf { .. } | Insn::MayGoto { .. } => self.masked = RegSet::EMPTY,
            Insn::Call { .. } | Insn::CallReg { .. } | Insn::LoadPacket { .. } => self.join(),
            _ => {}
        }
    }
}

impl<A: Arch> Lowering<'_, A> {
    /// Whether an address that is masked leads nowhere.
    pub(super) fn is_maskable(&self, address: Address) -> bool {
        let options = self.options;
        let whole = address.index.is_none_or(|index| index.part == Part::Whole);
        // A displacement may be a constant of the program, or a sum of one with an offset.
        let near = i16::try_from(address.disp).is_ok();
        !(options.mask_speculation && !(near && whole) || options.blind_constants && !near)
    }

    /// Before an access at that address.
    pub(super) fn mask_address(&mut self, address: Address) {
        self.mask(address.base);
        if let Some(index) = address.index {
            self.mask(index.reg);
        }
    }

    /// Behind a load or an atomic operation that has set the register.
    pub(super) fn mask_loaded(&mut self, address: Address, dst: Reg) {
        if self.guarded.masks && address.base == Reg::R10 {
            self.emit.mask(dst);
        }
    }

    /// Masks a register that is not masked yet.
    pub(super) fn mask(&mut self, reg: Reg) {
        if self.guarded.masks && reg != Reg::R10 && !self.guarded.masked.contains(reg) {
            self.emit.mask(reg);
            self.guarded.masked = self.guarded.masked.with(reg);
        }
    }

    /// Before the loads in these slots.
    pub(super) fn order_reload(&mut self, slots: std::ops::RangeInclusive<usize>) {
        let reloads = self.parts.facts[slots].iter().any(|fact| fact.reload);
        if self.guarded.orders && reloads && !self.guarded.ordered {
            self.emit.order_stores();
            self.guarded.ordered = true;
        }
    }
}
