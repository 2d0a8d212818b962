//! Rings: arrays whose programs refer to the arrays.
//!
//! An array holds its programs, a program the arrays that it names, and an array of maps the arrays in it, so counting
//! references alone would keep a ring for ever. What the host can reach is found by walking, on the keeper, after it has let go of a program, an array or a module:
//!
//! ```text
//!   the host's handles --> arrays --slots--> programs --maps--> arrays --> ...
//!                                 --maps---> arrays --> ...
//!                                                       arrays that were not come to are emptied
//! ```
//!
//! An emptied array holds nothing, and counting does the rest. Nobody can come back to it meanwhile: whoever holds a program or a
//! map, and is neither an element nor a program that refers to it nor this look, counts as the host: its handles, changes
//! that are under way, and what was taken out and is waited for.

use super::{Array, Leads, Removed, is_wired, key};
use crate::program::Inner;
use crate::runtime::Shared;
use skep_maps::Map;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Shared {
    /// Has the keeper look for arrays that nobody can reach, unless it is about to.
    pub(crate) fn look_for_rings(self: &Arc<Self>) {
        if !self.wiring.collecting.swap(true, Ordering::AcqRel) {
            let shared = Arc::clone(self);
            self.domain.defer(move || shared.collect());
        }
    }

    fn collect(self: &Arc<Self>) {
        self.wiring.collecting.swap(false, Ordering::AcqRel);
        let mut removed = Removed { poked: !self.jit.fixed_code, ..Removed::default() };
        // What was taken hold of, which may turn out to be the last to hold it: dropped behind the lock.
        let mut held = Held::default();
        let mut leaving;
        {
            let mut state = self.wiring.lock();
            self.wiring.retired.mislead();
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
                        // It cannot fail: the key leads somewhere.
                        // SAFETY: nobody can reach what is collected, and the books are these.
                        let _ = unsafe { outer.clear_reference(&inner_key) };
                    }
                    left.push(self::key(&map));
                    removed.maps.push(map);
                }
                for (&index, slot) in array.slots.iter_mut().filter(|(_, slot)| slot.program.is_some()) {
                    if let Some(table) = table {
                        // SAFETY: 0 is no program.
                        unsafe { table.set(index, 0) };
                    }
                    // Sites stay as they are: nobody can come to the programs that they are in.
                    removed.programs.extend(slot.program.take());
                    let leads = slot
                        .sites
                        .values_mut()
                        .map(|wired| std::mem::replace(&mut wired.leads, Leads::Nowhere));
                    removed.stubs.extend(leads.filter_map(Leads::into_stub));
                    slot.version += 1;
                }
            }
            leaving = state.left(&left);
            leaving.extend(emptied.into_iter().filter_map(|key| state.leave(key)));
            self.wiring.retired.hold(&removed);
        }
        drop(held);
        self.forget_later(leaving);
        self.retire(removed);
    }
}

/// Has rings looked for when it is dropped: what may have held one together stands before it in its structure.
#[derive(Clone)]
pub(crate) struct LookingForRings(pub(crate) Arc<Shared>);

impl Drop for LookingForRings {
    fn drop(&mut self) {
        self.0.look_for_rings();
    }
}

/// What a look took hold of.
#[derive(Default)]
struct Held {
    maps: BTreeMap<usize, Arc<Map>>,
    /// Each once for each array that it refers to.
    users: Vec<Arc<Inner>>,
}

impl Held {
    /// The arrays that the host can reach.
    fn reached(&self, arrays: &BTreeMap<usize, Array>) -> BTreeSet<usize> {
        // By map, how many of our own hold it: programs that refer to it, and arrays of maps.
        let mut holders: BTreeMap<usize, usize> = BTreeMap::new();
        for map in arrays.values().flat_map(|array| array.maps.values()) {
            *holders.entry(key(map)).or_default() += 1;
        }
        // By program, how many of our own hold it: elements, and this look.
        let address = |program: &Arc<Inner>| Arc::as_ptr(program).addr();
        let mut known: BTreeMap<usize, usize> = BTreeMap::new();
        let slots = arrays.values().flat_map(|array| array.slots.values());
        for program in slots.filter_map(|slot| slot.program.as_ref()).chain(&self.users) {
            *known.entry(address(program)).or_default() += 1;
        }
        let host_holds = |program: &Arc<Inner>| {
            Arc::strong_count(program) > known.get(&address(program)).copied().unwrap_or_default()
        };
        let mut open: Vec<usize> = Vec::new();
        let mut seen = BTreeSet::new();
        for user in self.users.iter().filter(|user| seen.insert(address(user))) {
            for map in user.maps().filter(|map| is_wired(map)) {
                *holders.entry(key(map)).or_default() += 1;
                if host_holds(user) {
                    open.push(key(map));
                }
            }
        }
        for (key, map) in &self.maps {
            // And the one that was taken for this look: what is more is the host's.
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
            open.extend(array.maps.values().filter(|map| is_wired(map)).map(|map| key(map)));
            let programs = array.slots.values().filter_map(|slot| slot.program.as_ref());
            for program in programs.filter(|program| walked.insert(address(program))) {
                open.extend(program.maps().filter(|map| is_wired(map)).map(|map| key(map)));
            }
        }
        reached
    }
}
