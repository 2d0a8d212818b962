//! Code memory, one piece at a time: 2 MiB, or the own pages of a long text.
//!
//! ```text
//!   executable view, at its place in the arena's range
//!
//!   place            place + populated                  place + len
//!     |  r-x: code and traps  |  ---: no memory, no access  |
//!                             ^ moves up by populate(); never down
//!
//!   written through an alias or a descriptor: see `kind`
//! ```
//!
//! The problem: code must be written, but memory must never be writable and executable at once, not even for a
//! moment; and changing protections back and forth costs microseconds and splits huge pages. So code is never
//! written where it is executed. The executable view cannot become writable ([`kind`] says how far that holds), and
//! its protection changes once in a page's life: from inaccessible to readable and executable, when the page is full
//! of traps.
//!
//! Invariants: every byte of the executable view that is accessible is a trap or code; the populated part is one
//! mapping; the memory used is the populated part, and after a failed [`populate`](Pack::populate) at most the part
//! that was asked for.
//!
//! Protocol of creation, in which each step is undone if a later one fails: file, alias (mapped inaccessible, hidden
//! from children, only then made writable), memory, traps, seals, executable view, descriptors closed. Of growth:
//! memory, traps, executable, caches. Caches come last because instruction caches are invalidated by the executable
//! address, which must be accessible for that; the part is published only afterwards, and the kernel makes the
//! caches agree about a page that is mapped executable for the first time.
//!
//! If growth in steps is impossible (Linux before 5.14 cannot populate without a signal; PR_SET_MDWE and similar
//! policies forbid that memory becomes executable later), the whole pack is populated at creation: `populated` says
//! so.
//!
//! What would break it: a page made executable before it has traps; a descriptor that outlives its use.

mod alias;
mod file;
mod kind;
mod writer;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::param::page_size;

use self::alias::Alias;
use self::file::Files;
pub(crate) use self::kind::{Kind, Medium, Resolved, resolve};
pub(crate) use self::writer::Writer;
use crate::arch;
use crate::error::{Error, SystemCall};
use crate::procfs;
use crate::range;
use crate::sys;

/// The size of a huge page that this crate can make: the unit that one entry of the second level of page tables maps
/// if base pages are 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

/// Code memory and the way it is written.
pub(crate) struct Pack {
    executable: Range<usize>,
    /// Populated bytes from the start. `grow` stores it with release after populating; the partners are the loads in
    /// `populated`.
    populated: AtomicUsize,
    /// Whether the mappings are sealed. Relaxed everywhere: only for reports.
    sealed: AtomicBool,
    kind: Kind,
    memory: WriteAccess,
}

/// How the pack is written.
enum WriteAccess {
    Aliased(Alias),
    File(OwnedFd),
    Process(OwnedFd),
}

impl Pack {
    /// Makes `len` bytes of code memory at `place`, with the first `populate` bytes populated; both are rounded up
    /// to pages, and a system that cannot populate in steps populates everything.
    ///
    /// # Errors
    ///
    /// [`Error::System`]; everything is as before.
    ///
    /// # Safety
    ///
    /// The `len` bytes from `place` on belong to a reservation of the caller's and are unused.
    pub(crate) unsafe fn new(kind: &Kind, place: usize, len: usize, populate: usize) -> Result<Self, Error> {
        // SAFETY: the caller's.
        unsafe { Self::with_files(kind, place, len, populate) }.map(|(pack, _files)| pack)
    }

