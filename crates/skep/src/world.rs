//! Worlds: a machine for programs to run in, with devices, routes, sockets, time and random numbers.
//!
//! ```text
//!   Machine (a value) --World::new--> World --RuntimeBuilder::world--> Runtime: its helpers ask the world
//! ```
//!
//! The machine is replaced as a whole by each change, so a helper that looks something up sees one state of it.

mod attach;
mod deliver;
mod filter;
mod incoming;
mod inject;
mod point;
mod probes;
#[cfg(test)]
mod probes_tests;
mod stack;
mod trace;
mod walk;

use crate::runtime::RuntimeBuilder;
use crate::surroundings::Surroundings;
pub use attach::DeviceId;
use attach::Points;
pub use inject::Injector;
#[cfg(feature = "sys")]
pub(crate) use point::Key;
pub use point::{Family, Point};
pub use probes::{Fired, Probe, ProbeLink, ProbeOptions, Ran, Registers};
pub use skep_world::*;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
pub use trace::{Ended, Fate, Hop, Place, Trace};

/// A machine that programs run in. Cheap to clone; clones are the same world.
///
/// A runtime without a world has no devices, routes and sockets; its clock is the system's.
///
/// ```
/// use skep::Runtime;
/// use skep::world::{Clock, Device, Machine, Random};
/// use std::time::Duration;
///
/// let mut machine = Machine::new();
/// machine.add_device(Device::new("eth0").address("10.0.0.1/24".parse()?))?;
/// let world = skep::World::with(machine, Clock::stepped(Duration::ZERO), Random::seeded(1));
/// let runtime = Runtime::builder().world(&world).build()?;
///
/// world.change(|machine| machine.add_device(Device::new("eth1")))?; // programs see it from now on
/// world.clock().step(Duration::from_secs(1));
/// # let _ = runtime;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct World {
    surroundings: Arc<Surroundings>,
    points: Arc<Points>,
    probes: Arc<probes::Attachments>,
}

impl World {
    /// A world with this machine, the system's clock and its random numbers.
    pub fn new(machine: Machine) -> Self {
        Self::with(machine, Clock::real(), Random::real())
    }

    /// A world with this machine, clock and source of random numbers. With a virtual clock and a seed, all that
    /// programs do on one thread follows from their input.
    pub fn with(machine: Machine, clock: Clock, random: Random) -> Self {
        let surroundings = Arc::new(Surroundings::new(machine, clock, random));
        Self { surroundings, points: Arc::default(), probes: Arc::default() }
    }

    /// The machine as it is now.
    pub fn machine(&self) -> Arc<Machine> {
        self.surroundings.machine()
    }

    /// Replaces the machine by a changed copy. If the function fails, nothing is changed. Runs in progress see the new
    /// machine from their next look-up on. The function may ask this world, but must not change it: it would wait for
    /// itself. Programs on a device that is gone are detached.
    ///
    /// After a change of routes, devices or sockets all of that kind are arranged anew for look-ups: many changes
    /// belong in one call.
    ///
    /// # Errors
    ///
    /// Those of the function.
    pub fn change<T, E>(&self, change: impl FnOnce(&mut Machine) -> Result<T, E>) -> Result<T, E> {
        let made = self.surroundings.change(change)?;
        self.changed();
        Ok(made)
    }

    /// Moves the virtual clock, and calls what timers of programs are due on the way: each callback at its time, in the
    /// order of the expiries, then of the starts, on this thread, which is a virtual CPU of their runtimes. Returns the
    /// number of callbacks.
    ///
    /// `None`, and nothing moves, if the clock is the system's (the runtime's background thread calls then), and while
    /// another step is in progress, as in a function that a callback calls. Timers that a callback starts for its own
    /// time or earlier are called by the next step, and what is beyond a million callbacks too. If no virtual CPU is
    /// free, the clock moves and the callbacks wait for the next step. [`Clock::step`] alone calls nothing; the next
    /// step calls what is due.
    pub fn step(&self, by: Duration) -> Option<u64> {
        self.surroundings.step(by)
    }

    /// The clock that programs see.
    pub fn clock(&self) -> &Clock {
        &self.surroundings.clock
    }
}

impl RuntimeBuilder {
    /// Programs see this world. Several runtimes may share one.
    #[must_use]
    pub fn world(mut self, world: &World) -> Self {
        self.set_surroundings(&world.surroundings);
        self
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("devices", &self.machine().devices().count())
            .field("clock", self.clock())
            .finish_non_exhaustive()
    }
}
