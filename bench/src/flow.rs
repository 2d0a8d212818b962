//! `skep-bench flow-dissector`: packets through parsers that tail-call each other, and through the same parsers called
//! in a loop; with the flow stored in a hash map, and without.
//!
//! The dissector is `examples/dissector.bpf.c`. Before anything is measured, the flow that it finds in each packet is
//! compared with the packet's own.

mod linux;
mod packets;
mod subject;

pub(crate) use linux::measure as measure_linux;

use crate::report::{Report, Target};
use crate::{Common, kernel, progress};
use linux::{Answers, Linux};
use packets::{Case, kinds};
use serde::Serialize;
use skep::abi::SCHED_CLS;
use skep::{Engine, Object, Packet, Program, Runtime};
use std::time::{Duration, Instant};
use subject::{Loaded, VARIANTS, Variant};

/// A batch lasts at least this long: about as long as the kernel's.
const BATCH: Duration = Duration::from_micros(100);
/// The largest part of Linux's time that meets the target.
const WANTED: f64 = 0.5;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which each packet takes its turn in each variant at each placement.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How often each variant is loaded, at another place each time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    placements: u32,
}

/// A packet in one variant. Nanoseconds; `net` is without the floor.
#[derive(Debug, Serialize)]
struct Row {
    packet: &'static str,
    /// Whether the parsers tail-call each other, or a loop calls them.
    tail_calls: bool,
    /// Whether the flow is stored in a hash map.
    map_update: bool,
    /// In the best round, at the median placement.
    ns: f64,
    /// In the median round, at the median placement.
    ns_median: f64,
    /// In the best round, at the best placement.
    ns_best_placement: f64,
    /// In the best round, at the worst placement.
    ns_worst_placement: f64,
    ns_net: f64,
    ns_net_median: f64,
    /// The running kernel's, in the best round.
    ns_linux: Option<f64>,
    ns_linux_median: Option<f64>,
    ns_linux_net: Option<f64>,
    ns_linux_net_median: Option<f64>,
    /// skep's net time, as a part of Linux's.
    of_linux_net: Option<f64>,
}

/// The time of a program that returns at once: entering and leaving. Nanoseconds, as in a row.
#[derive(Debug, Serialize)]
struct Floor {
    ns: f64,
    ns_median: f64,
    ns_linux: Option<f64>,
    ns_linux_median: Option<f64>,
}

/// A packet in one variant at one placement, or the floor.
struct Runner {
    program: Program,
    packet: Packet,
    batch: u32,
    /// Nanoseconds for a packet, of each round.
    times: Vec<f64>,
}

impl Runner {
    fn new(program: &Program, case: &Case) -> Self {
        let mut new =
            Self { program: program.clone(), packet: Packet::new(&case.frame), batch: 1, times: Vec::new() };
        while new.time() < BATCH && new.batch < 1 << 20 {
            new.batch *= 2;
        }
        new
    }

    fn time(&mut self) -> Duration {
        let started = Instant::now();
        for _ in 0..self.batch {
            // It has been run before: what could fail has not.
            let _ = std::hint::black_box(self.program.run(&mut self.packet));
        }
        started.elapsed()
    }

    fn turn(&mut self) {
        let elapsed = self.time();
        self.times.push(elapsed.as_nanos() as f64 / f64::from(self.batch));
    }
}

/// The times of what was measured at several placements.
struct Times {
    best: f64,
    median: f64,
    best_placement: f64,
    worst_placement: f64,
}

