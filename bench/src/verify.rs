//! `skep-bench verify`: the time of verification for each walked instruction, and its memory.
//!
//! The subjects are skep's own programs (the examples and those of `skep-bench exec`), some that are generated to be
//! long, to loop, or to have many states, and some that look like large datapaths. Timed is the verifier alone, from
//! a linked program to its verdict, with everything that it allocates given back. Programs take turns in rounds, so
//! that whatever else the machine does hits all of them.

mod datapath;
mod generate;
mod linux;

use crate::kernel::Linux;
use crate::process::peak_of;
use crate::programs::{EXAMPLES, PROGRAMS, assembled};
use crate::report::{Report, Target, number};
use crate::timing::{median, sorted};
use crate::{Common, Result, progress};
use datapath::Datapath;
use generate::Generated;
pub(crate) use linux::measure as measure_linux;
use serde_json::{Value, json};
use skep::abi::{Context, Entry, MapDef, MapKind, RAW, SCHED_CLS};
use skep::isa::Insn;
use skep::{Object, ProgramOptions};
use skep_verifier::{Config, Refusal, Unverified, Verified, verify};
use std::time::{Duration, Instant};

/// After so much time a program takes no more turns, if it had [`LEAST`].
const PATIENCE: Duration = Duration::from_secs(3);
/// Turns that every program takes.
const LEAST: usize = 5;
/// A program that is walked so far counts as one of a million instructions.
const MILLION: u64 = 900_000;
/// The buffer of examples that are given one.
const BUFFER: u32 = 64;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often each program is verified; those that take long are verified less often.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// A program to be verified.
struct Subject {
    name: String,
    group: &'static str,
    what: String,
    insns: usize,
    program: Unverified,
}

impl Subject {
    fn new(
        object: &Object,
        name: &str,
        (group, what): (&'static str, &str),
        buffer_len: u32,
    ) -> Result<Self> {
        let options = ProgramOptions { buffer_len, ..ProgramOptions::default() };
        let source = object.linked(name, options)?;
        let entry = match source.program_type.context {
            Context::Buffer => Entry::Buffer { len: buffer_len },
            _ => Entry::Context,
        };
        Ok(Self {
            name: name.to_owned(),
            group,
            what: what.to_owned(),
            insns: source.insns.iter().filter(|insn| **insn != Insn::LoadImm64Tail).count(),
            program: Unverified { source, maps: object.maps().into(), entry },
        })
    }

    fn generated(made: &Generated) -> Result<Self> {
        let object = assembled(made.name, &RAW, &made.text, Vec::new())?;
        Self::new(&object, made.name, ("generated", made.what), made.buffer)
    }

    fn datapath(made: &Datapath) -> Result<Self> {
        let map = |at| MapDef::new(format!("map{at}"), MapKind::Hash, 8, 64, 1024);
        let object = assembled(made.name, &SCHED_CLS, &made.text, (0..datapath::MAPS).map(map).collect())?;
        Self::new(&object, made.name, ("look-alikes", made.what), BUFFER)
    }

    /// Every program that is measured.
    fn all() -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for (name, bytes) in EXAMPLES {
            let object = Object::parse(bytes).map_err(|error| format!("{name}: {error}"))?;
            for program in object.programs() {
                all.push(Self::new(&object, program, ("examples", name), BUFFER)?);
            }
        }
        for program in PROGRAMS {
            let object = Object::parse(program.object)?;
            let what = ("exec", program.measures);
            all.push(Self::new(&object, program.name, what, program.bytes as u32)?);
        }
        for made in generate::all() {
            all.push(Self::generated(&made)?);
        }
        for made in datapath::all() {
            all.push(Self::datapath(&made)?);
        }
        Ok(all)
    }

    fn verify(&self) -> Result<Verified, Box<Refusal>> {
        verify(self.program.clone(), &Config::default())
    }
}

