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
use crate::fault::{Entered, Probe, Probes};
use crate::place::Place;

/// Code being written: ordinary memory, with a place reserved for it in the arena.
///
/// It starts out filled with traps. Dropping it gives the place back.
pub struct Draft {
    place: Place,
    staging: Box<[u8]>,
    probes: Probes,
}

impl Draft {
    pub(crate) fn new(place: Place) -> Self {
        let staging = arch::TRAP.repeat(place.len().div_ceil(arch::TRAP.len()));
        Self { place, staging: staging.into_boxed_slice(), probes: Probes::default() }
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

    /// Declares that an instruction may fault: then its register becomes 0 and the code goes on at
    /// [`Probe::resume`]. All other registers and the flags stay. Offsets count from the start of the draft, and are
    /// checked again when it is finalized.
    ///
    /// Whatever makes the load fail is covered: no memory, memory that may not be read, the end of a mapped file
    /// (SIGBUS), an address that is not canonical. A load that does not fail costs nothing; a fault costs a signal,
    /// about a microsecond. The thread must not block SIGSEGV and SIGBUS, or the kernel ends the process instead
    /// (signal(7)). The first text with probes installs a handler in the process:
    /// [`Config::fault_handler`](crate::Config::fault_handler).
    ///
    /// # Errors
    ///
    /// [`Error::ProbesForbidden`] when the arena was made without a fault handler; [`Error::Probe`] when the probe
    /// is outside the draft, or its register cannot be zeroed.
    ///
    /// # Example
    ///
    /// Reading through a null pointer:
    ///
    /// ```
    /// use skep_text::{Arena, Config, Probe};
    ///
    /// # fn main() -> Result<(), skep_text::Error> {
    /// let (code, resume): (&[u8], usize) = if cfg!(target_arch = "x86_64") {
    ///     (&[0x48, 0x8b, 0x07, 0xc3], 3) // mov rax, [rdi]; ret
    /// } else {
    ///     (&[0x00, 0x00, 0x40, 0xf9, 0xc0, 0x03, 0x5f, 0xd6], 4) // ldr x0, [x0]; ret
    /// };
    /// let arena = Arena::new(Config::new())?;
    /// let mut draft = arena.draft(code.len())?;
    /// draft.bytes_mut().copy_from_slice(code);
    /// draft.probe(Probe { at: 0, resume, register: Some(0) })?; // rax, x0
    /// let text = draft.finalize()?;
    ///
    /// // SAFETY: the bytes are a function of this type, which reads nothing but through its probe.
    /// let read = unsafe { std::mem::transmute::<*const u8, extern "C" fn(*const u64) -> u64>(text.as_ptr()) };
    /// assert_eq!(read(&7), 7);
    /// assert_eq!(read(std::ptr::null()), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn probe(&mut self, probe: Probe) -> Result<(), Error> {
        self.place.faults().allow_probes()?;
        self.probes.add(probe, self.place.len())
    }

    /// Copies the draft to its place and makes it code. All or nothing: after an error the place is given back.
    ///
    /// Any thread that learns the text's address from this one afterwards, through a lock, a channel or an
    /// acquiring load, may run it.
    ///
    /// # Errors
    ///
    /// [`Error::Probe`] when a probe is outside of what was left of the draft, or was declared twice;
    /// [`Error::Forked`] in a forked child; [`Error::System`] when other CPUs could not be synchronised (aarch64 only).
    pub fn finalize(self) -> Result<Text, Error> {
        let Self { mut place, staging, probes } = self;
        let len = place.len();
        let entered = place.faults().enter(place.address()..place.address() + len, probes)?;
        place.write(&staging[..len])?;
        Ok(Text { _entered: entered, place })
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
    /// Dropped before the place is free for others.
    _entered: Option<Entered>,
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
