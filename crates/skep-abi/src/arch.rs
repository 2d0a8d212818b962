//! What program contexts take from the architecture. Host and programs share one architecture.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use self::aarch64::*;

#[cfg(not(target_arch = "aarch64"))]
mod x86_64;
#[cfg(not(target_arch = "aarch64"))]
pub(crate) use self::x86_64::*;
