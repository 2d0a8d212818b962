//! Expected panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a closure that must panic with a message that contains `reason`.
///
/// # Panics
///
/// If it does not panic, or panics with another message.
pub fn must_panic(reason: &str, f: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("nothing was found wrong with what is wrong");
    let text = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default();
    assert!(text.contains(reason), "it failed for another reason: {text}");
}
