//! `skep bench htab-mem`: the speed of a hash table and the memory it takes, under each policy of reuse.
//!
//! The published table of 2023: 8,192 keys of 4 bytes are in use, in a map of 16,384 elements with values of 8 bytes that are
//! allocated as they come. P producers are kept on processors; one loop is one run of a program that passes over its 8192/P
//! keys (`cases.rs`). Each case on each map with each number of producers runs for a fixed time in a process of its own
//! (`child.rs`), which this one starts, in rounds, so that memory and threads are its own.

mod cases;
mod child;
mod measured;
mod process;
mod programs;
mod published;
mod subjects;

use crate::child::{Silence, answer};
use crate::load::Target;
use cases::{Case, PRODUCERS};
pub use child::{Task, perform};
pub use measured::{Measured, Threads};
pub use published::{NO_OP, Published};
use serde::Serialize;
use skep_mem::Policy;
use std::process::Command;
use std::time::Duration;

/// Maps of other crates.
const PEERS: [&str; 3] = ["mutex-hashmap", "dashmap", "papaya"];
/// How much longer than the time that it measures a process may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured.
pub struct Options<'a> {
    /// How often each has its turn.
    pub rounds: u32,
    /// How long each runs, in milliseconds.
    pub millis: u64,
    /// Whether the running kernel is to be measured as well, in the first round.
    pub linux: bool,
    /// A command that [performs](perform) a task.
    pub command: &'a dyn Fn(&Task) -> Command,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Architecture of this machine.
    pub arch: &'static str,
    /// Its processor, as the system names it.
    pub cpu: String,
    /// How often each had its turn.
    pub rounds: u32,
    /// For how long.
    pub seconds: f64,
    /// Every case on every map.
    pub rows: Vec<Row>,
    /// Thousand loops in a second that were published for `no_op`: from and to.
    pub published_no_op: [f64; 2],
    /// What was to be reached.
    pub targets: Vec<Target>,
}

/// A case on a map with so many producers.
#[derive(Debug, Serialize)]
pub struct Row {
    /// `no_op`, `overwrite`, `batch_add_batch_del` or `add_del_on_diff_cpu`.
    pub case: &'static str,
    /// The policy of skep's map; `None` for others.
    pub policy: Option<&'static str>,
    /// Whose map it is, if it is not skep's.
    pub peer: Option<&'static str>,
    /// How many producers there are.
    pub producers: u32,
    /// Something to know about it.
    pub note: Option<&'static str>,
    /// What was measured: the best speed of the rounds, and the most memory.
    #[serde(flatten)]
    pub measured: Option<Measured>,
    /// Why it was not.
    pub unavailable: Option<String>,
    /// What was published.
    pub published: Option<Published>,
}

impl Row {
    fn subject(&self) -> &'static str {
        self.policy.or(self.peer).unwrap_or_default()
    }

    fn case(&self) -> Option<Case> {
        Case::from_name(self.case)
    }
}

/// Measures everything; `progress` is told what comes.
pub fn run(options: &Options<'_>, mut progress: impl FnMut(&str)) -> Report {
    let mut rows = rows(options.linux);
    for round in 0..options.rounds {
        for row in &mut rows {
            let again = round > 0 && (row.peer == Some(subjects::LINUX) || row.unavailable.is_some());
            let Some(case) = row.case().filter(|_| !again) else { continue };
            let (subject, producers) = (row.subject(), row.producers);
            progress(&format!("{} on {subject}, {producers} producers, round {}", row.case, round + 1));
            let task = Task { case, subject: subject.to_owned(), producers, millis: options.millis };
            match measure(options, &task) {
                Ok(measured) => {
                    row.measured = Some(match row.measured.take() {
                        Some(before) => before.with(measured),
                        None => measured,
                    });
                }
                Err(reason) => row.unavailable = Some(reason),
            }
        }
    }
    Report {
        arch: std::env::consts::ARCH,
        cpu: crate::exec::cpu(),
        rounds: options.rounds,
        seconds: options.millis as f64 / 1e3,
        targets: targets(&rows),
        rows,
        published_no_op: NO_OP,
    }
}

