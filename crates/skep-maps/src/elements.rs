//! The memory of a map's elements.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use skep_mem::{Account, Cache, CacheOptions, CacheStats, Error, Policy, SharedObjects};
use skep_rcu::Domain;

use crate::caller::Caller;
use crate::version::Version;

/// The readers and the reuse policy that all maps of one host share.
#[derive(Clone, Debug)]
pub struct Reclamation {
    /// Programs run in its sections, and its slots are the virtual CPUs.
    pub domain: Domain,
    /// When a deleted element may be reused.
    pub policy: Policy,
    /// What the memory of maps is charged to.
    pub account: Option<Arc<Account>>,
    /// What counts maps.
    pub count: Option<Arc<Account>>,
}

impl Reclamation {
    /// Elements are reused after a grace period.
    pub fn new(domain: Domain) -> Self {
        Self { domain, policy: Policy::default(), account: None, count: None }
    }
}

/// Whether a look-up holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Lockless,
    Locked,
}

/// The memory of a map's elements. Dropping it returns all of it at once.
#[derive(Debug)]
pub(crate) struct Elements(ManuallyDrop<Cache>);

impl Elements {
    pub(crate) fn new(memory: &Reclamation, options: CacheOptions) -> Result<Self, Error> {
        let cache =
            Cache::new(&memory.domain, &options.policy(memory.policy).account(memory.account.clone()))?;
        Ok(Self(ManuallyDrop::new(cache)))
    }

    /// # Safety
    ///
    /// `caller` is the calling thread.
    #[inline]
    pub(crate) unsafe fn alloc(&self, caller: Caller) -> Result<NonNull<u8>, Error> {
        match caller {
            // SAFETY: by the caller's contract.
            Caller::Cpu(cpu) => unsafe { self.0.alloc(cpu) },
            Caller::Host => self.0.alloc_without_slot(),
        }
    }

    /// A ready element, if there is one: the fast path.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a section.
    #[inline(always)]
    pub(crate) unsafe fn alloc_fast(&self, cpu: u32) -> Option<NonNull<u8>> {
        // SAFETY: by the caller's contract.
        unsafe { self.0.alloc_fast(cpu) }
    }

    /// # Safety
    ///
    /// `caller` is the calling thread; `element` is one of these, unlinked, and has not been freed since.
    #[inline]
    pub(crate) unsafe fn free(&self, caller: Caller, element: NonNull<u8>) {
        match caller {
            // SAFETY: by the caller's contract.
            Caller::Cpu(cpu) => unsafe { self.0.free(cpu, element) },
            // SAFETY: by the caller's contract.
            Caller::Host => unsafe { self.0.free_without_slot(element) },
        }
    }

    /// # Safety
    ///
    /// As for `free`, and no reader has ever found the element.
    #[inline]
    pub(crate) unsafe fn free_unpublished(&self, caller: Caller, element: NonNull<u8>) {
        match caller {
            // SAFETY: by the caller's contract.
            Caller::Cpu(cpu) => unsafe { self.0.free_unpublished(cpu, element) },
            // SAFETY: by the caller's contract.
            Caller::Host => unsafe { self.0.free_unpublished_without_slot(element) },
        }
    }

    /// Finds an element that stays the same until the reader's section ends. If the element was born after the era
    /// that the reader had announced, the reader announces again and repeats the look-up; in the end under the lock
    /// of the list, where no younger element can appear.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a normal section; `find` returns elements of these.
    #[inline(always)]
    pub(crate) unsafe fn hold(
        &self,
        cpu: u32,
        version: &Version,
        mut find: impl FnMut(Lookup) -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: by the caller's contract, all.
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
            // SAFETY: the era was announced before the look-up; an element of these.
            unsafe { self.0.holds(*found, era) }
        };
        for _ in 0..TURNS {
            // SAFETY: by the caller's contract.
            let era = unsafe { self.0.announce(cpu) };
            let found = find(Lookup::Lockless)?;
            if held(era, &found) {
                return Some(found);
            }
        }
        version.retry_until(Caller::Cpu(cpu), |lock| {
            // SAFETY: by the caller's contract.
            let era = unsafe { self.0.announce(cpu) };
            let found = find(if lock.is_some() { Lookup::Locked } else { Lookup::Lockless });
            found.is_none_or(|found| held(era, &found)).then_some(found)
        })
    }

    /// The fast path of [`hold`](Self::hold): one attempt by a reader that has announced an era. `None` if it has
    /// not, if the attempt fails, or if the element is younger.
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
        // SAFETY: by the caller's contract, both.
        unsafe {
            let era = self.0.announced(cpu)?;
            let found = find()?;
            found.is_none_or(|found| self.0.holds(found, era)).then_some(found)
        }
    }

    /// Announces an era for a reader that is about to look up elements.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a normal section.
    pub(crate) unsafe fn announce(&self, cpu: u32) {
        // SAFETY: by the caller's contract.
        unsafe { self.0.ensure_announced(cpu) };
    }

    /// The elements as other processes see them, if they are in a file.
    pub(crate) fn shared(&self) -> Option<SharedObjects<'_>> {
        self.0.shared()
    }

    pub(crate) fn policy(&self) -> Policy {
        self.0.policy()
    }

    pub(crate) fn domain(&self) -> &Domain {
        self.0.domain()
    }

    pub(crate) fn stats(&self) -> CacheStats {
        self.0.stats()
    }

    /// Whether a caller that copies an element out must hold its lock: it is in no section, and the element's memory
    /// may be freed. Where memory stays mapped, the version shows whether the copy is of an element.
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
        // SAFETY: taken only here. Code that drops a map guarantees that no program can use it, or an element found
        // in it, any more.
        unsafe { ManuallyDrop::take(&mut self.0).close() };
    }
}
