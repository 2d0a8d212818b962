//! The loop: mutate, run, look, keep.

use crate::case::{Case, Why};
use crate::error::Error;
use crate::minimise::minimise;
use crate::packets::{self, Mutator, Seed, Words};
use crate::setup::Setup;
use crate::target::{Ran, Target, Wanted};
use fastrand::Rng;
use skep::Object;
use skep::abi::{Context, ProgramType};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs with the same contents of maps at their beginning.
const EPOCH: u64 = 20_000;
/// Inputs before a finding that may be needed for it.
const HISTORY: usize = 8;
/// Runs between two looks at the clock.
const PATIENCE: u64 = 1024;
/// The most cases of each kind but those that reach new code.
const MOST: usize = 16;

/// What is looked for, and for how long.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program.
    pub program: String,
    /// Its type, if the section says another.
    pub program_type: Option<&'static ProgramType>,
    /// Bytes of the buffer of programs over one (`raw`).
    pub buffer: u32,
    /// Inputs to begin with, besides [`seeds`](crate::seeds).
    pub seeds: Vec<Vec<u8>>,
    /// Everything that is random follows from it.
    pub seed: u64,
    /// The most runs; 0 for no limit.
    pub runs: u64,
    /// The most time; zero for no limit. Without any limit only `progress` ends the search.
    pub time: Duration,
    /// The most bytes of a packet.
    pub longest: usize,
    /// Verdicts that there should never be.
    pub never: Vec<String>,
    /// A program of the same object that sees each verdict, in four bytes, and the packet behind them. It returns 1
    /// if that is right.
    pub check: Option<String>,
    /// Whether to look for the inputs that take the most work.
    pub slowest: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// How many runs.
    pub runs: u64,
    /// How long they took, without what was done to make findings small.
    pub running: Duration,
    /// Places of the program that were reached, of those that are counted.
    pub reached: usize,
    /// All places that are counted.
    pub places: usize,
    /// Inputs that reach new code, in the order in which they were found.
    pub corpus: Vec<Case>,
    /// What should not be.
    pub findings: Vec<Case>,
    /// Findings that could not be repeated in a fresh runtime, with the inputs before them.
    pub lost: u64,
}

/// A program under test.
pub struct Fuzzer<'a> {
    object: &'a Object,
    old: Option<&'a Object>,
    options: Options,
    wanted: Wanted,
    old_wanted: Wanted,
    buffer: bool,
}

/// Places that no run has reached.
struct Unseen<'a>(Vec<&'a AtomicU64>);

impl Unseen<'_> {
    /// Forgets those that are reached now. Returns how many these are.
    fn update(&mut self) -> usize {
        let before = self.0.len();
        // Relaxed: this thread runs the programs.
        self.0.retain(|counter| counter.load(Ordering::Relaxed) == 0);
        before - self.0.len()
    }

    fn is_changed(&self) -> bool {
        self.0.iter().any(|counter| counter.load(Ordering::Relaxed) != 0)
    }
}

