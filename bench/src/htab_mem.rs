//! `skep-bench htab-mem`: the speed of a hash table and its memory, under each reuse policy.
//!
//! The published table of 2023: 8,192 keys of 4 bytes are in use, in a map of 16,384 elements with values of 8 bytes
//! that are allocated on demand. P producers are kept on processors; one loop is one run of a program that passes over
//! its 8192/P keys (`cases.rs`). Each case on each map with each number of producers runs for a fixed time in a process
//! of its own (`child.rs`), which this one starts, in rounds, so that memory and threads are its own.

mod cases;
mod child;
mod measured;
mod process;
mod programs;
mod published;
mod subjects;

use crate::child::{Silence, answer};
use crate::report::{Report, Target};
use crate::{Common, progress};
use cases::{Case, PRODUCERS};
pub(crate) use child::{Task, perform};
use measured::Measured;
use published::{NO_OP, Published};
use serde::Serialize;
use skep_mem::Policy;
use std::process::Command;
use std::time::Duration;

/// Maps of other crates.
const PEERS: [&str; 3] = ["mutex-hashmap", "dashmap", "papaya"];
/// How much longer than the time that it measures a process may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which everything takes its turn.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The length of a turn.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Start each process with this command, where the kernel cannot: an emulator with its options.
    #[arg(long, value_name = "COMMAND", default_value = "")]
    runner: String,
    /// Do one task, and print what was measured.
    #[arg(long, hide = true, value_name = "TASK", conflicts_with_all = ["linux", "json", "quick"])]
    pub(crate) only: Option<Task>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=600.0).contains(&seconds) { Ok(seconds) } else { Err("not between 0.01 and 600".to_owned()) }
}

/// A case on a map with so many producers.
#[derive(Debug, Serialize)]
struct Row {
    /// `no_op`, `overwrite`, `batch_add_batch_del` or `add_del_on_diff_cpu`.
    case: &'static str,
    /// The policy of skep's map; `None` for others.
    policy: Option<&'static str>,
    /// Whose map it is, if it is not skep's.
    peer: Option<&'static str>,
    producers: u32,
    note: Option<&'static str>,
    /// The best speed of the rounds, and the most memory.
    #[serde(flatten)]
    measured: Option<Measured>,
    /// Why it was not measured.
    unavailable: Option<String>,
    published: Option<Published>,
}

impl Row {
    fn subject(&self) -> &'static str {
        self.policy.or(self.peer).unwrap_or_default()
    }

    fn case(&self) -> Option<Case> {
        Case::from_name(self.case)
    }
}

/// Measures everything.
///
/// # Errors
///
/// This program's own path is not known.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let command = |task: &Task| {
        let mut words = args.runner.split_whitespace();
        let mut command = match words.next() {
            Some(runner) => Command::new(runner),
            None => Command::new(&own),
        };
        if !args.runner.trim().is_empty() {
            command.args(words).arg(&own);
        }
        command.args(["htab-mem", "--only", &task.to_string()]);
        command
    };
    let (rounds, millis) = if common.quick { (1, 50) } else { (args.rounds, (args.seconds * 1e3) as u64) };
    let rows = measure_all(rounds, millis, common.linux, &command);
    let seconds = millis as f64 / 1e3;
    let summary =
        format!("best of {rounds} rounds of {seconds} s each; memory in MiB, the most of the rounds");
    let mut report = Report::new("htab-mem", summary);
    report.field("rounds", rounds).field("seconds", seconds).field("published_no_op", NO_OP);
    let columns = [
        ("case", "case", 0),
        ("policy", "policy", 0),
        ("other map", "peer", 0),
        ("producers", "producers", 0),
        ("k loops/s", "loops_k_per_s", 2),
        ("k/CPU s", "loops_k_per_cpu_s", 2),
        ("before", "before_mib", 1),
        ("avg", "avg_mib", 1),
        ("peak", "peak_mib", 1),
        ("map avg", "map_avg_mib", 1),
        ("map peak", "map_peak_mib", 1),
        ("in flight", "objects_in_flight_peak", 0),
        ("failed", "failed_per_loop", 1),
        ("threads: before", "threads.before", 0),
        ("peak", "threads.peak", 0),
        ("after", "threads.after", 0),
        ("published: k loops/s", "published.loops_k_per_s", 2),
        ("peak", "published.peak_mib", 1),
        ("not measured", "unavailable", 0),
    ];
    report.table("rows", "cases", &rows, &columns);
    report.note(format!(
        "With one producer, add_del_on_diff_cpu adds and deletes in turns. k/CPU s: thousand loops for each second of\n\
         processor time of the whole process. Threads: besides the producers. Published for 8 producers; no_op {} to {}\n\
         k loops/s.",
        NO_OP[0], NO_OP[1]
    ));
    Ok(report.targets(targets(&rows)))
}

