//! Histograms of times, with a bounded relative error and a fixed number of buckets.
//!
//! The buckets are log-linear: 8 of equal width in each power of two, from 1 ns to 2^36 ns (69 seconds), and a last one
//! for everything longer.
//!
//! ```text
//!   index      0 1 2 ... 7 | 8  9 ... 15 | 16 17 ... 23 | 24 ...      271 |      272
//!   from (ns)  0 1 2 ... 7 | 8  9 ... 15 | 16 18 ... 30 | 32 36 ...       | 2^36 and more
//!   width            1     |      1      |       2      |  4       2^32   |
//! ```
//!
//! So a bucket is at most an eighth as wide as the times in it are long, and an index takes a few instructions. What
//! would break it: a time in two buckets or in none. The tests compare with a sorted list of all times.

use std::fmt;
use std::time::Duration;

/// The buckets in a power of two, as a logarithm.
const SPLIT: u32 = 3;
/// The first power of two that has no buckets of its own.
const TOP: u32 = 36;
/// How many buckets there are.
pub(crate) const BUCKETS: usize = ((TOP - SPLIT + 1) << SPLIT) as usize + 1;

/// How often something took how long, in 273 log-linear buckets: 8 in each power of two nanoseconds, so that a bucket's
/// width is at most an eighth of the times in it. Times of 2^36 ns (69 seconds) and more share the last bucket.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64]>,
}

/// A bucket of a [`Histogram`] that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The shortest time in it, in nanoseconds.
    pub from: u64,
    /// The longest time in it, in nanoseconds; `u64::MAX` in the last one.
    pub to: u64,
    /// How many times are in it.
    pub count: u64,
}

impl Histogram {
    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The buckets that are not empty, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| Bucket { from: from(index), to: to(index), count: *count })
    }

    /// The bucket of the time below or at which this share of all times is: 0.5 is the median. The exact time is
    /// between [`Bucket::from`] and [`Bucket::to`]. `None` if there are no times. A share below 0 counts as 0, and
    /// one above 1 as 1.
    pub fn quantile(&self, share: f64) -> Option<Bucket> {
        let count = self.count();
        let rank = ((share.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        self.buckets().find(|bucket| {
            seen += bucket.count;
            seen >= rank
        })
    }

    /// How many times are below this one, in nanoseconds, rounded up to the end of its bucket.
    pub(crate) fn up_to(&self, nanoseconds: u64) -> u64 {
        self.counts[..=index(nanoseconds)].iter().sum()
    }

    pub(crate) fn new(counts: Box<[u64]>) -> Self {
        debug_assert_eq!(counts.len(), BUCKETS);
        Self { counts }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new(vec![0; BUCKETS].into())
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |bucket: Bucket| (Duration::from_nanos(bucket.from), bucket.count);
        f.debug_map().entries(self.buckets().map(of)).finish()
    }
}

/// The bucket of a time in nanoseconds.
#[inline]
pub(crate) fn index(nanoseconds: u64) -> usize {
    if nanoseconds < 1 << SPLIT {
        return nanoseconds as usize;
    }
    let power = nanoseconds.ilog2();
    if power >= TOP {
        return BUCKETS - 1;
    }
    let shift = power - SPLIT;
    // The leading bit, which is always set, adds one row.
    ((shift << SPLIT) as u64 + (nanoseconds >> shift)) as usize
}

/// The shortest time of a bucket.
fn from(index: usize) -> u64 {
    match index.checked_sub(1 << SPLIT) {
        None => index as u64,
        Some(left) => {
            let (row, column) = (left >> SPLIT, left & ((1 << SPLIT) - 1));
            (column as u64 + (1 << SPLIT)) << row
        }
    }
}

/// The longest time of a bucket.
fn to(index: usize) -> u64 {
    if index == BUCKETS - 1 { u64::MAX } else { from(index + 1) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[u64]) -> Histogram {
        let mut counts = vec![0; BUCKETS];
        times.iter().for_each(|time| counts[index(*time)] += 1);
        Histogram::new(counts.into())
    }

    /// Times of all magnitudes, the same in each run.
    fn times(count: usize) -> Vec<u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..count).map(|_| next() >> (24 + next() % 40)).collect()
    }

    #[test]
    fn buckets_follow_each_other_without_gaps_and_are_an_eighth_wide_at_most() {
        assert_eq!((from(0), to(BUCKETS - 1)), (0, u64::MAX));
        assert_eq!(from(BUCKETS - 1), 1 << TOP);
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(to(bucket) + 1, from(bucket + 1));
            assert!((to(bucket) + 1 - from(bucket)) * 8 <= from(bucket).max(8));
            assert_eq!((index(from(bucket)), index(to(bucket))), (bucket, bucket));
        }
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_a_sorted_list() {
        for count in [1, 2, 3, 10, 1000, 4321] {
            let mut sorted = times(count);
            let histogram = of(&sorted);
            sorted.sort_unstable();
            assert_eq!(histogram.count(), count as u64);
            for share in [0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((share * count as f64).ceil() as usize).clamp(1, count);
                let exact = sorted[rank - 1];
                let found = histogram.quantile(share).unwrap();
                assert!((found.from..=found.to).contains(&exact), "{share} of {count}: {exact}, {found:?}");
            }
            for bucket in histogram.buckets() {
                let inside = |time: &&u64| (bucket.from..=bucket.to).contains(*time);
                assert_eq!(sorted.iter().filter(inside).count() as u64, bucket.count);
            }
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn counts_up_to_a_bound_are_those_of_a_sorted_list() {
        let sorted = times(2000);
        let histogram = of(&sorted);
        for bound in (10..=36).map(|power| (1_u64 << power) - 1) {
            let exact = sorted.iter().filter(|time| **time <= bound).count() as u64;
            assert_eq!(histogram.up_to(bound), exact, "{bound}");
        }
    }
}
