//! Code that is written, and code that runs.
//!
//! A draft is ordinary memory that knows the address at which it will be executed; it cannot run. Finalizing
//! consumes the draft, so that it cannot be written any more, and copies it as a whole. A text never becomes a draft
//! again; a poke (`poke.rs`) replaces a few of its bytes.

use std::fmt;
use std::ops::Range;

use crate::arch;
use crate::error::Error;
use crate::fault::{Probe, Probes};
use crate::place::Place;
use crate::seen;

/// Code that is being written: ordinary memory, with an address reserved for it in the arena.
///
/// Initially filled with traps. Dropping the draft frees its place.
pub struct Draft {
    place: Place,
    /// Allocated at the first access.
    staging: Vec<u8>,
    /// Boxed, because most drafts have neither, and drafts are moved often.
    extra: Option<Box<Extra>>,
}

/// Optional parts of a draft besides its code.
#[derive(Default)]
struct Extra {
    name: Option<String>,
    probes: Probes,
}

impl Draft {
    #[inline]
    pub(crate) fn new(place: Place) -> Self {
        Self { place, staging: Vec::new(), extra: None }
    }

    /// The address at which the first byte will be executed. Compute program-counter-relative operands from it, not
    /// from the address of [`bytes_mut`](Self::bytes_mut). A multiple of 32, and of the alignment passed to
    /// [`Arena::draft_aligned`](crate::Arena::draft_aligned).
    pub fn address(&self) -> usize {
        self.place.address()
    }

