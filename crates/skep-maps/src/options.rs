//! Settings that a map takes from its host.

/// Settings that a map takes from its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of virtual CPUs: programs pass numbers below it, and per-CPU kinds have a value for each. For
    /// [`Map::create_in`](crate::Map::create_in) the number of the domain's slots, or 0.
    pub cpus: u32,
    /// The most bytes of memory that the map may take.
    pub limit: u64,
}
