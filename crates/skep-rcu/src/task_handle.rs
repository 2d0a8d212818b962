//! The owner's handle of a background task.

use std::sync::Arc;

use crate::keeper::Keeper;
use crate::tasks::{BackgroundTask, Entry};

/// Keeps a background task attached to its domain until it is dropped; made by
/// [`Domain::attach`](crate::Domain::attach).
///
/// Dropping it does not wait: a poll in progress ends later, and the keeper holds the task until then.
pub struct TaskHandle {
    keeper: Arc<Keeper>,
    entry: Arc<Entry>,
}

impl TaskHandle {
    pub(crate) fn new(keeper: Arc<Keeper>, task: Arc<dyn BackgroundTask>) -> Self {
        let entry = Entry::new(task);
        // In a forked child another thread of the parent may have held the lock.
        if keeper.is_original() {
            keeper.tasks().add(&entry);
        }
        Self { keeper, entry }
    }

    /// Makes the keeper poll the task soon. Takes no lock and allocates nothing. Costs one atomic exchange if the task
    /// was woken already, else a system call.
    pub fn wake(&self) {
        if self.entry.wake() {
            self.keeper.request_poll();
        }
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        if self.keeper.is_original() {
            let gone = self.keeper.tasks().remove(&self.entry);
            drop(gone); // outside the lock: it may drop the task
        }
    }
}
