//! How models are run.
//!
//! loom runs a model once for every order of its atomic operations and thread switches, up to a number of
//! preemptions. Two preemptions are enough to refute every wrong model here.
//!
//! loom discovers untried orders when it sees an operation that would have had another result before an earlier one
//! of another thread. For each variable it remembers only the last earlier operation: a load hides earlier loads from
//! a later store. So models start in several orders: each of their threads calls [`begin`] first.

use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// The threads of the model that begin late, one bit each; and the largest thread number so far plus one. loom
    /// runs all threads of a model on one system thread.
    static LATE: Cell<u32> = const { Cell::new(0) };
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Thread `number` of a model begins here; number 0, after it has started the others.
pub(crate) fn begin(number: u32) {
    COUNT.set(COUNT.get().max(number + 1));
    if LATE.get() & 1 << number != 0 {
        loom::thread::yield_now();
    }
}

/// Runs `f` in every order; panics if any of them fails.
pub(crate) fn model(f: impl Fn() + Sync + Send + 'static) {
    let f = Arc::new(f);
    COUNT.set(0);
    let mut late = 0;
    loop {
        LATE.set(late);
        let f = Arc::clone(&f);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || f());
        late += 1;
        // The last thread begins after the others in any case.
        if late >= 1 << COUNT.get().saturating_sub(1) {
            return;
        }
    }
}

/// Runs a model that must fail, with `reason` in its panic message.
pub(crate) fn must_fail(reason: &str, f: impl Fn() + Sync + Send + 'static) {
    skep_testkit::must_panic(reason, || model(f));
}
