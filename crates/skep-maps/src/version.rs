//! A lock for writers whose word is a version for lock-free readers.
//!
//! **Problem.** Look-ups walk linked elements without a lock. An unlinked and freed element may be reused at once:
//! the reader then walks another list, or compares a half-written key, and may miss an element that was always there,
//! or find one that never was.
//!
//! **Protocol.** One 64-bit word guards the links of a structure:
//!
//! ```text
//!   63                                  17 16                                0
//!   |  version: how often something was   | owner: who holds the lock, or 0  
//! |~~  |  unlinked                           |                                  |
//! ```
//!
//! A writer sets the owner, makes each change visible by *one* store of a link, unlocks with a new version if it
//! unlinked something, and frees unlinked elements only after that. A reader notes the version, walks, and compares
//! the version again. If it is unchanged, no element on the way was reused: the walk was one through the real
//! structure, and because every change is one store, it saw each change either done or not done. Otherwise it starts
//! over, and after a few attempts it tries to take the lock.
//!
//! Why a reader that sees reused memory sees the new version: the version is stored before the element is freed; the
//! cache's lists (the order of one virtual CPU, else Release and Acquire of its stacks) order that before the next
//! owner's first write, which comes after [`before_fill`]; a reader that loads such a write and then passes its own
//! fence is ordered after all of that.
//!
//! The version wraps after 2^47 changes. A reader is misled only if it is held up in one walk for exactly that many
//! changes of one bucket, or a multiple: at 20 nanoseconds each, a month of nothing else.
//!
//! **Who must not wait.** A signal handler may run a program on a thread that it interrupted in the middle of a
//! change. If the program waited for that lock, it would wait for ever, because the holder continues only after the
//! handler has returned. So the word names the holder: a virtual CPU, which a nested run shares with the run that it
//! interrupts; or a host's thread without one, which records the lock itself ([`crate::host_lock`]). A caller that is
//! the holder gets [`OpError::Busy`].
//!
//! Two handlers on two threads may each wait for a lock that the other's thread held when it was interrupted. The
//! word does not show that, so a caller with a virtual CPU waits for a bounded time, far longer than a preempted
//! holder stays off-CPU.
//!
//! **Readers never fail.** A handler's look-up may come in the middle of a change by its own thread. While it runs,
//! no other thread can lock, the version does not change, and nothing that the change unlinked is freed yet: the
//! first walk succeeds. A reader that is disturbed again and again tries to take the lock, and walks without it while
//! another thread has it: either that thread continues, or it is stopped and its list does not change. So no look-up
//! waits for a thread that cannot continue.
//!
//! **What would break it:** freeing before unlocking; a change of links that takes two stores; filling a
//! recycled element without [`before_fill`]; waiting for anything but a leaf lock while holding this one; a section
//! that changes its virtual CPU while it holds the lock.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread;
use std::time::Duration;

use skep_rcu::MAX_SLOTS;

use crate::caller::Caller;
use crate::host_lock::{self, HostLock};
use crate::op_error::OpError;

/// The bits of the word that name the lock's holder; 0 if it is free.
const OWNER: u64 = ONE_VERSION - 1;
const ONE_VERSION: u64 = 1 << 17;

/// The owner of all threads without a virtual CPU.
const HOST: u64 = 1;
/// The owner for virtual CPU 0; the others follow.
const FIRST_CPU: u64 = 2;
const _: () = assert!(FIRST_CPU + (MAX_SLOTS as u64) <= OWNER);

/// Attempts of a reader before it tries to take the lock.
const ATTEMPTS: u32 = 8;

/// Attempts of a caller with a virtual CPU to take the lock. Most of them sleep for 50 microseconds or more, so this
/// is about a second, and at least half of one.
const PATIENCE: u32 = 10_000;

/// Hops between two checks of a walker whether it has gone astray.
const HOPS: u32 = 64;

/// The word. All zeroes are a valid, unlocked one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Version(AtomicU64);

/// A walk in progress.
pub(crate) struct Walk<'a> {
    word: &'a AtomicU64,
    /// The version without the owner; unused by a reader that holds the lock.
    seen: u64,
    holds_lock: bool,
    hops: u32,
}

