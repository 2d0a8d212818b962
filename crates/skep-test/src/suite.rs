//! Finds tests below paths and runs them, on several threads.

use crate::captures::Captures;
use crate::error::Error;
use crate::options::Options;
use crate::outcome::{Outcome, Report, Seen, TestResult};
use crate::run;
use crate::sections::{self, Checks};
use crate::table::{self, Test};
use skep::Object;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The end of the names of table files.
const TABLE: &str = ".test.toml";

/// Folders with what compilers and package managers put there: much to read, and no tests.
const SKIPPED: [&str; 2] = ["target", "node_modules"];
/// The machine in the header of an ELF file.
const EM_BPF: u16 = 247;

/// Tests that were found.
pub struct Suite {
    entries: Vec<Entry>,
    files: Vec<PathBuf>,
}

/// A test, and where it is from.
struct Entry {
    file: PathBuf,
    kind: Kind,
}

enum Kind {
    Table(Box<Test>),
    Checks(Checks, PathBuf),
    /// A file that could not be read: a test that is broken.
    Unreadable(String, usize),
}

impl Suite {
    /// Finds the tests below these paths: table files, objects with tests, folders with both. `captures` reads the
    /// packets of a capture.
    ///
    /// A file that is named here must have tests; those in folders need not.
    ///
    /// # Errors
    ///
    /// [`Error`]: a path cannot be read or has no tests. A wrong table file is a broken test, so the others still run.
    pub fn find(paths: &[PathBuf], captures: Captures) -> Result<Self, Error> {
        let mut suite = Self { entries: Vec::new(), files: Vec::new() };
        for path in paths {
            let before = suite.entries.len();
            if path.is_dir() {
                for file in files_below(path)? {
                    suite.add(&file, &captures, false)?;
                }
            } else {
                suite.add(path, &captures, true)?;
            }
            if suite.entries.len() == before {
                return Err(Error::NoTests { path: path.clone() });
            }
        }
        Ok(suite)
    }

    fn add(&mut self, file: &Path, captures: &Captures, named: bool) -> Result<(), Error> {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let entry = |kind| Entry { file: file.to_owned(), kind };
        if name.ends_with(TABLE) || (named && name.ends_with(".toml")) {
            let text = std::fs::read_to_string(file).map_err(Error::file("read", file))?;
            self.files.push(file.to_owned());
            match table::tests(file, text, captures) {
                Ok(tests) => {
                    self.files.extend(tests.iter().map(|test| test.object.0.clone()));
                    self.entries.extend(tests.into_iter().map(|test| entry(Kind::Table(Box::new(test)))));
                }
                Err(error) => self.entries.push(entry(Kind::Unreadable(error.to_string(), error.line))),
            }
        } else if named || (name.ends_with(".o") && is_bpf(file)) {
            let bytes = std::fs::read(file).map_err(Error::file("read", file))?;
            let tests = match sections::tests(file, &bytes) {
                Ok(tests) => tests,
                Err(error) if named => return Err(error),
                // Other objects in the folder are not ours to judge.
                Err(_) => return Ok(()),
            };
            if !tests.is_empty() {
                self.files.push(file.to_owned());
            }
            let object = file.to_owned();
            self.entries.extend(tests.into_iter().map(|test| entry(Kind::Checks(test, object.clone()))));
        }
        Ok(())
    }

    /// Keeps the tests of which the file or the name contains a text.
    pub fn filter(&mut self, text: &str) {
        self.entries
            .retain(|entry| entry.name().contains(text) || entry.file.to_string_lossy().contains(text));
    }

    /// File, name and line of each test, in the order in which results come.
    pub fn list(&self) -> impl Iterator<Item = (&Path, &str, usize)> {
        self.entries.iter().map(|entry| (&*entry.file, entry.name(), entry.line()))
    }

