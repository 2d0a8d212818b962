//! Writing code: three ways behind one interface.
//!
//! Every address is one of the executable view; only the writer knows how to reach it. Through the alias, writing is
//! an ordinary store. Through a descriptor it is a `pwrite` of whole aligned words of 8 bytes, so that a CPU that
//! runs the code sees each word either old or new: the other bytes of the first and the last word are read from the
//! executable view and written again.
//!
//! ```text
//!            to                      to + len
//!   |.....xxx|xxxxxxxx| ... |xxxxxxxx|xx......|      x: asked for    .: read and written again
//!    ^ a multiple of 8                        ^ a multiple of 8
//! ```
//!
//! Protocol: the writing thread owns these words, by owning the chunks (multiples of 8 bytes at multiples of 8), or
//! by holding the lock for pokes. A writer has addresses and a descriptor's number and keeps nothing alive: it is
//! valid as long as its pack is mapped.
//!
//! What would break it: two writers within one word; a writer that outlives its pack.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::arch;
use crate::error::{Error, SystemCall};
use crate::sys;

/// The unit of writing without an alias, in bytes.
const WORD: usize = 8;

/// Traps for one call.
static TRAPS: Traps = Traps(traps());

const TRAPS_LEN: usize = 16 << 10;

#[repr(align(8))]
struct Traps([u8; TRAPS_LEN]);

/// How a pack is written. Valid while the pack is mapped.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    road: Road,
    /// Wrapping offset from an address of the executable view: to the alias, or to the offset in the file.
    distance: usize,
}

#[derive(Clone, Copy)]
enum Road {
    Alias,
    Descriptor(BorrowedFd<'static>),
}

impl Writer {
    /// Writes by storing into the view that begins at `alias`.
    pub(super) fn through_alias(executable: usize, alias: usize) -> Self {
        Self { road: Road::Alias, distance: alias.wrapping_sub(executable) }
    }

    /// Writes the file behind `file`, in which `executable` is at `offset`.
    ///
    /// # Safety
    ///
    /// The descriptor stays open as long as this writer or a copy of it is used.
    pub(super) unsafe fn through_descriptor(executable: usize, file: &OwnedFd, offset: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        let file = unsafe { std::mem::transmute::<BorrowedFd<'_>, BorrowedFd<'static>>(file.as_fd()) };
        Self { road: Road::Descriptor(file), distance: offset.wrapping_sub(executable) }
    }

    /// The two views of `len` bytes at `address`, for cache maintenance.
    pub(crate) fn view(&self, address: usize, len: usize) -> arch::View {
        arch::View { clean: self.clean_address(address), executable: ptr::without_provenance(address), len }
    }

    /// Writes `bytes` at `to`.
    ///
    /// # Errors
    ///
    /// [`SystemCall::WriteCode`]; some of the bytes may have been written then. Never through an alias.
    ///
    /// # Safety
    ///
    /// The pack is mapped and populated there, and only the caller writes the words around the bytes.
    pub(crate) unsafe fn copy(&self, to: usize, bytes: &[u8]) -> Result<(), Error> {
        match self.road {
            Road::Alias => {
                let at = ptr::with_exposed_provenance_mut(self.there(to));
                // SAFETY: the caller's; the alias has a byte for every one of the executable view.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
                Ok(())
            }
            // SAFETY: the caller's.
            Road::Descriptor(file) => unsafe { self.write_words(SystemCall::WriteCode, file, to, bytes) },
        }
    }

    /// Fills `len` bytes at `at` with traps.
    ///
    /// # Errors
    ///
    /// [`SystemCall::WriteCode`]; some of the bytes may be traps then. Never through an alias.
    ///
    /// # Safety
    ///
    /// As for [`copy`](Self::copy); and `at` and `len` are multiples of a trap.
    pub(crate) unsafe fn fill_with_traps(&self, at: usize, len: usize) -> Result<(), Error> {
        // SAFETY: the caller's.
        unsafe { self.fill(SystemCall::WriteCode, at, len) }
    }

    /// As [`fill_with_traps`](Self::fill_with_traps), with another call named by the error.
    ///
    /// # Safety
    ///
    /// As there. If `at` and `len` are multiples of 8, nothing is read; so the pack need not be accessible.
    pub(super) unsafe fn fill(&self, call: SystemCall, at: usize, len: usize) -> Result<(), Error> {
        match self.road {
            Road::Alias => {
                // SAFETY: the caller's.
                unsafe { arch::fill_with_traps(ptr::with_exposed_provenance_mut(self.there(at)), len) };
                Ok(())
            }
            Road::Descriptor(file) => {
                let mut filled = 0;
                while filled < len {
                    let part = TRAPS_LEN.min(len - filled);
                    // SAFETY: the caller's.
                    unsafe { self.write_words(call, file, at + filled, &TRAPS.0[..part]) }?;
                    filled += part;
                }
                Ok(())
            }
        }
    }

