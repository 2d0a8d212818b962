//! The promises of the slot registry, from many threads.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use skep_rcu::{Domain, Error, MAX_SLOTS, Section};

/// One plain counter for each slot, like a per-CPU map. Only a slot's owner accesses its counter.
struct PerSlot {
    counters: Vec<UnsafeCell<u64>>,
    owners: Vec<AtomicU64>,
}

// SAFETY: `with` is called with the number of a live guard only, so a counter has one user at a time, and the
// registry orders successive users. These tests check that.
unsafe impl Sync for PerSlot {}

impl PerSlot {
    fn new(limit: u32) -> Self {
        Self {
            counters: (0..limit).map(|_| UnsafeCell::new(0)).collect(),
            owners: (0..limit).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Adds one without an atomic read-modify-write, and checks that no other thread is here.
    fn with(&self, guard: &Section<'_>, me: u64) {
        let slot = guard.number() as usize;
        let before = self.owners[slot].swap(me, Ordering::Relaxed);
        assert!(before == 0 || before == me, "slot {slot} was shared by {before} and {me}");
        // SAFETY: see `Sync` above.
        unsafe { *self.counters[slot].get() += 1 };
    }

    fn leave(&self, slot: u32) {
        self.owners[slot as usize].store(0, Ordering::Relaxed);
    }

    fn total(&mut self) -> u64 {
        self.counters.iter_mut().map(|counter| *counter.get_mut()).sum()
    }
}

#[test]
fn a_thread_keeps_its_number_and_nested_entries_share_it() {
    let slots = Domain::new(4).unwrap();
    let outer = slots.enter().unwrap();
    for _ in 0..1000 {
        let inner = slots.enter().unwrap();
        let innermost = slots.enter().unwrap();
        assert_eq!((outer.number(), inner.number(), innermost.number()), (0, 0, 0));
    }
    drop(outer);
    assert_eq!(slots.in_use(), 1, "the claim outlives the guard");
    assert_eq!(slots.enter().unwrap().number(), 0);
}

#[test]
fn threads_inside_together_have_different_numbers_the_lowest_ones() {
    const THREADS: u32 = 40;
    let slots = Domain::new(100).unwrap();
    let barrier = Barrier::new(THREADS as usize);
    let mut numbers = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let guard = slots.enter().unwrap();
                    barrier.wait();
                    guard.number()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (0..THREADS).collect::<Vec<_>>());
    assert_eq!(slots.in_use(), 0, "ended threads gave their slots back");
}

#[test]
fn the_error_without_free_slots_names_a_remedy() {
    let slots = Domain::new(1).unwrap();
    drop(slots.enter().unwrap()); // claimed, though not inside
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let error = slots.enter().unwrap_err();
            assert_eq!(error, Error::NoSlot { limit: 1 });
            let text = error.to_string();
            assert!(text.contains("all 1 thread slots") && text.contains("Domain::release"), "{text}");
        });
        other.join().unwrap();
    });
    assert!(slots.release());
    thread::scope(|scope| {
        let other = scope.spawn(|| slots.enter().unwrap().number());
        assert_eq!(other.join().unwrap(), 0);
    });
}

#[test]
fn an_instance_of_no_slots_or_too_many_is_refused() {
    for wanted in [0, MAX_SLOTS + 1, u32::MAX] {
        assert_eq!(Domain::new(wanted).unwrap_err(), Error::SlotCount { wanted, max: MAX_SLOTS });
    }
    assert_eq!(Domain::new(MAX_SLOTS).unwrap().limit(), MAX_SLOTS);
}

#[test]
fn only_an_idle_slot_is_given_back() {
    let slots = Domain::new(2).unwrap();
    assert!(!slots.release(), "nothing was claimed");
    let outer = slots.enter().unwrap();
    let inner = slots.enter().unwrap();
    assert!(!slots.release());
    drop(outer);
    assert!(!slots.release(), "the order of leaving does not matter");
    drop(inner);
    assert!(slots.release());
    assert!(!slots.release(), "twice is once");
    assert_eq!(slots.in_use(), 0);
    assert_eq!(slots.enter().unwrap().number(), 0, "and the thread may come back");
}

