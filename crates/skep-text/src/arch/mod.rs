//! The port boundary: everything about code memory that depends on the machine.
//!
//! Each file has the same items in the same order; nothing outside this folder names an architecture. What must be done
//! for the caches goes through [`publish`] here, where this crate's own tests can listen (`recorder`): on a machine whose
//! caches are coherent nothing else would tell that it is done at all.

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

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as machine;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use self::aarch64 as machine;

pub(crate) use self::machine::*;

#[cfg(test)]
pub(crate) mod recorder;

/// Makes what was stored the code that is executed: once for all `views`, after the last store.
pub(crate) fn publish(views: impl Iterator<Item = View> + Clone) {
    #[cfg(test)]
    recorder::note(views.clone());
    machine::publish(views);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("skep-text knows x86-64 and aarch64; add a file to src/arch for another architecture");