    /// Length of the draft in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a draft is never empty")]
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// The bytes, to be overwritten with code. Bytes that are not written remain traps.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.place.len();
        if self.staging.is_empty() {
            self.staging = arch::traps(len);
        }
        &mut self.staging[..len]
    }

    /// Keeps the first `len` bytes and frees the rest at once: for a compiler that requested an upper bound of the
    /// size. The address stays. (A draft longer than a pack keeps its pages.) No effect if the draft has at most
    /// `len` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] if `len` is 0: drop the draft instead. [`Error::Forked`] in a forked child.
    pub fn truncate(&mut self, len: usize) -> Result<(), Error> {
        if len == 0 {
            return Err(Error::Empty);
        }
        if len < self.place.len() {
            self.place.shrink(len)?;
        }
        Ok(())
    }

    /// Names the text for profilers and debuggers; the default is `skep_text_` and its address. Only useful if
    /// [`Arena::is_seen`](crate::Arena::is_seen) is true.
    ///
    /// White space and control characters become underscores, and a name longer than 255 bytes is cut.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.extra().name = seen::clean_name(name.into());
    }

    /// Declares that an instruction may fault. At a fault its register becomes 0 and execution continues at
    /// [`Probe::resume`]; all other registers and the flags stay. Offsets count from the start of the draft, and are
    /// checked again when the draft is finalized.
    ///
    /// Covered are all reasons for which the load fails: no memory, unreadable memory, the end of a mapped file
    /// (SIGBUS), a non-canonical address. A load that succeeds costs nothing extra; a fault costs a signal, some
    /// microseconds. The thread must not block SIGSEGV and SIGBUS, or the kernel ends the process instead
    /// (signal(7)). The first text with probes installs a handler in the process:
    /// [`Config::fault_handler`](crate::Config::fault_handler).
    ///
    /// # Errors
    ///
    /// [`Error::ProbesForbidden`] if the arena was made without a fault handler; [`Error::Probe`] if the probe is
    /// outside the draft, or its register cannot be zeroed.
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
        self.place.shared().faults.allow_probes()?;
        let len = self.place.len();
        self.extra().probes.add(probe, len)
    }

    /// Copies the draft to its place and makes it executable code. All or nothing: after an error the place is
    /// freed.
    ///
    /// A thread that learns the text's address from this thread afterwards, through a lock, a channel or an
    /// acquiring load, may run it.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child; [`Error::System`] if the memory could not be written (not with
    /// [`Backing::Memfd`](crate::Backing::Memfd)) or other CPUs could not be synchronised (aarch64 only);
    /// [`Error::Probe`] if a probe is beyond the end of the draft after a cut, or was declared twice.
    pub fn finalize(self) -> Result<Text, Error> {
        let mut draft = [self];
        Self::write(&mut draft)?;
        let [draft] = draft;
        Ok(draft.publish())
    }

    /// Finalizes several drafts, of one arena or more, such as the functions of one program, which were placed
    /// before any of them was encoded. One pass of cache maintenance and at most one synchronisation of other CPUs
    /// for all of them. All or nothing: after an error every place is freed.
    ///
    /// # Errors
    ///
    /// As [`finalize`](Self::finalize).
    pub fn finalize_all(drafts: impl IntoIterator<Item = Self>) -> Result<Vec<Text>, Error> {
        let mut drafts: Vec<Self> = drafts.into_iter().collect();
        Self::write(&mut drafts)?;
        Ok(drafts.into_iter().map(Self::publish).collect())
    }

    /// Copies all of them to their places, from where they could be run.
    fn write(drafts: &mut [Self]) -> Result<(), Error> {
        for draft in &mut *drafts {
            let len = draft.place.len();
            draft.bytes_mut();
            draft.place.write(&draft.staging[..len])?;
        }
        arch::publish(drafts.iter().map(|draft| draft.place.view()));
        // After the cache maintenance: only then do CPUs that fetch again see the new code.
        if let Some(draft) = drafts.iter().find(|draft| draft.place.needs_sync_core()) {
            draft.place.shared().sync_core.sync()?;
        }
        for draft in drafts {
            if let Some(extra) = &mut draft.extra {
                draft.place.enter_probes(std::mem::take(&mut extra.probes))?;
            }
        }
        Ok(())
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    fn publish(mut self) -> Text {
        let (len, address) = (self.place.len(), self.place.address());
        let seen = &self.place.shared().seen;
        if seen.is_on() {
            let name =
                self.extra.take().and_then(|extra| extra.name).unwrap_or_else(|| seen::default_name(address));
            seen.added(&name, address, &self.staging[..len]);
        }
        self.place.publish();
        Text { place: self.place }
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft({:#x}, {} bytes)", self.address(), self.len())
    }
}

/// Finalized code. It may run as long as this handle lives, and in read sections that were open when it was dropped.
///
/// Dropping the handle retires the text without waiting: after a grace period of the arena's domain its place is
/// filled with traps, and its chunks are free for other code.
///
/// # Running it
///
/// Calling [`address`](Self::address) as a function is `unsafe`. The caller guarantees that
///
/// - the bytes are code for this machine that follows the calling convention of the function type, and
/// - until the last call has returned, on every thread, the handle lives; or the calling thread is in a read section of
///   [`Arena::domain`](crate::Arena::domain), and entered it before it read the address from where the handle's owner
///   publishes it. The owner unpublishes the address before it drops the handle.
pub struct Text {
    place: Place,
}

impl Text {
    /// The address of the first byte. A multiple of 32.
    pub fn address(&self) -> usize {
        self.place.address()
    }

    /// [`address`](Self::address) as a pointer, for `transmute` to a function pointer.
    pub fn as_ptr(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.place.address())
    }

    /// Length of the code in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a text is never empty")]
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// The address range of the code.
    pub fn range(&self) -> Range<usize> {
        self.address()..self.address() + self.len()
    }

    /// The bytes of memory that it occupies: its length in whole chunks of 32 bytes, or whole pages if it is longer
    /// than a pack.
    pub fn occupied(&self) -> usize {
        self.place.occupied()
    }

    /// Keeps a value until the text's memory is free: after the text was dropped and its readers have left. For
    /// accounts of memory. A second value replaces the first. It must not use the arena when it is dropped, which the
    /// thread that reclaims does.
    pub fn keep_until_free(&mut self, kept: impl Send + Sync + 'static) {
        self.place.keep(Box::new(kept));
    }

    /// Reads the code back from where it is executed.
    pub fn bytes(&self) -> Vec<u8> {
        self.place.bytes()
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({:#x}, {} bytes)", self.address(), self.len())
    }
}
