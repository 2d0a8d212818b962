//! The port boundary: the register with a thread's rights, and the instructions that write it.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;

/// The offset of the first bytes in this code that are an instruction which may give a thread rights for guarded
/// memory, whether or not an instruction begins there. None on processors where memory cannot be guarded.
///
/// A runtime refuses code that has some: a jump into the middle of an instruction would reach them. The host's own code
/// has such instructions, here for one.
pub fn opens(code: &[u8]) -> Option<usize> {
    (0..code.len()).find(|at| begins_an_opening(&code[*at..]))
}
