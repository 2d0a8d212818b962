//! Making every CPU that runs this process drop the instructions it fetched ahead.
//!
//! Where the architecture does not do so by itself, a CPU that fetched from a place before must execute a
//! context-synchronising event before it may run new code there; and whoever has replaced code that runs wants to know
//! when no CPU runs the old one any more. membarrier(2) with PRIVATE_EXPEDITED_SYNC_CORE has that effect on every CPU
//! that runs a thread of this process, without the threads' help.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::MembarrierCommand;

use crate::error::{Error, Step};
use crate::{arch, sys};

/// The right to synchronise: the process is registered at the latest when it is needed.
pub(crate) struct SyncCore {
    /// Relaxed everywhere: registering is for the whole process, and more than once is as good as once.
    registered: AtomicBool,
}

impl SyncCore {
    /// Registers the process where every text needs it.
    pub(crate) fn register() -> Result<Self, Error> {
        let sync_core = Self { registered: AtomicBool::new(false) };
        if arch::NEEDS_SYNC_CORE {
            sync_core.require()?;
        }
        Ok(sync_core)
    }

    /// Registers the process, unless it is.
    pub(crate) fn require(&self) -> Result<(), Error> {
        if !self.registered.load(Ordering::Relaxed) {
            sys::membarrier(Step::SyncCores, MembarrierCommand::RegisterPrivateExpeditedSyncCore)?;
            self.registered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns when every thread of the process that is running has synchronised; others do when they run.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        sys::membarrier(Step::SyncCores, MembarrierCommand::PrivateExpeditedSyncCore)
    }
}