/// A program and what was measured of it.
struct Runner {
    subject: Subject,
    verified: Verified,
    resident: Option<u64>,
    times: Vec<Duration>,
}

impl Runner {
    /// Verifies it once, to see that it is accepted and how much larger the process gets than `before`.
    fn new(subject: Subject, before: Option<u64>) -> Result<Self> {
        let (verified, peak) = peak_of(|| subject.verify());
        let verified = verified?;
        let grown = peak.zip(before).map(|(peak, before)| peak.saturating_sub(before));
        let resident = grown.filter(|_| verified.stats().walked >= MILLION);
        Ok(Self { subject, verified, resident, times: Vec::new() })
    }

    fn turn(&mut self) -> Result<()> {
        if self.times.len() >= LEAST && self.times.iter().sum::<Duration>() >= PATIENCE {
            return Ok(());
        }
        let program = self.subject.program.clone();
        let started = Instant::now();
        let verified = verify(program, &Config::default());
        self.times.push(started.elapsed());
        let walked = verified?.stats().walked;
        if walked != self.verified.stats().walked {
            return Err(format!("{}: {walked} walked instructions in another turn", self.subject.name).into());
        }
        Ok(())
    }

    fn row(self) -> Value {
        let times = sorted(self.times.iter().map(|time| time.as_nanos() as f64 / 1e3));
        let (stats, us) = (self.verified.stats(), median(times.iter().copied()));
        json!({
            "program": self.subject.name,
            // `examples`, `exec` (the programs of `skep-bench exec`), `generated` or `look-alikes`.
            "group": self.subject.group,
            // Its object, or what it was made for.
            "what": self.subject.what,
            // Instructions in it; a 64-bit load is one.
            "insns": self.subject.insns,
            // Instructions walked over all paths, the most states at once, and about how many bytes these took.
            "walked": stats.walked, "peak_states": stats.peak_states, "peak_bytes": stats.peak_bytes,
            // For programs of a million walked instructions: how much larger the process was meanwhile than before the
            // first program, if the system counts that.
            "peak_resident_bytes": self.resident,
            "us": us, "us_best": times[0], "ns_per_walked": us * 1e3 / stats.walked as f64, "turns": times.len(),
            // The running kernel's figures, and its time as a multiple of skep's best; `null` if not measured.
            "linux": null, "linux_times": null,
        })
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// A text that names the program where one is refused.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let rounds = if common.quick { args.rounds.min(2) } else { args.rounds };
    progress("memory");
    // Long walks come first, while the process has no free memory that they could use instead of growing.
    let mut subjects = Subject::all()?;
    subjects.sort_by_key(|subject| subject.group != "generated");
    let (_, before) = peak_of(|| ());
    let runners = subjects.into_iter().map(|subject| Runner::new(subject, before));
    let mut runners = runners.collect::<Result<Vec<_>>>()?;
    runners.sort_by_key(|runner| runner.subject.group == "generated");
    for round in 0..rounds {
        if round % 50 == 0 {
            progress(format!("round {} of {rounds}", round + 1));
        }
        runners.iter_mut().try_for_each(Runner::turn)?;
    }
    let mut rows: Vec<Value> = runners.into_iter().map(Runner::row).collect();
    let linux = Linux::measure(common.linux, "verify");
    linux.fill(&mut rows);
    for row in &mut rows {
        // Not a number, which is `null`, where the kernel did not accept it.
        row["linux_times"] = (number(row, "linux.us") / number(row, "us_best")).into();
    }
    let sums = [
        sum("own", &rows, |group| matches!(group, "examples" | "exec")),
        sum("generated", &rows, |group| group == "generated"),
        sum("look-alikes", &rows, |group| group == "look-alikes"),
        sum("all", &rows, |_| true),
    ];
    let mut report = Report::new("verify", format!("median of up to {rounds} rounds"));
    report.fields(json!({"rounds": rounds}));
    let columns = "program; group; insns; walked; states = peak_states; bytes = peak_bytes; \
                   process grew by = peak_resident_bytes; us:1; best us = us_best:1; ns/walked = ns_per_walked:1; \
                   Linux: walked = linux.walked; us = linux.us:1; ns/walked = linux.ns_per_walked:1; \
                   times skep's us = linux_times:1; refused = linux.refused";
    report.table("rows", "programs; Linux may walk more or fewer instructions than skep", &rows, columns);
    let columns = "= of; programs; walked; us:1; ns/walked = ns_per_walked:1; best = ns_per_walked_best:1";
    report.table("sums", "in sum", &sums, columns);
    Ok(report.linux(&linux.release).targets(targets(&rows, &sums)))
}

/// The programs of some groups in sum. The time for each walked instruction is the whole time divided by
/// all that was walked.
fn sum(of: &str, rows: &[Value], which: impl Fn(&str) -> bool) -> Value {
    let rows: Vec<&Value> = rows.iter().filter(|row| row["group"].as_str().is_some_and(&which)).collect();
    let sum = |key| rows.iter().map(|row| number(row, key)).sum::<f64>();
    let (walked, us, us_best) = (sum("walked"), sum("us"), sum("us_best"));
    json!({
        "of": of, "programs": rows.len(), "walked": walked as u64, "us": us, "us_best": us_best,
        "ns_per_walked": us * 1e3 / walked, "ns_per_walked_best": us_best * 1e3 / walked,
    })
}

/// Where several programs show a figure, the worst one counts.
fn targets(rows: &[Value], sums: &[Value]) -> Vec<Target> {
    let named = |start: &str| {
        let of = |row: &&Value| row["program"].as_str().is_some_and(|name| name.starts_with(start));
        rows.iter().filter(of).map(|row| number(row, "us")).fold(0.0, f64::max)
    };
    let long = rows.iter().filter(|row| number(row, "walked") >= MILLION as f64);
    let bytes = long.flat_map(|row| [number(row, "peak_bytes"), number(row, "peak_resident_bytes")]);
    let walked = |at: usize| number(&sums[at], "ns_per_walked");
    vec![
        Target::at_most("a walked instruction, own programs", "ns", 100.0, walked(0)),
        Target::at_most("a walked instruction, generated", "ns", 100.0, walked(1)),
        Target::at_most("a walked instruction, look-alikes", "ns", 100.0, walked(2)),
        Target::at_most("4,000 straight-line instructions", "us", 250.0, named("straight_")),
        Target::at_most("1,024 rounds over a switch", "ms", 20.0, named("switch_") / 1e3),
        Target::at_most(
            "memory, a million walked",
            "MiB",
            64.0,
            bytes.fold(0.0, f64::max) / f64::from(1 << 20),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_skeps_own_programs_are_accepted_and_measured() {
        let subjects = Subject::all().unwrap();
        for group in ["examples", "exec", "generated"] {
            let count = subjects.iter().filter(|subject| subject.group == group).count();
            assert!(count >= 8, "{count} {group}");
        }
        assert_eq!(subjects.iter().filter(|subject| subject.group == "look-alikes").count(), 4);
        for subject in subjects {
            let verified = subject.verify().unwrap_or_else(|refusal| panic!("{refusal}"));
            assert!(verified.stats().walked > 0 && subject.insns > 0, "{}", subject.name);
        }
    }

    #[test]
    fn the_sum_is_all_time_by_all_that_was_walked() {
        let row = |group: &str, walked: u64, us: f64| json!({"group": group, "walked": walked, "us": us, "us_best": us / 2.0});
        let rows = [row("exec", 100, 10.0), row("examples", 300, 10.0), row("generated", 9, 9.0)];
        let wanted = json!({
            "of": "own", "programs": 2, "walked": 400, "us": 20.0, "us_best": 10.0,
            "ns_per_walked": 50.0, "ns_per_walked_best": 25.0,
        });
        assert_eq!(sum("own", &rows, |group| group != "generated"), wanted);
    }
}
