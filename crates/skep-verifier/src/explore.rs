//! All paths: which are walked, which are covered by others, and when the walk ends.

pub(crate) mod chains;
pub(crate) mod guess;
pub(crate) mod outline;
pub(crate) mod paths;
pub(crate) mod prune;
pub(crate) mod snapshot;
pub(crate) mod walk;
pub(crate) mod watch;
pub(crate) mod widen;
