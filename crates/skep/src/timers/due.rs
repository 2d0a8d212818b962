//! What is to be called now.

use super::entry::{ElementPlace, Entrance};
use super::{Running, State, Timers};
use crate::dispatch::Connected;
use skep_maps::Map;
use std::mem;
use std::sync::Arc;

/// A callback that is to be called. It is in progress until it is given back ([`Timers::finish`]).
pub(crate) struct Due {
    number: u64,
    pub(crate) map: Arc<Map>,
    place: ElementPlace,
    pub(crate) program: Arc<Connected>,
    pub(crate) function: Entrance,
    /// Whether it may sleep.
    pub(crate) sleeps: bool,
}

impl Due {
    /// The arguments of the call; `None` if the element is gone, or has another timer now. The key is in this value.
    ///
    /// # Safety
    ///
    /// The thread is in a section of the map's domain, as that virtual CPU, and stays in it during the call.
    pub(crate) unsafe fn arguments(&self, cpu: u32) -> Option<[u64; 5]> {
        // SAFETY: the caller's promise.
        let there = unsafe { self.place.has(self.number, &self.map, cpu) };
        let key = self.place.key.as_ptr().expose_provenance() as u64;
        there.then_some([self.map.link().handle, key, self.place.value as u64, 0, 0])
    }
}

impl Timers {
    /// The number of starts so far.
    pub(crate) fn starts(&self) -> u64 {
        self.lock().starts
    }

    /// When the next callback is due, in nanoseconds, if it was among the first `starts` starts.
    pub(crate) fn next(&self, starts: u64) -> Option<u64> {
        let state = self.lock();
        let mut queue = state.queue.keys();
        queue.find(|place| place.1 <= starts).map(|place| place.0)
    }

    /// The first callback that is due at `now` and was among the first `starts` starts. It runs on that virtual CPU.
    pub(crate) fn take(&self, now: u64, starts: u64, cpu: u32) -> Option<Due> {
        let mut state = self.lock();
        loop {
            let (_, &number) = state.queue.range(..=(now, u64::MAX)).find(|(place, _)| place.1 <= starts)?;
            state.disarm(number);
            match state.due(number, cpu) {
                Some(due) => return Some(due),
                None => state.remove(number),
            }
        }
    }

    /// The callback has returned. `there`: whether its element was.
    pub(crate) fn finish(&self, due: Due, there: bool) {
        let mut state = self.lock();
        state.running = None;
        if !there {
            state.remove(due.number);
        }
        drop(state);
        drop(due); // outside of the lock: this may be the last reference
    }

    /// Ends entries that nobody could notice, and drops what is not needed any more.
    pub(crate) fn sweep(&self) {
        let mut state = self.lock();
        let unused: Vec<u64> = state.unused().collect();
        for number in unused {
            state.remove(number);
        }
        let gone = mem::take(&mut state.gone);
        drop(state);
        drop(gone);
    }
}

impl State {
    fn due(&mut self, number: u64, cpu: u32) -> Option<Due> {
        let entry = self.entries.get(&number)?;
        let callback = entry.callback?;
        let program = &self.held.get(&callback.program)?.program;
        if self.others(program, 0) == 0 && !self.is_used(&entry.map, 0) {
            return None;
        }
        let (map, flavour) = (entry.map.upgrade()?, entry.flavour);
        let (place, program) = (entry.place(), Arc::clone(program));
        self.running = Some(Running { number, cpu, program: callback.program, map: entry.handle });
        let sleeps = flavour == super::Flavour::Work;
        Some(Due { number, map, place, program, function: callback.function, sleeps })
    }

    /// Entries with callbacks that nobody could notice, and entries of maps that are gone.
    fn unused(&self) -> impl Iterator<Item = u64> {
        let used = |entry: &super::Entry| {
            let Some(callback) = entry.callback else { return entry.map.strong_count() > 0 };
            let Some(held) = self.held.get(&callback.program) else { return false };
            self.others(&held.program, 0) > 0 || self.is_used(&entry.map, 0)
        };
        self.entries.iter().filter(move |(_, entry)| !used(entry)).map(|(number, _)| *number)
    }
}
