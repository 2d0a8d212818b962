//! Ring buffers and perf events for hosts that run on tokio.
//!
//! A task that waits costs no thread, and programs pay one system call for each time that the task has found nothing:
//! see [`RingBuffer`](crate::RingBuffer#with-poll2-epoll7-mio-or-tokio). The runtime needs its I/O driver
//! (`enable_io` or `enable_all`).
//!
//! All waiting here may be cancelled: a record is taken only when it is returned.
//!
//! ```
//! use skep::stream::RingStream;
//! # use skep::abi::{MapDef, MapKind};
//! # use skep::{Map, MapOptions};
//! # use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let def = MapDef::new("events", MapKind::Ringbuf, 0, 0, 4096);
//! # let map = Arc::new(Map::create(&def, &MapOptions { cpus: 1, limit: 1 << 20 })?);
//! # // SAFETY: the record is as long as it says.
//! # assert_eq!(unsafe { map.ring_output_ptr(b"hello".as_ptr(), 5, 0) }, 0);
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
//! runtime.block_on(async {
//!     let mut events = RingStream::new(&map)?;
//!     assert_eq!(events.next_record().await?, b"hello");
//!     Ok(())
//! })
//! # }
//! ```

use futures_core::Stream;
use skep_maps::{Map, MapError, PerfReader, Record, RingBuffer, Sample, UserRingBuffer};
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The records of a ring buffer, as a [`Stream`] of their bytes.
#[derive(Debug)]
pub struct RingStream(AsyncFd<RingBuffer>);

/// The samples of perf events, as a [`Stream`] of virtual CPU and bytes.
#[derive(Debug)]
pub struct PerfStream(AsyncFd<PerfReader>);

/// The producer of a user ring buffer.
#[derive(Debug)]
pub struct UserRingSink(AsyncFd<UserRingBuffer>);

impl RingStream {
    /// Becomes the consumer of that map.
    ///
    /// # Errors
    ///
    /// Those of [`RingBuffer::new`] as [`io::ErrorKind::Other`], and those of the system.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with an I/O driver, as [`AsyncFd`] does.
    pub fn new(map: &Arc<Map>) -> io::Result<Self> {
        Ok(Self(watch(RingBuffer::new(map))?))
    }

    /// The next record, when there is one.
    ///
    /// # Errors
    ///
    /// Those of the system: the runtime is shutting down.
    pub async fn next_record(&mut self) -> io::Result<Vec<u8>> {
        std::future::poll_fn(|cx| self.poll_record(cx)).await
    }

    /// The next record without a copy, if it is there.
    pub fn ready_record(&mut self) -> Option<Record<'_>> {
        self.0.get_mut().next_record()
    }

    fn poll_record(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        poll(&mut self.0, cx, |ring| ring.next_record().map(|record| record.to_vec()))
    }
}

impl PerfStream {
    /// Becomes the reader of that map, with room for `bytes` bytes of samples of each virtual CPU.
    ///
    /// # Errors
    ///
    /// As [`RingStream::new`], for [`PerfReader::new`].
    ///
    /// # Panics
    ///
    /// As [`RingStream::new`].
    pub fn new(map: &Arc<Map>, bytes: u32) -> io::Result<Self> {
        Ok(Self(watch(PerfReader::new(map, bytes))?))
    }

    /// The virtual CPU and the bytes of the next sample, when there is one.
    ///
    /// # Errors
    ///
    /// As [`RingStream::next_record`].
    pub async fn next_sample(&mut self) -> io::Result<(u32, Vec<u8>)> {
        std::future::poll_fn(|cx| self.poll_sample(cx)).await
    }

    /// The next sample without a copy, if it is there.
    pub fn ready_sample(&mut self) -> Option<Sample<'_>> {
        self.0.get_mut().next_sample()
    }

    /// How many samples found no room since the last call.
    pub fn lost(&mut self) -> u64 {
        self.0.get_mut().lost()
    }

    fn poll_sample(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(u32, Vec<u8>)>> {
        poll(&mut self.0, cx, |reader| reader.next_sample().map(|sample| (sample.cpu(), sample.to_vec())))
    }
}

impl UserRingSink {
    /// Becomes the producer of that map.
    ///
    /// # Errors
    ///
    /// As [`RingStream::new`], for [`UserRingBuffer::new`].
    ///
    /// # Panics
    ///
    /// As [`RingStream::new`].
    pub fn new(map: &Arc<Map>) -> io::Result<Self> {
        Ok(Self(watch(UserRingBuffer::new(map))?))
    }

    /// Submits a record, when there is room for it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a record that never fits; those of the system.
    pub async fn send(&mut self, record: &[u8]) -> io::Result<()> {
        let size = self.0.get_ref().map().def().max_entries;
        let Some(len) = u32::try_from(record.len()).ok().filter(|len| len.saturating_add(16) <= size) else {
            let text = format!("a record of {} bytes does not fit a ring of {size} bytes", record.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let submit = |ring: &mut UserRingBuffer| {
            let mut sample = ring.reserve(len)?;
            sample.copy_from_slice(record);
            sample.submit();
            Some(())
        };
        std::future::poll_fn(|cx| poll(&mut self.0, cx, submit)).await
    }
}

impl Stream for RingStream {
    type Item = io::Result<Vec<u8>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_record(cx).map(Some)
    }
}

impl Stream for PerfStream {
    type Item = io::Result<(u32, Vec<u8>)>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_sample(cx).map(Some)
    }
}

fn watch<T: AsRawFd>(end: Result<T, MapError>) -> io::Result<AsyncFd<T>> {
    let end = end.map_err(io::Error::other)?;
    // SAFETY: all three ends have one descriptor, which the map keeps open, and the end keeps the map. Nobody can
    // exchange the end: no reference to it leaves this module.
    Ok(unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) }?)
}

/// What `look` finds, or a promise to look again. A look that finds nothing listens: what comes after it is an event.
fn poll<T: AsRawFd, R>(
    end: &mut AsyncFd<T>,
    cx: &mut Context<'_>,
    mut look: impl FnMut(&mut T) -> Option<R>,
) -> Poll<io::Result<R>> {
    loop {
        if let Some(found) = look(end.get_mut()) {
            return Poll::Ready(Ok(found));
        }
        ready!(end.poll_read_ready_mut(cx))?.clear_ready();
    }
}
