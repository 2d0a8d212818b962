//! Models of lock-free code of skep-maps and skep-text: each test program compiles the production code a second time,
//! with loom's atomics and small tables.
//!
//! They are a crate of their own so that no other crate depends on loom, which takes longer to build than skep-maps.
//! The models of skep-rcu and skep-mem are unit tests there, because they need the crates' private parts.
#![forbid(unsafe_code)]
