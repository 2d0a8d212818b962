//! `skep-bench pack`: many programs on a page each, in packs, and in packs on huge pages.
//!
//! Measured is the time of a call among many programs. The code is the same byte for byte; the layouts differ in the
//! translations of addresses and in the lines of the instruction cache that they need. All layouts take turns in every
//! round. A row is the best of the rounds for each turn and each placement, averaged over turns and placements, since a
//! placement of a few pages can be lucky.
//!
//! Rows with a footprint give the *program part*: the time of calls and walks together, less the time of the same walks
//! around the empty program.

mod calls;
mod counters;
pub(crate) mod layout;
mod programs;

use crate::report::{Report, Target, find, number};
use crate::{Common, Result, itlb, progress};
use calls::{FOOTPRINT_PAGES, Footprint, Order, QUICK_FOOTPRINT_PAGES, Runner, STEPS};
use counters::Counter;
use layout::Layout;
use programs::Code;
use serde_json::{Value, json};

/// Sizes of programs in bytes.
const SIZES: [usize; 2] = [150, 600];
/// Numbers of programs.
const COUNTS: [usize; 7] = [8, 100, 160, 500, 1000, 2000, 8000];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which each layout takes its turn at each placement.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Places that the programs are put at, for each layout.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    placements: u32,
}

/// Runs the benchmark.
///
/// # Errors
///
/// The system or the runtime refuses something, or a program returns a wrong result.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let quick = common.quick;
    let (rounds, placements) = if quick { (args.rounds.min(4), 1) } else { (args.rounds, args.placements) };
    progress("the model of instruction TLBs");
    let model = itlb::model(quick);
    progress("compiling");
    let pages = if quick { QUICK_FOOTPRINT_PAGES } else { FOOTPRINT_PAGES };
    let footprint = Footprint::new(pages)?;
    let counters = Counters { all: Counter::itlb_misses(), first_level: Counter::second_level_hits() };
    let counts: Vec<usize> = COUNTS.into_iter().filter(|&count| !quick || count < 500).collect();
    let mut rows = Vec::new();
    for size in SIZES {
        let codes = programs::compile(counts.iter().copied().max().unwrap_or(0), size)?;
        for &n in &counts {
            progress(format!("{n} programs of {size} bytes"));
            for order in [Order::Random, Order::RoundRobin] {
                for footprint in [None, Some(&footprint)] {
                    let case = Case { codes: &codes[..n], size, order, footprint };
                    rows.push(case.measure(rounds, placements, &counters)?);
                }
            }
        }
    }
    let summary = format!("ns a call, best of {rounds} rounds, mean of {placements} placements");
    let mut report = Report::new("pack", summary);
    report.fields(json!({
        "rounds": rounds, "placements": placements,
        // Pages with one function each, and functions called between two programs.
        "footprint": {"pages": pages, "steps": STEPS},
        "counters": counters.all.is_ok().then_some(Counter::EVENT),
        "counters_missing": counters.all.as_ref().err(),
    }));
    report.note(format!(
        "footprint large: {STEPS} functions of {pages} on pages of their own between two programs; times are the \
         programs' part"
    ));
    let columns = "n; size; order; footprint; page = ns_page:2; coloured = ns_page_coloured:2; 4 KiB = ns_pack4k:2; \
                   2 MiB = ns_pack2m:2; change % = change_percent:1; bytes/program = bytes_per_program.pack4k; \
                   bytes/code byte = memory_per_code_byte.pack4k:2";
    report.table("rows", "calls", &rows, columns);
    if let Some(reason) = rows.iter().find_map(|row| row["huge_refused"].as_str()) {
        report.note(format!("no huge pages in some rows: {reason}"));
    }
    let columns = "n; size; order; footprint; page = itlb_misses_per_call.page:3; \
                   4 KiB = itlb_misses_per_call.pack4k:3; 2 MiB = itlb_misses_per_call.pack2m:3; \
                   first level alone: page = itlb_l1_misses_per_call.page:3; \
                   4 KiB = itlb_l1_misses_per_call.pack4k:3; 2 MiB = itlb_l1_misses_per_call.pack2m:3";
    match &counters.all {
        Ok(_) => {
            let title = format!("{} for each call, code between the calls included", Counter::EVENT);
            report.view("rows", &title, columns);
        }
        Err(reason) => report.note(format!("no counters: {reason}")),
    }
    show_model(&mut report, &model);
    Ok(report.targets(targets(&rows, &model)))
}

fn show_model(report: &mut Report, model: &Value) {
    report.fields(json!({"model": model}));
    let columns = "misses % = misses_change_percent:2; walks % = walks_change_percent:2";
    report.view("model.published", "instruction TLBs, published change from a page each to packs", columns);
    for (at, processor) in model["processors"].as_array().into_iter().flatten().enumerate() {
        let columns = "layout; misses = l1_misses_per_1000:3; change % = l1_change_percent:1; \
                       walks = walks_per_1000:4; change % = walks_change_percent:1";
        let name = processor["name"].as_str().unwrap_or_default();
        let title = format!("modelled, {name}, for 1000 instructions of the published experiment");
        report.view(&format!("model.processors.{at}.layouts"), &title, columns);
    }
    let columns = "processor; layout; assumption = varied; misses % = l1_change_percent:1; \
                   walks % = walks_change_percent:1";
    report.view("model.sensitivity", "the change under other assumptions", columns);
}

/// What this machine counts.
struct Counters {
    all: Result<Counter, String>,
    first_level: Option<Counter>,
}

