//! Cache maintenance done wrong on purpose, in this crate's own tests: what shows that doing it right is needed, and that
//! the tests would see it if it were not done.
//!
//! A fault belongs to the thread that began it and ends with its guard.

use std::cell::Cell;

use super::View;

thread_local! {
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Instruction caches are not invalidated.
    NothingIsInvalidated,
    /// They are invalidated by the address that was stored through.
    TheAliasIsInvalidated,
}

/// The fault, until it is dropped.
#[must_use]
pub(crate) struct Guard(());

/// Does it wrong from here on.
pub(crate) fn begin(fault: Fault) -> Guard {
    assert_eq!(FAULT.replace(Some(fault)), None, "a thread does one thing wrong at a time");
    Guard(())
}

impl Drop for Guard {
    fn drop(&mut self) {
        FAULT.set(None);
    }
}

/// What of `view` is invalidated.
pub(super) fn invalidated(view: View) -> Option<View> {
    match FAULT.get() {
        None => Some(view),
        Some(Fault::NothingIsInvalidated) => None,
        Some(Fault::TheAliasIsInvalidated) => Some(View { executable: view.clean, ..view }),
    }
}
