//! Pages of their own with the key of the process.

use crate::error::Error;
use crate::key::Key;
use std::io;
use std::ptr::NonNull;

/// Pages that nothing else is in.
#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

impl Pages {
    /// Pages for so many bytes, zeroed, and not protected yet.
    pub(crate) fn new(bytes: usize) -> Result<Self, Error> {
        let failed = |source| Error::Memory { call: "mmap", bytes, source };
        let out_of_memory = || failed(io::Error::from_raw_os_error(libc::ENOMEM));
        let len = bytes.max(1).checked_next_multiple_of(page_size()).ok_or_else(out_of_memory)?;
        // SAFETY: no address is given, so nothing that is mapped is touched.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        let start = NonNull::new(start.cast()).ok_or_else(out_of_memory)?;
        Ok(Self { start, len })
    }

    /// Gives them the key, and leaves them out of core dumps.
    pub(crate) fn protect(&self, key: Key) -> Result<(), Error> {
        let failed = |call| Error::Memory { call, bytes: self.len, source: io::Error::last_os_error() };
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as libc::c_ulong;
        let key = libc::c_ulong::from(key.number());
        // SAFETY: the pages are this value's own; their contents stay.
        let status =
            unsafe { libc::syscall(libc::SYS_pkey_mprotect, self.start.as_ptr(), self.len, protection, key) };
        if status != 0 {
            return Err(failed("pkey_mprotect"));
        }
        // SAFETY: as above.
        match unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_DONTDUMP) } {
            0 => Ok(()),
            _ => Err(failed("madvise")),
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are this value's own, and nobody borrows it any more. The kernel needs no rights for them.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

pub(crate) fn page_size() -> usize {
    // SAFETY: a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
