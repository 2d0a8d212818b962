//! `skep-bench verify`: the time of verification for each walked instruction, and its memory.
//!
//! The subjects are skep's own programs (the examples and those of `skep-bench exec`) and some that are generated to be
//! long, to loop, or to have many states. Timed is the verifier alone, from a linked program to its verdict, with
//! everything that it allocates given back. Programs take turns in rounds, so that whatever else the machine does hits
//! all of them.

mod generate;
mod linux;
mod resident;

use crate::programs::{EXAMPLES, PROGRAMS};
use crate::report::{Report, Target};
use crate::{Common, kernel, progress};
pub(crate) use linux::measure as measure_linux;

use generate::Generated;
use linux::Linux;
use resident::Growth;
use serde::Serialize;
use skep::abi::{Context, Entry, RAW};
use skep::isa::Insn;
use skep::{Object, ProgramOptions};
use skep_verifier::{Config, Refusal, Unverified, Verified, verify};
use std::collections::BTreeMap;
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

/// A program.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    /// `examples`, `exec` (the programs of `skep-bench exec`) or `generated`.
    group: &'static str,
    /// Its object, or what it was made for.
    what: String,
    /// Instructions in it; a 64-bit load is one.
    insns: usize,
    /// Instructions walked over all paths.
    walked: u64,
    /// The most states at once.
    peak_states: u64,
    /// About how many bytes these took at most, as the verifier counts.
    peak_bytes: u64,
    /// For programs of a million walked instructions: how much larger the process was meanwhile than before the first
    /// program, if the system tells.
    peak_resident_bytes: Option<u64>,
    /// Microseconds, median.
    us: f64,
    us_best: f64,
    /// Nanoseconds for each walked instruction, by the median.
    ns_per_walked: f64,
    turns: usize,
    /// The running kernel's figures; `None` where it was not measured.
    linux: Option<Linux>,
    /// The kernel's time as a multiple of skep's best.
    linux_times: Option<f64>,
}

