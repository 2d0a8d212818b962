//! How many producers and one consumer share a ring of records, without locks.
//!
//! **Problem.** Programs on all threads write records, and interrupt each other while they do: a signal
//! handler may run a program on a thread that is in the middle of reserving. The consumer wants the records
//! in the order in which they were reserved, and to sleep while there are none, for which producers must not
//! pay when it does not.
//!
//! ```text
//!          consumer                            producer            positions: bytes since the beginning, never wrapped
//!             v                                   v
//!   | free 0 | header, record | header, record    |  free 0 ... |          at `position % size`
//!              ready            busy
//!
//!   header   63   62 61          32 31       0
//!           | state | offset / 8   |  length  |     all 0: reserved by somebody who has not come further
//! ```
//!
//! **Invariant.** Between the consumer's position and the producers' lies a sequence of records without gaps.
//! All other words are zero, and so a header that nobody has written yet is not taken for one.
//!
//! **Protocol.** A producer reserves by one compare-and-exchange of the position, marks its header busy,
//! fills the record and commits by one store of the header. Whoever interrupts it in between finds a position
//! that is either before its record or behind. The consumer takes a record when its header is ready, reads
//! it, zeroes it, and only then moves its position, so that what is reserved again is zero. A record that is
//! not committed holds back those behind it.
//!
//! **Sleep.** The consumer says that it sleeps, looks once more, and sleeps. A producer commits, and looks
//! whether the consumer sleeps. Between the two steps both have a sequentially consistent fence: at least one
//! sees what the other did. The consumer is woken by the record that it waits for, and not by those that are
//! held back.
//!
//! **Reclamation.** A record that begins before the end of the ring and goes on behind it stays in one piece:
//! there is as much memory again behind the end. There is never more than one such record, since records take
//! `size` bytes at most all together; the beginning of the ring, which is then counted as taken, is not
//! touched and stays zero.
//!
//! **What would break it:** moving the consumer's position before the words are zeroed; a header whose busy
//! mark is needed (it only keeps the length); a second consumer.

use std::time::Duration;

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes in a header; also what lengths and positions are multiples of.
pub(crate) const HEADER: u64 = 8;

const BUSY: u64 = 1 << 62;
const READY: u64 = 2 << 62;
const DISCARDED: u64 = 3 << 62;

/// What all share. Each word in a cache line of its own.
#[repr(C)]
pub(crate) struct Control {
    producer: Line<AtomicU64>,
    consumer: Line<AtomicU64>,
    /// 1 while the consumer sleeps, or is about to.
    sleeping: Line<AtomicU32>,
    /// 1 while there is a consumer.
    claimed: Line<AtomicU32>,
    size: u64,
}

#[repr(align(64))]
struct Line<T>(T);

/// Where the records are, and how one sleeps there.
pub(crate) trait Place {
    /// The word at that offset, a multiple of 8 below twice the size.
    fn word(&self, offset: u64) -> &AtomicU64;

    /// Sleeps while the word is 1, until it is woken or the time is over; may return at any moment.
    fn park(&self, sleeping: &AtomicU32, timeout: Option<Duration>);

    /// Wakes who sleeps at that word.
    fn wake(&self, sleeping: &AtomicU32);
}

/// When a commit wakes the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// When it sleeps and this is the record that it waits for.
    Usual,
    /// Never.
    Never,
    /// When it sleeps.
    Forced,
}

/// What a producer makes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Submitted,
    /// The consumer passes over it.
    Discarded,
}

/// What is at the consumer's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, or a record that is not committed.
    Nothing,
    /// A record of that length: submitted, or else discarded.
    Record { len: u32, submitted: bool },
}

/// A ring, as producers and the consumer see it.
pub(crate) struct Ring<'a, P> {
    pub(crate) control: &'a Control,
    pub(crate) place: P,
}

