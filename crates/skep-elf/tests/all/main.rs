//! One binary for all tests that need no process of their own, so that it is linked once.

#[path = "../oracle/load.rs"]
mod oracle;
#[path = "../support/mod.rs"]
mod support;

mod co_re;
mod damage;
mod examples;
mod kernel;
mod linkage;
mod refusals;
mod system;
mod types;
