//! The host's end of a user ring buffer.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::error::MapError;
use crate::map::Map;
use crate::ring::protocol::{Outcome, Wakeup, total};
use crate::ring::signal::Signal;
use crate::ring::{self, deadline};
use crate::user_ring::{HostRing, UserRing};

/// The producer of a user ring buffer: passes records to programs, which take them by `bpf_user_ringbuf_drain`. A user
/// ring buffer has at most one producer.
///
/// ```
/// use std::sync::Arc;
///
/// use skep_abi::{MapDef, MapKind};
/// use skep_maps::{Map, MapError, Options, UserRingBuffer};
///
/// # fn main() -> Result<(), MapError> {
/// let def = MapDef::new("requests", MapKind::UserRingbuf, 0, 0, 4096);
/// let map = Arc::new(Map::create(&def, &Options { cpus: 1, limit: 1 << 20 })?);
/// let mut requests = UserRingBuffer::new(&map)?;
///
/// let mut sample = requests.reserve(5).expect("there is room");
/// sample.copy_from_slice(b"hello");
/// sample.submit();
/// drop(requests.reserve(100)); // not submitted: programs skip it
///
/// // What a program does with `bpf_user_ringbuf_drain`, whose function sees each record.
/// let mut seen = Vec::new();
/// let drained = map.user_ring_drain_ptr(0, &mut |at, len| {
///     // SAFETY: the record is there during the call.
///     seen.extend(unsafe { std::slice::from_raw_parts(at, len as usize) });
///     true
/// });
/// assert_eq!((drained, &seen[..]), (1, &b"hello"[..]));
/// # Ok(())
/// # }
/// ```
///
/// Its descriptor ([`AsFd`]) is for epoll(7) and the like: it becomes readable when programs have taken records since
/// [`reserve`](Self::reserve) last returned `None`. Never read or write it yourself.
#[derive(Debug)]
pub struct UserRingBuffer {
    map: Arc<Map>,
    /// Whether somebody has the descriptor. Relaxed: the same descriptor is handed out twice at worst.
    watched: AtomicBool,
}

/// A reserved record of a user ring buffer, all zeroes at first. Its bytes are at a multiple of 8. Programs see it when
/// it is [submitted](Self::submit), and skip it when it is dropped.
#[derive(Debug)]
pub struct UserSample<'a> {
    /// As the ring gave it: the header before it belongs to it.
    at: *mut u8,
    len: usize,
    ring: PhantomData<&'a mut UserRingBuffer>,
}

impl UserRingBuffer {
    /// Becomes the producer of that map.
    ///
    /// # Errors
    ///
    /// [`MapError::NotARing`] for other kinds, and if another process produces the records through a
    /// [file](Map::file); [`MapError::Consumed`] if there is a producer already; [`MapError::NoDescriptor`].
    pub fn new(map: &Arc<Map>) -> Result<Self, MapError> {
        let Some(ring) = map.user_ring().and_then(UserRing::host) else {
            return Err(MapError::NotARing { map: map.name().to_owned(), kind: map.kind() });
        };
        if !ring.claim() {
            return Err(MapError::Consumed { map: map.name().to_owned() });
        }
        let producer = Self { map: Arc::clone(map), watched: AtomicBool::new(false) };
        ring::make_signal(&ring.signal, map.name())?;
        Ok(producer)
    }

    fn ring(&self) -> Option<&HostRing> {
        self.map.user_ring()?.host()
    }

    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Bytes that are reserved and no program has taken, with 8 for each record.
    pub fn pending(&self) -> u64 {
        self.ring().map_or(0, |user| user.ring.query()[0])
    }

    /// A new record of `len` bytes; `None` if there is no room now, or never will be.
    pub fn reserve(&mut self, len: u32) -> Option<UserSample<'_>> {
        let watched = *self.watched.get_mut();
        let user = self.ring()?;
        let mut at = user.ring.reserve(len.into());
        if at.is_none() && watched {
            user.signal.get().into_iter().for_each(Signal::lower);
            let fits = || {
                at = user.ring.reserve(len.into());
                at.is_some()
            };
            user.room.listen(fits);
        }
        Some(UserSample { at: at?, len: len as usize, ring: PhantomData })
    }

    /// As [`reserve`](Self::reserve); if there is no room, sleeps until programs have made some, at most for `timeout`.
    /// `None` waits without a limit, except for a record that is longer than the ring.
    pub fn reserve_within(&mut self, len: u32, timeout: Option<Duration>) -> Option<UserSample<'_>> {
        let deadline = deadline(timeout);
        loop {
            let user = self.ring()?;
            let size = user.ring.shared().control.size();
            let fits = |user: &HostRing| user.ring.query()[0] + total(len) < size;
            if fits(user) {
                break;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) || total(len) >= size {
                return None;
            }
            ring::sleep(&user.room, left, || fits(user));
        }
        // There is one producer, so the room stays.
        self.reserve(len)
    }
}

impl AsFd for UserRingBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // `new` made the descriptor, and the map keeps it.
        let user = self.ring().expect("a producer has a ring");
        let signal = user.signal.get().expect("a producer's ring has a descriptor");
        if !self.watched.swap(true, Ordering::Relaxed) {
            // There may be room: the producer looks first.
            signal.raise();
        }
        signal.fd()
    }
}

impl AsRawFd for UserRingBuffer {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for UserRingBuffer {
    fn drop(&mut self) {
        if let Some(user) = self.ring() {
            user.room.stop_listening();
            user.unclaim();
        }
    }
}

impl UserSample<'_> {
    /// Passes the record to programs.
    pub fn submit(self) {
        self.commit(Outcome::Submitted);
        std::mem::forget(self);
    }

    fn commit(&self, outcome: Outcome) {
        // SAFETY: the record was reserved and is committed once: `submit` forgets it. The ring lives as long as the
        // map, which the borrowed producer has.
        unsafe { ring::commit(self.at, outcome, Wakeup::Never) };
    }
}

impl Deref for UserSample<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: reserved with that length; nothing else accesses it before it is submitted or discarded.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl DerefMut for UserSample<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for UserSample<'_> {
    fn drop(&mut self) {
        self.commit(Outcome::Discarded);
    }
}
