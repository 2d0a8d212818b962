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
//! Code that *is* being executed may be changed from one branch or NOP to another by one aligned store: the
//! architecture promises that each CPU executes the one or the other (Arm ARM, "Concurrent modification and execution
//! of instructions" lists B, BL, NOP, BRK and few more).
//!
//! What may be changed: CTR_EL0.IDC and .DIC, where set, make the first or the second loop unnecessary. The
//! order, never.

pub(crate) mod fault;

use std::arch::{asm, naked_asm};
use std::ffi::c_void;

use super::View;

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

/// So many bytes of traps; on a machine with longer traps, up to the end of the last.
pub(crate) fn traps(len: usize) -> Vec<u8> {
    TRAP.repeat(len.div_ceil(TRAP.len()))
}

/// What one store replaces in live code.
pub(crate) type Word = u32;

/// A [`Word`] in memory that other CPUs run.
pub(crate) type AtomicWord = std::sync::atomic::AtomicU32;

/// `NOP`.
pub(crate) const NOP: [u8; 4] = 0xd503_201fu32.to_le_bytes();

/// `B` at `from`, as long as [`NOP`]; `None` when it does not reach.
pub(crate) fn branch(from: usize, to: usize) -> Option<[u8; 4]> {
    let distance = to.wrapping_sub(from) as isize;
    let reaches = distance % 4 == 0 && (-(1 << 27)..1 << 27).contains(&distance);
    reaches.then(|| (0x1400_0000 | (distance >> 2) as u32 & 0x03ff_ffff).to_le_bytes())
}

/// What ELF calls this machine: EM_AARCH64.
pub(crate) const ELF_MACHINE: u16 = 183;

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

/// Makes what was stored the code that is executed.
pub(crate) fn publish(views: impl Iterator<Item = View> + Clone) {
    let cache_type: u64;
    // SAFETY: CTR_EL0 is readable from user mode (Linux emulates it where it is trapped).
    unsafe { asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack, preserves_flags)) };
    let data_line = 4usize << (cache_type >> 16 & 0xf);
    let instruction_line = 4usize << (cache_type & 0xf);

    for view in views.clone() {
        for address in lines(view.clean as usize, view.len, data_line) {
            // SAFETY: cleaning a line of our own mapping changes no data; Linux allows it from user mode.
            unsafe { asm!("dc cvau, {}", in(reg) address, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for view in views {
        for address in lines(view.executable as usize, view.len, instruction_line) {
            // SAFETY: invalidating instruction lines loses nothing but time.
            unsafe { asm!("ic ivau, {}", in(reg) address, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// The address of `__jit_debug_descriptor`, the head of the list that GDB reads (24 bytes: 1 as a version, and zeros).
///
/// The symbol is local to this assembler block, so that it cannot clash with another compiler's in the process.
#[unsafe(naked)]
pub(crate) extern "C" fn gdb_descriptor() -> *mut c_void {
    naked_asm!(
        ".pushsection .data.skep_text_gdb, \"aw\", @progbits",
        ".balign 8",
        ".type __jit_debug_descriptor, @object",
        ".size __jit_debug_descriptor, 24",
        "__jit_debug_descriptor:",
        ".long 1, 0",
        ".quad 0, 0",
        ".popsection",
        "adrp x0, __jit_debug_descriptor",
        "add x0, x0, :lo12:__jit_debug_descriptor",
        "ret",
    )
}

/// `__jit_debug_register_code`, in which GDB has a breakpoint. Does nothing. Local as well.
#[unsafe(naked)]
pub(crate) extern "C" fn gdb_notify() {
    naked_asm!(
        ".type __jit_debug_register_code, @function",
        "__jit_debug_register_code:",
        "nop",
        "ret",
        ".size __jit_debug_register_code, . - __jit_debug_register_code",
    )
}

fn lines(address: usize, len: usize, line: usize) -> impl Iterator<Item = usize> {
    (address & !(line - 1)..address + len).step_by(line)
}
