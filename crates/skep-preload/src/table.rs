//! Look-ups in hash tables of the supervisor's.
//!
//! ```text
//!   buckets (a power of two)                  elements
//!   | first element, version | --address--> | next | key, whole words | ... | value(s) | --address--> ...
//! ```
//!
//! Links are addresses of the supervisor's. While this process reads, an element may be freed and become another one,
//! of any key: the [version](crate::version) tells afterwards. Until then a link may be anything, so each is checked,
//! and what was found counts only once the version has been looked at.

use crate::version::Attempt;
use core::hint;
use core::sync::atomic::{AtomicU64, Ordering};

/// The longest key, in bytes.
pub(crate) const MAX_KEY: usize = 512;
/// Bytes of a bucket.
pub(crate) const BUCKET: usize = 16;
/// Walks before the supervisor has to look.
const ATTEMPTS: u32 = 8;
/// Hops between two looks whether a walk can still succeed.
const HOPS: u32 = 64;

/// Where a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Bytes of a key; 0 if the map is none of these.
    pub(crate) key_size: usize,
    /// The mapping of the buckets.
    pub(crate) buckets: usize,
    pub(crate) buckets_len: usize,
    /// The number of buckets - 1.
    pub(crate) mask: usize,
    /// The address that links have for the first byte of the elements.
    pub(crate) address: usize,
    /// The offset of the last place where an element may be.
    pub(crate) last: usize,
    pub(crate) values_at: usize,
    pub(crate) seed: [usize; 3],
}

impl Table {
    /// Looks a key up, and has the element's value copied. Whether it is there; `None` if the supervisor has to look.
    /// The value may be copied, more than once, before that is known.
    ///
    /// # Safety
    ///
    /// The table is as the supervisor has said, and its buckets are mapped; `elements` is the mapping of its elements.
    /// `key` has as many words as its keys.
    pub(crate) unsafe fn look_up(
        &self,
        elements: usize,
        key: &[u64],
        mut copy: impl FnMut(*const u8),
    ) -> Option<bool> {
        let bucket = self.buckets + (hash(self.seed, key) as usize & self.mask) * BUCKET;
        for _ in 0..ATTEMPTS {
            // SAFETY: the second word of a bucket.
            let Some(attempt) = Attempt::begin(unsafe { word(bucket + 8) }) else {
                hint::spin_loop();
                continue;
            };
            // SAFETY: as for this function; a bucket begins with a link.
            let found = unsafe { self.walk(elements, bucket, key, &attempt) };
            if let Some(Some(element)) = found {
                copy((element + self.values_at) as *const u8);
            }
            if let Some(found) = found.filter(|_| attempt.is_valid()) {
                return Some(found.is_some());
            }
        }
        None
    }

    /// The address of the element here, or that there is none; `None` if the walk cannot succeed any more.
    ///
    /// # Safety
    ///
    /// As for `look_up`; `link` is the address of a link.
    #[inline]
    unsafe fn walk(
        &self,
        elements: usize,
        mut link: usize,
        key: &[u64],
        attempt: &Attempt<'_>,
    ) -> Option<Option<usize>> {
        let mut hops = 0_u32;
        loop {
            // SAFETY: a bucket, or an element, begins with a link. Acquire: pairs with the Release that published the
            // element: its key and its value are visible.
            let next = unsafe { word(link) }.load(Ordering::Acquire);
            if next == 0 {
                return Some(None);
            }
            let offset = (next as usize).wrapping_sub(self.address);
            if offset > self.last || !offset.is_multiple_of(8) {
                return None;
            }
            let element = elements + offset;
            // SAFETY: the key's words follow the link, within the mapping. Relaxed: ordered by the link.
            let key_word = |i: usize| unsafe { word(element + 8 + i * 8) }.load(Ordering::Relaxed);
            if key.iter().enumerate().all(|(i, &word)| key_word(i) == word) {
                return Some(Some(element));
            }
            link = element;
            hops += 1;
            if hops.is_multiple_of(HOPS) && !attempt.is_valid() {
                return None;
            }
        }
    }
}

/// The hash of a key, as the supervisor computes it.
fn hash(seed: [usize; 3], key: &[u64]) -> u64 {
    let [a, b, c] = seed.map(|number| number as u64);
    let mixed = match *key {
        [word] => fold(word ^ a, b),
        [first, second] => fold(first ^ a, second ^ b),
        _ => {
            let (pairs, rest) = key.as_chunks::<2>();
            let add = |state: u64, [first, second]: &[u64; 2]| {
                state.wrapping_add(fold(first ^ state, second ^ b)).rotate_left(23)
            };
            let state = pairs.iter().fold(a, add);
            match *rest {
                [last] => fold(state ^ last, b),
                _ => state,
            }
        }
    };
    fold(mixed, c)
}

fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}

/// # Safety
///
/// `address` is that of an aligned word in a mapping, which stays while the result is used.
#[inline(always)]
unsafe fn word<'a>(address: usize) -> &'a AtomicU64 {
    // SAFETY: by the caller's contract.
    unsafe { &*(address as *const AtomicU64) }
}

#[cfg(test)]
mod tests;
