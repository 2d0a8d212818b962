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

use crate::kernel::{self, Answer, Linux};
use crate::programs::assembled;
use crate::random::Random;
use crate::report::{Report, Target, find, number};
use crate::timing::{beside, median, ns, sorted};
use crate::{Common, Result, progress};
use serde::Serialize;
use serde_json::{Value, json};
use skep::abi::{MAX_TAIL_CALLS, MapDef, MapKind, ProgramType, RAW, SCHED_CLS};
use skep::{Object, Program, ProgramArray, Runtime};
use std::sync::Arc;
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

/// How a tail call finds its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A branch that is replaced when the element changes.
    Direct,
    /// The address in the map's table, at a known place.
    Slot,
    /// The address in the map's table, at an index that is found at run time.
    Indirect,
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

/// The array of programs.
fn array(entries: u32) -> MapDef {
    MapDef::new("programs", MapKind::ProgArray, 4, 4, entries)
}

fn object(kind: &'static ProgramType, text: &str, entries: u32) -> Result<Object> {
    assembled("tail", kind, text, vec![array(entries)])
}

/// What a chain is, as the key of its row. `subprogram`: each program calls a function that makes the tail call, and
/// returns what comes back.
fn key(kind: Kind, programs: u32, subprogram: bool) -> Value {
    json!({"kind": kind, "programs": programs, "subprogram": subprogram})
}

/// Programs that lead to each other, and those that a run begins at.
struct Chain {
    key: Value,
    programs: u32,
    array: ProgramArray,
    heads: Vec<Program>,
    best: Duration,
}

impl Chain {
    /// `text` is the program that goes on to the program of that index.
    fn new(runtime: &Runtime, key: Value, programs: u32, text: impl Fn(u32) -> String) -> Result<Self> {
        let mut array: Option<ProgramArray> = None;
        let mut heads = Vec::new();
        for index in 0..programs {
            let object = object(&RAW, &text((index + 1) % programs), programs)?;
            let mut linker = runtime.linker(&object).buffer_len(BUFFER as u32);
            if let Some(array) = &array {
                linker = linker.map("programs", Arc::clone(array.map()));
            }
            let module = linker.load()?;
            let array = match &array {
                Some(array) => array,
                None => array.insert(module.program_array("programs").ok_or("no array")?.clone()),
            };
            array.set(index, &module.programs()[0])?;
            let whole = index % (MAX_TAIL_CALLS + 1) == 0 && index + MAX_TAIL_CALLS < programs;
            if index == 0 || whole {
                heads.push(module.programs()[0].clone());
            }
        }
        Random(u64::from(programs)).shuffle(&mut heads);
        Ok(Self { key, programs, array: array.ok_or("no programs")?, heads, best: Duration::MAX })
    }

    /// Nanoseconds for each call, from the batches of runs.
    fn ns(&self, floor: Duration) -> f64 {
        (ns(self.best) - ns(floor)) / BATCH as f64 / f64::from(MAX_TAIL_CALLS)
    }
}

/// What a batch of runs takes that begin at each of these programs in turn.
fn time(programs: &[Program]) -> Result<Duration> {
    let mut buffer = [0u8; BUFFER];
    let started = Instant::now();
    let mut runs = 0;
    while runs < BATCH {
        for program in programs {
            program.run_raw(&mut buffer)?;
        }
        runs += programs.len();
    }
    Ok(started.elapsed().div_f64(runs as f64 / BATCH as f64))
}

