//! `skep bench pack`: many programs on a page each, in packs, and in packs on huge pages.
//!
//! What is measured is the time of a call when the programs are many: translations of addresses and lines of the
//! instruction cache are what differs between the layouts, the code is the same byte for byte. All layouts take turns in
//! every round; a row is the best of the rounds for each turn and each placement, averaged over turns and placements,
//! for a lucky placement of a few pages in a cache is nobody's merit.
//!
//! Rows with a footprint give the *program part*: the time of calls and walks together, less the time of the same walks
//! around the empty program.

mod calls;
mod counters;
mod layout;
mod programs;
mod targets;

use crate::itlb::{self, Model};
use calls::{FOOTPRINT_PAGES, Footprint, Order, QUICK_FOOTPRINT_PAGES, Runner, STEPS};
use counters::Counter;
use layout::Layout;
use programs::Code;
use serde::Serialize;
pub use targets::Target;

/// Sizes of programs in bytes.
pub const SIZES: [usize; 2] = [150, 600];
/// Numbers of programs.
pub const COUNTS: [usize; 7] = [8, 100, 160, 500, 1000, 2000, 8000];

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often each layout gets its turn.
    pub rounds: u32,
    /// Places that the programs are put at, for each layout.
    pub placements: u32,
    /// Leaves out what takes long: 500 and more programs.
    pub quick: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { rounds: 40, placements: 3, quick: false }
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Architecture of this machine.
    pub arch: &'static str,
    /// Its processor, as the system names it.
    pub cpu: String,
    /// Rounds of turns.
    pub rounds: u32,
    /// Placements of each layout.
    pub placements: u32,
    /// What there is between the calls of rows with a footprint.
    pub footprint: FootprintShape,
    /// One row for each number, size, order and footprint.
    pub rows: Vec<Row>,
    /// The event that real counters counted; `None` where there are none.
    pub counters: Option<&'static str>,
    /// Why there are none.
    pub counters_missing: Option<String>,
    /// The model of instruction TLBs on the published experiment.
    pub model: Model,
    /// What was aimed at, and whether it was met.
    pub targets: Vec<Target>,
}

/// A large native footprint.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FootprintShape {
    /// Pages with one function each.
    pub pages: usize,
    /// Functions called between two programs.
    pub steps: usize,
}

/// One measurement.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Programs called.
    pub n: usize,
    /// Bytes of code of each, give or take a tenth.
    pub size: usize,
    /// `random` or `round-robin`.
    pub order: &'static str,
    /// `none`, or `large`: other code runs between the calls, and the times are the programs' part.
    pub footprint: &'static str,
    /// Nanoseconds a call, each program at the start of its own page.
    pub ns_page: f64,
    /// The same with the programs at different cache lines of their pages.
    pub ns_page_coloured: f64,
    /// In packs on pages of 4 KiB.
    pub ns_pack4k: f64,
    /// In packs on huge pages; `None` where the system gave none.
    pub ns_pack2m: Option<f64>,
    /// Why it gave none.
    pub huge_refused: Option<String>,
    /// ByLayout of a program.
    pub bytes_per_program: ByLayout,
    /// Bytes of memory for each byte of code.
    pub memory_per_code_byte: ByLayout,
    /// Misses of the instruction TLB, as the processor counts them, for each call, what is between calls included;
    /// `None` without counters.
    pub itlb_misses_per_call: Option<ByLayout>,
    /// Misses of its first level that the second level had, where the processor counts those.
    pub itlb_l1_misses_per_call: Option<ByLayout>,
}

/// A number for each layout.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ByLayout {
    /// A page each.
    pub page: f64,
    /// Packs on pages of 4 KiB.
    pub pack4k: f64,
    /// Packs on huge pages.
    pub pack2m: f64,
}

/// Runs the benchmark; `progress` is told what is measured as its turn comes.
///
/// # Errors
///
/// What the system or the runtime refuses, or a program that returns a wrong result.
pub fn run(options: Options, mut progress: impl FnMut(&str)) -> Result<Report, String> {
    progress("the model of instruction TLBs");
    let model = itlb::model(options.quick);
    progress("compiling");
    let pages = if options.quick { QUICK_FOOTPRINT_PAGES } else { FOOTPRINT_PAGES };
    let footprint = Footprint::new(pages)?;
    let counters = Counters { all: Counter::itlb_misses(), first_level: Counter::second_level_hits() };
    let counts: Vec<usize> = COUNTS.into_iter().filter(|&count| !options.quick || count < 500).collect();
    let mut rows = Vec::new();
    for size in SIZES {
        let codes = programs::compile(counts.iter().copied().max().unwrap_or(0), size)?;
        for &n in &counts {
            progress(&format!("{n} programs of {size} bytes"));
            for order in [Order::Random, Order::RoundRobin] {
                for footprint in [None, Some(&footprint)] {
                    let case = Case { codes: &codes[..n], size, order, footprint };
                    rows.push(case.measure(options, &counters)?);
                }
            }
        }
    }
    Ok(Report {
        arch: std::env::consts::ARCH,
        cpu: crate::exec::cpu(),
        rounds: options.rounds,
        placements: options.placements,
        footprint: FootprintShape { pages, steps: STEPS },
        targets: targets::targets(&rows, &model),
        rows,
        counters: counters.all.is_ok().then_some(Counter::EVENT),
        counters_missing: counters.all.err(),
        model,
    })
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
    fn measure(&self, options: Options, counters: &Counters) -> Result<Row, String> {
        let n = self.codes.len();
        let turns = calls::turns(n, self.order);
        let mut layouts: Vec<(Layout, Vec<Runner>)> = Vec::new();
        for layout in Layout::ALL {
            let runners = (0..options.placements as usize)
                .map(|placement| Ok(Runner::new(layout::place(self.codes, layout, placement)?, turns.len())))
                .collect::<Result<_, String>>()?;
            layouts.push((layout, runners));
        }
        let mut nothing = f64::INFINITY;
        for round in 0..options.rounds as usize {
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
        Ok(Row {
            n,
            size: self.size,
            order: self.order.name(),
            footprint: if self.footprint.is_some() { "large" } else { "none" },
            ns_page: ns(Layout::Page),
            ns_page_coloured: ns(Layout::Coloured),
            ns_pack4k: ns(Layout::Pack4k),
            ns_pack2m: huge_refused.is_none().then(|| ns(Layout::Pack2m)),
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
