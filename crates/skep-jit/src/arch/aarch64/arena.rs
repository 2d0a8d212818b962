//! Accesses to the program's arena ([`ArenaLink`]).
//!
//! ```text
//!   *(u64 *)(r1 + 16) = r2            r0 = *(u64 *)(r1 + 16)     r2 = atomic_fetch_add((u64 *)(r1 + 16), r2)
//!   -------------------------------   ------------------------   -------------------------------------------
//!         mov  w16, w0                mov  w16, w0               mov  w16, w0
//!         add  x16, x16, #16          add  x16, x16, #16         add  x16, x16, #16
//!         mov  x17, table             mov  x17, window           mov  x17, table
//!         add  x15, x17, x16, asr #12 ldr  x7, [x17, x16]        tst  x16, #7
//!         ldrb w15, [x15]                                        b.ne zero
//!         cbz  w15, done                                         add  x15, ...; ldrb ...; cbz w15, zero
//!         tst  x16, #7                                           add  x17, x17, window - table
//!         b.eq store                                             add  x16, x17, x16
//!         add  x15, x16, #7                                      ldaddal x1, x1, [x16]
//!         add  x15, x17, x15, asr #12                            b    done
//!         ldrb w15, [x15]                                  zero: mov  x1, xzr
//!         cbz  w15, done                                   done:
//!  store: add  x17, x17, window - table
//!         str  x1, [x17, x16]
//!  done:
//! ```
//!
//! The second look at the table is for stores that cross into the next page, which only misaligned ones do. Stores that
//! order memory, and atomic operations, are aligned or do nothing. The processor makes no store before the branch that
//! decides on it (Arm ARM B2.3, "control dependency").

use skep_abi::ArenaLink;
use skep_isa::{AtomicOp, Operand, Reg, RegSet, Size, Width};

use super::Emitter;
use super::call::Hole;
use super::encode::{self, Bitmask, Cc, Mem, ShiftKind, Shifted, Sum};
use super::regs::{self, Gpr, RESULT, SCRATCH, SCRATCH2, SCRATCH3};
use crate::port::operand::Part;
use crate::port::{Arenas, receiver};

/// The lower half of the address with the offset.
const AT: Gpr = SCRATCH;
/// The address of the table's byte for page 0; then that of offset 0.
const WINDOW: Gpr = SCRATCH2;
/// A byte of the table, and its address.
const BYTE: Gpr = SCRATCH3;

/// `[window, at]`
const WITHIN: Mem = Mem::Index { base: WINDOW, index: AT, part: Part::Whole, scaled: false };

