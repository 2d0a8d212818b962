//! The claimed slots: one bit each, claimed and given back without locks.
//!
//! Invariant: a bit stays set from the compare-exchange in [`Bitmap::claim`] to the [`Bitmap::release`] by the same
//! owner; no other thread changes it in between. Searching from the lowest word keeps the numbers dense, so tables
//! indexed by slot stay in the cache.
//!
//! A scan walks the set bits ([`Bitmap::taken`]). It cannot miss a reader: a thread sets its bit before it stores its
//! epoch, so a scan that must see the epoch sees the bit. If a bit is clear, its last owner had left all its
//! sections.
//!
//! What would break it: releasing a number that the caller does not own. Only the claim that has the number calls it.

use crate::sync::{AtomicU64, Ordering};
use std::ops::Range;

pub(crate) struct Bitmap {
    words: Box<[AtomicU64]>,
    limit: u32,
}

impl Bitmap {
    pub(crate) fn new(limit: u32) -> Self {
        let words = (0..limit.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words, limit }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes the lowest free number; `None` if a whole pass saw every bit set.
    #[cfg(test)]
    pub(crate) fn claim(&self) -> Option<u32> {
        self.claim_in(0..self.limit)
    }

    /// Takes the lowest free number of those; `None` if a whole pass saw every bit set.
    pub(crate) fn claim_in(&self, numbers: Range<u32>) -> Option<u32> {
        let first = (numbers.start / 64) as usize;
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let base = index as u32 * 64;
            if base >= numbers.end {
                break;
            }
            let below = (1u64 << numbers.start.saturating_sub(base)) - 1;
            // Relaxed: a hint; the compare-exchange below decides.
            let mut seen = word.load(Ordering::Relaxed);
            loop {
                let bit = (seen | below).trailing_ones();
                if bit == 64 || base + bit >= numbers.end {
                    break;
                }
                // Acquire pairs with the Release in `release`: the new owner sees everything that the last one wrote.
                let tried =
                    word.compare_exchange_weak(seen, seen | 1 << bit, Ordering::Acquire, Ordering::Relaxed);
                match tried {
                    Ok(_) => return Some(base + bit),
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    /// Gives `number` back. The caller owns it.
    pub(crate) fn release(&self, number: u32) {
        let mask = 1u64 << (number % 64);
        // Release pairs with the Acquire in `claim` and in `taken`, through any chain of read-modify-writes of
        // other bits of this word, which all continue the release sequence.
        let before = self.words[number as usize / 64].fetch_and(!mask, Ordering::Release);
        debug_assert!(before & mask != 0, "slot {number} was released without an owner");
    }

    /// The claimed numbers. Each word of bits is read when the iterator reaches it.
    pub(crate) fn taken(&self) -> impl Iterator<Item = u32> {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            // Acquire pairs with the Release in `release`: a scan that sees the bit clear sees the ends of the last
            // owner's sections.
            let mut left = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(index as u32 * 64 + bit)
            })
        })
    }

    /// The number of set bits. Exact only while no thread claims or releases.
    pub(crate) fn count(&self) -> u32 {
        // Relaxed: a statistic that orders nothing.
        self.words.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_lowest_first_and_stop_at_the_limit() {
        for limit in [1, 2, 63, 64, 65, 128, 130] {
            let bitmap = Bitmap::new(limit);
            for number in 0..limit {
                assert_eq!(bitmap.claim(), Some(number), "limit {limit}");
            }
            assert_eq!(bitmap.claim(), None, "limit {limit}");
            assert_eq!(bitmap.count(), limit);
        }
    }

    #[test]
    fn a_released_number_is_the_next_one_claimed_if_it_is_the_lowest() {
        let bitmap = Bitmap::new(130);
        while bitmap.claim().is_some() {}
        for number in [129, 64, 3] {
            bitmap.release(number);
        }
        assert_eq!(bitmap.count(), 127);
        assert_eq!([bitmap.claim(), bitmap.claim(), bitmap.claim()], [Some(3), Some(64), Some(129)]);
        assert_eq!(bitmap.claim(), None);
    }

    #[test]
    fn numbers_of_a_range_come_from_it_alone() {
        for (limit, from, to) in
            [(64, 48, 64), (64, 0, 48), (130, 63, 66), (130, 128, 130), (70, 64, 70), (5, 5, 5)]
        {
            let bitmap = Bitmap::new(limit);
            for number in from..to {
                assert_eq!(bitmap.claim_in(from..to), Some(number), "{from}..{to} of {limit}");
            }
            assert_eq!(bitmap.claim_in(from..to), None, "{from}..{to} of {limit}");
            assert_eq!(bitmap.count(), to - from);
            assert_eq!(bitmap.claim(), if from > 0 { Some(0) } else { (to < limit).then_some(to) });
        }
    }

    #[test]
    fn the_taken_numbers_are_exactly_those_claimed() {
        let bitmap = Bitmap::new(200);
        while bitmap.claim().is_some() {}
        for number in (0..200).filter(|number| number % 7 != 0 && *number != 127) {
            bitmap.release(number);
        }
        let expected: Vec<u32> = (0..200).filter(|number| number % 7 == 0 || *number == 127).collect();
        assert_eq!(bitmap.taken().collect::<Vec<_>>(), expected);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::model::{begin, model};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_a_slot_s_next_owner_sees_the_last_one_s_writes() {
        model(|| {
            let shared = Arc::new((Bitmap::new(2), [UnsafeCell::new(0u32), UnsafeCell::new(0u32)]));
            let work = |shared: &(Bitmap, [UnsafeCell<u32>; 2])| {
                let (bitmap, cells) = shared;
                let number = bitmap.claim().expect("two threads, two slots");
                // loom reports concurrent and unordered accesses to one cell.
                // SAFETY: what the model proves.
                cells[number as usize].with_mut(|cell| unsafe { *cell += 1 });
                bitmap.release(number);
                let again = bitmap.claim().expect("two threads, two slots");
                // SAFETY: as above.
                cells[again as usize].with_mut(|cell| unsafe { *cell += 1 });
                bitmap.release(again);
            };
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                begin(1);
                work(&other);
            });
            begin(0);
            work(&shared);
            thread.join().unwrap();
            assert_eq!(shared.0.count(), 0);
            // SAFETY: the other thread was joined.
            let total: u32 = shared.1.iter().map(|cell| cell.with(|cell| unsafe { *cell })).sum();
            assert_eq!(total, 4);
        });
    }

    #[test]
    fn loom_a_contended_slot_is_refused_or_reused() {
        model(|| {
            let shared = Arc::new((Bitmap::new(1), UnsafeCell::new(0u32)));
            let work = |shared: &(Bitmap, UnsafeCell<u32>)| {
                let Some(number) = shared.0.claim() else { return false };
                // SAFETY: what the model proves.
                shared.1.with_mut(|cell| unsafe { *cell += 1 });
                shared.0.release(number);
                true
            };
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                begin(1);
                work(&other)
            });
            begin(0);
            let here = work(&shared);
            let there = thread.join().unwrap();
            assert!(here || there);
            assert_eq!(shared.0.claim(), Some(0));
        });
    }
}
