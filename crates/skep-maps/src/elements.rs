//! Where the elements of a map come from, and whose readers they wait for.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use skep_mem::{Cache, CacheOptions, CacheStats, Error, Policy};
use skep_rcu::Domain;

use crate::caller::Caller;
use crate::version::Version;

/// What maps share that programs of one host use: the readers, and when memory is reused.
#[derive(Clone, Debug)]
pub struct Reclamation {
    /// Programs run in its read sections, and its slots are the virtual CPUs.
    pub domain: Domain,
    /// When an element that was deleted may become another.
    pub policy: Policy,
}

impl Reclamation {
    /// Elements that are reused after a grace period.
    pub fn new(domain: Domain) -> Self {
        Self { domain, policy: Policy::default() }
    }
}

/// Whether somebody looks for an element under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Lockless,
    Locked,
}

/// The memory of a map's elements. Dropping it gives all of it back at once.
#[derive(Debug)]
pub(crate) struct Elements(ManuallyDrop<Cache>);

impl Elements {
    pub(crate) fn new(memory: &Reclamation, options: CacheOptions) -> Result<Self, Error> {
        let cache = Cache::new(&memory.domain, &options.policy(memory.policy))?;
        Ok(Self(ManuallyDrop::new(cache)))
    }

    /// # Safety
    ///
    /// `caller` is the calling thread.
    #[inline]
    pub(crate) unsafe fn alloc(&self, caller: Caller) -> Result<NonNull<u8>, Error> {
        match caller {
            // SAFETY: by contract.
            Caller::Cpu(cpu) => unsafe { self.0.alloc(cpu) },
            Caller::Host => self.0.alloc_without_slot(),
        }
    }

    /// One that lies ready, if there is one.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a section.
    #[inline(always)]
    pub(crate) unsafe fn alloc_fast(&self, cpu: u32) -> Option<NonNull<u8>> {
        // SAFETY: by contract.
        unsafe { self.0.alloc_fast(cpu) }
    }

    /// # Safety
    ///
    /// `caller` is the calling thread; `element` is one of these, unlinked, and was not freed since.
    #[inline]
    pub(crate) unsafe fn free(&self, caller: Caller, element: NonNull<u8>) {
        match caller {
            // SAFETY: by contract.
            Caller::Cpu(cpu) => unsafe { self.0.free(cpu, element) },
            // SAFETY: by contract.
            Caller::Host => unsafe { self.0.free_without_slot(element) },
        }
    }

    /// # Safety
    ///
    /// As for `free`, and nobody has ever found the element.
    #[inline]
    pub(crate) unsafe fn free_unpublished(&self, caller: Caller, element: NonNull<u8>) {
        match caller {
            // SAFETY: by contract.
            Caller::Cpu(cpu) => unsafe { self.0.free_unpublished(cpu, element) },
            // SAFETY: by contract.
            Caller::Host => unsafe { self.0.free_unpublished_without_slot(element) },
        }
    }

    /// Finds an element that stays what it is until the reader's section ends. What is found, and is younger than what the
    /// reader had announced before it looked, is looked for again after it has announced more; in the end under the lock of
    /// what it is in, where nothing younger comes in between.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a normal section; what is found are elements of these.
    #[inline(always)]
    pub(crate) unsafe fn hold(
        &self,
        cpu: u32,
        version: &Version,
        mut find: impl FnMut(Lookup) -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: by contract, all.
        unsafe {
            let era = self.0.ensure_announced(cpu);
            let found = find(Lookup::Lockless)?;
            if self.0.holds(found, era) {
                return Some(found);
            }
            self.hold_slow(cpu, version, find)
        }
    }

    /// # Safety
    ///
    /// As for `hold`.
    #[cold]
    #[inline(never)]
    unsafe fn hold_slow(
        &self,
        cpu: u32,
        version: &Version,
        mut find: impl FnMut(Lookup) -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        const TURNS: u32 = 8;
        let held = |era, found: &NonNull<u8>| {
            // SAFETY: what was announced before it was found; an element of these.
            unsafe { self.0.holds(*found, era) }
        };
        for _ in 0..TURNS {
            // SAFETY: by contract.
            let era = unsafe { self.0.announce(cpu) };
            let found = find(Lookup::Lockless)?;
            if held(era, &found) {
                return Some(found);
            }
        }
        version.retry_until(Caller::Cpu(cpu), |lock| {
            // SAFETY: by contract.
            let era = unsafe { self.0.announce(cpu) };
            let found = find(if lock.is_some() { Lookup::Locked } else { Lookup::Lockless });
            found.is_none_or(|found| held(era, &found)).then_some(found)
        })
    }

    /// As [`hold`](Self::hold), at the first attempt, by a reader that has announced enough already. `None` where that is not so,
    /// or the attempt gives nothing.
    ///
    /// # Safety
    ///
    /// As for [`hold`](Self::hold).
    #[inline(always)]
    pub(crate) unsafe fn hold_fast(
        &self,
        cpu: u32,
        find: impl FnOnce() -> Option<Option<NonNull<u8>>>,
    ) -> Option<Option<NonNull<u8>>> {
        // SAFETY: by contract, both.
        unsafe {
            let era = self.0.announced(cpu)?;
            let found = find()?;
            found.is_none_or(|found| self.0.holds(found, era)).then_some(found)
        }
    }

    /// Says that a reader is about to look for elements.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a normal section.
    pub(crate) unsafe fn announce(&self, cpu: u32) {
        // SAFETY: by contract.
        unsafe { self.0.ensure_announced(cpu) };
    }

    pub(crate) fn policy(&self) -> Policy {
        self.0.policy()
    }

    #[cfg(test)]
    pub(crate) fn domain(&self) -> &Domain {
        self.0.domain()
    }

    pub(crate) fn stats(&self) -> CacheStats {
        self.0.stats()
    }

    /// Whether whoever copies an element out must have its lock: nothing waits for him, and memory may go away. Where it stays, the
    /// version says whether what was copied was an element.
    #[inline]
    pub(crate) fn must_lock(&self, caller: Caller) -> bool {
        caller == Caller::Host && self.are_separate()
    }

    /// Whether elements in use must be freed one by one before this is dropped.
    pub(crate) fn are_separate(&self) -> bool {
        self.policy() == Policy::None
    }
}

impl Drop for Elements {
    fn drop(&mut self) {
        // SAFETY: taken here and nowhere else. Whoever drops a map says that no program can use it any more, nor anything found
        // in it.
        unsafe { ManuallyDrop::take(&mut self.0).close() };
    }
}
