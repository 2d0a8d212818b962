//! Timing of program runs.
//!
//! A single run takes less time than reading the clock, so runs are timed in batches. Batches are repeated until a
//! time budget is spent. Best and median are reported, since one slow batch does not change them.

use std::time::{Duration, Instant};

/// Nanoseconds per run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    /// In the fastest batch.
    pub(crate) best: f64,
    /// In the median batch.
    pub(crate) median: f64,
}

/// Collects times of batches.
#[derive(Default)]
pub(crate) struct Batches {
    per_run: Vec<f64>,
}

impl Batches {
    /// Runs one batch of `runs` runs and records its time.
    pub(crate) fn time<E>(&mut self, runs: usize, batch: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let started = Instant::now();
        batch()?;
        self.note(started.elapsed(), runs);
        Ok(())
    }

    fn note(&mut self, elapsed: Duration, runs: usize) {
        if runs > 0 {
            self.per_run.push(elapsed.as_nanos() as f64 / runs as f64);
        }
    }

    /// Best and median; `None` before the first batch.
    pub(crate) fn timing(mut self) -> Option<Timing> {
        self.per_run.sort_by(f64::total_cmp);
        let best = *self.per_run.first()?;
        let median = self.per_run[self.per_run.len() / 2];
        Some(Timing { best, median })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_batch_changes_neither_best_nor_median() {
        let mut batches = Batches::default();
        for nanoseconds in [100, 110, 90, 120, 1_000_000] {
            batches.note(Duration::from_nanos(nanoseconds), 10);
        }
        batches.note(Duration::from_nanos(1), 0);
        assert_eq!(batches.timing(), Some(Timing { best: 9.0, median: 11.0 }));
        assert_eq!(Batches::default().timing(), None);
    }
}
