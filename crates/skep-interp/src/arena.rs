//! Accesses to the program's arena ([`ArenaLink`]), which no proof of the verifier keeps inside: the lower half of the
//! base register counts, so every access is in the window or its guards.
//!
//! | access | the page is there | it is not |
//! |---|---|---|
//! | load | the bytes | 0 |
//! | store | stores | nothing, also if only a part of the bytes is in a page that is not there |
//! | atomic operation | operates | nothing; what it fetches is 0 |
//! | misaligned atomic operation, load-acquire, store-release | as the right column | as the right column |
//!
//! The last row is because processors fault on some of them, or stop all others meanwhile.

use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use skep_abi::ArenaLink;
use skep_isa::{Insn, Reg, Size, semantics};

use crate::exec::{Registers, receives_old, value};
use crate::memory;

/// An access: how far from the arena's base, and its size.
pub(crate) fn place(insn: &Insn, regs: &Registers) -> Option<(i64, Size)> {
    let (base, offset, size) = match *insn {
        Insn::Load { size, base, offset, .. }
        | Insn::Store { size, base, offset, .. }
        | Insn::Atomic { size, base, offset, .. }
        | Insn::LoadAcquire { size, base, offset, .. }
        | Insn::StoreRelease { size, base, offset, .. } => (base, offset, size),
        _ => return None,
    };
    Some((distance(regs, base, offset), size))
}

fn distance(regs: &Registers, base: Reg, offset: i16) -> i64 {
    i64::from(regs[base.index()] as u32) + i64::from(offset)
}

/// Executes an access.
///
/// # Safety
///
/// The arena lives, and its memory is accessed by atomic operations and by programs only.
pub(crate) unsafe fn access(arena: ArenaLink, insn: &Insn, regs: &mut Registers) {
    let Some((distance, size)) = place(insn, regs) else { return };
    let at = arena.base.wrapping_add(distance.cast_unsigned());
    let aligned = at.is_multiple_of(size.bytes().into());
    // SAFETY (all accesses): loads are inside the window or its guards, which can be read; stores are in pages that are
    // there, or were a moment ago, which can be written.
    match *insn {
        Insn::Load { signed, dst, .. } => {
            // SAFETY: see above.
            let value = unsafe { memory::load(at, size, Ordering::Relaxed) };
            regs[dst.index()] = if signed { semantics::sign_extend(size, value) } else { value };
        }
        Insn::LoadAcquire { dst, .. } => {
            // SAFETY: see above. Pairs with store-releases to the same place.
            let load = || unsafe { memory::load(at, size, Ordering::Acquire) };
            regs[dst.index()] = if aligned { load() } else { 0 };
        }
        Insn::Store { src, .. } => {
            // SAFETY: see above.
            unsafe {
                if is_there(arena, distance, size) {
                    memory::store(at, size, value(regs, src), Ordering::Relaxed);
                }
            }
        }
        Insn::StoreRelease { src, .. } => {
            // SAFETY: see above. Pairs with load-acquires of the same place.
            unsafe {
                if aligned && is_there(arena, distance, size) {
                    memory::store(at, size, regs[src.index()], Ordering::Release);
                }
            }
        }
        Insn::Atomic { op, src, .. } => {
            // SAFETY: see above.
            let old = unsafe {
                match aligned && is_there(arena, distance, size) {
                    true => memory::modify(at, size, op, regs[src.index()], regs[0]),
                    false => 0,
                }
            };
            if let Some(receiver) = receives_old(op, src) {
                regs[receiver.index()] = old;
            }
        }
        _ => {}
    }
}

/// Whether the pages of the first and of the last byte are there.
///
/// # Safety
///
/// The arena lives.
unsafe fn is_there(arena: ArenaLink, distance: i64, size: Size) -> bool {
    let byte = |distance: i64| {
        let page = distance.div_euclid(ArenaLink::PAGE.into());
        let at = arena.base.wrapping_add((i64::from(arena.table) + page).cast_unsigned());
        // SAFETY: in the table, which has bytes for the guards too.
        let byte = unsafe { AtomicU8::from_ptr(ptr::with_exposed_provenance_mut(at as usize)) };
        // Acquire: pairs with the Release of an added page, which is zeroed before.
        byte.load(Ordering::Acquire) != 0
    };
    byte(distance) && byte(distance + i64::from(size.bytes()) - 1)
}
