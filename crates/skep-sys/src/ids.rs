//! Identifiers of objects, one sequence for each kind.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

/// Objects by their identifiers. It does not keep them alive.
pub(crate) struct Ids<T> {
    known: BTreeMap<u32, Weak<T>>,
    last: u32,
}

impl<T> Ids<T> {
    pub(crate) const fn new() -> Self {
        Self { known: BTreeMap::new(), last: 0 }
    }

    /// A new identifier, above all that were given before as long as there are some.
    pub(crate) fn reserve(&mut self) -> u32 {
        // Objects that are gone make room.
        if self.known.len() >= 64 && self.known.len().is_power_of_two() {
            self.known.retain(|_, object| object.strong_count() > 0);
        }
        loop {
            self.last = if self.last >= i32::MAX as u32 { 1 } else { self.last + 1 };
            if self.known.get(&self.last).is_none_or(|object| object.strong_count() == 0) {
                return self.last;
            }
        }
    }

    pub(crate) fn insert(&mut self, id: u32, object: &Arc<T>) {
        self.known.insert(id, Arc::downgrade(object));
    }

    pub(crate) fn get(&self, id: u32) -> Option<Arc<T>> {
        self.known.get(&id)?.upgrade()
    }

    /// All that somebody holds, ascending by their identifiers.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.known.values().filter_map(Weak::upgrade).collect()
    }

    /// The first object with an identifier above this one.
    pub(crate) fn after(&self, id: u32) -> Option<u32> {
        let later = self.known.range(id.checked_add(1)?..);
        later.filter(|(_, object)| object.strong_count() > 0).map(|(id, _)| *id).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_as_long_as_somebody_holds_them() {
        let mut ids = Ids::new();
        let objects: Vec<Arc<u32>> = (0..200)
            .map(|number| {
                let (id, object) = (ids.reserve(), Arc::new(number));
                ids.insert(id, &object);
                assert_eq!(id, number + 1);
                object
            })
            .collect();
        assert_eq!(ids.get(7).as_deref(), Some(&6));
        assert_eq!(ids.after(0), Some(1));
        let kept = Arc::clone(&objects[150]);
        drop(objects);
        assert_eq!((ids.get(7), ids.after(0), ids.after(151)), (None, Some(151), None));
        assert_eq!(*kept, 150);
        assert_eq!(ids.reserve(), 201, "an identifier is not used again soon");
    }
}
