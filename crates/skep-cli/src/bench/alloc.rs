//! `skep bench alloc`: its options and its tables.

use crate::failure::Failure;
use crate::output;
use skep_bench::alloc::{self, Report};
use std::fmt::{self, Write};

#[derive(clap::Args)]
pub(crate) struct Alloc {
    /// How often everything has its turn.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A round with short turns, to see that it works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Alloc) -> Result<(), Failure> {
    let options = match args.quick {
        true => alloc::Options { rounds: 1, runs: 4, waits: 20 },
        false => alloc::Options { rounds: args.rounds, runs: 64, waits: 2000 },
    };
    let report = alloc::run(&options, |what| eprintln!("measuring: {what}")).map_err(Failure::Refused)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{} ({}), best of {} rounds\n\nallocation, a store and the free, ns for each thread",
        report.cpu, report.arch, report.rounds
    )?;
    writeln!(
        out,
        "{:<10}{:<16}{:<12}{:>6}{:>9}{:>9}{:>11}{:>10}",
        "allocator", "policy", "freed", "bytes", "threads", "ns", "no memory", "peak MiB"
    )?;
    for row in &report.rows {
        let peak = row.peak_mib.map_or_else(|| "-".to_owned(), |mib| format!("{mib:.1}"));
        writeln!(
            out,
            "{:<10}{:<16}{:<12}{:>6}{:>9}{:>9.1}{:>11.3}{peak:>10}",
            row.allocator,
            row.policy.unwrap_or("-"),
            row.how,
            row.bytes,
            row.threads,
            row.ns,
            row.missing
        )?;
    }
    writeln!(out, "\ngrace periods\n{:<24}{:<10}{:>11}{:>11}", "", "readers", "median us", "p99 us")?;
    for row in &report.grace {
        let readers = if row.busy { "busy" } else { "none" };
        writeln!(out, "{:<24}{readers:<10}{:>11.1}{:>11.1}", row.what, row.median_us, row.p99_us)?;
    }
    writeln!(out, "\nread sections\n{:<28}{:>9}{:>9}", "", "threads", "ns")?;
    for row in &report.sections {
        writeln!(out, "{:<28}{:>9}{:>9.2}", row.of, row.threads, row.ns)?;
    }
    super::linux_and_targets(&mut out, None, &report.targets)?;
    Ok(out)
}
