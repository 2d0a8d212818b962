//! Loops in bulk ([`crate::port::bulk`]), sixteen bytes at a time.
//!
//! ```text
//!   add  x13, from               what is read
//!   add  x14, to                 what is written
//!   subs x17, limit, counter     how many bytes
//!   b.eq out
//!   sub  x17, x17, #1
//!   and  x17, x17, #-16
//!   cbz  x17, out
//!   sub  x15, x14, x13           less than sixteen bytes behind the source: one by one
//!   cmp  x15, #16
//!   b.lo out
//!   add  counter, counter, x17
//!   next: ldr  q0, [x13], #16
//!         str  q0, [x14], #16
//!         subs x17, x17, #16
//!         b.ne next
//!   out:
//! ```
//!
//! The vector registers are lost in calls, and no function of a program keeps anything in them.

use skep_isa::{Operand, Size, Width};

use super::Emitter;
use super::alu::sum;
use super::encode::{self, Bitmask, Cc, Imm12, Logic, ShiftKind, Shifted, Sum, Vector, Word};
use super::regs::{Gpr, SCRATCH2, SCRATCH3};
use crate::port::Bulks;
use crate::port::bulk::{Bulk, CHUNK, Count, Step, Work};
use crate::port::operand::Address;

/// Where it reads.
const FROM: Gpr = Gpr::X13;
/// Where it writes.
const TO: Gpr = Gpr::X14;
/// Bytes that are left.
const LEFT: Gpr = SCRATCH2;
/// What is needed for a moment.
const SPARE: Gpr = SCRATCH3;

const DATA: Vector = Vector(0);
const TOTAL: Vector = Vector(1);

impl Bulks for Emitter<'_> {
    fn bulk(&mut self, bulk: &Bulk) {
        // Addresses first, since they may need all scratch registers.
        match bulk.work {
            Work::Copy { from, to } => {
                self.pointer_to(FROM, from);
                self.pointer_to(TO, to);
            }
            Work::Fill { to, .. } => self.pointer_to(TO, to),
            Work::Sum { from, .. } => self.pointer_to(FROM, from),
        }
        let mut outs = self.bytes_left(&bulk.count);
        match bulk.work {
            Work::Copy { .. } => {
                self.put(encode::sum_reg(Sum::Sub, Width::W64, SPARE, TO, Shifted::plain(FROM)));
                self.compare_with_chunk(SPARE);
                outs.push(self.hole(|distance| encode::b_cond(Cc::Lo, distance)));
                self.steps(&bulk.steps);
                let next = self.code.here();
                self.put(encode::load_vector(DATA, FROM));
                self.put(encode::store_vector(DATA, TO));
                self.next_chunk(next);
            }
            Work::Fill { value, .. } => {
                let from = match value {
                    Operand::Reg(reg) => self.read(reg),
                    Operand::Imm(imm) => {
                        self.constant(SPARE, i64::from(imm) as u64);
                        SPARE
                    }
                };
                self.put(encode::spread(bulk.size, DATA, from));
                self.steps(&bulk.steps);
                let next = self.code.here();
                self.put(encode::store_vector(DATA, TO));
                self.next_chunk(next);
            }
            Work::Sum { into, width, .. } => {
                self.steps(&bulk.steps);
                self.sum(bulk.size);
                let into = self.stay(into);
                self.put(encode::sum_reg(Sum::Add, width, into, into, Shifted::plain(SPARE)));
            }
        }
        outs.into_iter().for_each(|out| self.land(out, 0));
    }
}

impl Emitter<'_> {
    /// `dst = address`
    fn pointer_to(&mut self, dst: Gpr, address: Address) {
        let Address { base, index, disp } = address;
        let from = self.read(base);
        match index {
            Some(index) => {
                // The base may be in a scratch register.
                self.copy(dst, from);
                let reg = self.read(index.reg);
                self.put(sum(Width::W64, dst, dst, reg, index));
                self.add_imm(Width::W64, dst, dst, disp.into());
            }
            None => self.add_imm(Width::W64, dst, from, disp.into()),
        }
    }

    /// [`LEFT`] = the bytes to be done, a multiple of [`CHUNK`]; leads out if there are none.
    fn bytes_left(&mut self, count: &Count) -> Vec<super::call::Hole> {
        let limit = match count.limit {
            Operand::Reg(reg) => self.read(reg),
            Operand::Imm(limit) => {
                self.constant(LEFT, i64::from(limit) as u64);
                LEFT
            }
        };
        let counter = self.read(count.counter);
        let (a, b) = if count.down { (counter, limit) } else { (limit, counter) };
        self.put(encode::sum_reg_flags(Sum::Sub, Width::W64, LEFT, a, Shifted::plain(b)));
        let none = match count.exact {
            true => self.hole(|distance| encode::b_cond(Cc::Eq, distance)),
            false => self.hole(|distance| encode::b_cond(Cc::Ls, distance)),
        };
        if count.shift > 0 {
            self.put(encode::lsl_imm(Width::W64, LEFT, LEFT, count.shift));
        }
        self.add_imm(Width::W64, LEFT, LEFT, -1);
        if let Some(mask) = Bitmask::new(Width::W64, u64::from(CHUNK).wrapping_neg()) {
            self.put(encode::logic_imm(Logic::And, Width::W64, LEFT, LEFT, mask));
        }
        vec![none, self.hole(|distance| encode::cbz(false, Width::W64, LEFT, distance))]
    }

    /// What all rounds that are done at once add to registers.
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            let op = if step.down { Sum::Sub } else { Sum::Add };
            let reg = self.stay(step.reg);
            let by = Shifted::by(LEFT, ShiftKind::Lsr, step.shift);
            self.put(encode::sum_reg(op, Width::W64, reg, reg, by));
        }
    }

    /// [`SPARE`] = the sum of all elements.
    fn sum(&mut self, size: Size) {
        self.put(encode::clear(TOTAL));
        let next = self.code.here();
        self.put(encode::load_vector(DATA, FROM));
        for narrow in [Size::B1, Size::B2].into_iter().filter(|narrow| *narrow >= size) {
            self.put(encode::add_neighbours(narrow, DATA, DATA));
        }
        self.put(encode::accumulate_neighbours(Size::B4, TOTAL, DATA));
        self.next_chunk(next);
        self.put(encode::add_halves(TOTAL, TOTAL));
        self.put(encode::lower_half(SPARE, TOTAL));
    }

    /// Flags of a comparison with [`CHUNK`].
    fn compare_with_chunk(&mut self, reg: Gpr) {
        if let Some(imm) = Imm12::new(CHUNK.into()) {
            self.put(encode::sum_imm_flags(Sum::Sub, Width::W64, Gpr::ZR, reg, imm));
        }
    }

    /// The end of a loop over chunks that begins at `next`.
    fn next_chunk(&mut self, next: usize) {
        if let Some(imm) = Imm12::new(CHUNK.into()) {
            self.put(encode::sum_imm_flags(Sum::Sub, Width::W64, LEFT, LEFT, imm));
        }
        let back: Word = encode::b_cond(Cc::Ne, next as i64 - self.code.here() as i64);
        self.put(back);
    }
}
