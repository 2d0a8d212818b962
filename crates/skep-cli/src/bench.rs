//! `skep bench`: the benchmarks, as text for people or JSON for scripts.

use crate::failure::Failure;
use clap::Subcommand;
use skep_bench::exec::{self, Placed, Report};

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Running speed, code size and load time against rbpf, solana-sbpf and native code.
    Exec(Exec),
}

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
pub(crate) fn main(bench: &Bench) -> Result<(), Failure> {
    let Bench::Exec(args) = bench;
    let options = exec::Options { rounds: args.rounds, interpreter: !args.no_interpreter };
    let report = exec::run(options, |name| eprintln!("measuring {name}")).map_err(Failure::Refused)?;
    if args.json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| Failure::Refused(error.to_string()))?;
        println!("{text}");
    } else {
        tell(&report);
    }
    Ok(())
}

fn tell(report: &Report) {
    const ENGINES: [&str; 6] = ["native", "skep", "rbpf", "sbpf-unchecked", "sbpf", "skep-interpreter"];
    println!("{} ({}), best of {} placements, ns per run", report.cpu, report.arch, report.placements);
    println!(
        "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "program", "native", "skep", "rbpf", "sbpf, no", "sbpf", "skep,", "bytes"
    );
    println!(
        "{:<16}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "", "", "", "", "checks", "", "interpreted", "/insn"
    );
    for row in &report.rows {
        print!("{:<16}", row.program);
        for (engine, width) in ENGINES.iter().zip([10, 10, 10, 10, 10, 12]) {
            match row.ns.get(engine) {
                Some(Placed { best, .. }) => print!("{best:>width$.1}"),
                None => print!("{:>width$}", "-"),
            }
        }
        println!("{:>8.2}", row.code_bytes as f64 / row.insns as f64);
    }
    println!("\ntime relative to native code, geometric mean over the programs that all run");
    for (engine, ratio) in &report.geomean {
        println!(
            "  {engine:<18}{:>6.2} best placement, {:>6.2} worst ({} programs)",
            ratio.best, ratio.worst, ratio.programs
        );
    }
    println!("\nskep's time relative to others', geometric mean over what both run");
    for (engine, ratio) in &report.skep_against {
        println!(
            "  {engine:<18}{:>6.3} best placement, {:>6.3} worst ({} programs)",
            ratio.best, ratio.worst, ratio.programs
        );
    }
    println!("\n{:.2} bytes of machine code per BPF instruction", report.bytes_per_insn);
    println!("\nfrom bytes to runnable, microseconds");
    for load in &report.load {
        println!(
            "  {:>5} instructions: skep {:.1} (verify {:.1}, compile and install {:.1}), rbpf without a verifier {:.1}",
            load.insns, load.skep_us, load.skep_verify_us, load.skep_jit_us, load.rbpf_us
        );
    }
    let failed: Vec<String> = report
        .rows
        .iter()
        .flat_map(|row| row.failed.iter().map(move |(engine, reason)| format!("  {}: {engine}: {reason}", row.program)))
        .filter(|line| !line.contains("no maps") && !line.contains("no native"))
        .collect();
    if !failed.is_empty() {
        println!("\nwhat opponents cannot run\n{}", failed.join("\n"));
    }
}
