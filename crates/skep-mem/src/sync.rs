//! The primitives that the lock-free parts are made of, and the domain, so that loom and models of memory, of readers and of
//! time can take their place.

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

/// A count that is a statistic or a hint. Models do not explore who sees what of it: nothing may depend on that.
pub(crate) type Tally = std::sync::atomic::AtomicU64;
