//! Running models: in every order of their atomic operations, with up to three preemptions; two for models of more
//! than two threads.
//!
//! loom discovers untried orders when it sees an operation that would have had another result before an earlier one
//! of another thread. For each variable it remembers only the last earlier operation: a load hides earlier loads from
//! a later store. So models of several parts begin with every order of the parts ([`Model::explore`]).

use std::sync::Arc;

/// An initial world, one part for each thread, and the final check.
pub(crate) struct Model<W> {
    pub(crate) begin: fn() -> W,
    pub(crate) parts: Vec<fn(&W)>,
    pub(crate) end: fn(W),
}

impl<W: 'static> Model<W> {
    /// Runs the model, starting with each order of the parts.
    pub(crate) fn explore(&self) {
        let count = self.parts.len();
        let orders = (0..count.pow(count as u32)).map(|code| {
            (0..count).map(move |digit| code / count.pow(digit as u32) % count).collect::<Vec<_>>()
        });
        for order in orders.filter(|order| (0..count).all(|part| order.contains(&part))) {
            let parts: Vec<fn(&W)> = order.iter().map(|part| self.parts[*part]).collect();
            let (begin, end) = (self.begin, self.end);
            run(if count > 2 { 2 } else { 3 }, move || {
                let world = Arc::new(begin());
                let threads = parts.iter().map(|&part| {
                    let world = Arc::clone(&world);
                    loom::thread::spawn(move || part(&world))
                });
                threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
                end(Arc::into_inner(world).unwrap());
            });
        }
    }

    /// Runs a model that must fail, with `reason` in its panic message.
    pub(crate) fn must_fail(&self, reason: &str) {
        skep_testkit::must_panic(reason, || self.explore());
    }
}

/// Runs `f` in every order; panics if any of them fails.
fn run(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(f);
}
