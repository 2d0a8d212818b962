//! What a run can use up.

use std::fmt;

/// What a run has used up ([`Error::BudgetExhausted`](crate::Error::BudgetExhausted)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exhausted {
    /// Its units of work.
    Units,
    /// Its time.
    Time,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Units => "its units of work",
            Self::Time => "its time",
        })
    }
}
