//! Where the elements of a map come from, and whose readers they wait for.

use std::ptr::NonNull;

use skep_mem::{Cache, CacheOptions, CacheStats, Error, Horizon, Policy};
use skep_rcu::Domain;

/// What maps share that programs of one host use: the readers, and when memory is reused.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Programs run in its read sections, and its slots are the virtual CPUs.
    pub domain: Domain,
    /// When an element that was deleted may become another.
    pub policy: Policy,
}

impl Memory {
    /// Elements that are reused after a grace period.
    pub fn new(domain: Domain) -> Self {
        Self { domain, policy: Policy::default() }
    }
}

/// Who changes or reads a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The thread that has this slot, inside a section.
    Cpu(u32),
    /// A thread without a slot. Nothing waits for it.
    Nobody,
}

/// The memory of a map's elements. Dropping it gives all of it back at once.
#[derive(Debug)]
pub(crate) struct Elements(Option<Cache>);

impl Elements {
    pub(crate) fn new(memory: &Memory, options: CacheOptions) -> Result<Self, Error> {
        Cache::new(&memory.domain, &options.policy(memory.policy)).map(|cache| Self(Some(cache)))
    }

    #[inline(always)]
    fn cache(&self) -> &Cache {
        match &self.0 {
            Some(cache) => cache,
            None => unreachable!("taken by `drop` only"),
        }
    }

    /// # Safety
    ///
    /// `by` is the calling thread.
    #[inline]
    pub(crate) unsafe fn alloc(&self, by: By) -> Result<NonNull<u8>, Error> {
        match by {
            // SAFETY: by contract.
            By::Cpu(cpu) => unsafe { self.cache().alloc(cpu) },
            By::Nobody => self.cache().alloc_without_slot(),
        }
    }

    /// # Safety
    ///
    /// `by` is the calling thread; `element` is one of these, unlinked, and was not freed since.
    #[inline]
    pub(crate) unsafe fn free(&self, by: By, element: NonNull<u8>) {
        match by {
            // SAFETY: by contract.
            By::Cpu(cpu) => unsafe { self.cache().free(cpu, element) },
            // SAFETY: by contract.
            By::Nobody => unsafe { self.cache().free_without_slot(element) },
        }
    }

    /// # Safety
    ///
    /// As for `free`, and nobody has ever found the element.
    #[inline]
    pub(crate) unsafe fn give_back(&self, by: By, element: NonNull<u8>) {
        match by {
            // SAFETY: by contract.
            By::Cpu(cpu) => unsafe { self.cache().give_back(cpu, element) },
            // SAFETY: by contract.
            By::Nobody => unsafe { self.cache().give_back_without_slot(element) },
        }
    }

    /// To be called before a reader looks for what it is going to hold.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a normal section.
    #[inline(always)]
    pub(crate) unsafe fn look(&self, cpu: u32) -> Horizon {
        // SAFETY: by contract.
        unsafe { self.cache().look(cpu) }
    }

    /// To be called before it looks again, for something younger.
    ///
    /// # Safety
    ///
    /// As for [`look`](Self::look).
    pub(crate) unsafe fn look_further(&self, cpu: u32) -> Horizon {
        // SAFETY: by contract.
        unsafe { self.cache().look_further(cpu) }
    }

    /// Whether what was found stays what it is until the reader's section ends; if not, it is to be looked for again.
    ///
    /// # Safety
    ///
    /// `horizon` is what the calling thread got in this section before it looked; `element` is one of these.
    #[inline(always)]
    pub(crate) unsafe fn holds(&self, element: NonNull<u8>, horizon: Horizon) -> bool {
        // SAFETY: by contract.
        unsafe { self.cache().holds(element, horizon) }
    }

    pub(crate) fn policy(&self) -> Policy {
        self.cache().policy()
    }

    #[cfg(test)]
    pub(crate) fn domain(&self) -> &Domain {
        self.cache().domain()
    }

    pub(crate) fn stats(&self) -> CacheStats {
        self.cache().stats()
    }

    /// Whether whoever copies an element out must have its lock: nothing waits for him, and memory may go away. Where it stays, the
    /// version says whether what was copied was an element.
    #[inline]
    pub(crate) fn must_lock(&self, by: By) -> bool {
        by == By::Nobody && self.are_separate()
    }

    /// Whether elements in use must be freed one by one before this is dropped.
    pub(crate) fn are_separate(&self) -> bool {
        self.policy() == Policy::None
    }
}

impl Drop for Elements {
    fn drop(&mut self) {
        if let Some(cache) = self.0.take() {
            // SAFETY: whoever drops a map says that no program can use it any more, nor anything found in it.
            unsafe { cache.close() };
        }
    }
}
