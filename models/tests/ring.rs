//! loom runs the interleavings of a ring buffer's producers and consumer: the protocol is compiled here a second
//! time, with loom's atomics and a ring of a few words.

#[allow(dead_code, unreachable_pub, reason = "the models use some of it")]
#[path = "../../crates/skep-maps/src/ring/protocol.rs"]
mod protocol;

/// The items of `skep-maps/src/ring/sync.rs`, from loom.
mod sync {
    use std::cell::Cell;

    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
use std::time::Duration;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use protocol::{Control, HEADER, Next, Outcome, Place, Ring, Wakeup};
use sync::{AtomicU32, AtomicU64, NO_FENCES, Ordering};

/// The ring of a model, with records of one word.
struct Model {
    control: Control,
    words: Vec<AtomicU64>,
    lock: Mutex<()>,
    bell: Condvar,
    /// A descriptor: whether it is readable.
    readable: Mutex<bool>,
    raised: Condvar,
}

impl Model {
    /// Not dropped after a deadlock that loom reports: dropping would panic during a panic.
    fn new(words: u64) -> ManuallyDrop<Arc<Self>> {
        let size = words * HEADER;
        ManuallyDrop::new(Arc::new(Self {
            control: Control::new(size),
            words: (0..2 * words).map(|_| AtomicU64::new(0)).collect(),
            lock: Mutex::new(()),
            bell: Condvar::new(),
            readable: Mutex::new(false),
            raised: Condvar::new(),
        }))
    }

    fn ring(&self) -> Ring<'_, &Self> {
        Ring { control: &self.control, place: self }
    }

    /// Reserves a record and fills it; the offset of its header.
    fn reserve(&self, value: u64) -> Option<u64> {
        let offset = self.ring().reserve(8)?;
        let word = self.word(offset + HEADER);
        assert_eq!(word.load(Ordering::Relaxed), 0, "a record is zero when it is reserved");
        word.store(value, Ordering::Relaxed);
        Some(offset)
    }

    fn submit(&self, offset: u64) {
        self.ring().commit(offset, Outcome::Submitted, Wakeup::Usual);
    }

    /// Takes `count` records, and sleeps while there is none.
    fn take(&self, count: usize) -> Vec<u64> {
        self.take_and(count, || self.ring().sleep(None))
    }

    /// The same, and waits for a descriptor while there is none.
    fn take_by_signal(&self, count: usize) -> Vec<u64> {
        self.take_and(count, || {
            *self.readable.lock().unwrap() = false;
            if self.ring().listen() {
                let mut readable = self.readable.lock().unwrap();
                while !*readable {
                    readable = self.raised.wait(readable).unwrap();
                }
            }
        })
    }

    fn take_and(&self, count: usize, wait: impl Fn()) -> Vec<u64> {
        let mut taken = Vec::new();
        while taken.len() < count {
            match self.ring().next() {
                (position, Next::Record { len, submitted, .. }) => {
                    let offset = position % self.control.size();
                    if submitted {
                        assert_eq!(len, 8);
                        taken.push(self.word(offset + HEADER).load(Ordering::Relaxed));
                    }
                    self.ring().pass(position, len);
                }
                (_, Next::Nothing) => wait(),
            }
        }
        taken
    }
}

impl Place for &Model {
    fn word(&self, offset: u64) -> &AtomicU64 {
        &self.words[(offset / HEADER) as usize]
    }

    fn park(&self, sleeping: &AtomicU32, _: Option<Duration>) {
        let mut guard = self.lock.lock().unwrap();
        while sleeping.load(Ordering::Relaxed) == 1 {
            guard = self.bell.wait(guard).unwrap();
        }
    }

    fn wake(&self, _: &AtomicU32) {
        drop(self.lock.lock().unwrap());
        self.bell.notify_one();
    }

