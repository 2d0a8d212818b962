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
mod layout;
mod programs;
mod targets;

use crate::itlb::{self, Model};
use crate::progress;
use crate::report::{Column, Report};
use calls::{FOOTPRINT_PAGES, Footprint, Order, QUICK_FOOTPRINT_PAGES, Runner, STEPS};
use counters::Counter;
use layout::Layout;
use programs::Code;
use serde::Serialize;

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

/// A large native footprint.
#[derive(Clone, Copy, Debug, Serialize)]
struct FootprintShape {
    /// Pages with one function each.
    pages: usize,
    /// Functions called between two programs.
    steps: usize,
}

/// One measurement.
#[derive(Debug, Serialize)]
struct Row {
    /// Programs called.
    n: usize,
    /// Bytes of code of each, give or take a tenth.
    size: usize,
    /// `random` or `round-robin`.
    order: &'static str,
    /// `none`, or `large`: other code runs between the calls, and the times are the programs' part.
    footprint: &'static str,
    /// Nanoseconds a call, each program at the start of its own page.
    ns_page: f64,
    /// The same with the programs at different cache lines of their pages.
    ns_page_coloured: f64,
    /// In packs on pages of 4 KiB.
    ns_pack4k: f64,
    /// In packs on huge pages; `None` where the system gave none.
    ns_pack2m: Option<f64>,
    /// Time in the largest packs against that on a page each, per cent.
    change_percent: f64,
    /// Why the system gave no huge pages.
    huge_refused: Option<String>,
    bytes_per_program: ByLayout,
    memory_per_code_byte: ByLayout,
    /// Misses of the instruction TLB for each call, as the processor counts them, code between the calls included;
    /// `None` without counters.
    itlb_misses_per_call: Option<ByLayout>,
    /// Misses of its first level that the second level had, where the processor counts those.
    itlb_l1_misses_per_call: Option<ByLayout>,
}

/// A number for each layout.
#[derive(Clone, Copy, Debug, Serialize)]
struct ByLayout {
    page: f64,
    pack4k: f64,
    pack2m: f64,
}