#[test]
fn instances_are_independent_and_interleave_on_one_thread() {
    let all: Vec<Domain> = (0..20).map(|_| Domain::new(2).unwrap()).collect();
    // Another thread takes slot 0 of every odd instance first.
    let (ready, release) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guards: Vec<_> = all.iter().skip(1).step_by(2).map(|slots| slots.enter().unwrap()).collect();
            ready.wait();
            release.wait();
            drop(guards);
        });
        ready.wait();
        for _ in 0..100 {
            let guards: Vec<_> = all.iter().map(|slots| slots.enter().unwrap()).collect();
            let again: Vec<_> = all.iter().rev().map(|slots| slots.enter().unwrap()).collect();
            for (index, guard) in guards.iter().enumerate() {
                assert_eq!(guard.number() as usize, index % 2);
                assert_eq!(again[all.len() - 1 - index].number() as usize, index % 2);
            }
        }
        release.wait();
    });
}

#[test]
fn instances_come_and_go_under_threads_that_stay() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 400;
    let current: Vec<std::sync::Mutex<Option<Arc<Domain>>>> = (0..ROUNDS)
        .map(|_| std::sync::Mutex::new(Some(Arc::new(Domain::new(THREADS as u32).unwrap()))))
        .collect();
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for (round, place) in current.iter().enumerate() {
                    let slots = place.lock().unwrap().clone().unwrap();
                    let number = slots.enter().unwrap().number();
                    assert!((number as usize) < THREADS);
                    drop(slots);
                    // One thread ends the instance while every thread still remembers its claim on it.
                    if barrier.wait().is_leader() {
                        let last = place.lock().unwrap().take().unwrap();
                        assert!(last.in_use() as usize <= THREADS, "round {round}");
                        drop(last);
                    }
                }
            });
        }
    });
}

#[test]
fn no_two_threads_share_a_number_while_threads_come_and_go() {
    const LIMIT: u32 = 70; // more than one word of bits
    let slots = Arc::new(Domain::new(LIMIT).unwrap());
    let shared = Arc::new(PerSlot::new(LIMIT));
    let entered = AtomicU64::new(0);
    let refused = AtomicU64::new(0);
    let ids = AtomicU64::new(1);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..150 {
                    let work = || {
                        let me = ids.fetch_add(1, Ordering::Relaxed);
                        for _ in 0..20 {
                            let Ok(guard) = slots.enter() else {
                                refused.fetch_add(1, Ordering::Relaxed);
                                return;
                            };
                            let slot = guard.number();
                            for _ in 0..10 {
                                shared.with(&guard, me);
                                entered.fetch_add(1, Ordering::Relaxed);
                            }
                            shared.leave(slot);
                            drop(guard);
                            if round % 3 == 0 {
                                assert!(slots.release());
                            }
                        }
                    };
                    thread::scope(|inner| {
                        let threads: Vec<_> = (0..3).map(|_| inner.spawn(work)).collect();
                        threads.into_iter().for_each(|thread| thread.join().unwrap());
                    });
                }
            });
        }
    });
    assert_eq!(refused.into_inner(), 0, "24 threads at a time fit into 70 slots");
    assert_eq!(slots.in_use(), 0);
    let mut shared = Arc::into_inner(shared).unwrap();
    assert_eq!(shared.total(), entered.into_inner(), "a lost addition: two threads had one slot");
}