    /// As [`new`](Self::new), with the descriptors, which must not outlive the caller.
    unsafe fn with_files(
        kind: &Kind,
        place: usize,
        len: usize,
        populate: usize,
    ) -> Result<(Self, Option<OwnedFd>), Error> {
        let len = len.next_multiple_of(page_size());
        let first = 0..populate.clamp(1, len).next_multiple_of(page_size());
        let executable = place..place + len;
        let pack = |memory| Self {
            executable: executable.clone(),
            populated: AtomicUsize::new(0),
            sealed: AtomicBool::new(false),
            kind: *kind,
            memory,
        };

        let (pack, first, file) = match kind.medium {
            Medium::Memfd => {
                let files = Files::create(kind.name, len)?;
                let alias = Alias::new(&files.writing, len, place)?;
                let all = 0..len;
                let first = match alias.populate(&first) {
                    // Linux before 5.14: write all of it, as long as the file can be written.
                    Err(error) if error.errno() == Some(Errno::INVAL) => {
                        // SAFETY: the file is open until the end of this block, and no other code has it.
                        unsafe {
                            Writer::through_descriptor(place, &files.writing, 0).fill(
                                SystemCall::AllocateFile,
                                place,
                                len,
                            )
                        }?;
                        all
                    }
                    result => result.map(|()| first)?,
                };
                let pack = pack(WriteAccess::Aliased(alias));
                // SAFETY: no other code knows the pack, and the bytes written were populated a moment ago.
                unsafe { pack.writer().fill(SystemCall::AllocateFile, place, first.end) }?;
                files.seal(SealFlags::FUTURE_WRITE)?;
                (pack, first, Some(files.reading))
            }
            Medium::Hardened => {
                let Files { writing, reading } = {
                    let files = Files::create(kind.name, len)?;
                    files.seal(SealFlags::empty())?;
                    files
                };
                let pack = pack(WriteAccess::File(writing));
                pack.allocate(&first)?;
                (pack, first, Some(reading))
            }
            Medium::Procmem => {
                let memory = sys::open(SystemCall::OpenMemory, "/proc/self/mem", OFlags::RDWR)?;
                (pack(WriteAccess::Process(memory)), first, None)
            }
        };
        // SAFETY: the caller's: the place is unused.
        let mapped = unsafe { pack.map_executable(file.as_ref(), first) };
        if let Err(error) = mapped {
            // If this fails as well, the place is unusable until the reservation is dropped; but it is safe.
            // SAFETY: no other code knows the pack.
            let _ = unsafe { range::reserve_again(&pack.executable) };
            return Err(error);
        }
        Ok((pack, file))
    }

    /// The executable view: all of it, populated or not.
    pub(crate) fn executable(&self) -> &Range<usize> {
        &self.executable
    }

    /// Populated bytes from the start: traps and code, readable and executable. The rest is inaccessible.
    pub(crate) fn populated(&self) -> usize {
        self.populated.load(Ordering::Acquire)
    }