/// The result of a walk.
pub(crate) enum Outcome<T> {
    /// An answer, correct if the version has not changed.
    Answer(T),
    /// [`Walk::is_astray`] returned true.
    Astray,
}

/// The held lock. Dropping it unlocks without a new version; [`Locked::unlock_changed`] unlocks with one.
pub(crate) struct Locked<'a> {
    word: &'a AtomicU64,
    /// The word after unlocking: as before, or with a new version.
    after: u64,
    /// For a thread without a virtual CPU.
    _held: Option<HostLock>,
}

impl<T> Outcome<T> {
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Answer(answer) => Outcome::Answer(f(answer)),
            Self::Astray => Outcome::Astray,
        }
    }
}

impl Version {
    /// The answer of a walk during which nothing was reused.
    #[inline(always)]
    pub(crate) fn read<T>(&self, caller: Caller, mut walk: impl FnMut(&mut Walk<'_>) -> Outcome<T>) -> T {
        for _ in 0..ATTEMPTS {
            if let Some(answer) = self.read_once(&mut walk) {
                return answer;
            }
        }
        self.read_slow(caller, walk)
    }

    /// The answer of one walk, if nothing was reused during it: the fast path.
    #[inline(always)]
    pub(crate) fn read_once<T>(&self, walk: impl FnOnce(&mut Walk<'_>) -> Outcome<T>) -> Option<T> {
        // Acquire: pairs with the Release in `Locked::drop`. A reader that sees the version after an unlinking sees
        // the unlinking.
        let seen = self.0.load(Ordering::Acquire) & !OWNER;
        let mut attempt = Walk { word: &self.0, seen, holds_lock: false, hops: 0 };
        match walk(&mut attempt) {
            Outcome::Answer(answer) if attempt.is_valid() => Some(answer),
            _ => None,
        }
    }

    /// As [`read`](Self::read), and no value that all CPUs share was changed in place during the walk: such a change
    /// unlocks with a new version. If `locked`, takes the lock from the start.
    pub(crate) fn read_consistent<T>(
        &self,
        caller: Caller,
        locked: bool,
        mut walk: impl FnMut(&mut Walk<'_>) -> Outcome<T>,
    ) -> Result<T, OpError> {
        for _ in 0..if locked { 0 } else { ATTEMPTS } {
            // Acquire: as in `read_once`, and with the Release of every unlocking: everything written under the lock
            // is visible.
            let seen = self.0.load(Ordering::Acquire);
            if seen & OWNER != 0 {
                hint::spin_loop();
                continue;
            }
            let mut attempt = Walk { word: &self.0, seen, holds_lock: false, hops: 0 };
            if let Outcome::Answer(answer) = walk(&mut attempt) {
                // As in `is_valid`, but the owner counts too: a writer that holds the lock may be writing now, and
                // its locking precedes its writes (the fence in `try_lock`).
                fence(Ordering::Acquire);
                if self.0.load(Ordering::Relaxed) == seen {
                    return Ok(answer);
                }
            }
        }
        let lock = self.lock(caller)?;
        Ok(lock.read(walk))
    }

    /// Takes the lock.
    ///
    /// [`OpError::Busy`] if the holder cannot continue while this waits, because it is this thread, interrupted; and
    /// if `caller` is a virtual CPU whose bounded wait is over.
    #[inline]
    pub(crate) fn lock(&self, caller: Caller) -> Result<Locked<'_>, OpError> {
        match self.try_lock(caller) {
            Some(lock) => Ok(lock),
            None => self.wait(caller),
        }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self, caller: Caller) -> Option<Locked<'_>> {
        let before = self.0.load(Ordering::Relaxed);
        if before & OWNER != 0 {
            return None;
        }
        let held = (caller == Caller::Host).then(|| HostLock::begin(&self.0));
        // Acquire: pairs with the Release in the `Locked::drop` of the last holder.
        self.0.compare_exchange(before, before | owner(caller), Ordering::Acquire, Ordering::Relaxed).ok()?;
        // Release: a reader that sees anything written from here on, and then passes the Acquire fence in
        // `read_consistent`, sees the owner or a later word.
        fence(Ordering::Release);
        Some(Locked { word: &self.0, after: before, _held: held })
    }

    /// Takes the lock, or returns `None` if this very thread, interrupted, holds it. In both cases no other thread
    /// can change what the lock guards. Waits for other threads without a limit.
    ///
    /// For hosts that only read under the lock. Not for handlers.
    pub(crate) fn lock_or_own(&self, caller: Caller) -> Option<Locked<'_>> {
        loop {
            match self.lock(caller) {
                Ok(lock) => return Some(lock),
                Err(_) if self.is_own(caller) => return None,
                Err(_) => {}
            }
        }
    }

