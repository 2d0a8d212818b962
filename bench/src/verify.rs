//! `skep bench verify`: what verification takes, for each instruction that is walked, and how much memory.
//!
//! The subjects are skep's own programs (the examples and those that `skep bench exec` runs) and some that are made to be
//! long, to loop, or to have many states. Timed is the verifier alone, from a linked program to its verdict, with
//! everything that it allocates given back. Programs have their turns in rounds, so that whatever else the machine does
//! hits all of them.

mod generate;
mod linux;
mod resident;

use crate::load::Target;
use crate::programs::{EXAMPLES, PROGRAMS};
pub use linux::{Linux, report as report_linux};

use generate::Generated;
use resident::Growth;
use serde::Serialize;
use skep::abi::{Context, Entry, RAW};
use skep::isa::Insn;
use skep::{Object, ProgramOptions};
use skep_verifier::{Config, Refusal, Unverified, Verified, verify};
use std::process::Command;
use std::time::{Duration, Instant};

/// After so much time a program has no more turns, if it had [`LEAST`].
const PATIENCE: Duration = Duration::from_secs(3);
/// Turns that every program has.
const LEAST: usize = 5;
/// A program that is walked so far counts as one of a million instructions.
const MILLION: u64 = 900_000;
/// Where the running kernel says which it is.
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// The buffer of examples that are given one.
const BUFFER: u32 = 64;

/// What is measured.
#[derive(Debug)]
pub struct Options {
    /// How often each program has its turn; those that take long have fewer.
    pub rounds: u32,
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
    /// How often each program had its turn, at most.
    pub rounds: u32,
    /// Every program.
    pub rows: Vec<Row>,
    /// In sum, over skep's own programs, the generated ones, and all.
    pub sums: Vec<Sum>,
    /// What was to be reached.
    pub targets: Vec<Target>,
    /// The release of the running kernel, if it was asked as well.
    pub linux_release: Option<String>,
    /// Why it was not, although it was to be.
    pub linux_unavailable: Option<String>,
}

/// A program.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub program: String,
    /// `examples`, `exec` (the programs of `skep bench exec`) or `generated`.
    pub group: &'static str,
    /// Its object, or what it was made for.
    pub what: String,
    /// Instructions in it; a 64-bit load is one.
    pub insns: usize,
    /// Instructions walked over all paths.
    pub walked: u64,
    /// The most states at once.
    pub peak_states: u64,
    /// About how many bytes these took at most, as the verifier counts.
    pub peak_bytes: u64,
    /// For programs of a million walked instructions: how much larger the process was meanwhile than before the first
    /// program, if the system tells.
    pub peak_resident_bytes: Option<u64>,
    /// Microseconds, median.
    pub us: f64,
    /// Microseconds, best.
    pub us_best: f64,
    /// Nanoseconds for each walked instruction, by the median.
    pub ns_per_walked: f64,
    /// How many turns it had.
    pub turns: usize,
    /// What the running kernel took; `None` where it was not asked.
    pub linux: Option<Linux>,
}

/// Programs in sum.
#[derive(Debug, Serialize)]
pub struct Sum {
    /// Which: `own`, `generated` or `all`.
    pub of: &'static str,
    /// How many programs.
    pub programs: usize,
    /// Instructions walked in all.
    pub walked: u64,
    /// Microseconds in all, by the medians.
    pub us: f64,
    /// The same by the best times.
    pub us_best: f64,
    /// Nanoseconds for each walked instruction: the whole time by all that was walked, by the medians.
    pub ns_per_walked: f64,
    /// The same by the best times.
    pub ns_per_walked_best: f64,
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
        }
    }
}

/// Runs the benchmark; `progress` is told what comes next.
///
/// # Errors
///
/// A text that names the program where one is refused.
pub fn run(options: Options, mut progress: impl FnMut(&str)) -> Result<Report, String> {
    progress("memory");
    // What is walked for long comes first, while nothing is left of others that it could use instead of growing.
    let mut subjects = Subject::all()?;
    subjects.sort_by_key(|subject| subject.group != "generated");
    let growth = Growth::start();
    let growth = growth.as_ref();
    let mut runners =
        subjects.into_iter().map(|subject| Runner::new(subject, growth)).collect::<Result<Vec<_>, _>>()?;
    runners.sort_by_key(|runner| runner.subject.group == "generated");
    for round in 0..options.rounds.max(1) {
        if round % 50 == 0 {
            progress(&format!("round {} of {}", round + 1, options.rounds));
        }
        for runner in &mut runners {
            runner.turn()?;
        }
    }
    let mut rows: Vec<Row> = runners.into_iter().map(Runner::row).collect();
    let (mut linux_release, mut linux_unavailable) = (None, None);
    if let Some(command) = options.linux {
        progress("the running kernel");
        match linux::ask(command) {
            Ok(mut answers) => {
                rows.iter_mut().for_each(|row| row.linux = answers.remove(&row.program));
                let release = std::fs::read_to_string(RELEASE).unwrap_or_default();
                linux_release = Some(release.trim().to_owned());
            }
            Err(reason) => linux_unavailable = Some(reason),
        }
    }
    let sums = vec![
        sum("own", &rows, |row| row.group != "generated"),
        sum("generated", &rows, |row| row.group == "generated"),
        sum("all", &rows, |_| true),
    ];
    let targets = targets(&rows, &sums);
    Ok(Report {
        arch: std::env::consts::ARCH,
        cpu: crate::exec::cpu(),
        rounds: options.rounds,
        rows,
        sums,
        targets,
        linux_release,
        linux_unavailable,
    })
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

/// What was to be reached beside what was; where several programs show it, the one that does worst.
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
        };
        let rows = [row("exec", 100, 10.0), row("examples", 300, 10.0), row("generated", 9, 9.0)];
        let own = sum("own", &rows, |row| row.group != "generated");
        assert_eq!((own.programs, own.walked, own.us, own.ns_per_walked), (2, 400, 20.0, 50.0));
        assert_eq!((own.us_best, own.ns_per_walked_best), (10.0, 25.0));
    }
}
