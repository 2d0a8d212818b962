//! Models of lock-free code of skep-maps and skep-text: each test program compiles the code itself a second time, over
//! loom's atomics and with small tables.
//!
//! They are a crate of their own so that nothing else depends on loom, which takes longer to build than skep-maps. The
//! models of skep-rcu and skep-mem are unit tests there, because they need the crates' private parts.
#![forbid(unsafe_code)]
