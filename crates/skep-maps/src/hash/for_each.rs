//! Calling a function for every element, without allocation (but for keys that no stack has) and without a lock while
//! the function runs.
//!
//! Buckets are visited by index, and the elements of one in ascending order of their keys, whatever the list's order:
//! the next element is the one with the smallest key above the last one's. So a key that stays is visited exactly
//! once, even if the function or other threads insert, replace and delete elements; and the walk only remembers one
//! key. Lists are short, so the search is cheap.

use std::cmp::Ordering as Compared;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::element::{Bucket, Element, STACK_KEY_WORDS};
use super::{Hash, Outcome};
use crate::caller::Caller;
use crate::elements::Lookup;
use crate::version::Walk;

impl Hash {
    /// Calls `visit` with the addresses of a copy of each key and of its value on that CPU, until it returns false or
    /// `most` elements were visited.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a section.
    pub(crate) unsafe fn for_each(
        &self,
        cpu: u32,
        most: u64,
        visit: &mut dyn FnMut(*const u8, *mut u8) -> bool,
    ) {
        let words = self.layout.key_size.div_ceil(8);
        let (mut last, mut found, mut long);
        let (last, found) = if words <= STACK_KEY_WORDS {
            (last, found) = ([0; STACK_KEY_WORDS], [0; STACK_KEY_WORDS]);
            (&mut last[..words], &mut found[..words])
        } else {
            long = vec![0; 2 * words];
            long.split_at_mut(words)
        };
        let mut left = most;
        // SAFETY: by the caller's contract.
        unsafe { self.elements.announce(cpu) };
        for index in 0..=self.mask {
            let bucket = self.bucket(index);
            // SAFETY: by the caller's contract.
            let mut next = unsafe { self.following(bucket, None, found, cpu) };
            while let Some(element) = next {
                if left == 0 {
                    return;
                }
                left -= 1;
                last.copy_from_slice(found);
                // SAFETY: an element of this table; the CPU is in range by the caller's contract.
                let value = unsafe { self.values.of_cpu(self.values_at(element), cpu) };
                // A copy: the program may overwrite the key that it gets.
                if !visit(found.as_ptr().cast(), value) {
                    return;
                }
                // SAFETY: by the caller's contract.
                next = unsafe { self.following(bucket, Some(last), found, cpu) };
            }
        }
    }
}

impl Hash {
    /// The element of a bucket with the smallest key above `after`, for a reader that uses it beyond the look-up, and
    /// its key in `found`.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a section.
    unsafe fn following(
        &self,
        bucket: &Bucket,
        after: Option<&[u64]>,
        found: &mut [u64],
        cpu: u32,
    ) -> Option<Element> {
        if bucket.head.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let find = |held| {
            match held {
                Lookup::Lockless => {
                    let walk = |walk: &mut Walk<'_>| least(bucket, after, found, || walk.is_astray());
                    bucket.version.read(Caller::Cpu(cpu), walk)
                }
                Lookup::Locked => match least(bucket, after, found, || false) {
                    Outcome::Answer(element) => element,
                    Outcome::Astray => unreachable!("this walk never checks"),
                },
            }
            .map(|element| element.0)
        };
        // SAFETY: by the caller's contract; elements of this table.
        unsafe { self.elements.hold(cpu, &bucket.version, find) }.map(Element)
    }
}

/// The element of a bucket with the smallest key above `after`, and its key in `found`.
fn least(
    bucket: &Bucket,
    after: Option<&[u64]>,
    found: &mut [u64],
    mut is_astray: impl FnMut() -> bool,
) -> Outcome<Option<Element>> {
    let mut best = None;
    // Acquire, here and below: as in look-ups.
    let mut next = bucket.head.load(Ordering::Acquire);
    while let Some(element) = NonNull::new(next).map(Element) {
        let above = after.is_none_or(|after| element.compare_key(after) == Compared::Greater);
        if above && (best.is_none() || element.compare_key(found) == Compared::Less) {
            best = Some(element);
            for (at, word) in found.iter_mut().enumerate() {
                *word = element.key_word(at).load(Ordering::Relaxed);
            }
        }
        if is_astray() {
            return Outcome::Astray;
        }
        next = element.next().load(Ordering::Acquire);
    }
    Outcome::Answer(best)
}

impl Element {
    /// Compares keys word by word: any total order will do.
    fn compare_key(self, key: &[u64]) -> Compared {
        key.iter()
            .enumerate()
            .map(|(at, word)| self.key_word(at).load(Ordering::Relaxed).cmp(word))
            .find(|compared| compared.is_ne())
            .unwrap_or(Compared::Equal)
    }
}
