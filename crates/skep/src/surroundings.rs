//! What the programs of a runtime see of a machine: the part of a [`crate::World`] that helpers reach.
//!
//! The machine is a value that is replaced as a whole: a helper that looks something up holds the lock for reading, and
//! a change makes a new machine beside the old one. So a look-up sees one state, and waits only for the exchange.

use skep_world::{Clock, Machine, Random};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Machine, clock and random numbers of a world. Without a world, programs see an empty machine, the system's clock and
/// its random numbers.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    machine: RwLock<Arc<Machine>>,
    secret: OnceLock<u128>,
    /// Held by the thread that makes the next machine.
    changing: Mutex<()>,
}

impl Surroundings {
    pub(crate) fn new(machine: Machine, clock: Clock, random: Random) -> Self {
        Self {
            clock,
            random,
            machine: RwLock::new(Arc::new(machine)),
            changing: Mutex::default(),
            secret: OnceLock::new(),
        }
    }

    /// A number for keyed hashes that programs cannot guess, unless random numbers are seeded. Always the same.
    pub(crate) fn secret(&self) -> u128 {
        *self.secret.get_or_init(|| {
            let keyed = RandomState::new();
            let part = |number: u32| self.random.next().unwrap_or_else(|| keyed.hash_one(number) as u32);
            (0..4).fold(0, |secret, number| secret << 32 | u128::from(part(number)))
        })
    }

    /// The machine as it is now.
    #[inline]
    pub(crate) fn machine(&self) -> Arc<Machine> {
        Arc::clone(&self.machine.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Passes the machine as it is now. The function must not call programs: the lock is a leaf.
    #[inline]
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&Machine) -> T) -> T {
        ask(&self.machine.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the machine by a changed copy, unless `change` fails; then it stays as it was. Look-ups do not wait for
    /// the function, which may look things up itself, but must not change this machine again.
    pub(crate) fn change<T, E>(&self, change: impl FnOnce(&mut Machine) -> Result<T, E>) -> Result<T, E> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Machine::clone(&self.machine());
        let made = change(&mut next)?;
        let old = {
            let mut current = self.machine.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::new(next))
        };
        drop(old);
        Ok(made)
    }
}
