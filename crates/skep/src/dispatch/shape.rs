//! The entry contract of an array: all programs in it, and all that tail-call through it, take the same arguments.
//!
//! The first program sets the array's [`Shape`], and all others must agree with it for as long as any run may reach the
//! array. A run reaches arrays that its program names, and arrays that it has found in a map of maps. So the shape
//! outlives all references to the array:
//!
//! ```text
//!   agreed on ──> no program names it, none is in it, no map of maps holds it ──a grace period of both flavours──> forgotten
//!       ^              │ a program agrees again
//!       └──────────────┘
//! ```
//!
//! Earlier runs may have found the array and may still use it: the grace period waits for them. Later runs cannot find
//! it without a new agreement, which [`State::agree`] notes. Two changes would break this: a way to an array that
//! bypasses `agree`, and forgetting before the earlier runs have ended.

use super::{Array, Dispatch, State, key};
use crate::image::Image;
use crate::steps::steps;
use skep_abi::{Entry, Native, ProgramType};
use skep_maps::Map;
use skep_rcu::Grace;
use std::sync::Arc;

/// The entry contract of programs: type, length of the buffer, and sleepability.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    program_type: &'static ProgramType,
    entry: Entry,
    /// A program that must not sleep relies on the section that its run is in.
    sleepable: bool,
}

/// The entry contract of an array, once there is one.
#[derive(Clone, Copy)]
pub(super) struct Agreed {
    shape: Shape,
    /// If nothing has referred to the array since the last agreement: the number of the wait after which the contract
    /// is forgotten.
    leaving: Option<u64>,
}

/// An array whose shape is forgotten if nothing refers to it until a grace period is over: its map's address, and the
/// number of the wait.
pub(super) struct Leaving(usize, u64);

impl Shape {
    pub(crate) fn of(program: &Image) -> Self {
        let verified = &program.verified;
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
        // Types of one name run on the same native context, except those of hosts: each has its own.
        let (own, others) = (self.program_type, other.program_type);
        let of_host = [own, others].iter().any(|kind| kind.native == Some(Native::Host));
        own.name == others.name
            && (!of_host || std::ptr::eq(own, others))
            && self.entry == other.entry
            && self.sleepable == other.sleepable
    }
}

impl Array {
    /// Whether no new run can find it.
    pub(super) fn is_left(&self) -> bool {
        self.users.is_empty() && self.programs == 0 && self.outer == 0 && self.maps.is_empty()
    }

    pub(super) fn shape(&self) -> Option<Shape> {
        self.agreed.map(|agreed| agreed.shape)
    }
}

impl State {
    /// The arrays of programs that a map leads to: itself, or those in it.
    fn through(&self, map: &Map) -> Vec<usize> {
        let own = self.arrays.get(&key(map));
        let inner = own.iter().flat_map(|array| array.maps.values()).map(|map| key(map));
        let keys: Vec<_> = std::iter::once(key(map)).chain(inner).collect();
        steps(keys.len());
        keys
    }

    /// The entry contract of an array, if there is one.
    pub(super) fn shape(&self, map: &Map) -> Option<Shape> {
        self.arrays.get(&key(map))?.shape()
    }

    /// Whether [`agree`](Self::agree) would succeed.
    pub(super) fn may_agree(&self, map: &Map, shape: Shape) -> Result<(), Shape> {
        // The arrays in it have agreed on the same.
        if let Some(agreed) = self.shape(map) {
            return if agreed == shape { Ok(()) } else { Err(agreed) };
        }
        let agreed = |key: &usize| self.arrays.get(key).and_then(Array::shape);
        match self.through(map).iter().filter_map(agreed).find(|agreed| *agreed != shape) {
            Some(other) => Err(other),
            None => Ok(()),
        }
    }

    /// Agrees on the entry contract of programs that are reached through a map, or returns the existing one.
    pub(super) fn agree(&mut self, map: &Map, shape: Shape) -> Result<(), Shape> {
        self.may_agree(map, shape)?;
        let agreed = Some(Agreed { shape, leaving: None });
        // The arrays in it stay referenced: by its elements.
        let keys = if self.shape(map).is_some() { vec![key(map)] } else { self.through(map) };
        for key in keys {
            if let Some(array) = self.arrays.get_mut(&key) {
                array.agreed = agreed;
            }
        }
        Ok(())
    }

    /// A reference to an array ended. Returns whether its shape is to be forgotten later.
    #[must_use]
    pub(super) fn leave(&mut self, key: usize) -> Option<Leaving> {
        let array = self.arrays.get_mut(&key).filter(|array| array.is_left())?;
        let agreed = array.agreed.as_mut()?;
        self.waits += 1;
        agreed.leaving = Some(self.waits);
        Some(Leaving(key, self.waits))
    }

    /// Removes the references of elements of maps of maps to these.
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

impl Dispatch {
    /// Forgets shapes after a grace period, when no run can reach the arrays. Not under the lock: without a keeper this
    /// runs due callbacks.
    pub(super) fn forget_later(self: &Arc<Self>, leaving: Vec<Leaving>) {
        if leaving.is_empty() {
            return;
        }
        let dispatch = Arc::clone(self);
        self.domain.call(Grace::Both, move || {
            let mut state = dispatch.lock();
            leaving.into_iter().for_each(|leaving| state.forget(leaving));
        });
    }
}
