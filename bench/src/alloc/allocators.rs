//! The allocators: skep's, for objects of one size, and two for memory of any size.

use super::PAIRS;
use super::ring::{Apart, Ring};
use crate::Result;
use crate::timing::together;
use serde::Serialize;
use skep_mem::{Cache, CacheOptions, Policy};
use skep_rcu::Domain;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Objects that are allocated before any is freed, where that is more than one.
const SEVERAL: usize = 64;
/// Objects on their way from one thread to the other, at most.
pub(super) const ON_THEIR_WAY: usize = 256;
/// Bytes of objects in a cache that are in use or wait for readers, at most.
const BOUND: usize = 64 << 20;
/// Threads that a cache is for.
const SLOTS: u32 = 8;
/// Where objects begin.
const ALIGN: usize = 8;

/// What hands out and takes back memory.
pub(super) trait Allocator: Sync {
    /// Whose it is.
    const NAME: &'static str;

    /// Its policy, if it is one of skep's.
    fn policy(&self) -> Option<Policy> {
        None
    }

    /// Does something as one run of a program does: with a number that no other thread has at the same time.
    fn run<R>(&self, thread: u32, work: impl FnOnce(u32) -> R) -> Result<R> {
        Ok(work(thread))
    }

    /// Memory for an object; null where there is none. `cpu` is the number of the run.
    fn alloc(&self, cpu: u32) -> *mut u8;

    /// Takes it back.
    ///
    /// # Safety
    ///
    /// It came from [`alloc`](Self::alloc), and nothing will use it again.
    unsafe fn free(&self, cpu: u32, object: *mut u8);

    /// The most bytes that it had from the system, if it knows.
    fn peak_bytes(&self) -> Option<usize> {
        None
    }
}

/// A cache of skep's, in a domain of its own.
pub(super) struct Cached(Cache);

impl Cached {
    pub(super) fn new(size: usize, policy: Policy) -> Result<Self> {
        let options = CacheOptions::new(size, BOUND / size).limit(2 * BOUND).policy(policy);
        Ok(Self(Cache::new(&Domain::new(SLOTS)?, &options)?))
    }
}

impl Allocator for Cached {
    const NAME: &'static str = "skep";

    fn policy(&self) -> Option<Policy> {
        Some(self.0.policy())
    }

    fn run<R>(&self, _thread: u32, work: impl FnOnce(u32) -> R) -> Result<R> {
        let reader = self.0.domain().reader()?;
        Ok(reader.read(|| work(reader.number())))
    }

    #[inline]
    fn alloc(&self, cpu: u32) -> *mut u8 {
        // SAFETY: `run` gave the number, and is not over.
        unsafe { self.0.alloc(cpu) }.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn free(&self, cpu: u32, object: *mut u8) {
        if let Some(object) = NonNull::new(object) {
            // SAFETY: as above, and the caller's promise.
            unsafe { self.0.free(cpu, object) };
        }
    }

    fn peak_bytes(&self) -> Option<usize> {
        Some(self.0.stats().peak_bytes)
    }
}

/// The system's malloc.
pub(super) struct Malloc(Layout);

impl Malloc {
    pub(super) fn new(size: usize) -> Result<Self> {
        Ok(Self(Layout::from_size_align(size.max(1), ALIGN)?))
    }
}

impl Allocator for Malloc {
    const NAME: &'static str = "malloc";

    #[inline]
    fn alloc(&self, _cpu: u32) -> *mut u8 {
        // SAFETY: the size is not zero.
        unsafe { System.alloc(self.0) }
    }

    #[inline]
    unsafe fn free(&self, _cpu: u32, object: *mut u8) {
        // SAFETY: the caller's promise, and of this layout are all.
        unsafe { System.dealloc(object, self.0) }
    }
}

/// Microsoft's allocator.
pub(super) struct Mimalloc(pub(super) usize);

impl Allocator for Mimalloc {
    const NAME: &'static str = "mimalloc";

