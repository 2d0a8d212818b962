//! The port boundary: nothing outside this folder names an architecture, and nothing but this file asks which
//! one it is compiled for.
//!
//! A backend is a folder with the same file names in the same order:
//!
//! | file | what |
//! |---|---|
//! | `regs` | which machine register stands for which BPF register |
//! | `encode` | instructions to bytes, nothing else |
//! | `alu`, `divide` | arithmetic |
//! | `memory`, `atomic` | loads, stores, read-modify-writes |
//! | `branch` | comparisons, jumps and their lengths, padding |
//! | `call` | calls of functions and helpers, and helpers that need no call |
//! | `frame` | entry and exit of functions |
//!
//! Backends only make bytes, so each is compiled and tested on every machine; whether its code could run here
//! is what [`SUPPORTED`] says.

#[allow(dead_code, unused_imports)]
pub(crate) mod aarch64;
pub(crate) mod x86_64;

/// The backend in use.
pub(crate) use x86_64 as backend;

/// Whether the machine that this is compiled for runs the backend's code.
pub(crate) const SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// What the processor at hand can do.
pub(crate) fn detect() -> backend::Features {
    #[cfg(target_arch = "x86_64")]
    return backend::Features { bmi2: std::arch::is_x86_feature_detected!("bmi2") };
    #[cfg(not(target_arch = "x86_64"))]
    return backend::Features { bmi2: false };
}

/// A foreign assembler, for the encoders' tests.
#[cfg(test)]
mod llvm;

/// Functions in assembly for [`tests`].
#[cfg(all(test, target_arch = "x86_64"))]
#[path = "x86_64/testing.rs"]
pub(crate) mod testing;

/// Tests that run the code they compile.
#[cfg(all(test, target_arch = "x86_64"))]
#[path = "../tests/mod.rs"]
mod tests;
