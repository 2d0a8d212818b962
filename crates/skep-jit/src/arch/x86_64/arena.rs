//! Accesses to the program's arena ([`ArenaLink`]).
//!
//! ```text
//!   *(u64 *)(r1 + 16) = r2             r0 = *(u64 *)(r1 + 16)        r2 = atomic_fetch_add((u64 *)(r1 + 16), r2)
//!   --------------------------------   ---------------------------   -------------------------------------------
//!         mov   r10d, edi              mov   r10d, edi               mov   r10d, edi
//!         mov   r9, window             mov   r9, window              mov   r9, window
//!         lea   r11, [r10 + 16]        mov   rax, [r9 + r10 + 16]    add   r10, 16
//!         sar   r11, 12                                              test  r10b, 7
//!         cmp   byte [r9+r11+table], 0                               jne   zero
//!         je    done                                                 mov   r11, r10; sar ...; cmp ...; je zero
//!         test  r10b, 7                                              add   r9, r10
//!         je    store                                                lock  xadd [r9], rsi
//!         lea   r11, [r10 + 23]                                      jmp   done
//!         sar   r11, 12                                        zero: xor   esi, esi
//!         cmp   byte [r9+r11+table], 0                         done:
//!         je    done
//!  store: mov   [r9 + r10 + 16], rsi
//!  done:
//! ```
//!
//! The second look at the table is for stores that cross into the next page, which only misaligned ones do. Stores that
//! order memory, and atomic operations, are aligned or do nothing.

use skep_abi::ArenaLink;
use skep_isa::{AtomicOp, Operand, Reg, RegSet, Size, Width};

use super::encode::{self, Cc, Group1, Mem, Scale, Shift};
use super::regs::{Gpr, SCRATCH, SCRATCH2, SIXTH};
use super::{Emitter, Hole, gpr};
use crate::port::{Arenas, receiver};

/// The lower half of the address.
const AT: Gpr = SCRATCH2;
/// The number of a page.
const PAGE: Gpr = SCRATCH;
/// The address of offset 0.
const WINDOW: Gpr = SIXTH;

impl Arenas for Emitter<'_> {
    fn arena_load(&mut self, arena: ArenaLink, size: Size, signed: bool, dst: Reg, place: (Reg, i16)) {
        self.arena_base(arena, place.0);
        self.put(encode::load(size, signed, gpr(dst), within(place.1)));
        self.give_back();
    }

    fn arena_load_acquire(&mut self, arena: ArenaLink, size: Size, dst: Reg, place: (Reg, i16)) {
        self.arena_base(arena, place.0);
        self.add_offset(place.1);
        self.put(encode::zero(gpr(dst)));
        let misaligned = self.unless_aligned(size);
        self.put(encode::load(size, false, gpr(dst), within(0)));
        misaligned.into_iter().for_each(|hole| self.land(hole));
        self.give_back();
    }

    fn arena_store(&mut self, arena: ArenaLink, size: Size, place: (Reg, i16), src: Operand) {
        self.arena_base(arena, place.0);
        let offset = i32::from(place.1);
        let first = self.unless_there(arena, offset);
        let last = self.unless_next_there(arena, offset, size);
        let src = self.hidden_store(PAGE, size, src);
        self.put(match src {
            Ok(Operand::Reg(src)) => encode::store_r(size, within(place.1), gpr(src)),
            Ok(Operand::Imm(imm)) => encode::store_i(size, within(place.1), imm),
            Err(hidden) => encode::store_r(size, within(place.1), hidden),
        });
        self.land(first);
        last.into_iter().for_each(|hole| self.land(hole));
        self.give_back();
    }

    fn arena_store_release(&mut self, arena: ArenaLink, size: Size, place: (Reg, i16), src: Reg) {
        self.arena_base(arena, place.0);
        self.add_offset(place.1);
        let misaligned = self.unless_aligned(size);
        let absent = self.unless_there(arena, 0);
        self.put(encode::store_r(size, within(0), gpr(src)));
        misaligned.into_iter().chain([absent]).for_each(|hole| self.land(hole));
        self.give_back();
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
        self.arena_base(arena, place.0);
        self.add_offset(place.1);
        let misaligned = self.unless_aligned(size);
        let absent = self.unless_there(arena, 0);
        self.put(encode::alu_rr(Group1::Add, Width::W64, WINDOW, AT));
        self.read_modify_write(op, width, Mem::at(WINDOW, 0), src, live);
        let fetched = receiver(op, src).filter(|reg| live.contains(*reg));
        let done = fetched.map(|_| self.skip(None));
        misaligned.into_iter().chain([absent]).for_each(|hole| self.land(hole));
        fetched.into_iter().for_each(|reg| self.put(encode::zero(gpr(reg))));
        done.into_iter().for_each(|hole| self.land(hole));
        self.give_back();
    }

    fn cast_to_user(&mut self, arena: ArenaLink, dst: Reg, src: Reg) {
        self.put(encode::mov_rr(Width::W32, gpr(dst), gpr(src)));
        if arena.user == 0 {
            return;
        }
        self.put(encode::test_rr(Width::W32, gpr(dst), gpr(dst)));
        let null = self.skip(Some(Cc::Equal));
        let turn = arena.turn;
        if turn != 0 {
            self.plain_imm(Group1::Sub, Width::W32, gpr(dst), turn.cast_signed(), SCRATCH);
        }
        self.constant(SCRATCH, arena.user + u64::from(turn));
        self.put(encode::alu_rr(Group1::Add, Width::W64, gpr(dst), SCRATCH));
        self.land(null);
    }
}

