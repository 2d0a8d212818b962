//! Exploration: which paths are walked, which states are subsumed, widening, and the limits.

pub(crate) mod chains;
pub(crate) mod explored;
pub(crate) mod fingerprint;
pub(crate) mod generalize;
pub(crate) mod observer;
pub(crate) mod paths;
pub(crate) mod snapshot;
pub(crate) mod speculation;
pub(crate) mod trail;
pub(crate) mod walk;
pub(crate) mod widen;
