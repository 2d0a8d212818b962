//! Models of readers, cookies and scans, correct and wrong.
//!
//! The object is a loom cell. loom reports a read that is concurrent with or unordered to the free ("Causality
//! violation"); an assertion reports a read after the free ("freed").

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use super::*;
use crate::model::{begin, model, must_fail};

const RACE: &str = "Causality violation";

/// Two objects; `current` says which one is linked. Object 1 replaces object 0, which is freed.
struct World {
    readers: Readers,
    current: AtomicUsize,
    alive: [UnsafeCell<bool>; 2],
    /// Passes a cookie from one thread to another.
    letter: AtomicU64,
}

impl World {
    fn new(barrier: Barrier) -> Arc<Self> {
        Arc::new(Self {
            readers: Readers::new(2, 0, barrier),
            current: AtomicUsize::new(0),
            alive: [UnsafeCell::new(true), UnsafeCell::new(true)],
            letter: AtomicU64::new(0),
        })
    }

    fn find(&self) -> usize {
        self.current.load(Ordering::Acquire)
    }

    fn read(&self, object: usize) {
        // SAFETY: what the models are about.
        let alive = self.alive[object].with(|alive| unsafe { *alive });
        assert!(alive, "freed under a reader");
    }

    fn unlink(&self) {
        self.current.store(1, Ordering::Release);
    }

    fn free(&self) {
        // SAFETY: what the models are about.
        self.alive[0].with_mut(|alive| unsafe { *alive = false });
    }

    /// Scans a few times, and frees if the cookie passes.
    fn free_after(&self, cookie: u64, flavour: usize) {
        for _ in 0..2 {
            self.readers.scan().unwrap();
            if self.readers.passed(cookie, flavour) {
                self.free();
                return;
            }
            thread::yield_now();
        }
    }

    fn update(&self, flavour: usize) {
        self.unlink();
        let cookie = self.readers.cookie();
        self.free_after(cookie, flavour);
    }
}

/// One reader against one updater.
fn two(
    barrier: Barrier,
    reader: impl Fn(&World, &Record) + Copy + Send + Sync + 'static,
    updater: impl Fn(&World) + Copy + Send + Sync + 'static,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let world = World::new(barrier);
        let there = Arc::clone(&world);
        let thread = thread::spawn(move || {
            begin(1);
            let record = there.readers.claim().unwrap();
            reader(&there, record);
            assert!(there.readers.give_back(record));
        });
        begin(0);
        updater(&world);
        thread.join().unwrap();
    }
}

fn section(world: &World, record: &Record, flavour: usize) {
    world.readers.enter(record, flavour);
    world.read(world.find());
    record.leave(flavour, || ());
}

#[test]
fn loom_nothing_is_freed_under_a_reader_of_either_flavour() {
    for flavour in [NORMAL, SLEEPABLE] {
        model(two(
            Barrier::Fences,
            move |world, record| section(world, record, flavour),
            move |world| world.update(flavour),
        ));
    }
}

#[test]
fn loom_nothing_is_freed_under_either_of_two_sections() {
    model(two(
        Barrier::Fences,
        |world, record| {
            section(world, record, NORMAL);
            section(world, record, NORMAL);
        },
        |world| world.update(NORMAL),
    ));
}

#[test]
fn loom_a_nested_section_keeps_the_epoch_of_the_outermost() {
    model(two(
        Barrier::Fences,
        |world, record| {
            world.readers.enter(record, NORMAL);
            let object = world.find();
            world.readers.enter(record, NORMAL);
            record.leave(NORMAL, || ());
            world.read(object);
            record.leave(NORMAL, || ());
        },
        |world| world.update(NORMAL),
    ));
}

