//! loom runs the interleavings of calls that use a map's values and of a thread that replaces them.

#[allow(dead_code, reason = "the model uses some of it")]
#[path = "../../crates/skep-preload/src/gate.rs"]
mod gate;

/// The items of `skep-preload/src/sync.rs`, from loom.
mod sync {
    use std::cell::Cell;

    pub(crate) use loom::sync::atomic::Ordering;

    thread_local! {
        /// Whether all orders are relaxed. loom runs all threads of a model on one system thread.
        pub(crate) static RELAXED: Cell<bool> = const { Cell::new(false) };
    }

    fn order(given: Ordering) -> Ordering {
        if RELAXED.get() { Ordering::Relaxed } else { given }
    }

    /// loom's word, with the orders that the test wants.
    #[derive(Debug)]
    pub(crate) struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub(crate) fn new(word: u32) -> Self {
            Self(loom::sync::atomic::AtomicU32::new(word))
        }

        pub(crate) fn load(&self, given: Ordering) -> u32 {
            self.0.load(order(given))
        }

        pub(crate) fn fetch_add(&self, number: u32, given: Ordering) -> u32 {
            self.0.fetch_add(number, order(given))
        }

        pub(crate) fn fetch_sub(&self, number: u32, given: Ordering) -> u32 {
            self.0.fetch_sub(number, order(given))
        }

        pub(crate) fn fetch_and(&self, bits: u32, given: Ordering) -> u32 {
            self.0.fetch_and(bits, order(given))
        }

        pub(crate) fn fetch_or(&self, bits: u32, given: Ordering) -> u32 {
            self.0.fetch_or(bits, order(given))
        }
    }
}

use gate::Gate;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use sync::{AtomicU32, RELAXED};

/// What is behind a gate. loom reports each access that overlaps a replacement.
struct Model {
    gate: Gate,
    values: UnsafeCell<u32>,
}

impl Model {
    fn use_it(&self) {
        if self.gate.enter() {
            // SAFETY: whoever is in may read; loom checks that nobody writes meanwhile.
            let found = self.values.with(|values| unsafe { *values });
            assert!(found == 1 || found == 2, "{found}");
            self.gate.leave();
        }
    }

    fn put(&self, value: u32) {
        // SAFETY: the gate is empty; loom checks that nobody reads meanwhile.
        self.values.with_mut(|values| unsafe { *values = value });
        self.gate.open();
    }
}

fn replaced_under(users: usize, waits: bool) {
    let model = Arc::new(Model { gate: Gate::new(AtomicU32::new(0)), values: UnsafeCell::new(0) });
    model.put(1);
    let users: Vec<_> = (0..users)
        .map(|_| {
            let model = Arc::clone(&model);
            thread::spawn(move || model.use_it())
        })
        .collect();
    model.gate.close();
    if !waits || model.gate.is_empty() {
        model.put(2);
    }
    users.into_iter().for_each(|user| user.join().unwrap());
}

fn fails(model: impl Fn() + Sync + Send + 'static) {
    let found = catch_unwind(AssertUnwindSafe(|| loom::model(model)));
    let panic = found.expect_err("loom found nothing wrong");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("ausality") || text.contains("oncurrent"), "it failed for another reason: {text}");
}

#[test]
fn nobody_uses_what_is_replaced() {
    loom::model(|| replaced_under(1, true));
    loom::model(|| replaced_under(2, true));
}

#[test]
fn a_replacement_that_does_not_wait_for_users_is_found() {
    fails(|| replaced_under(1, false));
}

#[test]
fn without_its_orders_it_is_no_gate() {
    RELAXED.set(true);
    let found = catch_unwind(|| fails(|| replaced_under(1, true)));
    RELAXED.set(false);
    found.unwrap();
}
