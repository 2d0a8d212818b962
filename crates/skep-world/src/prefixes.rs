//! The longest prefix that contains an address.
//!
//! Prefixes contain each other or are apart, so they cut the address space into intervals with one answer each. An
//! interval reaches from its start to the next one's. Up to [`FEW`] are compared one by one. More are found through
//! directories:
//!
//! ```text
//!   starts        0  .  .  .  10.0.0.0  10.0.0.7  10.0.1.0  .  .  .  192.0.2.0  192.0.3.0
//!                             |<---- a directory: twice as many slots as starts -------->|
//!   slots                     [ another directory ][ ][ ][ ][ ][ ] .. [ interval to compare from ]
//! ```
//!
//! A slot with more than [`FEW`] starts leads to a directory over these alone, from the first to the last. Each level
//! divides the span by at least as many parts as it has starts. So it is the bits of an address that bound the number
//! of levels, and not the number of prefixes, whoever chose them; and most addresses take one or two.

use std::cmp::Reverse;
use std::ops::Sub;

/// Intervals that are compared one by one.
const FEW: usize = 8;
/// Marks a slot that leads to a directory.
const DIRECTORY: u32 = 1 << 31;

/// An address as a number.
pub(crate) trait Bits: Copy + Ord + Default + Sub<Output = Self> {
    /// The next address; `None` after the last.
    fn next(self) -> Option<Self>;
    /// Without its lowest bits.
    fn steps(self, shift: u32) -> usize;
    /// How many bits the number takes.
    fn len(self) -> u32;
}

macro_rules! bits {
    ($($number:ty),*) => {$(
        impl Bits for $number {
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            #[inline]
            fn steps(self, shift: u32) -> usize {
                (self >> shift) as usize
            }

            fn len(self) -> u32 {
                <$number>::BITS - self.leading_zeros()
            }
        }
    )*};
}

bits!(u32, u128);

/// A prefix, with what is said of its addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefix<A> {
    pub(crate) first: A,
    pub(crate) last: A,
    /// Of several about the same addresses the lowest rank wins, then the one that comes first.
    pub(crate) rank: u32,
    pub(crate) value: u32,
}

/// The values of the longest prefixes. An address without a prefix has the value 0.
#[derive(Debug, Default)]
pub(crate) struct Prefixes<A> {
    /// Ascending; the first is 0. Empty if there are no prefixes.
    starts: Vec<A>,
    /// As many.
    values: Vec<u32>,
    directories: Vec<Directory<A>>,
    /// Each the interval to compare from, or [`DIRECTORY`] and a number.
    slots: Vec<u32>,
}

#[derive(Debug)]
struct Directory<A> {
    /// The first start that it is about.
    base: A,
    /// How many bits of the distance from there a slot covers.
    shift: u32,
    /// Its first slot and its last, counted from there.
    slots: usize,
    last: usize,
    /// The interval before `base`.
    before: u32,
}

impl<A: Bits> Prefixes<A> {
    pub(crate) fn new(mut prefixes: Vec<Prefix<A>>) -> Self {
        if prefixes.is_empty() {
            return Self::default();
        }
        // Longer ones after those that they are in. The sort is stable.
        prefixes.sort_by_key(|prefix| (prefix.first, Reverse(prefix.last), prefix.rank));
        prefixes.dedup_by_key(|prefix| (prefix.first, prefix.last));
        let mut new = Self { starts: vec![A::default()], values: vec![0], ..Self::default() };
        // Those that the present address is in.
        let mut open: Vec<Prefix<A>> = Vec::new();
        for prefix in prefixes {
            new.close(&mut open, Some(prefix.first));
            new.put(prefix.first, prefix.value);
            open.push(prefix);
        }
        new.close(&mut open, None);
        new.index();
        new
    }

    /// What is found in these prefixes, or else in the others.
    pub(crate) fn or(&self, others: &Self) -> Self {
        let mut new = Self::default();
        let (mut own, mut other) = (0, 0);
        loop {
            // The intervals before these two have begun. The earlier of the two begins next.
            let (of_own, of_other) = (self.starts.get(own), others.starts.get(other));
            let Some(start) = of_own.into_iter().chain(of_other).min().copied() else { break };
            own += usize::from(of_own == Some(&start));
            other += usize::from(of_other == Some(&start));
            let value = |of: &Self, begun: usize| begun.checked_sub(1).map_or(0, |at| of.values[at]);
            let (found, otherwise) = (value(self, own), value(others, other));
            new.put(start, if found == 0 { otherwise } else { found });
        }
        new.index();
        new
    }

    fn index(&mut self) {
        if self.starts.len() > FEW {
            self.directory(1, self.starts.len());
        }
    }

    /// Ends the prefixes that end before this address.
    fn close(&mut self, open: &mut Vec<Prefix<A>>, before: Option<A>) {
        while let Some(ended) = open.pop_if(|top| before.is_none_or(|before| top.last < before)) {
            if let Some(next) = ended.last.next() {
                self.put(next, open.last().map_or(0, |under| under.value));
            }
        }
    }

