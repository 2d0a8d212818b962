//! What a runtime has loaded: programs, maps and links, for those who ask for all of them.
//!
//! The registry refers to everything weakly, so it keeps nothing alive. What is gone is swept out when the list has
//! doubled since the last sweep: a load costs a constant number of steps on average.
//!
//! The flag of the statistics changes under the lock, and a program is entered under it: so turning them on
//! allocates the counters of all programs that did not see the flag when they were loaded.

use crate::dispatch::Connected;
use crate::stats::{Counted, LinkCounts};
use crate::steps::steps;
use skep_maps::Map;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Who wants statistics: the host.
pub(crate) const HOST: u8 = 1;
/// Clients of bpf(2), while one of them has a descriptor of `BPF_ENABLE_STATS`.
#[cfg(feature = "sys")]
pub(crate) const CALLS: u8 = 2;

/// Programs, maps and links of a runtime. A leaf.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Known>);

#[derive(Default)]
struct Known {
    programs: List<Connected>,
    maps: List<Map>,
    links: List<LinkCounts>,
}

struct List<T> {
    /// With their numbers, by address: a weak reference keeps the address from being another one's.
    entries: BTreeMap<usize, (u64, Weak<T>)>,
    last: u64,
    /// The length at which to sweep.
    sweep_at: usize,
}

impl Registry {
    /// Enters a program. `wanted`: the flag of the statistics.
    pub(crate) fn add_program(&self, program: &Arc<Connected>, wanted: &AtomicU8, cpus: u32) {
        let mut known = self.lock();
        known.programs.add(program);
        prepare_if(wanted, &program.counted, cpus);
    }

    /// Enters a link.
    pub(crate) fn add_link(&self, link: &Arc<LinkCounts>, wanted: &AtomicU8, cpus: u32) {
        let mut known = self.lock();
        known.links.add(link);
        prepare_if(wanted, &link.counted, cpus);
    }

    /// Enters a map, unless it is there.
    pub(crate) fn add_map(&self, map: &Arc<Map>) {
        self.lock().maps.add(map);
    }

    /// Begins or ends to want statistics. Returns once all that is loaded has counters.
    pub(crate) fn want(&self, wanted: &AtomicU8, who: u8, on: bool, cpus: u32) {
        // Dropped after the lock: the last handle of a program takes others.
        let (programs, links);
        let known = self.lock();
        if on {
            (programs, links) = (known.programs.live(), known.links.live());
            programs.iter().for_each(|(_, program)| program.counted.prepare(cpus));
            links.iter().for_each(|(_, link)| link.counted.prepare(cpus));
            // Relaxed, here and below: runs are not ordered with it; changes are under the lock.
            wanted.fetch_or(who, Ordering::Relaxed);
        } else {
            wanted.fetch_and(!who, Ordering::Relaxed);
        }
    }

    /// All programs, with their numbers, in the order of their loads.
    pub(crate) fn programs(&self) -> Vec<(u64, Arc<Connected>)> {
        self.lock().programs.live()
    }

    /// All maps, likewise.
    pub(crate) fn maps(&self) -> Vec<(u64, Arc<Map>)> {
        self.lock().maps.live()
    }

    /// All links, likewise.
    pub(crate) fn links(&self) -> Vec<(u64, Arc<LinkCounts>)> {
        self.lock().links.live()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn prepare_if(wanted: &AtomicU8, counted: &Counted, cpus: u32) {
    if wanted.load(Ordering::Relaxed) != 0 {
        counted.prepare(cpus);
    }
}

impl<T> List<T> {
    fn add(&mut self, entry: &Arc<T>) {
        if self.entries.len() >= self.sweep_at {
            steps(self.entries.len());
            self.entries.retain(|_, (_, entry)| entry.strong_count() > 0);
            self.sweep_at = (2 * self.entries.len()).max(64);
        }
        self.entries.entry(Arc::as_ptr(entry).addr()).or_insert_with(|| {
            self.last += 1;
            (self.last, Arc::downgrade(entry))
        });
    }

    fn live(&self) -> Vec<(u64, Arc<T>)> {
        let live = self.entries.values().filter_map(|(number, entry)| Some((*number, entry.upgrade()?)));
        let mut live: Vec<_> = live.collect();
        live.sort_unstable_by_key(|(number, _)| *number);
        live
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), last: 0, sweep_at: 64 }
    }
}

#[cfg(all(test, feature = "sys"))]
mod tests {
    use super::*;
    use crate::Runtime;

    #[test]
    fn statistics_are_on_while_the_host_or_a_client_wants_them() {
        let runtime = Runtime::new().unwrap();
        for (who, on, expected) in
            [(CALLS, true, true), (HOST, true, true), (CALLS, false, true), (HOST, false, false)]
        {
            runtime.want_stats(who, on);
            assert_eq!(runtime.stats_enabled(), expected, "{who} {on}");
        }
    }

    #[test]
    fn a_registry_forgets_what_is_gone_and_loads_stay_cheap() {
        let mut list = List::default();
        let kept = Arc::new(7);
        list.add(&kept);
        let work = crate::steps::counted(|| (0..10_000).for_each(|number| list.add(&Arc::new(number))));
        assert!(work < 4 * 10_000, "{work}");
        assert!(list.entries.len() <= 128);
        list.add(&kept);
        assert_eq!(list.live(), [(1, kept)]);
    }
}
