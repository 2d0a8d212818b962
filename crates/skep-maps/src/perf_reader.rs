//! The host's end of an array of perf events.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::error::MapError;
use crate::map::Map;
use crate::perf::SAMPLE;
use crate::ring::{PAGE, Ring};
use crate::ring_buffer::{Record, RingBuffer};

/// The reader of an array of perf events: returns the samples that programs output, in order over all CPUs, and sleeps
/// while there are none. A map has at most one reader; without one, `bpf_perf_event_output` fails with `-ENOENT`.
///
/// ```
/// use std::sync::Arc;
///
/// use skep_abi::{MapDef, MapKind};
/// use skep_maps::{Map, MapError, Options, PerfReader};
///
/// # fn main() -> Result<(), MapError> {
/// let def = MapDef::new("samples", MapKind::PerfEventArray, 4, 4, 2);
/// let map = Arc::new(Map::create(&def, &Options { cpus: 2, limit: 1 << 20 })?);
/// let mut samples = PerfReader::new(&map, 4096)?;
///
/// // What a program on CPU 1 does with `bpf_perf_event_output`.
/// // SAFETY: the parts are as long as they say.
/// let status = unsafe { map.perf_output_ptr(1, 1, (b"hello".as_ptr(), 5), (b"".as_ptr(), 0)) };
/// assert_eq!(status, 0);
///
/// let sample = samples.next_sample().unwrap();
/// assert_eq!((sample.cpu(), &sample[..]), (1, &b"hello"[..]));
/// # Ok(())
/// # }
/// ```
///
/// Its descriptor ([`AsFd`]) is for epoll(7) and the like, as that of a [`RingBuffer`]: it becomes readable when there
/// are samples; then take samples until there is none.
#[derive(Debug)]
pub struct PerfReader {
    records: RingBuffer,
}

/// A sample; its bytes are at a multiple of 8. Dropping it frees its memory for programs.
#[derive(Debug)]
pub struct Sample<'a> {
    record: Record<'a>,
}

impl PerfReader {
    /// Becomes the reader of that map, with room for `bytes` bytes of samples of each virtual CPU: rounded up so that
    /// all of them together are a power of two and at least 4096. A map keeps the room that its first reader gave it.
    ///
    /// # Errors
    ///
    /// [`MapError::NotPerfEvents`] for other kinds, [`MapError::Consumed`] if there is a reader already,
    /// [`MapError::NoMemory`], [`MapError::NoDescriptor`].
    pub fn new(map: &Arc<Map>, bytes: u32) -> Result<Self, MapError> {
        let name = || map.name().to_owned();
        let Some(events) = map.perf() else {
            return Err(MapError::NotPerfEvents { map: name(), kind: map.kind() });
        };
        if events.ring.get().is_none() {
            let all = bytes.checked_mul(events.lost.len() as u32).and_then(u32::checked_next_power_of_two);
            let ring = Ring::new(all.unwrap_or(1 << 31).max(PAGE));
            let ring = ring.map_err(|source| MapError::NoMemory { map: name(), source })?;
            // Another thread may have been first; then this one is not needed.
            let _ = events.ring.set(ring);
        }
        Ok(Self { records: RingBuffer::claim(map)? })
    }

    /// The next sample.
    pub fn next_sample(&mut self) -> Option<Sample<'_>> {
        self.records.next_record().map(|record| Sample { record })
    }

    /// Calls `f` with CPU and bytes of each sample, including those that are output meanwhile, until there is none.
    /// Returns how many.
    pub fn for_each(&mut self, mut f: impl FnMut(u32, &[u8])) -> usize {
        let mut samples = 0;
        while let Some(sample) = self.next_sample() {
            f(sample.cpu(), &sample);
            samples += 1;
        }
        samples
    }

    /// Sleeps until there is a sample, at most for `timeout`; `None` waits without a limit. Returns whether there is
    /// one.
    pub fn poll(&mut self, timeout: Option<Duration>) -> bool {
        self.records.poll(timeout)
    }

    /// How many samples found no room since the last call.
    pub fn lost(&mut self) -> u64 {
        let events = self.records.map().perf();
        events.map_or(0, |events| events.lost.iter().map(|lost| lost.swap(0, Ordering::Relaxed)).sum())
    }

    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        self.records.map()
    }
}

impl AsFd for PerfReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.records.as_fd()
    }
}

impl AsRawFd for PerfReader {
    fn as_raw_fd(&self) -> RawFd {
        self.records.as_raw_fd()
    }
}

impl Sample<'_> {
    /// The virtual CPU that output it.
    pub fn cpu(&self) -> u32 {
        self.record.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }
}

impl Deref for Sample<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.record[SAMPLE..]
    }
}
