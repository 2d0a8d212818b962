//! The primitives of the lock-free parts, and the domain, so that loom and the models can replace them.

#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use skep_rcu::{BackgroundTask, Cookie, Domain, Grace, TaskHandle, raw};
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::time::Instant;

#[cfg(loom)]
pub(crate) use crate::model::domain::{BackgroundTask, Cookie, Domain, Grace, TaskHandle, raw};
#[cfg(loom)]
pub(crate) use crate::model::time::Instant;

/// A counter that is a statistic or a hint. It is invisible to loom, so no correctness may depend on it.
pub(crate) type Tally = std::sync::atomic::AtomicU64;
