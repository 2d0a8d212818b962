//! The port boundary: everything about code memory that depends on the machine.
//!
//! Each architecture has a folder of files with the same items in the same order; no code outside of this module
//! names one. Cache maintenance goes through [`publish`] here, so that this crate's own tests can record it
//! (`recorder`), because on a machine with coherent caches its absence has no effect, and can omit parts of it
//! (`defect`).

mod gdb;

#[cfg(test)]
pub(crate) mod defect;
#[cfg(test)]
pub(crate) mod recorder;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as machine;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use self::aarch64 as machine;

pub(crate) use self::gdb::{gdb_descriptor, gdb_notify};
pub(crate) use self::machine::cache::NEEDS_SYNC_CORE;
pub(crate) use self::machine::*;

/// The two views of some code: one for cleaning caches, one for execution.
#[derive(Clone, Copy)]
#[cfg_attr(all(target_arch = "x86_64", not(test)), expect(dead_code, reason = "its caches are coherent"))]
pub(crate) struct View {
    /// The address through which the first byte was stored, or may be read.
    pub(crate) clean: *const u8,
    /// The address at which it is executed.
    pub(crate) executable: *const u8,
    /// Length in bytes.
    pub(crate) len: usize,
}

/// Makes stored bytes executable code: once for all `views`, after the last store.
pub(crate) fn publish(views: impl Iterator<Item = View> + Clone) {
    #[cfg(test)]
    recorder::note(views.clone());
    machine::cache::clean(views.clone());
    #[cfg(test)]
    let views = views.filter_map(defect::invalidated);
    machine::cache::invalidate(views);
}

/// `len` bytes of traps; on a machine with longer traps, rounded up to whole traps.
pub(crate) fn traps(len: usize) -> Vec<u8> {
    TRAP.repeat(len.div_ceil(TRAP.len()))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("skep-text knows x86-64 and aarch64; add a folder to src/arch for another architecture");
