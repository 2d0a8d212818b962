//! The writable view of a pack: the only place in the process through which its code can be written.
//!
//! ```text
//!   |guard ...|  rw-s, as long as the pack  |... guard|      at a random place, far from the executable view
//!             ^ a multiple of 2 MiB
//! ```
//!
//! Protocol of creation: inaccessible, hidden from children, only then writable; so a fork in between gives the
//! child no access.
//!
//! What would break it: disclosing its address.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::param::page_size;

use crate::error::{Error, SystemCall};
use crate::range;
use crate::sizes::PACK_BYTES;
use crate::sys;

pub(super) struct Alias {
    view: Range<usize>,
    /// The view with the guards around it.
    whole: Range<usize>,
}

impl Alias {
    /// Maps `file` writable, far from `executable`.
    pub(super) fn new(file: &OwnedFd, len: usize, executable: usize) -> Result<Self, Error> {
        let room = len.next_multiple_of(PACK_BYTES) + 2 * PACK_BYTES;
        let hint = random_hint(executable);
        let whole = range::reserve(SystemCall::MapWritable, hint, room, MapFlags::empty())?;
        // The same offset within a huge page as the executable view, which a huge page in both views requires.
        let start = (whole.start + page_size()).next_multiple_of(PACK_BYTES);
        // From here on its drop unmaps it.
        let alias = Self { view: start..start + len, whole };

        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: inside the reservation made above, which no other code has.
        unsafe { sys::map(SystemCall::MapWritable, start, len, ProtFlags::empty(), flags, Some(file)) }?;
        // SAFETY: the mapping made on the line before.
        unsafe { sys::advise(SystemCall::HideFromChildren, &alias.view, Advice::LinuxDontFork) }?;
        // A huge page would commit memory that is not needed; promotion makes one. Kernels without huge pages refuse
        // this.
        // SAFETY: as above.
        let _ = unsafe { sys::advise(SystemCall::AdvisePages, &alias.view, Advice::LinuxNoHugepage) };
        let protection = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: as above.
        unsafe { sys::protect(SystemCall::MapWritable, &alias.view, protection) }?;
        Ok(alias)
    }

    /// Commits memory for a part of the file: returns an error if there is none, instead of a signal at the first
    /// store.
    pub(super) fn populate(&self, part: &Range<usize>) -> Result<(), Error> {
        let part = self.view.start + part.start..self.view.start + part.end;
        // SAFETY: inside our own view; populating changes no byte.
        unsafe { sys::advise(SystemCall::AllocateFile, &part, Advice::LinuxPopulateWrite) }
    }

    pub(super) fn view(&self) -> &Range<usize> {
        &self.view
    }
}

impl Drop for Alias {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and the pack that goes with it has no users left.
        if unsafe { sys::unmap(SystemCall::ReturnMemory, &self.whole) }.is_err() {
            // Then release at least the memory; only addresses leak.
            // SAFETY: as above.
            let _ = unsafe { range::reserve_again(&self.whole) };
        }
    }
}

/// A random address, far from `place`; the kernel chooses another if it is occupied or does not exist on this
/// machine.
fn random_hint(place: usize) -> usize {
    let hint = (sys::random() & ((1 << 46) - 1)).next_multiple_of(PACK_BYTES);
    if hint.abs_diff(place) > 1 << 40 { hint } else { hint ^ 1 << 45 }
}
