//! What a thread remembers about the slots it has claimed.
//!
//! ```text
//!   LAST ──────────────┐  one pointer: the record used last, or `UNCLAIMED`
//!                      v
//!   CLAIMS ─> [ Claim, Claim, ... ]       one for each domain this thread has entered
//!                 └ readers (Arc) ─> the domain's records: they stay in memory as long as a thread remembers them
//! ```
//!
//! The fast path reads `LAST` and compares the record's domain. The claim keeps the records in memory, so the record
//! of a dropped domain can be read too, and no later domain has its address. `LAST` is a cell without a destructor,
//! so it can be read even while the thread's other destructors run.
//!
//! A slot is given back only while its thread has no section and no reader: at the thread's end, by an explicit
//! release, or by the last section or reader if the slot is a shared one or if these outlive the thread's end.
//!
//! A thread that finds no free slot waits for a shared one, unless it has a slot in use in another domain: two such
//! threads could wait for each other.
//!
//! All of this is private to one thread; shared state is behind `readers`. But signal handlers enter and leave as well,
//! and the last section of a handler gives a shared slot back. So a shared slot is in use before anything else can find
//! it (`begin` runs while the claims are borrowed), and `LAST` forgets it before it is idle.
//!
//! What would break it: giving back a slot that `LAST` still names, or one with a section or a reader; an idle shared
//! slot that a handler finds; waiting on a keeper, or in a forked child, where the threads that have the slots do not
//! run.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

use crate::error::Error;
use crate::keeper::Keeper;
use crate::readers::{Readers, Record};

/// One thread's claim on one slot of one domain.
struct Claim {
    readers: Arc<Readers>,
    /// The slot; `None` between two uses of shared slots.
    number: Option<u32>,
}

/// The initial value of `LAST`, so that the fast path need not check for null.
static UNCLAIMED: Record = Record::unclaimed();

thread_local! {
    static LAST: Cell<*const Record> = const { Cell::new(ptr::addr_of!(UNCLAIMED)) };
    static CLAIMS: RefCell<Claims> = const { RefCell::new(Claims(Vec::new())) };
}

/// Finds or makes this thread's claim on a domain, and begins to use it: `begin` enters or pins the record.
#[inline(always)]
pub(crate) fn claim<'a>(
    readers: &'a Arc<Readers>,
    keeper: &Keeper,
    begin: impl FnOnce(&Record),
) -> Result<&'a Record, Error> {
    match last(readers) {
        Some(record) => {
            begin(record);
            Ok(record)
        }
        None => claim_slowly(readers, keeper, begin),
    }
}

/// Begins to use this thread's record in a domain, if it has claimed one.
pub(crate) fn find_to(readers: &Arc<Readers>, begin: impl FnOnce(&Record)) -> Option<&Record> {
    match last(readers) {
        Some(record) => {
            begin(record);
            Some(record)
        }
        None => with_claims(|claims| {
            let record = readers.record(claims.number(readers)?);
            begin(record);
            Some(record)
        })
        .flatten(),
    }
}

/// This thread's record in a domain, if it has claimed one.
pub(crate) fn find(readers: &Arc<Readers>) -> Option<&Record> {
    find_to(readers, |_| ())
}

/// The record of a slot that is given back is about to be idle: a handler must not find it on the fast path.
#[inline]
pub(crate) fn forget_last() {
    LAST.set(&raw const UNCLAIMED);
}

/// Gives back this thread's slot. Returns `false` if there is none or it is in use.
pub(crate) fn release(readers: &Arc<Readers>) -> bool {
    with_claims(|claims| {
        let Some(index) = claims.index(readers) else { return false };
        let given_back = claims.give_back(index);
        if given_back {
            claims.0.swap_remove(index);
        }
        given_back
    })
    .unwrap_or(false)
}

/// The last section or reader of a slot that they give back has ended.
#[cold]
#[inline(never)]
pub(crate) fn give_back(readers: &Readers, record: &Record) {
    let alive = CLAIMS.try_with(|claims| {
        // A handler that interrupted the claims leaves the slot to the next section.
        let Ok(mut claims) = claims.try_borrow_mut() else { return };
        // The claim stays, so that the next one costs less.
        if let Some(index) = claims.0.iter().position(|claim| ptr::eq(Arc::as_ptr(&claim.readers), readers)) {
            claims.give_back(index);
        }
    });
    if alive.is_err() {
        // The thread is ending, and its claims are gone.
        readers.give_back(record);
    }
}

#[inline(always)]
fn last(readers: &Arc<Readers>) -> Option<&Record> {
    let last = LAST.get();
    // SAFETY: `LAST` names `UNCLAIMED` or the record of a claim on the list, which keeps the memory; code that
    // removes a claim from the list resets `LAST` first. A record of `readers` lives as long as `readers`.
    let record = unsafe { &*last };
    record.is_of(Arc::as_ptr(readers)).then_some(record)
}

#[cold]
#[inline(never)]
fn claim_slowly<'a>(
    readers: &'a Arc<Readers>,
    keeper: &Keeper,
    begin: impl FnOnce(&Record),
) -> Result<&'a Record, Error> {
    with_claims(|claims| {
        let number = match claims.number(readers) {
            Some(number) => number,
            None => claims.add(readers, keeper)?,
        };
        let record = readers.record(number);
        begin(record);
        LAST.set(record);
        Ok(record)
    })
    .unwrap_or(Err(Error::Unavailable))
}

