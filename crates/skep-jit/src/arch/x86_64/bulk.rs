//! Loops in bulk ([`crate::port::bulk`]), sixteen bytes at a time.
//!
//! ```text
//!   mov  r11, limit              how many bytes
//!   sub  r11, counter
//!   je   out
//!   sub  r11, 1
//!   and  r11, -16
//!   je   out
//!   lea  r9, [from]
//!   lea  r10, [to]
//!   sub  r10, r9                 less than sixteen bytes behind the source: one by one
//!   cmp  r10, 16
//!   jb   out
//!   add  counter, r11
//!   next: movdqu xmm0, [r9]
//!         movdqu [r9 + r10], xmm0
//!         add r9, 16; sub r11, 16; jne next
//!   out:
//! ```
//!
//! Vector registers are lost in calls, and no function of a program keeps anything in them. `r9` is free: it lives on
//! only with [`crate::Options::mask_speculation`], and then nothing is done in bulk.

use skep_isa::{Operand, Size, Width};

use super::encode::{self, Cc, Group1, Mem, Scale, Shift, Vector, Xmm};
use super::memory::place;
use super::regs::{Gpr, SCRATCH, SCRATCH2, SIXTH};
use super::{Emitter, gpr};
use crate::port::Bulks;
use crate::port::bulk::{Bulk, CHUNK, Count, Step, Work};

/// Where it reads.
const FROM: Gpr = SIXTH;
/// Where it writes, or how far behind the source that is.
const TO: Gpr = SCRATCH2;
/// Bytes that are left.
const LEFT: Gpr = SCRATCH;

/// So many bytes make no sum of 16-bit numbers overflow its 32 bits: 65,536 additions.
const MOST_SUMMED: i32 = 1 << 20;

const ZERO: Xmm = Xmm(2);
const TOTAL: Xmm = Xmm(1);
const DATA: Xmm = Xmm(0);
const UPPER: Xmm = Xmm(3);

impl Bulks for Emitter<'_> {
    fn bulk(&mut self, bulk: &Bulk) {
        let mut outs = self.bytes_left(&bulk.count);
        match bulk.work {
            Work::Copy { from, to } => {
                self.put(encode::address(FROM, place(from)));
                self.put(encode::address(TO, place(to)));
                self.put(encode::alu_rr(Group1::Sub, Width::W64, TO, FROM));
                self.put(encode::alu_ri(Group1::Cmp, Width::W64, TO, CHUNK as i32));
                outs.push(self.far_skip(Cc::Below));
                self.steps(&bulk.steps);
                let next = self.code.here();
                self.put(encode::load_vector(DATA, Mem::at(FROM, 0)));
                self.put(encode::store_vector(Mem::indexed(FROM, TO, Scale::X1, 0), DATA));
                self.next_chunk(FROM, next);
            }
            Work::Fill { to, value } => {
                self.put(encode::address(TO, place(to)));
                self.spread(bulk.size, value);
                self.steps(&bulk.steps);
                let next = self.code.here();
                self.put(encode::store_vector(Mem::at(TO, 0), DATA));
                self.next_chunk(TO, next);
            }
            Work::Sum { from, into, width } => {
                self.put(encode::address(FROM, place(from)));
                if bulk.size == Size::B2 {
                    self.put(encode::alu_ri(Group1::Cmp, Width::W64, LEFT, MOST_SUMMED));
                    let fits = self.skip(Some(Cc::BelowOrEqual));
                    self.put(encode::mov_ri(LEFT, MOST_SUMMED as u64));
                    self.land(fits);
                }
                self.steps(&bulk.steps);
                self.sum(bulk.size);
                self.put(encode::movq_from_xmm0(FROM));
                self.put(encode::alu_rr(Group1::Add, width, gpr(into), FROM));
            }
        }
        outs.into_iter().for_each(|out| self.land_far(out));
    }
}

