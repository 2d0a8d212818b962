//! Who of the readers inside holds what.

use crate::store::Batch;
use crate::sync::{Cookie, Domain, Grace, Ordering};

/// More readers than this are taken for fewer that hold more.
const MOST: usize = 32;

/// For each reader in a normal section that has looked for anything, when the section began, and up to when things must have been
/// made for it to hold them.
pub(crate) struct Holders<'a> {
    domain: &'a Domain,
    /// For what was unlinked before this cookie it is true; for what came later it is a guess.
    fenced: Cookie,
    readers: [(Cookie, u64); MOST],
    len: usize,
}

impl<'a> Holders<'a> {
    pub(crate) fn of(domain: &'a Domain) -> Self {
        // First how far there was a heavy fence, then who holds what.
        let fenced = domain.fenced();
        let mut holders = Self { domain, fenced, readers: [(Cookie::from_number(0), 0); MOST], len: 0 };
        domain.holders(|since, horizon| {
            if holders.len < MOST {
                holders.readers[holders.len] = (since, horizon);
                holders.len += 1;
            } else {
                let (first, last) = &mut holders.readers[MOST - 1];
                *first = since.min(*first);
                *last = horizon.max(*last);
            }
        });
        holders
    }

    /// Whether nobody holds anything of a batch.
    pub(crate) fn frees(&self, batch: &Batch) -> bool {
        cookie(batch) <= self.fenced && self.seems_to_free(batch)
    }

    /// Whether nobody is seen to hold anything of it: another fence may show somebody.
    pub(crate) fn seems_to_free(&self, batch: &Batch) -> bool {
        let cookie = cookie(batch);
        // Relaxed: whoever has the batch.
        let oldest = batch.oldest.load(Ordering::Relaxed);
        let free = |&(since, horizon): &(Cookie, u64)| since >= cookie || horizon < oldest;
        self.readers[..self.len].iter().all(free) || self.domain.passed(cookie, Grace::Normal)
    }
}

/// The cookie of a sealed batch.
pub(crate) fn cookie(batch: &Batch) -> Cookie {
    // Relaxed: whoever has the batch.
    Cookie::from_number(batch.cookie.load(Ordering::Relaxed))
}
