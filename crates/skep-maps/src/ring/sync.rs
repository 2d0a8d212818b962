//! What the protocol is made of. A model of it (`models/tests/ring.rs`) puts loom's here.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
