//! What a child tells its parent: one line of words.

use serde::Serialize;

/// How many threads the process had, without the producers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Threads {
    /// Before there was a runtime.
    pub before: u32,
    /// At the peak.
    pub peak: u32,
    /// When the map and the runtime were gone.
    pub after: u32,
}

/// What was measured in one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Thousand loops in a second, of all producers together.
    pub loops_k_per_s: f64,
    /// Thousand loops for each second of processor time that the whole process took: what other processes take does not
    /// count there.
    pub loops_k_per_cpu_s: f64,
    /// Resident memory of the process before the first loop, with everything loaded.
    pub before_mib: f64,
    /// Resident memory of the process, average.
    pub avg_mib: f64,
    /// Resident memory of the process, at most.
    pub peak_mib: f64,
    /// Bytes that the map held, average; `None` where it does not know.
    pub map_avg_mib: Option<f64>,
    /// Bytes that the map held, at most.
    pub map_peak_mib: Option<f64>,
    /// Threads.
    pub threads: Threads,
    /// Elements that were freed and could not be used again yet, at most.
    pub objects_in_flight_peak: Option<u64>,
    /// Updates in each loop that failed for want of memory.
    pub failed_per_loop: f64,
}

impl Measured {
    /// As the child writes it.
    pub(super) fn line(&self) -> String {
        let Self { loops_k_per_s, loops_k_per_cpu_s, before_mib, avg_mib, peak_mib, failed_per_loop, .. } =
            self;
        let Threads { before, peak, after } = self.threads;
        let map_avg = word(self.map_avg_mib);
        let map_peak = word(self.map_peak_mib);
        let in_flight = word(self.objects_in_flight_peak);
        format!(
            "{loops_k_per_s} {loops_k_per_cpu_s} {before_mib} {avg_mib} {peak_mib} {map_avg} {map_peak} {before} {peak} {after} {in_flight} \
             {failed_per_loop}"
        )
    }

    /// As the parent reads it.
    pub(super) fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [
            loops,
            per_cpu,
            before_mib,
            avg,
            peak,
            map_avg,
            map_peak,
            before,
            most,
            after,
            in_flight,
            failed,
        ] = words[..]
        else {
            return None;
        };
        Some(Self {
            loops_k_per_s: loops.parse().ok()?,
            loops_k_per_cpu_s: per_cpu.parse().ok()?,
            before_mib: before_mib.parse().ok()?,
            avg_mib: avg.parse().ok()?,
            peak_mib: peak.parse().ok()?,
            map_avg_mib: map_avg.parse().ok(),
            map_peak_mib: map_peak.parse().ok(),
            threads: Threads {
                before: before.parse().ok()?,
                peak: most.parse().ok()?,
                after: after.parse().ok()?,
            },
            objects_in_flight_peak: in_flight.parse().ok(),
            failed_per_loop: failed.parse().ok()?,
        })
    }

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

fn word(number: Option<impl ToString>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_writes_its_parent_reads() {
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
        assert_eq!(Measured::read(&measured.line()), Some(measured.clone()));
        for odd in ["", "1 2 3", &measured.line().replace("1.5", "many")] {
            assert_eq!(Measured::read(odd), None, "{odd}");
        }
        let faster = Measured { loops_k_per_s: 2.0, peak_mib: 1.0, ..measured.clone() };
        assert_eq!(measured.clone().with(faster), Measured { loops_k_per_s: 2.0, ..measured });
    }
}
