//! Defective cache maintenance, on purpose, for this crate's own tests: shows that correct maintenance is needed,
//! and that the tests would notice its absence.
//!
//! A defect belongs to the thread that began it and ends with its guard.

use std::cell::Cell;

use super::View;

thread_local! {
    static DEFECT: Cell<Option<Defect>> = const { Cell::new(None) };
}

/// The kind of defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Instruction caches are not invalidated.
    NothingIsInvalidated,
    /// Instruction caches are invalidated by the address that was stored through.
    TheAliasIsInvalidated,
}

/// The defect is in force until this is dropped.
#[must_use]
pub(crate) struct Guard(());

/// Puts the defect in force.
pub(crate) fn begin(defect: Defect) -> Guard {
    assert_eq!(DEFECT.replace(Some(defect)), None, "a thread does one thing wrong at a time");
    Guard(())
}

impl Drop for Guard {
    fn drop(&mut self) {
        DEFECT.set(None);
    }
}

/// The part of `view` that is invalidated.
pub(super) fn invalidated(view: View) -> Option<View> {
    match DEFECT.get() {
        None => Some(view),
        Some(Defect::NothingIsInvalidated) => None,
        Some(Defect::TheAliasIsInvalidated) => Some(View { executable: view.clean, ..view }),
    }
}
