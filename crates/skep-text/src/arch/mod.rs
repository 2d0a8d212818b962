//! The port boundary: everything about code memory that depends on the machine.
//!
//! Each architecture has a folder of files with the same items in the same order; nothing outside of here names one.
//! What must be done for the caches goes through [`publish`] here, where this crate's own tests can listen (`recorder`):
//! on a machine whose caches are coherent nothing else would tell that it is done at all; and where they can have it
//! done wrong (`broken`).

mod gdb;

#[cfg(test)]
pub(crate) mod broken;
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

/// The two views of some code: where its caches are cleaned by, and where it is executed.
#[derive(Clone, Copy)]
#[cfg_attr(all(target_arch = "x86_64", not(test)), expect(dead_code, reason = "its caches are coherent"))]
pub(crate) struct View {
    /// An address of the first byte through which it was stored, or may be read.
    pub(crate) clean: *const u8,
    /// The address at which it is executed.
    pub(crate) executable: *const u8,
    /// Bytes.
    pub(crate) len: usize,
}

/// Makes what was stored the code that is executed: once for all `views`, after the last store.
pub(crate) fn publish(views: impl Iterator<Item = View> + Clone) {
    #[cfg(test)]
    recorder::note(views.clone());
    machine::cache::clean(views.clone());
    #[cfg(test)]
    let views = views.filter_map(broken::invalidated);
    machine::cache::invalidate(views);
}

/// So many bytes of traps; on a machine with longer traps, up to the end of the last.
pub(crate) fn traps(len: usize) -> Vec<u8> {
    TRAP.repeat(len.div_ceil(TRAP.len()))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("skep-text knows x86-64 and aarch64; add a folder to src/arch for another architecture");
