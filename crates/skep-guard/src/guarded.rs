//! A value in guarded memory.

use crate::error::Error;
use crate::key::{Key, Opened, of_process};
use crate::pages::Pages;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// A value in pages of its own, which threads can access only within [`Guarded::open`].
///
/// Only the value's own bytes are there. What it points to is not: guard arrays and structures, not a `Vec`. Bytes that
/// were copied out of it, into registers or onto the stack, are as open as ever; and so is where it was before.
///
/// System calls have the rights of the thread that makes them: read(2) into guarded memory is done within the closure.
pub struct Guarded<T> {
    pages: Pages,
    key: Key,
    _value: PhantomData<T>,
}

// SAFETY: it owns the value, as a Box does; rights for the pages are taken by each thread for itself.
unsafe impl<T: Send> Send for Guarded<T> {}
// SAFETY: as above; `open` gives what a `&T` gives.
unsafe impl<T: Sync> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    const FITS: () = assert!(align_of::<T>() <= 4096, "guarded values are aligned to pages at most");

    /// Moves a value into guarded memory.
    ///
    /// # Errors
    ///
    /// [`Error::NotSupported`] and [`Error::NoKeyLeft`] where memory cannot be guarded; [`Error::Memory`]. The value is
    /// dropped then.
    pub fn new(value: T) -> Result<Self, Error> {
        let () = Self::FITS;
        let key = of_process()?;
        let pages = Pages::new(size_of::<T>())?;
        // The value comes last: what fails before has nothing to undo.
        pages.protect(key)?;
        let guarded = ManuallyDrop::new(Self { pages, key, _value: PhantomData });
        let opened = Opened::new(key);
        // SAFETY: the pages are large enough, aligned enough, nobody else's, and open to this thread.
        unsafe { guarded.address().write(value) };
        drop(opened);
        Ok(ManuallyDrop::into_inner(guarded))
    }

    /// Gives the closure the value. Guarded memory, all of it, is open to this thread until the closure ends, also by a
    /// panic; runs of programs of a runtime that guards memory, and signal handlers, have it closed even then.
    pub fn open<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        let _opened = Opened::new(self.key);
        // SAFETY: the value was written when this was made, and it is open to this thread. The reference does not leave
        // the closure.
        read(unsafe { &*self.address() })
    }

    /// As [`Guarded::open`], to change the value.
    pub fn open_mut<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let _opened = Opened::new(self.key);
        // SAFETY: as above, and `self` is borrowed mutably.
        change(unsafe { &mut *self.address() })
    }

    /// Where the value is. An access outside of [`Guarded::open`] faults: SIGSEGV with the code `SEGV_PKUERR`.
    pub fn address(&self) -> *mut T {
        self.pages.start().as_ptr().cast()
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let _opened = Opened::new(self.key);
        // SAFETY: the value is there, and is not used afterwards.
        unsafe { self.address().drop_in_place() };
    }
}

impl<T> fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("address", &self.address()).finish_non_exhaustive()
    }
}
