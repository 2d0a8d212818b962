//! Making every CPU that runs this process discard the instructions it fetched ahead.
//!
//! On some architectures a CPU that fetched from an address earlier must execute a context-synchronising event
//! before it may run new code there. And a thread that has replaced running code must know when no CPU runs the old
//! code any more. membarrier(2) with PRIVATE_EXPEDITED_SYNC_CORE forces that event on every CPU that runs a thread
//! of this process, without the threads' cooperation.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::MembarrierCommand;

use crate::arch;
use crate::error::{Error, SystemCall};
use crate::sys;

/// Synchronises CPUs; registers the process for that at the first need.
pub(crate) struct SyncCore {
    /// Relaxed everywhere: registration is per process, and repeating it does no harm.
    registered: AtomicBool,
}

impl SyncCore {
    /// Registers the process on architectures where every text needs it.
    pub(crate) fn register() -> Result<Self, Error> {
        let sync_core = Self { registered: AtomicBool::new(false) };
        if arch::NEEDS_SYNC_CORE {
            sync_core.require()?;
        }
        Ok(sync_core)
    }

    /// Registers the process, unless it is registered.
    pub(crate) fn require(&self) -> Result<(), Error> {
        if !self.registered.load(Ordering::Relaxed) {
            sys::membarrier(SystemCall::SyncCores, MembarrierCommand::RegisterPrivateExpeditedSyncCore)?;
            self.registered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns when every running thread of the process has synchronised; the others do when they run again.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        sys::membarrier(SystemCall::SyncCores, MembarrierCommand::PrivateExpeditedSyncCore)
    }
}
