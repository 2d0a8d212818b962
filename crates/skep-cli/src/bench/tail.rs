//! `skep bench tail-call`: its options and its tables.

use crate::failure::Failure;
use crate::output;
use skep_bench::tail::{self, Report};
use std::fmt::{self, Write};

#[derive(clap::Args)]
pub(crate) struct TailCall {
    /// How often everything has its turn.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// At how many places in code memory everything lies.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    placements: u32,
    /// A round, a place and no more than 256 programs, to see that it works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Has the running kernel make the same calls as well: needs root or CAP_BPF, and loads about a hundred programs.
    #[arg(long)]
    linux: bool,
    /// Prints what the running kernel takes, and nothing else.
    #[arg(long, hide = true, conflicts_with_all = ["linux", "json", "quick"])]
    only_linux: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &TailCall) -> Result<(), Failure> {
    if args.only_linux {
        return tail::report_linux(&mut std::io::stdout().lock()).map_err(Failure::Refused);
    }
    let linux = super::asking_linux(args.linux, "tail-call")?;
    let options = match args.quick {
        true => tail::Options { rounds: 1, placements: 1, most_programs: 256, updates: 2000, linux },
        false => tail::Options {
            rounds: args.rounds,
            placements: args.placements,
            most_programs: u32::MAX,
            updates: 1_000_000,
            linux,
        },
    };
    let report = tail::run(options, |what| eprintln!("measuring: {what}")).map_err(Failure::Refused)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{} ({}), best of {} rounds, median of {} places, ns for each tail call\n",
        report.cpu, report.arch, report.rounds, report.placements
    )?;
    writeln!(
        out,
        "{:<10}{:>10}  {:<12}{:>8}{:>8}{:>8}{:>8}",
        "kind", "programs", "in", "ns", "best", "worst", "Linux"
    )?;
    for row in &report.rows {
        let place = if row.subprogram { "subprogram" } else { "program" };
        let linux = row.ns_linux.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.2}"));
        writeln!(
            out,
            "{:<10}{:>10}  {place:<12}{:>8.2}{:>8.2}{:>8.2}{linux:>8}",
            row.kind.name(),
            row.programs,
            row.ns,
            row.ns_best,
            row.ns_worst
        )?;
    }
    writeln!(out, "\na chain of 33 direct calls: {:.1} ns", report.chain33_ns)?;
    writeln!(
        out,
        "an update: {:.0} ns beside a thread that runs through it ({:.0} in a second), {:.0} ns alone",
        report.update_ns, report.updates_per_s, report.update_idle_ns
    )?;
    if let Some(reason) = &report.linux_unavailable {
        writeln!(out, "Linux was not asked: {reason}")?;
    }
    writeln!(out, "\ntargets")?;
    for target in &report.targets {
        writeln!(
            out,
            "  {:<40}{:>9.2} {:<4}at most {}: {}",
            target.name,
            target.value,
            target.unit,
            target.target,
            if target.met { "met" } else { "missed" }
        )?;
    }
    Ok(out)
}
