//! The lock-free protocol by which many producers and one consumer share a ring of records.
//!
//! **Problem.** Programs on all threads write records, and interrupt each other while they do: a signal handler may
//! run a program on a thread that is in the middle of a reservation. The consumer wants the records in the order of
//! their reservation, and to sleep while there are none, at no cost for producers while it is awake.
//!
//! ```text
//!          consumer                            producer            positions: bytes since the beginning, never wrapped
//!             v                                   v
//!   | free 0 | header, record | header, record    |  free 0 ... |          at `position % size`
//!              ready            busy
//!
//!   header   63   62 61          32 31       0
//!           | state | offset / 8   |  length  |     all 0: reserved, header not written yet
//! ```
//!
//! **Invariant.** From the consumer's position to the producers' there is a sequence of records without gaps. All
//! other words are zero, so a header that is not written yet is not taken for a record.
//!
//! **Protocol.** A producer reserves with one compare-and-exchange of the position, marks its header busy, fills the
//! record and commits with one store of the header. A program that interrupts it sees a position either before its
//! record or behind it. The consumer takes a record when its header is ready, reads it, zeroes it, and only then
//! advances its position, so newly reserved memory is zero. A record that is not committed holds back later ones.
//!
//! **Sleep.** The consumer announces that it sleeps, checks once more, and sleeps. A producer commits, and checks
//! whether the consumer sleeps. Both execute a sequentially consistent fence between the two steps, so at least one
//! sees the other's store. Only the record that the consumer waits for wakes it, not those behind it.
//!
//! **Listening.** A consumer that waits for a descriptor instead (epoll) announces that it listens, checks once more,
//! and goes its way. The producer that finds the announcement takes it back and writes to the descriptor. So producers
//! make one system call for each time that the consumer has found nothing, and none while it is busy or nobody listens.
//!
//! **Memory.** A record that crosses the end of the ring stays in one piece: there is as much memory again behind the
//! end. There is at most one such record, because all records together take at most `size` bytes; the beginning of
//! the ring, which then counts as taken, is not touched and stays zero.
//!
//! **Forwarding.** The records of some rings are copied to memory that another process reads. There whoever commits is
//! the consumer for a moment, if nobody is: it forwards all records that are ready, stops being the consumer, and looks
//! once more. A committed record is thus forwarded by its producer or by the thread that was the consumer just then:
//! both execute a fence between their store (the header; the end of being the consumer) and their look at the other's.
//!
//! **What would break it:** advancing the consumer's position before the words are zeroed; code that relies on a
//! header's busy mark (it only keeps the length); a second consumer.
//!
//! ```text
//!   header   | length: 30 bits | wake-up: 2 | offset in words of 8 bytes: 30 | state: 2 |
//! ```

use std::time::Duration;

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes in a header; lengths and positions are multiples of it.
pub(crate) const HEADER: u64 = 8;

/// The most bytes of a record, as in Linux.
const LONGEST: u32 = (1 << 30) - 1;

const BUSY: u64 = 1 << 62;
const READY: u64 = 2 << 62;
const DISCARDED: u64 = 3 << 62;

/// The shared words, each in a cache line of its own.
#[repr(C)]
pub(crate) struct Control {
    producer: Line<AtomicU64>,
    consumer: Line<AtomicU64>,
    /// How the consumer waits, or is about to: not at all (0), [`PARKED`], [`LISTENING`].
    sleeping: Line<AtomicU32>,
    /// 1 while there is a consumer.
    claimed: Line<AtomicU32>,
    size: u64,
    /// The addresses of what the place keeps beside the ring; 0 for nothing.
    beside: [usize; 2],
}

/// The consumer sleeps on the word.
const PARKED: u32 = 1;
/// The consumer wants a signal.
const LISTENING: u32 = 2;

#[repr(align(64))]
struct Line<T>(T);

/// The memory of the records, and the way to sleep on its words.
pub(crate) trait Place {
    /// The word at that offset, a multiple of 8 below twice the size.
    fn word(&self, offset: u64) -> &AtomicU64;

    /// Sleeps while the word is 1, until woken or timed out; may return at any moment.
    fn park(&self, sleeping: &AtomicU32, timeout: Option<Duration>);

    /// Wakes a thread that sleeps on that word.
    fn wake(&self, sleeping: &AtomicU32);

    /// Tells a consumer that listens.
    fn signal(&self) {}

    /// The position up to which records are not needed any more: the consumer's, or one before it if another process
    /// reads them.
    fn needed_from(&self, consumer: u64) -> u64 {
        consumer
    }
}

/// When a commit wakes the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// If it sleeps and waits for this record.
    Usual = 0,
    /// Never.
    Never = 1,
    /// If it sleeps.
    Forced = 2,
}

/// The outcome of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Submitted,
    /// The consumer skips it.
    Discarded,
}

