//! What a test with `#[skep::test]` gets: a module in a runtime and a world of its own.
//!
//! The world's clock moves only by [`World::step`], and its random numbers follow from a seed, so a test always finds
//! the same, alone and beside others.

use crate::error::Error;
use crate::module::Module;
use crate::object::Object;
use crate::runtime::Runtime;
use crate::world::World;
use skep_world::{Clock, Machine, Random};
use std::path::Path;
use std::time::Duration;

/// Where the clock of a test begins.
const START: Duration = Duration::from_secs(1);

/// An object, loaded for one test.
#[derive(Debug)]
pub struct Fixture {
    world: World,
    runtime: Runtime,
    module: Module,
}

/// What a test can ask for by the type of an argument.
pub trait FromFixture {
    /// Takes it from the fixture.
    fn from_fixture(fixture: &Fixture) -> Self;
}

impl Fixture {
    /// Loads the object into a runtime of its own.
    ///
    /// # Errors
    ///
    /// Those of [`Object::open`], [`RuntimeBuilder::build`](crate::RuntimeBuilder::build) and
    /// [`Linker::load`](crate::Linker::load).
    pub fn load(object: impl AsRef<Path>) -> Result<Self, Error> {
        let world = World::with(Machine::new(), Clock::stepped(START), Random::seeded(0));
        let runtime = Runtime::builder().world(&world).build()?;
        let module = runtime.load(&Object::open(object)?)?;
        Ok(Self { world, runtime, module })
    }
}

impl FromFixture for Module {
    fn from_fixture(fixture: &Fixture) -> Self {
        fixture.module.clone()
    }
}

impl FromFixture for Runtime {
    fn from_fixture(fixture: &Fixture) -> Self {
        fixture.runtime.clone()
    }
}

impl FromFixture for World {
    fn from_fixture(fixture: &Fixture) -> Self {
        fixture.world.clone()
    }
}
