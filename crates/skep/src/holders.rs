//! Maps whose values hold timers or work queues, by their handles. Helpers get a map as its address; what outlives the
//! run needs a reference that is counted, or at least one that notices when the map is gone.

use skep_abi::{MapDef, SpecialKind};
use skep_maps::Map;
use skep_maps::lock::Counted;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The maps that programs of a runtime may reach. Programs that could take the lock are refused in signal handlers that
/// interrupt its holder ([`Counted`]). A leaf.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<BTreeMap<u64, Weak<Map>>>);

impl Holders {
    /// A program or a map of maps refers to the map from now on.
    pub(crate) fn add(&self, map: &Arc<Map>) {
        if !defers(map.def()) {
            return;
        }
        let _counted = Counted::begin();
        let mut maps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|_, map| map.strong_count() > 0);
        maps.insert(map.link().handle, Arc::downgrade(map));
    }

    /// The map with that handle.
    pub(crate) fn find(&self, handle: u64) -> Option<Arc<Map>> {
        let _counted = Counted::begin();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&handle)?.upgrade()
    }
}

/// Whether values have a field that calls a program later.
fn defers(def: &MapDef) -> bool {
    def.fields.iter().any(|field| matches!(field.kind, SpecialKind::Timer | SpecialKind::Workqueue))
}