/// What is at the consumer's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// No record, or one that is not committed.
    Nothing,
    /// A committed record of that length, submitted or discarded.
    Record { len: u32, submitted: bool, wakeup: Wakeup },
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
            beside: [0; 2],
        }
    }

    /// The same, with something beside it.
    pub(crate) fn with(self, beside: [usize; 2]) -> Self {
        Self { beside, ..self }
    }

    pub(crate) fn beside(&self) -> [usize; 2] {
        self.beside
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The positions of producers and consumer.
    pub(crate) fn positions(&self) -> (u64, u64) {
        // In this order the consumer's position is never behind the producers'. Acquire: a thread that sees a
        // position sees the reservations before it.
        let consumer = self.consumer.0.load(Ordering::Acquire);
        (self.producer.0.load(Ordering::Relaxed), consumer)
    }

    /// Becomes the consumer, unless there is one.
    pub(crate) fn claim(&self) -> bool {
        // Acquire: pairs with `unclaim`, for the last consumer's changes.
        self.claimed.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether there is a consumer now.
    pub(crate) fn is_claimed(&self) -> bool {
        // Relaxed: whoever relies on it looks at the records.
        self.claimed.0.load(Ordering::Relaxed) != 0
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

/// The length and the offset in a header.
pub(crate) fn of_header(header: u64) -> (u32, u64) {
    (header as u32 & LONGEST, (header >> 32 & (u64::from(u32::MAX) >> 2)) * HEADER)
}

impl<P: Place> Ring<'_, P> {
    /// Reserves a record and returns the offset of its header. `None` if there is no room now, or never will be.
    pub(crate) fn reserve(&self, len: u32) -> Option<u64> {
        if len > LONGEST {
            return None;
        }
        let (control, total) = (self.control, total(len));
        loop {
            // Acquire: pairs with the Release in `pass`, so that free memory is zero when it is reserved. The
            // consumer's position is read first, so that it is never ahead of the other.
            let needed_from = self.place.needed_from(control.consumer.0.load(Ordering::Acquire));
            let producer = control.producer.0.load(Ordering::Relaxed);
            // As in Linux, one byte always stays free. Another process may claim to need records from anywhere.
            let used = producer.wrapping_sub(needed_from);
            if used.saturating_add(total) >= control.size {
                return None;
            }
            let next = producer + total;
            // Relaxed: no thread finds a record by the position.
            if control
                .producer
                .0
                .compare_exchange_weak(producer, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                let offset = producer % control.size;
                // Relaxed: for the producer itself, which commits with these values.
                let header = BUSY | (offset / HEADER) << 32 | u64::from(len);
                self.place.word(offset).store(header, Ordering::Relaxed);
                return Some(offset);
            }
        }
    }

    /// Commits a reservation, and wakes the consumer if necessary.
    pub(crate) fn commit(&self, offset: u64, outcome: Outcome, wakeup: Wakeup) {
        let header = self.place.word(offset);
        let state = if outcome == Outcome::Submitted { READY } else { DISCARDED };
        // Release: pairs with the Acquire in `next`; the record was filled before.
        let woken = (wakeup as u64) << LONGEST.count_ones();
        header.store(header.load(Ordering::Relaxed) & !DISCARDED | state | woken, Ordering::Release);
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
        if waited_for || wakeup == Wakeup::Forced {
            match control.sleeping.0.swap(0, Ordering::Relaxed) {
                PARKED => self.place.wake(&control.sleeping.0),
                LISTENING => self.place.signal(),
                _ => {}
            }
        }
    }

    /// The record at the consumer's position, and the position.
    pub(crate) fn next(&self) -> (u64, Next) {
        // Relaxed: only the consumer changes it.
        let position = self.control.consumer.0.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `commit`.
        let header = self.place.word(position % self.control.size).load(Ordering::Acquire);
        let (len, _) = of_header(header);
        let wakeup = match header as u32 >> LONGEST.count_ones() {
            0 => Wakeup::Usual,
            1 => Wakeup::Never,
            _ => Wakeup::Forced,
        };
        let next = match header & DISCARDED {
            READY => Next::Record { len, submitted: true, wakeup },
            DISCARDED => Next::Record { len, submitted: false, wakeup },
            _ => Next::Nothing,
        };
        (position, next)
    }

    /// Forwards all records that are ready, unless another thread does: `take` receives the position and the record,
    /// in order. For rings that have no other consumer, after each commit.
    pub(crate) fn forward(&self, mut take: impl FnMut(u64, Next)) {
        loop {
            // Pairs with itself: one thread has committed before, the other has stopped being the consumer. Either the
            // first becomes the consumer below, or the second sees its record there.
            fence(Ordering::SeqCst);
            // The position is that of this thread, or that of a later consumer, who looks as well.
            if self.next().1 == Next::Nothing || !self.control.claim() {
                return;
            }
            while let (position, next @ Next::Record { len, .. }) = self.next() {
                take(position, next);
                self.pass(position, len);
            }
            self.control.unclaim();
        }
    }

    /// The consumer frees the record at its position.
    pub(crate) fn pass(&self, position: u64, len: u32) {
        let (offset, total) = (position % self.control.size, total(len));
        for at in (offset..offset + total).step_by(HEADER as usize) {
            self.place.word(at).store(0, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `reserve`.
        self.control.consumer.0.store(position + total, Ordering::Release);
    }

    /// The consumer sleeps until there may be a record at its position, or the timeout is over.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        let sleeping = &self.control.sleeping.0;
        // Swaps, like the producers', so that all are in one order.
        sleeping.swap(PARKED, Ordering::Relaxed);
        // Pairs with the fence in `commit`: either the header is seen here, or the producer sees that the consumer
        // sleeps, and at which position.
        fence(Ordering::SeqCst);
        if self.next().1 == Next::Nothing {
            self.place.park(sleeping, timeout);
        }
        sleeping.swap(0, Ordering::Relaxed);
    }

    /// The consumer listens from now on: the producer of the record at its position sends one signal. Returns false,
    /// and does not listen, if there is a record already.
    pub(crate) fn listen(&self) -> bool {
        // A swap, and a fence that pairs with the one in `commit`, as in `sleep`.
        self.control.sleeping.0.swap(LISTENING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.next().1 == Next::Nothing {
            return true;
        }
        self.stop_listening();
        false
    }

    pub(crate) fn stop_listening(&self) {
        self.control.sleeping.0.swap(0, Ordering::Relaxed);
    }
}
