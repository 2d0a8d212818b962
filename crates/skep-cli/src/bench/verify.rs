//! `skep bench verify`: its options and its tables.

use crate::failure::Failure;
use crate::output;
use skep_bench::verify::{self, Report};
use std::fmt::{self, Write};

#[derive(clap::Args)]
pub(crate) struct Verify {
    /// How often each program is verified; those that take long are verified less often.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Two rounds, to see that it works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Verify) -> Result<(), Failure> {
    let rounds = if args.quick { args.rounds.min(2) } else { args.rounds };
    let report = verify::run(verify::Options { rounds }, |what| eprintln!("measuring {what}"))
        .map_err(Failure::Refused)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(out, "{} ({}), median of up to {} rounds\n", report.cpu, report.arch, report.rounds)?;
    writeln!(
        out,
        "{:<22}{:<11}{:>7}{:>10}{:>9}{:>10}{:>12}{:>12}{:>11}",
        "program", "group", "insns", "walked", "states", "KiB", "us", "best us", "ns/walked"
    )?;
    for row in &report.rows {
        writeln!(
            out,
            "{:<22}{:<11}{:>7}{:>10}{:>9}{:>10.1}{:>12.1}{:>12.1}{:>11.1}",
            row.program,
            row.group,
            row.insns,
            row.walked,
            row.peak_states,
            row.peak_bytes as f64 / 1024.0,
            row.us,
            row.us_best,
            row.ns_per_walked
        )?;
    }
    writeln!(out, "\nin sum")?;
    for sum in &report.sums {
        writeln!(
            out,
            "  {:<10}{:>4} programs, {:>9} walked in {:>10.1} us: {:.1} ns each (best: {:.1})",
            sum.of, sum.programs, sum.walked, sum.us, sum.ns_per_walked, sum.ns_per_walked_best
        )?;
    }
    for row in &report.rows {
        if let Some(bytes) = row.peak_resident_bytes {
            writeln!(
                out,
                "  {}: the process grew by {:.1} MiB",
                row.program,
                bytes as f64 / f64::from(1 << 20)
            )?;
        }
    }
    writeln!(out, "\ntargets")?;
    for target in &report.targets {
        writeln!(
            out,
            "  {:<36}{:>9.1} {:<4}at most {:.0}: {}",
            target.name,
            target.value,
            target.unit,
            target.target,
            if target.met { "met" } else { "missed" }
        )?;
    }
    Ok(out)
}
