//! Loads that charge a tenant, and the memory for maps that are charged to one.
//!
//! A load that is refused although what it asks for is below the limit waits for readers to leave what was dropped, and
//! tries again: otherwise a loop that loads and drops would fail now and then. Nothing waits inside a run, where it
//! would wait for itself. What would break it: a lock that is held while a load waits.

use crate::error::Error;
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::tenant::Tenant;
use skep_maps::Reclamation;
use skep_rcu::Grace;
use std::sync::Arc;

impl Tenant {
    /// The memory for maps that a host creates for the tenant with [`Map::create_in`](crate::Map::create_in): inner
    /// maps, for example.
    ///
    /// ```
    /// use skep::abi::{MapDef, MapKind};
    /// use skep::{Map, MapError, MapOptions, Quota, Runtime, Tenant};
    ///
    /// let runtime = Runtime::new()?;
    /// let tenant = Tenant::new("customer-7", Quota::new().map_memory(1 << 20));
    /// let def = MapDef::new("inner", MapKind::Array, 4, 2 << 20, 1);
    /// let options = MapOptions { cpus: 0, limit: u64::MAX };
    /// let refused = Map::create_in(&tenant.memory(&runtime), &def, &options).unwrap_err();
    /// assert!(matches!(refused, MapError::Quota { used: 0, limit: 0x10_0000, .. }));
    /// # Ok::<(), skep::Error>(())
    /// ```
    pub fn memory(&self, runtime: &Runtime) -> Reclamation {
        Reclamation {
            account: Some(Arc::clone(&self.map_memory)),
            count: Some(Arc::clone(&self.maps)),
            ..runtime.memory()
        }
    }
}

impl Shared {
    /// Tries something that charges a tenant. If a quota that it could fit refuses it, waits until everything that was
    /// dropped before is returned, and tries again.
    pub(crate) fn charging<R>(
        self: &Arc<Self>,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        /// Dropping one thing may drop others, each after a grace period of its own: an array, its programs, their
        /// code.
        const ROUNDS: usize = 3;

        let mut result = attempt();
        for _ in 0..ROUNDS {
            match &result {
                Err(Error::Quota { wanted, limit, .. }) if wanted <= limit => {}
                _ => break,
            }
            if self.return_what_waits().is_err() {
                break;
            }
            result = attempt();
        }
        result
    }

    /// Waits for readers, and returns the memory that waited for them. Fails in a run.
    fn return_what_waits(self: &Arc<Self>) -> Result<(), Error> {
        self.dispatch.settle();
        self.dispatch.objects.forget_unused(&self.domain);
        self.domain.synchronize(Grace::Both)?;
        // Callbacks, by which maps and programs are dropped.
        self.domain.barrier()?;
        self.arena.reclaim();
        Ok(())
    }
}
