//! `skep bench htab-mem`: its options and its tables.

use crate::failure::Failure;
use crate::output;
use skep_bench::htab_mem::{self, Report, Row, Task};
use std::fmt::{self, Write};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct HtabMem {
    /// How often everything has its turn.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long a turn is.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// A round of short turns, to see that it works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Starts each process by this command, where the kernel cannot: an emulator with its options.
    #[arg(long, value_name = "COMMAND", default_value = "")]
    runner: String,
    /// Has the running kernel do the same as well: needs root or CAP_BPF, and loads some fifteen programs.
    #[arg(long)]
    linux: bool,
    /// Does one task, and prints what was measured.
    #[arg(long, hide = true, value_name = "TASK", conflicts_with_all = ["linux", "json", "quick"])]
    only: Option<Task>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    if (0.01..=600.0).contains(&seconds) { Ok(seconds) } else { Err("not between 0.01 and 600".to_owned()) }
}

/// Runs the command.
pub(crate) fn main(args: &HtabMem) -> Result<(), Failure> {
    if let Some(task) = &args.only {
        return htab_mem::perform(task, &mut std::io::stdout().lock()).map_err(Failure::Refused);
    }
    let own = std::env::current_exe();
    let own = own.map_err(|error| Failure::Refused(format!("this program's own path: {error}")))?;
    let command = |task: &Task| {
        let mut words = args.runner.split_whitespace();
        let mut command = match words.next() {
            Some(runner) => Command::new(runner),
            None => Command::new(&own),
        };
        if !args.runner.trim().is_empty() {
            command.args(words).arg(&own);
        }
        command.args(["bench", "htab-mem", "--only", &task.to_string()]);
        command
    };
    let (rounds, millis) = if args.quick { (1, 50) } else { (args.rounds, (args.seconds * 1e3) as u64) };
    let options = htab_mem::Options { rounds, millis, linux: args.linux, command: &command };
    let report = htab_mem::run(&options, |what| eprintln!("measuring: {what}"));
    if args.json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{} ({}), best of {} rounds of {} s each; memory in MiB, the most of the rounds\n",
        report.cpu, report.arch, report.rounds, report.seconds
    )?;
    writeln!(
        out,
        "{:<20}{:<15}{:>4}{:>10}{:>11}{:>8}{:>8}{:>8}{:>9}{:>9}{:>10}{:>9}{:>9}  published",
        "case",
        "map",
        "P",
        "k loops/s",
        "k/CPU s",
        "before",
        "avg",
        "peak",
        "map avg",
        "map peak",
        "in flight",
        "failed",
        "threads"
    )?;
    for row in &report.rows {
        told_row(&mut out, row)?;
    }
    writeln!(
        out,
        "\nP: producers; with one, add_del_on_diff_cpu adds and deletes in turns. k/CPU s: loops for each second of\n\
         processor time of the whole process. Threads besides the producers: before, at the peak, after. Published for 8 producers: k loops/s and MiB at the peak; no_op {} to {} k loops/s.",
        report.published_no_op[0], report.published_no_op[1]
    )?;
    super::linux_and_targets(&mut out, None, &report.targets)?;
    Ok(out)
}

fn told_row(out: &mut String, row: &Row) -> fmt::Result {
    let map = row.policy.or(row.peer).unwrap_or_default();
    write!(out, "{:<20}{map:<15}{:>4}", row.case, row.producers)?;
    let Some(measured) = &row.measured else {
        return writeln!(out, "  {}", row.unavailable.as_deref().unwrap_or("not measured"));
    };
    let mib = |mib: Option<f64>| mib.map_or_else(|| "-".to_owned(), |mib| format!("{mib:.1}"));
    let in_flight = measured.objects_in_flight_peak.map_or_else(|| "-".to_owned(), |count| count.to_string());
    let threads = &measured.threads;
    let threads = format!("{}/{}/{}", threads.before, threads.peak, threads.after);
    let published = row.published.map(|it| format!("  {} {}", it.loops_k_per_s, it.peak_mib));
    writeln!(
        out,
        "{:>10.2}{:>11.2}{:>8.1}{:>8.1}{:>8.1}{:>9}{:>9}{in_flight:>10}{:>9.1}{threads:>9}{}",
        measured.loops_k_per_s,
        measured.loops_k_per_cpu_s,
        measured.before_mib,
        measured.avg_mib,
        measured.peak_mib,
        mib(measured.map_avg_mib),
        mib(measured.map_peak_mib),
        measured.failed_per_loop,
        published.unwrap_or_default()
    )
}