    fn signal(&self) {
        *self.readable.lock().unwrap() = true;
        self.raised.notify_one();
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// Runs `f` on a thread with a handle of the model.
fn spawn(model: &ManuallyDrop<Arc<Model>>, f: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let model = ManuallyDrop::new(Arc::clone(model));
    thread::spawn(move || {
        f(&model);
        drop(ManuallyDrop::into_inner(model));
    })
}

fn two_producers() {
    let model = Model::new(8);
    let producers = [1, 2].map(|value| {
        spawn(&model, move |model| {
            let record = model.reserve(value).expect("there is room for both");
            model.submit(record);
        })
    });
    let mut taken = model.take(2);
    taken.sort_unstable();
    assert_eq!(taken, [1, 2]);
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    drop(ManuallyDrop::into_inner(model));
}

/// One producer and a consumer that waits for its descriptor, before and between two records.
fn listening() {
    let model = Model::new(8);
    let producer = spawn(&model, |model| {
        for value in [1, 2] {
            let record = model.reserve(value).expect("there is room for both");
            model.submit(record);
        }
    });
    assert_eq!(model.take_by_signal(2), [1, 2]);
    producer.join().unwrap();
    drop(ManuallyDrop::into_inner(model));
}

#[test]
fn records_of_two_producers_wake_the_consumer_and_are_whole() {
    model(two_producers);
}

#[test]
fn without_the_fences_a_wake_up_is_lost() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        model(|| {
            NO_FENCES.set(true);
            two_producers();
        });
    }));
    NO_FENCES.set(false);
    let panic = found.expect_err("loom found nothing wrong with a protocol without fences");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("deadlock"), "it failed for another reason: {text}");
}

#[test]
fn records_raise_the_descriptor_of_a_consumer_that_listens() {
    model(listening);
}

#[test]
fn without_the_fences_a_signal_is_lost() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        model(|| {
            NO_FENCES.set(true);
            listening();
        });
    }));
    NO_FENCES.set(false);
    let panic = found.expect_err("loom found nothing wrong with a ring without fences");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("deadlock"), "it failed for another reason: {text}");
}

#[test]
fn reused_records_are_zero_and_whole() {
    model(|| {
        // Room for one record of two words: as in Linux, one byte always stays free.
        let model = Model::new(4);
        let producer = spawn(&model, |model| {
            for value in 1..=3 {
                let record = loop {
                    match model.reserve(value) {
                        Some(record) => break record,
                        None => thread::yield_now(),
                    }
                };
                model.submit(record);
            }
        });
        assert_eq!(model.take(3), [1, 2, 3]);
        producer.join().unwrap();
        drop(ManuallyDrop::into_inner(model));
    });
}

#[test]
fn a_reservation_that_interrupts_another_comes_after_it() {
    model(|| {
        let model = Model::new(8);
        let producer = spawn(&model, |model| {
            let outer = model.reserve(1).unwrap();
            let inner = model.reserve(2).unwrap();
            model.submit(inner);
            model.submit(outer);
        });
        assert_eq!(model.take(2), [1, 2]);
        producer.join().unwrap();
        drop(ManuallyDrop::into_inner(model));
    });
}

#[test]
fn a_discarded_record_releases_those_behind_it() {
    model(|| {
        let model = Model::new(8);
        let first = model.reserve(1).unwrap();
        let discards = spawn(&model, move |model| {
            model.ring().commit(first, Outcome::Discarded, Wakeup::Usual);
        });
        let submits = spawn(&model, |model| {
            let record = model.reserve(2).unwrap();
            model.submit(record);
        });
        assert_eq!(model.take(1), [2]);
        [discards, submits].into_iter().for_each(|thread| thread.join().unwrap());
        drop(ManuallyDrop::into_inner(model));
    });
}

/// Two producers that forward their records, of which one may find the other at it.
fn two_forwarders() {
    let model = Model::new(8);
    let forwarded = Arc::new(Mutex::new(Vec::new()));
    let producers = [1, 2].map(|value| {
        let forwarded = Arc::clone(&forwarded);
        spawn(&model, move |model| {
            let record = model.reserve(value).expect("there is room for both");
            model.ring().commit(record, Outcome::Submitted, Wakeup::Never);
            model.ring().forward(|position, _| {
                let value = model.word(position % model.control.size() + HEADER).load(Ordering::Relaxed);
                forwarded.lock().unwrap().push((position, value));
            });
        })
    });
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    let mut forwarded = forwarded.lock().unwrap().clone();
    assert!(forwarded.is_sorted(), "out of order: {forwarded:?}");
    forwarded.sort_by_key(|(_, value)| *value);
    assert_eq!(forwarded.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [1, 2], "left behind");
    drop(ManuallyDrop::into_inner(model));
}

#[test]
fn each_record_is_forwarded_once_in_order() {
    model(two_forwarders);
}

#[test]
fn without_the_fences_a_record_is_left_behind() {
    let found = catch_unwind(AssertUnwindSafe(|| {
        model(|| {
            NO_FENCES.set(true);
            two_forwarders();
        });
    }));
    NO_FENCES.set(false);
    let panic = found.expect_err("loom found nothing wrong with a protocol without fences");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("left behind"), "it failed for another reason: {text}");
}
