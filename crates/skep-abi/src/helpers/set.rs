//! Sets of helpers as bit sets: membership is tested for every call of every program.

use std::fmt;

/// A set of helpers with numbers below 256.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct HelperSet([u64; 4]);

impl HelperSet {
    /// No helper.
    pub const EMPTY: Self = Self([0; 4]);

    /// The helpers of those numbers.
    ///
    /// # Panics
    ///
    /// If a number is above 255: at compile time, when a table is built.
    pub const fn of(ids: &[u32]) -> Self {
        Self::EMPTY.with(ids)
    }

    /// This set and the helpers of `ids`.
    ///
    /// # Panics
    ///
    /// As [`HelperSet::of`].
    #[must_use]
    pub const fn with(mut self, ids: &[u32]) -> Self {
        let mut at = 0;
        while at < ids.len() {
            self.0[(ids[at] / 64) as usize] |= 1 << (ids[at] % 64);
            at += 1;
        }
        self
    }

    /// This set without the helpers of `ids`.
    ///
    /// # Panics
    ///
    /// As [`HelperSet::of`].
    #[must_use]
    pub const fn without(mut self, ids: &[u32]) -> Self {
        let mut at = 0;
        while at < ids.len() {
            self.0[(ids[at] / 64) as usize] &= !(1 << (ids[at] % 64));
            at += 1;
        }
        self
    }

    /// The union of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        let (Self([a, b, c, d]), Self([e, f, g, h])) = (self, other);
        Self([a | e, b | f, c | g, d | h])
    }

    /// Whether the helper of that number is in the set.
    pub fn contains(self, id: u32) -> bool {
        self.0.get((id / 64) as usize).is_some_and(|word| word >> (id % 64) & 1 != 0)
    }

    /// The numbers in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..256).filter(move |id| self.contains(*id))
    }

    /// The number of helpers.
    pub fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

impl fmt::Debug for HelperSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_what_was_added_and_not_removed() {
        let set = HelperSet::of(&[1, 63, 64, 211, 255]).without(&[63]).union(HelperSet::of(&[2]));
        assert_eq!(set.iter().collect::<Vec<_>>(), [1, 2, 64, 211, 255]);
        assert_eq!((set.len(), set.is_empty()), (5, false));
        assert!(!set.contains(63) && !set.contains(256) && !set.contains(u32::MAX));
        assert!(HelperSet::of(&[]).is_empty());
    }
}
