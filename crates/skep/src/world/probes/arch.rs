//! Where registers are in the structure that a probe shows, in words.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(target_arch = "aarch64"))]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::{ADDRESS, ARGUMENTS, RESULT, WORDS};
#[cfg(not(target_arch = "aarch64"))]
pub(super) use x86_64::{ADDRESS, ARGUMENTS, RESULT, WORDS};
