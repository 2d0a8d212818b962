//! `skep bench map`: its options and its tables.

use crate::failure::Failure;
use crate::output;
use skep_bench::maps::{self, Report, Row};
use std::fmt::{self, Write};

#[derive(clap::Args)]
pub(crate) struct Map {
    /// How often everything has its turn.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A round and no more than 8192 elements, to see that it works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Only maps of this kind; may be given several times. Without, all kinds, and other crates' maps.
    #[arg(long, value_name = "KIND", value_parser = clap::builder::PossibleValuesParser::new(maps::kinds()))]
    kind: Vec<String>,
    /// Has the running kernel run the same programs as well: needs root or CAP_BPF, and loads some twenty programs.
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
pub(crate) fn main(args: &Map) -> Result<(), Failure> {
    if args.only_linux {
        return maps::report_linux(&mut std::io::stdout().lock()).map_err(Failure::Refused);
    }
    let linux = super::asking_linux(args.linux, "map")?;
    let kinds = args.kind.clone();
    let options = match args.quick {
        true => maps::Options { rounds: 1, windows: 4, most_entries: 8192, kinds, linux },
        false => maps::Options { rounds: args.rounds, windows: 64, most_entries: u32::MAX, kinds, linux },
    };
    let report = maps::run(options, |what| eprintln!("measuring: {what}")).map_err(Failure::Refused)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{} ({}), best of {} rounds, ns for each operation of one thread; the loop is in it\n",
        report.cpu, report.arch, report.rounds
    )?;
    writeln!(
        out,
        "{:<15}{:<9}{:<15}{:>9}{:>10}{:>11}{:>9}{:>11}",
        "map", "from", "operation", "elements", "1 thread", "2 threads", "Linux", "2 threads"
    )?;
    let number = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.1}"));
    for row in report.rows.iter().filter(|row| row.threads == 1) {
        let same = |other: &&Row| {
            (other.map, other.from, other.op, other.entries) == (row.map, row.from, row.op, row.entries)
        };
        let two = report.rows.iter().filter(|row| row.threads == 2).find(same);
        writeln!(
            out,
            "{:<15}{:<9}{:<15}{:>9}{:>10.1}{:>11}{:>9}{:>11}",
            row.map,
            row.from,
            row.op,
            row.entries,
            row.ns,
            number(two.map(|row| row.ns)),
            number(row.ns_linux),
            number(two.and_then(|row| row.ns_linux))
        )?;
    }
    for kind in &report.unavailable {
        writeln!(out, "{} is not there: {}", kind.map, kind.reason)?;
    }
    super::linux_and_targets(&mut out, report.linux_unavailable.as_deref(), &report.targets)?;
    Ok(out)
}
