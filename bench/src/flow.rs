//! `skep bench flow-dissector`: packets through parsers that jump to each other by tail calls, and through the same
//! parsers called in a loop; with what they find stored in a hash map, and without.
//!
//! The dissector is `examples/dissector.bpf.c`. What it finds in each packet is compared with what there is before anything is
//! measured.

mod linux;
mod packets;
mod subject;

pub use linux::{Linux, report as report_linux};

use packets::{Case, kinds};
use serde::Serialize;
use skep::abi::SCHED_CLS;
use skep::{Engine, Object, Packet, Program, Runtime};
use std::process::Command;
use std::time::{Duration, Instant};
use subject::{Loaded, VARIANTS, Variant};

/// A batch lasts at least this long: about as long as the kernel's.
const BATCH: Duration = Duration::from_micros(100);
/// Where the running kernel says which it is.
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// Of Linux's time, at most.
const WANTED: f64 = 0.5;

/// What is measured.
#[derive(Debug)]
pub struct Options {
    /// How often each packet has its turn in each variant at each placement.
    pub rounds: u32,
    /// How often each variant is loaded, at another place each time.
    pub placements: u32,
    /// A command that calls [`report_linux`] with its output, where the running kernel is to be asked as well.
    pub linux: Option<Command>,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Architecture of this machine.
    pub arch: &'static str,
    /// Its processor, as the system names it.
    pub cpu: String,
    /// How often each packet had its turn in each variant at each placement.
    pub rounds: u32,
    /// How often each variant was loaded.
    pub placements: u32,
    /// Every packet in every variant.
    pub rows: Vec<Row>,
    /// A program that returns at once.
    pub floor: Floor,
    /// What was to be reached; empty where the kernel was not asked.
    pub targets: Vec<Target>,
    /// The release of the running kernel, if it was asked as well.
    pub linux_release: Option<String>,
    /// Why it was not, although it was to be.
    pub linux_unavailable: Option<String>,
}

/// A packet in one variant. Nanoseconds.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The kind of packet.
    pub packet: &'static str,
    /// Whether the parsers jump to each other, or a loop calls them.
    pub tail_calls: bool,
    /// Whether the flow is stored in a hash map.
    pub map_update: bool,
    /// In the best round, at the median placement.
    pub ns: f64,
    /// In the median round, at the median placement.
    pub ns_median: f64,
    /// In the best round, at the best placement.
    pub ns_best_placement: f64,
    /// In the best round, at the worst placement.
    pub ns_worst_placement: f64,
    /// `ns` without what a program takes that returns at once.
    pub ns_net: f64,
    /// `ns_median` without that.
    pub ns_net_median: f64,
    /// What the running kernel takes in the best round.
    pub ns_linux: Option<f64>,
    /// In the median round.
    pub ns_linux_median: Option<f64>,
    /// `ns_linux` without what it takes for a program that returns at once.
    pub ns_linux_net: Option<f64>,
    /// `ns_linux_median` without that.
    pub ns_linux_net_median: Option<f64>,
}

/// What a program takes that returns at once: entering and leaving. Nanoseconds.
#[derive(Debug, Serialize)]
pub struct Floor {
    /// In the best round, at the median placement.
    pub ns: f64,
    /// In the median round, at the median placement.
    pub ns_median: f64,
    /// What the running kernel takes in the best round.
    pub ns_linux: Option<f64>,
    /// In the median round.
    pub ns_linux_median: Option<f64>,
}

/// What was to be reached, and whether it was.
#[derive(Debug, Serialize)]
pub struct Target {
    /// Which packet, with the map update or without.
    pub name: String,
    /// The part of Linux's net time that skep's may be.
    pub target: f64,
    /// What it is.
    pub value: f64,
    /// Whether that is little enough.
    pub met: bool,
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

/// Runs the benchmark; `progress` is told what comes next.
///
/// # Errors
///
/// A text where the dissector cannot be loaded, or finds another flow than there is.
pub fn run(options: Options, mut progress: impl FnMut(&str)) -> Result<Report, String> {
    let (rounds, placements) = (options.rounds.max(1), options.placements.max(1));
    let packets = kinds();
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    progress("loading");
    // All variants are loaded once before any is loaded again: they lie between each other.
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
    let (mut answers, mut linux_release, mut linux_unavailable) = (linux::Answers::default(), None, None);
    let mut linux = options.linux;
    for round in 0..rounds {
        if round % 100 == 0 {
            progress(&format!("round {} of {rounds}", round + 1));
        }
        floor.iter_mut().chain(runners.iter_mut().flatten()).for_each(Runner::turn);
        // Processors do not always run equally fast: the kernel has its turns in the middle.
        if let Some(command) = linux.take_if(|_| round >= rounds / 2) {
            progress("the running kernel");
            match linux::ask(command) {
                Ok(said) => {
                    answers = said;
                    let release = std::fs::read_to_string(RELEASE).unwrap_or_default();
                    linux_release = Some(release.trim().to_owned());
                }
                Err(reason) => linux_unavailable = Some(reason),
            }
        }
    }
    let (linux, own) = (answers.floor(), Times::of(&floor));
    let floor = Floor {
        ns: own.best,
        ns_median: own.median,
        ns_linux: linux.map(|linux| linux.best),
        ns_linux_median: linux.map(|linux| linux.median),
    };
    let of = VARIANTS.iter().flat_map(|variant| packets.iter().map(move |packet| (packet.name, *variant)));
    let rows: Vec<Row> = of
        .zip(&runners)
        .map(|((packet, variant), runners)| {
            row(packet, variant, &Times::of(runners), &floor, answers.of(packet, variant))
        })
        .collect();
    let targets = targets(&rows);
    Ok(Report {
        arch: std::env::consts::ARCH,
        cpu: crate::exec::cpu(),
        rounds,
        placements,
        rows,
        floor,
        targets,
        linux_release,
        linux_unavailable,
    })
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
    }
}

/// skep's part of Linux's net time for each packet, with tail calls.
fn targets(rows: &[Row]) -> Vec<Target> {
    let of = |row: &Row| {
        let value = row.ns_net / row.ns_linux_net?;
        let how = if row.map_update { "with the map update" } else { "without" };
        Some(Target { name: format!("{}, {how}", row.packet), target: WANTED, value, met: value <= WANTED })
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