impl Times {
    fn of(placements: &[Runner]) -> Self {
        let sorted = |times: &mut dyn Iterator<Item = f64>| {
            let mut times: Vec<f64> = times.collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let middle = |times: &[f64]| times[times.len() / 2];
        let rounds: Vec<Vec<f64>> =
            placements.iter().map(|runner| sorted(&mut runner.times.iter().copied())).collect();
        let best = sorted(&mut rounds.iter().map(|times| times[0]));
        let median = sorted(&mut rounds.iter().map(|times| middle(times)));
        Self {
            best: middle(&best),
            median: middle(&median),
            best_placement: best[0],
            worst_placement: best[best.len() - 1],
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// The dissector cannot be loaded, or finds another flow than the packet's.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report, String> {
    let (rounds, placements) =
        if common.quick { (args.rounds.min(2), 1) } else { (args.rounds, args.placements) };
    let packets = kinds();
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    progress("loading");
    // All variants are loaded once before any is loaded again, so that each lies between the others.
    let mut floor = Vec::new();
    let mut runners: Vec<Vec<Runner>> = (0..packets.len() * VARIANTS.len()).map(|_| Vec::new()).collect();
    let mut loaded = Vec::new();
    for _ in 0..placements {
        let empty = Object::from_insns("floor", &SCHED_CLS, linux::floor().to_vec());
        let empty = runtime.load(&empty).map_err(|error| error.to_string())?;
        floor.push(Runner::new(&empty.programs()[0], &packets[0]));
        let mut rows = runners.iter_mut();
        for variant in VARIANTS {
            let dissector = Loaded::new(&runtime, variant)?;
            for (case, row) in packets.iter().zip(rows.by_ref()) {
                dissector.check(Engine::Jit, case)?;
                row.push(Runner::new(&dissector.entry, case));
            }
            loaded.push(dissector);
        }
    }
    let (mut answers, mut release) = (Answers::default(), None);
    for round in 0..rounds {
        if round % 100 == 0 {
            progress(format!("round {} of {rounds}", round + 1));
        }
        floor.iter_mut().chain(runners.iter_mut().flatten()).for_each(Runner::turn);
        // Processors do not always run equally fast: the kernel takes its turns in the middle.
        if round == rounds / 2 {
            release = kernel::measure(common.linux, "flow-dissector", |said| answers = said);
        }
    }
    let own = Times::of(&floor);
    let floor = Floor {
        ns: own.best,
        ns_median: own.median,
        ns_linux: answers.floor.map(|linux| linux.best),
        ns_linux_median: answers.floor.map(|linux| linux.median),
    };
    let of = VARIANTS.iter().flat_map(|variant| packets.iter().map(move |packet| (packet.name, *variant)));
    let rows: Vec<Row> = of
        .zip(&runners)
        .map(|((packet, variant), runners)| {
            row(packet, variant, &Times::of(runners), &floor, answers.of(packet, variant))
        })
        .collect();
    let summary = format!("ns a packet, best of {rounds} rounds, median of {placements} placements");
    let mut report = Report::new("flow-dissector", summary);
    report.field("rounds", rounds).field("placements", placements).field("floor", &floor);
    report.view("floor", "a program that returns at once", &[("ns", "ns", 1), ("Linux", "ns_linux", 1)]);
    let columns = [
        ("packet", "packet", 0),
        ("tail calls", "tail_calls", 0),
        ("map update", "map_update", 0),
        ("ns", "ns", 1),
        ("net", "ns_net", 1),
        ("median", "ns_median", 1),
        ("best placement", "ns_best_placement", 1),
        ("worst", "ns_worst_placement", 1),
        ("Linux", "ns_linux", 1),
        ("Linux net", "ns_linux_net", 1),
        ("skep/Linux, net", "of_linux_net", 2),
    ];
    report.table("rows", "packets; net: without the program that returns at once", &rows, &columns);
    Ok(report.linux(&release).targets(targets(&rows)))
}

fn row(packet: &'static str, variant: Variant, times: &Times, floor: &Floor, linux: Option<Linux>) -> Row {
    let without = |time: Option<f64>, floor: Option<f64>| Some(time? - floor?);
    let (best, median) = (linux.map(|linux| linux.best), linux.map(|linux| linux.median));
    Row {
        packet,
        tail_calls: variant.tail_calls,
        map_update: variant.map_update,
        ns: times.best,
        ns_median: times.median,
        ns_best_placement: times.best_placement,
        ns_worst_placement: times.worst_placement,
        ns_net: times.best - floor.ns,
        ns_net_median: times.median - floor.ns_median,
        ns_linux: best,
        ns_linux_median: median,
        ns_linux_net: without(best, floor.ns_linux),
        ns_linux_net_median: without(median, floor.ns_linux_median),
        of_linux_net: without(best, floor.ns_linux).map(|linux| (times.best - floor.ns) / linux),
    }
}

/// skep's part of Linux's net time for each packet, with tail calls.
fn targets(rows: &[Row]) -> Vec<Target> {
    let of = |row: &Row| {
        let how = if row.map_update { "with the map update" } else { "without" };
        Some(Target::at_most(format!("{}, {how}", row.packet), "x Linux's", WANTED, row.of_linux_net?))
    };
    rows.iter().filter(|row| row.tail_calls).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dissects_everything(tail_calls: bool) {
        let runtime = Runtime::new().unwrap();
        for variant in VARIANTS.into_iter().filter(|variant| variant.tail_calls == tail_calls) {
            let dissector = Loaded::new(&runtime, variant).unwrap();
            for case in kinds().iter().chain(&packets::odd()) {
                for engine in [Engine::Jit, Engine::Interpreter] {
                    dissector.check(engine, case).unwrap();
                }
            }
        }
    }

    #[test]
    fn the_dissector_with_tail_calls_finds_the_flow_of_every_packet() {
        dissects_everything(true);
    }

    #[test]
    fn the_dissector_with_calls_finds_the_flow_of_every_packet() {
        dissects_everything(false);
    }

    #[test]
    fn a_packet_that_is_cut_before_its_ports_has_no_flow() {
        let runtime = Runtime::new().unwrap();
        for variant in VARIANTS {
            let dissector = Loaded::new(&runtime, variant).unwrap();
            for whole in kinds() {
                let thoff = whole.flow.map(|flow| u16::from_ne_bytes([flow.value[2], flow.value[3]]));
                // A later fragment has none: its network header is enough.
                let needed = usize::from(thoff.unwrap()) + if whole.name == "fragment" { 0 } else { 4 };
                for len in 0..=needed {
                    let flow = whole.flow.filter(|_| len == needed);
                    let frame = whole.frame[..len].to_vec();
                    dissector.check(Engine::Jit, &Case { frame, flow, ..whole.clone() }).unwrap();
                }
            }
        }
    }

    #[test]
    fn the_middle_placement_counts_and_the_floor_is_taken_off() {
        let program = Runtime::new().unwrap();
        let object = Object::from_insns("floor", &SCHED_CLS, linux::floor().to_vec());
        let program = program.load(&object).unwrap().programs()[0].clone();
        let runner = |times: &[f64]| Runner {
            program: program.clone(),
            packet: Packet::new(&[]),
            batch: 1,
            times: times.to_vec(),
        };
        let times =
            Times::of(&[runner(&[9.0, 8.0, 7.0]), runner(&[4.0, 90.0, 5.0]), runner(&[6.0, 5.5, 6.5])]);
        assert_eq!((times.best, times.median), (5.5, 6.0));
        assert_eq!((times.best_placement, times.worst_placement), (4.0, 7.0));
        let floor = Floor { ns: 1.0, ns_median: 2.0, ns_linux: Some(3.0), ns_linux_median: None };
        let row = row("vlan", VARIANTS[0], &times, &floor, Some(Linux { best: 10.0, median: 11.0 }));
        assert_eq!((row.ns_net, row.ns_net_median), (4.5, 4.0));
        assert_eq!((row.ns_linux_net, row.ns_linux_net_median), (Some(7.0), None));
        let [target] = &targets(&[row])[..] else { panic!() };
        assert_eq!(
            (target.name.as_str(), target.value, target.met),
            ("vlan, with the map update", 4.5 / 7.0, false)
        );
    }
}
