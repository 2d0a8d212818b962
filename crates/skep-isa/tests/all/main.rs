//! One program of all tests here that need no process of their own: it is linked once.

#[path = "../oracle/roundtrip.rs"]
mod oracle;

mod llvm;
mod refusals;
mod roundtrip;
mod syntax;
