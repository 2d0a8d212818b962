//! `skep-bench htab-mem`: the speed of a hash table and its memory, under each reuse policy.
//!
//! The published table of 2023: 8,192 keys of 4 bytes are in use, in a map of 16,384 elements with values of 8 bytes
//! that are allocated on demand. P producers are kept on processors; one loop is one run of a program that passes over
//! its 8192/P keys (`cases.rs`). Each case on each map with each number of producers runs for a fixed time in a process
//! of its own (`child.rs`), which this one starts, in rounds, so that memory and threads are its own.

mod cases;
mod child;
mod programs;
mod published;
mod subjects;

use crate::child::answer;
use crate::report::{Report, Target, find, number};
use crate::{Common, Result, progress};
use cases::{Case, PRODUCERS};
use child::Task;
use published::NO_OP;
use serde_json::{Map, Value, json};
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

/// Measures everything.
///
/// # Errors
///
/// This program's own path is not known.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let own = std::env::current_exe()?;
    let command = |task: &Task| {
        let mut words = args.runner.split_whitespace().map(Into::into).chain([own.clone().into_os_string()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(["htab-mem", "--only", &task.to_string()]);
        command
    };
    let (rounds, millis) = if common.quick { (1, 50) } else { (args.rounds, (args.seconds * 1e3) as u64) };
    let rows = measure_all(rounds, millis, common.linux, &command);
    let seconds = millis as f64 / 1e3;
    let summary =
        format!("best of {rounds} rounds of {seconds} s each; memory in MiB, the most of the rounds");
    let mut report = Report::new("htab-mem", summary);
    report.fields(json!({"rounds": rounds, "seconds": seconds, "published_no_op": NO_OP}));
    let columns = "case; policy; other map = peer; producers; k loops/s = loops_k_per_s:2; \
                   k/CPU s = loops_k_per_cpu_s:2; before = before_mib:1; avg = avg_mib:1; peak = peak_mib:1; \
                   map avg = map_avg_mib:1; map peak = map_peak_mib:1; in flight = objects_in_flight_peak; \
                   failed = failed_per_loop:1; threads: before = threads.before; peak = threads.peak; \
                   after = threads.after; published: k loops/s = published.loops_k_per_s:2; \
                   peak = published.peak_mib:1; not measured = unavailable";
    report.table("rows", "cases", &rows, columns);
    report.note(format!(
        "With one producer, add_del_on_diff_cpu adds and deletes in turns. k/CPU s: thousand loops for each second of\n\
         processor time of the whole process. Threads: besides the producers. Published for 8 producers; no_op {} to {}\n\
         k loops/s.",
        NO_OP[0], NO_OP[1]
    ));
    Ok(report.targets(targets(&rows)))
}

/// Measures each row in each round, the running kernel in the first alone. `command` starts a process that
/// [performs](Task::perform) a task.
fn measure_all(rounds: u32, millis: u64, linux: bool, command: &dyn Fn(&Task) -> Command) -> Vec<Value> {
    let mut tasks = tasks(millis, linux);
    for round in 0..rounds {
        for (task, row) in &mut tasks {
            if round > 0 && (task.subject == subjects::LINUX || !row["unavailable"].is_null()) {
                continue;
            }
            let Task { case, subject, producers, .. } = task;
            progress(format!("{case:?} on {subject}, {producers} producers, round {}", round + 1));
            match (answer(command(task), PATIENCE + Duration::from_millis(millis)), row) {
                (Ok(measured), Value::Object(row)) => merge(row, measured),
                (Ok(_), _) => {}
                (Err(reason), row) => row["unavailable"] = reason.to_string().into(),
            }
        }
    }
    tasks.into_iter().map(|(_, row)| row).collect()
}

/// All tasks, with their rows without figures.
fn tasks(millis: u64, linux: bool) -> Vec<(Task, Value)> {
    let mut tasks = Vec::new();
    for (case, producers) in Case::ALL.into_iter().flat_map(|case| PRODUCERS.map(|count| (case, count))) {
        let alone = case == Case::AddDelOnDiffCpu && producers == 1;
        let mut add = |subject: &str, policy: Option<&str>| {
            let row = json!({
                "case": case, "producers": producers,
                // The policy of skep's map; for others whose map it is.
                "policy": policy, "peer": policy.is_none().then_some(subject),
                "note": alone.then_some("the one producer adds and deletes in turns"),
                // Why it was not measured.
                "unavailable": null,
                "published": policy.map_or(Value::Null, |policy| published::find(case, policy, producers)),
            });
            tasks.push((Task { case, subject: subject.to_owned(), producers, millis }, row));
        };
        Policy::ALL.into_iter().for_each(|policy| add(policy.name(), Some(policy.name())));
        PEERS.into_iter().for_each(|peer| add(peer, None));
        if linux {
            add(subjects::LINUX, None);
        }
    }
    tasks
}

/// Keeps the better speed of two rounds, and the worse of everything else: of what there was before, the least, and of
/// all other figures the most.
fn merge(row: &mut Map<String, Value>, measured: Map<String, Value>) {
    for (key, new) in measured {
        match (row.get_mut(&key), new) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (Some(old), new) => {
                let less = new.as_f64() < old.as_f64();
                if less == key.starts_with("before") {
                    *old = new;
                }
            }
            (None, new) => drop(row.insert(key, new)),
        }
    }
}

