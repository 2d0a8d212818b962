//! Statistics of programs: `BPF_ENABLE_STATS`.

use crate::attr::{Attr, EnableStats};
use crate::caller::Caller;
use crate::engine::Engine;
use crate::errno::Errno;
use crate::object::{Handle, Object};
use crate::system::{Shared, System};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

/// `BPF_STATS_RUN_TIME`.
const RUN_TIME: u32 = 0;

/// How many objects ask for statistics, and how many there were.
#[derive(Default)]
pub(crate) struct Statistics {
    wanted: AtomicU32,
    made: AtomicU32,
}

/// As long as it is held, run times of programs are counted.
pub struct StatsObject<E: Engine> {
    id: u32,
    shared: Arc<Shared<E>>,
}

impl<E: Engine> StatsObject<E> {
    /// Its number among those of its kind.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl<E: Engine> Drop for StatsObject<E> {
    fn drop(&mut self) {
        self.shared.count(-1);
    }
}

impl<E: Engine> Shared<E> {
    /// One more or one less asks for statistics.
    fn count(&self, by: i32) {
        // The lock orders the changes, so that the engine hears the last one last.
        let places = self.places.lock();
        let wanted = self.stats.wanted.load(Ordering::Relaxed).wrapping_add_signed(by);
        self.stats.wanted.store(wanted, Ordering::Relaxed);
        self.engine.count_runs(wanted != 0);
        drop(places);
    }
}

impl<E: Engine> System<E> {
    pub(crate) fn enable_stats(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let stats: EnableStats = attr.get()?;
        if stats.kind != RUN_TIME {
            return Err(Errno::EINVAL);
        }
        let shared = self.shared();
        shared.count(1);
        // A number alone: nothing is read by it.
        let id = shared.stats.made.fetch_add(1, Ordering::Relaxed);
        let object = Object::Stats(Arc::new(StatsObject { id, shared }));
        caller.install(Handle::new(self.shared(), object)).map(i64::from)
    }
}
