//! loom runs the interleavings of writers that ring a bell and a reader that waits for it.

#[allow(dead_code, unreachable_pub, reason = "the models use some of it")]
#[path = "../../crates/skep-maps/src/ring/bell.rs"]
mod bell;

/// The items of `skep-maps/src/ring/sync.rs`, from loom.
mod sync {
    use std::cell::Cell;

    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};

    thread_local! {
        /// Whether fences are omitted. loom runs all threads of a model on one system thread.
        pub(crate) static NO_FENCES: Cell<bool> = const { Cell::new(false) };
    }

    pub(crate) fn fence(order: Ordering) {
        if !NO_FENCES.get() {
            loom::sync::atomic::fence(order);
        }
    }
}

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bell::Bell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sync::{AtomicU32, NO_FENCES, Ordering};

/// A bell, and something to read from each writer.
struct Model {
    bell: Bell,
    written: [AtomicU32; 2],
    lock: Mutex<()>,
    sleeps: Condvar,
}

impl Model {
    /// Not dropped after a deadlock that loom reports: dropping would panic during a panic.
    fn new() -> ManuallyDrop<Arc<Self>> {
        ManuallyDrop::new(Arc::new(Self {
            bell: Bell::new(),
            written: [AtomicU32::new(0), AtomicU32::new(0)],
            lock: Mutex::new(()),
            sleeps: Condvar::new(),
        }))
    }

    fn write(&self, writer: usize) {
        self.written[writer].store(1, Ordering::Release);
        let wake = |_: &AtomicU32| {
            // A system call that wakes whoever sleeps on the word.
            drop(self.lock.lock().unwrap());
            self.sleeps.notify_all();
        };
        self.bell.ring(wake, || ());
    }

    /// Reads what each of `writers` has written, and sleeps while something is missing and nothing new is there.
    fn read(&self, writers: usize) {
        let count = || self.written.iter().filter(|written| written.load(Ordering::Acquire) == 1).count();
        loop {
            let seen = count();
            if seen == writers {
                return;
            }
            self.bell.wait(
                || count() > seen,
                |word| {
                    // The system call compares and sleeps in one step.
                    let mut guard = self.lock.lock().unwrap();
                    while word.load(Ordering::Relaxed) == 1 {
                        guard = self.sleeps.wait(guard).unwrap();
                    }
                },
            );
        }
    }
}

fn one_reader(writers: usize) {
    let model = Model::new();
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let model = Arc::clone(&model);
            thread::spawn(move || model.write(writer))
        })
        .collect();
    model.read(writers);
    for thread in threads {
        thread.join().unwrap();
    }
    drop(ManuallyDrop::into_inner(model));
}

#[test]
fn a_reader_never_sleeps_past_what_was_written() {
    loom::model(|| one_reader(1));
}

#[test]
fn nor_with_two_writers() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| one_reader(2));
}

#[test]
fn without_fences_it_does() {
    NO_FENCES.set(true);
    let found = catch_unwind(AssertUnwindSafe(|| loom::model(|| one_reader(1))));
    NO_FENCES.set(false);
    let panic = found.expect_err("loom found nothing wrong with a bell without fences");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("deadlock"), "it failed for another reason: {text}");
}
