//! Maps of other crates, with a quick hash function that is keyed at random, as skep's is.

use super::Subject;
use super::programs::{self, Op};
use crate::Result;
use ahash::RandomState;
use dashmap::DashMap;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

/// A map of 4-byte keys and 8-byte values.
pub(crate) trait Peer: Send + Sync {
    /// Does the operation with each of the keys, with those bits set, and returns how often it succeeded. All of it is
    /// in one read-side critical section, where the map has such, as in a program.
    fn pass(&self, op: Op, keys: &[u32], bits: u32) -> u64;
}

/// Each by its name, with room for `room` elements from the start.
pub(crate) fn all(room: usize) -> [(&'static str, Arc<dyn Peer>); 3] {
    let state = RandomState::new;
    [
        ("mutex-hashmap", Arc::new(Mutex::new(HashMap::with_capacity_and_hasher(room, state())))),
        ("dashmap", Arc::new(DashMap::with_capacity_and_hasher(room, state()))),
        ("papaya", Arc::new(papaya::HashMap::with_capacity_and_hasher(room, state()))),
    ]
}

/// Implements [`Peer`]. `$one` is the map `$map` for one operation, and `$entered` the map for a whole pass.
macro_rules! peer {
    ($type:ty, $map:ident => $one:expr $(, $entered:expr)?) => {
        impl Peer for $type {
            fn pass(&self, op: Op, keys: &[u32], bits: u32) -> u64 {
                let $map = self;
                $(let $map = $entered;)?
                let look_up = |key: u32| $one.get(&key).map(|value| black_box(*value)).is_some();
                let update = |key: u32| {
                    $one.insert(key, key.into());
                    true
                };
                let delete = |key: u32| $one.remove(&key).is_some();
                let each = |key: u32| match op {
                    Op::Nothing | Op::PushPop | Op::ReserveSubmit => black_box(key) < u32::MAX,
                    Op::LookUp => look_up(key),
                    Op::Update => update(key),
                    Op::Delete => delete(key),
                    Op::InsertDelete => update(key) && delete(key),
                };
                keys.iter().map(|&key| u64::from(each(key | bits))).sum()
            }
        }
    };
}

peer!(Mutex<HashMap<u32, u64, RandomState>>, map => map.lock().unwrap_or_else(PoisonError::into_inner));
peer!(DashMap<u32, u64, RandomState>, map => map);
peer!(papaya::HashMap<u32, u64, RandomState>, map => map, map.pin());

/// An operation on one of them.
pub(super) struct FromHost {
    pub(super) peer: Arc<dyn Peer>,
    pub(super) op: Op,
    pub(super) keys: Arc<[u32]>,
}

impl Subject for FromHost {
    fn turn(&self, thread: u32, windows: u32) -> Result<u64> {
        let bits = programs::bits(self.op, thread);
        Ok(programs::walk(&self.keys, thread, windows).map(|keys| self.peer.pass(self.op, keys, bits)).sum())
    }
}