/// Runs `f` on the thread's claims; `None` if they are destroyed or borrowed further up the stack.
fn with_claims<R>(f: impl FnOnce(&mut Claims) -> R) -> Option<R> {
    CLAIMS.try_with(|claims| Some(f(&mut *claims.try_borrow_mut().ok()?))).ok().flatten()
}

/// The claims of one thread.
struct Claims(Vec<Claim>);

impl Claims {
    fn index(&self, readers: &Arc<Readers>) -> Option<usize> {
        self.0.iter().position(|claim| Arc::ptr_eq(&claim.readers, readers))
    }

    fn number(&self, readers: &Arc<Readers>) -> Option<u32> {
        self.index(readers).and_then(|index| self.0[index].number)
    }

    fn add(&mut self, readers: &Arc<Readers>, keeper: &Keeper) -> Result<u32, Error> {
        let index = match self.index(readers) {
            Some(index) => index,
            None => {
                self.forget_closed_domains();
                // Reserve first: a claim that cannot be recorded would be lost.
                self.0.try_reserve(1).map_err(|_| Error::NoMemory)?;
                self.0.push(Claim { readers: Arc::clone(readers), number: None });
                self.0.len() - 1
            }
        };
        let record = match readers.claim() {
            Some(record) => record,
            None if readers.has_shared() && !self.is_used() && keeper.may_wait_here() => {
                readers.claim_in_turn()
            }
            None => return Err(Error::NoSlot { limit: readers.slots().limit() }),
        };
        let number = record.number();
        self.0[index].number = Some(number);
        Ok(number)
    }

    /// Whether the thread has a section or a reader in any domain.
    fn is_used(&self) -> bool {
        self.0.iter().any(|claim| claim.number.is_some_and(|number| claim.readers.record(number).is_used()))
    }

    /// Gives a slot back, if there is one and nothing uses it.
    fn give_back(&mut self, index: usize) -> bool {
        let claim = &mut self.0[index];
        let Some(number) = claim.number else { return false };
        // A handler that enters from here on must not find the record on the fast path. A handler that did so before
        // has left again.
        forget_last();
        let given_back = claim.readers.give_back(claim.readers.record(number));
        if given_back {
            claim.number = None;
        }
        given_back
    }

    /// Keeps a long-lived thread from accumulating claims of dropped domains.
    fn forget_closed_domains(&mut self) {
        if self.0.iter().any(|claim| claim.readers.is_closed()) {
            LAST.set(&raw const UNCLAIMED);
            // A section borrows its domain, so a dropped domain has none. A forgotten section left its word behind,
            // but is never left.
            self.0.retain(|claim| !claim.readers.is_closed());
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        LAST.set(&raw const UNCLAIMED);
        for claim in self.0.drain(..) {
            // A section may be in another thread-local value that is dropped after this one.
            if let Some(number) = claim.number {
                claim.readers.abandon(claim.readers.record(number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Domain;
    use crate::readers::NORMAL;
    use crate::section::Section;

    fn remembered() -> usize {
        super::with_claims(|claims| claims.0.len()).unwrap()
    }

    #[test]
    fn a_thread_that_outlives_many_domains_does_not_collect_their_claims() {
        let stays = Domain::new(1).unwrap();
        drop(stays.enter().unwrap());
        for _ in 0..1000 {
            let goes = Domain::new(1).unwrap();
            drop(goes.enter().unwrap());
            assert!(remembered() <= 3);
        }
        assert_eq!(stays.enter().unwrap().number(), 0);
    }

    /// A signal handler may run anywhere. Here it runs between the claim and the section.
    #[test]
    fn no_handler_gives_back_a_shared_slot_that_is_about_to_be_used() {
        let domain = Domain::builder().slots(1).shared(1).build().unwrap();
        let handler = || drop(domain.enter());
        let record = super::claim(&domain.readers, &domain.keeper, |record| {
            handler();
            assert_eq!(domain.in_use(), 1, "the slot is still this thread's");
            domain.readers.enter(record, NORMAL);
        });
        let section = Section::entered(&domain.readers, record.unwrap());
        handler();
        assert_eq!(domain.in_use(), 1, "the section lasts");
        drop(section);
        assert_eq!(domain.in_use(), 0);
    }

    /// Or between the end of a section and the return of the slot: within the handler another one runs.
    #[test]
    fn no_handler_uses_a_shared_slot_that_another_gives_back() {
        let domain = Domain::builder().slots(1).shared(1).build().unwrap();
        std::mem::forget(domain.enter().unwrap());
        let record = super::find(&domain.readers).unwrap();
        assert!(record.leave(NORMAL, super::forget_last));
        assert!(super::last(&domain.readers).is_none(), "a handler does not find it on the fast path");
        let found = super::find_to(&domain.readers, |record| {
            drop(domain.enter());
            assert_eq!(domain.in_use(), 1, "the slot is still this thread's");
            domain.readers.enter(record, NORMAL);
        });
        drop(Section::entered(&domain.readers, found.unwrap()));
        assert_eq!(domain.in_use(), 0);
        super::give_back(&domain.readers, record);
        assert_eq!(domain.in_use(), 0);
    }

    #[test]
    fn a_claim_is_remembered_until_it_is_released() {
        let domain = Domain::new(1).unwrap();
        let section = domain.enter().unwrap();
        assert_eq!(remembered(), 1);
        drop(section);
        assert_eq!(remembered(), 1);
        assert!(domain.release());
        assert_eq!(remembered(), 0);
    }
}
