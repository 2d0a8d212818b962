//! The configuration of a verification.

use skep_abi::HelperProto;
use skep_btf::Btf;

/// What the host allows and provides.
pub struct Config<'a> {
    /// Prototypes of callable helpers by number. Program types restrict those of Linux's helpers.
    pub helpers: &'a dyn Fn(u32) -> Option<&'a HelperProto>,
    /// The types of the host's functions and structures. Without them, programs that refer to any are refused.
    pub btf: Option<&'a Btf>,
    /// The most instructions that may be walked, over all paths.
    pub max_walked: u64,
    /// The most bytes that explored states may take.
    pub max_state_bytes: usize,
    /// Whether memory accesses must be aligned to their size.
    pub strict_alignment: bool,
    /// Whether addresses may leave all programs as numbers, as Linux allows its root user (`CAP_PERFMON`). Programs that
    /// trace the host may always let them out. Memory is as safe as without: a number never becomes an address.
    pub privileged: bool,
    /// The most states to keep for [`crate::Verified::recorded`]; 0 for none. For tests: each takes a kilobyte or two.
    pub max_recorded: usize,
}

impl Default for Config<'_> {
    /// Linux's helpers, a million instructions, 64 MiB of states, any alignment, no privileges.
    fn default() -> Self {
        Self {
            helpers: &|id| skep_abi::linux_helper(id),
            btf: None,
            max_walked: 1_000_000,
            max_state_bytes: 64 << 20,
            strict_alignment: false,
            privileged: false,
            max_recorded: 0,
        }
    }
}
