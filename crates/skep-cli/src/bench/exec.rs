//! `skep bench exec`: running speed against other engines and native code.

use crate::failure::Failure;
use crate::output;
use skep_bench::exec::{self, Placed, Report};
use std::fmt::{self, Write};

#[derive(clap::Args)]
pub(crate) struct Exec {
    /// How often each engine gets its turn at each placement.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leaves the interpreter out, which takes most of the time.
    #[arg(long)]
    no_interpreter: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Exec) -> Result<(), Failure> {
    let options = exec::Options { rounds: args.rounds, interpreter: !args.no_interpreter };
    let report = exec::run(options, |name| eprintln!("measuring {name}")).map_err(Failure::Refused)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    const ENGINES: [&str; 6] = ["native", "skep", "rbpf", "sbpf-unchecked", "sbpf", "skep-interpreter"];
    writeln!(out, "{} ({}), best of {} placements, ns per run", report.cpu, report.arch, report.placements)?;
    writeln!(out, "native: {} -O2", report.compiler)?;
    writeln!(
        out,
        "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "program", "native", "skep", "rbpf", "sbpf, no", "sbpf", "skep,", "bytes"
    )?;
    writeln!(
        out,
        "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "", "", "", "", "checks", "", "interpreted", "/insn"
    )?;
    for row in &report.rows {
        write!(out, "{:<16}", row.program)?;
        for (engine, width) in ENGINES.iter().zip([10, 10, 10, 10, 10, 12]) {
            match row.ns.get(engine) {
                Some(Placed { best, .. }) => write!(out, "{best:>width$.1}")?,
                None => write!(out, "{:>width$}", "-")?,
            }
        }
        writeln!(out, "{:>8.2}", row.code_bytes as f64 / row.insns as f64)?;
    }
    writeln!(out, "\ntime relative to native code, geometric mean over the programs that all run")?;
    for (engine, ratio) in &report.geomean {
        writeln!(
            out,
            "  {engine:<18}{:>6.2} best placement, {:>6.2} worst ({} programs)",
            ratio.best, ratio.worst, ratio.programs
        )?;
    }
    writeln!(out, "\nskep's time relative to others', geometric mean over what both run")?;
    for (engine, ratio) in &report.skep_against {
        writeln!(
            out,
            "  {engine:<18}{:>6.3} best placement, {:>6.3} worst ({} programs)",
            ratio.best, ratio.worst, ratio.programs
        )?;
    }
    writeln!(
        out,
        "\nmachine code per BPF instruction, as compiled here and for each architecture's newest processors"
    )?;
    writeln!(
        out,
        "  {:<18}{:>6.2} bytes, {:>6.3} instructions",
        "here", report.bytes_per_insn, report.native_insns_per_bpf_insn
    )?;
    for code in &report.architectures {
        writeln!(
            out,
            "  {:<18}{:>6.2} bytes, {:>6.3} instructions",
            code.arch, code.bytes_per_insn, code.native_insns_per_bpf_insn
        )?;
    }
    writeln!(out, "\nfrom bytes to runnable, microseconds")?;
    for load in &report.load {
        let rbpf = load.rbpf_us.map_or_else(|| "did not compile it".into(), |us| format!("{us:.1}"));
        writeln!(
            out,
            "  {:>5} instructions: skep {:.1} (verify {:.1}, compile and install {:.1}); rbpf, no verifier: {rbpf}",
            load.insns, load.skep_us, load.skep_verify_us, load.skep_jit_us
        )?;
    }
    let failed: Vec<String> = report
        .rows
        .iter()
        .flat_map(|row| {
            row.failed.iter().map(move |(engine, reason)| format!("  {}: {engine}: {reason}", row.program))
        })
        .filter(|line| !line.contains("no maps") && !line.contains("no native"))
        .collect();
    if !failed.is_empty() {
        writeln!(out, "\nwhat opponents cannot run\n{}", failed.join("\n"))?;
    }
    Ok(out)
}