/// What a row measures.
struct Case<'a> {
    codes: &'a [Code],
    size: usize,
    order: Order,
    footprint: Option<&'a Footprint>,
}

impl Case<'_> {
    fn measure(&self, rounds: u32, placements: u32, counters: &Counters) -> Result<Value> {
        let n = self.codes.len();
        let turns = calls::turns(n, self.order);
        let mut layouts: Vec<Vec<Runner>> = Vec::new();
        for layout in Layout::ALL {
            let place = |at| Ok(Runner::new(layout::place(self.codes, layout, at)?, turns.len()));
            layouts.push((0..placements as usize).map(place).collect::<Result<_>>()?);
        }
        let mut nothing = f64::INFINITY;
        for round in 0..rounds as usize {
            let number = round % turns.len();
            if let Some(footprint) = self.footprint {
                nothing = nothing.min(calls::without_programs(turns[number].len(), footprint));
            }
            for runner in layouts.iter_mut().flatten() {
                runner.turn(number, &turns[number], self.footprint);
            }
        }
        let nothing = if self.footprint.is_some() { nothing } else { 0.0 };
        let [page, coloured, pack4k, pack2m] = &layouts[..] else { return Err("four layouts".into()) };
        let ns = |runners: &[Runner]| mean(runners, Runner::ns) - nothing;
        let by_layout = |of: &dyn Fn(&Runner) -> f64| {
            let (page, pack4k, pack2m) = (mean(page, of), mean(pack4k, of), mean(pack2m, of));
            json!({"page": page, "pack4k": pack4k, "pack2m": pack2m})
        };
        let memory = |by: usize| by_layout(&|runner: &Runner| runner.placed.memory as f64 / by as f64);
        let misses = |counter: &Counter| {
            by_layout(&|runner: &Runner| {
                runner.walk(&turns[0], self.footprint);
                counter.count(|| runner.walk(&turns[0], self.footprint)) as f64 / turns[0].len() as f64
            })
        };
        let huge_refused = pack2m.iter().find_map(|runner| runner.placed.refused.clone());
        let ns_pack2m = huge_refused.is_none().then(|| ns(pack2m));
        Ok(json!({
            // Programs called, and bytes of code of each, give or take a tenth.
            "n": n, "size": self.size, "order": self.order,
            // `large`: other code runs between the calls, and the times are the programs' part.
            "footprint": if self.footprint.is_some() { "large" } else { "none" },
            // Nanoseconds a call: each program at the start of its own page, at different cache lines of their pages,
            // in packs on pages of 4 KiB, and in packs on huge pages where the system gave any.
            "ns_page": ns(page), "ns_page_coloured": ns(coloured), "ns_pack4k": ns(pack4k), "ns_pack2m": ns_pack2m,
            // Time in the largest packs against that on a page each.
            "change_percent": (ns_pack2m.unwrap_or(ns(pack4k)) / ns(page) - 1.0) * 100.0,
            // Why the system gave no huge pages.
            "huge_refused": huge_refused,
            "bytes_per_program": memory(n),
            "memory_per_code_byte": memory(self.codes.iter().map(|code| code.bytes.len()).sum()),
            // As the processor counts them, code between the calls included: misses of the instruction TLB, and those
            // of its first level that the second level had. `null` without counters.
            "itlb_misses_per_call": counters.all.as_ref().ok().map(misses),
            "itlb_l1_misses_per_call": counters.first_level.as_ref().map(misses),
        }))
    }
}

fn mean(runners: &[Runner], of: impl Fn(&Runner) -> f64) -> f64 {
    runners.iter().map(of).sum::<f64>() / runners.len() as f64
}

/// As far as the rows and the model can answer them.
fn targets(rows: &[Value], model: &Value) -> Vec<Target> {
    let mut targets = Vec::new();
    let wanted = [(160, "none", 20.0), (2000, "none", 45.0), (8000, "none", 45.0), (160, "large", 40.0)];
    for (n, footprint, wanted) in wanted {
        let key = json!({"n": n, "size": 150, "order": Order::Random, "footprint": footprint});
        let Some(row) = find(rows, &key) else { continue };
        let between = if footprint == "large" { ", between footprint calls" } else { "" };
        for (pack, key) in [("huge packs", "ns_pack2m"), ("4 KiB packs", "ns_pack4k")] {
            let less = (1.0 - number(row, key) / number(row, "ns_page")) * 100.0;
            if !less.is_nan() {
                let what =
                    format!("less time a call, {n} programs of 150 bytes, random order{between}, {pack}");
                targets.push(Target::at_least(what, "%", wanted, less));
            }
        }
    }
    for processor in model["processors"].as_array().into_iter().flatten() {
        for layout in processor["layouts"].as_array().into_iter().flatten().skip(1) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (name, layout_name) = (text(&processor["name"]), text(&layout["layout"]));
            let what = format!("fewer L1 iTLB misses, modelled, {name}, {layout_name}");
            targets.push(Target::at_least(what, "%", 60.0, -number(layout, "l1_change_percent")));
        }
    }
    // Among the most programs, where the one page that is partly used no longer counts.
    let most = rows.iter().filter_map(|row| row["n"].as_u64()).max().unwrap_or(0);
    for size in SIZES {
        let key = json!({"n": most, "size": size, "order": Order::Random, "footprint": "none"});
        if let Some(row) = find(rows, &key) {
            let what = format!("memory for each byte of code, {most} programs of {size} bytes, 4 KiB packs");
            let memory = number(row, "memory_per_code_byte.pack4k");
            targets.push(Target::at_most(what, "bytes", 1.10, memory));
        }
    }
    targets
}