impl Arenas for Emitter<'_> {
    fn arena_load(&mut self, arena: ArenaLink, size: Size, signed: bool, dst: Reg, place: (Reg, i16)) {
        self.arena_offset(place);
        self.constant(WINDOW, arena.base);
        let dst = self.write(dst);
        self.put(encode::load(size, signed.then_some(Width::W64), dst, WITHIN));
    }

    fn arena_load_acquire(&mut self, arena: ArenaLink, size: Size, dst: Reg, place: (Reg, i16)) {
        self.arena_offset(place);
        self.constant(WINDOW, arena.base);
        self.put(encode::sum_reg(Sum::Add, Width::W64, WINDOW, WINDOW, Shifted::plain(AT)));
        let dst = self.stay(dst);
        self.put(encode::mov(Width::W64, dst, Gpr::ZR));
        let misaligned = self.unless_aligned(size);
        self.put(encode::load_acquire(size, dst, WINDOW));
        misaligned.into_iter().for_each(|hole| self.land(hole, 0));
    }

    fn arena_store(&mut self, arena: ArenaLink, size: Size, place: (Reg, i16), src: Operand) {
        self.arena_offset(place);
        self.arena_table(arena);
        let first = self.unless_there(0);
        let last = self.unless_next_there(size);
        self.arena_window(arena);
        let src = match src {
            Operand::Reg(src) => self.read(src),
            Operand::Imm(imm) => self.stored_in(BYTE, size, imm),
        };
        self.put(encode::store(size, src, WITHIN));
        self.land(first, 0);
        last.into_iter().for_each(|hole| self.land(hole, 0));
    }

    fn arena_store_release(&mut self, arena: ArenaLink, size: Size, place: (Reg, i16), src: Reg) {
        self.arena_offset(place);
        self.arena_table(arena);
        let misaligned = self.unless_aligned(size);
        let absent = self.unless_there(0);
        self.arena_window(arena);
        self.put(encode::sum_reg(Sum::Add, Width::W64, AT, WINDOW, Shifted::plain(AT)));
        let src = self.read(src);
        self.put(encode::store_release(size, src, AT));
        misaligned.into_iter().chain([absent]).for_each(|hole| self.land(hole, 0));
    }

    fn arena_atomic(
        &mut self,
        arena: ArenaLink,
        op: AtomicOp,
        width: Width,
        place: (Reg, i16),
        src: Reg,
        live: RegSet,
    ) {
        let size = if width == Width::W32 { Size::B4 } else { Size::B8 };
        // Every register in its own place before the first branch.
        self.exits = false;
        if std::mem::take(&mut self.result) {
            self.copy(regs::gpr(Reg::R0), RESULT);
        }
        self.arena_offset(place);
        self.arena_table(arena);
        let misaligned = self.unless_aligned(size);
        let absent = self.unless_there(0);
        self.arena_window(arena);
        self.put(encode::sum_reg(Sum::Add, Width::W64, AT, WINDOW, Shifted::plain(AT)));
        self.read_modify_write(op, width, AT, src, live);
        let fetched = receiver(op, src).filter(|reg| live.contains(*reg)).map(regs::gpr);
        let done = fetched.map(|_| self.hole(encode::b));
        misaligned.into_iter().chain([absent]).for_each(|hole| self.land(hole, 0));
        fetched.into_iter().for_each(|to| self.put(encode::mov(Width::W64, to, Gpr::ZR)));
        done.into_iter().for_each(|hole| self.land(hole, 0));
    }

    fn cast_to_user(&mut self, arena: ArenaLink, dst: Reg, src: Reg) {
        let src = self.read(src);
        self.put(encode::mov(Width::W32, AT, src));
        if arena.user != 0 {
            let null = self.hole(|distance| encode::cbz(false, Width::W32, AT, distance));
            if arena.turn != 0 {
                self.constant(WINDOW, arena.turn.into());
                self.put(encode::sum_reg(Sum::Sub, Width::W32, AT, AT, Shifted::plain(WINDOW)));
            }
            self.constant(WINDOW, arena.user + u64::from(arena.turn));
            self.put(encode::sum_reg(Sum::Add, Width::W64, AT, AT, Shifted::plain(WINDOW)));
            self.land(null, 0);
        }
        let dst = self.write(dst);
        self.put(encode::mov(Width::W64, dst, AT));
    }
}

impl Emitter<'_> {
    fn arena_offset(&mut self, (base, offset): (Reg, i16)) {
        let base = self.read(base);
        self.put(encode::mov(Width::W32, AT, base));
        if offset != 0 {
            self.add_imm(Width::W64, AT, AT, offset.into());
        }
    }

    fn arena_table(&mut self, arena: ArenaLink) {
        self.constant(WINDOW, arena.base.wrapping_add_signed(arena.table.into()));
    }

    fn arena_window(&mut self, arena: ArenaLink) {
        // One instruction: a multiple of 4096 with less than 24 bits.
        self.add_imm(Width::W64, WINDOW, WINDOW, -i64::from(arena.table));
    }

    /// Branches if [`AT`] is no multiple of the size.
    fn unless_aligned(&mut self, size: Size) -> Option<Hole> {
        let mask = Bitmask::new(Width::W64, u64::from(size.bytes()) - 1)?;
        self.put(encode::test_imm(Width::W64, AT, mask));
        Some(self.hole(|distance| encode::b_cond(Cc::Ne, distance)))
    }

    /// Branches if the access at [`AT`] crosses into a page that is not there. One that is aligned crosses into none.
    fn unless_next_there(&mut self, size: Size) -> Option<Hole> {
        let mask = Bitmask::new(Width::W64, u64::from(size.bytes()) - 1)?;
        self.put(encode::test_imm(Width::W64, AT, mask));
        let aligned = self.hole(|distance| encode::b_cond(Cc::Eq, distance));
        let absent = self.unless_there(i64::from(size.bytes()) - 1);
        self.land(aligned, 0);
        Some(absent)
    }

    /// Branches if the page of the byte at [`AT`] plus this is not there. The table is still in [`WINDOW`].
    fn unless_there(&mut self, distance: i64) -> Hole {
        let at = if distance == 0 { AT } else { BYTE };
        if distance != 0 {
            self.add_imm(Width::W64, BYTE, AT, distance);
        }
        let page = Shifted::by(at, ShiftKind::Asr, ArenaLink::PAGE.trailing_zeros() as u8);
        self.put(encode::sum_reg(Sum::Add, Width::W64, BYTE, WINDOW, page));
        self.put(encode::load(Size::B1, None, BYTE, Mem::At(BYTE, 0)));
        self.hole(|distance| encode::cbz(false, Width::W32, BYTE, distance))
    }
}