/// Measures everything.
///
/// # Errors
///
/// There is not enough code memory.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let (rounds, placements, most_programs, count) =
        if common.quick { (1, 1, 256, 2000) } else { (args.rounds, args.placements, u32::MAX, 1_000_000) };
    let mut fixed = skep::jit::Options::default();
    fixed.fixed_code = true;
    let patched = Runtime::new()?;
    let fixed = Runtime::builder().compile(fixed).build()?;
    progress("loading");
    // All chains of one placement, one after the other, for each placement.
    let mut chains = Vec::new();
    for _ in 0..placements {
        for kind in [Kind::Direct, Kind::Slot, Kind::Indirect] {
            let runtime = if kind == Kind::Slot { &fixed } else { &patched };
            for subprogram in [false, true] {
                for programs in PROGRAMS.into_iter().filter(|programs| *programs <= most_programs) {
                    let text = |next| text(kind, next, subprogram, 0);
                    chains.push(Chain::new(runtime, key(kind, programs, subprogram), programs, text)?);
                }
            }
        }
    }
    let nothing = object(&RAW, "r0 = 0\nexit", 1)?;
    let nothing = patched.linker(&nothing).buffer_len(BUFFER as u32).load()?;
    let mut floor = Duration::MAX;
    progress("tail calls");
    for _ in 0..rounds {
        floor = floor.min(time(nothing.programs())?);
        for chain in &mut chains {
            chain.best = chain.best.min(time(&chain.heads)?);
        }
    }
    let each = chains.len() / placements as usize;
    let row = |at: usize| {
        let places = sorted(chains[at..].iter().step_by(each).map(|chain| chain.ns(floor)));
        let mut row = chains[at].key.clone();
        // Nanoseconds for each call: the best round, at the median, the best and the worst place.
        row["ns"] = places[places.len() / 2].into();
        row["ns_best"] = places[0].into();
        row["ns_worst"] = places[places.len() - 1].into();
        // `null` where the kernel was not measured.
        row["ns_linux"] = Value::Null;
        row
    };
    let mut rows: Vec<Value> = (0..each).map(row).collect();
    let linux = Linux::measure(common.linux, "tail-call");
    linux.fill(&mut rows);
    progress("updates");
    let direct = key(Kind::Direct, 33, false);
    let chain = chains.iter().find(|chain| chain.key == direct).ok_or("no chain")?;
    let (update_idle_ns, _) = updates(chain, &patched, count, false)?;
    let (update_ns, updates_per_s) = updates(chain, &patched, count, true)?;

    let summary = format!("ns for each tail call, best of {rounds} rounds, median of {placements} places");
    let mut report = Report::new("tail-call", summary);
    let chain33 = find(&rows, &direct).map_or(f64::NAN, |row| number(row, "ns")) * f64::from(MAX_TAIL_CALLS);
    report.fields(json!({
        "rounds": rounds, "placements": placements, "chain33_ns": chain33,
        "update_ns": update_ns, "update_idle_ns": update_idle_ns, "updates_per_s": updates_per_s,
    }));
    let columns = "kind; programs; in a subprogram = subprogram; ns:2; best = ns_best:2; worst = ns_worst:2; \
                   Linux = ns_linux:2";
    report.table("rows", "tail calls", &rows, columns);
    report.note(format!("a chain of 33 direct calls: {chain33:.1} ns"));
    report.note(format!(
        "an update: {update_ns:.0} ns while another thread runs through it ({updates_per_s:.0} in a second), \
         {update_idle_ns:.0} ns alone"
    ));
    Ok(report.linux(&linux.release).targets(targets(&rows, update_ns)))
}

/// Replaces an element of the chain's again and again, while another thread runs through it or none: nanoseconds for an
/// update, median of a thousand at a time, and how many there were in a second.
fn updates(chain: &Chain, runtime: &Runtime, count: u32, loaded: bool) -> Result<(f64, f64)> {
    const TOGETHER: u32 = 1000;
    let next = object(&RAW, &text(Kind::Direct, 6, false, 0), chain.programs)?;
    let linker = runtime.linker(&next).buffer_len(BUFFER as u32);
    let other = linker.map("programs", Arc::clone(chain.array.map())).load()?;
    let choices = [other.programs()[0].clone(), chain.array.get(5).ok_or("no program")?];
    let update = || {
        let started = Instant::now();
        let mut times = Vec::new();
        for _ in 0..count.div_ceil(TOGETHER) {
            let started = Instant::now();
            for round in 0..TOGETHER as usize {
                chain.array.set(5, &choices[round % 2])?;
            }
            times.push(ns(started.elapsed()) / f64::from(TOGETHER));
        }
        let per_s = times.len() as f64 * f64::from(TOGETHER) / started.elapsed().as_secs_f64();
        Ok((median(times), per_s))
    };
    let run = |go: &dyn Fn() -> bool| {
        while go() {
            time(&chain.heads)?;
        }
        Ok(())
    };
    if loaded { Ok(beside(run, update)?.1) } else { update() }
}

