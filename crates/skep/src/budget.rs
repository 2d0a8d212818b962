//! What a run may take.

use std::time::Duration;

/// The most that one run may take: work, time, or both. A run that takes more ends with
/// [`Error::BudgetExhausted`](crate::Error::BudgetExhausted), and everything that it holds is released.
///
/// Work is counted in *units*, about the instructions that the program executes: a round of a loop takes as many units
/// as the loop has instructions, a call of a function of the program as many as that function has (at most 4095 each),
/// and a call of a function by a helper ([`Budget::CALLBACK`]) eight. The count does not depend on the engine or the
/// machine: the same program with the same input and budget ends at the same instruction.
///
/// Time is looked at every 16,384 units. A helper or a function of the host is never interrupted, so its time comes on
/// top.
///
/// ```
/// use skep::Budget;
/// use std::time::Duration;
///
/// let budget = Budget::units(1_000_000).and_time(Duration::from_millis(2));
/// assert_eq!(budget.most_units(), Some(1_000_000));
/// assert_eq!(Budget::UNLIMITED.most_time(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    units: u64,
    time: Option<Duration>,
}

impl Budget {
    /// No limit. Runs can still be interrupted ([`Program::interrupt`](crate::Program::interrupt)).
    pub const UNLIMITED: Self = Self { units: u64::MAX, time: None };

    /// The units of a call by a helper.
    pub const CALLBACK: u32 = 8;

    /// At most this many units.
    pub const fn units(units: u64) -> Self {
        Self { units, time: None }
    }

    /// At most this time on the clock of the wall, from the run's beginning.
    pub const fn time(time: Duration) -> Self {
        Self { units: u64::MAX, time: Some(time) }
    }

    /// The same, and at most this many units.
    #[must_use]
    pub const fn and_units(self, units: u64) -> Self {
        Self { units, ..self }
    }

    /// The same, and at most this time.
    #[must_use]
    pub const fn and_time(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// The most units, if there is a limit.
    pub const fn most_units(self) -> Option<u64> {
        if self.units == u64::MAX { None } else { Some(self.units) }
    }

    /// The most time, if there is a limit.
    pub const fn most_time(self) -> Option<Duration> {
        self.time
    }
}
