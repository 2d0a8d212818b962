//! `skep bench flow-dissector`: its options and its tables.

use crate::failure::Failure;
use crate::output;
use skep_bench::flow::{self, Report, Row};
use std::fmt::{self, Write};

#[derive(clap::Args)]
pub(crate) struct Flow {
    /// How often each packet has its turn in each variant at each placement.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How often each variant is loaded, at another place each time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    placements: u32,
    /// Two rounds at one placement, to see that it works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Has the running kernel run the same objects as well: needs root or CAP_BPF, and loads fourteen programs.
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
pub(crate) fn main(args: &Flow) -> Result<(), Failure> {
    if args.only_linux {
        return flow::report_linux(&mut std::io::stdout().lock()).map_err(Failure::Refused);
    }
    let linux = super::asking_linux(args.linux, "flow-dissector")?;
    let (rounds, placements) = match args.quick {
        true => (args.rounds.min(2), 1),
        false => (args.rounds, args.placements),
    };
    let options = flow::Options { rounds, placements, linux };
    let report = flow::run(options, |what| eprintln!("measuring {what}")).map_err(Failure::Refused)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{} ({}), ns a packet, best of {} rounds, median of {} placements",
        report.cpu, report.arch, report.rounds, report.placements
    )?;
    writeln!(out, "net: without what a program takes that returns at once ({})\n", floor(report))?;
    writeln!(
        out,
        "{:<18}{:<8}{:<6}{:>9}{:>9}{:>10}{:>18}{:>10}{:>11}{:>9}",
        "packet", "parsers", "map", "ns", "net", "median", "placements", "Linux", "Linux net", "skep's"
    )?;
    for row in &report.rows {
        line(&mut out, row)?;
    }
    if let Some(reason) = &report.linux_unavailable {
        writeln!(out, "\nLinux was not asked: {reason}")?;
    }
    if let Some(release) = &report.linux_release {
        writeln!(out, "\nLinux {release}; skep's part of its net time, with tail calls")?;
    }
    for target in &report.targets {
        writeln!(
            out,
            "  {:<40}{:>6.2}, at most {:.1}: {}",
            target.name,
            target.value,
            target.target,
            if target.met { "met" } else { "missed" }
        )?;
    }
    Ok(out)
}

fn floor(report: &Report) -> String {
    let linux = report.floor.ns_linux.map_or_else(String::new, |ns| format!(", Linux {ns:.1}"));
    format!("{:.1} ns{linux}", report.floor.ns)
}

fn line(out: &mut String, row: &Row) -> fmt::Result {
    let placements = format!("{:.1} to {:.1}", row.ns_best_placement, row.ns_worst_placement);
    write!(
        out,
        "{:<18}{:<8}{:<6}{:>9.1}{:>9.1}{:>10.1}{placements:>18}",
        row.packet,
        if row.tail_calls { "jump" } else { "called" },
        if row.map_update { "yes" } else { "no" },
        row.ns,
        row.ns_net,
        row.ns_median,
    )?;
    match (row.ns_linux, row.ns_linux_net) {
        (Some(ns), Some(net)) => writeln!(out, "{ns:>10.1}{net:>11.1}{:>9.2}", row.ns_net / net),
        _ => writeln!(out),
    }
}
