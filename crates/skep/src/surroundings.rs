//! What the programs of a runtime see of a machine: the part of a [`crate::World`] that helpers reach.
//!
//! The machine is a value that is replaced as a whole: a helper that looks something up holds the lock for reading, and
//! a change makes a new machine beside the old one. So a look-up sees one state, and waits only for the exchange.

use skep_world::{Clock, Machine, Random};
use std::sync::{Arc, PoisonError, RwLock};

/// Machine, clock and random numbers of a world. Without a world, programs see an empty machine, the system's clock and
/// its random numbers.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    machine: RwLock<Arc<Machine>>,
}

impl Surroundings {
    pub(crate) fn new(machine: Machine, clock: Clock, random: Random) -> Self {
        Self { clock, random, machine: RwLock::new(Arc::new(machine)) }
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

    /// Replaces the machine by a changed copy, unless `change` fails; then it stays as it was.
    pub(crate) fn change<T, E>(&self, change: impl FnOnce(&mut Machine) -> Result<T, E>) -> Result<T, E> {
        let mut current = self.machine.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Machine::clone(&current);
        let made = change(&mut next)?;
        *current = Arc::new(next);
        Ok(made)
    }
}
