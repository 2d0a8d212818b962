//! Fences, scans, eras and unguarded sections: for allocators and data structures that are built on a [`Domain`].
//!
//! Nothing here is needed to read or update shared data: [`Domain`] alone is enough for that.
//!
//! # Eras
//!
//! A reader that stays inside for long blocks a grace period, but it cannot hold objects that were born after its last
//! look-up. *Interval-based reclamation* (Wen et al., PPoPP 2018) uses that:
//!
//! 1. the allocator stores the [`current_era`] in each object that it hands out: its *birth era*;
//! 2. a reader [announces](announce_era) an era before it looks anything up, and treats an object that was born later
//!    as not found: it announces again and repeats the look-up;
//! 3. an object that was unlinked before a [`Cookie`] is held by no reader once, after a [`heavy_fence`], each of the
//!    [`active_eras`] begins at or after the cookie, or ends before the object's birth era.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::claim;
use crate::domain::{Cookie, Domain, Grace};
use crate::error::Error;
use crate::readers::{FENCED, Readers, Record};
use crate::section::Section;

/// Enters a normal section without a guard; [`leave`] on the same thread ends it.
///
/// # Errors
///
/// As [`Domain::enter`].
#[inline]
pub fn enter(domain: &Domain) -> Result<(), Error> {
    std::mem::forget(domain.enter()?);
    Ok(())
}

/// Leaves a section that this thread entered with [`enter`].
///
/// # Safety
///
/// This thread called [`enter`] for this domain and has not left that section yet.
#[inline]
pub unsafe fn leave(domain: &Domain) {
    // A thread keeps its slot as long as it is in a section.
    if let Some(record) = claim::find(&domain.readers) {
        drop(Section::entered(&domain.readers, record));
    }
}

/// A handle that does not keep the domain open. The domain's own callbacks and
/// [background tasks](crate::BackgroundTask) hold such handles: counted ones would keep the domain open for ever.
///
/// Grace-period queries stay valid, but they may not notice that the last counted handle was dropped.
#[must_use]
pub fn uncounted(domain: &Domain) -> Domain {
    domain.uncounted()
}

/// Scans all readers once and publishes which cookies have passed. Returns whether any cookie has passed that had not
/// before.
///
/// Unlike [`Domain::try_pass`] it takes no lock and runs no callback, so sections and signal handlers may call it.
pub fn scan(domain: &Domain) -> bool {
    domain.keeper.scan_without_lock()
}

/// Whether a [`scan`] may be worth its cost: `false` if some reader is seen to block the cookie. Costs one load for
/// each claimed slot and no system call. Proves nothing.
pub fn may_pass(domain: &Domain, cookie: Cookie, grace: Grace) -> bool {
    grace.flavours().iter().all(|flavour| domain.readers.may_pass(cookie.number(), *flavour))
}

/// The light half of a fence whose other half is [`heavy_fence`].
///
/// One thread executes this between a store and a load, another executes the heavy half between its own store and load:
/// at least one of them sees the other's store. Free where membarrier(2) is used, else as expensive as a fence.
#[inline(always)]
pub fn light_fence(domain: &Domain) {
    domain.readers.barrier().light();
}

/// The heavy half of [`light_fence`]: a system call. Returns `false` if the system refuses it; the fence has not
/// happened then.
pub fn heavy_fence(domain: &Domain) -> bool {
    domain.readers.fence().is_ok()
}

/// The newest cookie that a heavy fence has followed, on whatever thread. For this and older cookies the caller needs
/// no fence of its own, if it reads the [`active_eras`] after this call.
pub fn fenced(domain: &Domain) -> Cookie {
    Cookie::from_number(domain.readers.fenced())
}

/// The current era, which grows with every cookie. Objects that are born after this call have this era or a later one.
#[inline(always)]
pub fn current_era(domain: &Domain) -> u64 {
    domain.readers.era() & !FENCED
}

/// The era that the slot's owner has [announced](announce_era) in its current normal section, if any: it may hold
/// objects that were born up to then. For the thread that owns the slot, inside a normal section.
///
/// # Panics
///
/// If the domain has no slot of that number.
#[inline(always)]
pub fn announced_era(domain: &Domain, slot: u32) -> Option<u64> {
    domain.readers.announced_era(slot).map(|era| era & !FENCED)
}

/// Announces the current era for the slot. For the thread that owns the slot, inside a normal section.
///
/// An object that the thread found before, and that was born after the era announced earlier, must be looked up again.
///
/// # Panics
///
/// If the domain has no slot of that number.
#[inline(always)]
pub fn announce_era(domain: &Domain, slot: u32) {
    domain.readers.announce_era(slot);
}

/// Calls `each` for every reader that has announced an era in its current normal section, with the moment at which the
/// section began and the announced era. A reader that has announced nothing holds nothing.
///
/// The [module](self) says which objects such a reader can hold. Without a [`heavy_fence`] between the object's cookie
/// and this call the answer is only a hint.
pub fn active_eras(domain: &Domain, mut each: impl FnMut(Cookie, u64)) {
    domain.readers.active_eras(|entered, announced| each(Cookie::from_number(entered), announced & !FENCED));
}

/// The announced eras of a domain, for callers that read or announce one at every look-up: one indirection less than
/// [`announced_era`]. Does not keep the domain open.
pub struct Eras {
    /// The records of `readers`.
    records: NonNull<Record>,
    readers: Arc<Readers>,
}

// SAFETY: the records are those of `readers`, which is `Send` and `Sync`; they are only ever accessed atomically.
unsafe impl Send for Eras {}
// SAFETY: as above.
unsafe impl Sync for Eras {}

impl Eras {
    /// The eras of this domain.
    pub fn new(domain: &Domain) -> Self {
        let readers = Arc::clone(&domain.readers);
        Self { records: readers.records(), readers }
    }

    /// As [`announced_era`].
    ///
    /// # Safety
    ///
    /// The domain has a slot of that number.
    #[inline(always)]
    pub unsafe fn announced(&self, slot: u32) -> Option<u64> {
        // SAFETY: one of the records, by the caller's contract; they live as long as `readers`.
        let record = unsafe { self.records.add(slot as usize).as_ref() };
        record.announced_era().map(|era| era & !FENCED)
    }

    /// As [`announce_era`].
    ///
    /// # Panics
    ///
    /// If the domain has no slot of that number.
    #[inline]
    pub fn announce(&self, slot: u32) {
        self.readers.announce_era(slot);
    }
}

impl fmt::Debug for Eras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Eras")
    }
}