impl Emitter<'_> {
    fn arena_base(&mut self, arena: ArenaLink, base: Reg) {
        self.lend();
        self.put(encode::mov_rr(Width::W32, AT, gpr(base)));
        self.put(encode::mov_ri(WINDOW, arena.base));
    }

    fn add_offset(&mut self, offset: i16) {
        if offset != 0 {
            self.put(encode::alu_ri(Group1::Add, Width::W64, AT, offset.into()));
        }
    }

    /// Jumps if [`AT`] is no multiple of the size.
    fn unless_aligned(&mut self, size: Size) -> Option<Hole> {
        if size == Size::B1 {
            return None;
        }
        self.put(encode::test_ri(Width::W32, AT, size.bytes() as i32 - 1));
        Some(self.skip(Some(Cc::NotEqual)))
    }

    /// Jumps if the access at [`AT`] plus this crosses into a page that is not there. One that is aligned crosses into
    /// none.
    fn unless_next_there(&mut self, arena: ArenaLink, distance: i32, size: Size) -> Option<Hole> {
        let bytes = size.bytes() as i32;
        if size == Size::B1 {
            return None;
        }
        let at = if distance % bytes == 0 { AT } else { PAGE };
        if at == PAGE {
            self.put(encode::lea(Width::W32, PAGE, Mem::at(AT, distance)));
        }
        self.put(encode::test_ri(Width::W32, at, bytes - 1));
        let aligned = self.skip(Some(Cc::Equal));
        let absent = self.unless_there(arena, distance + bytes - 1);
        self.land(aligned);
        Some(absent)
    }

    /// Jumps if the page of the byte at [`AT`] plus this is not there.
    fn unless_there(&mut self, arena: ArenaLink, distance: i32) -> Hole {
        match distance {
            0 => self.copy(PAGE, AT),
            _ => self.put(encode::lea(Width::W64, PAGE, Mem::at(AT, distance))),
        }
        self.put(encode::shift_ri(Shift::Sar, Width::W64, PAGE, ArenaLink::PAGE.trailing_zeros() as u8));
        self.put(encode::cmp_byte(Mem::indexed(WINDOW, PAGE, Scale::X1, arena.table), 0));
        self.skip(Some(Cc::Equal))
    }
}

/// `[window + at + offset]`
fn within(offset: i16) -> Mem {
    Mem::indexed(WINDOW, AT, Scale::X1, offset.into())
}
