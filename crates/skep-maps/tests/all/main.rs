//! One binary for all tests that need no process of their own, so that it is linked once.

#[path = "../oracle/model.rs"]
mod oracle;

use oracle::common;

mod arena;
mod batch;
mod descriptors;
mod errors;
mod held_up;
mod long_keys;
mod members;
mod model;
mod perf;
mod queues;
mod ring_threads;
mod shared;
mod user_rings;
