//! `skep bench pack`: its options and its tables.

use crate::failure::Failure;
use crate::output;
use skep_bench::itlb::Model;
use skep_bench::pack::{self, ByLayout, Report};
use std::fmt::{self, Write};

#[derive(clap::Args)]
pub(crate) struct Pack {
    /// How often each layout gets its turn at each placement.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Places that the programs are put at, for each layout.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    placements: u32,
    /// At most 160 programs, few rounds: a look whether it works.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Pack) -> Result<(), Failure> {
    let Pack { mut rounds, mut placements, quick, json } = *args;
    if quick {
        (rounds, placements) = (rounds.min(4), 1);
    }
    let options = pack::Options { rounds, placements, quick };
    let report = pack::run(options, |what| eprintln!("measuring {what}")).map_err(Failure::Refused)?;
    if json {
        return output::json(&report);
    }
    output::text(&told(&report).map_err(|error| Failure::Refused(error.to_string()))?)
}

fn told(report: &Report) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "{} ({}), ns a call, best of {} rounds, mean of {} placements",
        report.cpu, report.arch, report.rounds, report.placements
    )?;
    writeln!(
        out,
        "footprint large: {} functions of {} on pages of their own between two programs; times are the programs' part",
        report.footprint.steps, report.footprint.pages
    )?;
    writeln!(
        out,
        "\n{:>5} {:>5}  {:<12}{:<10}{:>9}{:>10}{:>9}{:>9}{:>9}{:>12}{:>12}",
        "n",
        "size",
        "order",
        "footprint",
        "page",
        "coloured",
        "4 KiB",
        "2 MiB",
        "change",
        "B/program",
        "B/code byte"
    )?;
    for row in &report.rows {
        let best = row.ns_pack2m.unwrap_or(row.ns_pack4k);
        let huge = row.ns_pack2m.map_or_else(|| "-".into(), |ns| format!("{ns:.2}"));
        writeln!(
            out,
            "{:>5} {:>5}  {:<12}{:<10}{:>9.2}{:>10.2}{:>9.2}{huge:>9}{:>8.1}%{:>12.0}{:>12.2}",
            row.n,
            row.size,
            row.order,
            row.footprint,
            row.ns_page,
            row.ns_page_coloured,
            row.ns_pack4k,
            (best / row.ns_page - 1.0) * 100.0,
            row.bytes_per_program.pack4k,
            row.memory_per_code_byte.pack4k,
        )?;
    }
    if let Some(reason) = report.rows.iter().find_map(|row| row.huge_refused.as_ref()) {
        writeln!(out, "\nno huge pages in some rows: {reason}")?;
    }
    match (&report.counters, &report.counters_missing) {
        (Some(event), _) => {
            writeln!(
                out,
                "\n{event} a call, what is between included; in brackets those that only the first level missed"
            )?;
            writeln!(
                out,
                "{:>5} {:>5}  {:<12}{:<10}{:>17}{:>17}{:>17}",
                "n", "size", "order", "footprint", "page", "4 KiB", "2 MiB"
            )?;
            for row in &report.rows {
                let Some(all) = row.itlb_misses_per_call else { continue };
                let first = row.itlb_l1_misses_per_call;
                write!(out, "{:>5} {:>5}  {:<12}{:<10}", row.n, row.size, row.order, row.footprint)?;
                for of in [|by: ByLayout| by.page, |by: ByLayout| by.pack4k, |by: ByLayout| by.pack2m] {
                    let first = first.map_or_else(String::new, |by| format!(" ({:.3})", of(by)));
                    write!(out, "{:>17}", format!("{:.3}{first}", of(all)))?;
                }
                writeln!(out)?;
            }
        }
        (None, Some(reason)) => writeln!(out, "\nno counters: {reason}")?,
        (None, None) => {}
    }
    model(&mut out, &report.model)?;
    writeln!(out, "\naims")?;
    for target in &report.targets {
        writeln!(
            out,
            "  {:<7}{:>8.2} of {:>6.2} {}",
            if target.met { "met" } else { "MISSED" },
            target.measured,
            target.wanted,
            target.what
        )?;
    }
    Ok(out)
}

fn model(out: &mut String, model: &Model) -> fmt::Result {
    writeln!(
        out,
        "\nmodelled instruction TLBs, the published experiment's shape (published: misses {:.2} % a second, walks {:.2} %)",
        model.published.misses_change_percent, model.published.walks_change_percent
    )?;
    for processor in &model.processors {
        for layout in &processor.layouts {
            writeln!(
                out,
                "  {:<14}{:<8} per 1000 instructions: misses {:>7.3} ({:>+6.1} %), walks {:>8.4} ({:>+6.1} %)",
                processor.name,
                layout.layout,
                layout.l1_misses_per_1000,
                layout.l1_change_percent,
                layout.walks_per_1000,
                layout.walks_change_percent
            )?;
        }
    }
    writeln!(out, "  per cent fewer misses where the assumptions are others")?;
    for row in &model.sensitivity {
        writeln!(
            out,
            "    {:<14}{:<8}{:<44} misses {:>+6.1} %, walks {:>+6.1} %",
            row.processor, row.layout, row.varied, row.l1_change_percent, row.walks_change_percent
        )?;
    }
    Ok(())
}
