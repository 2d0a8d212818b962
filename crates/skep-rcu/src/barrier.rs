//! The two halves of one fence: a light half that readers pay for, a heavy half that scans pay for.
//!
//! A reader stores its epoch and then reads shared pointers; a scan runs after something was unlinked and reads
//! the epochs. One of the two must see the other, which takes a full fence between the store and the loads on
//! *both* sides. membarrier(2), PRIVATE_EXPEDITED, makes every thread of the process execute a full fence (those
//! that run, by an interrupt; the others by being switched), so the readers need only keep the compiler from
//! moving their store: the reader's fence is executed by the kernel on the reader's behalf, but only when somebody
//! scans.
//!
//! ```text
//!   reader:  store epoch | light | load pointer, use what it points to
//!   scan:    (unlinked before) | heavy | load epochs
//! ```
//!
//! Where the system has no membarrier, or refuses it, both halves are ordinary fences, and every outermost section
//! pays for one. The choice is made once for each domain; the halves of different kinds do not fit together.
//!
//! loom has no membarrier: its models are of the second kind. What the first kind adds, that the kernel's fence
//! is as good as the reader's own wherever it falls, is the contract of membarrier(2).

use crate::sync::{Ordering, fence};

/// Which kind of fence a domain's readers and scans use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// Readers: nothing but the compiler's. Scans: membarrier(2).
    #[cfg(not(loom))]
    Membarrier,
    /// Both: a sequentially consistent fence.
    Fences,
    /// Models only: readers fence, and scans do not. Wrong.
    #[cfg(loom)]
    Missing,
}

impl Barrier {
    /// The best there is: registers this process for membarrier(2), where that is `wanted` and possible.
    #[cfg(not(loom))]
    pub(crate) fn new(wanted: bool) -> Self {
        use rustix::thread::{MembarrierCommand, membarrier};

        // Registering is for the whole process, and more than once is as good as once. The first expedited
        // barrier is tried at once: a filter may let only one of the two through.
        let usable = wanted
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
            // The other half is what membarrier makes this thread execute.
            Self::Membarrier => crate::sync::compiler_fence(Ordering::SeqCst),
            Self::Fences => fence(Ordering::SeqCst),
        }
    }

    /// The scan's half. An error, with its number, where the system took membarrier away after it had granted it,
    /// or is out of memory: nothing may be concluded from the epochs then.
    pub(crate) fn heavy(self) -> Result<(), i32> {
        match self {
            #[cfg(not(loom))]
            Self::Membarrier => {
                // The system call orders what stands before and after it; the fences tell the compiler.
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
