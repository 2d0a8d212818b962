//! Ring buffers: records from programs to the host.
//!
//! ```text
//!   | control, 5 lines | ring, `size` bytes | as much again, for records that cross the end |
//! ```
//!
//! [`protocol`] says how threads share it; this file has the memory, and [`RingBuffer`](crate::RingBuffer) is the
//! host's interface. For another process the records are copied to a file ([`mirror`]).

pub(crate) mod bell;
pub(crate) mod mirror;
pub(crate) mod pages;
pub(crate) mod protocol;
pub(crate) mod signal;
mod sync;

use std::fmt;
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::thread::futex;
use skep_mem::{Block, Error};

use crate::error::MapError;
use crate::racy;
use crate::values::Values;
use bell::Bell;
use mirror::Mirror;
pub(crate) use protocol::HEADER;
use protocol::{Control, Outcome, Place, Wakeup};
use signal::Signal;
use sync::{AtomicU32, AtomicU64};

/// The smallest ring, and the unit of all sizes: a page on most machines, and the same everywhere, so that object
/// files are portable.
pub(crate) const PAGE: u32 = 4096;

/// The offset of the ring in the block.
const START: usize = size_of::<Control>();
const LINE: usize = 64;

/// `BPF_RB_NO_WAKEUP`
const NO_WAKEUP: u64 = 1;
/// `BPF_RB_FORCE_WAKEUP`
const FORCE_WAKEUP: u64 = 2;

/// The memory of a ring buffer.
pub(crate) struct Ring {
    memory: Block,
    values: Values,
    /// What another process sees of it. Boxed: the control words have its address.
    mirror: Option<Box<Mirror>>,
    /// What tells a consumer that waits for a descriptor. Boxed for the same reason.
    signal: Box<OnceLock<Signal>>,
}

/// The words of a ring.
pub(crate) struct Words<'a> {
    start: *const u8,
    mirror: Option<&'a Mirror>,
    signal: &'a OnceLock<Signal>,
}

type Shared<'a> = protocol::Ring<'a, Words<'a>>;

impl Ring {
    /// The bytes that a ring of that size takes.
    pub(crate) fn bytes(size: u32) -> Option<usize> {
        Block::reserved_for(Self::len_of(size)?, LINE).ok()
    }

    /// `size`: a power of two, at least [`PAGE`].
    pub(crate) fn new(size: u32) -> Result<Self, Error> {
        Self::with(size, None)
    }

    /// The same, with a file of that name for another process.
    pub(crate) fn mirrored(name: &str, size: u32) -> Result<Self, Error> {
        Self::with(size, Some(Box::new(Mirror::new(name, size)?)))
    }

    fn with(size: u32, mirror: Option<Box<Mirror>>) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: 2, size: size as usize };
        let memory = Block::zeroed(Self::len_of(size).ok_or(too_large)?, LINE)?;
        let signal = Box::new(OnceLock::new());
        let beside = mirror.as_deref().map_or(0, |mirror| ptr::from_ref(mirror).expose_provenance());
        let beside = [beside, ptr::from_ref(&*signal).expose_provenance()];
        // SAFETY: the block begins with room for it, at a multiple of a cache line.
        unsafe { memory.base().cast::<Control>().write(Control::new(size.into()).with(beside)) };
        // Records find it by their addresses.
        memory.base().as_ptr().expose_provenance();
        Ok(Self { memory, values: Values::shared(0), mirror, signal })
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory.reserved() + self.mirror.as_ref().map_or(0, |mirror| mirror.pages().memory())
    }

    pub(crate) fn mirror(&self) -> Option<&Mirror> {
        self.mirror.as_deref()
    }

    /// What tells a consumer that waits for a descriptor; made once.
    pub(crate) fn signal(&self) -> &OnceLock<Signal> {
        &self.signal
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// The query results: bytes between the positions, the size, the consumer's and the producers' position.
    pub(crate) fn query(&self) -> [u64; 4] {
        let control = self.shared().control;
        let (producer, consumer) = control.positions();
        // As in Linux, what another process says is passed on as it is.
        let consumer = self.mirror().map_or(consumer, |mirror| mirror.pages().consumer());
        [producer.wrapping_sub(consumer), control.size(), consumer, producer]
    }

    /// The address of a new record of that length, all zeroes, at a multiple of 8; `None` if there is no room.
    pub(crate) fn reserve(&self, len: u64) -> Option<*mut u8> {
        let offset = self.shared().reserve(u32::try_from(len).ok()?)?;
        Some(self.start().wrapping_add((offset + HEADER) as usize))
    }

    fn len_of(size: u32) -> Option<usize> {
        (size as usize).checked_mul(2)?.checked_add(START)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.memory.base().as_ptr().wrapping_add(START)
    }

    pub(crate) fn shared(&self) -> Shared<'_> {
        // SAFETY: made in `new`; lives as long as the block.
        let control = unsafe { self.memory.base().cast::<Control>().as_ref() };
        Shared { control, place: Words { start: self.start(), mirror: self.mirror(), signal: &self.signal } }
    }
}

impl Ring {
    /// Whether an address is in the memory of records.
    pub(crate) fn holds(&self, record: *const u8) -> bool {
        let size = self.shared().control.size();
        record.addr().checked_sub(self.start().addr()).is_some_and(|offset| offset as u64 / 2 < size)
    }

