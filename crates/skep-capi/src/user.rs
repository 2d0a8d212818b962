//! What a callback of the host gets: a pointer, and what frees it.

use std::ffi::c_void;

/// Frees what a callback's context points to: called once, when nothing can call the callback any more, on any thread.
pub type DropFn = Option<unsafe extern "C" fn(*mut c_void)>;

/// The context of a callback.
#[derive(Debug)]
pub(crate) struct User {
    context: *mut c_void,
    drop: DropFn,
}

// SAFETY: the header says that callbacks run on any thread, several at once, and are freed on any thread: the caller's
// promise.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    pub(crate) fn new(context: *mut c_void, drop: DropFn) -> Self {
        Self { context, drop }
    }

    /// A method, so that closures capture all of it.
    pub(crate) fn get(&self) -> *mut c_void {
        self.context
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(free) = self.drop {
            // SAFETY: the caller's promise about both; this is the only call.
            unsafe { free(self.context) };
        }
    }
}
