//! What a thread remembers about the slots it has claimed.
//!
//! ```text
//!   LAST ──────────────┐  one pointer: the claim used last, or null
//!                      v
//!   CLAIMS ─> [ Box<Claim>, Box<Claim>, ... ]      one for each instance this thread has entered
//!                  │ id, number, uses
//!                  └ home (Weak) ─> the instance's bitmap
//! ```
//!
//! The fast path reads `LAST` and compares instance ids; ids are never given out twice, so a claim of an
//! instance that is gone can never be mistaken for a claim of a new one. `LAST` is a cell without a
//! destructor, so it can be read even while the thread's other destructors run.
//!
//! `uses` counts the guards that stand on a claim. A claim is freed only when that count is zero: by the
//! thread's end, by an explicit release, or, with [`ORPHAN`] set because the thread's end found guards still
//! alive, by the last of these guards.
//!
//! All of this is private to one thread; the only thing shared is the bitmap behind `home`.
//!
//! What would break it: freeing a claim that `LAST` still names, or one that a guard stands on.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use crate::Error;
use crate::bitmap::Bitmap;

/// Added to `uses` when the thread's end found guards alive: the last guard frees the claim.
/// Wide enough that no program can count into it by forgetting guards in a loop.
const ORPHAN: u64 = 1 << 63;

/// One thread's hold on one slot of one instance.
pub(crate) struct Claim {
    id: u64,
    number: u32,
    uses: Cell<u64>,
    home: Weak<Bitmap>,
}

thread_local! {
    static LAST: Cell<*const Claim> = const { Cell::new(ptr::null()) };
    static CLAIMS: RefCell<Claims> = const { RefCell::new(Claims(Vec::new())) };
}

/// Finds or makes this thread's claim on the instance `id` and counts one use of it.
#[inline]
pub(crate) fn enter(id: u64, home: &Arc<Bitmap>) -> Result<NonNull<Claim>, Error> {
    let last = LAST.get();
    // SAFETY: `LAST` is null or names a claim that is alive: whoever frees a claim clears it first (`free`).
    match unsafe { last.as_ref() } {
        Some(claim) if claim.id == id => {
            claim.uses.set(claim.uses.get() + 1);
            Ok(NonNull::from(claim))
        }
        _ => enter_slowly(id, home),
    }
}

/// Ends one use of a claim.
///
/// # Safety
///
/// `claim` came from [`enter`] on this thread, and this is the one `leave` for that `enter`.
#[inline]
pub(crate) unsafe fn leave(claim: NonNull<Claim>) {
    // SAFETY: a claim in use is not freed; the caller's use is not over yet.
    let uses = unsafe { &claim.as_ref().uses };
    let left = uses.get() - 1;
    uses.set(left);
    if left == ORPHAN {
        // SAFETY: the thread's end gave the claim up for us (`Claims::drop`), and no other use is left.
        unsafe { free(claim) };
    }
}

/// The number of the slot that a claim holds.
///
/// # Safety
///
/// `claim` came from [`enter`] on this thread and its use is not over.
#[inline]
pub(crate) unsafe fn number(claim: NonNull<Claim>) -> u32 {
    // SAFETY: a claim in use is not freed.
    unsafe { claim.as_ref().number }
}

/// Gives back this thread's slot of the instance `id`. `false` when there is none or it is in use.
pub(crate) fn release(id: u64) -> bool {
    with_claims(|claims| {
        let Some(index) = claims.0.iter().position(|claim| {
            // SAFETY: claims on the list are alive.
            let claim = unsafe { claim.as_ref() };
            claim.id == id && claim.uses.get() == 0
        }) else {
            return false;
        };
        let claim = claims.0.swap_remove(index);
        // SAFETY: it has left the list and has no uses.
        unsafe { free(claim) };
        true
    })
    .unwrap_or(false)
}

