//! A set that keeps the order of insertion and can be cut back to an earlier length.
//!
//! A program may have as many callbacks as instructions, so membership is looked up in a hash table.

use std::collections::HashSet;
use std::hash::Hash;

#[derive(Default)]
pub(crate) struct OrderedSet<T> {
    list: Vec<T>,
    known: HashSet<T>,
}

impl<T: Copy + Eq + Hash> OrderedSet<T> {
    /// Adds an item unless it is a member.
    pub(crate) fn add(&mut self, item: T) {
        if self.known.insert(item) {
            self.list.push(item);
        }
    }

    /// The items in the order in which they were added.
    pub(crate) fn items(&self) -> &[T] {
        &self.list
    }

    /// Keeps the first `len` items.
    pub(crate) fn truncate(&mut self, len: usize) {
        for item in self.list.drain(len.min(self.list.len())..) {
            self.known.remove(&item);
        }
    }
}

impl<T: Copy + Eq + Hash> FromIterator<T> for OrderedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut ordered_set = Self { list: Vec::new(), known: HashSet::new() };
        items.into_iter().for_each(|item| ordered_set.add(item));
        ordered_set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::hash::Hasher;

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts comparisons.
    #[derive(Clone, Copy, Debug)]
    struct Item(u32);

    impl PartialEq for Item {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Item {}

    impl Hash for Item {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn to_add_twice_as_many_takes_twice_as_many_comparisons() {
        let compared = |count: u32| {
            let before = COMPARED.get();
            let ordered_set: OrderedSet<Item> = (0..count).chain(0..count).map(Item).collect();
            assert_eq!(ordered_set.items().len(), count as usize);
            COMPARED.get() - before
        };
        let (one, two) = (compared(10_000), compared(20_000));
        assert!(one >= 10_000, "each is found once: {one}");
        assert!(two < one * 5 / 2, "{one} comparisons, and {two} for twice as many");
    }

    #[test]
    fn what_was_cut_off_can_be_added_again() {
        let mut ordered_set: OrderedSet<u32> = [3, 1, 3, 2].into_iter().collect();
        ordered_set.truncate(2);
        assert_eq!(ordered_set.items(), [3, 1]);
        ordered_set.truncate(5);
        for item in [1, 2, 2] {
            ordered_set.add(item);
        }
        assert_eq!(ordered_set.items(), [3, 1, 2]);
    }
}
