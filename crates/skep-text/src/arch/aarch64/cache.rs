//! aarch64: cache maintenance that makes stored bytes executable code.
//!
//! The hardware: data and instruction caches need not agree. New code must be cleaned from the data cache to the
//! point of unification, then invalidated in every instruction cache, each step completed by a barrier (Arm ARM,
//! "Concurrent modification and execution of instructions" and "Implications of data and instruction cache
//! coherence"). Both operations take virtual addresses: the clean uses the writable view that was stored through,
//! the invalidation **the executable view**, because instructions are fetched there; invalidating the alias leaves
//! stale code behind. They work on whole lines, whose sizes are in CTR_EL0. That register also says which step is
//! unnecessary: with IDC, instructions are fetched from where data is stored; with DIC, instruction caches notice
//! stores.
//!
//! The sequence, after the copy and once for the whole range:
//!
//! ```text
//!     DC CVAU   every line of the writable view     not with IDC
//!     DSB ISH   the stores, and the cleaning, are done for every CPU
//!     IC IVAU   every line of the executable view   not with DIC
//!     DSB ISH   the invalidation is done in every CPU
//!     ISB       this thread fetches anew
//! ```
//!
//! Other CPUs: no instruction cache holds an old line any more, but a CPU keeps what it has fetched *into its
//! pipeline* until a context-synchronising event. A thread that learns an address by an acquiring load can run such
//! leftovers only if its CPU predicted a branch to that address before the load was complete, and so only if some
//! thread branched there earlier. So [`NEEDS_SYNC_CORE`] makes the arena synchronise all CPUs (membarrier) after
//! pokes, and before it publishes code in memory that held code earlier; not for memory whose addresses were never
//! published.
//!
//! Linux lets user mode read CTR_EL0 and do all of this. If CPUs differ it traps the reads and returns values that
//! are right for all of them, so the values are not cached here. Maintenance of an unmapped line would fault.
//!
//! What may be changed: nothing.

use std::arch::asm;

use crate::arch::View;

/// Whether other CPUs must synchronise before code in reused memory may run.
pub(crate) const NEEDS_SYNC_CORE: bool = true;

/// The first step: instruction fetches will find the stored bytes.
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

/// The second step: this thread executes no older bytes, and no CPU finds them in a cache.
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
