//! `skep-bench exec-calls`: what the system call bpf(2) costs an application under `skep exec`.
//!
//! The application is this program again, under a supervisor: it looks elements up in a hash table and in an array, and
//! it loads a hundred programs, one after the other. A second application has the library that answers look-ups
//! (`--front preload`). With `--linux` the running kernel answers the same calls.
//!
//! | call | |
//! |---|---|
//! | `look_up` | `BPF_MAP_LOOKUP_ELEM` in a hash table of 64 elements |
//! | `look_up_array` | the same in an array of 64 elements |
//! | `load` | `BPF_PROG_LOAD`, of one of a hundred programs of twenty instructions |

use crate::kernel::{Linux, Map, PAUSE, Program};
use crate::report::{Report, Target};
use crate::timing::{median, ns, sorted};
use crate::{Common, Result, progress};
use serde_json::{Value, json};
use skep::abi::{MapDef, MapKind, ProgramType};
use skep::sys::SysEngine;
use skep::{Object, Runtime};
use skep_exec::{FrontChoice, Supervisor, possible_cpus};
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

/// Microseconds that a notified call may take.
const WANTED: f64 = 10.0;
/// Microseconds that a look-up may take which the library answers.
const WANTED_BY_LIBRARY: f64 = 0.2;
/// Calls that are timed together.
const BATCH: u32 = 100;
/// Programs of the application that loads.
const PROGRAMS: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often a hundred look-ups are timed.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Be the application.
    #[arg(long, hide = true)]
    pub(crate) application: bool,
}

/// What the application measures: microseconds of a call.
#[derive(serde::Serialize, serde::Deserialize)]
struct Measured {
    look_ups: Vec<f64>,
    array_look_ups: Vec<f64>,
    loads: Vec<f64>,
}

/// Makes the calls, which skep or the kernel answers. A pause follows each load.
fn calls(rounds: u32, pause: Duration) -> Result<Measured> {
    let look_ups = look_ups(MapKind::Hash, rounds)?;
    let array_look_ups = self::look_ups(MapKind::Array, rounds)?;
    let tc = ProgramType::from_name("tc").ok_or("no such type")?;
    let (mut loads, mut programs) = (Vec::new(), Vec::new());
    for number in 0..PROGRAMS {
        let text = format!("r0 = {number}\n{}exit", "r0 += 1\n".repeat(18));
        let object = Object::from_insns("adds", tc, skep::isa::assemble(&text)?);
        let started = Instant::now();
        programs.push(Program::load(&object, "adds", &[])?);
        loads.push(ns(started.elapsed()) / 1e3);
        std::thread::sleep(pause);
    }
    Ok(Measured { look_ups, array_look_ups, loads })
}

/// Microseconds of a look-up in a map of that kind, for each round.
fn look_ups(kind: MapKind, rounds: u32) -> Result<Vec<f64>> {
    let map = Map::new(&MapDef::new("numbers", kind, 4, 8, 64))?;
    for key in 0..64u32 {
        map.update(&key.to_ne_bytes(), &u64::from(key).to_ne_bytes())?;
    }
    let mut times = Vec::new();
    for round in 0..rounds {
        let started = Instant::now();
        for call in 0..BATCH {
            let key = (round + call) % 64;
            if map.lookup(&key.to_ne_bytes())? != u64::from(key).to_ne_bytes() {
                return Err(format!("key {key} has another value").into());
            }
        }
        times.push(ns(started.elapsed()) / 1e3 / f64::from(BATCH));
    }
    Ok(times)
}

/// What the application prints.
///
/// # Errors
///
/// A call fails.
pub(crate) fn application(args: &Args) -> Result<Value> {
    Ok(serde_json::to_value(calls(args.rounds, Duration::ZERO)?)?)
}

/// The same application under a supervisor.
fn supervised(front: FrontChoice, rounds: u32) -> Result<Measured> {
    let runtime = Runtime::builder().cpus(possible_cpus()?).share_maps(true).privileged(true).build()?;
    let (mut answer, out) = std::io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["exec-calls", "--application", "--rounds", &rounds.to_string()]).stdout(out);
    let status = Supervisor::new(SysEngine::new(runtime, None)).front(front).run(&mut command)?;
    // The pipe ends when nobody can write to it.
    drop(command);
    let mut text = String::new();
    answer.read_to_string(&mut text)?;
    if !status.success() {
        return Err(format!("the application failed: {status}").into());
    }
    Ok(serde_json::from_str(&text)?)
}

/// The figures of a row: the median and the best.
fn figures(times: &[f64], suffix: &str) -> Value {
    let times = sorted(times.iter().copied());
    json!({format!("us{suffix}"): median(times.iter().copied()), format!("us_best{suffix}"): times.first()})
}

/// Measures the running kernel.
///
/// # Errors
///
/// It refuses a call.
pub(crate) fn measure_linux() -> Result<Vec<crate::kernel::Answer>> {
    let Measured { look_ups, array_look_ups, loads } = calls(100, PAUSE)?;
    let row = |call: &str, times: &[f64]| (json!({"call": call}), figures(times, "_linux"));
    Ok(vec![row("look_up", &look_ups), row("look_up_array", &array_look_ups), row("load", &loads)])
}

/// Runs the benchmark.
///
/// # Errors
///
/// There is no supervisor on this machine, or a call fails.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let rounds = if common.quick { args.rounds.min(3) } else { args.rounds };
    progress(format!("{rounds} times {BATCH} look-ups and {PROGRAMS} loads under a supervisor"));
    let Measured { look_ups, array_look_ups, loads } = supervised(FrontChoice::Notify, rounds)?;
    let by_library = supervised(FrontChoice::Preload, rounds)?;
    let row = |front: &str, call: &str, times: &[f64]| {
        let mut row = json!({"call": call, "front": front, "us_linux": null, "us_best_linux": null});
        if let (Value::Object(row), Value::Object(figures)) = (&mut row, figures(times, "")) {
            row.extend(figures);
        }
        row
    };
    let mut rows = vec![
        row("supervisor", "look_up", &look_ups),
        row("supervisor", "look_up_array", &array_look_ups),
        row("library", "look_up", &by_library.look_ups),
        row("library", "look_up_array", &by_library.array_look_ups),
        row("supervisor", "load", &loads),
    ];
    let linux = Linux::measure(common.linux, "exec-calls");
    linux.fill(&mut rows);
    let best = |row: usize| rows[row]["us_best"].as_f64().unwrap_or(f64::NAN);
    let targets = vec![
        Target::at_most("a notified call", "us", WANTED, best(0)),
        Target::at_most("a look-up by the library in a hash table", "us", WANTED_BY_LIBRARY, best(2)),
        Target::at_most("a look-up by the library in an array", "us", WANTED_BY_LIBRARY, best(3)),
    ];
    let mut report = Report::new("exec-calls", format!("us of a call; median and best of {rounds} rounds"));
    report.fields(json!({"rounds": rounds, "programs": PROGRAMS}));
    let columns =
        "call; front; us = us:1; best = us_best:1; Linux = us_linux:2; best of Linux = us_best_linux:2";
    report.table("rows", "calls of an application under skep exec", &rows, columns);
    Ok(report.linux(&linux.release).targets(targets))
}
