//! How models are run.
//!
//! loom runs a model again and again, once for every order of its atomic operations and switches between threads, up
//! to a number of switches at moments at which a thread could have gone on. Every wrong model here is found with two.
//!
//! It finds the orders that it has not tried yet where it sees an operation that would have gone otherwise before an earlier
//! one of another thread. Of the earlier ones it remembers the last for each thing: a load hides the loads before it from the
//! store that comes after it. So models begin in several orders: each of their threads calls [`begin`] first.

use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    /// The threads of the model that begin late, a bit each, and one more than the greatest number that was seen. loom runs all
    /// threads of a model on one of the system's.
    static LATE: Cell<u32> = const { Cell::new(0) };
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Thread `number` of a model begins here: number 0, which started the others, when it has done so.
pub(crate) fn begin(number: u32) {
    COUNT.set(COUNT.get().max(number + 1));
    if LATE.get() & 1 << number != 0 {
        loom::thread::yield_now();
    }
}

/// Runs `f` in every order; panics if one of them is wrong.
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
        // The last thread begins after the others as it is.
        if late >= 1 << COUNT.get().saturating_sub(1) {
            return;
        }
    }
}

/// Runs a model that must be found wrong, for the reason given: part of what it panics with.
pub(crate) fn must_fail(reason: &str, f: impl Fn() + Sync + Send + 'static) {
    skep_testkit::must_panic(reason, || model(f));
}
