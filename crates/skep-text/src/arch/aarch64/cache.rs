//! aarch64: what is stored becomes the code that is executed.
//!
//! What the hardware does: data and instruction caches need not agree. New code must be cleaned from the data
//! cache to the point of unification, then invalidated in every instruction cache, each step completed by a
//! barrier (Arm ARM, "Concurrent modification and execution of instructions" and "Implications of data and
//! instruction cache coherence"). Both operations take virtual addresses: the clean goes by the writable view
//! that was stored through, the invalidation **by the executable view**, because that is where instructions are
//! fetched; invalidating the alias leaves stale code behind. They work on whole lines, whose sizes CTR_EL0 tells; it also
//! tells where one of the steps is not needed: IDC, instructions are fetched from where data is stored; DIC, instruction
//! caches notice stores.
//!
//! What we do, after the copy and once for the whole range:
//!
//! ```text
//!     DC CVAU   every line of the writable view     not with IDC
//!     DSB ISH   the stores, and the cleaning, are done for every CPU
//!     IC IVAU   every line of the executable view   not with DIC
//!     DSB ISH   the invalidation is done in every CPU
//!     ISB       this thread fetches anew
//! ```
//!
//! Other CPUs: an instruction cache holds no old line any more, but what a CPU has fetched *into its pipeline* stays
//! there until a context-synchronising event. A thread that learns an address by an acquiring load can run such
//! leftovers only if its CPU predicted, before the load was done, a branch to the place; which takes that somebody
//! branched there before. So [`NEEDS_SYNC_CORE`] makes the arena synchronise all CPUs (membarrier) before code is handed
//! out in memory that was run before, and after pokes; and not for memory that nobody was ever sent to.
//!
//! Linux lets user mode read CTR_EL0 and do all of this; where CPUs differ it traps the reads, and answers what is right
//! for all of them, which is why nothing is remembered here. A line that is not mapped would be a fault.
//!
//! What may be changed: nothing.

use std::arch::asm;

use crate::arch::View;

/// Whether other CPUs must be made to synchronise before code in reused memory may be run.
pub(crate) const NEEDS_SYNC_CORE: bool = true;

/// The first step: what was stored is where instructions are fetched from.
pub(crate) fn clean(views: impl Iterator<Item = View>) {
    if let Some(line) = CacheType::read().line_to_clean() {
        for address in views.flat_map(|view| lines(view.clean.addr(), view.len, line)) {
            // SAFETY: cleaning a line of our own mapping changes no data; Linux allows it from user mode.
            unsafe { asm!("dc cvau, {}", in(reg) address, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
}

/// The second step: nothing that was fetched before is executed by this thread, nor found in a cache by any other.
pub(crate) fn invalidate(views: impl Iterator<Item = View>) {
    if let Some(line) = CacheType::read().line_to_invalidate() {
        for address in views.flat_map(|view| lines(view.executable.addr(), view.len, line)) {
            // SAFETY: invalidating instruction lines loses nothing but time; the view is mapped and readable.
            unsafe { asm!("ic ivau, {}", in(reg) address, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// CTR_EL0, the cache type register (Arm ARM, "CTR_EL0, Cache Type Register").
#[derive(Clone, Copy)]
struct CacheType(u64);

impl CacheType {
    fn read() -> Self {
        let value;
        // SAFETY: readable from user mode (Linux emulates it where it is trapped).
        unsafe { asm!("mrs {}, ctr_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
        Self(value)
    }

    /// Bytes of the smallest data cache line; `None` where data need not be cleaned.
    fn line_to_clean(self) -> Option<usize> {
        let Self(value) = self;
        (value >> 28 & 1 == 0).then(|| 4 << (value >> 16 & 0xf))
    }

    /// Bytes of the smallest instruction cache line; `None` where instructions need not be invalidated.
    fn line_to_invalidate(self) -> Option<usize> {
        let Self(value) = self;
        (value >> 29 & 1 == 0).then(|| 4 << (value & 0xf))
    }
}

/// The addresses of all lines that some of the `len` bytes from `address` on are in.
fn lines(address: usize, len: usize, line: usize) -> impl Iterator<Item = usize> {
    (address & !(line - 1)..address + len).step_by(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_range_is_named_once_by_its_beginning() {
        let of = |address, len, line| lines(address, len, line).collect::<Vec<_>>();
        assert_eq!(of(0x1000, 64, 64), [0x1000]);
        assert_eq!(of(0x1000, 65, 64), [0x1000, 0x1040]);
        assert_eq!(of(0x103f, 1, 64), [0x1000]);
        assert_eq!(of(0x103f, 2, 64), [0x1000, 0x1040]);
        assert_eq!(of(0x1044, 4, 32), [0x1040]);
        assert_eq!(of(0x1024, 60, 16), [0x1020, 0x1030, 0x1040, 0x1050]);
        assert_eq!(of(0x1000, 0, 64), []);
    }

    #[test]
    fn the_cache_type_tells_lines_and_what_is_not_needed() {
        let told = |value| (CacheType(value).line_to_clean(), CacheType(value).line_to_invalidate());
        assert_eq!(told(0x8444_8004), (Some(64), Some(64)), "Cortex-A53");
        assert_eq!(told(0x9444_c004), (None, Some(64)), "Neoverse V1: IDC");
        assert_eq!(told(0xb444_c004), (None, None), "IDC and DIC");
        assert_eq!(told(0xa443_8005), (Some(32), None), "DIC alone; lines of 32 bytes for data");
        assert_eq!(told(0x8443_8005), (Some(32), Some(128)), "lines of different sizes");
    }

    #[test]
    fn this_machine_has_lines_of_a_likely_size() {
        let CacheType(value) = CacheType::read();
        for shift in [value & 0xf, value >> 16 & 0xf] {
            assert!((16..=2048).contains(&(4 << shift)), "CTR_EL0 is {value:#x}");
        }
    }
}
