//! x86-64.
//!
//! What the hardware does: every byte may begin an instruction, and instructions have any length. Data and instruction
//! caches are coherent (`x86_64/cache.rs`).
//!
//! Code *being executed* is replaced by one aligned store of 8 bytes, within one cache line: a fetch gets all of it
//! or none. Measured, not guaranteed by the manuals (their cross-modifying protocol stops the other CPUs): no torn
//! execution in 1e9 calls against 3.7e7 stores (`cargo xtask bench poke --full`). A CPU may keep running the old
//! instruction until it serializes, which the membarrier at the end of a batch of pokes forces.

pub(crate) mod cache;
pub(crate) mod fault;
pub(crate) mod loads;

/// Any two addresses in a range of this size are within reach of a `rel32`, with a large margin.
pub(crate) const MAX_RANGE: usize = 1 << 30;

/// How far a direct call reaches: `rel32` counts from the end of the instruction; a page is kept for that.
pub(crate) const REACH: usize = (1 << 31) - 4096;

/// Unless its user asked for more, a range may be as small as this in order to be near.
pub(crate) const LEAST_NEAR: usize = MAX_RANGE / 8;

/// The maximum distance of a range from a hint. Less than [`REACH`], so that the hint's neighbours are in reach too.
pub(crate) const NEAR: usize = 3 << 29;

/// The trap fill: `int3`, one byte, so that every entry point traps.
pub(crate) const TRAP: [u8; 1] = [0xcc];

/// The unit that one store replaces in live code.
pub(crate) type Word = u64;

/// A [`Word`] in memory that other CPUs run.
pub(crate) type AtomicWord = std::sync::atomic::AtomicU64;

/// The 5-byte no-operation (Intel SDM volume 2, "NOP"), as long as a `jmp rel32`.
pub(crate) const NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// `jmp rel32` at `from`, as long as [`NOP`]; `None` if out of reach.
pub(crate) fn branch(from: usize, to: usize) -> Option<[u8; 5]> {
    let next = from.wrapping_add(5);
    let displacement = i32::try_from(to.wrapping_sub(next) as isize).ok()?;
    let [a, b, c, d] = displacement.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// ELF's number of this machine: EM_X86_64.
pub(crate) const ELF_MACHINE: u16 = 62;

/// Fills `len` bytes with [`TRAP`]s.
///
/// # Safety
///
/// The bytes are writable and no other thread reads or writes them.
pub(crate) unsafe fn fill_with_traps(writable: *mut u8, len: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { writable.write_bytes(TRAP[0], len) };
}

/// The landing pad that indirect branch targets must begin with: none. (Linux offers no indirect branch tracking to
/// user programs.)
pub(crate) const LANDING_PAD: [u8; 0] = [];

/// The protection flag that enforces landing pads in an executable mapping; 0 if unsupported.
pub(crate) fn checks_landing_pads() -> u32 {
    0
}

/// Assembler text that loads the address of `__jit_debug_descriptor` into the return register.
macro_rules! load_gdb_descriptor {
    () => {
        "lea rax, [rip + __jit_debug_descriptor]"
    };
}

pub(super) use load_gdb_descriptor;
