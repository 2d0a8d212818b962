//! A lock for writers that doubles as a version for readers who take none.
//!
//! **Problem.** Look-ups walk linked elements without a lock. An element that is unlinked and freed may be reused
//! at once: the walker then stands in another list, or compares a key that is half rewritten, and may miss an
//! element that was there all the time, or find one that never was.
//!
//! **Protocol.** One 64-bit word guards the links of a structure:
//!
//! ```text
//!   63                                   1    0
//!   |  version: how often something was   | locked |
//!   |  unlinked                           |        |
//! ```
//!
//! A writer sets the lock bit, makes each change visible by *one* store of a link, unlocks with a new version if
//! it unlinked something, and frees what it unlinked after that, not before. A reader notes the version, walks,
//! and looks at the version again. If it is the same then nothing that it passed had been reused: the walk was
//! one through the real structure, and since every change is one store, it saw each either done or not done.
//! Otherwise it starts over, and after a few times it takes the lock.
//!
//! Why seeing reused memory implies seeing the new version: the version is stored before the element is freed,
//! the pool's mutex orders that before the next owner's first write, which comes after [`before_fill`]; a reader
//! that loads such a write and then passes its own fence is ordered after all of that.
//!
//! **What would break it:** freeing before unlocking; a change of links that takes two stores; filling a
//! recycled element without [`before_fill`]; waiting for anything but a leaf lock while holding this one.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;
use std::time::Duration;

const LOCKED: u64 = 1;
const ONE_VERSION: u64 = 2;

/// How often a reader tries before it takes the lock.
const ATTEMPTS: u32 = 8;

/// Hops after which a walker asks whether it has gone astray.
const HOPS: u32 = 64;

/// The word. All zero bytes are a valid, unlocked one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Version(AtomicU64);

/// A walk in progress: whether what it sees can still be trusted.
pub(crate) struct Walk<'a> {
    word: &'a AtomicU64,
    /// The word without the lock bit; unused by a reader that holds the lock.
    seen: u64,
    holds_lock: bool,
    hops: u32,
}

/// What a walk came to.
pub(crate) enum Outcome<T> {
    /// An answer, right if the version is still the same.
    Answer(T),
    /// [`Walk::is_astray`] said so.
    Astray,
}

/// The lock, held. Dropping it unlocks without a new version.
pub(crate) struct Locked<'a> {
    word: &'a AtomicU64,
    /// The word as it was before locking.
    before: u64,
}

