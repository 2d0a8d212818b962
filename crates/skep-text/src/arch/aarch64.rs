//! aarch64.
//!
//! What the hardware does: instructions are aligned words, in little-endian order in every configuration. Data and
//! instruction caches need not agree (`aarch64/cache.rs`).
//!
//! Code *being executed* may be changed from one branch or NOP to another by one aligned store: the architecture
//! guarantees that each CPU executes either the one or the other (Arm ARM, "Concurrent modification and execution of
//! instructions" lists B, BL, NOP, BRK and few more).

pub(crate) mod cache;
pub(crate) mod fault;
pub(crate) mod loads;

/// Any two addresses in a range of this size are within reach of a `BL`.
pub(crate) const MAX_RANGE: usize = 128 << 20;

/// How far a direct call reaches, both ways: `BL` has 26 bits of words, signed.
pub(crate) const REACH: usize = (128 << 20) - 4;

/// Unless its user asked for more, a range may be as small as this in order to be near: not smaller at all. A reach of
/// 128 MiB leaves too little room for code beside the host's.
pub(crate) const LEAST_NEAR: usize = MAX_RANGE;

/// The maximum distance of a range from a hint. Less than [`REACH`], so that the hint's neighbours are in reach too.
pub(crate) const NEAR: usize = 112 << 20;

/// The trap fill: `BRK #0`.
pub(crate) const TRAP: [u8; 4] = 0xd420_0000u32.to_le_bytes();

/// The unit that one store replaces in live code.
pub(crate) type Word = u32;

/// A [`Word`] in memory that other CPUs run.
pub(crate) type AtomicWord = std::sync::atomic::AtomicU32;

/// `NOP`.
pub(crate) const NOP: [u8; 4] = 0xd503_201fu32.to_le_bytes();

/// `B` at `from`, as long as [`NOP`]; `None` if out of reach.
pub(crate) fn branch(from: usize, to: usize) -> Option<[u8; 4]> {
    let distance = to.wrapping_sub(from) as isize;
    let reaches = distance % 4 == 0 && (-(1 << 27)..1 << 27).contains(&distance);
    reaches.then(|| (0x1400_0000 | (distance >> 2) as u32 & 0x03ff_ffff).to_le_bytes())
}

/// ELF's number of this machine: EM_AARCH64.
pub(crate) const ELF_MACHINE: u16 = 183;

/// Fills `len` bytes with [`TRAP`]s.
///
/// # Safety
///
/// The bytes are writable, their address and length are multiples of 4, and no other thread reads or writes them.
pub(crate) unsafe fn fill_with_traps(writable: *mut u8, len: usize) {
    let words = writable.cast::<u32>();
    for index in 0..len / 4 {
        // SAFETY: in the caller's bytes, and aligned.
        unsafe { words.add(index).write(u32::from_ne_bytes(TRAP)) };
    }
}

/// The landing pad that indirect branch targets must begin with where that is enforced: `BTI jc`, elsewhere a NOP.
pub(crate) const LANDING_PAD: [u8; 4] = 0xd503_24dfu32.to_le_bytes();

/// The protection flag that enforces landing pads in an executable mapping; 0 if unsupported.
pub(crate) fn checks_landing_pads() -> u32 {
    /// Branch target identification (Linux, "ARM64 ELF hwcaps"; asm/hwcap.h).
    const HWCAP2_BTI: usize = 1 << 17;
    /// asm/mman.h.
    const PROT_BTI: u32 = 0x10;

    let (_, capabilities) = rustix::param::linux_hwcap();
    if capabilities & HWCAP2_BTI != 0 { PROT_BTI } else { 0 }
}

/// Assembler text that loads the address of `__jit_debug_descriptor` into the return register.
macro_rules! load_gdb_descriptor {
    () => {
        "adrp x0, __jit_debug_descriptor\nadd x0, x0, :lo12:__jit_debug_descriptor"
    };
}

pub(super) use load_gdb_descriptor;
