//! `skep-bench tail-call`: the time of a tail call, and of an update of the program array while another thread calls
//! through it.
//!
//! A run begins at one program and makes 33 tail calls. The time of a run that makes none is subtracted from its time,
//! and the rest divided by 33:
//!
//! ```text
//!   program 0 -> program 1 -> ... -> program 33      the 34th call falls through
//! ```
//!
//! Fewer programs form a ring. More form several chains, entered in a random order, so that the processor does not
//! expect the code. All take turns in rounds, at several places in code memory.

mod cases;
mod linux;

use crate::random::Random;
use crate::report::{Report, Target};
use crate::{Common, kernel, progress};
pub(crate) use linux::measure as measure_linux;
use serde::Serialize;
use skep::abi::{MAX_TAIL_CALLS, MapDef, MapKind, RAW};
use skep::{Object, Program, ProgramArray, Runtime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How many programs there are.
const PROGRAMS: [u32; 6] = [1, 4, 8, 33, 256, 4096];
/// Bytes of the buffer that they are given.
const BUFFER: usize = 8;
/// Runs that are timed together.
const BATCH: usize = 512;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which everything takes its turn.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How often everything is loaded, at another place in code memory each time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    placements: u32,
}

/// One kind of tail call among so many programs.
#[derive(Debug, Serialize)]
struct Row {
    kind: Kind,
    programs: u32,
    /// Whether each program calls a function that makes the tail call, and returns what comes back.
    subprogram: bool,
    /// Nanoseconds for each call: the best round, median of the places.
    ns: f64,
    /// At the best place.
    ns_best: f64,
    ns_worst: f64,
    /// The running kernel's; `None` where it was not measured.
    ns_linux: Option<f64>,
}

/// How a tail call finds its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A branch that is replaced when the element changes.
    Direct,
    /// The address in the map's table, at a known place.
    Slot,
    /// The address in the map's table, at an index that is found at run time.
    Indirect,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Direct, Self::Slot, Self::Indirect];

    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Slot => "slot",
            Self::Indirect => "indirect",
        }
    }
}

/// A program that goes on to the next one; at byte `zero` of its context there are four that are zero.
fn text(kind: Kind, next: u32, subprogram: bool, zero: u32) -> String {
    let index = match kind {
        Kind::Direct | Kind::Slot => format!("r3 = {next}"),
        // The verifier does not know that they are zero.
        Kind::Indirect => format!("r3 = *(u32 *)(r1 + {zero})\nw3 += {next}"),
    };
    let call = format!("{index}\nr2 = map[0] ll\ncall 12\nr0 = 0\nexit");
    if subprogram { format!("call leave\nexit\nleave:\n{call}") } else { call }
}

fn object(text: &str, entries: u32) -> Result<Object, String> {
    let insns = skep::isa::assemble(text).map_err(|error| error.to_string())?;
    let bytes = skep::isa::encode_bytes(&insns).map_err(|error| error.to_string())?;
    let def = MapDef::new("programs", MapKind::ProgArray, 4, 4, entries);
    Object::from_bytecode_and_maps("tail", &RAW, &bytes, vec![def]).map_err(|error| error.to_string())
}

/// Programs that lead to each other, and those that a run begins at.
struct Chain {
    kind: Kind,
    programs: u32,
    subprogram: bool,
    array: ProgramArray,
    heads: Vec<Program>,
    best: Duration,
}

impl Chain {
    fn new(runtime: &Runtime, kind: Kind, programs: u32, subprogram: bool) -> Result<Self, String> {
        Self::of(runtime, kind, programs, subprogram, |next| text(kind, next, subprogram, 0))
    }

    /// With these texts, each of the program that goes on to that one.
    fn of(
        runtime: &Runtime,
        kind: Kind,
        programs: u32,
        subprogram: bool,
        text: impl Fn(u32) -> String,
    ) -> Result<Self, String> {
        let mut array: Option<ProgramArray> = None;
        let mut heads = Vec::new();
        for index in 0..programs {
            let object = object(&text((index + 1) % programs), programs)?;
            let mut linker = runtime.linker(&object).buffer_len(BUFFER as u32);
            if let Some(array) = &array {
                linker = linker.map("programs", Arc::clone(array.map()));
            }
            let module = linker.load().map_err(|error| error.to_string())?;
            let array = match &array {
                Some(array) => array,
                None => array.insert(module.program_array("programs").ok_or("no array")?.clone()),
            };
            array.set(index, &module.programs()[0]).map_err(|error| error.to_string())?;
            let whole = index % (MAX_TAIL_CALLS + 1) == 0 && index + MAX_TAIL_CALLS < programs;
            if index == 0 || whole {
                heads.push(module.programs()[0].clone());
            }
        }
        Random(u64::from(programs)).shuffle(&mut heads);
        let array = array.ok_or("no programs")?;
        Ok(Self { kind, programs, subprogram, array, heads, best: Duration::MAX })
    }