    /// Repeats `look` until it returns a result, with the lock whenever it is free. A thread that holds the lock
    /// either continues, or is stopped and disturbs no look-up.
    #[cold]
    pub(crate) fn retry_until<T>(
        &self,
        caller: Caller,
        mut look: impl FnMut(Option<&Locked<'_>>) -> Option<T>,
    ) -> T {
        let mut turns = 0_u32;
        loop {
            if let Some(found) = look(self.try_lock(caller).as_ref()) {
                return found;
            }
            back_off(turns);
            turns = turns.saturating_add(1);
        }
    }

    /// Whether the lock's holder cannot continue before the caller returns.
    #[cold]
    pub(crate) fn is_own(&self, caller: Caller) -> bool {
        // Relaxed: either this thread stored it, or the value does not matter.
        let holder = self.0.load(Ordering::Relaxed) & OWNER;
        match caller {
            // Also for a thread that has a number now: it may have been interrupted before it had one.
            _ if holder == HOST => host_lock::holds(&self.0),
            Caller::Cpu(_) => holder == owner(caller),
            Caller::Host => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, caller: Caller) -> Result<Locked<'_>, OpError> {
        let mut turns = 0_u32;
        loop {
            if self.is_own(caller) || (caller != Caller::Host && turns >= PATIENCE) {
                return Err(OpError::Busy);
            }
            back_off(turns);
            turns = turns.saturating_add(1);
            if let Some(lock) = self.try_lock(caller) {
                return Ok(lock);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn read_slow<T>(&self, caller: Caller, mut walk: impl FnMut(&mut Walk<'_>) -> Outcome<T>) -> T {
        self.retry_until(caller, |lock| match lock {
            Some(lock) => Some(lock.read(&mut walk)),
            None => self.read_once(&mut walk),
        })
    }
}

/// The owner field for a caller.
#[inline(always)]
fn owner(caller: Caller) -> u64 {
    match caller {
        Caller::Cpu(cpu) => FIRST_CPU + u64::from(cpu),
        Caller::Host => HOST,
    }
}

impl Walk<'_> {
    /// To be called at every hop: whether this walk cannot succeed any more and should end.
    ///
    /// It checks only now and then; its purpose is to end walks through lists that are changed all the time.
    #[inline(always)]
    pub(crate) fn is_astray(&mut self) -> bool {
        self.hops += 1;
        self.hops.is_multiple_of(HOPS) && !self.is_valid()
    }

    #[inline(always)]
    fn is_valid(&self) -> bool {
        // Acquire: pairs with the Release fence in `before_fill`. If any load before this saw a write of a new owner
        // of reused memory, the load below sees the version that preceded the reuse.
        fence(Ordering::Acquire);
        self.holds_lock || self.word.load(Ordering::Relaxed) & !OWNER == self.seen
    }
}

impl Locked<'_> {
    /// The result of a walk under the lock.
    fn read<T>(&self, mut walk: impl FnMut(&mut Walk<'_>) -> Outcome<T>) -> T {
        loop {
            let mut attempt = Walk { word: self.word, seen: 0, holds_lock: true, hops: 0 };
            if let Outcome::Answer(answer) = walk(&mut attempt) {
                return answer;
            }
        }
    }

    /// Unlocks with a new version, because an element was unlinked or changed in place. An unlinked element may be
    /// freed only after this.
    #[inline]
    pub(crate) fn unlock_changed(mut self) {
        self.after = self.after.wrapping_add(ONE_VERSION);
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock`, `read_once` and `read_consistent`.
        self.word.store(self.after, Ordering::Release);
    }
}

/// To be called between allocating an element and the first write to it.
#[inline]
pub(crate) fn before_fill() {
    // Release: pairs with the Acquire fence in `Walk::is_valid`.
    fence(Ordering::Release);
}

/// Waits a little longer each time. The holder may have been preempted: spinning for long would keep it from running.
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

    const CPU: Caller = Caller::Cpu(0);
    const OTHER: Caller = Caller::Cpu(MAX_SLOTS - 1);

    /// Locks as a virtual CPU that no test thread has.
    fn lock(version: &Version) -> Locked<'_> {
        version.lock(OTHER).unwrap()
    }

    #[test]
    fn a_reader_starts_over_when_something_was_unlinked_under_it() {
        let version = Version::default();
        let walks = Cell::new(0_u32);
        let answer = version.read(CPU, |_| {
            walks.set(walks.get() + 1);
            if walks.get() <= 3 {
                lock(&version).unlock_changed();
            }
            Outcome::Answer(walks.get())
        });
        assert_eq!(answer, 4);
    }

    #[test]
    fn a_reader_is_not_disturbed_by_insertions() {
        let version = Version::default();
        let answer = version.read(CPU, |walk| {
            drop(lock(&version));
            for _ in 0..1000 {
                assert!(!walk.is_astray());
            }
            let held = lock(&version); // nor by a writer that is inside
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
        let answer = version.read_consistent(CPU, false, |_| {
            walks.set(walks.get() + 1);
            if walks.get() == 1 {
                let held = lock(&version);
                held.unlock_changed();
            }
            Outcome::Answer(walks.get())
        });
        assert_eq!(answer, Ok(2));
    }

    #[test]
    fn a_still_reader_does_not_walk_while_somebody_holds_the_lock() {
        let version = Version::default();
        let (started, written) = (AtomicBool::new(false), AtomicBool::new(false));
        let held = lock(&version);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                started.store(true, Ordering::Relaxed);
                let read =
                    version.read_consistent(CPU, false, |_| Outcome::Answer(written.load(Ordering::Relaxed)));
                read == Ok(true)
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
        let locked = version.read(CPU, |walk| {
            walks.set(walks.get() + 1);
            if walk.holds_lock {
                return Outcome::Answer(version.0.load(Ordering::Relaxed) & OWNER == owner(CPU));
            }
            lock(&version).unlock_changed();
            if walks.get().is_multiple_of(2) { Outcome::Astray } else { Outcome::Answer(false) }
        });
        assert!(locked);
        assert_eq!(walks.get(), ATTEMPTS + 1);
        drop(lock(&version)); // it was given back
    }

    #[test]
    fn a_walk_gone_astray_ends_after_a_bounded_number_of_hops() {
        let version = Version::default();
        let mut hops = 0;
        version.read(CPU, |walk| {
            if hops == 0 {
                lock(&version).unlock_changed();
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
            let write = |caller: Caller| {
                let (version, pair, inside) = (&version, &pair, &inside);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let lock = version.lock(caller).unwrap();
                        assert!(!inside.swap(true, Ordering::Relaxed));
                        let next = pair[0].load(Ordering::Relaxed) + 1;
                        pair[0].store(next, Ordering::Relaxed);
                        pair[1].store(next, Ordering::Relaxed);
                        inside.store(false, Ordering::Relaxed);
                        lock.unlock_changed();
                    }
                })
            };
            let writers = [write(Caller::Cpu(1)), write(Caller::Host)];
            while !writers.iter().all(|writer| writer.is_finished()) {
                let read = version.read_consistent(CPU, false, |_| {
                    Outcome::Answer((pair[0].load(Ordering::Relaxed), pair[1].load(Ordering::Relaxed)))
                });
                let (first, second) = read.unwrap();
                assert_eq!(first, second);
            }
        });
        assert_eq!(pair[0].load(Ordering::Relaxed), 40_000);
    }

    #[test]
    fn a_caller_that_interrupted_the_holder_fails_at_once_and_others_wait() {
        let version = Version::default();
        for (cpu, next) in [(0, 1), (1, 2), (MAX_SLOTS - 1, 0)] {
            let held = version.lock(Caller::Cpu(cpu)).unwrap();
            assert!(version.try_lock(Caller::Cpu(next)).is_none());
            assert_eq!(version.lock(Caller::Cpu(cpu)).err(), Some(OpError::Busy));
            assert!(version.lock_or_own(Caller::Cpu(cpu)).is_none());
            assert!(!version.is_own(Caller::Cpu(next)) && !version.is_own(Caller::Host));
            held.unlock_changed();
            assert!(version.lock(Caller::Cpu(cpu)).is_ok(), "given back");
        }
        assert_eq!(version.0.load(Ordering::Relaxed), 3 * ONE_VERSION);
    }

    #[test]
    fn a_caller_that_interrupted_a_host_without_a_slot_fails_too() {
        let (version, another) = (Version::default(), Version::default());
        let held = version.lock(Caller::Host).unwrap();
        for caller in [CPU, Caller::Host] {
            assert_eq!(version.lock(caller).err(), Some(OpError::Busy));
            // A lock of another host is waited for, and a free lock is taken; the thread still knows that it holds
            // the first.
            let theirs = std::thread::scope(|scope| {
                scope.spawn(|| std::mem::forget(another.lock(Caller::Host).unwrap())).join().unwrap();
                another.is_own(caller)
            });
            assert!(!theirs && another.try_lock(caller).is_none());
            another.0.store(0, Ordering::Relaxed);
            drop(another.lock(caller).unwrap());
            assert!(version.is_own(caller));
        }
        // Another thread was not interrupted.
        assert!(std::thread::scope(|scope| scope.spawn(|| !version.is_own(CPU)).join().unwrap()));
        drop(held);
        assert!(version.lock(Caller::Host).is_ok());
    }

    #[test]
    fn look_ups_in_the_middle_of_an_own_change_need_no_lock() {
        let version = Version::default();
        let held = version.lock(CPU).unwrap();
        let walks = Cell::new(0_u32);
        let walk = |walk: &mut Walk<'_>| {
            walks.set(walks.get() + 1);
            // Also a reader that was disturbed often before.
            if walks.get() <= ATTEMPTS { Outcome::Astray } else { Outcome::Answer(!walk.holds_lock) }
        };
        assert!(version.read(CPU, walk));
        assert_eq!(version.read_consistent(CPU, false, |_| Outcome::Answer(())), Err(OpError::Busy));
        assert!(!version.retry_until(CPU, |lock| Some(lock.is_some())));
        held.unlock_changed();
        assert!(version.retry_until(CPU, |lock| Some(lock.is_some())));
    }

    /// Two threads, each interrupted while it holds the lock that the other's handler wants.
    #[test]
    fn handlers_that_wait_for_each_other_give_up_in_the_end() {
        let (one, other) = (Version::default(), Version::default());
        let both = std::sync::Barrier::new(2);
        let thread = |mine: &Version, theirs: &Version, caller| {
            let held = mine.lock(caller).unwrap();
            both.wait();
            let wanted = theirs.lock(caller).map(drop);
            drop(held);
            wanted
        };
        let results = std::thread::scope(|scope| {
            let second = scope.spawn(|| thread(&other, &one, OTHER));
            [thread(&one, &other, CPU), second.join().unwrap()]
        });
        // The first to give up lets the other one in, unless both give up at the same time.
        assert!(results.contains(&Err(OpError::Busy)), "{results:?}");
        assert!(one.lock(CPU).is_ok() && other.lock(CPU).is_ok());
    }

    #[test]
    fn the_version_wraps_without_touching_the_owner() {
        let version = Version(AtomicU64::new(!OWNER));
        lock(&version).unlock_changed();
        assert_eq!(version.0.load(Ordering::Relaxed), 0);
        assert!(version.lock(CPU).is_ok());
    }
}
