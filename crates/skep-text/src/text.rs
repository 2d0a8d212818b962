//! Code being written and code that runs.
//!
//! A draft is ordinary memory that knows where it will be executed; nothing can run it. Finalizing takes the draft, so
//! it cannot be written any more, and copies it all at once. There is no way from a text back to a draft; a poke
//! (`poke.rs`) replaces a few bytes of it.

use std::fmt;
use std::ops::Range;

use crate::arch;
use crate::error::Error;
use crate::fault::{Probe, Probes};
use crate::place::Place;
use crate::seen;

/// Code being written: ordinary memory, with a place reserved for it in the arena.
///
/// It starts out filled with traps. Dropping it gives the place back.
pub struct Draft {
    place: Place,
    /// Made when somebody looks at it first.
    staging: Vec<u8>,
    /// Apart, because most drafts have none of it, and drafts are moved about.
    extra: Option<Box<Extra>>,
}

/// What a draft may have besides code.
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

    /// The address that the first byte will be executed at: compute everything relative to the program counter from
    /// this, not from where [`bytes_mut`](Self::bytes_mut) lies. A multiple of 32, and of what
    /// [`Arena::draft_aligned`](crate::Arena::draft_aligned) was asked for.
    pub fn address(&self) -> usize {
        self.place.address()
    }

    /// Bytes of the draft.
    #[expect(clippy::len_without_is_empty, reason = "a draft is never empty")]
    pub fn len(&self) -> usize {
        self.place.len()
    }

    /// The bytes, to write the code into. What is not written is traps.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.place.len();
        if self.staging.is_empty() {
            self.staging = arch::traps(len);
        }
        &mut self.staging[..len]
    }

    /// Keeps the first `len` bytes and gives the rest of the place back at once, for whoever asked for the most that
    /// the code could need. The address stays. (A draft longer than a pack keeps its pages.) Does nothing when the
    /// draft is not longer than that.
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

    /// Names the text for profilers and debuggers; without a name it is called `skep_text_` and its address. Worth
    /// making up only where [`Arena::is_seen`](crate::Arena::is_seen).
    ///
    /// White space and control characters become underscores, and what is longer than 255 bytes is cut.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.extra().name = seen::clean_name(name.into());
    }

    /// Declares that an instruction may fault: then its register becomes 0 and the code goes on at
    /// [`Probe::resume`]. All other registers and the flags stay. Offsets count from the start of the draft, and are
    /// checked again when it is finalized.
    ///
    /// Whatever makes the load fail is covered: no memory, memory that may not be read, the end of a mapped file
    /// (SIGBUS), an address that is not canonical. A load that does not fail costs nothing; a fault costs a signal,
    /// some microseconds. The thread must not block SIGSEGV and SIGBUS, or the kernel ends the process instead
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
        self.place.shared().faults.allow_probes()?;
        let len = self.place.len();
        self.extra().probes.add(probe, len)
    }

    /// Copies the draft to its place and makes it code. All or nothing: after an error the place is given back.
    ///
    /// Any thread that learns the text's address from this one afterwards, through a lock, a channel or an
    /// acquiring load, may run it.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a forked child; [`Error::System`] when the memory could not be written (not with
    /// [`Backing::Memfd`](crate::Backing::Memfd)) or other CPUs could not be synchronised (aarch64 only);
    /// [`Error::Probe`] when a probe is outside of what was left of the draft, or was declared twice.
    pub fn finalize(self) -> Result<Text, Error> {
        let mut draft = [self];
        Self::write(&mut draft)?;
        let [draft] = draft;
        Ok(draft.publish())
    }

    /// Finalizes several drafts, of one arena or more, at once: the functions of one program, which were placed before
    /// any of them was encoded. One pass over the caches and at most one synchronisation of other CPUs for all of
    /// them. All or nothing: after an error every place is given back.
    ///
    /// # Errors
    ///
    /// As [`finalize`](Self::finalize).
    pub fn finalize_all(drafts: impl IntoIterator<Item = Self>) -> Result<Vec<Text>, Error> {
        let mut drafts: Vec<Self> = drafts.into_iter().collect();
        Self::write(&mut drafts)?;
        Ok(drafts.into_iter().map(Self::publish).collect())
    }

    /// Copies all of them to their places, where they could be run from then on.
    fn write(drafts: &mut [Self]) -> Result<(), Error> {
        for draft in &mut *drafts {
            let len = draft.place.len();
            draft.bytes_mut();
            draft.place.write(&draft.staging[..len])?;
        }
        arch::publish(drafts.iter().map(|draft| draft.place.view()));
        // After the caches are right, not before: a CPU must fetch afresh from them.
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

/// Finalized code. It can be run as long as this handle lives, and by readers that were inside when it was dropped.
///
/// Dropping the handle retires the text, without waiting for anybody: when every read section of the arena's domain
/// that was open then has ended, its place is filled with traps, and its chunks are free for other code.
///
/// # Running it
///
/// Turning [`address`](Self::address) into a function and calling it is `unsafe`, and whoever does it promises that
///
/// - the bytes are code for this machine that keeps the calling convention of the function type, and
/// - until the last call has returned, on every thread, the handle lives; or the calling thread is in a read section
///   of [`Arena::domain`](crate::Arena::domain) that it entered before it learnt the address from where the handle's
///   owner publishes it, and from where the owner takes it away before dropping the handle.
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
