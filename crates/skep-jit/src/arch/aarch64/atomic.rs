//! Atomic read-modify-writes.
//!
//! Those that fetch are sequentially consistent and order everything around them, as C11's and Linux's do; those
//! that do not fetch are atomic and order nothing, and neither does a compare-exchange that stores nothing (Linux,
//! Documentation/atomic_t.txt, "ORDERING").
//!
//! ```text
//!   with FEAT_LSE              without
//!     ldaddal src, old, [p]    try:  ldxr  old, [p]
//!                                    add   new, old, src
//!                                    stlxr failed, new, [p]
//!                                    cbnz  failed, try
//!                                    dmb   ish
//! ```

use skep_isa::{AtomicOp, Reg, RegSet, Width};

use super::Emitter;
use super::encode::{self, Cc, Logic, Rmw, Shifted, Sum, Word};
use super::regs::{Gpr, SCRATCH2};

/// The old value.
const OLD: Gpr = SCRATCH2;
/// The new value.
const NEW: Gpr = Gpr::X14;
/// Whether a store failed.
const FAILED: Gpr = Gpr::X13;

impl Emitter<'_> {
    /// `*(width *)base op= src`. See [`crate::port::Memory::atomic`].
    pub(super) fn read_modify_write(
        &mut self,
        op: AtomicOp,
        width: Width,
        base: Gpr,
        src: Reg,
        live: RegSet,
    ) {
        if op == AtomicOp::CmpXchg {
            return self.compare_exchange(width, base, src);
        }
        let fetch = op.fetches();
        let from = self.read(src);
        if self.features.lse {
            let (op, operand) = match op {
                AtomicOp::Add { .. } => (Rmw::Add, from),
                AtomicOp::Or { .. } => (Rmw::Set, from),
                AtomicOp::Xor { .. } => (Rmw::Eor, from),
                AtomicOp::And { .. } => {
                    self.put(encode::mvn(width, NEW, from));
                    (Rmw::Clr, NEW)
                }
                AtomicOp::Xchg | AtomicOp::CmpXchg => (Rmw::Swp, from),
            };
            // Without a register for the old value the instruction would not acquire.
            let old = match (fetch, live.contains(src)) {
                (false, _) => Gpr::ZR,
                (true, false) => OLD,
                (true, true) => self.write(src),
            };
            return self.put(encode::rmw(op, width, fetch, operand, old, base));
        }
        let again = self.code.here();
        self.put(encode::load_exclusive(width, false, OLD, base));
        let operand = Shifted::plain(from);
        let new = match op {
            AtomicOp::Add { .. } => Some(encode::sum_reg(Sum::Add, width, NEW, OLD, operand)),
            AtomicOp::Or { .. } => Some(encode::logic_reg(Logic::Orr, width, NEW, OLD, operand)),
            AtomicOp::And { .. } => Some(encode::logic_reg(Logic::And, width, NEW, OLD, operand)),
            AtomicOp::Xor { .. } => Some(encode::logic_reg(Logic::Eor, width, NEW, OLD, operand)),
            AtomicOp::Xchg | AtomicOp::CmpXchg => None,
        };
        new.into_iter().for_each(|word| self.put(word));
        let stored = if new.is_some() { NEW } else { from };
        self.put(encode::store_exclusive(width, fetch, FAILED, stored, base));
        self.put_back(again, |distance| encode::cbz(true, Width::W32, FAILED, distance));
        if fetch {
            self.put(encode::dmb_ish());
            if live.contains(src) {
                let to = self.write(src);
                self.put(encode::mov(Width::W64, to, OLD));
            }
        }
    }

    /// `r0` = what was there before; it becomes `src` where that is what `r0` was.
    fn compare_exchange(&mut self, width: Width, base: Gpr, src: Reg) {
        let from = self.read(src);
        let expected = self.read(Reg::R0);
        if self.features.lse {
            let to = self.write(Reg::R0);
            if to == expected {
                return self.put(encode::cas(width, to, from, base));
            }
            self.copy(OLD, expected);
            self.put(encode::cas(width, OLD, from, base));
            return self.copy(to, OLD);
        }
        let again = self.code.here();
        self.put(encode::load_exclusive(width, false, OLD, base));
        self.put(encode::sum_reg_flags(Sum::Sub, width, Gpr::ZR, OLD, Shifted::plain(expected)));
        // Skips the store and its branch.
        self.put(encode::b_cond(Cc::Ne, 12));
        self.put(encode::store_exclusive(width, true, FAILED, from, base));
        self.put_back(again, |distance| encode::cbz(true, Width::W32, FAILED, distance));
        self.put(encode::dmb_ish());
        let to = self.write(Reg::R0);
        self.copy(to, OLD);
    }

    /// A branch back to the point at which this many bytes were emitted; no fragment may be in between.
    fn put_back(&mut self, to: usize, branch: impl FnOnce(i64) -> Word) {
        let distance = to as i64 - self.code.here() as i64;
        self.put(branch(distance));
    }
}
