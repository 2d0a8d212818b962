//! What the gate is made of. A model of it (`models/tests/gate.rs`) puts loom's here.

pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
