//! The host's end of a ring buffer.
//!
//! A consumer waits in one of two ways: it sleeps ([`RingBuffer::poll`]), or it watches a descriptor together with
//! others.
//! **Invariant** of a consumer that watches, between its calls: it listens, or the descriptor is readable. So each look
//! that finds nothing lowers the descriptor first, listens, and looks again.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::error::MapError;
use crate::map::Map;
use crate::ring::protocol::Next;
use crate::ring::signal::Signal;
use crate::ring::{self, HEADER, Ring, deadline};

/// The consumer of a ring buffer: returns the records that programs submit, in the order of their reservation, and
/// sleeps while there are none. A ring buffer has at most one consumer.
///
/// A reserved record that is neither submitted nor discarded holds back later ones.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use skep_abi::{MapDef, MapKind};
/// use skep_maps::{Map, MapError, Options, RingBuffer};
///
/// # fn main() -> Result<(), MapError> {
/// let def = MapDef::new("events", MapKind::Ringbuf, 0, 0, 4096);
/// let map = Arc::new(Map::create(&def, &Options { cpus: 1, limit: 1 << 20 })?);
/// let mut events = RingBuffer::new(&map)?;
/// assert!(!events.poll(Some(Duration::from_millis(1)))); // no record was submitted
///
/// // What a program does with `bpf_ringbuf_output`.
/// // SAFETY: the record is as long as it says.
/// assert_eq!(unsafe { map.ring_output_ptr(b"hello".as_ptr(), 5, 0) }, 0);
///
/// assert!(events.poll(None));
/// assert_eq!(&events.next_record().unwrap()[..], b"hello");
/// assert_eq!(events.for_each(|record| println!("{record:02x?}")), 0); // that was all
/// # Ok(())
/// # }
/// ```
///
/// # With poll(2), epoll(7), mio or tokio
///
/// The buffer has a descriptor ([`AsFd`]), an eventfd(2), that becomes readable when there are records. Then take
/// records until [`next_record`](Self::next_record) returns `None`: that makes it unreadable, until a program submits
/// the next record. Both triggers of epoll work, by level and by edge. Now and then it becomes readable although there
/// is no record. Never read or write it yourself.
///
/// A program makes one system call for each time that the consumer has found nothing, as when it wakes one that
/// sleeps. It makes none for records that it submits before the consumer has looked, or with `BPF_RB_NO_WAKEUP`, nor
/// if nobody has asked for the descriptor. With `BPF_RB_FORCE_WAKEUP` any record wakes, not only the one that the
/// consumer waits for.
#[derive(Debug)]
pub struct RingBuffer {
    map: Arc<Map>,
    /// Whether somebody has the descriptor. Relaxed: the same descriptor is handed out twice at worst.
    watched: AtomicBool,
}

/// A record of a ring buffer; its bytes are at a multiple of 8. Dropping it frees its memory for producers.
#[derive(Debug)]
pub struct Record<'a> {
    ring: &'a Ring,
    position: u64,
    len: u32,
}

impl RingBuffer {
    /// Becomes the consumer of that map.
    ///
    /// # Errors
    ///
    /// [`MapError::NotARing`] for other kinds, [`MapError::Consumed`] if there is a consumer already, or if records go
    /// to a [file](Map::file) for another process; [`MapError::NoDescriptor`].
    pub fn new(map: &Arc<Map>) -> Result<Self, MapError> {
        if map.ring().is_none() {
            return Err(MapError::NotARing { map: map.name().to_owned(), kind: map.kind() });
        }
        Self::claim(map)
    }

    /// The same for all kinds with a ring that is open.
    pub(crate) fn claim(map: &Arc<Map>) -> Result<Self, MapError> {
        let Some(ring) = map.read_ring() else {
            return Err(MapError::NotARing { map: map.name().to_owned(), kind: map.kind() });
        };
        if ring.mirror().is_some() || !ring.shared().control.claim() {
            return Err(MapError::Consumed { map: map.name().to_owned() });
        }
        let consumer = Self { map: Arc::clone(map), watched: AtomicBool::new(false) };
        ring::make_signal(ring.signal(), map.name())?;
        Ok(consumer)
    }

    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Bytes that producers have reserved and the consumer has not freed, with 8 for each record.
    pub fn available(&self) -> u64 {
        self.map.read_ring().map_or(0, |ring| ring.query()[0])
    }

    /// The next record, if it was submitted.
    pub fn next_record(&mut self) -> Option<Record<'_>> {
        let ring = self.map.read_ring()?;
        loop {
            match ring.shared().next() {
                (_, Next::Nothing) => {
                    if !*self.watched.get_mut() {
                        return None;
                    }
                    ring.signal().get().into_iter().for_each(Signal::lower);
                    if ring.shared().listen() {
                        return None;
                    }
                }
                (position, Next::Record { len, submitted: true, .. }) => {
                    return Some(Record { ring, position, len });
                }
                (position, Next::Record { len, .. }) => ring.shared().pass(position, len),
            }
        }
    }

    /// Calls `f` with each record, including those that are submitted meanwhile, until there is none. Returns how
    /// many.
    pub fn for_each(&mut self, mut f: impl FnMut(&[u8])) -> usize {
        let mut records = 0;
        while let Some(record) = self.next_record() {
            f(&record);
            records += 1;
        }
        records
    }

    /// Sleeps until there is a record, at most for `timeout`; `None` waits without a limit. Returns whether there is
    /// a record.
    ///
    /// Records submitted with `BPF_RB_NO_WAKEUP` do not end the sleep; they are found when another record or the
    /// timeout ends it.
    pub fn poll(&mut self, timeout: Option<Duration>) -> bool {
        let found = self.sleep(timeout);
        if *self.watched.get_mut() {
            self.listen();
        }
        found
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> bool {
        let deadline = deadline(timeout);
        loop {
            let Some(ring) = self.map.read_ring() else { return false };
            match ring.shared().next() {
                (_, Next::Record { submitted: true, .. }) => return true,
                (position, Next::Record { len, .. }) => {
                    ring.shared().pass(position, len);
                    continue;
                }
                (_, Next::Nothing) => {}
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            ring.shared().sleep(left);
        }
    }
}

impl RingBuffer {
    /// Listens, or makes the descriptor readable.
    fn listen(&self) {
        if let Some(ring) = self.map.read_ring()
            && !ring.shared().listen()
        {
            ring.signal().get().into_iter().for_each(Signal::raise);
        }
    }
}

impl AsFd for RingBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        if !self.watched.swap(true, Ordering::Relaxed) {
            self.listen();
        }
        let signal = self.map.read_ring().and_then(|ring| ring.signal().get());
        // `claim` made it, and the map keeps it.
        signal.expect("a consumer's ring has a descriptor").fd()
    }
}

impl AsRawFd for RingBuffer {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        if let Some(ring) = self.map.read_ring() {
            ring.shared().stop_listening();
            ring.shared().control.unclaim();
        }
    }
}

impl Deref for Record<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let offset = (self.position % self.ring.shared().control.size() + HEADER) as usize;
        // SAFETY: the record is within the ring's memory. It was submitted, so no program writes to it any more, and
        // no producer reserves its memory before this is dropped.
        unsafe { std::slice::from_raw_parts(self.ring.start().add(offset), self.len as usize) }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.ring.shared().pass(self.position, self.len);
    }
}
