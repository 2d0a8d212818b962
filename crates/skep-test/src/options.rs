//! How tests are run.

use skep::Budget;

/// Whether [`Options::kernel`] is built in: the feature `kernel`.
pub const KERNEL: bool = cfg!(feature = "kernel");

/// How tests are run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The number of threads; 0 for one for each processor.
    pub jobs: usize,
    /// Whether all programs are interpreted.
    pub interp: bool,
    /// Whether the kernel's own BPF runs the programs, one test at a time. It takes the feature `kernel` and the
    /// capabilities to load programs. Tests that the kernel cannot run are skipped, each with its reason.
    pub kernel: bool,
    /// Whether to count what programs execute ([`Coverage`](crate::Coverage)).
    pub coverage: bool,
    /// Whether to note what [`bless`](crate::bless) writes.
    pub bless: bool,
    /// The most that each run of a program may take; a run that takes more breaks its test. `None` for no limit.
    pub budget: Option<Budget>,
}
