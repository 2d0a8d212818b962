//! `skep verify --kernels`: the verdicts of many releases of Linux on the programs of many objects.
//!
//! An object is analysed once for each set of types that releases were given with, and once in all if it depends on no
//! types. The releases are then asked by table (`skep-kernels`). Objects are shared out over the processors.

mod sarif;
mod table;

use crate::failure::Failure;
use crate::output;
use crate::target;
use serde::Serialize;
use skep::abi::{Context, ProgramSource};
use skep::{Abilities, Btf, Error, Object, ProgramOptions, Refusal, Verified, VerifyOptions};
use skep_kernels::{
    Configuration, Given, Judgement, Obstacle, Outcome, Program, Rule, Symbols, Verdict, Version, abilities,
    judge, judge_unlinked,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How the verdicts are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
    Sarif,
}

/// Files about kernels, each as `RELEASE=FILE`.
pub(crate) struct Files<'a> {
    /// Types; several of one release are those of the kernel and of modules.
    pub(crate) types: &'a [PathBuf],
    pub(crate) configs: &'a [PathBuf],
    pub(crate) symbols: &'a [PathBuf],
}

/// A release, with what was given of it.
pub(crate) struct Kernel {
    version: Version,
    types: Option<Arc<Btf>>,
    config: Option<Arc<Config>>,
    symbols: Option<Symbols>,
}

/// A configuration, and its text.
struct Config {
    text: String,
    options: Configuration,
}

/// The verdicts on an object.
#[derive(Serialize)]
pub(crate) struct Report {
    object: String,
    /// Why there are no programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    programs: Vec<Row>,
}

/// The verdicts on a program.
#[derive(Serialize)]
struct Row {
    program: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    program_type: Option<&'static str>,
    kernels: Vec<Cell>,
}

/// The verdict of a release.
#[derive(Serialize)]
struct Cell {
    kernel: String,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    insn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

/// Runs the command.
pub(crate) fn main(
    objects: &[PathBuf],
    versions: &[Version],
    files: &Files<'_>,
    options: ProgramOptions,
    only: Option<&str>,
    format: Format,
) -> Result<(), Failure> {
    let kernels = kernels(versions, files)?;
    let reports = reports(objects, &kernels, options, only);
    match format {
        Format::Text => output::pieces(&table::text(&reports, &kernels))?,
        Format::Json => output::json(&reports)?,
        Format::Sarif => output::json(&sarif::document(&reports))?,
    }
    let unread = reports.iter().any(|report| report.error.is_some());
    let cells = reports.iter().flat_map(|report| &report.programs).flat_map(|row| &row.kernels);
    let refused = cells.into_iter().any(|cell| cell.verdict == Verdict::Refused.name());
    if refused || unread { Err(Failure::AlreadyReported) } else { Ok(()) }
}

/// The releases in the given order, each once, with what files say about them.
fn kernels(versions: &[Version], files: &Files<'_>) -> Result<Vec<Kernel>, Failure> {
    let mut kernels: Vec<Kernel> = Vec::new();
    for &version in versions {
        if !kernels.iter().any(|kernel| kernel.version == version) {
            kernels.push(Kernel { version, types: None, config: None, symbols: None });
        }
    }
    let types = of_releases("--btf", files.types, &kernels)?;
    for (at, kernel) in kernels.iter_mut().enumerate() {
        let mine: Vec<PathBuf> =
            types.iter().filter(|(of, _)| *of == at).map(|(_, path)| path.clone()).collect();
        if let [first, modules @ ..] = &mine[..] {
            kernel.types = Some(target::joined(first, modules)?);
        }
    }
    for (at, path) in of_releases("--kconfig", files.configs, &kernels)? {
        let text = target::text(&path)?;
        kernels[at].config = Some(Arc::new(Config { options: Configuration::parse(&text), text }));
    }
    for (at, path) in of_releases("--symbols", files.symbols, &kernels)? {
        let symbols = Symbols::parse(&target::text(&path)?);
        if symbols.is_empty() {
            let text = "has no symbols; give what a root user reads in /proc/kallsyms, or System.map";
            return Err(Failure::Usage(format!("--symbols {}: {text}", path.display())));
        }
        kernels[at].symbols = Some(symbols);
    }
    Ok(kernels)
}

/// The files of an option, each with the place of its kernel.
fn of_releases(
    option: &str,
    given: &[PathBuf],
    kernels: &[Kernel],
) -> Result<Vec<(usize, PathBuf)>, Failure> {
    let of_one = |path: &PathBuf| {
        let text = path.to_string_lossy();
        let Some((version, path)) = text.split_once('=') else {
            return Err(Failure::Usage(format!(
                "with --kernels, {option} needs the release that the file is of: {option} 6.1={text}"
            )));
        };
        let version: Version =
            version.parse().map_err(|error| Failure::Usage(format!("{option} {text}: {error}")))?;
        match kernels.iter().position(|kernel| kernel.version == version) {
            Some(at) => Ok((at, PathBuf::from(path))),
            None => Err(Failure::Usage(format!("{option} {text}: {version} is not among --kernels"))),
        }
    };
    given.iter().map(of_one).collect()
}

/// The verdicts on all objects, in their order.
fn reports(
    objects: &[PathBuf],
    kernels: &[Kernel],
    options: ProgramOptions,
    only: Option<&str>,
) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Report)>> = Mutex::new(Vec::new());
    let work = || {
        // Relaxed: the counter only deals out numbers.
        while let Some((index, path)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, objects.get(index)?)))
        {
            let report = report(path, kernels, options, only);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, report));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from).min(objects.len());
    std::thread::scope(|scope| {
        (1..processors).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, report)| report).collect()
}