    /// Whether the mappings are sealed for good.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Relaxed)
    }

    /// Populates the first `to` bytes, rounded up to a page; the new part is full of traps.
    ///
    /// One thread at a time; others may run and write what was populated before.
    ///
    /// # Errors
    ///
    /// [`Error::System`], never SIGBUS; the pack is as usable as before. (If a control group is out of memory the
    /// kernel may end a process of it first, as for every other page.) Memory that was already committed is kept for
    /// the next attempt if the file is sealed against releasing it.
    pub(crate) fn populate(&self, to: usize) -> Result<(), Error> {
        let part = self.populated()..to.min(self.executable.len()).next_multiple_of(page_size());
        if part.is_empty() {
            return Ok(());
        }
        let done = self.allocate(&part).and_then(|()| self.make_executable(&part));
        if done.is_err() {
            self.release(&part);
            return done;
        }
        self.finish(part);
        Ok(())
    }

    /// Populates the whole pack and moves it into huge pages, in all its views; takes milliseconds.
    ///
    /// One thread at a time; others may run and write meanwhile. Bytes beyond the last multiple of 2 MiB stay on base
    /// pages.
    ///
    /// # Errors
    ///
    /// [`Error::System`], with [`SystemCall::Collapse`] or [`SystemCall::CheckHuge`] if a huge page is missing. The
    /// pack is as usable as before, and may be populated further; [`Error::may_pass`] tells whether a retry may
    /// help.
    pub(crate) fn promote(&self) -> Result<(), Error> {
        let huge = self.executable.len() / HUGE_BYTES * HUGE_BYTES;
        let part = |view: &Range<usize>| view.start..view.start + huge;
        let mut views = vec![part(&self.executable)];
        if let WriteAccess::Aliased(alias) = &self.memory {
            // Before it is populated: one huge page is cheaper than hundreds of base pages that are then merged. The
            // part that was not populated is zeroes then, and still inaccessible.
            self.collapse(&part(alias.view()))?;
            views.push(part(alias.view()));
        }
        self.populate(self.executable.len())?;
        // Only one mapping with one protection can become huge.
        self.collapse(&views[0])?;
        // Check what the kernel did. (Anonymous neighbours are one mapping to it, and its numbers are per mapping:
        // for them they confirm madvise's result, but do not prove it.)
        let smaps = sys::read(SystemCall::CheckHuge, "/proc/self/smaps")?;
        match views.iter().map(|view| procfs::huge_bytes_around(&smaps, view)).min() {
            Some(bytes) if bytes >= huge as u64 && huge > 0 => Ok(()),
            bytes => {
                let text = format!("the kernel says that {} of {huge} bytes are", bytes.unwrap_or(0));
                Err(Error::System { call: SystemCall::CheckHuge, error: std::io::Error::other(text) })
            }
        }
    }

    /// How it is written.
    pub(crate) fn writer(&self) -> Writer {
        let place = self.executable.start;
        match &self.memory {
            WriteAccess::Aliased(alias) => Writer::through_alias(place, alias.view().start),
            // SAFETY: open as long as the pack is mapped, and a writer is used no longer than that.
            WriteAccess::File(file) => unsafe { Writer::through_descriptor(place, file, 0) },
            // SAFETY: as above.
            WriteAccess::Process(memory) => unsafe { Writer::through_descriptor(place, memory, place) },
        }
    }

    /// Makes the place inaccessible again and releases the memory. Returns the pack, as usable as before, if the
    /// system refuses; it always does for a sealed one.
    ///
    /// # Safety
    ///
    /// No thread runs, reads or writes anything in the pack.
    pub(crate) unsafe fn unmap(self) -> Result<(), Self> {
        // SAFETY: the executable view replaced a part of the reservation; the caller's for the rest.
        match unsafe { range::reserve_again(&self.executable) } {
            Ok(()) => Ok(()),
            Err(_) => Err(self),
        }
    }

    /// Forgets, in a forked child, the parent's pack: the alias's addresses, where nothing of ours is mapped here;
    /// descriptors are closed.
    pub(crate) fn forget(self) {
        if let WriteAccess::Aliased(alias) = self.memory {
            std::mem::forget(alias);
        }
    }

    /// Maps the executable view, with `first` of it, which is full of traps where there is a file, accessible.
    ///
    /// # Safety
    ///
    /// The place is unused.
    unsafe fn map_executable(&self, file: Option<&OwnedFd>, first: Range<usize>) -> Result<(), Error> {
        let Range { start: place, end } = self.executable;
        let all = 0..end - place;
        let fixed = MapFlags::FIXED | file.map_or(MapFlags::PRIVATE, |_| MapFlags::SHARED);
        let map = |protection| {
            // SAFETY: MAP_FIXED replaces part of the caller's reservation, which nothing uses.
            unsafe { sys::map(SystemCall::MapExecutable, place, all.end, protection, fixed, file) }
        };
        let rx = ProtFlags::READ | ProtFlags::EXEC | ProtFlags::from_bits_retain(self.kind.landing_pads);
        if file.is_some() && first == all {
            map(rx)?;
            self.advise_base_pages();
            self.finish(all);
            return Ok(());
        }
        map(ProtFlags::empty())?;
        self.advise_base_pages();
        if file.is_none() {
            self.allocate(&first)?;
        }
        match self.make_executable(&first) {
            // A policy forbids making memory executable later, so all of it is executable from the beginning.
            Err(error) if matches!(error.errno(), Some(Errno::ACCESS | Errno::PERM)) => {
                if file.is_some() {
                    self.allocate(&(first.end..all.end))?;
                    map(rx)?;
                } else {
                    // Zeroes for a moment, at an address that no other code has yet.
                    map(rx)?;
                    self.allocate(&all)?;
                }
                self.advise_base_pages();
                self.finish(all);
            }
            result => {
                result?;
                self.finish(first);
            }
        }
        Ok(())
    }

    /// Commits memory for a part, full of traps.
    fn allocate(&self, part: &Range<usize>) -> Result<(), Error> {
        if let WriteAccess::Aliased(alias) = &self.memory {
            alias.populate(part)?;
        }
        let call = match &self.memory {
            WriteAccess::Aliased(_) | WriteAccess::File(_) => SystemCall::AllocateFile,
            WriteAccess::Process(_) => SystemCall::WriteCode,
        };
        // SAFETY: whole pages that no code uses yet.
        unsafe { self.writer().fill(call, self.executable.start + part.start, part.len()) }
    }

    /// Releases the memory of a part that did not become executable, as far as possible.
    fn release(&self, part: &Range<usize>) {
        let _ = match &self.memory {
            // The seal against writing also forbids holes. The next attempt finds the memory there.
            WriteAccess::Aliased(_) => Ok(()),
            WriteAccess::File(file) => sys::punch_hole(SystemCall::ReturnMemory, file, part.clone()),
            // SAFETY: inaccessible pages that no code has used yet.
            WriteAccess::Process(_) => unsafe {
                sys::advise(SystemCall::ReturnMemory, &self.at(part), Advice::LinuxDontNeed)
            },
        };
    }

    fn make_executable(&self, part: &Range<usize>) -> Result<(), Error> {
        let landing_pads = MprotectFlags::from_bits_retain(self.kind.landing_pads);
        let protection = MprotectFlags::READ | MprotectFlags::EXEC | landing_pads;
        // SAFETY: inaccessible before; and full of traps.
        unsafe { sys::protect(SystemCall::MakeExecutable, &self.at(part), protection) }
    }

    /// Does the cache maintenance for a part that has become executable, and publishes its size.
    fn finish(&self, part: Range<usize>) {
        let at = self.at(&part);
        let clean = self.writer().clean_address(at.start);
        let executable = std::ptr::with_exposed_provenance(at.start);
        arch::publish([arch::View { clean, executable, len: at.len() }].into_iter());
        self.populated.store(part.end, Ordering::Release);
        if self.kind.permanent && part.end == self.executable.len() {
            let alias = match &self.memory {
                WriteAccess::Aliased(alias) => Some(alias.view()),
                WriteAccess::File(_) | WriteAccess::Process(_) => None,
            };
            let mut views = alias.into_iter().chain([&self.executable]);
            let sealed = views.all(|view| sys::seal_mapping(SystemCall::SealMapping, view).is_ok());
            self.sealed.store(sealed, Ordering::Relaxed);
        }
    }

    fn collapse(&self, view: &Range<usize>) -> Result<(), Error> {
        if self.kind.huge {
            // The advice given at birth ends here.
            // SAFETY: advice that forgets nothing.
            unsafe { sys::advise(SystemCall::Collapse, view, Advice::LinuxHugepage) }?;
        }
        sys::collapse(SystemCall::Collapse, view)
    }

    /// Whatever the administrator chose for all memory: huge pages only when they are asked for.
    fn advise_base_pages(&self) {
        // SAFETY: advice that forgets nothing. Kernels without huge pages refuse it, and need it not.
        let _ = unsafe { sys::advise(SystemCall::AdvisePages, &self.executable, Advice::LinuxNoHugepage) };
    }

    fn at(&self, part: &Range<usize>) -> Range<usize> {
        self.executable.start + part.start..self.executable.start + part.end
    }
}

#[cfg(test)]
mod tests;
