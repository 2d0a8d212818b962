//! A ring buffer whose records another process reads.
//!
//! Programs write their records in memory of this process alone; committed ones are copied to a file, at the same
//! positions:
//!
//! ```text
//!   private ring   | committed | being written | committed | free |
//!                       | copied                    | waits for the one before it
//!   file           | record    |
//! ```
//!
//! So the other process cannot change a record while a program relies on its length or its place, and the file holds
//! nothing that is trusted. What it says about its own position only decides which memory of the file may be written
//! again: a process that lies loses its own records.

use super::Shared;
use super::pages::{DISCARDED, Pages};
use super::protocol::{HEADER, Next, total};
use crate::racy;
use skep_mem::Error;
use std::sync::atomic::Ordering;

#[derive(Debug)]
pub(crate) struct Mirror(Pages);

impl Mirror {
    pub(crate) fn new(name: &str, size: u32) -> Result<Self, Error> {
        Pages::new(name, size).map(Self)
    }

    pub(crate) fn pages(&self) -> &Pages {
        &self.0
    }

    /// The position from which on records may not be overwritten, if all before `forwarded` are in the file.
    pub(crate) fn needed_from(&self, forwarded: u64) -> u64 {
        let consumer = self.0.consumer();
        if forwarded.wrapping_sub(consumer) <= self.0.size() {
            consumer
        } else if consumer.wrapping_sub(forwarded) <= self.0.size() {
            // It may have read a record already that is just being forwarded.
            forwarded
        } else {
            // No position of a consumer: the ring counts as full.
            forwarded.wrapping_sub(self.0.size())
        }
    }

    /// Copies what was committed, and wakes the process where that was asked for. `start`: the private ring's memory.
    pub(crate) fn forward(&self, ring: &Shared<'_>, start: *const u8) {
        ring.forward(|position, next| {
            let Next::Record { len, submitted, wakeup } = next else { return };
            let from = start.wrapping_add((position % ring.control.size() + HEADER) as usize);
            let to = self.0.record(position).wrapping_add(HEADER as usize);
            if submitted {
                // SAFETY: a record of the private ring, which nobody writes any more; the file has room for the whole
                // ring behind each of its positions, and others may access it meanwhile.
                unsafe { racy::write(from, to, len as usize) };
            }
            let mark = if submitted { 0 } else { DISCARDED };
            // Relaxed: the position that follows makes it visible.
            self.0.header(position).store(len | mark, Ordering::Relaxed);
            let end = position + total(len);
            self.0.set_producer(end);
            self.0.announce(position, end, wakeup);
        });
    }
}
