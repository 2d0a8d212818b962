//! The memory file of a pack.
//!
//! It has its full length from the beginning and no memory: pages are committed when populated. There are two
//! descriptors: the one it was created with, which can write, and one opened read-only. A mapping of the latter can
//! never be made writable (mmap(2): a shared mapping has at most its descriptor's rights).
//!
//! What would break it: an executable view of the first descriptor.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::io::Errno;

use crate::error::{Error, SystemCall};
use crate::sys;

pub(super) struct Files {
    pub(super) writing: OwnedFd,
    pub(super) reading: OwnedFd,
}

impl Files {
    /// Creates a file of `len` bytes without memory.
    pub(super) fn create(name: &CStr, len: usize) -> Result<Self, Error> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // NOEXEC_SEAL says that the *file* is never executed as a program; mapping it executable stays allowed, under
        // every setting of vm.memfd_noexec. Linux before 6.3 does not know it.
        let writing = match sys::memfd(SystemCall::CreateFile, name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(error) if error.errno() == Some(Errno::INVAL) => {
                sys::memfd(SystemCall::CreateFile, name, flags)
            }
            result => result,
        }?;
        sys::set_len(SystemCall::SizeFile, &writing, len)?;
        let path = format!("/proc/self/fd/{}", writing.as_raw_fd());
        let reading = sys::open(SystemCall::ReopenFile, &path, OFlags::RDONLY)?;
        Ok(Self { writing, reading })
    }

    /// Forbids resizing the file and changing its seals; with FUTURE_WRITE among `more`, also every write except
    /// through existing mappings.
    pub(super) fn seal(&self, more: SealFlags) -> Result<(), Error> {
        let seals = more | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        sys::seal_file(SystemCall::SealFile, &self.writing, seals)
    }
}
