//! Maps of other crates, with a quick hash function that is keyed at random, as skep's is.

use super::Subject;
use super::programs::{self, Op};
use ahash::RandomState;
use dashmap::DashMap;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A map of 4-byte keys and 8-byte values.
pub(crate) trait Peer: Send + Sync {
    /// Does the operation with each of the keys, with those bits set, and returns how often it succeeded. All of it is
    /// in one read-side critical section, where the map has such, as in a program.
    fn pass(&self, op: Op, keys: &[u32], bits: u32) -> u64;
}

/// Each by its name, with room for so many elements from the start.
pub(crate) fn all(room: usize) -> [(&'static str, Arc<dyn Peer>); 3] {
    let state = RandomState::new;
    [
        ("mutex-hashmap", Arc::new(Mutex::new(HashMap::with_capacity_and_hasher(room, state())))),
        ("dashmap", Arc::new(DashMap::with_capacity_and_hasher(room, state()))),
        ("papaya", Arc::new(papaya::HashMap::with_capacity_and_hasher(room, state()))),
    ]
}

/// The operation on one key.
trait Element {
    fn look_up(&self, key: u32) -> bool;
    fn update(&self, key: u32);
    fn delete(&self, key: u32) -> bool;
}

fn pass(map: &impl Element, op: Op, keys: &[u32], bits: u32) -> u64 {
    let update = |key| {
        map.update(key);
        true
    };
    let each = |key: u32| match op {
        Op::Nothing | Op::PushPop | Op::ReserveSubmit => black_box(key) < u32::MAX,
        Op::LookUp => map.look_up(key),
        Op::Update => update(key),
        Op::Delete => map.delete(key),
        Op::InsertDelete => update(key) && map.delete(key),
    };
    keys.iter().map(|&key| u64::from(each(key | bits))).sum()
}

type Locked = Mutex<HashMap<u32, u64, RandomState>>;

fn lock(map: &Locked) -> MutexGuard<'_, HashMap<u32, u64, RandomState>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Element for Locked {
    fn look_up(&self, key: u32) -> bool {
        lock(self).get(&key).map(|value| black_box(*value)).is_some()
    }

    fn update(&self, key: u32) {
        lock(self).insert(key, key.into());
    }

    fn delete(&self, key: u32) -> bool {
        lock(self).remove(&key).is_some()
    }
}

impl Element for DashMap<u32, u64, RandomState> {
    fn look_up(&self, key: u32) -> bool {
        self.get(&key).map(|value| black_box(*value)).is_some()
    }

    fn update(&self, key: u32) {
        self.insert(key, key.into());
    }

    fn delete(&self, key: u32) -> bool {
        self.remove(&key).is_some()
    }
}

impl<G: papaya::Guard> Element for papaya::HashMapRef<'_, u32, u64, RandomState, G> {
    fn look_up(&self, key: u32) -> bool {
        self.get(&key).map(|value| black_box(*value)).is_some()
    }

    fn update(&self, key: u32) {
        self.insert(key, key.into());
    }

    fn delete(&self, key: u32) -> bool {
        self.remove(&key).is_some()
    }
}

impl Peer for Locked {
    fn pass(&self, op: Op, keys: &[u32], bits: u32) -> u64 {
        pass(self, op, keys, bits)
    }
}

impl Peer for DashMap<u32, u64, RandomState> {
    fn pass(&self, op: Op, keys: &[u32], bits: u32) -> u64 {
        pass(self, op, keys, bits)
    }
}

impl Peer for papaya::HashMap<u32, u64, RandomState> {
    fn pass(&self, op: Op, keys: &[u32], bits: u32) -> u64 {
        pass(&self.pin(), op, keys, bits)
    }
}

/// An operation on one of them.
pub(super) struct FromHost {
    pub(super) peer: Arc<dyn Peer>,
    pub(super) op: Op,
    pub(super) keys: Arc<[u32]>,
}

impl Subject for FromHost {
    fn turn(&self, thread: u32, windows: u32) -> Result<u64, String> {
        let bits = programs::bits(self.op, thread);
        Ok(programs::walk(&self.keys, thread, windows).map(|keys| self.peer.pass(self.op, keys, bits)).sum())
    }
}
