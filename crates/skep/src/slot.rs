//! A place for a table that is replaced while threads call it.

use crate::error::Error;
use crate::ops::OpsTable;
use crate::runtime::Runtime;
use crate::shared::Shared;
use skep_rcu::Grace;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for a table of one structure, or for none. Threads call the table that is there while another thread
/// puts a new
/// one there: nobody waits, calls in progress end in the old table, and it is dropped when they have.
pub struct OpsSlot {
    shared: Arc<Shared>,
    structure: String,
    /// Never null. What was here is dropped a grace period after it was replaced.
    table: AtomicPtr<Option<OpsTable>>,
}

impl OpsSlot {
    /// An empty place for tables of that structure.
    pub fn new(runtime: &Runtime, structure: &str) -> Self {
        let table = AtomicPtr::new(Box::into_raw(Box::new(None)));
        Self { shared: Arc::clone(runtime.shared()), structure: structure.to_owned(), table }
    }

    /// Puts a table there, or none. Calls that begin later find it.
    ///
    /// # Errors
    ///
    /// [`Error::OpsTable`] for a table of another structure; the old one stays then.
    pub fn set(&self, table: Option<OpsTable>) -> Result<(), Error> {
        if let Some(table) = table.as_ref().filter(|table| table.structure() != self.structure) {
            let why = format!(
                "it is a struct {}, and the place is for struct {}",
                table.structure(),
                self.structure
            );
            return Err(Error::OpsTable { table: table.name().to_owned(), member: String::new(), why });
        }
        // Release, paired with the Acquire load of `with`: who sees the address sees the table. Acquire, paired
        // with the
        // same of the thread that put the old one there.
        let old = self.table.swap(Box::into_raw(Box::new(table)), Ordering::AcqRel);
        // SAFETY: it was made by `Box::into_raw`, and this thread alone has just replaced it.
        let old = unsafe { Box::from_raw(old) };
        self.shared.domain.call(Grace::Normal, move || drop(old));
        Ok(())
    }

    /// Passes the table that is there to `call`, which is inside a read-side critical section: it must not wait. To
    /// call
    /// functions that may sleep, use [`get`](Self::get).
    ///
    /// # Errors
    ///
    /// [`Error::Slots`] as for [`Program::run`](crate::Program::run).
    pub fn with<R>(&self, call: impl FnOnce(Option<&OpsTable>) -> R) -> Result<R, Error> {
        let _section = self.shared.domain.enter()?;
        // Acquire: pairs with the swap in `set`.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: never null; a table is dropped a grace period after it was replaced, and this thread is in a section.
        Ok(call(unsafe { &*table }.as_ref()))
    }

    /// The table that is there.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with).
    pub fn get(&self) -> Result<Option<OpsTable>, Error> {
        self.with(|table| table.cloned())
    }
}

impl Drop for OpsSlot {
    fn drop(&mut self) {
        // SAFETY: never null; no other thread has the slot any more.
        drop(unsafe { Box::from_raw(*self.table.get_mut()) });
    }
}

impl fmt::Debug for OpsSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpsSlot").field("structure", &self.structure).finish_non_exhaustive()
    }
}