impl Version {
    /// The result of a walk that nothing was reused under.
    #[inline(always)]
    pub(crate) fn read<T>(&self, mut walk: impl FnMut(&mut Walk<'_>) -> Outcome<T>) -> T {
        for _ in 0..ATTEMPTS {
            // Acquire: pairs with the Release in `Locked::finish`. Whoever sees the version that followed an
            // unlinking sees the unlinking.
            let seen = self.0.load(Ordering::Acquire) & !LOCKED;
            let mut attempt = Walk { word: &self.0, seen, holds_lock: false, hops: 0 };
            if let Outcome::Answer(answer) = walk(&mut attempt)
                && attempt.is_valid()
            {
                return answer;
            }
        }
        self.read_locked(walk)
    }

    /// As [`read`](Self::read), and nobody held the lock at any moment of the walk: what writers change under
    /// the lock was still. With the lock from the start where the caller wants that.
    pub(crate) fn read_still<T>(&self, locked: bool, mut walk: impl FnMut(&mut Walk<'_>) -> Outcome<T>) -> T {
        for _ in 0..if locked { 0 } else { ATTEMPTS } {
            // Acquire: as in `read`, and with the Release of every unlocking: what was written under the lock is
            // visible.
            let seen = self.0.load(Ordering::Acquire);
            if seen & LOCKED != 0 {
                hint::spin_loop();
                continue;
            }
            let mut attempt = Walk { word: &self.0, seen, holds_lock: false, hops: 0 };
            if let Outcome::Answer(answer) = walk(&mut attempt) {
                // As in `is_valid`, but the lock bit counts: a writer that is inside may be writing right now,
                // and its locking precedes its writes (the fence in `lock`).
                fence(Ordering::Acquire);
                if self.0.load(Ordering::Relaxed) == seen {
                    return answer;
                }
            }
        }
        self.read_locked(walk)
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        let mut turns = 0;
        loop {
            let before = self.0.load(Ordering::Relaxed);
            // Acquire: pairs with the Release in `Locked::finish` of whoever held it last.
            if before & LOCKED == 0
                && self
                    .0
                    .compare_exchange_weak(before, before | LOCKED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                // Release: a reader that sees anything written from here on, and then passes the Acquire fence
                // in `read_still`, sees the lock bit (or a later word).
                fence(Ordering::Release);
                return Locked { word: &self.0, before };
            }
            back_off(turns);
            turns += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn read_locked<T>(&self, mut walk: impl FnMut(&mut Walk<'_>) -> Outcome<T>) -> T {
        let lock = self.lock();
        loop {
            let mut attempt = Walk { word: lock.word, seen: 0, holds_lock: true, hops: 0 };
            if let Outcome::Answer(answer) = walk(&mut attempt) {
                return answer;
            }
        }
    }
}

impl Walk<'_> {
    /// To be asked at every hop: whether this walk cannot give an answer any more and should end.
    ///
    /// It looks now and then only; its purpose is that no walk goes on for ever through lists that are
    /// rearranged under its feet.
    #[inline(always)]
    pub(crate) fn is_astray(&mut self) -> bool {
        self.hops += 1;
        self.hops.is_multiple_of(HOPS) && !self.is_valid()
    }

    #[inline(always)]
    fn is_valid(&self) -> bool {
        // Acquire: pairs with the Release fence in `before_fill`. If any load before this saw what a new owner
        // wrote into reused memory, the load below sees the version that preceded the reuse.
        fence(Ordering::Acquire);
        self.holds_lock || self.word.load(Ordering::Relaxed) & !LOCKED == self.seen
    }
}

impl Locked<'_> {
    /// Unlocks with a new version, because something was unlinked, or changed in place. Only after this may what
    /// was unlinked be freed.
    #[inline]
    pub(crate) fn unlock_changed(self) {
        let next = self.before.wrapping_add(ONE_VERSION);
        self.finish(next);
        std::mem::forget(self);
    }

    #[inline]
    fn finish(&self, word: u64) {
        // Release: pairs with the Acquire in `lock`, `read` and `read_still`.
        self.word.store(word, Ordering::Release);
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.finish(self.before);
    }
}

/// To be called by whoever got an element from the pool, before it writes to it.
#[inline]
pub(crate) fn before_fill() {
    // Release: pairs with the Acquire fence in `Walk::is_valid`.
    fence(Ordering::Release);
}

/// Waits a little longer each time. The holder may have been preempted: spinning for long would only keep it
/// from running.
pub(crate) fn back_off(turns: u32) {
    match turns {
        0..32 => hint::spin_loop(),
        32..64 => thread::yield_now(),
        _ => thread::sleep(Duration::from_micros(50)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_reader_starts_over_when_something_was_unlinked_under_it() {
        let version = Version::default();
        let walks = Cell::new(0_u32);
        let answer = version.read(|_| {
            walks.set(walks.get() + 1);
            if walks.get() <= 3 {
                version.lock().unlock_changed();
            }
            Outcome::Answer(walks.get())
        });
        assert_eq!(answer, 4);
    }

    #[test]
    fn a_reader_is_not_disturbed_by_insertions() {
        let version = Version::default();
        let answer = version.read(|walk| {
            drop(version.lock());
            for _ in 0..1000 {
                assert!(!walk.is_astray());
            }
            let held = version.lock(); // nor by a writer that is inside
            let valid = walk.is_valid();
            drop(held);
            Outcome::Answer(valid)
        });
        assert!(answer);
    }

    #[test]
    fn a_still_reader_is_disturbed_by_any_writer() {
        let version = Version::default();
        let walks = Cell::new(0_u32);
        let answer = version.read_still(false, |_| {
            walks.set(walks.get() + 1);
            if walks.get() == 1 {
                let held = version.lock();
                held.unlock_changed();
            }
            Outcome::Answer(walks.get())
        });
        assert_eq!(answer, 2);
    }

    #[test]
    fn a_still_reader_does_not_walk_while_somebody_holds_the_lock() {
        let version = Version::default();
        let (started, written) = (AtomicBool::new(false), AtomicBool::new(false));
        let held = version.lock();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                started.store(true, Ordering::Relaxed);
                version.read_still(false, |_| Outcome::Answer(written.load(Ordering::Relaxed)))
            });
            while !started.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(5)); // for the reader to come to where it waits
            written.store(true, Ordering::Relaxed);
            held.unlock_changed();
            assert!(reader.join().unwrap(), "it read what was being written");
        });
    }

    #[test]
    fn a_reader_that_is_always_disturbed_takes_the_lock_in_the_end() {
        let version = Version::default();
        let walks = Cell::new(0_u32);
        let locked = version.read(|walk| {
            walks.set(walks.get() + 1);
            if walk.holds_lock {
                return Outcome::Answer(version.0.load(Ordering::Relaxed) & LOCKED != 0);
            }
            version.lock().unlock_changed();
            if walks.get().is_multiple_of(2) { Outcome::Astray } else { Outcome::Answer(false) }
        });
        assert!(locked);
        assert_eq!(walks.get(), ATTEMPTS + 1);
        drop(version.lock()); // it was given back
    }

    #[test]
    fn a_walk_gone_astray_learns_of_it_within_a_bounded_number_of_hops() {
        let version = Version::default();
        let mut hops = 0;
        version.read(|walk| {
            if hops == 0 {
                version.lock().unlock_changed();
                while !walk.is_astray() {
                    hops += 1;
                }
            }
            Outcome::Answer(())
        });
        assert!(hops > 0 && hops < HOPS);
    }

    #[test]
    fn writers_exclude_each_other_and_readers_see_pairs() {
        let version = Version::default();
        let pair = [AtomicU64::new(0), AtomicU64::new(0)];
        let inside = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            let lock = version.lock();
                            assert!(!inside.swap(true, Ordering::Relaxed));
                            let next = pair[0].load(Ordering::Relaxed) + 1;
                            pair[0].store(next, Ordering::Relaxed);
                            pair[1].store(next, Ordering::Relaxed);
                            inside.store(false, Ordering::Relaxed);
                            lock.unlock_changed();
                        }
                    })
                })
                .collect();
            while !writers.iter().all(|writer| writer.is_finished()) {
                let (first, second) = version.read_still(false, |_| {
                    Outcome::Answer((pair[0].load(Ordering::Relaxed), pair[1].load(Ordering::Relaxed)))
                });
                assert_eq!(first, second);
            }
        });
        assert_eq!(pair[0].load(Ordering::Relaxed), 40_000);
    }
}