impl Control {
    /// For `size` bytes, a power of two.
    pub(crate) fn new(size: u64) -> Self {
        Self {
            producer: Line(AtomicU64::new(0)),
            consumer: Line(AtomicU64::new(0)),
            sleeping: Line(AtomicU32::new(0)),
            claimed: Line(AtomicU32::new(0)),
            size,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The positions of producers and consumer.
    pub(crate) fn positions(&self) -> (u64, u64) {
        // In this order the first is never behind the second. Acquire: who sees a position sees the
        // reservations before it.
        let consumer = self.consumer.0.load(Ordering::Acquire);
        (self.producer.0.load(Ordering::Relaxed), consumer)
    }

    /// Becomes the consumer, unless there is one.
    pub(crate) fn claim(&self) -> bool {
        // Acquire: pairs with `unclaim`; the one before has taken what it has taken.
        self.claimed.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn unclaim(&self) {
        // Release: pairs with `claim`.
        self.claimed.0.store(0, Ordering::Release);
    }
}

/// Bytes that a record takes with its header.
pub(crate) fn total(len: u32) -> u64 {
    (u64::from(len) + HEADER).next_multiple_of(HEADER)
}

/// The length that a header says, and the offset it lies at.
pub(crate) fn of_header(header: u64) -> (u32, u64) {
    (header as u32, (header >> 32 & (u64::from(u32::MAX) >> 2)) * HEADER)
}

impl<P: Place> Ring<'_, P> {
    /// Reserves a record; the offset of its header. `None` where there is no room for it now, or never.
    pub(crate) fn reserve(&self, len: u32) -> Option<u64> {
        let (control, total) = (self.control, total(len));
        loop {
            // Acquire: pairs with the Release in `pass`. What is free is zero before it is reserved. The
            // consumer's position comes first: it is never before the other then.
            let consumer = control.consumer.0.load(Ordering::Acquire);
            let producer = control.producer.0.load(Ordering::Relaxed);
            // As in Linux, one byte is always left.
            if producer - consumer + total >= control.size {
                return None;
            }
            let next = producer + total;
            // Relaxed: nobody learns of a record by the position.
            if control
                .producer
                .0
                .compare_exchange_weak(producer, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                let offset = producer % control.size;
                // Relaxed: for the producer itself, which commits with what is said here.
                let header = BUSY | (offset / HEADER) << 32 | u64::from(len);
                self.place.word(offset).store(header, Ordering::Relaxed);
                return Some(offset);
            }
        }
    }

    /// Ends a reservation, and wakes the consumer if need be.
    pub(crate) fn commit(&self, offset: u64, outcome: Outcome, wakeup: Wakeup) {
        let header = self.place.word(offset);
        let state = if outcome == Outcome::Submitted { READY } else { DISCARDED };
        // Release: pairs with the Acquire in `next`; the record was filled before.
        header.store(header.load(Ordering::Relaxed) & !DISCARDED | state, Ordering::Release);
        if wakeup == Wakeup::Never {
            return;
        }
        // Pairs with the fence in `sleep`.
        fence(Ordering::SeqCst);
        let control = self.control;
        if control.sleeping.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        // Both positions are within one size of each other.
        let waited_for = control.consumer.0.load(Ordering::Relaxed) % control.size == offset;
        if (waited_for || wakeup == Wakeup::Forced) && control.sleeping.0.swap(0, Ordering::Relaxed) == 1 {
            self.place.wake(&control.sleeping.0);
        }
    }

    /// What the consumer finds at its position; and the position.
    pub(crate) fn next(&self) -> (u64, Next) {
        // Relaxed: the consumer's own.
        let position = self.control.consumer.0.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `commit`.
        let header = self.place.word(position % self.control.size).load(Ordering::Acquire);
        let (len, _) = of_header(header);
        let next = match header & DISCARDED {
            READY => Next::Record { len, submitted: true },
            DISCARDED => Next::Record { len, submitted: false },
            _ => Next::Nothing,
        };
        (position, next)
    }

    /// The consumer is done with a record at its position.
    pub(crate) fn pass(&self, position: u64, len: u32) {
        let (offset, total) = (position % self.control.size, total(len));
        for at in (offset..offset + total).step_by(HEADER as usize) {
            self.place.word(at).store(0, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `reserve`.
        self.control.consumer.0.store(position + total, Ordering::Release);
    }

    /// The consumer sleeps until there may be something at its position, or the time is over.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let sleeping = &self.control.sleeping.0;
        // Swaps, like the producers', so that all of them are in one order.
        sleeping.swap(1, Ordering::Relaxed);
        // Pairs with the fence in `commit`: either the header is seen here, or there that somebody sleeps,
        // and where.
        fence(Ordering::SeqCst);
        if self.next().1 == Next::Nothing {
            self.place.park(sleeping, timeout);
        }
        sleeping.swap(0, Ordering::Relaxed);
    }
}
