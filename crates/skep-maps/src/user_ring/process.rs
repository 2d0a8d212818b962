//! A user ring buffer in a file, whose producer is another process.
//!
//! The process writes records and its position as it likes. What a drain relies on is its own: its position, and the
//! length of a record, which it reads once and checks against the ring.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use skep_mem::Error;

use super::{LONGEST, MOST};
use crate::op_error::errno;
use crate::ring::HEADER;
use crate::ring::pages::{BUSY, DISCARDED, Pages};
use crate::ring::protocol::{Wakeup, total};
use crate::values::Values;

#[derive(Debug)]
pub(crate) struct ProcessRing {
    pages: Pages,
    values: Values,
    /// A drain is in progress.
    draining: AtomicBool,
    /// Up to where records were taken. Relaxed: changed by the one drain in progress.
    position: AtomicU64,
}

/// What is at the consumer's position.
enum Next {
    Nothing,
    Skipped(u32),
    Record(u32),
}

impl ProcessRing {
    pub(super) fn new(name: &str, bytes: u32) -> Result<Self, Error> {
        let pages = Pages::new(name, bytes)?;
        let (draining, position) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { pages, values: Values::shared(0), draining, position })
    }

    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// As [`super::UserRing::drain`]; also `-EINVAL` for a position or a length that the ring cannot have.
    pub(super) fn drain(&self, wakeup: Wakeup, visit: &mut dyn FnMut(*mut u8, u64) -> bool) -> i64 {
        // Acquire: pairs with the end of the last drain.
        if self.draining.swap(true, Ordering::Acquire) {
            return -i64::from(errno::EBUSY);
        }
        let (mut taken, mut visited, mut failed) = (0u32, 0, None);
        while taken < MOST {
            let position = self.position.load(Ordering::Relaxed);
            let (len, goes_on) = match self.next(position) {
                Ok(Next::Nothing) => break,
                Ok(Next::Skipped(len)) => (len, true),
                Ok(Next::Record(len)) => {
                    visited += 1;
                    (len, visit(self.pages.record(position).wrapping_add(HEADER as usize), len.into()))
                }
                Err(number) => {
                    failed = Some(-i64::from(number));
                    break;
                }
            };
            taken += 1;
            let next = position.wrapping_add(total(len));
            self.position.store(next, Ordering::Relaxed);
            self.pages.set_consumer(next);
            if !goes_on {
                break;
            }
        }
        // Release: pairs with the beginning of the next drain.
        self.draining.store(false, Ordering::Release);
        if wakeup == Wakeup::Forced || (wakeup == Wakeup::Usual && taken > 0) {
            self.pages.ring();
        }
        failed.unwrap_or(visited)
    }

    fn next(&self, position: u64) -> Result<Next, i32> {
        let producer = self.pages.producer();
        if !producer.is_multiple_of(HEADER) {
            return Err(errno::EINVAL);
        }
        if producer <= position {
            return Ok(Next::Nothing);
        }
        // Acquire: pairs with the producer's store that clears the busy bit.
        let header = self.pages.header(position).load(Ordering::Acquire);
        let len = header & !(BUSY | DISCARDED);
        if total(len) > producer - position {
            return Err(errno::EINVAL);
        }
        if total(len) > self.pages.size() || len > LONGEST {
            return Err(errno::E2BIG);
        }
        Ok(match header {
            _ if header & DISCARDED != 0 => Next::Skipped(len),
            _ if header & BUSY != 0 => Next::Nothing,
            _ => Next::Record(len),
        })
    }
}
