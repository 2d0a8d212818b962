//! One binary for all tests that need no process of their own, so that it is linked once.

#[path = "../oracle/ask.rs"]
mod oracle;
#[allow(dead_code, unreachable_pub)] // the tests of skep-elf use the rest of it
#[path = "../support/types.rs"]
mod support;

mod c_header;
mod damage;
mod refused;
mod system;
mod types;
