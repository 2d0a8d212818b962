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
    /// Has the running kernel verify those that it can as well: needs root or CAP_BPF, and loads some sixty programs.
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
pub(crate) fn main(args: &Verify) -> Result<(), Failure> {
    if args.only_linux {
        return verify::report_linux(&mut std::io::stdout().lock()).map_err(Failure::Refused);
    }
    let linux = super::asking_linux(args.linux, "verify")?;
    let rounds = if args.quick { args.rounds.min(2) } else { args.rounds };
    let report = verify::run(verify::Options { rounds, linux }, |what| eprintln!("measuring {what}"))
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
    linux(&mut out, report)?;
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

/// What the running kernel took, beside what skep did.
fn linux(out: &mut String, report: &Report) -> fmt::Result {
    if let Some(reason) = &report.linux_unavailable {
        writeln!(out, "\nLinux was not asked: {reason}")?;
    }
    let Some(release) = &report.linux_release else { return Ok(()) };
    writeln!(out, "\nLinux {release}, best of two; what it walks may be more or less than what skep does")?;
    writeln!(
        out,
        "{:<22}{:>10}{:>12}{:>11}{:>16}",
        "program", "walked", "us", "ns/walked", "times skep's us"
    )?;
    for row in &report.rows {
        let Some(linux) = &row.linux else { continue };
        match (linux.us, linux.walked, linux.ns_per_walked) {
            (Some(us), Some(walked), Some(each)) => {
                let times = us / row.us_best;
                writeln!(out, "{:<22}{walked:>10}{us:>12.1}{each:>11.1}{times:>16.1}", row.program)?;
            }
            _ => {
                let reason = linux.refused.as_deref().unwrap_or_default();
                writeln!(out, "{:<22} refused: {reason}", row.program)?;
            }
        }
    }
    Ok(())
}
