//! How tests are run.

use skep::Budget;

/// How tests are run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The number of threads; 0 for one for each processor.
    pub jobs: usize,
    /// Whether all programs are interpreted.
    pub interp: bool,
    /// Whether to note what [`bless`](crate::bless) writes.
    pub bless: bool,
    /// The most that each run of a program may take; a run that takes more breaks its test. `None` for no limit.
    pub budget: Option<Budget>,
}
