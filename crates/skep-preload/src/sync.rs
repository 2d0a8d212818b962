//! What the gate and the version are made of. Models of them (`models/tests`) put loom's here.

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