impl<'a> Fuzzer<'a> {
    /// Prepares to fuzz a program, and to compare it with an `old` version of its object.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn new(object: &'a Object, old: Option<&'a Object>, options: Options) -> Result<Self, Error> {
        let wanted = Wanted {
            program: options.program.clone(),
            program_type: options.program_type,
            check: options.check.clone(),
            buffer: Some(options.buffer),
        };
        let old_wanted = Wanted { check: None, ..wanted.clone() };
        let target = Target::load(object, &wanted, &Setup::default())?;
        let kind = target.program().program_type();
        let buffer = matches!(kind.context, Context::Buffer);
        let takes_packets = matches!(kind.native, Some(skep::abi::Native::Xdp | skep::abi::Native::Skb));
        if !buffer && !takes_packets {
            return Err(Error::NotBytes { program_type: kind.name });
        }
        let known = |verdict: &str| {
            verdict.parse::<i64>().is_ok() || kind.verdicts.iter().any(|(_, name)| *name == verdict)
        };
        if let Some(verdict) = options.never.iter().find(|verdict| !known(verdict)) {
            let names: Vec<&str> = kind.verdicts.iter().map(|(_, name)| *name).collect();
            return Err(Error::NoVerdict {
                program_type: kind.name,
                verdict: verdict.clone(),
                known: if names.is_empty() { "numbers".to_owned() } else { names.join(", ") },
            });
        }
        if let Some(old) = old {
            Target::load(old, &old_wanted, &Setup::default())?;
        }
        Ok(Self { object, old, options, wanted, old_wanted, buffer })
    }

    /// Whether inputs are buffers and not packets.
    pub fn takes_buffer(&self) -> bool {
        self.buffer
    }

    /// Fuzzes. `progress` is called now and then; it ends the search by returning `false`.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if the system refuses memory in the middle.
    pub fn run(&self, progress: &mut dyn FnMut(&Report) -> bool) -> Result<Report, Error> {
        let mut report = Report::default();
        let first = Target::load(self.object, &self.wanted, &Setup::default())?;
        let words = Words::of(first.program().verified(), &first.module);
        let mut mutator = Mutator {
            rng: Rng::with_seed(self.options.seed),
            words: words.clone(),
            longest: self.options.longest.max(64),
            buffer: self.buffer,
        };
        let mut corpus = self.options.seeds.clone();
        match self.buffer {
            true => corpus.push(vec![0; self.options.buffer as usize]),
            false => corpus.extend(packets::seeds()),
        }
        if self.buffer {
            corpus.iter_mut().for_each(|bytes| bytes.resize(self.options.buffer as usize, 0));
        }
        let mut corpus: Vec<Seed> = corpus.into_iter().map(|bytes| Seed::new(bytes, self.buffer)).collect();
        let places = first.program().counters().len();
        report.places = places;
        let mut reached: Vec<bool> = vec![false; places];
        let mut known: BTreeSet<Why> = BTreeSet::new();
        let began = Instant::now();
        let mut aside = Duration::ZERO;
        let mut setup = Setup::default();
        let mut slowest = 0;
        drop(first);
        'epochs: loop {
            let mut target = Target::load(self.object, &self.wanted, &setup)?;
            let old = self.old.map(|old| Target::load(old, &self.old_wanted, &setup));
            let mut old = old.transpose()?;
            let mut history: VecDeque<Vec<u8>> = VecDeque::with_capacity(HISTORY + 1);
            let (mut input, mut whole) = (Vec::new(), Vec::new());
            // Handles are cheap, and the counters are those of the same program.
            let program = target.program().clone();
            let counters = program.counters();
            let fresh = counters.iter().zip(&reached).filter(|(_, reached)| !**reached);
            let mut unseen = Unseen(fresh.map(|(counter, _)| *counter).collect());
            for run in 0..EPOCH {
                if report.runs % PATIENCE == 0 {
                    report.running = began.elapsed().saturating_sub(aside);
                    report.reached = reached.iter().filter(|reached| **reached).count();
                    if self.is_over(&report, began) || !progress(&report) {
                        break 'epochs;
                    }
                }
                // Each epoch begins with the whole corpus as it is.
                match corpus.get(run as usize) {
                    Some(seed) => input.clone_from(&seed.bytes),
                    None => mutator.next(&corpus, &mut input),
                }
                let before = if self.options.slowest { total(&counters) } else { 0 };
                let ran = target.run(&input);
                report.runs += 1;
                let mut found = Vec::new();
                if unseen.is_changed() {
                    unseen.update();
                    for (counter, reached) in counters.iter().zip(&mut reached) {
                        *reached |= counter.load(Ordering::Relaxed) != 0;
                    }
                    corpus.push(Seed::new(input.clone(), self.buffer));
                    found.push(Why::Reaches { verdict: target.verdict(&ran) });
                }
                if self.options.slowest {
                    let blocks = total(&counters).wrapping_sub(before);
                    if blocks > slowest {
                        slowest = blocks;
                        corpus.push(Seed::new(input.clone(), self.buffer));
                        known.retain(|why| !matches!(why, Why::Slowest { .. }));
                        report.findings.retain(|case| !matches!(case.why, Why::Slowest { .. }));
                        found.push(Why::Slowest { blocks });
                    }
                }
                found.extend(self.judge(&mut target, old.as_mut(), &ran, &input, &mut whole));
                for why in found {
                    let is_new_code = matches!(why, Why::Reaches { .. });
                    let kind = std::mem::discriminant(&why);
                    let of_kind = known.iter().filter(|known| std::mem::discriminant(*known) == kind);
                    if !is_new_code && (of_kind.count() >= MOST || !known.insert(why.clone())) {
                        continue;
                    }
                    let paused = Instant::now();
                    let case = Case {
                        setup: setup.clone(),
                        before: history.iter().cloned().collect(),
                        input: input.clone(),
                        why,
                    };
                    match (is_new_code, self.small(case)) {
                        (true, case) => report.corpus.extend(case),
                        (false, Some(case)) => report.findings.push(case),
                        (false, None) => report.lost += 1,
                    }
                    aside += paused.elapsed();
                }
                history.push_back(std::mem::take(&mut input));
                if history.len() > HISTORY {
                    input = history.pop_front().unwrap_or_default();
                }
            }
            setup = Setup::random(&target.module, &words.numbers, &mut mutator.rng);
            // What is in maps should be in packets too.
            mutator.words = words.clone();
            setup.elements.iter().for_each(|element| mutator.words.add(&element.key));
        }
        Ok(report)
    }

    fn is_over(&self, report: &Report, began: Instant) -> bool {
        let Options { runs, time, .. } = self.options;
        (runs > 0 && report.runs >= runs) || (!time.is_zero() && began.elapsed() >= time)
    }

    /// What is wrong with a run.
    fn judge(
        &self,
        target: &mut Target,
        old: Option<&mut Target>,
        ran: &Ran,
        input: &[u8],
        whole: &mut Vec<u8>,
    ) -> Vec<Why> {
        let mut found = Vec::new();
        match ran {
            Ran::Failed(error) => found.push(Why::Fails { error: error.clone() }),
            Ran::Verdict(result) => {
                if !self.options.never.is_empty() {
                    let verdict = target.verdict(ran);
                    if self.options.never.contains(&verdict) {
                        found.push(Why::Never { verdict });
                    }
                }
                match target.check(*result, whole) {
                    None | Some(Ran::Verdict(1 | 3)) => {}
                    Some(other) => {
                        let check = match other {
                            Ran::Verdict(result) => (result as u32 as i32).to_string(),
                            Ran::Failed(error) => error,
                        };
                        found.push(Why::Violates { verdict: target.verdict(ran), check });
                    }
                }
            }
        }
        if let Some(old) = old {
            let was = old.run(input);
            let packet = was == *ran;
            if !packet || old.left() != target.left() {
                found.push(Why::Differs { old: old.verdict(&was), new: target.verdict(ran), packet });
            }
        }
        found
    }

    /// The smallest case that shows the same in a fresh runtime; `None` if this one does not.
    fn small(&self, mut case: Case) -> Option<Case> {
        // Where an input reaches: its counters in a fresh runtime, beside those of what is before it.
        let places = match case.why {
            Why::Reaches { .. } => Some(self.reached_by(&case)?),
            _ => None,
        };
        let mut holds = |case: &Case| match &places {
            Some(places) => self.reached_by(case).as_ref() == Some(places),
            None => self.shows(case),
        };
        if places.is_some() {
            // It was new beside all that ran before, so that alone need not be needed.
            let alone = Case { before: Vec::new(), ..case.clone() };
            case = if holds(&alone) { alone } else { case };
        } else if !holds(&case) {
            return None;
        }
        Some(minimise(case, self.buffer, &mut holds))
    }

    /// The places that the last input of a case reaches.
    fn reached_by(&self, case: &Case) -> Option<Vec<bool>> {
        let mut target = Target::load(self.object, &self.wanted, &case.setup).ok()?;
        case.before.iter().for_each(|input| _ = target.run(input));
        target.program().reset_coverage();
        target.run(&case.input);
        let counters = target.program().counters();
        Some(counters.iter().map(|counter| counter.load(Ordering::Relaxed) != 0).collect())
    }

    /// Whether a case shows what it is kept for, in a fresh runtime.
    fn shows(&self, case: &Case) -> bool {
        let target = Target::load(self.object, &self.wanted, &case.setup);
        let old = self.old.map(|old| Target::load(old, &self.old_wanted, &case.setup)).transpose();
        let (Ok(mut target), Ok(mut old)) = (target, old) else { return false };
        for input in &case.before {
            target.run(input);
            old.iter_mut().for_each(|old| _ = old.run(input));
        }
        let program = target.program().clone();
        let before = total(&program.counters());
        let ran = target.run(&case.input);
        if let Why::Slowest { blocks } = case.why {
            return total(&program.counters()).wrapping_sub(before) == blocks;
        }
        self.judge(&mut target, old.as_mut(), &ran, &case.input, &mut Vec::new()).contains(&case.why)
    }

    /// What the version before does with a case, as keys of a table's `expect`; nothing without one.
    pub fn expected(&self, case: &Case) -> Vec<String> {
        let Some(Ok(mut old)) = self.old.map(|old| Target::load(old, &self.old_wanted, &case.setup)) else {
            return Vec::new();
        };
        case.before.iter().for_each(|input| _ = old.run(input));
        match old.run(&case.input) {
            Ran::Failed(_) => Vec::new(),
            ran => {
                let verdict = old.verdict(&ran);
                let verdict = match verdict.parse::<i64>() {
                    Ok(number) => number.to_string(),
                    Err(_) => format!("\"{verdict}\""),
                };
                let mut lines = vec![format!("verdict = {verdict}")];
                if !self.buffer {
                    lines.push(format!("packet = {}", crate::case::quoted(&skep_frames::text(old.left()))));
                }
                lines
            }
        }
    }

    /// What the program itself does with a case, as keys of a table's `expect`.
    pub fn done(&self, case: &Case) -> Vec<String> {
        let itself = Self {
            old: Some(self.object),
            options: self.options.clone(),
            wanted: self.wanted.clone(),
            old_wanted: self.old_wanted.clone(),
            ..*self
        };
        itself.expected(case)
    }

    /// A module of the program, whose types tables are written by.
    ///
    /// # Errors
    ///
    /// [`Error::Load`].
    pub fn module(&self) -> Result<skep::Module, Error> {
        Ok(Target::load(self.object, &self.wanted, &Setup::default())?.module)
    }
}

fn total(counters: &[&AtomicU64]) -> u64 {
    counters.iter().fold(0, |total, counter| total.wrapping_add(counter.load(Ordering::Relaxed)))
}
