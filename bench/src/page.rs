//! Code in a mapping of its own, as a JIT without packs places it: mapped, copied, made executable.

use crate::Result;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr;

/// Whole pages; unmapped when dropped.
pub(crate) struct Page {
    base: *mut c_void,
    pub(crate) len: usize,
}

impl Page {
    /// The code begins `at` bytes into the mapping.
    pub(crate) fn new(code: &[u8], at: usize) -> Result<Self> {
        let len = (at + code.len()).next_multiple_of(rustix::param::page_size());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) }
            .map_err(|error| format!("mmap of a page: {error}"))?;
        let page = Self { base, len };
        // SAFETY: the mapping is `len` bytes long, which has room for the code at `at`; it is new, and nothing else
        // refers to it.
        unsafe {
            ptr::copy_nonoverlapping(code.as_ptr(), base.cast::<u8>().add(at), code.len());
            mprotect(base, len, MprotectFlags::READ | MprotectFlags::EXEC)
        }
        .map_err(|error| format!("mprotect of a page: {error}"))?;
        Ok(page)
    }

    pub(crate) fn address(&self) -> usize {
        self.base as usize
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; code that calls into it keeps the value (`pack::layout::Placed`).
        let _ = unsafe { munmap(self.base, self.len) };
    }
}
