//! What the programs of an array are given: the same, for as long as any run may reach the array.
//!
//! Everybody who makes tail calls through an array, and everybody in it, is given the same: the array's [`Shape`]. It
//! is agreed on by the first of them, and holds for as long as any run may reach the array. A run reaches it as one
//! that its program names, or as one that it has found in a map of maps. So the shape outlives whatever refers to the
//! array:
//!
//! ```text
//!   agreed on ──> no program names it, none is in it, no map of maps holds it ──a grace period of both flavours──> forgotten
//!       ^              │ somebody agrees again
//!       └──────────────┘
//! ```
//!
//! Runs from before may have found it and hold it still: for these is the grace period. Later ones do not find it,
//! unless somebody agreed on its shape once more, which [`State::agree`] notes. What would break it: a way to an
//! array other than by `agree`, or forgetting before those runs have ended.

use super::{Array, State, key};
use crate::program::Inner;
use crate::runtime::Shared;
use crate::steps::steps;
use skep_abi::{Entry, ProgramType};
use skep_maps::Map;
use skep_rcu::Grace;
use std::sync::Arc;

/// What a program is given when it is entered: all programs of an array, and those that make tail calls through it,
/// agree.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    program_type: &'static ProgramType,
    entry: Entry,
    /// A program that must not sleep relies on the section that its run is in.
    sleepable: bool,
}

/// What an array's programs are given.
#[derive(Clone, Copy)]
pub(super) struct Agreed {
    shape: Shape,
    /// Where nothing has referred to the array since the last agreement: the number of the wait after which it is
    /// forgotten.
    leaving: Option<u64>,
}

/// An array whose shape is forgotten if nothing refers to it until a grace period is over: its map's address, and the
/// number of the wait.
pub(super) struct Leaving(usize, u64);

impl Shape {
    pub(crate) fn of(program: &Inner) -> Self {
        let verified = program.verified();
        Self {
            program_type: verified.program_type(),
            entry: verified.entry(),
            sleepable: verified.is_sleepable(),
        }
    }

    pub(crate) fn describe(self) -> String {
        let sleepable = if self.sleepable { "sleepable " } else { "" };
        match self.entry {
            Entry::Buffer { len } => {
                format!("{sleepable}programs of type {} for {len} bytes", self.program_type.name)
            }
            Entry::Context => format!("{sleepable}programs of type {}", self.program_type.name),
        }
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        self.program_type.name == other.program_type.name
            && self.entry == other.entry
            && self.sleepable == other.sleepable
    }
}

impl Array {
    /// Whether nothing leads to it any more but what runs may have found before.
    pub(super) fn is_left(&self) -> bool {
        self.users.is_empty() && self.programs == 0 && self.outer == 0 && self.maps.is_empty()
    }

    pub(super) fn shape(&self) -> Option<Shape> {
        self.agreed.map(|agreed| agreed.shape)
    }
}

impl State {
    /// The arrays that programs are found in through a map: itself, or those that are in it.
    fn through(&self, map: &Map) -> Vec<usize> {
        let own = self.arrays.get(&key(map));
        let inner = own.iter().flat_map(|array| array.maps.values()).map(|map| key(map));
        let keys: Vec<_> = std::iter::once(key(map)).chain(inner).collect();
        steps(keys.len());
        keys
    }

    /// What programs of an array are given, where that has been agreed on.
    pub(super) fn shape(&self, map: &Map) -> Option<Shape> {
        self.arrays.get(&key(map))?.shape()
    }

    /// Whether [`agree`](Self::agree) would succeed.
    pub(super) fn may_agree(&self, map: &Map, shape: Shape) -> Result<(), Shape> {
        // What is in it has agreed on the same.
        if let Some(agreed) = self.shape(map) {
            return if agreed == shape { Ok(()) } else { Err(agreed) };
        }
        let agreed = |key: &usize| self.arrays.get(key).and_then(Array::shape);
        match self.through(map).iter().filter_map(agreed).find(|agreed| *agreed != shape) {
            Some(other) => Err(other),
            None => Ok(()),
        }
    }

    /// Agrees on what the programs are given that are found through a map, or says what they are given.
    pub(super) fn agree(&mut self, map: &Map, shape: Shape) -> Result<(), Shape> {
        self.may_agree(map, shape)?;
        let agreed = Some(Agreed { shape, leaving: None });
        // What is in it is not being left: its element refers to it.
        let keys = if self.shape(map).is_some() { vec![key(map)] } else { self.through(map) };
        for key in keys {
            if let Some(array) = self.arrays.get_mut(&key) {
                array.agreed = agreed;
            }
        }
        Ok(())
    }

    /// Something that referred to an array does no more. Says whether its shape is to be forgotten later.
    #[must_use]
    pub(super) fn leave(&mut self, key: usize) -> Option<Leaving> {
        let array = self.arrays.get_mut(&key).filter(|array| array.is_left())?;
        let agreed = array.agreed.as_mut()?;
        self.waits += 1;
        agreed.leaving = Some(self.waits);
        Some(Leaving(key, self.waits))
    }

    /// Elements of maps of maps that held these hold them no more.
    #[must_use]
    pub(super) fn left(&mut self, keys: &[usize]) -> Vec<Leaving> {
        for key in keys {
            if let Some(array) = self.arrays.get_mut(key) {
                array.outer -= 1;
            }
        }
        keys.iter().filter_map(|key| self.leave(*key)).collect()
    }

    /// A grace period after an array was left.
    fn forget(&mut self, Leaving(key, wait): Leaving) {
        let Some(array) = self.arrays.get_mut(&key).filter(|array| array.is_left()) else { return };
        if array.agreed.is_some_and(|agreed| agreed.leaving == Some(wait)) {
            array.agreed = None;
        }
    }
}

impl Shared {
    /// Has shapes forgotten when no run is left that may have found the arrays. Not under the lock: where there is no
    /// keeper, this runs what is due.
    pub(super) fn forget_later(self: &Arc<Self>, leaving: Vec<Leaving>) {
        if leaving.is_empty() {
            return;
        }
        let shared = Arc::clone(self);
        self.domain.call(Grace::Both, move || {
            let mut state = shared.wiring.lock();
            leaving.into_iter().for_each(|leaving| state.forget(leaving));
        });
    }
}