fn targets(rows: &[Value], update_ns: f64) -> Vec<Target> {
    let worst = |kind, subprogram| {
        let hot = PROGRAMS.into_iter().filter(|programs| *programs <= 33);
        let ns = |programs| find(rows, &key(kind, programs, subprogram)).map(|row| number(row, "ns"));
        hot.filter_map(ns).fold(0.0, f64::max)
    };
    vec![
        Target::at_most("direct tail call, 1 to 33 programs", "ns", 0.6, worst(Kind::Direct, false)),
        Target::at_most("indirect tail call, 1 to 33 programs", "ns", 0.6, worst(Kind::Indirect, false)),
        Target::at_most("subprogram and tail call", "ns", 2.5, worst(Kind::Direct, true)),
        Target::at_most("update while another thread runs", "ns", 1000.0, update_ns),
    ]
}

/// Turns of each chain in the running kernel.
const ROUNDS: usize = 50;
/// Runs of a chain for each system call.
const REPEAT: u32 = 2_000;
/// The first of the words of a packet that are the program's own: zero at first.
const CB: u32 = 48;
/// A packet that every test run accepts.
const PACKET: [u8; 64] = [0; 64];
/// Kinds and numbers of programs that are measured in the running kernel, about a hundred programs in all. In
/// subprograms it allows tail calls only to programs with BTF, which these do not have.
const IN_KERNEL: [(Kind, &[u32]); 2] = [(Kind::Direct, &[1, 4, 8, 33]), (Kind::Indirect, &[1, 4, 8, 33])];

/// Has the running kernel do what skep is tested to do (`cases.rs`), and measures the same chains in it. A time is that
/// of a system call that makes [`REPEAT`] runs, less that of a system call whose program returns at once.
///
/// # Errors
///
/// bpf(2) may not be used, or the kernel's results differ from skep's.
pub(crate) fn measure_linux() -> Result<Vec<Answer>> {
    for case in cases::all() {
        case.ask_kernel().map_err(|error| format!("{}: {error}", case.name))?;
    }
    let floor = load_in_kernel("r0 = 0\nexit", &kernel::Map::new(&array(1))?)?;
    let mut answers = Vec::new();
    for (kind, programs) in IN_KERNEL.iter().flat_map(|(kind, sizes)| sizes.iter().map(|size| (*kind, *size)))
    {
        let array = kernel::Map::new(&array(programs))?;
        let mut chain = Vec::new();
        for index in 0..programs {
            let program = load_in_kernel(&text(kind, (index + 1) % programs, false, CB), &array)?;
            array.install(index, &program)?;
            chain.push(program);
        }
        let (mut best, mut least) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            least = least.min(floor.run(&PACKET, REPEAT)?.1);
            best = best.min(chain[0].run(&PACKET, REPEAT)?.1);
        }
        let ns = ns(best.saturating_sub(least)) / f64::from(REPEAT) / f64::from(MAX_TAIL_CALLS);
        answers.push((key(kind, programs, false), json!({"ns_linux": ns})));
    }
    Ok(answers)
}

fn load_in_kernel(text: &str, array: &kernel::Map) -> Result<kernel::Program> {
    std::thread::sleep(kernel::PAUSE);
    kernel::Program::load(&object(&SCHED_CLS, text, 1)?, "tail", &[array])
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
                    let chain = Chain::new(&runtime, Value::Null, programs, text).unwrap();
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
    fn about_a_hundred_programs_are_loaded_into_the_kernel() {
        let all: u32 = IN_KERNEL.iter().flat_map(|(_, sizes)| sizes.iter()).sum();
        assert!(all <= 110, "{all}");
    }
}
