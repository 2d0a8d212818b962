//! aarch64.
//!
//! What the hardware does: data and instruction caches need not agree. New code must be cleaned from the data
//! cache to the point of unification, then invalidated in every instruction cache, each step completed by a
//! barrier (Arm ARM, "Concurrent modification and execution of instructions" and "Implications of data and
//! instruction cache coherence"). Both operations take virtual addresses: the clean goes by the writable view
//! that was stored through, the invalidation **by the executable view**, because that is where instructions are
//! fetched; invalidating the alias leaves stale code behind.
//!
//! What we do: DC CVAU over the writable view, DSB ISH, IC IVAU over the executable view, DSB ISH, ISB, after
//! the copy and once for the whole range. The ISB is for the thread that writes. Other CPUs may have fetched
//! from memory that held code before; [`NEEDS_SYNC_CORE`] makes the arena synchronise them (membarrier) before
//! such memory is handed out again.
//!
//! What may be changed: CTR_EL0.IDC and .DIC, where set, make the first or the second loop unnecessary. The
//! order, never.

use std::arch::asm;

/// Any two places in a range of this size are within a `BL` of each other.
pub(crate) const MAX_RANGE: usize = 128 << 20;

/// How far a direct call reaches: `BL` has 26 bits of words, signed; a page is kept to spare.
pub(crate) const REACH: usize = (128 << 20) - 4096;

/// How far from a hint a range may be. Less than [`REACH`], so that the hint's neighbours are reached too.
pub(crate) const NEAR: usize = 112 << 20;

/// Whether other CPUs must be made to synchronise before code in reused memory may be run.
pub(crate) const NEEDS_SYNC_CORE: bool = true;

/// The trap that holes are filled with: `BRK #0`. Instructions are little-endian in every configuration.
pub(crate) const TRAP: [u8; 4] = 0xd420_0000u32.to_le_bytes();

/// What one store replaces whole, for every CPU that runs it.
pub(crate) type Word = u32;

/// A [`Word`] in memory that other CPUs run.
pub(crate) type AtomicWord = std::sync::atomic::AtomicU32;

/// Fills `len` bytes with [`TRAP`]s.
///
/// # Safety
///
/// The bytes are writable, start at a multiple of 4, are a multiple of 4, and nobody else reads or writes them.
pub(crate) unsafe fn fill_with_traps(writable: *mut u8, len: usize) {
    let words = writable.cast::<u32>();
    for index in 0..len / 4 {
        // SAFETY: within the caller's bytes and aligned.
        unsafe { words.add(index).write(u32::from_ne_bytes(TRAP)) };
    }
}

/// Makes what was stored at `writable` the code that is executed at `executable`.
///
/// # Safety
///
/// Both are views of the same `len` bytes.
pub(crate) unsafe fn publish(writable: *mut u8, executable: *const u8, len: usize) {
    let cache_type: u64;
    // SAFETY: CTR_EL0 is readable from user mode (Linux emulates it where it is trapped).
    unsafe { asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack, preserves_flags)) };
    let data_line = 4usize << (cache_type >> 16 & 0xf);
    let instruction_line = 4usize << (cache_type & 0xf);

    for address in lines(writable as usize, len, data_line) {
        // SAFETY: cleaning a line of our own mapping changes no data; Linux allows it from user mode.
        unsafe { asm!("dc cvau, {}", in(reg) address, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for address in lines(executable as usize, len, instruction_line) {
        // SAFETY: invalidating instruction lines loses nothing but time.
        unsafe { asm!("ic ivau, {}", in(reg) address, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

fn lines(address: usize, len: usize, line: usize) -> impl Iterator<Item = usize> {
    (address & !(line - 1)..address + len).step_by(line)
}
