//! `skep bench poke`: its options and its tables.

use crate::failure::Failure;
use crate::output;
use skep_bench::poke::{self, Report};
use std::fmt::{self, Write};

/// Calls of the full check.
const FULL: u64 = 1_000_000_000;
/// Calls of a look.
const QUICK: u64 = 200_000;

#[derive(clap::Args)]
pub(crate) struct Poke {
    /// How often each batch is timed.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Calls of a function that is poked all the time, for each backing.
    #[arg(long, value_name = "N", default_value_t = 50_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
    /// A thousand million calls for each backing, whatever --calls says.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Few rounds and calls: a look whether it works.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command. A torn or stale call is a refusal, after the report.
pub(crate) fn main(args: &Poke) -> Result<(), Failure> {
    let mut options = poke::Options { rounds: args.rounds, calls: args.calls };
    if args.full {
        options.calls = FULL;
    }
    if args.quick {
        options = poke::Options { rounds: options.rounds.min(5), calls: options.calls.min(QUICK) };
    }
    let report = poke::run(options, |what| eprintln!("measuring {what}")).map_err(Failure::Refused)?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)?;
    }
    match report.checks.iter().find(|check| check.torn + check.stale > 0) {
        Some(check) => Err(Failure::Refused(format!(
            "{} torn and {} stale calls, backing {}",
            check.torn, check.stale, check.backing
        ))),
        None => Ok(()),
    }
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(out, "{} ({}), ns, best of {} rounds and (median)\n", report.cpu, report.arch, report.rounds)?;
    writeln!(
        out,
        "{:<12}{:>6}  {:<10}{:>24}{:>24}{:>24}",
        "backing", "sites", "neighbour", "a poke before barrier", "the batch's barrier", "a poke in all"
    )?;
    for row in &report.rows {
        let pair = |best: f64, median: f64| format!("{best:.1} ({median:.1})");
        writeln!(
            out,
            "{:<12}{:>6}  {:<10}{:>24}{:>24}{:>24}",
            row.backing,
            row.sites,
            row.neighbour,
            pair(row.ns_before_barrier, row.ns_before_barrier_median),
            pair(row.ns_barrier, row.ns_barrier_median),
            pair(row.ns_per_poke, row.ns_per_poke_median),
        )?;
    }
    writeln!(out)?;
    for check in &report.checks {
        writeln!(
            out,
            "{}: {} calls against {} pokes in {} batches, {:.1} s: {} torn, {} stale ({} calls had one right result)",
            check.backing,
            check.calls,
            check.pokes,
            check.batches,
            check.seconds,
            check.torn,
            check.stale,
            check.judged
        )?;
    }
    for refused in &report.refused {
        writeln!(out, "{}: {}", refused.backing, refused.reason)?;
    }
    writeln!(out, "\naims")?;
    for target in &report.targets {
        let met = if target.met { "met" } else { "MISSED" };
        writeln!(
            out,
            "  {met:<7}{:>8.2} of at most {:>6.2} {}",
            target.measured, target.wanted, target.what
        )?;
    }
    Ok(out)
}