/// The targets, as far as they were measured. Where several numbers of producers were, the worst counts.
fn targets(rows: &[Value]) -> Vec<Target> {
    // Figures of skep's map under a policy with each number of producers.
    let figures = |case: Case, key: &str, policy: Policy| {
        let row = |producers| json!({"case": case, "policy": policy.name(), "producers": producers});
        PRODUCERS.map(|producers| find(rows, &row(producers)).map_or(f64::NAN, |row| number(row, key)))
    };
    let ours = |case, key| figures(case, key, Policy::ReuseAfterGp);
    let against_immediate = |case, key| {
        let pairs = ours(case, key).into_iter().zip(figures(case, key, Policy::Immediate));
        pairs.map(|(ours, other)| ours / other).filter(|ratio| !ratio.is_nan())
    };
    let mut targets = Vec::new();
    for (case, name) in Case::ALL.into_iter().zip(["no_op", "overwrite", "batch", "add_del"]) {
        let least = against_immediate(case, "loops_k_per_s").reduce(f64::min);
        let name = format!("{name}: loops, of immediate's");
        targets.extend(least.map(|value| Target::at_least(name, "x", 0.9, value)));
    }
    for (case, name) in [(Case::Overwrite, "overwrite"), (Case::BatchAddBatchDel, "batch")] {
        for (key, peak) in [("peak_mib", "peak"), ("map_peak_mib", "peak of the map")] {
            let most = against_immediate(case, key).reduce(f64::max);
            let name = format!("{name}: {peak}, of immediate's");
            targets.extend(most.map(|value| Target::at_most(name, "x", 2.0, value)));
        }
    }
    let mut at_most = |name: &str, unit, target, values: &mut dyn Iterator<Item = f64>| {
        let most = values.filter(|value| !value.is_nan()).reduce(f64::max);
        targets.extend(most.map(|value| Target::at_most(name, unit, target, value)));
    };
    let peaks = ours(Case::AddDelOnDiffCpu, "peak_mib");
    at_most("add_del: peak of the process", "MiB", 32.0, &mut peaks.into_iter());
    let skeps = rows.iter().filter(|row| row["policy"].is_string());
    let keepers = skeps.filter_map(|row| {
        let threads = |when: &str| row["threads"][when].as_u64();
        Some(threads("peak")?.saturating_sub(threads("before")?) as f64)
    });
    at_most("threads besides the producers and the first", "", 1.0, &mut { keepers });
    let loops = |key: &str, name: &str| {
        let row = find(rows, &json!({"case": Case::Overwrite, key: name, "producers": 2}));
        row.and_then(|row| row["loops_k_per_s"].as_f64())
    };
    let best = PEERS.into_iter().filter_map(|peer| loops("peer", peer)).reduce(f64::max);
    let times = loops("policy", Policy::ReuseAfterGp.name()).zip(best).map(|(own, best)| own / best);
    let name = "overwrite, 2 producers: loops, of the best peer's";
    targets.extend(times.map(|value| Target::at_least(name, "x", 2.0, value)));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(loops_k_per_s: f64, peak_mib: f64) -> Map<String, Value> {
        let measured = json!({
            "loops_k_per_s": loops_k_per_s, "before_mib": 1.0, "peak_mib": peak_mib, "map_peak_mib": peak_mib,
            "threads": {"before": 1, "peak": 2, "after": 1}, "objects_in_flight_peak": null,
        });
        measured.as_object().unwrap().clone()
    }

    #[test]
    fn every_case_is_there_on_every_map() {
        assert_eq!((tasks(1, false).len(), tasks(1, true).len()), (4 * 3 * 8, 4 * 3 * 9));
        let published = tasks(1, false).iter().filter(|(_, row)| !row["published"].is_null()).count();
        assert_eq!(published, 3 * 5);
    }

    #[test]
    fn two_rounds_give_the_better_speed_and_the_worse_of_the_rest() {
        let mut row = measured(1.5, 4.0);
        let mut other = measured(2.0, 1.0);
        other["before_mib"] = 0.5.into();
        other["threads"] = json!({"before": 2, "peak": 3, "after": 0});
        merge(&mut row, other);
        let mut wanted = measured(2.0, 4.0);
        wanted["before_mib"] = 0.5.into();
        wanted["threads"]["peak"] = 3.into();
        assert_eq!(row, wanted);
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
        let figures = |(task, mut row): (Task, Value)| {
            let measured = match &*task.subject {
                "reuse-after-gp" => measured(20.0 / f64::from(task.producers), 6.0),
                "immediate" => measured(10.0, 4.0),
                _ => measured(5.0, 1.0),
            };
            merge(row.as_object_mut().unwrap(), measured);
            row
        };
        let targets = targets(&tasks(1, false).into_iter().map(figures).collect::<Vec<_>>());
        let values: Vec<f64> = targets.iter().map(|target| target.value).collect();
        assert_eq!(values, [0.25, 0.25, 0.25, 0.25, 1.5, 1.5, 1.5, 1.5, 6.0, 1.0, 2.0]);
        assert_eq!(targets.iter().filter(|target| target.met).count(), 7);
        let empty: Vec<Value> = tasks(1, false).into_iter().map(|(_, row)| row).collect();
        assert_eq!(super::targets(&empty).len(), 0);
    }

    #[test]
    fn a_process_that_cannot_be_started_is_a_reason_and_no_failure() {
        let command = |_: &Task| Command::new("/nowhere/at/all");
        let rows = measure_all(2, 1, false, &command);
        assert!(rows.iter().all(|row| row["loops_k_per_s"].is_null() && row["unavailable"].is_string()));
    }

    #[test]
    fn each_case_is_performed_on_skep_and_a_peer() {
        for case in Case::ALL {
            for subject in ["immediate", "papaya"] {
                let task = Task { case, subject: subject.to_owned(), producers: 2, millis: 30 };
                let measured = task.perform().unwrap();
                assert!(number(&measured, "loops_k_per_s") > 0.0, "{task}: {measured}");
                assert_eq!(measured["failed_per_loop"], 0.0, "{task}");
            }
        }
    }
}
