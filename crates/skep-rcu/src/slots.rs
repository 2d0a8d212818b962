//! The public face: an instance, and the guard that stands for being inside it.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::bitmap::Bitmap;
use crate::claim::{self, Claim};

/// The largest number of slots one instance can have.
pub const MAX_SLOTS: u32 = 1 << 16;

/// A set of numbered slots for the threads that run something at the same time: virtual CPUs.
///
/// A thread claims the lowest free slot when it first enters and keeps it, so that its next entry costs about
/// a nanosecond, until it ends, until it calls [`release`](Self::release), or until the instance is dropped.
/// Make an instance with as many slots as threads will ever use it at once: data indexed by slot needs one
/// element for each.
pub struct Slots {
    id: u64,
    bitmap: Arc<Bitmap>,
}

impl Slots {
    /// An instance with the slots `0..limit`.
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`] when `limit` is zero or larger than [`MAX_SLOTS`].
    pub fn new(limit: u32) -> Result<Self, Error> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);

        if limit == 0 || limit > MAX_SLOTS {
            return Err(Error::SlotCount { wanted: limit, max: MAX_SLOTS });
        }
        // Relaxed: only uniqueness matters; `Slots` itself travels to other threads by means that synchronise.
        // At a billion instances a second it takes five centuries to wrap.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id, bitmap: Arc::new(Bitmap::new(limit)) })
    }

    /// Enters with this thread's slot, claiming the lowest free one if it has none yet.
    ///
    /// Entries nest; each returns the same number until the thread gives its slot back.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`] when every slot is claimed by another thread, [`Error::Unavailable`] when a thread
    /// without a slot asks for one from a destructor of thread-local data.
    #[inline]
    pub fn enter(&self) -> Result<SlotGuard<'_>, Error> {
        let claim = claim::enter(self.id, &self.bitmap)?;
        Ok(SlotGuard { claim, instance: PhantomData })
    }

    /// Gives this thread's slot back before the thread ends, for threads that will be idle for long.
    ///
    /// Returns `false`, and does nothing, when the thread has no slot here or still holds a [`SlotGuard`].
    pub fn release(&self) -> bool {
        claim::release(self.id)
    }

    /// How many slots there are. Numbers are below this.
    pub fn limit(&self) -> u32 {
        self.bitmap.limit()
    }

    /// How many slots are claimed. Other threads may change it at any moment.
    pub fn in_use(&self) -> u32 {
        self.bitmap.count()
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("limit", &self.limit()).field("in_use", &self.in_use()).finish()
    }
}

/// Proof that the current thread is inside a [`Slots`] instance; leaving is dropping it.
///
/// It cannot be sent to another thread. Forgetting one (`mem::forget`) costs the instance the slot for good,
/// nothing worse.
#[must_use = "the slot is only sure to be this thread's own while the guard lives"]
pub struct SlotGuard<'a> {
    claim: NonNull<Claim>,
    instance: PhantomData<&'a Slots>,
}

impl SlotGuard<'_> {
    /// The slot's number: at least 0, below [`Slots::limit`], and no other thread's while this guard lives.
    #[inline]
    pub fn number(&self) -> u32 {
        // SAFETY: our use of the claim ends in `drop`; the raw pointer inside keeps a guard on its own thread.
        unsafe { claim::number(self.claim) }
    }
}

impl Drop for SlotGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: made by `claim::enter` on this thread (a guard is not `Send`), dropped once.
        unsafe { claim::leave(self.claim) }
    }
}

impl fmt::Debug for SlotGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGuard").field("number", &self.number()).finish()
    }
}
