//! `skep mutate`: which changes of a program no test notices.
//!
//! Exit status: 0 changes were judged (and the score is what `--at-least` asks for), 1 the score is lower, a test fails
//! on the unchanged object or the object was refused, 2 wrong usage.

use crate::failure::Failure;
use crate::output;
use indicatif::ProgressBar;
use skep::Budget;
use skep_mutate::{Error, Mutant, Mutants, Score};
use skep_test::{Options, Suite};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Change a program, one instruction at a time, and say which changes no test notices.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  skep mutate firewall.bpf.o --tests tests            the changes that no test notices, by source line
  skep mutate firewall.bpf.o --tests tests --sample 100  the same for a hundred changes
  skep mutate firewall.bpf.o --tests tests --at-least 80  for a CI server: status 1 below 80 %
  skep mutate firewall.bpf.o --list                   all changes with their numbers
  skep mutate firewall.bpf.o --tests tests --only 17  one of them
  skep mutate firewall.bpf.o --only 17 --write m.o    the object with this change, to look at it

Tests are those of skep test. Those of other objects are left out.")]
pub(crate) struct Args {
    /// The object whose programs are changed. The file stays as it is.
    #[arg(value_name = "OBJ")]
    object: PathBuf,
    /// Table files, objects with tests in C, or folders with both.
    #[arg(long, value_name = "PATH", num_args = 1.., required_unless_present_any = ["list", "write"])]
    tests: Vec<PathBuf>,
    /// Change only this program.
    #[arg(long, value_name = "NAME")]
    prog: Option<String>,
    /// Only the change of this number.
    #[arg(long, value_name = "N")]
    only: Option<usize>,
    /// Only this many changes, spread evenly over all.
    #[arg(long, value_name = "N", conflicts_with = "only")]
    sample: Option<NonZeroUsize>,
    /// Print the changes and run no test.
    #[arg(long, conflicts_with = "tests")]
    list: bool,
    /// Write the object with the change to this file and run no test.
    #[arg(long, value_name = "FILE", requires = "only", conflicts_with_all = ["list", "tests"])]
    write: Option<PathBuf>,
    /// Also print the changes that are noticed or not counted.
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// The lowest share of noticed changes, in percent, that is a success.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    at_least: Option<f64>,
    /// The units of work (about instructions) that each run of a program may take; a change that takes more is noticed.
    #[arg(long, value_name = "UNITS", default_value_t = 10_000_000)]
    budget: u64,
    /// Number of threads; 0 for one for each processor.
    #[arg(long, value_name = "N", default_value_t = 0)]
    jobs: usize,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let path = args.object.display();
    let bytes = std::fs::read(&args.object)
        .map_err(|error| Failure::Refused(format!("cannot read {path}: {error}")))?;
    let mutants = Mutants::of(bytes, args.prog.as_deref()).map_err(|error| match error {
        Error::UnknownProgram { .. } => Failure::Usage(format!("{path}: {error}")),
        other => Failure::Refused(format!("{path}: {other}")),
    })?;
    let chosen = chosen(args, &mutants)?;
    if let (Some(file), [mutant]) = (&args.write, &*chosen) {
        return output::file(file, mutants.bytes(mutant));
    }
    if args.list {
        return match args.json {
            true => output::json(&skep_mutate::listed_json(chosen)),
            false => output::text(&skep_mutate::listed(chosen)),
        };
    }
    let mut suite = crate::test::suite(&args.tests)?;
    suite.retain_object(&args.object);
    if suite.is_empty() {
        return Err(Failure::Usage(format!("none of these tests is of {path}")));
    }
    let score = judge(args, &mutants, &chosen, &suite)?;
    if args.json {
        output::json(&skep_mutate::json(&score))?;
    } else {
        output::text(&skep_mutate::text(&score, args.all || args.only.is_some()))?;
    }
    match (args.at_least, score.percent()) {
        (Some(wanted), Some(found)) if found < wanted => {
            Err(Failure::Refused(format!("{found:.1} % of the changes were noticed, fewer than {wanted} %")))
        }
        _ => Ok(()),
    }
}

fn chosen<'a>(args: &Args, mutants: &'a Mutants) -> Result<Vec<&'a Mutant>, Failure> {
    match (args.only, args.sample) {
        (Some(number), _) => {
            let mutant = mutants.mutant(number).map_err(|error| Failure::Usage(error.to_string()))?;
            Ok(vec![mutant])
        }
        (None, Some(count)) => Ok(mutants.sample(count.get())),
        (None, None) => Ok(mutants.all().iter().collect()),
    }
}

fn judge(args: &Args, mutants: &Mutants, chosen: &[&Mutant], suite: &Suite) -> Result<Score, Failure> {
    // Drawn on standard error, and only on a terminal.
    let bar = ProgressBar::new(chosen.len() as u64);
    let options = Options { jobs: args.jobs, budget: Some(Budget::units(args.budget)), ..Options::default() };
    let score = mutants.judge(chosen, suite, &options, &|| bar.inc(1));
    bar.finish_and_clear();
    score.map_err(|error| Failure::Refused(error.to_string()))
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 100".to_owned()),
    }
}
