//! `skep bench load`: the load test, as text for people or JSON for scripts.

use crate::failure::Failure;
use crate::output;
use skep_bench::load::{self, Report};
use std::fmt::{self, Write};

#[derive(clap::Args)]
pub(crate) struct Load {
    /// Runs a hundredth or so, to see that it works; its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Load) -> Result<(), Failure> {
    let options = load::Options { quick: args.quick };
    let report = load::run(options, |what| eprintln!("measuring {what}")).map_err(Failure::Refused)?;
    if args.json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(out, "{} ({})", report.cpu, report.arch)?;
    writeln!(
        out,
        "{} programs of {} instructions in all: {:.3} s ({:.3} s of this thread, {:.3} s in the background)",
        report.programs,
        report.instructions,
        report.seconds,
        report.cpu_seconds,
        report.background_cpu_seconds
    )?;
    writeln!(
        out,
        "{:.1} us a program, {:.1} ns an instruction",
        report.ns_per_program / 1e3,
        report.ns_per_instruction
    )?;
    for share in &report.shares {
        writeln!(out, "  {:<10}{:>8.3} s{:>7.1} %", share.what, share.seconds, share.percent)?;
    }
    if !report.quick {
        for published in &report.published {
            writeln!(
                out,
                "published: {:.3} s ({}), {:.1} times as long",
                published.seconds, published.what, published.times
            )?;
        }
    }
    writeln!(out)?;
    for install in &report.install {
        writeln!(
            out,
            "installing {} bytes ({}): {:.0} ns, freeing {:.0} ns; a page for each: {:.0} ns and {:.0} ns",
            install.bytes,
            install.backing,
            install.ns,
            install.free_ns,
            install.page_ns,
            install.page_free_ns
        )?;
    }
    let crowded = &report.crowded;
    writeln!(
        out,
        "among {} programs of {:.0} bytes: a place {:.0} ns, freeing {:.0} ns (and {:.0} ns in the background), \
         {:.1} % of the memory is code",
        crowded.programs,
        crowded.average_bytes,
        crowded.allocate_ns,
        crowded.free_ns,
        crowded.free_background_ns,
        crowded.utilisation_percent
    )?;
    writeln!(out, "\ntargets")?;
    for target in &report.targets {
        writeln!(
            out,
            "  {:<32}{:>9.1} {:<3}{} {:.1}: {}",
            target.name,
            target.value,
            target.unit,
            if target.at_least { "at least" } else { "at most" },
            target.target,
            if target.met { "met" } else { "missed" }
        )?;
    }
    Ok(out)
}
