//! Who of the readers inside holds what.

use skep_rcu::{Cookie, Domain, Grace};

use crate::store::Batch;
use crate::sync::Ordering;

/// More readers than this are taken for fewer that hold more.
const MOST: usize = 32;

/// For each reader in a normal section that has looked for anything, when the section began, and up to when things must have been made for it to hold them.
pub(crate) struct Holders<'a> {
    domain: &'a Domain,
    readers: [(Cookie, u64); MOST],
    len: usize,
}

impl<'a> Holders<'a> {
    /// After a heavy fence it is true for what was unlinked before the fence; without one it is a guess.
    pub(crate) fn of(domain: &'a Domain) -> Self {
        let mut holders = Self { domain, readers: [(Cookie::from_number(0), 0); MOST], len: 0 };
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
        // Relaxed: whoever has the batch.
        let cookie = Cookie::from_number(batch.cookie.load(Ordering::Relaxed));
        let oldest = batch.oldest.load(Ordering::Relaxed);
        let free = |&(since, horizon): &(Cookie, u64)| since >= cookie || horizon < oldest;
        self.readers[..self.len].iter().all(free) || self.domain.passed(cookie, Grace::Normal)
    }
}
