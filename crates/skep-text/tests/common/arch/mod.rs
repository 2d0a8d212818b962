//! Machine code for tests, by architecture: each file has the same items in the same order, and no other test names an
//! architecture. The tests inside the crate share it (`src/tests`).

#![allow(dead_code, reason = "every test file uses its own part of this")]

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use self::aarch64::*;

/// Machine code, and which of its instructions may fault.
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
    pub(crate) probes: Vec<Load>,
}

/// An instruction that may fault.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) at: usize,
    pub(crate) resume: usize,
    pub(crate) register: Option<u8>,
}

/// The result of a trap after [`return_from_trap`].
pub(crate) const TRAPPED: u32 = 0x7a97;

/// Code with one load, of `len` bytes, that zeroes `register` if it faults and resumes after itself.
fn one_load(bytes: Vec<u8>, at: usize, len: usize, register: u8) -> Code {
    Code { bytes, probes: vec![Load { at, resume: at + len, register: Some(register) }] }
}
