//! What a map needs to know of its host.

/// What a map needs to know of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many virtual CPUs there are: programs pass numbers below this, and per-CPU kinds keep a value for
    /// each. For [`Map::create_in`] that of the domain, or 0.
    pub cpus: u32,
    /// The most bytes that the map may take.
    pub limit: u64,
}