fn report(path: &Path, kernels: &[Kernel], options: ProgramOptions, only: Option<&str>) -> Report {
    let name = path.display().to_string();
    let unread = |error: String| Report { object: name.clone(), error: Some(error), programs: Vec::new() };
    let (object, needs) = match read(path) {
        Ok((object, needs)) if options.program_type.is_some() => (object, needs.with_types_set()),
        Ok(read) => read,
        Err(error) => return unread(error.to_string()),
    };
    let names: Vec<String> = object.programs().into_iter().map(str::to_owned).collect();
    let chosen: Vec<String> =
        names.iter().filter(|name| only.is_none_or(|only| *name == only)).cloned().collect();
    if chosen.is_empty() {
        return unread(match only {
            Some(only) => format!("the object has no program {only:?}; its programs: {}", names.join(", ")),
            None => "the object has no programs".to_owned(),
        });
    }
    let mut rows: Vec<Row> = chosen
        .iter()
        .map(|program| Row { program: program.clone(), program_type: None, kernels: Vec::new() })
        .collect();
    let mut all_abilities: Vec<Abilities> = Vec::new();
    for abilities in kernels.iter().map(|kernel| abilities(kernel.version)) {
        if !all_abilities.contains(&abilities) {
            all_abilities.push(abilities);
        }
    }
    let mut known: Option<(Target, Vec<Analysis>)> = None;
    for kernel in kernels {
        let target = Target::of(&object, kernel);
        if known.as_ref().is_none_or(|(same, _)| *same != target) {
            // Analyses for one release alone need its abilities alone.
            let mine = [abilities(kernel.version)];
            let of_one = target.types.is_some() || target.release.is_some();
            let asked = if of_one { &mine[..] } else { &all_abilities };
            let analyse = |name: &String| Analysis::of(&object, name, &target, options, asked);
            let analyses = chosen.iter().map(analyse).collect();
            known = Some((target, analyses));
        }
        let Some((target, analyses)) = &known else { continue };
        for (row, analysis) in rows.iter_mut().zip(analyses) {
            row.program_type = row.program_type.or(analysis.program_type());
            let judgement = analysis.judgement(&needs, target.types.as_deref(), kernel);
            row.kernels.push(Cell::new(kernel.version, judgement));
        }
    }
    Report { object: name, error: None, programs: rows }
}

/// The object, and what it needs as a whole.
fn read(path: &Path) -> Result<(Object, skep_kernels::Object), Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let needs = skep_kernels::Object::of(&skep_elf::Object::parse(&bytes)?);
    Ok((Object::parse(&bytes)?, needs))
}

/// What an analysis depends on.
#[derive(Clone)]
struct Target {
    types: Option<Arc<Btf>>,
    /// Whether linking depends on types that are missing.
    lacks_types: bool,
    /// The release, if the object asks for it.
    release: Option<Version>,
    /// The configuration, if it was given and the object asks for it.
    config: Option<Arc<Config>>,
}

impl Target {
    fn of(object: &Object, kernel: &Kernel) -> Self {
        let types = kernel.types.clone().filter(|_| object.refers_to_host());
        let asks = object.maps().iter().any(|map| map.name == ".kconfig");
        Self {
            lacks_types: types.is_none() && object.is_linked_to_host(),
            types,
            release: asks.then_some(kernel.version),
            config: kernel.config.clone().filter(|_| asks),
        }
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        let address = |target: &Self| target.types.as_ref().map(Arc::as_ptr);
        address(self) == address(other) && self.release == other.release
    }
}

/// A program as skep sees it.
enum Analysis {
    Verified {
        source: Box<ProgramSource>,
        verdict: Box<Result<Verified, Error>>,
        /// Refusals with the abilities of some releases only.
        limited: Vec<(Abilities, Option<Box<Refusal>>)>,
    },
    TypesMissing {
        source: Box<ProgramSource>,
    },
    Unlinked {
        error: Box<Error>,
        types_given: bool,
    },
}

