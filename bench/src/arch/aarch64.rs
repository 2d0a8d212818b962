//! aarch64: instructions as in the Arm Architecture Reference Manual.

#[cfg(feature = "opponents")]
use crate::Result;
#[cfg(feature = "opponents")]
use solana_sbpf::{elf::Executable, vm::ContextObject};
use std::arch::asm;

/// One instruction that does nothing.
pub(crate) const NOP: &[u8] = &[0x1f, 0x20, 0x03, 0xd5];

/// Distances from behind a patchable branch to its two targets, in bytes. In instructions from the branch, they
/// differ in each of the three lower bytes of the immediate, so that every mixture of the two is a distance of its own.
pub(crate) const DISTANCES: [usize; 2] = [0x000510 * 4 - 4, 0x010a20 * 4 - 4];

/// What a branch may jump to by mistake: every distance that has each byte of the one or of the other.
pub(crate) fn mixtures() -> Vec<usize> {
    let bytes = DISTANCES.map(|distance| (distance / 4 + 1).to_le_bytes());
    (1..7)
        .map(|choice: usize| {
            let words: usize = (0..3).map(|at| usize::from(bytes[choice >> at & 1][at]) << (8 * at)).sum();
            words * 4 - 4
        })
        .collect()
}

/// `movz w0, #value; ret`, for values of 16 bits.
pub(crate) fn returns(value: u32) -> Vec<u8> {
    let movz = 0x5280_0000 | (value & 0xffff) << 5;
    [movz.to_le_bytes(), 0xd65f_03c0_u32.to_le_bytes()].concat()
}

/// Makes this thread execute what was written there, and nothing older: the sequence of the manual for code that is
/// written, "Coherency between instruction and data caches".
///
/// # Safety
///
/// The memory is mapped, readable and executable.
pub(crate) unsafe fn synchronize(start: usize, len: usize) {
    let ctr: usize;
    // SAFETY: reads CTR_EL0, the caches' geometry, which Linux lets programs do.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) };
    // Log2 of the words in a line: DminLine, bits 16 to 19, and IminLine, bits 0 to 3.
    let lines = |log: usize| (start & !((4 << log) - 1)..start + len).step_by(4 << log);
    for address in lines(ctr >> 16 & 15) {
        // SAFETY: cleans a line of memory, which is mapped by the caller's promise.
        unsafe { asm!("dc cvau, {}", in(reg) address, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for address in lines(ctr & 15) {
        // SAFETY: forgets a line of instructions, of the same memory.
        unsafe { asm!("ic ivau, {}", in(reg) address, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// `solana-sbpf` leaves out its JIT on this architecture.
#[cfg(feature = "opponents")]
pub(crate) fn compile_by_sbpf(_: &Executable<impl ContextObject>) -> Result<()> {
    Err("it compiles for x86-64 only".into())
}

/// `rbpf` would make x86-64 code here too, which must not be run.
#[cfg(feature = "opponents")]
pub(crate) fn compile_by_rbpf(_: &mut rbpf::EbpfVmRaw<'_>) -> Result<()> {
    Err("it compiles for x86-64 only".into())
}
