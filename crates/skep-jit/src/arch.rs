//! The port boundary: outside of this folder nothing depends on an architecture, nothing but the public
//! [`crate::Target`] (and a test that needs some backend) names one, and nothing asks which one this is compiled for.
//!
//! A backend is a folder with the same file names in the same order, and implements the traits of [`crate::port`]:
//!
//! | file | what |
//! |---|---|
//! | `regs` | which machine register stands for which BPF register |
//! | `encode` | instructions to bytes, nothing else |
//! | `alu`, `divide` | arithmetic: [`crate::port::Arithmetic`] |
//! | `memory`, `atomic` | loads, stores, read-modify-writes: [`crate::port::Memory`] |
//! | `branch` | comparisons, jumps and their lengths, padding: [`crate::port::Branches`], [`crate::layout::Encoding`] |
//! | `call` | calls of functions and helpers, and helpers that need no call: [`crate::port::Calls`] |
//! | `frame` | entry and exit of functions: [`crate::port::Frames`] |
//! | `blind` | constants that are not to be in code: [`crate::blind`] |
//! | `guard` | wrong paths of the processor: [`crate::port::Guards`] |
//!
//! Each folder also has tests of its backend: `encode::tests` reads encodings back, `shape_tests`
//! looks at code, `hardening_tests` at what [`crate::Options`] add, and `testing` has the assembly that `tests` need.
//! The files in `encode` and its tests are divided by kind of instruction.
//!
//! Backends only make bytes. So each is compiled and tested on every machine, and can make code for inspection on
//! another machine. [`SUPPORTED`] says whether code can run here.

pub(crate) mod aarch64;
#[cfg(test)]
mod llvm;
mod magic;
pub(crate) mod x86_64;

/// The backend of this machine; on a machine without one, any of them.
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::Aarch64 as Native;
#[cfg(not(target_arch = "aarch64"))]
pub(crate) use x86_64::X86_64 as Native;

/// Whether this machine has a backend.
pub(crate) const SUPPORTED: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// The features of the running processor.
#[cfg(target_arch = "aarch64")]
pub(crate) fn detect() -> aarch64::Features {
    aarch64::Features { lse: std::arch::is_aarch64_feature_detected!("lse") }
}

/// The features of the running processor.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn detect() -> x86_64::Features {
    #[cfg(target_arch = "x86_64")]
    return x86_64::Features { bmi2: std::arch::is_x86_feature_detected!("bmi2") };
    #[cfg(not(target_arch = "x86_64"))]
    return x86_64::Features { bmi2: false };
}

/// Functions in assembly for [`tests`].
#[cfg(all(test, target_arch = "x86_64"))]
#[path = "arch/x86_64/testing.rs"]
pub(crate) mod testing;

/// Functions in assembly for [`tests`].
#[cfg(all(test, target_arch = "aarch64"))]
#[path = "arch/aarch64/testing.rs"]
pub(crate) mod testing;

/// Tests that run the code they compile.
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