#[test]
fn loom_one_thread_may_take_a_cookie_and_another_free() {
    model(|| {
        let world = World::new(Barrier::Fences);
        let (reader, updater) = (Arc::clone(&world), Arc::clone(&world));
        let threads = [
            thread::spawn(move || {
                begin(1);
                let record = reader.readers.claim().unwrap();
                section(&reader, record, NORMAL);
            }),
            thread::spawn(move || {
                begin(2);
                updater.unlink();
                let cookie = updater.readers.cookie();
                updater.letter.store(cookie, Ordering::Release);
            }),
        ];
        begin(0);
        match world.letter.load(Ordering::Acquire) {
            0 => {}
            cookie => world.free_after(cookie, NORMAL),
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn loom_a_passed_cookie_allows_freeing_whichever_thread_scanned() {
    model(|| {
        let world = World::new(Barrier::Fences);
        let (reader, scanner) = (Arc::clone(&world), Arc::clone(&world));
        let threads = [
            thread::spawn(move || {
                begin(1);
                let record = reader.readers.claim().unwrap();
                section(&reader, record, NORMAL);
            }),
            thread::spawn(move || {
                begin(2);
                scanner.readers.scan().unwrap();
            }),
        ];
        begin(0);
        world.unlink();
        let cookie = world.readers.cookie();
        if world.readers.passed(cookie, NORMAL) {
            world.free();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn loom_an_orphaned_section_is_seen_and_gives_its_slot_back() {
    model(two(
        Barrier::Fences,
        |world, record| {
            let readers = &world.readers;
            readers.enter(record, NORMAL);
            let object = world.find();
            readers.abandon(record);
            world.read(object);
            assert!(record.leave(NORMAL, || ()));
            assert!(readers.give_back(record));
            let again = readers.claim().unwrap();
            assert_eq!(again.number(), 0);
        },
        |world| world.update(NORMAL),
    ));
}

#[test]
fn loom_a_cookie_that_no_reader_blocks_passes() {
    model(|| {
        let world = World::new(Barrier::Fences);
        let there = Arc::clone(&world);
        let other = thread::spawn(move || {
            begin(1);
            let cookie = there.readers.cookie();
            there.readers.scan().unwrap();
            assert!(there.readers.passed(cookie, NORMAL) && there.readers.passed(cookie, SLEEPABLE));
        });
        begin(0);
        let cookie = world.readers.cookie();
        world.readers.scan().unwrap();
        assert!(world.readers.passed(cookie, NORMAL) && world.readers.passed(cookie, SLEEPABLE));
        other.join().unwrap();
    });
}

#[test]
fn loom_rejects_an_epoch_that_is_ahead() {
    must_fail(
        RACE,
        two(
            Barrier::Fences,
            |world, record| {
                record.begin(NORMAL, world.readers.epoch.0.load(Ordering::Acquire) + 1);
                world.read(world.find());
                record.leave(NORMAL, || ());
            },
            |world| world.update(NORMAL),
        ),
    );
}

#[test]
fn loom_rejects_a_cookie_taken_before_the_unlinking() {
    must_fail(
        RACE,
        two(
            Barrier::Fences,
            |world, record| section(world, record, NORMAL),
            |world| {
                let cookie = world.readers.cookie();
                world.unlink();
                world.free_after(cookie, NORMAL);
            },
        ),
    );
}

#[test]
fn loom_rejects_cookies_counted_by_each_thread() {
    must_fail(
        RACE,
        two(
            Barrier::Fences,
            |world, record| {
                // This thread counts its own epochs.
                record.begin(NORMAL, FENCED | 4);
                world.read(world.find());
                record.leave(NORMAL, || ());
            },
            |world| world.update(NORMAL),
        ),
    );
}

#[test]
fn loom_rejects_a_nested_section_that_takes_a_newer_epoch() {
    must_fail(
        RACE,
        two(
            Barrier::Fences,
            |world, record| {
                world.readers.enter(record, NORMAL);
                let object = world.find();
                record.begin(NORMAL, world.readers.epoch.0.load(Ordering::Acquire));
                world.read(object);
                record.leave(NORMAL, || ());
            },
            |world| world.update(NORMAL),
        ),
    );
}

#[test]
fn loom_rejects_a_scan_without_a_fence() {
    must_fail(
        RACE,
        two(Barrier::Missing, |world, record| section(world, record, NORMAL), |world| world.update(NORMAL)),
    );
}

#[test]
fn loom_rejects_a_reader_without_a_fence() {
    must_fail(
        RACE,
        two(
            Barrier::Fences,
            |world, record| {
                let epoch = world.readers.epoch.0.load(Ordering::Acquire);
                record.words[NORMAL].store(epoch, Ordering::Release);
                world.read(world.find());
                record.leave(NORMAL, || ());
            },
            |world| world.update(NORMAL),
        ),
    );
}

#[test]
fn loom_rejects_a_scan_that_reads_the_epoch_after_the_words() {
    must_fail(RACE, || {
        let world = World::new(Barrier::Fences);
        let (reader, scanner) = (Arc::clone(&world), Arc::clone(&world));
        let threads = [
            thread::spawn(move || {
                begin(1);
                let record = reader.readers.claim().unwrap();
                section(&reader, record, NORMAL);
            }),
            thread::spawn(move || {
                begin(2);
                let readers = &scanner.readers;
                readers.barrier.heavy().unwrap();
                let held_up = readers.oldest(u64::MAX);
                let now = readers.epoch.0.load(Ordering::Acquire);
                readers.publish(held_up.map(|oldest| oldest.min(now)));
            }),
        ];
        begin(0);
        world.unlink();
        let cookie = world.readers.cookie();
        if world.readers.passed(cookie, NORMAL) {
            world.free();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn loom_rejects_a_section_that_is_left_without_release() {
    must_fail(
        RACE,
        two(
            Barrier::Fences,
            |world, record| {
                world.readers.enter(record, NORMAL);
                world.read(world.find());
                record.words[NORMAL].store(0, Ordering::Relaxed);
            },
            |world| world.update(NORMAL),
        ),
    );
}

#[test]
fn loom_rejects_a_second_section_that_is_entered_without_release() {
    must_fail(
        RACE,
        two(
            Barrier::Fences,
            |world, record| {
                section(world, record, NORMAL);
                let epoch = world.readers.epoch.0.load(Ordering::Acquire);
                record.words[NORMAL].store(epoch, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                record.leave(NORMAL, || ());
            },
            |world| world.update(NORMAL),
        ),
    );
}

#[test]
fn loom_a_shared_slot_passes_between_threads_with_the_sections_of_both_flavours() {
    model(|| {
        let shared = Arc::new((Readers::new(1, 1, Barrier::Fences), UnsafeCell::new(0u32)));
        let work = |shared: &(Readers, UnsafeCell<u32>)| {
            let (readers, cell) = shared;
            let record = readers.claim_in_turn();
            readers.enter(record, NORMAL);
            readers.enter(record, SLEEPABLE);
            assert!(record.leave(NORMAL, || ()) && !readers.give_back(record), "the other section needs it");
            readers.enter(record, NORMAL);
            // SAFETY: what the model proves.
            cell.with_mut(|cell| unsafe { *cell += 1 });
            assert!(record.leave(SLEEPABLE, || ()) && !readers.give_back(record), "the new section needs it");
            assert!(record.leave(NORMAL, || ()) && readers.give_back(record));
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            begin(1);
            work(&other);
        });
        begin(0);
        work(&shared);
        thread.join().unwrap();
        assert_eq!(shared.0.slots().count(), 0);
        // SAFETY: the other thread was joined.
        assert_eq!(shared.1.with(|cell| unsafe { *cell }), 2);
    });
}
