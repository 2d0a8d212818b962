//! Records of ring buffers and samples of perf events, by callbacks, and the descriptor that says when there are some.

use crate::argument::{exclusive, place, shared};
use crate::load::free;
use crate::status::{Failure, guard};
use skep::{Map, PerfReader, RingBuffer};
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// The consumer of a map's records.
#[derive(Debug)]
pub enum Events {
    /// Of a ring buffer.
    Ring(RingBuffer),
    /// Of an array of perf events.
    Perf(PerfReader),
}

/// What the host does with a record: its context, the virtual CPU of a sample, the bytes and their number. A result
/// other than 0 ends the call that took the record.
pub type RecordFn = Option<unsafe extern "C" fn(*mut c_void, u32, *const c_void, usize) -> c_int>;

/// Becomes the consumer of a ring buffer or of an array of perf events.
///
/// # Safety
///
/// `map` is null or of a module that is not freed; `ringbuf` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_ringbuf_new(
    map: *const Map,
    perf_bytes: usize,
    ringbuf: *mut *mut Events,
) -> c_int {
    guard(|| {
        let to = place(ringbuf, "skep_ringbuf_new: ringbuf")?;
        // SAFETY: the caller's promise.
        unsafe { shared(map, "skep_ringbuf_new: map")? };
        // SAFETY: the module holds the `Arc` from which the address comes (`skep_module_map`); this is another one.
        let map = unsafe {
            Arc::increment_strong_count(map);
            Arc::from_raw(map)
        };
        let events = if map.kind() == skep::abi::MapKind::PerfEventArray {
            let room = u32::try_from(perf_bytes);
            let room = room.map_err(|_| Failure::argument("skep_ringbuf_new: perf_bytes exceeds 2^32"))?;
            Events::Perf(PerfReader::new(&map, room)?)
        } else {
            Events::Ring(RingBuffer::new(&map)?)
        };
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(Box::into_raw(Box::new(events))) };
        Ok(())
    })
}

/// The descriptor that is readable when there are records; -1 if `ringbuf` is null.
///
/// # Safety
///
/// `ringbuf` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_ringbuf_fd(ringbuf: *const Events) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ringbuf.as_ref() }.map_or(-1, |events| match events {
        Events::Ring(ring) => ring.as_raw_fd(),
        Events::Perf(reader) => reader.as_raw_fd(),
    })
}

/// Waits for records, and calls back with each one that is there. Returns how many, or a negative status.
///
/// # Safety
///
/// `ringbuf` is null or not freed, and used by nothing else meanwhile, the callback included; `callback` is null or
/// takes
/// `context`, and returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_ringbuf_poll(
    ringbuf: *mut Events,
    timeout_ms: c_int,
    callback: RecordFn,
    context: *mut c_void,
) -> c_int {
    let mut count = 0;
    let status = guard(|| {
        // SAFETY: the caller's promise.
        let events = unsafe { exclusive(ringbuf, "skep_ringbuf_poll: ringbuf")? };
        let callback = callback.ok_or_else(|| Failure::argument("skep_ringbuf_poll: callback is NULL"))?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let mut tell = |cpu: u32, record: &[u8]| {
            count += 1;
            // SAFETY: the caller's promise about both; the record lives during the call.
            let goes_on = unsafe { callback(context, cpu, record.as_ptr().cast(), record.len()) } == 0;
            goes_on && count < c_int::MAX
        };
        match events {
            Events::Ring(ring) => {
                ring.poll(timeout);
                while let Some(record) = ring.next_record()
                    && tell(0, &record)
                {}
            }
            Events::Perf(reader) => {
                reader.poll(timeout);
                while let Some(sample) = reader.next_sample()
                    && tell(sample.cpu(), &sample)
                {}
            }
        }
        Ok(())
    });
    if status == 0 { count } else { status }
}

/// How many samples of perf events found no room since the last call; 0 for ring buffers and for null.
///
/// # Safety
///
/// `ringbuf` is null or not freed, and used by nothing else meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_ringbuf_lost(ringbuf: *mut Events) -> u64 {
    // SAFETY: the caller's promise.
    match unsafe { ringbuf.as_mut() } {
        Some(Events::Perf(reader)) => reader.lost(),
        _ => 0,
    }
}

/// Ends the consumption. The map may have another consumer then.
///
/// # Safety
///
/// `ringbuf` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_ringbuf_free(ringbuf: *mut Events) {
    // SAFETY: the caller's promise.
    unsafe { free(ringbuf) };
}