    /// The length of a record.
    ///
    /// # Safety
    ///
    /// [`reserve`](Self::reserve) returned `record`, which is not committed yet.
    pub(crate) unsafe fn record_len(&self, record: *const u8) -> u32 {
        // SAFETY: a header is before it.
        let header = unsafe { &*record.sub(HEADER as usize).cast::<AtomicU64>() };
        // Relaxed: this thread wrote it.
        protocol::of_header(header.load(sync::Ordering::Relaxed)).0
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [available, size, ..] = self.query();
        f.debug_struct("Ring").field("size", &size).field("available", &available).finish_non_exhaustive()
    }
}

/// When to wake the consumer, by a helper's flags; `None` for unknown flags.
pub(crate) fn wakeup(flags: u64) -> Option<Wakeup> {
    match flags {
        0 => Some(Wakeup::Usual),
        _ if flags & !(NO_WAKEUP | FORCE_WAKEUP) != 0 => None,
        _ if flags & FORCE_WAKEUP != 0 => Some(Wakeup::Forced),
        _ => Some(Wakeup::Never),
    }
}

/// Submits or discards a record.
///
/// # Safety
///
/// [`Ring::reserve`] returned `record`, which is committed once; the ring still lives.
pub(crate) unsafe fn commit(record: *mut u8, outcome: Outcome, wakeup: Wakeup) {
    // SAFETY: the header has the record's offset in its ring, and so the place of the ring's control words.
    unsafe {
        let header = record.sub(HEADER as usize);
        let (_, offset) = protocol::of_header((*header.cast::<AtomicU64>()).load(sync::Ordering::Relaxed));
        let start = header.sub(offset as usize);
        let control = &*start.sub(START).cast::<Control>();
        // Both live as long as the ring.
        let [mirror, signal] = control.beside();
        let mirror = ptr::with_exposed_provenance::<Mirror>(mirror).as_ref();
        let signal = &*ptr::with_exposed_provenance::<OnceLock<Signal>>(signal);
        let ring = Shared { control, place: Words { start, mirror, signal } };
        ring.commit(offset, outcome, wakeup);
        if let Some(mirror) = mirror {
            mirror.forward(&ring, start);
        }
    }
}

/// Fills a record.
///
/// # Safety
///
/// `record` was reserved with that length and not committed; `from` is readable for as many bytes, at any alignment;
/// others may write there.
pub(crate) unsafe fn fill(record: *mut u8, from: *const u8, len: usize) {
    // SAFETY: records begin at multiples of 8 and are padded to them.
    unsafe { racy::write(from, record, len) };
}

/// Writes more bytes behind the first `offset` ones of a record.
///
/// # Safety
///
/// As for [`fill`] with `offset + len` bytes; no other thread writes at `from` meanwhile.
pub(crate) unsafe fn append(record: *mut u8, offset: usize, from: *const u8, len: usize) {
    // SAFETY: the record has room for both parts, and is not visible to others before the commit.
    unsafe { std::ptr::copy_nonoverlapping(from, record.add(offset), len) };
}

impl Place for Words<'_> {
    #[inline(always)]
    fn word(&self, offset: u64) -> &AtomicU64 {
        // SAFETY: offsets are multiples of 8 within the two halves of the memory, which lives as long as the ring
        // that this was made from. Programs access the words of their records only.
        unsafe { &*self.start.wrapping_add(offset as usize).cast::<AtomicU64>() }
    }

    fn park(&self, sleeping: &AtomicU32, timeout: Option<Duration>) {
        // A timeout that does not fit is as good as none.
        let timeout = timeout.and_then(|time| futex::Timespec::try_from(time).ok());
        // The result does not matter: the caller checks again, and knows the time.
        let _ = futex::wait(sleeping, futex::Flags::PRIVATE, 1, timeout.as_ref());
    }

    fn wake(&self, sleeping: &AtomicU32) {
        // Cannot fail: the word is mapped.
        let _ = futex::wake(sleeping, futex::Flags::PRIVATE, 1);
    }

    #[cold]
    fn signal(&self) {
        if let Some(signal) = self.signal.get() {
            signal.raise();
        }
    }

    #[inline]
    fn needed_from(&self, consumer: u64) -> u64 {
        self.mirror.map_or(consumer, |mirror| mirror.needed_from(consumer))
    }
}

/// Wakes who waits for the bell.
pub(crate) fn wake(bell: &Bell, signal: &OnceLock<Signal>) {
    let wake = |word: &AtomicU32| {
        // Cannot fail: the word is mapped.
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    };
    bell.ring(wake, || signal.get().into_iter().for_each(Signal::raise));
}

/// The signal in its place, which is made if there is none.
pub(crate) fn make_signal<'a>(place: &'a OnceLock<Signal>, map: &str) -> Result<&'a Signal, MapError> {
    if let Some(signal) = place.get() {
        return Ok(signal);
    }
    let made = Signal::new();
    let made =
        made.map_err(|error| MapError::NoDescriptor { map: map.to_owned(), errno: error.raw_os_error() })?;
    Ok(place.get_or_init(|| made))
}

/// Sleeps until the bell rings, at most for `timeout`, unless something is ready; may return at any moment.
pub(crate) fn sleep(bell: &Bell, timeout: Option<Duration>, ready: impl FnOnce() -> bool) {
    // A timeout that does not fit is as good as none.
    let timeout = timeout.and_then(|time| futex::Timespec::try_from(time).ok());
    bell.wait(ready, |word| {
        // The result does not matter: the caller looks again, and knows the time.
        let _ = futex::wait(word, futex::Flags::PRIVATE, 1, timeout.as_ref());
    });
}

/// The moment at which the timeout is over; `None` for never.
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}