/// All rows, as yet empty.
fn rows(linux: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in Case::ALL {
        for producers in PRODUCERS {
            let alone = case == Case::AddDel && producers == 1;
            let note = alone.then_some("the one producer adds and deletes in turns");
            let mut add = |policy: Option<&'static str>, peer| {
                let published = policy.and_then(|policy| published::find(case, policy, producers));
                let case = case.name();
                let (measured, unavailable) = (None, None);
                rows.push(Row { case, policy, peer, producers, note, measured, unavailable, published });
            };
            Policy::ALL.into_iter().for_each(|policy| add(Some(policy.name()), None));
            PEERS.into_iter().for_each(|peer| add(None, Some(peer)));
            if linux {
                add(None, Some(subjects::LINUX));
            }
        }
    }
    rows
}

/// Has another process do it.
fn measure(options: &Options<'_>, task: &Task) -> Result<Measured, String> {
    let patience = PATIENCE + Duration::from_millis(task.millis);
    let line = answer((options.command)(task), patience).map_err(|silence| match silence {
        Silence::Unheard(error) => format!("its process cannot be started: {error}"),
        Silence::Late => "its process did not end in time".to_owned(),
        Silence::Failed(complaint) if complaint.is_empty() => "its process failed without a word".to_owned(),
        Silence::Failed(complaint) => complaint,
    })?;
    Measured::read(&line).ok_or_else(|| format!("its process says {line:?}"))
}

