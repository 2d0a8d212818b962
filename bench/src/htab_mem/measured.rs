//! What a child process measures and its parent reports.

use serde::{Deserialize, Serialize};

/// How many threads the process had, without the producers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Threads {
    /// Before there was a runtime.
    pub(super) before: u32,
    pub(super) peak: u32,
    /// When the map and the runtime were gone.
    pub(super) after: u32,
}

/// What was measured in one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Thousand loops in a second, of all producers together.
    pub(super) loops_k_per_s: f64,
    /// Thousand loops for each second of processor time of the whole process, which other processes do not change.
    pub(super) loops_k_per_cpu_s: f64,
    /// Resident memory of the process before the first loop, with everything loaded.
    pub(super) before_mib: f64,
    /// Resident memory of the process, average.
    pub(super) avg_mib: f64,
    pub(super) peak_mib: f64,
    /// Memory that the map held, average; `None` where it does not know.
    pub(super) map_avg_mib: Option<f64>,
    pub(super) map_peak_mib: Option<f64>,
    pub(super) threads: Threads,
    /// The most elements that were freed and could not be used again yet.
    pub(super) objects_in_flight_peak: Option<u64>,
    /// Updates in each loop that failed because there was no memory.
    pub(super) failed_per_loop: f64,
}

impl Measured {
    /// The better speed of two rounds, and the worse of everything else.
    pub(super) fn with(self, other: Self) -> Self {
        let most = |one: Option<f64>, other: Option<f64>| one.zip(other).map(|(one, other)| one.max(other));
        Self {
            loops_k_per_s: self.loops_k_per_s.max(other.loops_k_per_s),
            loops_k_per_cpu_s: self.loops_k_per_cpu_s.max(other.loops_k_per_cpu_s),
            before_mib: self.before_mib.min(other.before_mib),
            avg_mib: self.avg_mib.max(other.avg_mib),
            peak_mib: self.peak_mib.max(other.peak_mib),
            map_avg_mib: most(self.map_avg_mib, other.map_avg_mib),
            map_peak_mib: most(self.map_peak_mib, other.map_peak_mib),
            threads: Threads {
                before: self.threads.before.min(other.threads.before),
                peak: self.threads.peak.max(other.threads.peak),
                after: self.threads.after.max(other.threads.after),
            },
            objects_in_flight_peak: self.objects_in_flight_peak.max(other.objects_in_flight_peak),
            failed_per_loop: self.failed_per_loop.max(other.failed_per_loop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rounds_give_the_better_speed_and_the_worse_of_the_rest() {
        let measured = Measured {
            loops_k_per_s: 1.5,
            loops_k_per_cpu_s: 1.75,
            before_mib: 2.0,
            avg_mib: 3.25,
            peak_mib: 4.0,
            map_avg_mib: None,
            map_peak_mib: Some(5.0),
            threads: Threads { before: 1, peak: 2, after: 1 },
            objects_in_flight_peak: Some(7),
            failed_per_loop: 0.125,
        };
        let faster = Measured { loops_k_per_s: 2.0, peak_mib: 1.0, ..measured.clone() };
        assert_eq!(measured.clone().with(faster), Measured { loops_k_per_s: 2.0, ..measured });
    }
}
