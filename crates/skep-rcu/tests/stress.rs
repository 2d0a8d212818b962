//! Readers against updaters for a while: nothing is freed under a reader, every callback runs once.
//!
//! An object carries a canary that says whether it is alive. Freeing destroys the canary and returns the object to a
//! pool that never returns memory to the system, so a reader that comes too late reads a dead canary instead of
//! crashing. The object is filled again at once, so a still later reader sees its number change.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use skep_rcu::{Domain, Grace};

const ALIVE: u64 = 0x600d_600d_600d_600d;
const DEAD: u64 = 0xdead_dead_dead_dead;

struct Object {
    canary: AtomicU64,
    number: AtomicU64,
}

/// All objects, which are never freed. A leak checker finds them here.
static OBJECTS: Mutex<Vec<&'static Object>> = Mutex::new(Vec::new());

/// The current object, and a pool of dead ones.
struct World {
    current: AtomicPtr<Object>,
    pool: Mutex<Vec<&'static Object>>,
    made: AtomicU64,
    freed: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            current: AtomicPtr::default(),
            pool: Mutex::default(),
            made: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        };
        world.replace();
        Arc::new(world)
    }

    /// Replaces the current object by a new one and returns it, unlinked.
    fn replace(&self) -> Option<&'static Object> {
        let object = self.pool.lock().unwrap().pop().unwrap_or_else(|| {
            let object: &Object =
                Box::leak(Box::new(Object { canary: AtomicU64::new(0), number: AtomicU64::new(0) }));
            OBJECTS.lock().unwrap().push(object);
            object
        });
        object.number.store(self.made.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        object.canary.store(ALIVE, Ordering::Relaxed);
        let before = self.current.swap(std::ptr::from_ref(object).cast_mut(), Ordering::AcqRel);
        // SAFETY: null or a leaked object.
        unsafe { before.as_ref() }
    }

    fn free(&self, object: &'static Object) {
        assert_eq!(object.canary.swap(DEAD, Ordering::Relaxed), ALIVE, "freed twice");
        self.freed.fetch_add(1, Ordering::Relaxed);
        self.pool.lock().unwrap().push(object);
    }

    /// A reader: the object must stay alive and the same while the reader looks at it.
    fn look(&self, rounds: u32) {
        // SAFETY: never null after `new`, and a leaked object.
        let object = unsafe { &*self.current.load(Ordering::Acquire) };
        let number = object.number.load(Ordering::Relaxed);
        for _ in 0..rounds {
            assert_eq!(object.canary.load(Ordering::Relaxed), ALIVE, "freed under a reader");
            assert_eq!(object.number.load(Ordering::Relaxed), number, "reused under a reader");
            std::hint::spin_loop();
        }
    }
}

/// How an updater frees the objects that it has unlinked.
#[derive(Clone, Copy)]
enum Way {
    Call,
    Synchronize,
    Expedited,
    Poll,
}