impl Emitter<'_> {
    /// [`LEFT`] = the bytes to be done, a multiple of [`CHUNK`]; leads out if there are none.
    fn bytes_left(&mut self, count: &Count) -> Vec<usize> {
        let counter = gpr(count.counter);
        match (count.down, count.limit) {
            (false, Operand::Imm(limit)) => {
                self.put(encode::mov_ri(LEFT, i64::from(limit) as u64));
                self.put(encode::alu_rr(Group1::Sub, Width::W64, LEFT, counter));
            }
            (false, Operand::Reg(limit)) => {
                self.copy(LEFT, gpr(limit));
                self.put(encode::alu_rr(Group1::Sub, Width::W64, LEFT, counter));
            }
            (true, Operand::Imm(limit)) => {
                self.copy(LEFT, counter);
                self.put(encode::alu_ri(Group1::Sub, Width::W64, LEFT, limit));
            }
            (true, Operand::Reg(limit)) => {
                self.copy(LEFT, counter);
                self.put(encode::alu_rr(Group1::Sub, Width::W64, LEFT, gpr(limit)));
            }
        }
        let none = self.far_skip(if count.exact { Cc::Equal } else { Cc::BelowOrEqual });
        if count.shift > 0 {
            self.put(encode::shift_ri(Shift::Shl, Width::W64, LEFT, count.shift));
        }
        self.put(encode::alu_ri(Group1::Sub, Width::W64, LEFT, 1));
        self.put(encode::alu_ri(Group1::And, Width::W64, LEFT, -(CHUNK as i32)));
        vec![none, self.far_skip(Cc::Equal)]
    }

    /// What all rounds that are done at once add to registers.
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            if step.shift > 0 {
                self.put(encode::shift_ri(Shift::Shr, Width::W64, LEFT, step.shift));
            }
            let op = if step.down { Group1::Sub } else { Group1::Add };
            self.put(encode::alu_rr(op, Width::W64, gpr(step.reg), LEFT));
            if step.shift > 0 {
                // Nothing was lost: it is a multiple of sixteen.
                self.put(encode::shift_ri(Shift::Shl, Width::W64, LEFT, step.shift));
            }
        }
    }

    /// [`DATA`] = the value, as often as it has room.
    fn spread(&mut self, size: Size, value: Operand) {
        let from = match value {
            Operand::Reg(reg) => gpr(reg),
            Operand::Imm(imm) => {
                self.put(encode::mov_ri(FROM, i64::from(imm) as u64));
                FROM
            }
        };
        self.put(encode::movq_to_xmm0(from));
        if size == Size::B8 {
            return self.put(encode::vector(Vector::LowQuads, DATA, DATA));
        }
        if size == Size::B1 {
            self.put(encode::vector(Vector::LowBytes, DATA, DATA));
        }
        if size != Size::B4 {
            self.put(encode::vector(Vector::LowWords, DATA, DATA));
        }
        self.put(encode::spread(DATA, DATA));
    }

    /// [`DATA`] = the sum of all elements in its lower half.
    fn sum(&mut self, size: Size) {
        // Sums of 16-bit numbers are kept in eight parts of 32 bits, others in two of 64.
        let more = Xmm(4);
        for reg in [ZERO, TOTAL, more] {
            self.put(encode::vector(Vector::Xor, reg, reg));
        }
        let next = self.code.here();
        self.put(encode::load_vector(DATA, Mem::at(FROM, 0)));
        match size {
            Size::B1 => {
                self.put(encode::vector(Vector::SumBytes, DATA, ZERO));
                self.put(encode::vector(Vector::AddQuads, TOTAL, DATA));
            }
            Size::B2 => self.add_halves((Vector::LowWords, Vector::HighWords), Vector::AddDoubles, more),
            Size::B4 | Size::B8 => {
                self.add_halves((Vector::LowDoubles, Vector::HighDoubles), Vector::AddQuads, more);
            }
        }
        self.next_chunk(FROM, next);
        if size == Size::B2 {
            for part in [TOTAL, more] {
                self.put(encode::vector(Vector::Move, DATA, part));
                self.put(encode::vector(Vector::LowDoubles, part, ZERO));
                self.put(encode::vector(Vector::HighDoubles, DATA, ZERO));
                self.put(encode::vector(Vector::AddQuads, part, DATA));
            }
        }
        if size != Size::B1 {
            self.put(encode::vector(Vector::AddQuads, TOTAL, more));
        }
        self.put(encode::vector(Vector::Move, DATA, TOTAL));
        self.put(encode::vector(Vector::HighQuads, DATA, DATA));
        self.put(encode::vector(Vector::AddQuads, DATA, TOTAL));
    }

    /// Adds the lower half of the elements to [`TOTAL`] and the upper half to another register, each made wider.
    fn add_halves(&mut self, (low, high): (Vector, Vector), add: Vector, more: Xmm) {
        self.put(encode::vector(Vector::Move, UPPER, DATA));
        self.put(encode::vector(low, DATA, ZERO));
        self.put(encode::vector(high, UPPER, ZERO));
        self.put(encode::vector(add, TOTAL, DATA));
        self.put(encode::vector(add, more, UPPER));
    }

    /// The end of a loop over chunks that begins at `next`.
    fn next_chunk(&mut self, pointer: Gpr, next: usize) {
        self.put(encode::alu_ri(Group1::Add, Width::W64, pointer, CHUNK as i32));
        self.put(encode::alu_ri(Group1::Sub, Width::W64, LEFT, CHUNK as i32));
        let distance = next as i64 - self.code.here() as i64 - 2;
        debug_assert!(i8::try_from(distance).is_ok());
        self.put(encode::jcc8(Cc::NotEqual.number(), distance as i8));
    }

    /// A forward jump of any distance; no fragment may lie between.
    #[must_use]
    fn far_skip(&mut self, condition: Cc) -> usize {
        self.put(encode::jcc_rel(condition.number()));
        self.code.here()
    }

    fn land_far(&mut self, hole: usize) {
        let distance = (self.code.here() - hole) as u32;
        for (at, byte) in (hole - 4..hole).zip(distance.to_le_bytes()) {
            *self.code.byte_mut(at) = byte;
        }
        self.zero = None;
    }
}