    /// Replaces one aligned word by one store.
    ///
    /// # Errors
    ///
    /// [`SystemCall::WriteCode`]; the word is as it was then. Never through an alias.
    ///
    /// # Safety
    ///
    /// As for [`copy`](Self::copy); and `at` is a multiple of the word's size.
    pub(crate) unsafe fn store(&self, at: usize, word: arch::Word) -> Result<(), Error> {
        debug_assert!(at.is_multiple_of(size_of::<arch::Word>()));
        match self.road {
            Road::Alias => {
                let at = ptr::with_exposed_provenance_mut(self.there(at));
                // SAFETY: the caller's; aligned, because the views differ by a multiple of a page.
                let place = unsafe { arch::AtomicWord::from_ptr(at) };
                // Release: the branch target was written before. The partners are the CPUs that fetch it.
                place.store(word, Ordering::Release);
                Ok(())
            }
            // SAFETY: the caller's.
            Road::Descriptor(file) => unsafe {
                self.write_words(SystemCall::WriteCode, file, at, &word.to_ne_bytes())
            },
        }
    }

    /// One aligned word of the writable view, if there is one.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> Option<&arch::AtomicWord> {
        debug_assert!(at.is_multiple_of(size_of::<arch::Word>()));
        match self.road {
            Road::Alias => {
                let at = ptr::with_exposed_provenance_mut(self.there(at));
                // SAFETY: valid while the pack is mapped, as the writer; aligned, because the views differ by a
                // multiple of a page. Others store by atomics too, or to other words.
                Some(unsafe { arch::AtomicWord::from_ptr(at) })
            }
            Road::Descriptor(_) => None,
        }
    }

    /// The address for cleaning data caches after writing at `at`: the alias, or `at` itself if there is none and
    /// the kernel stored by an address of its own.
    pub(crate) fn clean_address(&self, at: usize) -> *const u8 {
        ptr::with_exposed_provenance(match self.road {
            Road::Alias => self.there(at),
            Road::Descriptor(_) => at,
        })
    }

    /// # Safety
    ///
    /// As for [`copy`](Self::copy).
    unsafe fn write_words(
        &self,
        call: SystemCall,
        file: BorrowedFd<'_>,
        to: usize,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let (before, end) = (to % WORD, to + bytes.len());
        let start = to - before;
        if before == 0 && end.is_multiple_of(WORD) {
            return write_all(call, file, &[bytes], self.there(start));
        }
        // SAFETY: the caller's: the words around the bytes are readable, and no other thread writes them meanwhile.
        let word = |at: usize| unsafe { ptr::with_exposed_provenance::<[u8; WORD]>(at).read() };
        let mut first = word(start);
        let in_first = bytes.len().min(WORD - before);
        first[before..before + in_first].copy_from_slice(&bytes[..in_first]);
        let rest = &bytes[in_first..];
        let (middle, tail) = rest.split_at(rest.len() - rest.len() % WORD);
        if tail.is_empty() {
            return write_all(call, file, &[&first, middle], self.there(start));
        }
        let mut last = word(end - tail.len());
        last[..tail.len()].copy_from_slice(tail);
        write_all(call, file, &[&first, middle, &last], self.there(start))
    }

    fn there(&self, at: usize) -> usize {
        at.wrapping_add(self.distance)
    }
}

/// Writes all `parts` one after the other, in whole words; their lengths are multiples of a word.
fn write_all(call: SystemCall, file: BorrowedFd<'_>, parts: &[&[u8]], offset: usize) -> Result<(), Error> {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let mut done = 0;
    while done < total {
        let mut slices = [IoSlice::new(&[]); 3];
        let mut count = 0;
        let mut skip = done;
        for part in parts {
            let rest = &part[skip.min(part.len())..];
            skip -= skip.min(part.len());
            if !rest.is_empty() {
                slices[count] = IoSlice::new(rest);
                count += 1;
            }
        }
        let written = sys::write(call, file, &slices[..count], (offset + done) as u64)?;
        // A short write (memory has run out) is continued at a whole word.
        if written < WORD {
            return Err(Error::System { call, error: Errno::NOSPC.into() });
        }
        done += written - written % WORD;
    }
    Ok(())
}

const fn traps() -> [u8; TRAPS_LEN] {
    let mut bytes = [0; TRAPS_LEN];
    let mut at = 0;
    while at < TRAPS_LEN {
        bytes[at] = arch::TRAP[at % arch::TRAP.len()];
        at += 1;
    }
    bytes
}