fn readers_against_updaters(domain: &Domain, time: Duration) {
    for sleepable in [false, true] {
        let grace = if sleepable { Grace::Sleepable } else { Grace::Normal };
        let world = World::new();
        let running = AtomicBool::new(true);
        let sections = AtomicU64::new(0);
        thread::scope(|scope| {
            let (world, running, sections) = (&world, &running, &sections);
            let mut threads = Vec::new();
            for kind in 0..3 {
                threads.push(scope.spawn(move || {
                    while running.load(Ordering::Relaxed) {
                        match (kind, sleepable) {
                            (0, false) => domain.reader().unwrap().read(|| world.look(50)),
                            (0, true) => domain.reader().unwrap().read_sleepable(|| {
                                thread::yield_now();
                                world.look(50);
                            }),
                            // Sections that nest, and end in the order in which they began.
                            (1, false) => {
                                let outer = domain.enter().unwrap();
                                let inner = domain.enter().unwrap();
                                drop(outer);
                                world.look(20);
                                drop(inner);
                            }
                            (1, true) => {
                                let outer = domain.enter_sleepable().unwrap();
                                let inner = domain.enter_sleepable().unwrap();
                                drop(outer);
                                world.look(20);
                                drop(inner);
                            }
                            // A thread for each section, or a slot for each.
                            _ => {
                                let work = || {
                                    let normal = (!sleepable).then(|| domain.enter().unwrap());
                                    let asleep = sleepable.then(|| domain.enter_sleepable().unwrap());
                                    world.look(20);
                                    drop((normal, asleep));
                                };
                                thread::scope(|one| one.spawn(work).join().unwrap());
                                work();
                                assert!(domain.release());
                            }
                        }
                        sections.fetch_add(1, Ordering::Relaxed);
                    }
                }));
            }
            for way in [Way::Call, Way::Synchronize, Way::Expedited, Way::Poll] {
                scope.spawn(move || {
                    let mut pending = Vec::new();
                    while running.load(Ordering::Relaxed) {
                        let object = world.replace().unwrap();
                        match way {
                            Way::Call => {
                                let world = Arc::clone(world);
                                domain.call(grace, move || world.free(object));
                                if domain.stats().waiting > 1000 {
                                    domain.barrier().unwrap();
                                }
                            }
                            Way::Synchronize => {
                                domain.synchronize(grace).unwrap();
                                world.free(object);
                            }
                            Way::Expedited => {
                                domain.synchronize_expedited(grace).unwrap();
                                world.free(object);
                            }
                            Way::Poll => {
                                pending.push((domain.cookie(), object));
                                domain.try_pass(pending[0].0, grace);
                                pending.retain(|(cookie, object)| {
                                    let passed = domain.passed(*cookie, grace);
                                    if passed {
                                        world.free(object);
                                    }
                                    !passed
                                });
                            }
                        }
                    }
                    for (_, object) in pending {
                        domain.synchronize(grace).unwrap();
                        world.free(object);
                    }
                });
            }
            let end = Instant::now() + time;
            while Instant::now() < end || sections.load(Ordering::Relaxed) < 100 {
                thread::sleep(Duration::from_millis(5));
            }
            running.store(false, Ordering::Relaxed);
            // The end of the scope alone does not wait until the slots are given back.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        domain.barrier().unwrap();
        let (made, freed) = (world.made.load(Ordering::Relaxed), world.freed.load(Ordering::Relaxed));
        assert_eq!(made, freed + 1, "all but the current one are free");
    }
    assert_eq!(domain.in_use(), 0);
    let stats = domain.stats();
    assert_eq!((stats.waiting, stats.panicked, stats.membarrier_failures), (0, 0, 0), "{stats:?}");
}

#[test]
fn nothing_is_freed_under_a_reader_with_membarrier() {
    let domain = Domain::new(16).unwrap();
    readers_against_updaters(&domain, Duration::from_secs(2));
}

#[test]
fn nothing_is_freed_under_a_reader_without_membarrier() {
    let domain = Domain::builder().slots(16).membarrier(false).build().unwrap();
    readers_against_updaters(&domain, Duration::from_secs(2));
}

#[test]
fn nothing_is_freed_under_a_reader_without_a_keeper() {
    let domain = Domain::builder().slots(16).keeper(false).build().unwrap();
    readers_against_updaters(&domain, Duration::from_secs(1));
}

#[test]
fn dropping_many_domains_loses_no_callback() {
    let (queued, ran) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (queued, ran) = (&queued, &ran);
            scope.spawn(move || {
                for round in 0..100 {
                    let domain =
                        Domain::builder().slots(4).membarrier(round % 2 == 0).keeper(round % 5 != 0).build();
                    let domain = domain.unwrap();
                    for number in 0..20 {
                        let section = domain.enter().unwrap();
                        let grace = [Grace::Normal, Grace::Sleepable, Grace::Both][(number + worker) % 3];
                        let ran = Arc::clone(ran);
                        queued.fetch_add(1, Ordering::Relaxed);
                        domain.call(grace, move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                        });
                        drop(section);
                    }
                }
            });
        }
    });
    // The keepers end by themselves; no thread can wait for them. A callback is dropped a moment after it has run.
    let (queued, begin) = (queued.into_inner(), Instant::now());
    let left = || (queued - ran.load(Ordering::Relaxed), Arc::strong_count(&ran) - 1);
    while left() != (0, 0) {
        assert!(begin.elapsed() < Duration::from_secs(120), "{:?} have not run, are not dropped", left());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ran.load(Ordering::Relaxed), 4 * 100 * 20, "each ran once");
}

#[test]
fn barriers_of_many_threads_each_wait_for_their_own_callbacks() {
    for keeper in [true, false] {
        let domain = Domain::builder().keeper(keeper).build().unwrap();
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for round in 0..50u64 {
                        let mine = Arc::new(AtomicU64::new(0));
                        for grace in [Grace::Normal, Grace::Sleepable, Grace::Both] {
                            let mine = Arc::clone(&mine);
                            domain.call(grace, move || {
                                mine.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                        domain.barrier().unwrap();
                        assert_eq!(mine.load(Ordering::Relaxed), 3, "round {round}");
                    }
                });
            }
        });
    }
}
