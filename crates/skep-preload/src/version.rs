//! A reader's side of the lock that guards a bucket of a hash table, in another process than the writers.
//!
//! ```text
//!   63                                  17 16                                0
//!   |  version: how often something was   | owner: who holds the lock, or 0  
//! |~~  |  unlinked or changed in place      |                                  |
//! ```
//!
//! A writer sets the owner, makes each change of the list by one store of a link, and unlocks with a new version if it
//! unlinked an element or changed a value in place. It frees unlinked elements after that. A reader notes the word,
//! walks, and compares the word again ([`Attempt`]). What it found is right if the word is the same: see
//! `skep-maps/src/version.rs`, which has the writers and the proof. The reader writes nothing, so it may stop or be
//! killed anywhere; and if a writer stops, the reader lets the supervisor look.

use crate::sync::{AtomicU64, Ordering, fence};

/// The bits of the word that name the lock's holder; 0 if it is free.
const OWNER: u64 = (1 << 17) - 1;

/// One walk through a bucket.
pub(crate) struct Attempt<'a> {
    word: &'a AtomicU64,
    seen: u64,
}

impl<'a> Attempt<'a> {
    /// `None` if somebody changes the bucket.
    #[inline]
    pub(crate) fn begin(word: &'a AtomicU64) -> Option<Self> {
        // Pairs with the Release of every unlocking: all that was changed under the lock is visible.
        let seen = word.load(Ordering::Acquire);
        (seen & OWNER == 0).then_some(Self { word, seen })
    }

    /// Whether nothing that was loaded since the beginning was reused or changed in place.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        // Pairs with the Release fences after locking, and before an element is filled: if a load before this saw what
        // a writer wrote after one of them, the load below sees that writer's lock, or a later word.
        fence(Ordering::Acquire);
        // Relaxed: see the fence.
        self.word.load(Ordering::Relaxed) == self.seen
    }
}
