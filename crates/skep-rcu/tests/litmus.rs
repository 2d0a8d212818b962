//! The critical race: a reader enters while an updater unlinks and scans. On a real machine, in lockstep, so that the
//! stores and loads of the two sides meet within nanoseconds.
//!
//! ```text
//!   reader:   enter (store epoch)      updater:  x = new
//!             look = x                           cookie, scan
//! ```
//!
//! If the scan did not see the reader, and the reader stays inside, then the reader must have seen the new value.

use std::hint;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skep_rcu::{Domain, Grace};

/// Spins, but yields if there are more threads than processors.
fn until(word: &AtomicU64, value: u64) {
    let mut spins = 0u32;
    while word.load(Ordering::Acquire) != value {
        spins += 1;
        if spins.is_multiple_of(2000) {
            thread::yield_now();
        }
        hint::spin_loop();
    }
}

/// A word in a cache line of its own.
#[repr(align(128))]
struct Alone(AtomicU64);

/// One test at a time: both of its threads must really run at once.
static ONE: Mutex<()> = Mutex::new(());

fn lockstep(domain: &Domain, sleepable: bool) {
    const ROUNDS: u64 = 300_000;
    let grace = if sleepable { Grace::Sleepable } else { Grace::Normal };
    let _one = ONE.lock();
    let words = [const { Alone(AtomicU64::new(0)) }; 5];
    let [start, x, seen, tried, left] = [0, 1, 2, 3, 4].map(|index| &words[index].0);
    let over = AtomicBool::new(false);
    let (mut passed, mut wrong) = (0, 0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let reader = domain.reader().unwrap();
            for round in 1.. {
                until(start, round);
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let look = || {
                    seen.store(x.load(Ordering::Relaxed), Ordering::Relaxed);
                    until(tried, round);
                };
                // Warms this processor's cache, so that the load below is faster than the entry's store.
                x.load(Ordering::Relaxed);
                if sleepable {
                    reader.read_sleepable(look)
                } else {
                    reader.read(look)
                }
                left.store(round, Ordering::Release);
            }
        });
        let end = Instant::now() + Duration::from_secs(2);
        let mut round = 0;
        // Fewer iterations must do on a crowded machine.
        while round < ROUNDS && Instant::now() < end {
            round += 1;
            start.store(round, Ordering::Release);
            (0..round % 40).for_each(|_| hint::spin_loop());
            x.store(round, Ordering::Release);
            let cookie = domain.cookie();
            let free = domain.try_pass(cookie, grace);
            tried.store(round, Ordering::Release);
            until(left, round);
            let old = seen.load(Ordering::Relaxed) < round;
            passed += u32::from(free);
            wrong += u32::from(free && old);
        }
        over.store(true, Ordering::Relaxed);
        start.store(round + 1, Ordering::Release);
        reader.join().unwrap();
    });
    assert_eq!(wrong, 0, "times a scan passed over a reader that held the old value");
    assert!(passed > 0, "the two never met: this has tested nothing");
}

#[test]
fn a_scan_that_misses_a_reader_is_seen_by_it_with_membarrier() {
    let domain = Domain::new(2).unwrap();
    lockstep(&domain, false);
    lockstep(&domain, true);
}

#[test]
fn a_scan_that_misses_a_reader_is_seen_by_it_without_membarrier() {
    let domain = Domain::builder().slots(2).membarrier(false).build().unwrap();
    lockstep(&domain, false);
    lockstep(&domain, true);
}
