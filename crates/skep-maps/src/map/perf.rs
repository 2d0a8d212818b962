//! Arrays of perf events, for programs. The host has a [`PerfReader`](crate::PerfReader).

use std::sync::Arc;

use super::Map;
use crate::error::MapError;
use crate::op_error::{OpError, errno};
use crate::perf::{MOST_EVENTS, PerfEvents, SAMPLE};
use crate::perf_event::PerfEvent;
use crate::ring::protocol::{Outcome, Wakeup};
use crate::ring::{self, Ring};
use crate::table::Table;

/// Perf events, for programs.
impl Map {
    /// Outputs a sample: the bytes at `first`, then those at `second`. `index` is the element, which must be that of
    /// the calling CPU.
    ///
    /// Returns 0, or as Linux does `-E2BIG` (7) for an index beyond the end, `-ENOENT` (2) while there is no reader,
    /// `-EOPNOTSUPP` (95) for another CPU's element and for other kinds, `-ENOSPC` (28) if there is no room.
    ///
    /// # Safety
    ///
    /// Both parts are readable for their lengths, at any alignment; others may write there. The calling thread is in a
    /// section of the map's domain if elements are perf events ([`set_perf_event`](Self::set_perf_event)).
    pub unsafe fn perf_output_ptr(
        &self,
        index: u32,
        cpu: u32,
        first: (*const u8, u32),
        second: (*const u8, u32),
    ) -> i64 {
        let Some(events) = self.perf() else { return -i64::from(errno::EOPNOTSUPP) };
        if index >= events.len() {
            return -i64::from(errno::E2BIG);
        }
        // SAFETY: a program's run is in a section, and the reference does not leave this function.
        if let Some(event) = unsafe { events.event(index) } {
            // SAFETY: by the caller's contract.
            return unsafe { event.output(cpu, first, second) };
        }
        // A ring that nobody reads any more has been closed.
        let Some(ring) = events.ring.get().filter(|ring| ring.shared().control.is_claimed()) else {
            return -i64::from(errno::ENOENT);
        };
        if index != cpu {
            return -i64::from(errno::EOPNOTSUPP);
        }
        let total = SAMPLE as u64 + u64::from(first.1) + u64::from(second.1);
        let Some(record) = ring.reserve(total) else {
            events.lose(index);
            return -i64::from(errno::ENOSPC);
        };
        // SAFETY: reserved with this length just now; no other thread sees it before the commit. The parts by the
        // caller's contract; they are copied byte by byte where they do not begin at a word of the record.
        unsafe {
            record.cast::<u32>().write(cpu);
            let at = record.add(SAMPLE);
            ring::fill(at, first.0, first.1 as usize);
            ring::append(at, first.1 as usize, second.0, second.1 as usize);
            ring::commit(record, Outcome::Submitted, Wakeup::Usual);
        }
        0
    }

    /// Puts a perf event into an element, or empties it. Samples for that element go to the event from then on. Returns
    /// whether there was another one.
    ///
    /// # Errors
    ///
    /// [`MapError::NotPerfEvents`] for other kinds; [`MapError::OutOfRange`], also for an element from 65,536 on.
    pub fn set_perf_event(&self, index: u32, event: Option<&Arc<PerfEvent>>) -> Result<bool, MapError> {
        let Some(events) = self.perf() else {
            return Err(MapError::NotPerfEvents { map: self.name().to_owned(), kind: self.kind() });
        };
        if index >= events.len().min(MOST_EVENTS) {
            return Err(self.explain(OpError::OutOfRange, &index.to_ne_bytes()));
        }
        Ok(events.replace(index, event.cloned(), &self.memory.domain))
    }

    /// Empties all elements that are perf events.
    pub fn clear_perf_events(&self) {
        if let Some(events) = self.perf() {
            (0..events.len().min(MOST_EVENTS)).for_each(|index| {
                events.replace(index, None, &self.memory.domain);
            });
        }
    }

    pub(crate) fn perf(&self) -> Option<&PerfEvents> {
        match &self.table {
            Table::Perf(events) => Some(events),
            _ => None,
        }
    }

    /// The ring that a host reads.
    pub(crate) fn read_ring(&self) -> Option<&Ring> {
        self.ring().or_else(|| self.perf()?.ring.get())
    }
}