#[cold]
#[inline(never)]
fn enter_slowly(id: u64, home: &Arc<Bitmap>) -> Result<NonNull<Claim>, Error> {
    with_claims(|claims| {
        let known = claims.0.iter().copied().find(|claim| {
            // SAFETY: claims on the list are alive.
            unsafe { claim.as_ref() }.id == id
        });
        let claim = match known {
            Some(claim) => claim,
            None => claims.add(id, home)?,
        };
        LAST.set(claim.as_ptr());
        // SAFETY: as above.
        let uses = unsafe { &claim.as_ref().uses };
        uses.set(uses.get() + 1);
        Ok(claim)
    })
    .unwrap_or(Err(Error::Unavailable))
}

/// Runs `f` on the thread's claims; `None` when they are gone already or in use below us on the stack.
fn with_claims<R>(f: impl FnOnce(&mut Claims) -> R) -> Option<R> {
    CLAIMS.try_with(|claims| Some(f(&mut *claims.try_borrow_mut().ok()?))).ok().flatten()
}

/// # Safety
///
/// `claim` is on no list, has no uses, and belongs to this thread.
unsafe fn free(claim: NonNull<Claim>) {
    if LAST.get() == claim.as_ptr() {
        LAST.set(ptr::null());
    }
    // SAFETY: made by `Box::leak` in `Claims::add`; the caller vouches that nobody uses it any more.
    let claim = unsafe { Box::from_raw(claim.as_ptr()) };
    if let Some(home) = claim.home.upgrade() {
        home.release(claim.number);
    }
}

/// The claims of one thread.
struct Claims(Vec<NonNull<Claim>>);

impl Claims {
    fn add(&mut self, id: u64, home: &Arc<Bitmap>) -> Result<NonNull<Claim>, Error> {
        self.forget_dead_instances();
        let number = home.claim().ok_or(Error::NoSlot { limit: home.limit() })?;
        let claim = Box::new(Claim { id, number, uses: Cell::new(0), home: Arc::downgrade(home) });
        let claim = NonNull::from(Box::leak(claim));
        self.0.push(claim);
        Ok(claim)
    }

    /// Keeps a long-lived thread from collecting claims of instances that came and went.
    fn forget_dead_instances(&mut self) {
        self.0.retain(|&claim| {
            // SAFETY: claims on the list are alive.
            let alive = unsafe { claim.as_ref() }.home.strong_count() > 0;
            if !alive {
                // SAFETY: a guard borrows its instance, so a dead instance has no guards; a guard that was
                // forgotten left its count behind but never comes back to use it.
                unsafe { free(claim) };
            }
            alive
        });
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        LAST.set(ptr::null());
        for claim in self.0.drain(..) {
            // SAFETY: claims on the list are alive.
            let uses = unsafe { &claim.as_ref().uses };
            match uses.get() {
                // SAFETY: no uses, and it has just left the list.
                0 => unsafe { free(claim) },
                // A guard lives in some other thread-local value that is dropped after this one.
                used => uses.set(used | ORPHAN),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Slots;

    fn remembered() -> usize {
        super::with_claims(|claims| claims.0.len()).unwrap()
    }

    #[test]
    fn a_thread_that_outlives_many_instances_does_not_collect_their_claims() {
        let stays = Slots::new(1).unwrap();
        drop(stays.enter().unwrap());
        for _ in 0..1000 {
            let goes = Slots::new(1).unwrap();
            drop(goes.enter().unwrap());
            assert!(remembered() <= 3);
        }
        assert_eq!(stays.enter().unwrap().number(), 0);
    }

    #[test]
    fn a_claim_is_remembered_until_it_is_released() {
        let slots = Slots::new(1).unwrap();
        let guard = slots.enter().unwrap();
        assert_eq!(remembered(), 1);
        drop(guard);
        assert_eq!(remembered(), 1);
        assert!(slots.release());
        assert_eq!(remembered(), 0);
    }
}
