//! All paths: which are walked, which are subsumed by others, and when the walk ends.

pub(crate) mod chains;
pub(crate) mod explored;
pub(crate) mod fingerprint;
pub(crate) mod observer;
pub(crate) mod paths;
pub(crate) mod snapshot;
pub(crate) mod speculation;
pub(crate) mod walk;
pub(crate) mod widen;