/// Runs the benchmark.
///
/// # Errors
///
/// The system or the runtime refuses something, or a program returns a wrong result.
pub(crate) fn run(args: &Args, quick: bool) -> Result<Report, String> {
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
    report.field("rounds", rounds).field("placements", placements);
    report.field("footprint", FootprintShape { pages, steps: STEPS });
    report.note(format!(
        "footprint large: {STEPS} functions of {pages} on pages of their own between two programs; times are the \
         programs' part"
    ));
    let case: [Column<'_>; 4] =
        [("n", "n", 0), ("size", "size", 0), ("order", "order", 0), ("footprint", "footprint", 0)];
    let columns = [
        ("page", "ns_page", 2),
        ("coloured", "ns_page_coloured", 2),
        ("4 KiB", "ns_pack4k", 2),
        ("2 MiB", "ns_pack2m", 2),
        ("change %", "change_percent", 1),
        ("bytes/program", "bytes_per_program.pack4k", 0),
        ("bytes/code byte", "memory_per_code_byte.pack4k", 2),
    ];
    report.table("rows", "calls", &rows, &[&case[..], &columns].concat());
    if let Some(reason) = rows.iter().find_map(|row| row.huge_refused.as_ref()) {
        report.note(format!("no huge pages in some rows: {reason}"));
    }
    let columns = [
        ("page", "itlb_misses_per_call.page", 3),
        ("4 KiB", "itlb_misses_per_call.pack4k", 3),
        ("2 MiB", "itlb_misses_per_call.pack2m", 3),
        ("first level alone: page", "itlb_l1_misses_per_call.page", 3),
        ("4 KiB", "itlb_l1_misses_per_call.pack4k", 3),
        ("2 MiB", "itlb_l1_misses_per_call.pack2m", 3),
    ];
    report.field("counters", counters.all.is_ok().then_some(Counter::EVENT));
    report.field("counters_missing", counters.all.as_ref().err());
    match &counters.all {
        Ok(_) => {
            let title = format!("{} for each call, code between the calls included", Counter::EVENT);
            report.view("rows", &title, &[&case[..], &columns].concat());
        }
        Err(reason) => report.note(format!("no counters: {reason}")),
    }
    show_model(&mut report, &model);
    Ok(report.targets(targets::targets(&rows, &model)))
}

fn show_model(report: &mut Report, model: &Model) {
    report.field("model", model);
    let columns = [("misses %", "misses_change_percent", 2), ("walks %", "walks_change_percent", 2)];
    report.view("model.published", "instruction TLBs, published change from a page each to packs", &columns);
    for (at, processor) in model.processors.iter().enumerate() {
        let columns = [
            ("layout", "layout", 0),
            ("misses", "l1_misses_per_1000", 3),
            ("change %", "l1_change_percent", 1),
            ("walks", "walks_per_1000", 4),
            ("change %", "walks_change_percent", 1),
        ];
        let title =
            format!("modelled, {}, for 1000 instructions of the published experiment", processor.name);
        report.view(&format!("model.processors.{at}.layouts"), &title, &columns);
    }
    let columns = [
        ("processor", "processor", 0),
        ("layout", "layout", 0),
        ("assumption", "varied", 0),
        ("misses %", "l1_change_percent", 1),
        ("walks %", "walks_change_percent", 1),
    ];
    report.view("model.sensitivity", "the change under other assumptions", &columns);
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
    fn measure(&self, rounds: u32, placements: u32, counters: &Counters) -> Result<Row, String> {
        let n = self.codes.len();
        let turns = calls::turns(n, self.order);
        let mut layouts: Vec<(Layout, Vec<Runner>)> = Vec::new();
        for layout in Layout::ALL {
            let runners = (0..placements as usize)
                .map(|placement| Ok(Runner::new(layout::place(self.codes, layout, placement)?, turns.len())))
                .collect::<Result<_, String>>()?;
            layouts.push((layout, runners));
        }
        let mut nothing = f64::INFINITY;
        for round in 0..rounds as usize {
            let number = round % turns.len();
            if let Some(footprint) = self.footprint {
                nothing = nothing.min(calls::without_programs(turns[number].len(), footprint));
            }
            for (_, runners) in &mut layouts {
                for runner in runners {
                    runner.turn(number, &turns[number], self.footprint);
                }
            }
        }
        let nothing = if self.footprint.is_some() { nothing } else { 0.0 };
        let of = |wanted: Layout| -> &[Runner] {
            layouts.iter().find(|(layout, _)| *layout == wanted).map_or(&[], |(_, runners)| runners)
        };
        let ns = |layout| mean(of(layout), Runner::ns) - nothing;
        let code: usize = self.codes.iter().map(|code| code.bytes.len()).sum();
        let memory = |by: usize| {
            let of = |layout| mean(of(layout), |runner| runner.placed.memory as f64) / by as f64;
            ByLayout { page: of(Layout::Page), pack4k: of(Layout::Pack4k), pack2m: of(Layout::Pack2m) }
        };
        let huge_refused = of(Layout::Pack2m).iter().find_map(|runner| runner.placed.refused.clone());
        let misses = |counter: &Counter| -> ByLayout {
            let calls = turns[0].len() as f64;
            let of = |layout| {
                mean(of(layout), |runner| {
                    runner.walk(&turns[0], self.footprint);
                    counter.count(|| runner.walk(&turns[0], self.footprint)) as f64 / calls
                })
            };
            ByLayout { page: of(Layout::Page), pack4k: of(Layout::Pack4k), pack2m: of(Layout::Pack2m) }
        };
        let ns_pack2m = huge_refused.is_none().then(|| ns(Layout::Pack2m));
        Ok(Row {
            n,
            size: self.size,
            order: self.order.name(),
            footprint: if self.footprint.is_some() { "large" } else { "none" },
            ns_page: ns(Layout::Page),
            ns_page_coloured: ns(Layout::Coloured),
            ns_pack4k: ns(Layout::Pack4k),
            ns_pack2m,
            change_percent: (ns_pack2m.unwrap_or(ns(Layout::Pack4k)) / ns(Layout::Page) - 1.0) * 100.0,
            huge_refused,
            bytes_per_program: memory(n),
            memory_per_code_byte: memory(code),
            itlb_misses_per_call: counters.all.as_ref().ok().map(misses),
            itlb_l1_misses_per_call: counters.first_level.as_ref().map(misses),
        })
    }
}

fn mean(runners: &[Runner], of: impl Fn(&Runner) -> f64) -> f64 {
    runners.iter().map(of).sum::<f64>() / runners.len() as f64
}