    #[inline]
    fn alloc(&self, _cpu: u32) -> *mut u8 {
        // SAFETY: it may be called with any size, by any thread.
        unsafe { libmimalloc_sys::mi_malloc(self.0).cast() }
    }

    #[inline]
    unsafe fn free(&self, _cpu: u32, object: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { libmimalloc_sys::mi_free(object.cast()) }
    }
}

/// Allocates nothing, which shows what the loop and the ring cost. Each of two threads has a place of its own to write
/// to.
#[derive(Default)]
pub(super) struct Nothing([Apart; 2]);

impl Allocator for Nothing {
    const NAME: &'static str = "none";

    #[inline]
    fn alloc(&self, cpu: u32) -> *mut u8 {
        self.0[cpu as usize % 2].0.as_ptr().cast()
    }

    #[inline]
    unsafe fn free(&self, _cpu: u32, object: *mut u8) {
        std::hint::black_box(object);
    }
}

/// When objects are freed, and by which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    /// Each object before the next is allocated.
    OneByOne,
    /// Sixty-four are allocated, and then freed.
    Several,
    /// By another thread on another processor, which gets them through a ring.
    Across,
}

/// How long `runs` runs of 1,024 pairs take each thread, and how many pairs of all found no memory.
pub(super) fn time(allocator: &impl Allocator, how: How, threads: u32, runs: u32) -> Result<(Duration, u64)> {
    let missing = AtomicU64::new(0);
    let taken = match how {
        How::Across => across(allocator, runs, &missing)?,
        How::OneByOne | How::Several => {
            let several = if how == How::Several { SEVERAL } else { 1 };
            let work = |thread| {
                for _ in 0..runs {
                    allocator.run(thread, |cpu| pairs(allocator, cpu, several, &missing))?;
                }
                Ok(())
            };
            together(threads, work)?.1
        }
    };
    Ok((taken, missing.into_inner()))
}

/// As many pairs as a run has.
fn pairs(allocator: &impl Allocator, cpu: u32, several: usize, missing: &AtomicU64) {
    let mut objects = [ptr::null_mut(); SEVERAL];
    for _ in 0..PAIRS as usize / several {
        for object in &mut objects[..several] {
            *object = touched(allocator.alloc(cpu), missing);
        }
        for &object in &objects[..several] {
            if !object.is_null() {
                // SAFETY: it was just allocated, and is freed once.
                unsafe { allocator.free(cpu, object) };
            }
        }
    }
}

/// The object, after a write to it: every user of an allocator writes to its objects.
#[inline]
fn touched(object: *mut u8, missing: &AtomicU64) -> *mut u8 {
    if object.is_null() {
        missing.fetch_add(1, Ordering::Relaxed);
    } else {
        // SAFETY: every object has room for a word, and begins where one may; a shared one is written as an atomic.
        let word = unsafe { AtomicU64::from_ptr(object.cast()) };
        word.store(1, Ordering::Relaxed);
    }
    object
}

/// One thread allocates, the other one frees.
fn across(allocator: &impl Allocator, runs: u32, missing: &AtomicU64) -> Result<Duration> {
    let ring = Ring::new();
    let gone = AtomicBool::new(false);
    let work = |thread: u32| {
        let done = (0..runs).try_for_each(|_| {
            allocator.run(thread, |cpu| match thread {
                0 => (0..PAIRS).all(|_| ring.push(touched(allocator.alloc(cpu), missing), &gone)),
                _ => (0..PAIRS).all(|_| {
                    let Some(object) = ring.pop(&gone) else { return false };
                    if !object.is_null() {
                        // SAFETY: the other thread allocated it and let it go, and it is freed once.
                        unsafe { allocator.free(cpu, object) };
                    }
                    true
                }),
            })?;
            Ok(())
        });
        if done.is_err() {
            // The other one must not wait for ever.
            gone.store(true, Ordering::Relaxed);
        }
        done
    };
    Ok(together(2, work)?.1)
}
