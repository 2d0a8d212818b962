//! The host's ends of rings: consumers of ring buffers and perf events, producers of user ring buffers.
//!
//! A map has one end at most, and several modules may share a map, in Python as in Rust; threads may load such
//! modules and drop them at any time. So one table has the ends of the process, by map:
//!
//! ```text
//!   Events (Python) --\
//!   Events (Python) ----> entry { users: 2, end } by the map's address --> RingBuffer, PerfReader, UserRingBuffer
//! ```
//!
//! **Invariant**: under the table's lock, a map has an entry exactly if it has an end of ours; making one, finding
//! one and dropping the last user are each done under that lock as a whole. An unlocked look before the making, or an
//! end that outlives its entry by a moment, would let a second one be made: "already has a consumer".
//!
//! No lock here is held while Python runs or is waited for.

use crate::errors;
use crate::released::Released;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use skep::abi::MapKind;
use skep::{MapError, PerfReader, RingBuffer, UserRingBuffer};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The ends of the process, by the addresses of their maps, which they keep alive.
static ENDS: Mutex<BTreeMap<usize, Entry>> = Mutex::new(BTreeMap::new());

struct Entry {
    users: usize,
    state: Arc<Mutex<State>>,
}

struct State {
    end: End,
    /// A record that was taken to see whether there is one.
    next: Option<Event>,
}

enum End {
    Ring(RingBuffer),
    Perf(PerfReader),
    User(UserRingBuffer),
}

/// The virtual CPU of a sample, and the bytes of a sample or record.
type Event = (Option<u32>, Vec<u8>);

/// One user of a map's end.
struct User {
    map: usize,
    /// `None` only during the drop.
    state: Option<Arc<Mutex<State>>>,
}

/// The host's end of a ring.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Events(Released<User>);

impl End {
    fn next(&mut self) -> Option<Event> {
        match self {
            Self::Ring(ring) => ring.next_record().map(|record| (None, record.to_vec())),
            Self::Perf(reader) => reader.next_sample().map(|sample| (Some(sample.cpu()), sample.to_vec())),
            Self::User(_) => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl User {
    /// Becomes a user of the map's end, which is made if there is none. `bytes`: the room for samples.
    fn of(map: &Arc<skep::Map>, bytes: u32) -> Result<Self, MapError> {
        let at = Arc::as_ptr(map).addr();
        let mut ends = lock(&ENDS);
        if let Some(entry) = ends.get_mut(&at) {
            entry.users += 1;
            return Ok(Self { map: at, state: Some(Arc::clone(&entry.state)) });
        }
        let end = match map.kind() {
            MapKind::PerfEventArray => End::Perf(PerfReader::new(map, bytes)?),
            MapKind::UserRingbuf => End::User(UserRingBuffer::new(map)?),
            _ => End::Ring(RingBuffer::new(map)?),
        };
        let state = Arc::new(Mutex::new(State { end, next: None }));
        ends.insert(at, Entry { users: 1, state: Arc::clone(&state) });
        Ok(Self { map: at, state: Some(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(self.state.as_ref().expect("only the drop takes it"))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut ends = lock(&ENDS);
        // Before the entry, so that the entry's reference is the last one: the end goes under the lock.
        drop(self.state.take());
        if let Some(entry) = ends.get_mut(&self.map) {
            entry.users -= 1;
            if entry.users == 0 {
                ends.remove(&self.map);
            }
        }
    }
}

#[pymethods]
impl Events {
    /// The events of a map. `bytes` is the room for samples of each virtual CPU.
    #[new]
    fn new(py: Python<'_>, map: &crate::map::Map, bytes: u32) -> PyResult<Self> {
        let map = &map.map;
        let user = py.detach(|| User::of(map, bytes)).map_err(|error| errors::of_map(py, &error))?;
        Ok(Self(Released::new(user)))
    }

    /// Takes the next event: virtual CPU (of samples) and bytes.
    fn next<'py>(&self, py: Python<'py>) -> Option<(Option<u32>, Bound<'py, PyBytes>)> {
        let event = py.detach(|| {
            let mut state = self.0.state();
            state.next.take().or_else(|| state.end.next())
        });
        event.map(|(cpu, bytes)| (cpu, PyBytes::new(py, &bytes)))
    }

    /// Whether there is an event. If not, the descriptor is not readable until there is one.
    fn ready(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut state = self.0.state();
            if state.next.is_none() {
                state.next = state.end.next();
            }
            state.next.is_some()
        })
    }

    /// How many samples found no room since the last call.
    fn lost(&self, py: Python<'_>) -> u64 {
        py.detach(|| match &mut self.0.state().end {
            End::Perf(reader) => reader.lost(),
            End::Ring(_) | End::User(_) => 0,
        })
    }

    /// Submits a record to the programs. Returns whether there was room.
    fn send(&self, py: Python<'_>, record: &[u8]) -> PyResult<bool> {
        let Ok(len) = u32::try_from(record.len()) else {
            return Err(PyOverflowError::new_err("a record has less than 4 GiB"));
        };
        Ok(py.detach(|| {
            let End::User(ring) = &mut self.0.state().end else { return false };
            let Some(mut sample) = ring.reserve(len) else { return false };
            sample.copy_from_slice(record);
            sample.submit();
            true
        }))
    }

    /// A descriptor that is readable when there are events; of a user ring buffer, when there is room.
    fn fileno(&self, py: Python<'_>) -> RawFd {
        py.detach(|| match &self.0.state().end {
            End::Ring(ring) => ring.as_raw_fd(),
            End::Perf(reader) => reader.as_raw_fd(),
            End::User(ring) => ring.as_raw_fd(),
        })
    }

    /// Whether both are users of one end.
    fn is_same(&self, other: &Self) -> bool {
        self.0.map == other.0.map
    }
}
