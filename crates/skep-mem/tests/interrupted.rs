//! Signal handlers that allocate and free in the middle of an allocation or a free: no object is lost or handed out
//! twice.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use skep_mem::{Cache, CacheOptions, Policy};
use skep_rcu::Domain;
use skep_testkit::interrupt;

static CACHE: AtomicPtr<Cache> = AtomicPtr::new(std::ptr::null_mut());
static SLOT: AtomicU32 = AtomicU32::new(0);
/// How often the handler had an object, and the object that it keeps to free the next time.
static HANDLED: AtomicU64 = AtomicU64::new(0);
static THREAD: AtomicU64 = AtomicU64::new(0);
static KEPT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// Operations of the interrupted thread outside of handlers.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// An object's owner, in its first word; 0 for none.
fn owner(object: NonNull<u8>) -> &'static AtomicU64 {
    // SAFETY: objects here have 24 bytes, this word is only accessed as an atomic, and objects outlive their use.
    unsafe { object.cast::<AtomicU64>().as_ref() }
}

extern "C" fn handler(_: libc::c_int) {
    // SAFETY: set before the first signal, and the cache lives until after the last. The handler runs on the thread
    // that has the slot, inside the section that it interrupted.
    unsafe {
        let (cache, cpu) = (&*CACHE.load(Ordering::Relaxed), SLOT.load(Ordering::Relaxed));
        if let Ok(object) = cache.alloc(cpu) {
            assert_eq!(owner(object).swap(2, Ordering::Relaxed), 0);
            HANDLED.fetch_add(1, Ordering::Relaxed);
            // One object is kept from signal to signal, so that frees interrupt allocations too.
            if let Some(old) = NonNull::new(KEPT.swap(object.as_ptr(), Ordering::Relaxed)) {
                assert_eq!(owner(old).swap(0, Ordering::Relaxed), 2);
                cache.free(cpu, old);
            }
        }
    }
}

/// Owned by the interrupted thread: when it ends, even by a failed test, it reports that and waits until no more
/// signals come.
struct Target<'a> {
    ready: &'a AtomicBool,
    over: &'a AtomicBool,
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        while self.ready.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_free_that_interrupts_a_free_loses_nothing() {
    // SAFETY: a handler that only calls the cache.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::None) {
        let domain = Domain::new(2).unwrap();
        let cache = Cache::new(&domain, &CacheOptions::new(24, 10_000).policy(policy)).unwrap();
        HANDLED.store(0, Ordering::Relaxed);
        let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let reader = domain.reader().unwrap();
                SLOT.store(reader.number(), Ordering::Relaxed);
                CACHE.store((&raw const cache).cast_mut(), Ordering::Relaxed);
                // SAFETY: queries this thread's own id.
                THREAD.store(unsafe { libc::pthread_self() } as u64, Ordering::Relaxed);
                ready.store(true, Ordering::Release);
                let target = Target { ready: &ready, over: &over };
                let begin = Instant::now();
                let mut mine = Vec::new();
                while begin.elapsed() < Duration::from_millis(400) || HANDLED.load(Ordering::Relaxed) < 100 {
                    assert!(begin.elapsed() < Duration::from_secs(60), "{policy}: handlers get no objects");
                    reader.read(|| {
                        for _ in 0..100 {
                            STEPS.fetch_add(1, Ordering::Relaxed);
                            // SAFETY: this thread's slot; freed once.
                            unsafe {
                                if mine.len() < 200
                                    && let Ok(object) = cache.alloc(reader.number())
                                {
                                    assert_eq!(
                                        owner(object).swap(1, Ordering::Relaxed),
                                        0,
                                        "{policy}: two have it"
                                    );
                                    mine.push(object);
                                } else if let Some(object) = mine.pop() {
                                    assert_eq!(owner(object).swap(0, Ordering::Relaxed), 1, "{policy}");
                                    cache.free(reader.number(), object);
                                }
                            }
                        }
                        // SAFETY: as above.
                        mine.drain(..).for_each(|object| unsafe {
                            assert_eq!(owner(object).swap(0, Ordering::Relaxed), 1, "{policy}");
                            cache.free(reader.number(), object);
                        });
                    });
                }
                drop(target);
                if let Some(kept) = NonNull::new(KEPT.swap(std::ptr::null_mut(), Ordering::Relaxed)) {
                    owner(kept).store(0, Ordering::Relaxed);
                    // SAFETY: the handler's object; the handler runs no more.
                    unsafe { cache.free(reader.number(), kept) };
                }
            });
            while !ready.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let thread = THREAD.load(Ordering::Relaxed) as libc::pthread_t;
            // SAFETY: the thread lives: it waits for this one to finish.
            unsafe { interrupt(thread, libc::SIGUSR1, &STEPS, || over.load(Ordering::Acquire)) };
            ready.store(false, Ordering::Release);
        });
        assert_eq!(cache.stats().in_use, 0, "{policy}");
        let begin = Instant::now();
        while cache.stats().in_flight != 0 {
            assert!(begin.elapsed().as_secs() < 30, "{policy}: {:?}", cache.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
        // All are there: as many as can ever be allocated at once. The keeper may still hold some for a moment.
        let (begin, mut all) = (Instant::now(), 0);
        while all < 10_000 {
            assert!(begin.elapsed().as_secs() < 30, "{policy}: {all}");
            let section = domain.enter().unwrap();
            // SAFETY: this thread's slot, inside; never freed: the cache is dropped as a whole.
            let object = unsafe { cache.alloc(section.number()) };
            drop(section);
            match object {
                Ok(_) => all += 1,
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}
