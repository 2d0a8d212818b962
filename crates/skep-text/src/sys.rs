//! The system calls of code memory, each named by its purpose.
//!
//! The problem: code memory needs some twenty system calls, each of which a sandbox, a limit or an old kernel
//! can refuse; and a refusal in the middle of an operation must be undone without a trace. That can be tested only
//! if every call can be made to fail.
//!
//! Protocol: packs and ranges call the system only through this file. Every function takes the [`SystemCall`] it is
//! used for and returns an [`Error`] that names it; in this crate's own tests each first asks `inject` whether to
//! fail instead.
//!
//! Addresses are plain numbers here: the callers know what is at them, and give every safety guarantee.
//!
//! What would break it: a call made elsewhere, which no test would ever see fail.

use std::ffi::{CStr, c_int, c_void};
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::{Errno, Result as SystemResult};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::thread::{MembarrierCommand, membarrier as membarrier_call};
use rustix::{fs, io, mm};

use crate::error::{During, Error, SystemCall};

#[cfg(test)]
pub(crate) mod inject;

/// madvise(2), MADV_COLLAPSE, since Linux 6.1.
const MADV_COLLAPSE: c_int = 25;

/// mseal(2), since Linux 6.10; the same number on every architecture.
const SYS_MSEAL: libc::c_long = 462;

/// Makes one call, or fails as injected.
fn attempt<T>(call: SystemCall, make: impl FnOnce() -> SystemResult<T>) -> Result<T, Error> {
    #[cfg(test)]
    if let Some(errno) = inject::failure(call) {
        return Err(errno).during(call);
    }
    make().during(call)
}

/// Maps memory: of `file` from its beginning, or anonymous.
///
/// # Safety
///
/// With MAP_FIXED, the `len` bytes from `at` on belong to the caller and are unused.
pub(crate) unsafe fn map(
    call: SystemCall,
    at: usize,
    len: usize,
    protection: ProtFlags,
    flags: MapFlags,
    file: Option<&OwnedFd>,
) -> Result<usize, Error> {
    let at = ptr::without_provenance_mut(at);
    attempt(call, || {
        // SAFETY: guaranteed by the caller if the address is fixed; otherwise the kernel chooses free addresses.
        let mapped = unsafe {
            match file {
                Some(file) => mm::mmap(at, len, protection, flags, file, 0),
                None => mm::mmap_anonymous(at, len, protection, flags),
            }
        };
        mapped.map(|at| at.expose_provenance())
    })
}

/// Unmaps `range`.
///
/// # Safety
///
/// The range belongs to the caller and is unused.
pub(crate) unsafe fn unmap(call: SystemCall, range: &Range<usize>) -> Result<(), Error> {
    // SAFETY: the caller's.
    attempt(call, || unsafe { mm::munmap(pointer(range), range.len()) })
}

/// Changes the protection of `range`.
///
/// # Safety
///
/// The range is the caller's, and no code relies on the memory that is taken away.
pub(crate) unsafe fn protect(
    call: SystemCall,
    range: &Range<usize>,
    flags: MprotectFlags,
) -> Result<(), Error> {
    // SAFETY: the caller's.
    attempt(call, || unsafe { mm::mprotect(pointer(range), range.len(), flags) })
}

/// Gives `advice` about `range`.
///
/// # Safety
///
/// The range is the caller's, and no code relies on the contents that the advice lets the kernel discard.
pub(crate) unsafe fn advise(call: SystemCall, range: &Range<usize>, advice: Advice) -> Result<(), Error> {
    // SAFETY: the caller's.
    attempt(call, || again(|| unsafe { mm::madvise(pointer(range), range.len(), advice) }))
}

/// Moves the memory of `range` into huge pages. Its contents stay as they are and can be used all the while.
pub(crate) fn collapse(call: SystemCall, range: &Range<usize>) -> Result<(), Error> {
    attempt(call, || {
        // SAFETY: collapsing changes no byte and no protection (madvise(2)); addresses that are not mapped are an
        // error.
        again(|| from_libc(unsafe { libc::madvise(pointer(range), range.len(), MADV_COLLAPSE) }))
    })
}

/// Forbids, for the rest of the process, that `range` is unmapped, moved, mapped over or protected differently.
pub(crate) fn seal_mapping(call: SystemCall, range: &Range<usize>) -> Result<(), Error> {
    let flags: libc::c_ulong = 0;
    attempt(call, || {
        // SAFETY: three integers; it changes what may be done with the mapping later, not the mapping.
        let done = unsafe { libc::syscall(SYS_MSEAL, range.start, range.len(), flags) };
        from_libc(done as c_int)
    })
}

/// Creates a memory file.
pub(crate) fn memfd(call: SystemCall, name: &CStr, flags: MemfdFlags) -> Result<OwnedFd, Error> {
    attempt(call, || fs::memfd_create(name, flags))
}

/// Opens `path`; the descriptor is closed by `exec`.
pub(crate) fn open(call: SystemCall, path: &str, flags: OFlags) -> Result<OwnedFd, Error> {
    attempt(call, || fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()))
}

/// Gives a memory file its length.
pub(crate) fn set_len(call: SystemCall, file: &OwnedFd, len: usize) -> Result<(), Error> {
    attempt(call, || {
        // Beyond RLIMIT_FSIZE the kernel not only refuses but sends SIGXFSZ too, and that ends the process.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < len as u64) {
            return Err(Errno::FBIG);
        }
        fs::ftruncate(file, len as u64)
    })
}

/// Seals a memory file.
pub(crate) fn seal_file(call: SystemCall, file: &OwnedFd, seals: SealFlags) -> Result<(), Error> {
    attempt(call, || fs::fcntl_add_seals(file, seals))
}

/// Lets the memory of a part of a memory file go; the part reads as zeroes after.
pub(crate) fn punch_hole(call: SystemCall, file: &OwnedFd, part: Range<usize>) -> Result<(), Error> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    attempt(call, || fs::fallocate(file, flags, part.start as u64, part.len() as u64))
}

/// Writes `parts` one after the other from `offset` on. May write less, and says how much.
pub(crate) fn write(
    call: SystemCall,
    file: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    offset: u64,
) -> Result<usize, Error> {
    attempt(call, || {
        again(|| match parts {
            // The plain call is the cheaper one.
            [part] => io::pwrite(file.as_fd(), part, offset),
            parts => io::pwritev(file.as_fd(), parts, offset),
        })
    })
}

/// The text of a file of /proc.
pub(crate) fn read(call: SystemCall, path: &str) -> Result<String, Error> {
    attempt(call, || {
        std::fs::read_to_string(path)
            .map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
    })
}

/// membarrier(2).
pub(crate) fn membarrier(call: SystemCall, command: MembarrierCommand) -> Result<(), Error> {
    attempt(call, || membarrier_call(command))
}

/// A number that no other process can know. Early at boot there may be no random numbers; any number is better than
/// waiting.
pub(crate) fn random() -> usize {
    let mut bytes = [0; 8];
    let _ = getrandom(&mut bytes, GetRandomFlags::NONBLOCK);
    usize::from_ne_bytes(bytes)
}

fn pointer(range: &Range<usize>) -> *mut c_void {
    ptr::without_provenance_mut(range.start)
}

/// Makes a call again as long as signals interrupt it.
fn again<T>(mut call: impl FnMut() -> SystemResult<T>) -> SystemResult<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn from_libc(done: c_int) -> SystemResult<()> {
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