    /// The number of tests.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The files that the tests are from, and their objects, each once: what a change of may change results.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = self.files.clone();
        files.sort();
        files.dedup();
        files
    }

    /// Keeps the tests that load the object in this file. Paths are compared as the file system resolves them.
    pub fn retain_object(&mut self, object: &Path) {
        let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let object = resolved(object);
        self.entries.retain(|entry| match &entry.kind {
            Kind::Table(test) => resolved(&test.object.0) == object,
            Kind::Checks(_, path) => resolved(path) == object,
            Kind::Unreadable(..) => true,
        });
    }

    /// Runs the tests one after the other on this object, whatever objects their files name, until one fails or breaks.
    /// Returns that one's result. [`Options::jobs`] does not count.
    pub fn first_failure(&self, object: &Arc<Object>, options: &Options) -> Option<TestResult> {
        let objects = Objects::default();
        {
            let mut known = objects.0.lock().unwrap_or_else(PoisonError::into_inner);
            for entry in &self.entries {
                let path = match &entry.kind {
                    Kind::Table(test) => &test.object.0,
                    Kind::Checks(_, path) => path,
                    Kind::Unreadable(..) => continue,
                };
                known.insert(path.clone(), Ok(Arc::clone(object)));
            }
        }
        let results = self.entries.iter().map(|entry| entry.run(&objects, options));
        results.into_iter().find(|result| matches!(result.outcome, Outcome::Failed(_) | Outcome::Broken(_)))
    }

    /// Runs all tests. `ended` is called after each, in the order in which they end, from the threads that run them.
    pub fn run(&self, options: &Options, ended: &(dyn Fn(&TestResult) + Sync)) -> Report {
        let began = Instant::now();
        let objects = Objects::default();
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = match options.jobs {
            _ if options.kernel => 1,
            0 => processors(),
            jobs => jobs,
        };
        let jobs = jobs.clamp(1, self.entries.len().max(1));
        // Relaxed: it only deals out numbers; results are handed over by the join at the scope's end.
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut done = Vec::new();
            while let Some((at, entry)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                self.entries.get(at).map(|entry| (at, entry))
            } {
                let result = entry.run(&objects, options);
                ended(&result);
                done.push((at, result));
            }
            done
        };
        let mut results: Vec<(usize, TestResult)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..jobs).map(|_| scope.spawn(worker)).collect();
            let mut results = worker();
            for thread in threads {
                match thread.join() {
                    Ok(done) => results.extend(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            results
        });
        results.sort_by_key(|(at, _)| *at);
        Report { results: results.into_iter().map(|(_, result)| result).collect(), elapsed: began.elapsed() }
    }
}

/// Objects that were read and parsed, by path.
#[derive(Default)]
struct Objects(Mutex<BTreeMap<PathBuf, Result<Arc<Object>, String>>>);

impl Objects {
    fn open(&self, path: &Path) -> Result<Arc<Object>, String> {
        let mut objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || match Object::open(path) {
            Ok(object) => Ok(Arc::new(object)),
            Err(error) => Err(error.to_string()),
        };
        objects.entry(path.to_owned()).or_insert_with(open).clone()
    }
}

impl Entry {
    fn name(&self) -> &str {
        match &self.kind {
            Kind::Table(test) => &test.name,
            Kind::Checks(test, _) => &test.name,
            Kind::Unreadable(..) => "(the file)",
        }
    }

    fn line(&self) -> usize {
        match &self.kind {
            Kind::Table(test) => test.line,
            Kind::Checks(..) => 0,
            Kind::Unreadable(_, line) => *line,
        }
    }

    fn run(&self, objects: &Objects, options: &Options) -> TestResult {
        let began = Instant::now();
        let nothing = |outcome| (outcome, Vec::new(), Seen::default());
        let mut covered = Vec::new();
        let (outcome, printed, seen) = match &self.kind {
            Kind::Unreadable(text, _) => nothing(Outcome::Broken(text.clone())),
            Kind::Table(test) => match objects.open(&test.object.0) {
                Ok(object) => run::test(test, &object, options, &mut covered),
                Err(error) => nothing(Outcome::Broken(test.object.1.error(error).to_string())),
            },
            Kind::Checks(..) if options.kernel => {
                let reason = "tests in C are run by skep alone";
                nothing(Outcome::Skipped(Some(reason.to_owned())))
            }
            Kind::Checks(test, path) => match objects.open(path) {
                Ok(object) => {
                    let (outcome, log) = sections::run(test, &object, path, options, &mut covered);
                    (outcome, log, Seen::default())
                }
                Err(error) => nothing(Outcome::Broken(error)),
            },
        };
        TestResult {
            file: self.file.clone(),
            name: self.name().to_owned(),
            line: self.line(),
            outcome,
            printed,
            elapsed: began.elapsed(),
            seen,
            covered,
        }
    }
}

/// The files below paths that [`Suite::find`] would look at, without reading them: when this list changes, there may be
/// other tests. Paths that cannot be read have none.
pub fn candidates(paths: &[PathBuf]) -> Vec<PathBuf> {
    let is_candidate = |file: &PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        name.ends_with(TABLE) || name.ends_with(".o")
    };
    let below = |path: &PathBuf| match path.is_dir() {
        true => files_below(path).unwrap_or_default().into_iter().filter(is_candidate).collect(),
        false => vec![path.clone()],
    };
    paths.iter().flat_map(below).collect()
}

/// Whether a file begins as an ELF file for BPF does.
fn is_bpf(path: &Path) -> bool {
    let mut start = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    let machine = if start[5] == 1 { u16::from_le_bytes } else { u16::from_be_bytes };
    read.is_ok() && start.starts_with(b"\x7fELF") && machine([start[18], start[19]]) == EM_BPF
}

/// All files below a folder, in the order of their names.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(Error::file("read", &folder))? {
            let entry = entry.map_err(Error::file("read", &folder))?;
            let kind = entry.file_type().map_err(Error::file("read", &entry.path()))?;
            // Links are not followed: they may lead around in circles.
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if kind.is_dir() {
                if !SKIPPED.contains(&&*name) && !name.starts_with('.') {
                    folders.push(entry.path());
                }
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}