/// What was to be reached, as far as it was measured.
fn targets(rows: &[Row]) -> Vec<Target> {
    let find = |case: Case, subject: &str, producers: u32| {
        let of = |row: &&Row| (row.case(), row.subject(), row.producers) == (Some(case), subject, producers);
        rows.iter().find(of).and_then(|row| row.measured.as_ref())
    };
    let (ours, immediate) = (Policy::ReuseAfterGp.name(), Policy::Immediate.name());
    // Over all numbers of producers that both were measured with.
    let compared = |case: Case, ratio: fn(&Measured, &Measured) -> f64| {
        let both = PRODUCERS.into_iter().filter_map(move |producers| {
            Some(ratio(find(case, ours, producers)?, find(case, immediate, producers)?))
        });
        both.collect::<Vec<f64>>()
    };
    let least = |ratios: Vec<f64>| ratios.into_iter().reduce(f64::min);
    let most = |ratios: Vec<f64>| ratios.into_iter().reduce(f64::max);
    let speed = |ours: &Measured, other: &Measured| ours.loops_k_per_s / other.loops_k_per_s;
    let memory = |ours: &Measured, other: &Measured| ours.peak_mib / other.peak_mib;
    let map_memory = |ours: &Measured, other: &Measured| {
        ours.map_peak_mib.unwrap_or(f64::NAN) / other.map_peak_mib.unwrap_or(f64::NAN)
    };
    let mut targets = Vec::new();
    let at_least = |name, unit, target, value: Option<f64>| {
        value.map(|value| Target::at_least(name, unit, target, value))
    };
    let at_most = |name, unit, target, value: Option<f64>| {
        value.map(|value| Target::at_most(name, unit, target, value))
    };
    for (case, name) in [
        (Case::NoOp, "no_op: loops, of immediate's"),
        (Case::Overwrite, "overwrite: loops, of immediate's"),
        (Case::Batch, "batch: loops, of immediate's"),
        (Case::AddDel, "add_del: loops, of immediate's"),
    ] {
        targets.extend(at_least(name, "x", 0.9, least(compared(case, speed))));
    }
    for (case, process, map) in [
        (Case::Overwrite, "overwrite: peak, of immediate's", "overwrite: peak of the map, of immediate's"),
        (Case::Batch, "batch: peak, of immediate's", "batch: peak of the map, of immediate's"),
    ] {
        targets.extend(at_most(process, "x", 2.0, most(compared(case, memory))));
        targets.extend(at_most(map, "x", 2.0, most(compared(case, map_memory))));
    }
    let own = PRODUCERS.into_iter().filter_map(|producers| find(Case::AddDel, ours, producers));
    let peak = own.map(|measured| measured.peak_mib).reduce(f64::max);
    targets.extend(at_most("add_del: peak of the process", "MiB", 32.0, peak));
    let skeps = rows.iter().filter(|row| row.policy.is_some()).filter_map(|row| row.measured.as_ref());
    let keepers = skeps.map(|measured| measured.threads.peak.saturating_sub(measured.threads.before));
    let keepers = keepers.max().map(f64::from);
    targets.extend(at_most("threads besides the producers and the first", "", 1.0, keepers));
    let peers = PEERS.into_iter().filter_map(|peer| find(Case::Overwrite, peer, 2));
    let best = peers.map(|measured| measured.loops_k_per_s).reduce(f64::max);
    let own = find(Case::Overwrite, ours, 2).map(|measured| measured.loops_k_per_s);
    let times = own.zip(best).map(|(own, best)| own / best);
    targets.extend(at_least("overwrite, 2 producers: loops, of the best peer's", "x", 2.0, times));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(loops_k_per_s: f64, peak_mib: f64) -> Measured {
        Measured {
            loops_k_per_s,
            loops_k_per_cpu_s: loops_k_per_s,
            before_mib: 1.0,
            avg_mib: 1.0,
            peak_mib,
            map_avg_mib: Some(1.0),
            map_peak_mib: Some(peak_mib),
            threads: Threads { before: 1, peak: 2, after: 1 },
            objects_in_flight_peak: None,
            failed_per_loop: 0.0,
        }
    }

    #[test]
    fn every_case_is_there_on_every_map() {
        assert_eq!((rows(false).len(), rows(true).len()), (4 * 3 * 8, 4 * 3 * 9));
        let published = rows(false).iter().filter(|row| row.published.is_some()).count();
        assert_eq!(published, 3 * 5);
    }

    #[test]
    fn the_kernel_is_asked_to_load_few_programs() {
        let loads = |case: Case, producers: u32| {
            let mut works: Vec<_> = (0..producers).flat_map(|at| case.works(at, producers)).collect();
            works.dedup();
            works.len().min(2)
        };
        let all = |case| PRODUCERS.into_iter().map(|producers| loads(case, producers)).sum::<usize>();
        assert!(Case::ALL.into_iter().map(all).sum::<usize>() <= 20);
    }

    #[test]
    fn what_was_to_be_reached_is_the_worst_over_all_producers() {
        let mut rows = rows(false);
        for row in &mut rows {
            row.measured = Some(match row.subject() {
                "reuse-after-gp" => measured(20.0 / f64::from(row.producers), 6.0),
                "immediate" => measured(10.0, 4.0),
                _ => measured(5.0, 1.0),
            });
        }
        let targets = targets(&rows);
        let values: Vec<f64> = targets.iter().map(|target| target.value).collect();
        assert_eq!(values, [0.25, 0.25, 0.25, 0.25, 1.5, 1.5, 1.5, 1.5, 6.0, 1.0, 2.0]);
        assert_eq!(targets.iter().filter(|target| target.met).count(), 7);
        for row in &mut rows {
            row.measured = None;
        }
        assert!(super::targets(&rows).is_empty());
    }

    #[test]
    fn a_process_that_cannot_be_started_is_a_reason_and_no_failure() {
        let command = |_: &Task| Command::new("/nowhere/at/all");
        let report = run(&Options { rounds: 2, millis: 1, linux: false, command: &command }, |_| ());
        assert!(report.rows.iter().all(|row| row.measured.is_none() && row.unavailable.is_some()));
    }

    #[test]
    fn each_case_is_performed_on_skep_and_a_peer() {
        for case in Case::ALL {
            for subject in ["immediate", "papaya"] {
                let task = Task { case, subject: subject.to_owned(), producers: 2, millis: 30 };
                let mut line = Vec::new();
                perform(&task, &mut line).unwrap();
                let measured = Measured::read(std::str::from_utf8(&line).unwrap()).unwrap();
                assert!(measured.loops_k_per_s > 0.0, "{task}: {measured:?}");
                assert_eq!(measured.failed_per_loop, 0.0, "{task}");
            }
        }
    }
}