    /// Runs through all heads, again and again.
    fn time(&mut self) -> Result<(), String> {
        self.best = self.best.min(time(&self.heads)?);
        Ok(())
    }
}

/// What a run of these takes, in turns.
fn time(programs: &[Program]) -> Result<Duration, String> {
    let mut buffer = [0u8; BUFFER];
    let started = Instant::now();
    let mut runs = 0;
    while runs < BATCH {
        for program in programs {
            program.run_raw(&mut buffer).map_err(|error| error.to_string())?;
        }
        runs += programs.len();
    }
    Ok(started.elapsed().div_f64(runs as f64 / BATCH as f64))
}

/// Measures everything.
///
/// # Errors
///
/// Code memory cannot be had.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report, String> {
    let failed = |error: skep::Error| error.to_string();
    let (rounds, placements, most_programs, count) =
        if common.quick { (1, 1, 256, 2000) } else { (args.rounds, args.placements, u32::MAX, 1_000_000) };
    let mut fixed = skep::jit::Options::default();
    fixed.fixed_code = true;
    let patched = Runtime::new().map_err(failed)?;
    let fixed = Runtime::builder().compile(fixed).build().map_err(failed)?;
    let runtime = |kind| if kind == Kind::Slot { &fixed } else { &patched };
    progress("loading");
    let mut chains = Vec::new();
    for _ in 0..placements {
        for kind in Kind::ALL {
            for subprogram in [false, true] {
                for programs in PROGRAMS.into_iter().filter(|programs| *programs <= most_programs) {
                    chains.push(Chain::new(runtime(kind), kind, programs, subprogram)?);
                }
            }
        }
    }
    let nothing = object("r0 = 0\nexit", 1)?;
    let nothing = patched.linker(&nothing).buffer_len(BUFFER as u32).load().map_err(failed)?;
    let mut floor = Duration::MAX;
    progress("tail calls");
    for _ in 0..rounds {
        floor = floor.min(time(nothing.programs())?);
        for chain in &mut chains {
            chain.time()?;
        }
    }
    let mut rows = rows(&chains, floor);
    let release = kernel::measure(common.linux, "tail-call", |answers| linux::fill(&mut rows, answers));
    progress("updates");
    let of = |chain: &&Chain| (chain.kind, chain.programs, chain.subprogram) == (Kind::Direct, 33, false);
    let chain = chains.iter().find(of).ok_or("no chain")?;
    let update_idle_ns = updates(chain, &patched, count, false)?.0;
    let (update_ns, updates_per_s) = updates(chain, &patched, count, true)?;

    let summary = format!("ns for each tail call, best of {rounds} rounds, median of {placements} places");
    let mut report = Report::new("tail-call", summary);
    let chain33 = find(&rows, Kind::Direct, 33, false) * f64::from(MAX_TAIL_CALLS);
    report.field("rounds", rounds).field("placements", placements).field("chain33_ns", chain33);
    let columns = [
        ("kind", "kind", 0),
        ("programs", "programs", 0),
        ("in a subprogram", "subprogram", 0),
        ("ns", "ns", 2),
        ("best", "ns_best", 2),
        ("worst", "ns_worst", 2),
        ("Linux", "ns_linux", 2),
    ];
    report.table("rows", "tail calls", &rows, &columns);
    report.note(format!("a chain of 33 direct calls: {chain33:.1} ns"));
    report.note(format!(
        "an update: {update_ns:.0} ns while another thread runs through it ({updates_per_s:.0} in a second), \
         {update_idle_ns:.0} ns alone"
    ));
    report.field("update_ns", update_ns).field("update_idle_ns", update_idle_ns);
    report.field("updates_per_s", updates_per_s);
    Ok(report.linux(&release).targets(targets(&rows, update_ns)))
}

/// Nanoseconds for each call, from the batches of runs.
fn ns(chain: &Chain, floor: Duration) -> f64 {
    let whole = chain.best.as_secs_f64() - floor.as_secs_f64();
    whole * 1e9 / BATCH as f64 / f64::from(MAX_TAIL_CALLS)
}

fn rows(chains: &[Chain], floor: Duration) -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        for subprogram in [false, true] {
            for programs in PROGRAMS {
                let of = |chain: &&Chain| {
                    (chain.kind, chain.programs, chain.subprogram) == (kind, programs, subprogram)
                };
                let mut places: Vec<f64> = chains.iter().filter(of).map(|chain| ns(chain, floor)).collect();
                places.sort_by(f64::total_cmp);
                let (Some(&ns_best), Some(&ns_worst)) = (places.first(), places.last()) else { continue };
                let ns = places[places.len() / 2];
                rows.push(Row { kind, programs, subprogram, ns, ns_best, ns_worst, ns_linux: None });
            }
        }
    }
    rows
}

