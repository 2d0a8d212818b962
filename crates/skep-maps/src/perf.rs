//! Arrays of perf events: samples from programs to the host.
//!
//! Linux has one ring for each CPU, which the host opens, and an element of the map names each. Here the map has one
//! ring for all virtual CPUs, opened by its reader, and each sample begins with its CPU:
//!
//! ```text
//!   record of the ring   | CPU u32 | 0 u32 | the program's bytes | bytes of the packet |
//! ```
//!
//! So the host reads samples in the order of their output over all CPUs, and sleeps in one place.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ring::Ring;
use crate::values::Values;

/// Bytes before a sample.
pub(crate) const SAMPLE: usize = 8;

#[derive(Debug)]
pub(crate) struct PerfEvents {
    /// Made by the first reader.
    pub(crate) ring: OnceLock<Ring>,
    /// The number of elements.
    len: u32,
    /// Samples that found no room, for each element. Relaxed everywhere: counters alone.
    pub(crate) lost: Box<[AtomicU64]>,
    values: Values,
}

impl PerfEvents {
    /// The bytes that it takes before it is opened.
    pub(crate) fn bytes(len: u32) -> Option<usize> {
        (len as usize).checked_mul(size_of::<AtomicU64>())
    }

    /// An array of that many elements, of which no more are used than there are virtual CPUs.
    pub(crate) fn new(len: u32, cpus: u32) -> Self {
        let lost = (0..len.min(cpus)).map(|_| AtomicU64::new(0)).collect();
        Self { ring: OnceLock::new(), len, lost, values: Values::shared(4) }
    }

    /// The number of elements.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.lost) + self.ring.get().map_or(0, Ring::memory)
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// Counts a sample that found no room.
    pub(crate) fn lose(&self, index: u32) {
        if let Some(lost) = self.lost.get(index as usize) {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
