//! Listening to cache maintenance, in this crate's own tests.
//!
//! On x86-64 unpublished code nearly always runs, so a test must check that code is published, when, and by which
//! addresses. A recording belongs to the thread that began it and ends with its guard. It holds the bytes that a CPU
//! would fetch at that moment: those of the executable view.

use std::cell::RefCell;
use std::{ptr, slice};

use super::View;
use crate::sys::inject;

thread_local! {
    static RECORD: RefCell<Option<Vec<Published>>> = const { RefCell::new(None) };
}

/// One call of [`publish`](super::publish).
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) views: Vec<Seen>,
    /// How many system calls the thread's plan had counted; 0 without a plan.
    pub(crate) calls_before: usize,
}

/// One of its views, as it was then.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) clean: usize,
    pub(crate) executable: usize,
    /// The bytes of the executable view.
    pub(crate) bytes: Vec<u8>,
}

/// The recording of this thread, until it is dropped.
#[must_use]
pub(crate) struct Guard(());

/// Begins a recording.
pub(crate) fn record() -> Guard {
    let before = RECORD.replace(Some(Vec::new()));
    assert!(before.is_none(), "a thread records once at a time");
    Guard(())
}

impl Guard {
    /// The publications since the recording began, or since the last call.
    pub(crate) fn take(&self) -> Vec<Published> {
        RECORD.with_borrow_mut(|record| record.as_mut().map(std::mem::take).unwrap_or_default())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        RECORD.set(None);
    }
}

/// Called before the machine's part is done.
pub(super) fn note(views: impl Iterator<Item = View>) {
    RECORD.with_borrow_mut(|record| {
        let Some(record) = record else { return };
        let seen = |view: View| {
            let at = ptr::with_exposed_provenance::<u8>(view.executable.addr());
            // SAFETY: the publisher owns these bytes; they are mapped readable, and no thread writes them meanwhile.
            let bytes = unsafe { slice::from_raw_parts(at, view.len) }.to_vec();
            Seen { clean: view.clean.addr(), executable: view.executable.addr(), bytes }
        };
        record.push(Published { views: views.map(seen).collect(), calls_before: inject::calls_so_far() });
    });
}
