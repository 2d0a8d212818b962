//! One binary for all tests that need no process of their own, so that it is linked once.

#[path = "../oracle/roundtrip.rs"]
mod oracle;

mod llvm;
mod refusals;
mod roundtrip;
mod syntax;
