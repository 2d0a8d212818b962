//! Perf events whose samples another process reads, as it reads those of a kernel.
//!
//! ```text
//!   page 0: struct perf_event_mmap_page               pages 1...: the ring, a power of two
//!   | ... data_head u64, data_tail u64, offset, size | record | record | ...         |
//!
//!   record          | type u32 | misc u16 | size u16 | fields of the sample | length u32, the program's bytes |
//! ```
//!
//! **Invariant.** Nothing in the file is trusted: the other process can write all of it at any time. The head is kept
//! beside the file, and the file has a copy. The tail is read once for each record, and a tail that no reader can have
//! counts as a full ring: a process that lies loses its own records.
//!
//! **Protocol.** A record is written, then the head (release), then the bell rings if enough was written since it last
//! did. A record may cross the end of the ring; it is made in memory of its own before, and copied in two parts.
//!
//! One thread at a time writes. A program that interrupts another in the middle of a record is refused, as in Linux.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{ClockId, clock_gettime};
use skep_mem::{Block, Error, memory_file};

use crate::op_error::errno;
use crate::racy;

/// The longest record: its length has 16 bits, and is a multiple of 8.
const LONGEST: usize = 0xfff8;
/// Words in which records are made: the longest one, one about lost ones before it, and one to move bytes.
const RECORD: usize = LONGEST / 8 + 8;
/// `PERF_RECORD_LOST`
const LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`
const SAMPLE: u32 = 9;
/// `PERF_RECORD_MISC_KERNEL`: a kernel's programs run there.
const KERNEL: u16 = 1;

/// Offsets in `struct perf_event_mmap_page`.
mod page {
    pub(super) const CAPABILITIES: usize = 40;
    pub(super) const SIZE: usize = 72;
    pub(super) const RESERVED: u32 = 96;
    pub(super) const DATA_HEAD: usize = 1024;
    pub(super) const DATA_TAIL: usize = 1032;
    pub(super) const DATA_OFFSET: usize = 1040;
    pub(super) const DATA_SIZE: usize = 1048;
    /// `cap_bit0_is_deprecated`: the other capabilities are to be believed, and there are none.
    pub(super) const NO_CAPABILITIES: u64 = 2;
}

/// What a sample has before the program's bytes, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleFields {
    /// Nanoseconds of the monotonic clock.
    pub time: bool,
    /// The CPU.
    pub cpu: bool,
    /// The period, which is 1.
    pub period: bool,
    /// The program's bytes.
    pub raw: bool,
}

/// When a process that waits for samples is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfWakeup {
    /// After so many samples.
    Samples(u32),
    /// After so many bytes; 0: half of the ring.
    Bytes(u32),
}

/// What a process asks of a perf event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfSettings {
    /// The CPU whose programs it takes samples from.
    pub cpu: u32,
    /// The number by which its lost samples are told.
    pub id: u64,
    /// What samples consist of.
    pub fields: SampleFields,
    /// Whether other records end with these fields as well.
    pub fields_of_all: bool,
    /// When to wake.
    pub wakeup: PerfWakeup,
    /// The head moves backwards, so that the newest record is the first.
    pub backward: bool,
    /// It takes samples from the start.
    pub enabled: bool,
}

/// Why a perf event's ring cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PerfMapError {
    /// The length is not a page and a power of two of pages.
    #[error("a ring has one page and a power of two of pages; {len} bytes are not that")]
    Length {
        /// The length.
        len: u64,
    },
    /// It has been mapped with another length, or its file was changed.
    #[error("the ring was mapped with another length before, or its file was changed")]
    Changed,
    /// No memory.
    #[error("no memory for the ring: {0}")]
    NoMemory(Error),
}

/// A perf event that programs output samples to, for another process.
///
/// The process has the [file](Self::file), in which it finds what mmap(2) of Linux's perf events shows.
#[derive(Debug)]
pub struct PerfEvent {
    settings: PerfSettings,
    /// Empty until the ring is mapped.
    file: OwnedFd,
    bell: OwnedFd,
    /// Relaxed, all of them: a change is seen by samples that follow it in the same thread.
    enabled: AtomicBool,
    paused: AtomicBool,
    detached: AtomicBool,
    ring: OnceLock<Ring>,
    /// Held while the ring is made.
    making: Mutex<()>,
}

#[derive(Debug)]
struct Ring {
    memory: Block,
    page: usize,
    size: u64,
    /// Nobody says what has been read: old records are overwritten.
    overwritten: bool,
    lost: AtomicU64,
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    head: u64,
    /// Samples and bytes since the bell rang.
    samples: u32,
    bytes: u64,
    /// The record that is being made.
    record: Box<[u64]>,
}

impl PerfEvent {
    /// A perf event without a ring. `name` is for people: `/proc` shows it as the file's.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], also if there are too many open files.
    pub fn new(name: &str, settings: PerfSettings) -> Result<Self, Error> {
        let file = memory_file(name)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|_| Error::OutOfMemory { bytes: 0 })?;
        Ok(Self {
            settings,
            file,
            bell,
            enabled: AtomicBool::new(settings.enabled),
            paused: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            ring: OnceLock::new(),
            making: Mutex::new(()),
        })
    }

    /// What was asked of it.
    pub fn settings(&self) -> &PerfSettings {
        &self.settings
    }

    /// Its file, which is empty until [`map`](Self::map).
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The event descriptor (eventfd(2)) that is written when a process is to be woken. It is for epoll(7) with
    /// `EPOLLET`: nobody reads it, and each write is an event.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether it takes samples.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether its ring is left as it is.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Nobody can read it any more.
    pub fn detach(&self) {
        self.detached.store(true, Ordering::Relaxed);
    }

    /// Whether there are bytes that the process has not read.
    pub fn has_unread(&self) -> bool {
        self.ring.get().is_some_and(|ring| {
            // Relaxed: to be looked at again when the bell rings.
            ring.word(page::DATA_HEAD).load(Ordering::Relaxed)
                != ring.word(page::DATA_TAIL).load(Ordering::Relaxed)
        })
    }

    /// Makes the ring in the file, so that the process can map `len` bytes from its start. `writable`: the process says
    /// what it has read; otherwise old records are overwritten. Later mappings get the same ring.
    ///
    /// # Errors
    ///
    /// [`PerfMapError`].
    pub fn map(&self, len: u64, writable: bool) -> Result<(), PerfMapError> {
        let page = rustix::param::page_size();
        let wanted = usize::try_from(len).ok().and_then(|len| len.checked_next_multiple_of(page));
        let size = wanted.and_then(|len| len.checked_sub(page)).filter(|size| size.is_power_of_two());
        let size = size.filter(|size| *size >= page).ok_or(PerfMapError::Length { len })?;
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = self.ring.get() {
            return if ring.size == size as u64 { Ok(()) } else { Err(PerfMapError::Changed) };
        }
        let file = self.file.try_clone().map_err(|_| PerfMapError::NoMemory(Error::OutOfMemory { bytes: 0 }));
        let memory = Block::in_given_file(file?, size + page);
        let memory = memory.map_err(PerfMapError::NoMemory)?;
        let ring = Ring {
            memory,
            page,
            size: size as u64,
            overwritten: !writable,
            lost: AtomicU64::new(0),
            writer: Mutex::new(Writer { head: 0, samples: 0, bytes: 0, record: vec![0; RECORD].into() }),
        };
        // Relaxed: the process reads it after mmap(2), which follows.
        let set = |at, value| ring.word(at).store(value, Ordering::Relaxed);
        set(page::CAPABILITIES, page::NO_CAPABILITIES);
        set(page::SIZE, pair(page::RESERVED, 0));
        set(page::DATA_OFFSET, page as u64);
        set(page::DATA_SIZE, size as u64);
        // What the process wrote before is no position.
        set(page::DATA_HEAD, 0);
        set(page::DATA_TAIL, 0);
        // The lock is held, so there was none.
        let _new = self.ring.set(ring);
        Ok(())
    }

    /// Outputs a sample with the bytes at `first` and `second`, for a program on that CPU. The result is the helper's.
    ///
    /// # Safety
    ///
    /// Both parts are readable for their lengths, at any alignment; others may write to the first.
    pub(crate) unsafe fn output(&self, cpu: u32, first: (*const u8, u32), second: (*const u8, u32)) -> i64 {
        let status = |number: i32| -i64::from(number);
        if self.settings.cpu != cpu || !self.enabled.load(Ordering::Relaxed) {
            return status(errno::EOPNOTSUPP);
        }
        let attached = !self.detached.load(Ordering::Relaxed);
        let Some(ring) = self.ring.get().filter(|_| attached) else { return status(errno::ENOENT) };
        let mut writer = match ring.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(writer)) => writer.into_inner(),
            Err(TryLockError::WouldBlock) => {
                ring.lose(1);
                return status(errno::EBUSY);
            }
        };
        if self.paused.load(Ordering::Relaxed) {
            ring.lose(1);
            return status(errno::ENOENT);
        }
        let lost = ring.lost.swap(0, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        let Some(len) = (unsafe { writer.make(&self.settings, lost, first, second) }) else {
            ring.lose(lost);
            return status(errno::E2BIG);
        };
        if !ring.write(&mut writer, len, self.settings.backward) {
            ring.lose(lost + 1);
            return status(errno::ENOSPC);
        }
        writer.samples += 1;
        writer.bytes += len;
        let woken = match self.settings.wakeup {
            PerfWakeup::Samples(wanted) => writer.samples >= wanted.max(1),
            PerfWakeup::Bytes(0) => writer.bytes >= ring.size / 2,
            PerfWakeup::Bytes(wanted) => writer.bytes >= u64::from(wanted).min(ring.size),
        };
        if woken {
            (writer.samples, writer.bytes) = (0, 0);
            self.ring_bell();
        }
        0
    }

    /// Writes the bell.
    pub fn ring_bell(&self) {
        // Fails only if nobody has listened for 2^64 times.
        let _rung = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Writer {
    /// Makes a sample, and before it a record about lost ones if there are any. Returns the bytes that they take;
    /// `None` if the sample is too long.
    ///
    /// # Safety
    ///
    /// As for [`PerfEvent::output`].
    unsafe fn make(
        &mut self,
        settings: &PerfSettings,
        lost: u64,
        first: (*const u8, u32),
        second: (*const u8, u32),
    ) -> Option<u64> {
        let record = &mut self.record;
        let mut at = 0;
        if lost != 0 {
            record[1..3].copy_from_slice(&[settings.id, lost]);
            at = 3;
            if settings.fields_of_all {
                at += common(settings, &mut record[at..]);
            }
            record[0] = header(LOST, 0, at * 8);
        }
        let begin = at;
        at += 1;
        at += common(settings, &mut record[at..]);
        if settings.fields.period {
            record[at] = 1;
            at += 1;
        }
        if settings.fields.raw {
            let (one, other) = (first.1 as usize, second.1 as usize);
            let padded = (4 + one + other).next_multiple_of(8);
            if (at - begin) * 8 + padded > LONGEST {
                return None;
            }
            // The bytes follow a length of four bytes; they are copied to the next word, and then moved.
            let words = one.div_ceil(8);
            // SAFETY: by the caller's contract. The record has a word more than the longest one, and `padded` bytes
            // from the word `at` on are within it.
            unsafe {
                racy::load_words(first.0, one, &mut record[at + 1..at + 1 + words]);
                let to = record.as_mut_ptr().add(at).cast::<u8>();
                ptr::copy(to.add(8), to.add(4), one);
                ptr::copy_nonoverlapping(second.0, to.add(4 + one), other);
                ptr::write_bytes(to.add(4 + one + other), 0, padded - 4 - one - other);
                to.cast::<u32>().write((padded - 4) as u32);
            }
            at += padded / 8;
        }
        record[begin] = header(SAMPLE, KERNEL, (at - begin) * 8);
        Some((at * 8) as u64)
    }
}

impl Ring {
    /// The word of the first page at that offset.
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the first page of the block, which lives as long as this. All processes access it in whole
        // words.
        unsafe { &*self.memory.base().as_ptr().add(offset).cast::<AtomicU64>() }
    }

    fn lose(&self, samples: u64) {
        self.lost.fetch_add(samples, Ordering::Relaxed);
    }

    /// Copies the first `len` bytes of the record that was made to the ring. Whether there is room.
    fn write(&self, writer: &mut Writer, len: u64, backward: bool) -> bool {
        let used = match self.overwritten {
            true => 0,
            false => {
                // Acquire: pairs with the reader's store, after which it does not read what is before it.
                let tail = self.word(page::DATA_TAIL).load(Ordering::Acquire);
                if backward { tail.wrapping_sub(writer.head) } else { writer.head.wrapping_sub(tail) }
            }
        };
        // A full ring would look like an empty one.
        if used > self.size || self.size - used <= len {
            return false;
        }
        let start = if backward { writer.head.wrapping_sub(len) } else { writer.head };
        let offset = start % self.size;
        let part = len.min(self.size - offset) as usize;
        let data = self.memory.base().as_ptr().wrapping_add(self.page);
        let from = writer.record.as_ptr().cast::<u8>();
        // SAFETY: `len` bytes were made. The first part ends with the ring at the latest, and the second one is shorter
        // than it; all offsets are multiples of 8.
        unsafe {
            racy::write(from, data.add(offset as usize), part);
            racy::write(from.add(part), data, len as usize - part);
        }
        writer.head = if backward { start } else { writer.head.wrapping_add(len) };
        // Release: pairs with the reader's load, which then sees the record.
        self.word(page::DATA_HEAD).store(writer.head, Ordering::Release);
        true
    }
}

/// Fields that samples and other records have in common, and how many words they take.
fn common(settings: &PerfSettings, words: &mut [u64]) -> usize {
    let mut count = 0;
    let mut add = |word| {
        words[count] = word;
        count += 1;
    };
    if settings.fields.time {
        let now = clock_gettime(ClockId::Monotonic);
        add(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
    }
    if settings.fields.cpu {
        add(pair(settings.cpu, 0));
    }
    count
}

/// `struct perf_event_header`
fn header(kind: u32, misc: u16, bytes: usize) -> u64 {
    let ([a, b, c, d], [e, f], [g, h]) =
        (kind.to_ne_bytes(), misc.to_ne_bytes(), (bytes as u16).to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Two numbers in the order of memory.
fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests;
