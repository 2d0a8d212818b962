//! How models are run: in every order of their atomic operations, with up to three switches at moments at which a thread
//! could have gone on.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f` in every order; panics if one of them is wrong.
pub(crate) fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// Runs a model that must be found wrong, for the reason given: part of what it panics with.
pub(crate) fn must_fail(reason: &str, f: impl Fn() + Sync + Send + 'static) {
    let found = catch_unwind(AssertUnwindSafe(|| model(f)));
    let panic = found.expect_err("loom found nothing wrong with a model that is wrong");
    let text = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default();
    assert!(text.contains(reason), "the model failed for another reason: {text}");
}
