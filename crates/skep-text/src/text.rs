//! From bytes to code: the draft that is written, and the text that runs.
//!
//! ```text
//!   Arena::draft ──> Draft ──finalize──> Text ──drop──> traps, chunks free
//!                      └──drop──> chunks free; nothing was ever written to the place
//! ```
//!
//! A draft is ordinary memory that knows where it will be executed; nothing can run it. Finalizing takes the draft, so
//! it cannot be written any more, and copies it all at once. There is no way from a text back to a draft.

use std::fmt;
use std::ops::Range;

use crate::arch;
use crate::error::Error;
use crate::place::Place;
use crate::seen;

/// Code being written: ordinary memory, with a place reserved for it in the arena.
///
/// It starts out filled with traps. Dropping it gives the place back.
pub struct Draft {
    place: Place,
    staging: Box<[u8]>,
    name: Option<String>,
}

impl Draft {
    pub(crate) fn new(place: Place) -> Self {
        let staging = arch::TRAP.repeat(place.len().div_ceil(arch::TRAP.len()));
        Self { place, staging: staging.into_boxed_slice(), name: None }
    }

    /// The address that the first byte will be executed at: compute everything relative to the program counter from
    /// this, not from where [`bytes_mut`](Self::bytes_mut) lies. A multiple of 64.
    pub fn address(&self) -> usize {
        self.place.address()
    }

    /// Bytes of the draft.
    #[expect(clippy::len_without_is_empty, reason = "a draft is never empty")]
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.staging[..self.place.len()]
    }

    /// The bytes, to write the code into.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.staging[..self.place.len()]
    }

    /// Names the text for profilers and debuggers; without a name it is called `skep_text_` and its address. Worth
    /// making up only where [`Arena::is_seen`](crate::Arena::is_seen).
    ///
    /// White space and control characters become underscores, and what is longer than 255 bytes is cut.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.name = seen::clean_name(name.into());
    }

    /// Keeps the first `len` bytes and gives the rest of the place back at once, for whoever asked for the most that
    /// the code could need. The address stays. (A draft longer than a pack keeps its pages.) Does nothing when the draft is not longer than that.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] when `len` is 0: drop the draft instead. [`Error::Forked`] in a forked child.
    pub fn truncate(&mut self, len: usize) -> Result<(), Error> {
        if len == 0 {
            return Err(Error::Empty);
        }
        if len < self.place.len() {
            self.place.shrink(len)?;
        }
        Ok(())
    }

    /// Copies the draft to its place and makes it code. All or nothing: after an error the place is given back.
    ///
    /// Any thread that learns the text's address from this one afterwards, through a lock, a channel or an
    /// acquiring load, may run it.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child; [`Error::System`] when other CPUs could not be synchronised (aarch64 only).
    pub fn finalize(self) -> Result<Text, Error> {
        let Self { mut place, staging, name } = self;
        let len = place.len();
        place.write(&staging[..len])?;
        place.announce(name, &staging[..len]);
        Ok(Text { place })
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft({:#x}, {} bytes)", self.address(), self.len())
    }
}

/// Finalized code. It can be run as long as this handle lives.
///
/// Dropping the handle retires the text: its place is filled with traps, and its chunks are free for other code. In
/// this version that happens at once, on the thread that drops it.
///
/// # Running it
///
/// Turning [`address`](Self::address) into a function and calling it is `unsafe`, and whoever does it promises that
///
/// - the bytes are code for this machine that keeps the calling convention of the function type, and
/// - the handle lives until the last call has returned, on every thread.
pub struct Text {
    place: Place,
}

impl Text {
    /// The address of the first byte. A multiple of 64.
    pub fn address(&self) -> usize {
        self.place.address()
    }

    /// [`address`](Self::address) as a pointer, for `transmute` to a function pointer.
    pub fn as_ptr(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.place.address())
    }

    /// Bytes of code.
    #[expect(clippy::len_without_is_empty, reason = "a text is never empty")]
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// The addresses of the code.
    pub fn range(&self) -> Range<usize> {
        self.address()..self.address() + self.len()
    }

    /// Reads the code back from where it is executed.
    pub fn bytes(&self) -> Vec<u8> {
        self.place.bytes().to_vec()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({:#x}, {} bytes)", self.address(), self.len())
    }
}
