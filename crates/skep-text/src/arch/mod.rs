//! The port boundary: everything about code memory that depends on the machine.
//!
//! Each file has the same items in the same order; nothing outside this folder names an architecture.

/// The two views of some code: where its caches are cleaned by, and where it is executed.
#[derive(Clone, Copy)]
#[cfg_attr(target_arch = "x86_64", expect(dead_code, reason = "its caches are coherent"))]
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
pub(crate) use x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("skep-text knows x86-64 and aarch64; add a file to src/arch for another architecture");
