//! The cycle collector: arrays whose programs refer to the arrays.
//!
//! An array holds its programs, a program the arrays that it names, and an array of maps the arrays in it. Reference
//! counting alone would keep a cycle for ever. So after the host has dropped a program, an array or a module, the
//! keeper walks over all that the host can reach:
//!
//! ```text
//!   the host's handles --> arrays --slots--> programs --maps--> arrays --> ...
//!                                 --maps---> arrays --> ...
//!                                                       arrays that were not reached are emptied
//! ```
//!
//! An emptied array holds nothing, and reference counting does the rest. It cannot become reachable meanwhile: every
//! reference to a program or a map counts as the host's, except those of elements, of programs, and of the collector
//! itself. So handles, changes in progress and retired objects count as the host.

use super::{Array, BranchTarget, Connected, Dispatch, Removed, key};
use crate::image::takes_part;
use skep_maps::Map;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Dispatch {
    /// Asks the keeper for a collection, unless one is pending.
    pub(crate) fn request_collection(self: &Arc<Self>) {
        if !self.collecting.swap(true, Ordering::AcqRel) {
            let dispatch = Arc::clone(self);
            self.domain.defer(move || dispatch.collect());
        }
    }

    fn collect(self: &Arc<Self>) {
        self.collecting.swap(false, Ordering::AcqRel);
        let mut removed = Removed { poked: !self.fixed_code, ..Removed::default() };
        // References taken by the collector may be the last ones: drop them after the lock.
        let mut held = Held::default();
        let mut leaving;
        {
            let mut state = self.lock();
            self.retired.count_as_host();
            for (&key, array) in &state.arrays {
                if let Some(map) = array.map.upgrade() {
                    held.maps.insert(key, map);
                }
                held.users.extend(array.users.values().filter_map(std::sync::Weak::upgrade));
            }
            let reached = held.reached(&state.arrays);
            let (mut emptied, mut left) = (Vec::new(), Vec::new());
            for (key, array) in state.arrays.iter_mut().filter(|(key, _)| !reached.contains(key)) {
                emptied.push(*key);
                array.programs = 0;
                let table = held.maps.get(key).and_then(|map| map.references());
                for (inner_key, map) in std::mem::take(&mut array.maps) {
                    if let Some(outer) = held.maps.get(key) {
                        // It cannot fail: the key exists.
                        // SAFETY: nothing reaches a collected map, and this state is its bookkeeping.
                        let _ = unsafe { outer.clear_reference(&inner_key) };
                    }
                    left.push(self::key(&map));
                    removed.maps.push(map);
                }
                for (&index, slot) in array.slots.iter_mut().filter(|(_, slot)| slot.program.is_some()) {
                    if let Some(table) = table {
                        // SAFETY: 0 means no program.
                        unsafe { table.set(index, 0) };
                    }
                    // Branches stay unchanged: the programs that contain them are unreachable.
                    removed.programs.extend(slot.program.take());
                    let targets = slot
                        .sites
                        .values_mut()
                        .map(|wired| std::mem::replace(&mut wired.target, BranchTarget::Nowhere));
                    removed.stubs.extend(targets.filter_map(BranchTarget::into_stub));
                    slot.version += 1;
                }
            }
            Connected::left_arrays(&removed.programs);
            leaving = state.left(&left);
            leaving.extend(emptied.into_iter().filter_map(|key| state.leave(key)));
            self.retired.hold(&removed);
        }
        drop(held);
        self.forget_later(leaving);
        self.retire(removed);
    }
}

/// Requests a collection when it is dropped. It must be the last field: fields before it may be the last external
/// references to a cycle.
#[derive(Clone)]
pub(crate) struct CollectOnDrop(pub(crate) Arc<Dispatch>);

impl Drop for CollectOnDrop {
    fn drop(&mut self) {
        self.0.request_collection();
    }
}

/// The references that a collection takes.
#[derive(Default)]
struct Held {
    maps: BTreeMap<usize, Arc<Map>>,
    /// Each once for each array that it refers to.
    users: Vec<Arc<Connected>>,
}

impl Held {
    /// The arrays that the host can reach.
    fn reached(&self, arrays: &BTreeMap<usize, Array>) -> BTreeSet<usize> {
        // By map, the number of internal references: of programs, and of arrays of maps.
        let mut holders: BTreeMap<usize, usize> = BTreeMap::new();
        for map in arrays.values().flat_map(|array| array.maps.values()) {
            *holders.entry(key(map)).or_default() += 1;
        }
        // By program, the number of internal references: of elements, and of this collection.
        let address = |program: &Arc<Connected>| Arc::as_ptr(program).addr();
        let mut known: BTreeMap<usize, usize> = BTreeMap::new();
        let slots = arrays.values().flat_map(|array| array.slots.values());
        for program in slots.filter_map(|slot| slot.program.as_ref()).chain(&self.users) {
            *known.entry(address(program)).or_default() += 1;
        }
        let host_holds = |program: &Arc<Connected>| {
            Arc::strong_count(program) > known.get(&address(program)).copied().unwrap_or_default()
        };
        let mut open: Vec<usize> = Vec::new();
        let mut seen = BTreeSet::new();
        for user in self.users.iter().filter(|user| seen.insert(address(user))) {
            for map in user.maps().filter(|map| takes_part(map)) {
                *holders.entry(key(map)).or_default() += 1;
                if host_holds(user) {
                    open.push(key(map));
                }
            }
        }
        for (key, map) in &self.maps {
            // Plus the one of this collection: any further reference is the host's.
            let known = 1 + holders.get(key).copied().unwrap_or_default();
            if Arc::strong_count(map) > known {
                open.push(*key);
            }
        }
        let (mut reached, mut walked) = (BTreeSet::new(), BTreeSet::new());
        while let Some(array) = open.pop() {
            if !reached.insert(array) {
                continue;
            }
            let Some(array) = arrays.get(&array) else { continue };
            open.extend(array.maps.values().filter(|map| takes_part(map)).map(|map| key(map)));
            let programs = array.slots.values().filter_map(|slot| slot.program.as_ref());
            for program in programs.filter(|program| walked.insert(address(program))) {
                open.extend(program.maps().filter(|map| takes_part(map)).map(|map| key(map)));
            }
        }
        reached
    }
}