fn find(rows: &[Row], kind: Kind, programs: u32, subprogram: bool) -> f64 {
    let wanted = |row: &&Row| (row.kind, row.programs, row.subprogram) == (kind, programs, subprogram);
    rows.iter().find(wanted).map_or(f64::NAN, |row| row.ns)
}

/// Replaces an element of the chain's again and again, with a thread that runs through it or none: nanoseconds for an
/// update, median of a thousand at a time, and how many there were in a second.
fn updates(chain: &Chain, runtime: &Runtime, count: u32, loaded: bool) -> Result<(f64, f64), String> {
    const TOGETHER: u32 = 1000;
    let failed = |error: skep::Error| error.to_string();
    let next = object(&text(Kind::Direct, 6, false, 0), chain.programs)?;
    let linker = runtime.linker(&next).buffer_len(BUFFER as u32);
    let other = linker.map("programs", Arc::clone(chain.array.map())).load().map_err(failed)?;
    let own = chain.array.get(5).ok_or("no program")?;
    let choices = [other.programs()[0].clone(), own];
    let (over, ready) = (AtomicBool::new(!loaded), AtomicBool::new(!loaded));
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                time(&chain.heads)?;
                ready.store(true, Ordering::Relaxed);
            }
            Ok(())
        });
        while !ready.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let started = Instant::now();
        let mut times = Vec::new();
        let mut update = || -> Result<(), String> {
            for _ in 0..count.div_ceil(TOGETHER) {
                let started = Instant::now();
                for round in 0..TOGETHER as usize {
                    chain.array.set(5, &choices[round % 2]).map_err(failed)?;
                }
                times.push(started.elapsed().as_secs_f64() * 1e9 / f64::from(TOGETHER));
            }
            Ok(())
        };
        let updated = update();
        let per_s = times.len() as f64 * f64::from(TOGETHER) / started.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        let ran: Result<(), String> = runner.join().map_err(|_| "the runner panicked".to_owned())?;
        updated.and(ran)?;
        times.sort_by(f64::total_cmp);
        Ok((times.get(times.len() / 2).copied().unwrap_or(f64::NAN), per_s))
    })
}

fn targets(rows: &[Row], update_ns: f64) -> Vec<Target> {
    let worst = |kind, subprogram| {
        let hot = PROGRAMS.into_iter().filter(|programs| *programs <= 33);
        hot.map(|programs| find(rows, kind, programs, subprogram)).fold(0.0, f64::max)
    };
    vec![
        Target::at_most("direct tail call, 1 to 33 programs", "ns", 0.6, worst(Kind::Direct, false)),
        Target::at_most("indirect tail call, 1 to 33 programs", "ns", 0.6, worst(Kind::Indirect, false)),
        Target::at_most("subprogram and tail call", "ns", 2.5, worst(Kind::Direct, true)),
        Target::at_most("update while another thread runs", "ns", 1000.0, update_ns),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that counts its run in the first word of its buffer, and goes on. The second word stays zero: an
    /// indirect call adds it to its index.
    fn counting(kind: Kind, next: u32, subprogram: bool) -> String {
        let call = text(kind, next, subprogram, 4);
        format!("r2 = *(u32 *)(r1 + 0)\nw2 += 1\n*(u32 *)(r1 + 0) = r2\n{call}")
    }

    #[test]
    fn every_chain_makes_33_calls() {
        let runtime = Runtime::new().unwrap();
        for programs in [1, 4, 33, 256] {
            for subprogram in [false, true] {
                for kind in [Kind::Direct, Kind::Indirect] {
                    let text = |next| counting(kind, next, subprogram);
                    let chain = Chain::of(&runtime, kind, programs, subprogram, text).unwrap();
                    assert_eq!(chain.heads.len() as u32, (programs / 34).max(1));
                    for head in &chain.heads {
                        let mut buffer = [0u8; BUFFER];
                        head.run_raw(&mut buffer).unwrap();
                        let runs = u32::from_ne_bytes(buffer[..4].try_into().unwrap());
                        let what = format!("{kind:?} among {programs} programs, subprogram: {subprogram}");
                        assert_eq!(runs - 1, MAX_TAIL_CALLS, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_tell_each_kind_among_each_number_of_programs() {
        let quick = Common { quick: true, ..Common::default() };
        let report = run(&Args { rounds: 1, placements: 1 }, quick).unwrap().json();
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3 * 2 * 5);
        assert!(rows.iter().all(|row| row["ns"].is_number()));
        assert!(report["updates_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(report["targets"].as_array().unwrap().len(), 4);
    }
}