impl Analysis {
    fn of(
        object: &Object,
        name: &str,
        target: &Target,
        options: ProgramOptions,
        all_abilities: &[Abilities],
    ) -> Self {
        let mut object = object.clone();
        if let Some(types) = &target.types {
            object.set_host_types(Arc::clone(types));
        }
        let release = target.release.map(|version| format!("{version}.0"));
        let unlinked = |error| Self::Unlinked { error: Box::new(error), types_given: target.types.is_some() };
        let text = target.config.as_ref().map_or("", |config| &config.text);
        if let Some(error) = release.and_then(|release| object.set_config(text, Some(&release)).err()) {
            return unlinked(error);
        }
        match object.linked(name, options) {
            Err(error) => unlinked(error),
            Ok(source) => {
                let given = matches!(source.program_type.context, Context::Arguments { .. });
                let source = Box::new(source);
                if target.lacks_types || (given && target.types.is_none()) {
                    return Self::TypesMissing { source };
                }
                // Kernels are asked as root.
                let rooted =
                    || VerifyOptions { privileged: true, for_kernel: true, ..VerifyOptions::default() };
                let verdict = Box::new(object.verify_with(name, options, rooted()));
                let with = |abilities: &Abilities| {
                    let how = VerifyOptions { abilities: *abilities, ..rooted() };
                    match object.verify_with(name, options, how) {
                        Err(Error::Refused(refusal)) => (*abilities, Some(refusal)),
                        _ => (*abilities, None),
                    }
                };
                let asked = all_abilities.iter().filter(|_| verdict.is_ok());
                Self::Verified { limited: asked.map(with).collect(), source, verdict }
            }
        }
    }

    fn program_type(&self) -> Option<&'static str> {
        match self {
            Self::Verified { source, .. } | Self::TypesMissing { source } => Some(source.program_type.name),
            Self::Unlinked { .. } => None,
        }
    }

    fn judgement(&self, object: &skep_kernels::Object, types: Option<&Btf>, kernel: &Kernel) -> Judgement {
        let version = kernel.version;
        let unknown = |error: &Error| {
            let text = error.to_string();
            Judgement::not_certain(Obstacle { rule: Rule::Missing, text, since: None, place: None })
        };
        let (source, outcome) = match self {
            Self::Unlinked { error, types_given } => {
                return match &**error {
                    Error::Object(error) => judge_unlinked(error, version, *types_given),
                    error => unknown(error),
                };
            }
            Self::TypesMissing { source } => (source, Outcome::TypesMissing),
            Self::Verified { source, verdict, .. } => match &**verdict {
                Ok(verified) => (source, Outcome::Accepted(verified)),
                Err(Error::Refused(refusal)) => (source, Outcome::Refused(refusal)),
                Err(error) => return unknown(error),
            },
        };
        let limited = match self {
            Self::Verified { limited, .. } => {
                let mine = limited.iter().find(|(of, _)| *of == abilities(version));
                mine.and_then(|(_, refusal)| refusal.as_deref())
            }
            _ => None,
        };
        let given = Given {
            types,
            config: kernel.config.as_ref().map(|config| &config.options),
            symbols: kernel.symbols.as_ref(),
        };
        judge(&Program { source, object: Some(object), given, outcome, limited }, version)
    }
}

impl Cell {
    fn new(version: Version, judgement: Judgement) -> Self {
        let obstacle = judgement.obstacle;
        let place = obstacle.as_ref().and_then(|obstacle| obstacle.place.clone());
        let shared = |text: &Arc<str>| text.trim().to_owned();
        Self {
            kernel: version.to_string(),
            verdict: judgement.verdict.name(),
            rule: obstacle.as_ref().map(|obstacle| obstacle.rule.name()),
            since: obstacle.as_ref().and_then(|obstacle| obstacle.since).map(|since| since.to_string()),
            reason: obstacle.map(|obstacle| obstacle.text),
            insn: place.as_ref().map(|place| place.slot),
            text: place.as_ref().map(|place| place.insn.clone()),
            file: place.as_ref().and_then(|place| place.file.as_deref()).map(str::to_owned),
            line: place.as_ref().and_then(|place| place.line),
            source: place.as_ref().and_then(|place| place.source.as_ref()).map(shared),
        }
    }

    /// Whether the same stands in the way.
    fn is_like(&self, other: &Self) -> bool {
        (self.verdict, &self.reason, self.insn) == (other.verdict, &other.reason, other.insn)
    }
}

impl Row {
    /// Cells with the same verdict and reason, each with the releases that it is of.
    fn groups(&self) -> Vec<(&Cell, Vec<&str>)> {
        let mut groups: Vec<(&Cell, Vec<&str>)> = Vec::new();
        for cell in &self.kernels {
            match groups.iter_mut().find(|(first, _)| first.is_like(cell)) {
                Some((_, kernels)) => kernels.push(&cell.kernel),
                None => groups.push((cell, vec![&cell.kernel])),
            }
        }
        groups
    }
}
