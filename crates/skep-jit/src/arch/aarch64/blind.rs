//! Constants that are not to appear in code ([`crate::blind`]).
//!
//! Instructions are aligned words, and a constant is a field of one: no jump leads into the middle of an instruction,
//! and no constant is a whole one. So what takes one field stays: 12 bits in arithmetic, 16 in a move, also inverted.
//! Larger ones are made of a key and of their exclusive or with it:
//!
//! ```text
//!   mov  w16, #low(value ^ key)
//!   movk w16, #high(value ^ key), lsl #16
//!   mov  w9, #low(key)
//!   movk w9, #high(key), lsl #16
//!   eor  x16, x16, x9
//! ```

use skep_isa::Width;

use super::Emitter;
use super::encode::{self, Constant, Logic, Shifted};
use super::regs::Gpr;

/// The key.
const KEY: Gpr = Gpr::X9;

impl Emitter<'_> {
    /// Whether the constant must not be in the code.
    pub(super) fn hides(&self, value: u64) -> bool {
        self.options.blind_constants && value > 0xffff && !value > 0xffff
    }

    /// `reg = value`. The flags stay.
    pub(super) fn constant(&mut self, reg: Gpr, value: u64) {
        if !self.hides(value) {
            return self.moves(encode::constant(reg, value));
        }
        let key = self.keys.next();
        // An upper half of equal bits tells nothing, and is made by the first instruction.
        let half = value >> 32;
        let key = if half == 0 || half == u64::from(u32::MAX) { key & u64::from(u32::MAX) } else { key };
        self.moves(encode::constant(reg, value ^ key));
        self.moves(encode::constant(KEY, key));
        self.put(encode::logic_reg(Logic::Eor, Width::W64, reg, reg, Shifted::plain(KEY)));
    }

    fn moves(&mut self, constant: Constant) {
        constant.as_slice().iter().for_each(|&word| self.put(word));
    }
}