/// Measures each row in each round, the running kernel in the first alone. `command` starts a process that
/// [performs](perform) a task.
fn measure_all(rounds: u32, millis: u64, linux: bool, command: &dyn Fn(&Task) -> Command) -> Vec<Row> {
    let mut rows = rows(linux);
    for round in 0..rounds {
        for row in &mut rows {
            let again = round > 0 && (row.peer == Some(subjects::LINUX) || row.unavailable.is_some());
            let Some(case) = row.case().filter(|_| !again) else { continue };
            let (subject, producers) = (row.subject(), row.producers);
            progress(format!("{} on {subject}, {producers} producers, round {}", row.case, round + 1));
            match measure(command, &Task { case, subject: subject.to_owned(), producers, millis }) {
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
    rows
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
fn measure(command: &dyn Fn(&Task) -> Command, task: &Task) -> Result<Measured, String> {
    let patience = PATIENCE + Duration::from_millis(task.millis);
    let line = answer(command(task), patience).map_err(|silence| match silence {
        Silence::Unheard(error) => format!("its process cannot be started: {error}"),
        Silence::Late => "its process did not end in time".to_owned(),
        Silence::Failed(complaint) if complaint.is_empty() => "its process failed without a word".to_owned(),
        Silence::Failed(complaint) => complaint,
    })?;
    serde_json::from_str(&line).map_err(|error| format!("its process says {line:?}: {error}"))
}

/// The targets, as far as they were measured.
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
    type Values = Option<f64>;
    let at_least =
        |name: &str, target, value: Values| value.map(|value| Target::at_least(name, "x", target, value));
    let at_most = |name: &str, unit, target, value: Values| {
        value.map(|value| Target::at_most(name, unit, target, value))
    };
    for (case, name) in [
        (Case::NoOp, "no_op: loops, of immediate's"),
        (Case::Overwrite, "overwrite: loops, of immediate's"),
        (Case::Batch, "batch: loops, of immediate's"),
        (Case::AddDel, "add_del: loops, of immediate's"),
    ] {
        targets.extend(at_least(name, 0.9, least(compared(case, speed))));
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
    targets.extend(at_least("overwrite, 2 producers: loops, of the best peer's", 2.0, times));
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
            threads: measured::Threads { before: 1, peak: 2, after: 1 },
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
        let rows = measure_all(2, 1, false, &command);
        assert!(rows.iter().all(|row| row.measured.is_none() && row.unavailable.is_some()));
    }

    #[test]
    fn each_case_is_performed_on_skep_and_a_peer() {
        for case in Case::ALL {
            for subject in ["immediate", "papaya"] {
                let task = Task { case, subject: subject.to_owned(), producers: 2, millis: 30 };
                let measured: Measured = serde_json::from_str(&perform(&task).unwrap()).unwrap();
                assert!(measured.loops_k_per_s > 0.0, "{task}: {measured:?}");
                assert_eq!(measured.failed_per_loop, 0.0, "{task}");
            }
        }
    }
}
