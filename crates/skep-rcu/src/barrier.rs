//! The asymmetric fence: a light half for readers, a heavy half for scans.
//!
//! A reader stores its epoch and then loads shared pointers; a scan comes after an unlinking and loads the epochs. At
//! least one of the two must see the other's store, which takes a full fence between store and loads on *both* sides.
//! membarrier(2), PRIVATE_EXPEDITED, makes every thread of the process execute a full fence: running threads by an
//! interrupt, others when they are switched. So readers only keep the compiler from moving the store: the kernel
//! executes their fence, and only when a thread scans.
//!
//! ```text
//!   reader:  store epoch | light | load pointer, use what it points to
//!   scan:    (unlinked before) | heavy | load epochs
//! ```
//!
//! If the system has no membarrier, or refuses it, both halves are ordinary fences, and every outermost section pays
//! for one. The choice is made once for each domain, because halves of different kinds do not match.
//!
//! loom has no membarrier: its models use ordinary fences. That the kernel's fence is as good as the reader's own,
//! wherever it occurs, is the contract of membarrier(2).

use crate::sync::{Ordering, fence};

/// The kind of fence of a domain's readers and scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// Readers: a compiler fence. Scans: membarrier(2).
    #[cfg(not(loom))]
    Membarrier,
    /// Both: a sequentially consistent fence.
    Fences,
    /// Models only: readers fence, scans do not. Wrong.
    #[cfg(loom)]
    Missing,
}

impl Barrier {
    /// The best available kind: registers this process for membarrier(2), if that is `wanted` and possible.
    #[cfg(not(loom))]
    pub(crate) fn new(wanted: bool) -> Self {
        use rustix::thread::{MembarrierCommand, membarrier};

        // Registration is for the whole process and may be repeated. The first expedited barrier is tried at once,
        // because a filter may allow only one of the two calls. Miri knows neither: readers fence there.
        let usable = wanted
            && !cfg!(miri)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        if usable { Self::Membarrier } else { Self::Fences }
    }

    /// Whether readers must fence.
    pub(crate) fn readers_fence(self) -> bool {
        match self {
            #[cfg(not(loom))]
            Self::Membarrier => false,
            Self::Fences => true,
            #[cfg(loom)]
            Self::Missing => true,
        }
    }

    /// The readers' half.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn light(self) {
        match self {
            // The other half is the fence that membarrier makes this thread execute.
            Self::Membarrier => crate::sync::compiler_fence(Ordering::SeqCst),
            Self::Fences => fence(Ordering::SeqCst),
        }
    }

    /// The scan's half. Fails, with the error number, if the system refuses membarrier after it had granted it, or is
    /// out of memory: the epochs prove nothing then.
    pub(crate) fn heavy(self) -> Result<(), i32> {
        match self {
            #[cfg(not(loom))]
            Self::Membarrier => {
                // The system call orders everything before and after it; the fences restrain the compiler.
                fence(Ordering::SeqCst);
                let result = rustix::thread::membarrier(rustix::thread::MembarrierCommand::PrivateExpedited);
                fence(Ordering::SeqCst);
                result.map_err(rustix::io::Errno::raw_os_error)
            }
            Self::Fences => {
                fence(Ordering::SeqCst);
                Ok(())
            }
            #[cfg(loom)]
            Self::Missing => Ok(()),
        }
    }
}