    /// From this address on, which is not before that of the last call.
    fn put(&mut self, start: A, value: u32) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last() != Some(&value) {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    /// Makes a directory for these intervals, of which there are more than a few, and returns its slot.
    fn directory(&mut self, from: usize, to: usize) -> u32 {
        let (base, span) = (self.starts[from], self.starts[to - 1] - self.starts[from]);
        // The smallest that gives at most twice as many slots as starts, and at least half of that.
        let shift = span.len().saturating_sub((to - from).ilog2() + 1);
        let (slots, last) = (self.slots.len(), span.steps(shift));
        self.slots.resize(slots + last + 1, 0);
        let number = self.directories.len();
        self.directories.push(Directory { base, shift, slots, last, before: from as u32 - 1 });
        let mut next = from;
        for slot in 0..=last {
            let begin = next;
            while next < to && (self.starts[next] - base).steps(shift) == slot {
                next += 1;
            }
            self.slots[slots + slot] =
                if next - begin > FEW { self.directory(begin, next) } else { begin as u32 - 1 };
        }
        DIRECTORY | number as u32
    }

    /// The value of the longest prefix that contains the address, or 0.
    #[inline]
    pub(crate) fn find(&self, address: A) -> u32 {
        let mut slot = if self.directories.is_empty() { 0 } else { DIRECTORY };
        while slot & DIRECTORY != 0 {
            let Some(directory) = self.directories.get((slot & !DIRECTORY) as usize) else { return 0 };
            slot = if address < directory.base {
                directory.before
            } else {
                let step = (address - directory.base).steps(directory.shift).min(directory.last);
                self.slots.get(directory.slots + step).copied().unwrap_or(0)
            };
        }
        let mut at = slot as usize;
        while self.starts.get(at + 1).is_some_and(|next| *next <= address) {
            at += 1;
        }
        self.values.get(at).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix<A: Bits>(first: A, last: A, value: u32) -> Prefix<A> {
        Prefix { first, last, rank: 0, value }
    }

    /// The number of steps that the look-up of an address takes.
    fn steps<A: Bits>(prefixes: &Prefixes<A>, address: A) -> usize {
        let (mut slot, mut steps) = (if prefixes.directories.is_empty() { 0 } else { DIRECTORY }, 0);
        while slot & DIRECTORY != 0 {
            let directory = &prefixes.directories[(slot & !DIRECTORY) as usize];
            slot = if address < directory.base {
                directory.before
            } else {
                let step = (address - directory.base).steps(directory.shift).min(directory.last);
                prefixes.slots[directory.slots + step]
            };
            steps += 1;
        }
        let from = slot as usize + 1;
        steps + prefixes.starts[from..].iter().take_while(|start| **start <= address).count()
    }

    #[test]
    fn nothing_is_found_among_no_prefixes() {
        assert_eq!(Prefixes::<u32>::new(Vec::new()).find(7), 0);
    }

    #[test]
    fn the_whole_space_and_its_last_address_are_prefixes_too() {
        let all = Prefixes::new(vec![prefix(0, u32::MAX, 1), prefix(u32::MAX, u32::MAX, 2), prefix(0, 0, 3)]);
        assert_eq!([0, 1, u32::MAX - 1, u32::MAX].map(|address| all.find(address)), [3, 1, 1, 2]);
    }

    /// Whether prefixes are even, crowded in two places, or ever closer to one address: no address takes many steps.
    #[test]
    fn no_choice_of_prefixes_makes_a_look_up_long() {
        let even: Vec<u128> = (0..50_000).map(|n| n << 100).collect();
        let crowded = (0..25_000).flat_map(|n| [n, u128::MAX / 3 + 2 * n]).collect();
        // Around each of the powers of two, a crowd.
        let powers = (0..128).flat_map(|bit| (0..400).map(move |n| (1u128 << bit).wrapping_add(n * n)));
        for hosts in [even, crowded, powers.collect()] {
            let all = Prefixes::new(hosts.iter().map(|host| prefix(*host, *host, 1)).collect());
            let most = hosts.iter().map(|host| steps(&all, *host)).max();
            assert!(most <= Some(24), "{most:?}");
            assert!(all.slots.len() < 16 * hosts.len(), "{} slots", all.slots.len());
            assert!(hosts.iter().all(|host| all.find(*host) == 1));
        }
    }

    proptest! {
        /// Against the definition: of all prefixes that contain the address the longest, then the lowest rank, then the
        /// first. Few bits of the addresses differ, so that prefixes meet.
        #[test]
        fn the_longest_prefix_wins_whatever_there_is(
            given in proptest::collection::vec((any::<u32>(), 0u32..=32, 0u32..3), 0..200),
            mask in prop_oneof![Just(u32::MAX), Just(0xff00_00ff), Just(0x0000_0f0f), Just(0x8000_0001)],
            asked in proptest::collection::vec(any::<u32>(), 50),
        ) {
            let made = (1..).zip(&given).map(|(value, (address, length, rank))| {
                let host = u32::MAX.checked_shr(*length).unwrap_or(0);
                let first = address & mask & !host;
                Prefix { first, last: first | host, rank: *rank, value }
            });
            let made: Vec<_> = made.collect();
            let all = Prefixes::new(made.clone());
            let some = made.iter().step_by(3).map(|prefix| Prefix { value: prefix.value + 1000, ..*prefix });
            let of_some = Prefixes::new(some.collect());
            let both = of_some.or(&all);
            let edges = made.iter().flat_map(|prefix| {
                [prefix.first, prefix.last, prefix.first.wrapping_sub(1), prefix.last.wrapping_add(1)]
            });
            for address in asked.iter().map(|address| address & mask).chain(edges) {
                let holding = made.iter().filter(|prefix| (prefix.first..=prefix.last).contains(&address));
                let best = holding.min_by_key(|prefix| (prefix.last - prefix.first, prefix.rank));
                prop_assert_eq!(all.find(address), best.map_or(0, |prefix| prefix.value), "{:#x}", address);
                let first = of_some.find(address);
                prop_assert_eq!(both.find(address), if first == 0 { all.find(address) } else { first });
            }
        }
    }
}