/// Programs in sum.
#[derive(Debug, Serialize)]
struct Sum {
    /// Which: `own`, `generated` or `all`.
    of: &'static str,
    programs: usize,
    walked: u64,
    /// Microseconds in all, by the medians.
    us: f64,
    us_best: f64,
    /// Nanoseconds for each walked instruction: the whole time divided by all that was walked, by the medians.
    ns_per_walked: f64,
    ns_per_walked_best: f64,
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
    ) -> Result<Self, String> {
        let options = ProgramOptions { buffer_len, ..ProgramOptions::default() };
        let source = object.linked(name, options).map_err(|error| error.to_string())?;
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

    fn generated(made: &Generated) -> Result<Self, String> {
        let insns = skep::isa::assemble(&made.text).map_err(|error| format!("{}: {error}", made.name))?;
        let object = Object::from_insns(made.name, &RAW, insns);
        Self::new(&object, made.name, ("generated", made.what), made.buffer)
    }

    /// Every program that is measured.
    fn all() -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        for (name, bytes) in EXAMPLES {
            let object = Object::parse(bytes).map_err(|error| format!("{name}: {error}"))?;
            for program in object.programs() {
                all.push(Self::new(&object, program, ("examples", name), BUFFER)?);
            }
        }
        for program in PROGRAMS {
            let object =
                Object::parse(program.object).map_err(|error| format!("{}: {error}", program.name))?;
            let what = ("exec", program.measures);
            all.push(Self::new(&object, program.name, what, program.bytes as u32)?);
        }
        for made in generate::all() {
            all.push(Self::generated(&made)?);
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
    spent: Duration,
}

impl Runner {
    /// Verifies it once, to see that it is accepted and how much memory that takes.
    fn new(subject: Subject, growth: Option<&Growth>) -> Result<Self, String> {
        let (verified, resident) = match growth {
            Some(growth) => growth.peak_of(|| subject.verify()),
            None => (subject.verify(), None),
        };
        let verified = verified.map_err(|refusal| refusal.to_string())?;
        let resident = resident.filter(|_| verified.stats().walked >= MILLION);
        Ok(Self { subject, verified, resident, times: Vec::new(), spent: Duration::ZERO })
    }

    fn turn(&mut self) -> Result<(), String> {
        if self.spent >= PATIENCE && self.times.len() >= LEAST {
            return Ok(());
        }
        let program = self.subject.program.clone();
        let started = Instant::now();
        let verified = verify(program, &Config::default());
        let time = started.elapsed();
        let walked = verified.map_err(|refusal| refusal.to_string())?.stats().walked;
        if walked != self.verified.stats().walked {
            return Err(format!("{}: {walked} walked instructions in another turn", self.subject.name));
        }
        self.times.push(time);
        self.spent += time;
        Ok(())
    }

    fn row(mut self) -> Row {
        self.times.sort_unstable();
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let stats = self.verified.stats();
        let median = us(self.times[self.times.len() / 2]);
        Row {
            program: self.subject.name,
            group: self.subject.group,
            what: self.subject.what,
            insns: self.subject.insns,
            walked: stats.walked,
            peak_states: stats.peak_states,
            peak_bytes: stats.peak_bytes,
            peak_resident_bytes: self.resident,
            us: median,
            us_best: us(self.times[0]),
            ns_per_walked: median * 1e3 / stats.walked as f64,
            turns: self.times.len(),
            linux: None,
            linux_times: None,
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// A text that names the program where one is refused.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report, String> {
    let rounds = if common.quick { args.rounds.min(2) } else { args.rounds };
    progress("memory");
    // Long walks come first, while the process has no free memory that they could use instead of growing.
    let mut subjects = Subject::all()?;
    subjects.sort_by_key(|subject| subject.group != "generated");
    let growth = Growth::start();
    let growth = growth.as_ref();
    let mut runners =
        subjects.into_iter().map(|subject| Runner::new(subject, growth)).collect::<Result<Vec<_>, _>>()?;
    runners.sort_by_key(|runner| runner.subject.group == "generated");
    for round in 0..rounds {
        if round % 50 == 0 {
            progress(format!("round {} of {rounds}", round + 1));
        }
        for runner in &mut runners {
            runner.turn()?;
        }
    }
    let mut rows: Vec<Row> = runners.into_iter().map(Runner::row).collect();
    let release = kernel::measure(common.linux, "verify", |mut answers: BTreeMap<String, Linux>| {
        for row in &mut rows {
            row.linux = answers.remove(&row.program);
            row.linux_times = row.linux.as_ref().and_then(|linux| Some(linux.us? / row.us_best));
        }
    });
    let sums = [
        sum("own", &rows, |row| row.group != "generated"),
        sum("generated", &rows, |row| row.group == "generated"),
        sum("all", &rows, |_| true),
    ];
    let mut report = Report::new("verify", format!("median of up to {rounds} rounds"));
    report.field("rounds", rounds);
    let columns = [
        ("program", "program", 0),
        ("group", "group", 0),
        ("insns", "insns", 0),
        ("walked", "walked", 0),
        ("states", "peak_states", 0),
        ("bytes", "peak_bytes", 0),
        ("process grew by", "peak_resident_bytes", 0),
        ("us", "us", 1),
        ("best us", "us_best", 1),
        ("ns/walked", "ns_per_walked", 1),
        ("Linux: walked", "linux.walked", 0),
        ("us", "linux.us", 1),
        ("ns/walked", "linux.ns_per_walked", 1),
        ("times skep's us", "linux_times", 1),
        ("refused", "linux.refused", 0),
    ];
    report.table("rows", "programs; Linux may walk more or fewer instructions than skep", &rows, &columns);
    let columns = [
        ("", "of", 0),
        ("programs", "programs", 0),
        ("walked", "walked", 0),
        ("us", "us", 1),
        ("ns/walked", "ns_per_walked", 1),
        ("best", "ns_per_walked_best", 1),
    ];
    report.table("sums", "in sum", &sums, &columns);
    Ok(report.linux(&release).targets(targets(&rows, &sums)))
}

fn sum(of: &'static str, rows: &[Row], which: impl Fn(&Row) -> bool) -> Sum {
    let rows: Vec<&Row> = rows.iter().filter(|row| which(row)).collect();
    let walked = rows.iter().map(|row| row.walked).sum();
    let us = rows.iter().map(|row| row.us).sum();
    let us_best = rows.iter().map(|row| row.us_best).sum();
    let per_walked = |us: f64| us * 1e3 / walked as f64;
    Sum {
        of,
        programs: rows.len(),
        walked,
        us,
        us_best,
        ns_per_walked: per_walked(us),
        ns_per_walked_best: per_walked(us_best),
    }
}

/// Where several programs show a figure, the worst one counts.
fn targets(rows: &[Row], sums: &[Sum]) -> Vec<Target> {
    let worst = |which: &dyn Fn(&Row) -> bool, of: &dyn Fn(&Row) -> f64| {
        rows.iter().filter(|row| which(row)).map(of).fold(0.0, f64::max)
    };
    let named = |start: &'static str| move |row: &Row| row.program.starts_with(start);
    let memory = |row: &Row| row.peak_bytes.max(row.peak_resident_bytes.unwrap_or(0)) as f64;
    let mut targets: Vec<Target> = ["a walked instruction, own programs", "a walked instruction, generated"]
        .into_iter()
        .zip(sums)
        .map(|(name, sum)| Target::at_most(name, "ns", 100.0, sum.ns_per_walked))
        .collect();
    targets.extend([
        Target::at_most(
            "4,000 straight-line instructions",
            "us",
            250.0,
            worst(&named("straight_"), &|row| row.us),
        ),
        Target::at_most(
            "1,024 rounds over a switch",
            "ms",
            20.0,
            worst(&named("switch_"), &|row| row.us / 1e3),
        ),
        Target::at_most(
            "memory, a million walked",
            "MiB",
            64.0,
            worst(&|row| row.walked >= MILLION, &memory) / f64::from(1 << 20),
        ),
    ]);
    targets
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
        for subject in subjects {
            let verified = subject.verify().unwrap_or_else(|refusal| panic!("{refusal}"));
            assert!(verified.stats().walked > 0 && subject.insns > 0, "{}", subject.name);
        }
    }

    #[test]
    fn the_sum_is_all_time_by_all_that_was_walked() {
        let row = |group: &'static str, walked: u64, us: f64| Row {
            program: String::new(),
            group,
            what: String::new(),
            insns: 1,
            walked,
            peak_states: 0,
            peak_bytes: 0,
            peak_resident_bytes: None,
            us,
            us_best: us / 2.0,
            ns_per_walked: us * 1e3 / walked as f64,
            turns: 1,
            linux: None,
            linux_times: None,
        };
        let rows = [row("exec", 100, 10.0), row("examples", 300, 10.0), row("generated", 9, 9.0)];
        let own = sum("own", &rows, |row| row.group != "generated");
        assert_eq!((own.programs, own.walked, own.us, own.ns_per_walked), (2, 400, 20.0, 50.0));
        assert_eq!((own.us_best, own.ns_per_walked_best), (10.0, 25.0));
    }
}
