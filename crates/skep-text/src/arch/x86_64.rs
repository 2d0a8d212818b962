//! x86-64.
//!
//! What the hardware does: every byte may begin an instruction, and instructions have any length. Data and instruction
//! caches are coherent (`x86_64/cache.rs`).
//!
//! Code that *is* being executed is replaced by one aligned store of 8 bytes, within one cache line: a fetch gets all
//! of it or nothing. Measured, not promised by the manuals (their cross-modifying protocol stops the other CPUs): no
//! torn execution in 1e9 calls against 3.7e7 stores (`cargo xtask bench poke --full`). When a CPU goes over to the new
//! instruction is up to it until it serializes, which the membarrier that ends a batch of pokes makes it do.

pub(crate) mod cache;
pub(crate) mod fault;
pub(crate) mod loads;

/// Any two places in a range of this size are within a `rel32` of each other, with much to spare.
pub(crate) const MAX_RANGE: usize = 1 << 30;

/// How far a direct call reaches: `rel32` counts from the end of the instruction; a page is kept for that.
pub(crate) const REACH: usize = (1 << 31) - 4096;

/// How far from a hint a range may be. Less than [`REACH`], so that the hint's neighbours are reached too.
pub(crate) const NEAR: usize = 3 << 29;

/// The trap that holes are filled with: `int3`, one byte, so that every entry point traps.
pub(crate) const TRAP: [u8; 1] = [0xcc];

/// What one store replaces in live code.
pub(crate) type Word = u64;

/// A [`Word`] in memory that other CPUs run.
pub(crate) type AtomicWord = std::sync::atomic::AtomicU64;

/// The 5-byte no-operation (Intel SDM volume 2, "NOP"), as long as a `jmp rel32`.
pub(crate) const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// `jmp rel32` at `from`, as long as [`NOP`]; `None` when it does not reach.
pub(crate) fn branch(from: usize, to: usize) -> Option<[u8; 5]> {
    let next = from.wrapping_add(5);
    let displacement = i32::try_from(to.wrapping_sub(next) as isize).ok()?;
    let [a, b, c, d] = displacement.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// What ELF calls this machine: EM_X86_64.
pub(crate) const ELF_MACHINE: u16 = 62;

/// Fills `len` bytes with [`TRAP`]s.
///
/// # Safety
///
/// The bytes are writable and nobody else reads or writes them.
pub(crate) unsafe fn fill_with_traps(writable: *mut u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { writable.write_bytes(TRAP[0], len) };
}

/// What code that is reached by an indirect branch must begin with where that is checked: nothing. (Linux gives no
/// user program indirect branch tracking.)
pub(crate) const LANDING_PAD: [u8; 0] = [];

/// What an executable mapping's protection has besides reading and execution so that landing pads are checked in it; 0
/// where they are not.
pub(crate) fn checks_landing_pads() -> u32 {
    0
}

/// Assembles: loads the address of `__jit_debug_descriptor` into the register that functions return.
macro_rules! load_gdb_descriptor {
    () => {
        "lea rax, [rip + __jit_debug_descriptor]"
    };
}

pub(super) use load_gdb_descriptor;
