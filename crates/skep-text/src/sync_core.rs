//! Making every CPU that runs this process drop the instructions it fetched ahead.
//!
//! Where the architecture does not do so by itself, a CPU that fetched from a place before must execute a
//! context-synchronising event before it may run new code there. membarrier(2) with PRIVATE_EXPEDITED_SYNC_CORE has
//! that effect on every CPU that runs a thread of this process, without the threads' help.

use rustix::thread::MembarrierCommand;

use crate::error::{Error, Step};
use crate::{arch, sys};

/// The right to synchronise: the process has been registered, where the architecture needs it.
pub(crate) struct SyncCore(());

impl SyncCore {
    pub(crate) fn register() -> Result<Self, Error> {
        if arch::NEEDS_SYNC_CORE {
            // Registering is for the whole process, and more than once is as good as once.
            sys::membarrier(Step::SyncCores, MembarrierCommand::RegisterPrivateExpeditedSyncCore)?;
        }
        Ok(Self(()))
    }

    /// Registers the process where the architecture did not need it so far. As good as once when done again.
    pub(crate) fn require(&self) -> Result<(), Error> {
        sys::membarrier(Step::SyncCores, MembarrierCommand::RegisterPrivateExpeditedSyncCore)
    }

    /// Returns when every thread of the process that is running has synchronised; others do when they run.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        sys::membarrier(Step::SyncCores, MembarrierCommand::PrivateExpeditedSyncCore)
    }
}
