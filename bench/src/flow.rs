//! `skep-bench flow-dissector`: packets through parsers that tail-call each other, and through the same parsers called
//! in a loop; with the flow stored in a hash map, and without.
//!
//! The dissector is `examples/dissector.bpf.c`. Before anything is measured, the flow that it finds in each packet is
//! compared with the packet's own.

mod linux;
mod packets;
mod subject;

pub(crate) use linux::measure as measure_linux;

use crate::kernel::Linux;
use crate::report::{Report, Target, number};
use crate::timing::{Batched, median, sorted};
use crate::{Common, Result, progress};
use packets::{Case, kinds};
use serde_json::{Value, json};
use skep::{Engine, Packet, Program, Runtime};
use std::time::Duration;
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

fn runner(program: &Program, case: &Case) -> Batched<impl FnMut() + use<>> {
    let (program, mut packet) = (program.clone(), Packet::new(&case.frame));
    Batched::new(BATCH, move || {
        // It has been run before: what could fail has not.
        let _ = std::hint::black_box(program.run(&mut packet));
    })
}

/// The times of what was measured at several placements, in nanoseconds. `best` and `median` are of the rounds, at the
/// median placement; the others of the best round.
#[derive(Debug, PartialEq)]
struct Times {
    best: f64,
    median: f64,
    best_placement: f64,
    worst_placement: f64,
}

/// From the times of each round at each placement.
fn places(placements: Vec<Vec<f64>>) -> Times {
    let rounds: Vec<Vec<f64>> = placements.into_iter().map(sorted).collect();
    let best = sorted(rounds.iter().map(|times| times[0]));
    Times {
        best: median(best.iter().copied()),
        median: median(rounds.iter().map(|times| median(times.iter().copied()))),
        best_placement: best[0],
        worst_placement: best[best.len() - 1],
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// The dissector cannot be loaded, or finds another flow than the packet's.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let (rounds, placements) =
        if common.quick { (args.rounds.min(2), 1) } else { (args.rounds, args.placements) };
    let packets = kinds();
    let runtime = Runtime::new()?;
    progress("loading");
    // The floor and all variants are loaded once before any is loaded again, so that placements are far apart.
    let mut runners = Vec::new();
    let mut loaded = Vec::new();
    for _ in 0..placements {
        let empty = runtime.load(&subject::floor())?;
        runners.push(runner(&empty.programs()[0], &packets[0]));
        for variant in VARIANTS {
            let dissector = Loaded::new(&runtime, variant)?;
            for case in &packets {
                dissector.check(Engine::Jit, case)?;
                runners.push(runner(&dissector.entry, case));
            }
            loaded.push(dissector);
        }
    }
    let mut linux = Linux::default();
    for round in 0..rounds {
        if round % 100 == 0 {
            progress(format!("round {} of {rounds}", round + 1));
        }
        runners.iter_mut().for_each(Batched::turn);
        // Processors do not always run equally fast: the kernel takes its turns in the middle.
        if round == rounds / 2 {
            linux = Linux::measure(common.linux, "flow-dissector");
        }
    }
    let each = 1 + VARIANTS.len() * packets.len();
    let times = |at: usize| places(runners[at..].iter().step_by(each).map(|one| one.times.clone()).collect());
    // The time of a program that returns at once: entering and leaving. It is a row for the kernel's answers, too.
    let own = times(0);
    let mut floor = vec![json!({
        "packet": null, "ns": own.best, "ns_median": own.median, "ns_linux": null, "ns_linux_median": null,
    })];
    linux.fill(&mut floor);
    let mut floor = floor.remove(0);
    floor.as_object_mut().map(|floor| floor.remove("packet"));
    let of = VARIANTS.iter().flat_map(|variant| packets.iter().map(move |packet| (packet.name, *variant)));
    let mut rows: Vec<Value> =
        (1..).zip(of).map(|(at, (packet, variant))| row(packet, variant, &times(at), &floor)).collect();
    linux.fill(&mut rows);
    rows.iter_mut().for_each(|row| compare(row, &floor));
    let summary = format!("ns a packet, best of {rounds} rounds, median of {placements} placements");
    let mut report = Report::new("flow-dissector", summary);
    report.fields(json!({"rounds": rounds, "placements": placements}));
    report.table("floor", "a program that returns at once", &floor, "ns:1; Linux = ns_linux:1");
    let columns = "packet; tail calls = tail_calls; map update = map_update; ns:1; net = ns_net:1; \
                   median = ns_median:1; best placement = ns_best_placement:1; worst = ns_worst_placement:1; \
                   Linux = ns_linux:1; Linux net = ns_linux_net:1; skep/Linux, net = of_linux_net:2";
    report.table("rows", "packets; net: without the program that returns at once", &rows, columns);
    Ok(report.linux(&linux.release).targets(targets(&rows)))
}

/// A packet in one variant, without the kernel's times. `net` is without the floor.
fn row(packet: &str, variant: Variant, times: &Times, floor: &Value) -> Value {
    let mut row = variant.key(packet);
    let figures = json!({
        "ns": times.best, "ns_median": times.median,
        "ns_best_placement": times.best_placement, "ns_worst_placement": times.worst_placement,
        "ns_net": times.best - number(floor, "ns"), "ns_net_median": times.median - number(floor, "ns_median"),
        "ns_linux": null, "ns_linux_median": null,
    });
    for (key, figure) in figures.as_object().into_iter().flatten() {
        row[key] = figure.clone();
    }
    row
}

/// Adds the kernel's net times, and skep's as a part of it; `null` (not a number) where it was not measured.
fn compare(row: &mut Value, floor: &Value) {
    for (net, time) in [("ns_linux_net", "ns_linux"), ("ns_linux_net_median", "ns_linux_median")] {
        row[net] = (number(row, time) - number(floor, time)).into();
    }
    row["of_linux_net"] = (number(row, "ns_net") / number(row, "ns_linux_net")).into();
}

/// skep's part of Linux's net time for each packet, with tail calls.
fn targets(rows: &[Value]) -> Vec<Target> {
    let of = |row: &Value| {
        let how = if row["map_update"] == true { "with the map update" } else { "without" };
        let name = format!("{}, {how}", row["packet"].as_str()?);
        Some(Target::at_most(name, "x Linux's", WANTED, row["of_linux_net"].as_f64()?))
    };
    rows.iter().filter(|row| row["tail_calls"] == true).filter_map(of).collect()
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
        let times = places(vec![vec![9.0, 8.0, 7.0], vec![4.0, 90.0, 5.0], vec![6.0, 5.5, 6.5]]);
        assert_eq!(times, Times { best: 5.5, median: 6.0, best_placement: 4.0, worst_placement: 7.0 });
        let mut row = row("vlan", VARIANTS[0], &times, &json!({"ns": 1.0, "ns_median": 2.0}));
        assert_eq!((&row["ns_net"], &row["ns_net_median"]), (&4.5.into(), &4.0.into()));
        row["ns_linux"] = 10.0.into();
        compare(&mut row, &json!({"ns_linux": 3.0}));
        assert_eq!((&row["ns_linux_net"], &row["ns_linux_net_median"]), (&7.0.into(), &Value::Null));
        let [target] = &targets(&[row])[..] else { panic!() };
        assert_eq!((target.value, target.met), (4.5 / 7.0, false));
    }
}
