//! Which batches the readers inside cannot hold, by their active eras ([`skep_rcu::raw`]).

use crate::batch::Batch;
use crate::sync::{Cookie, Domain, Grace, Ordering, raw};

/// Readers beyond this number are merged into one that covers them all.
const MOST: usize = 32;

/// For each reader that has announced an era in its normal section: when the section began, and the era.
pub(crate) struct ActiveEras<'a> {
    domain: &'a Domain,
    /// Complete for objects that were unlinked before this cookie; only a hint for later ones.
    fenced: Cookie,
    readers: [(Cookie, u64); MOST],
    len: usize,
}

impl<'a> ActiveEras<'a> {
    pub(crate) fn of(domain: &'a Domain) -> Self {
        // First the last heavy fence, then the eras: the order that `raw::fenced` demands.
        let fenced = raw::fenced(domain);
        let mut eras = Self { domain, fenced, readers: [(Cookie::from_number(0), 0); MOST], len: 0 };
        raw::active_eras(domain, |entered, announced| {
            if eras.len < MOST {
                eras.readers[eras.len] = (entered, announced);
                eras.len += 1;
            } else {
                let (first, last) = &mut eras.readers[MOST - 1];
                *first = entered.min(*first);
                *last = announced.max(*last);
            }
        });
        eras
    }

    /// Whether no reader holds an object of the batch.
    pub(crate) fn frees(&self, batch: &Batch) -> bool {
        cookie(batch) <= self.fenced && self.seems_to_free(batch)
    }

    /// Whether no reader is seen to hold an object of the batch: only a hint if no heavy fence followed its cookie.
    pub(crate) fn seems_to_free(&self, batch: &Batch) -> bool {
        let cookie = cookie(batch);
        // Relaxed: the caller owns the batch.
        let oldest = batch.oldest.load(Ordering::Relaxed);
        let free = |&(entered, announced): &(Cookie, u64)| entered >= cookie || announced < oldest;
        self.readers[..self.len].iter().all(free) || self.domain.passed(cookie, Grace::Normal)
    }
}

/// The cookie of a sealed batch.
pub(crate) fn cookie(batch: &Batch) -> Cookie {
    // Relaxed: the caller owns the batch.
    Cookie::from_number(batch.cookie.load(Ordering::Relaxed))
}
