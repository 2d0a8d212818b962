//! Telling a forked child from its parent, for the price of one load.
//!
//! The writable views of code memory are not copied into children (MADV_DONTFORK), so a child that filled a
//! text with traps, as dropping one does, would write through an address where nothing, or something else, is
//! mapped. The bookkeeping is copied, though, and looks alive.
//!
//! So the parent sets one byte in a page that the kernel wipes in children (MADV_WIPEONFORK). Whoever is about
//! to use a writable view asks [`Witness::is_original`] first. A grandchild made by `vfork` or `CLONE_VM` shares
//! the parent's memory, page and views alike, and is rightly taken for the original.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::error::{During, Error, Step};

pub(crate) struct Witness {
    page: NonNull<AtomicU8>,
}

// SAFETY: the page is ours until drop, and only an atomic in it is touched.
unsafe impl Send for Witness {}
// SAFETY: as above.
unsafe impl Sync for Witness {}

impl Witness {
    pub(crate) fn new() -> Result<Self, Error> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nobody.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), page_size(), protection, MapFlags::PRIVATE) }
            .during(Step::WatchForks)?;
        // The kernel never places a mapping at address 0 unasked.
        let page = NonNull::new(page.cast::<AtomicU8>())
            .ok_or(Error::System { step: Step::WatchForks, error: rustix::io::Errno::INVAL.into() })?;
        let witness = Self { page };
        // SAFETY: the page is ours.
        unsafe { madvise(page.as_ptr().cast(), page_size(), Advice::LinuxWipeOnFork) }
            .during(Step::WatchForks)?;
        witness.byte().store(1, Ordering::Relaxed);
        Ok(witness)
    }

    /// Whether this process made the witness, rather than having inherited it.
    pub(crate) fn is_original(&self) -> bool {
        // Relaxed, as the store in `new`: a witness reaches other threads through the arena it is part of, and
        // nothing but the kernel, which stops the process for it, ever changes the byte again.
        self.byte().load(Ordering::Relaxed) == 1
    }

    fn byte(&self) -> &AtomicU8 {
        // SAFETY: mapped readable and writable until drop, zeroed by the kernel to begin with.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: our own page, and nobody can ask any more. A failure leaks one page.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), page_size()) };
    }
}