#[test]
fn more_threads_than_slots_are_refused_or_alone_in_theirs() {
    const LIMIT: u32 = 3;
    let slots = Domain::new(LIMIT).unwrap();
    let mut shared = PerSlot::new(LIMIT);
    let entered = AtomicU64::new(0);
    let inside = AtomicU32::new(0);
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        for me in 1..=8 {
            let (slots, shared, entered, inside, running) = (&slots, &shared, &entered, &inside, &running);
            scope.spawn(move || {
                while running.load(Ordering::Relaxed) {
                    match slots.enter() {
                        Ok(guard) => {
                            assert!(inside.fetch_add(1, Ordering::Relaxed) < LIMIT);
                            shared.with(&guard, me);
                            let so_far = entered.fetch_add(1, Ordering::Relaxed);
                            running.fetch_and(so_far < 100_000, Ordering::Relaxed);
                            shared.leave(guard.number());
                            inside.fetch_sub(1, Ordering::Relaxed);
                            drop(guard);
                            assert!(slots.release());
                        }
                        Err(error) => {
                            assert_eq!(error, Error::NoSlot { limit: LIMIT });
                            thread::yield_now();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(shared.total(), entered.into_inner());
}

#[test]
fn entries_in_thread_destructors_get_an_error_or_their_slot() {
    static SLOTS: std::sync::LazyLock<Domain> = std::sync::LazyLock::new(|| Domain::new(2).unwrap());
    static OUTCOMES: std::sync::Mutex<Vec<Result<u32, Error>>> = std::sync::Mutex::new(Vec::new());

    struct EntersWhenDropped;
    impl Drop for EntersWhenDropped {
        fn drop(&mut self) {
            let outcome = SLOTS.enter().map(|guard| guard.number());
            OUTCOMES.lock().unwrap().push(outcome);
        }
    }
    thread_local! {
        static EARLY: Cell<Option<EntersWhenDropped>> = const { Cell::new(None) };
        static LATE: Cell<Option<EntersWhenDropped>> = const { Cell::new(None) };
    }

    let ended = thread::spawn(|| {
        EARLY.set(Some(EntersWhenDropped));
        assert_eq!(SLOTS.enter().unwrap().number(), 0);
        LATE.set(Some(EntersWhenDropped));
    });
    ended.join().unwrap();
    let outcomes = std::mem::take(&mut *OUTCOMES.lock().unwrap());
    assert_eq!(outcomes.len(), 2);
    for outcome in outcomes {
        assert!(matches!(outcome, Ok(0) | Err(Error::Unavailable)), "{outcome:?}");
    }
    assert_eq!(SLOTS.in_use(), 0);
}

#[test]
fn a_guard_in_thread_local_data_returns_its_slot() {
    static SLOTS: std::sync::LazyLock<Domain> = std::sync::LazyLock::new(|| Domain::new(2).unwrap());
    thread_local! {
        static KEPT: Cell<Option<Section<'static>>> = const { Cell::new(None) };
        static TOUCHED_FIRST: Cell<Option<Section<'static>>> = const { Cell::new(None) };
    }
    for touch_first in [false, true] {
        let ended = thread::spawn(move || {
            if touch_first {
                TOUCHED_FIRST.set(None); // registers its destructor before the registry's own
                TOUCHED_FIRST.set(Some(SLOTS.enter().unwrap()));
            } else {
                KEPT.set(Some(SLOTS.enter().unwrap()));
            }
        });
        ended.join().unwrap();
        assert_eq!(SLOTS.in_use(), 0, "touched first: {touch_first}");
    }
}

#[test]
fn a_forgotten_guard_costs_its_slot_and_nothing_else() {
    let slots = Domain::new(2).unwrap();
    thread::scope(|scope| {
        let ended = scope.spawn(|| std::mem::forget(slots.enter().unwrap()));
        ended.join().unwrap();
    });
    assert_eq!(slots.in_use(), 1);
    assert_eq!(slots.enter().unwrap().number(), 1);
}

#[test]
fn any_number_of_threads_share_slots_and_none_meets_another_in_its_own() {
    const THREADS: u64 = 200;
    for (slots, shared) in [(1, 1), (4, 1), (70, 9)] {
        let domain = Domain::builder().slots(slots).shared(shared).build().unwrap();
        let mut counters = PerSlot::new(slots);
        let all_began = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            let thread = |me| {
                let (domain, counters, all_began) = (&domain, &counters, &all_began);
                scope.spawn(move || {
                    all_began.wait();
                    for round in 0..100 {
                        let outer = domain.enter().unwrap();
                        let inner = domain.enter_sleepable().unwrap();
                        assert_eq!(outer.number(), inner.number(), "nested");
                        counters.with(&outer, me);
                        if round % 2 == 0 {
                            counters.leave(outer.number());
                            drop((outer, inner));
                        } else {
                            drop(inner);
                            counters.leave(outer.number());
                            drop(outer);
                        }
                    }
                    all_began.wait();
                })
            };
            // A join waits for the destructors of thread-local data too.
            let threads: Vec<_> = (1..=THREADS).map(thread).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(counters.total(), THREADS * 100, "{shared} of {slots} shared");
        assert_eq!(domain.in_use(), 0, "all were given back");
    }
}

#[test]
fn a_shared_slot_is_given_back_by_the_last_section_or_reader() {
    let domain = Domain::builder().slots(3).shared(3).build().unwrap();
    let (normal, sleepable, reader) =
        (domain.enter().unwrap(), domain.enter_sleepable().unwrap(), domain.reader().unwrap());
    drop(normal);
    assert_eq!(domain.in_use(), 1);
    let normal = domain.enter().unwrap();
    drop(sleepable);
    assert_eq!(domain.in_use(), 1, "a section that began after another had ended");
    drop(normal);
    assert_eq!(domain.in_use(), 1, "the reader needs it");
    assert_eq!(reader.read(|| domain.enter().unwrap().number()), 0);
    drop(reader);
    assert_eq!(domain.in_use(), 0);
    assert!(!domain.release(), "there is nothing left to release");
    skep_rcu::raw::enter(&domain).unwrap();
    assert_eq!(domain.in_use(), 1);
    // SAFETY: entered above.
    unsafe { skep_rcu::raw::leave(&domain) };
    assert_eq!(domain.in_use(), 0);
}

#[test]
fn a_thread_that_ends_lets_a_waiting_thread_in() {
    let domain = Domain::builder().slots(2).shared(1).build().unwrap();
    let (ready, end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(domain.enter().unwrap());
            ready.wait();
            end.wait();
        });
        ready.wait();
        // The other thread keeps slot 0, and this one is in the shared slot.
        let inside = domain.enter().unwrap();
        assert_eq!(inside.number(), 1);
        let waits = scope.spawn(|| domain.enter().unwrap().number());
        while !waits.is_finished() && domain.in_use() < 2 {
            thread::yield_now();
        }
        end.wait();
        assert_eq!(waits.join().unwrap(), 0);
        assert_eq!(inside.number(), 1);
    });
}

#[test]
fn a_thread_inside_of_another_domain_does_not_wait() {
    let (first, second) = (Domain::builder().slots(1).shared(1).build().unwrap(), Domain::new(1).unwrap());
    let (ready, end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let inside = first.enter().unwrap();
            ready.wait();
            end.wait();
            drop(inside);
        });
        ready.wait();
        let inside = second.enter().unwrap();
        assert_eq!(first.enter().unwrap_err(), Error::NoSlot { limit: 1 });
        drop(inside);
        let reader = second.reader().unwrap();
        assert_eq!(first.enter_sleepable().unwrap_err(), Error::NoSlot { limit: 1 });
        drop(reader);
        end.wait();
        assert_eq!(first.enter().unwrap().number(), 0);
    });
}

#[test]
fn a_callback_on_a_keeper_does_not_wait() {
    let domain = Arc::new(Domain::builder().slots(1).shared(1).build().unwrap());
    let outcome = Arc::new(std::sync::Mutex::new(None));
    let inside = domain.enter().unwrap();
    let (there, result) = (skep_rcu::raw::uncounted(&domain), Arc::clone(&outcome));
    domain.defer(move || *result.lock().unwrap() = Some(there.enter().map(|inside| inside.number())));
    while outcome.lock().unwrap().is_none() {
        thread::yield_now();
    }
    assert_eq!(outcome.lock().unwrap().take(), Some(Err(Error::NoSlot { limit: 1 })));
    drop(inside);
}
