//! How models are run: in every order of their atomic operations, with up to three switches at moments at which a thread
//! could have gone on; two where more than two threads take part.
//!
//! loom finds the orders that it has not tried yet where it sees an operation that would have gone otherwise before an earlier
//! one of another thread. Of the earlier ones it remembers the last for each thing: a load hides the loads before it from the
//! store that comes after it. So models of several parts begin with every order of the parts ([`Model::explore`]).

use std::sync::Arc;

/// A world, what threads do in it, each one part, and what is asked of it in the end.
pub(crate) struct Model<W> {
    pub(crate) begin: fn() -> W,
    pub(crate) parts: Vec<fn(&W)>,
    pub(crate) end: fn(W),
}

impl<W: 'static> Model<W> {
    /// Runs it, with each order of the parts to begin with.
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

    /// Runs a model that must be found wrong, for the reason given: part of what it panics with.
    pub(crate) fn must_fail(&self, reason: &str) {
        skep_testkit::must_panic(reason, || self.explore());
    }
}

/// Runs `f` in every order; panics if one of them is wrong.
fn run(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(f);
}
