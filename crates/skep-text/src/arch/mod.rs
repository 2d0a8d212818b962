//! The port boundary: everything about code memory that depends on the machine.
//!
//! Each file has the same items in the same order; nothing outside this folder names an architecture.

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
