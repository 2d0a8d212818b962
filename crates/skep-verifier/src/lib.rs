//! Proves that a BPF program is safe to run, or says why not.
//!
//! [`verify`] takes an [`Unverified`] program and returns a [`Verified`] one, which only this crate can make
//! and which alone can be compiled or interpreted; or a [`Refusal`] that names the instruction, the source
//! line, what was expected and what was found.
#![forbid(unsafe_code)]

mod program;
mod refusal;

pub use program::{CallFact, Fact, FunctionFacts, Stats, Unverified, Verified};
pub use refusal::{Code, Refusal, Step};

use skep_abi::HelperProto;

/// What the host allows and provides.
pub struct Config<'a> {
    /// Prototypes of callable helpers by number. Types restrict the numbers of Linux's own.
    pub helpers: &'a dyn Fn(u32) -> Option<&'a HelperProto>,
    /// The most instructions that may be walked, over all paths.
    pub max_walked: u64,
    /// The most bytes that remembered states may take.
    pub max_state_bytes: usize,
    /// Whether memory accesses must be aligned to their size.
    pub strict_alignment: bool,
}

/// Proves a program safe.
///
/// # Errors
///
/// A [`Refusal`] where the program is unsafe, breaks a limit, or uses what this version does not understand.
pub fn verify(program: Unverified, config: &Config<'_>) -> Result<Verified, Box<Refusal>> {
    let _ = (program, config);
    todo!("written by the verifier's author")
}
