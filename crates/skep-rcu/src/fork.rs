//! Telling a forked child from its parent with one load.
//!
//! A child has a copy of everything except the threads: no keeper runs callbacks, the records of other threads never
//! change again, and locks may be held by threads that do not exist. All of it looks alive.
//!
//! So the parent sets one byte in a page that the kernel wipes in children (MADV_WIPEONFORK, madvise(2)). Code that
//! would wait or use a lock checks [`Witness::is_original`] first. A child made by `vfork` or with `CLONE_VM` shares
//! the parent's memory, this page included, and counts as the original.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::error::Error;

pub(crate) struct Witness {
    page: NonNull<AtomicU8>,
}

// SAFETY: the page is mapped until drop, and only an atomic in it is accessed.
unsafe impl Send for Witness {}
// SAFETY: as above.
unsafe impl Sync for Witness {}

impl Witness {
    pub(crate) fn new() -> Result<Self, Error> {
        let refused = |error: rustix::io::Errno| Error::ForkWitness { errno: error.raw_os_error() };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses, affects no other memory.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), page_size(), protection, MapFlags::PRIVATE) }
            .map_err(refused)?;
        // The kernel never places a mapping at address 0 unless asked.
        let page = NonNull::new(page.cast::<AtomicU8>()).ok_or(refused(rustix::io::Errno::INVAL))?;
        let witness = Self { page };
        // Miri knows neither this advice nor fork(2): there all processes are originals.
        if !cfg!(miri) {
            // SAFETY: the page belongs to this witness.
            unsafe { madvise(page.as_ptr().cast(), page_size(), Advice::LinuxWipeOnFork) }
                .map_err(refused)?;
        }
        witness.byte().store(1, Ordering::Relaxed);
        Ok(witness)
    }

    /// Whether this process made the witness, rather than inheriting it.
    #[inline]
    pub(crate) fn is_original(&self) -> bool {
        // Relaxed, as the store in `new`: a witness reaches other threads through its domain, and after that only the
        // kernel changes the byte, in the child's copy.
        self.byte().load(Ordering::Relaxed) == 1
    }

    #[inline]
    fn byte(&self) -> &AtomicU8 {
        // SAFETY: mapped readable and writable until drop, zeroed by the kernel to begin with.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: the witness's own page, and no other reference to it is left. A failure leaks one page.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), page_size()) };
    }
}
