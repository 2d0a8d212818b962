//! What tests have executed, by line of the programs' sources.
//!
//! ```text
//!   runs --skep::Coverage--> by slot --lines of BTF--> by file and line --> text, lcov, Cobertura
//! ```
//!
//! A line counts as often as its most frequent instruction, in each program by itself, and programs and tests add up. A
//! line to which the verifier found no path, in any program, is *dead*: it cannot be executed, so it is not asked for.

use crate::covered::Covered;
use crate::outcome::Report;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

/// What tests have executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// By the path of the source: as the compiler named it, or where it was found beside the object.
    pub files: BTreeMap<PathBuf, FileCoverage>,
    /// The tests, as `FILE: NAME`. [`LineCoverage::tests`] has indexes of this list.
    pub tests: Vec<String>,
    /// Programs that have no line information: objects that were compiled without `-g`.
    pub without_lines: BTreeSet<String>,
}

/// What tests have executed of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCoverage {
    /// Lines with code, by number.
    pub lines: BTreeMap<u32, LineCoverage>,
    /// Functions, by name: the line and how often it was entered. Functions that the compiler put into others are none.
    pub functions: BTreeMap<String, (u32, u64)>,
}

/// What tests have executed of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineCoverage {
    /// Its text, as the compiler noted it.
    pub text: String,
    /// How often it was executed; `None` if the verifier found no path to it.
    pub executions: Option<u64>,
    /// Conditional jumps: by program and slot, how often the condition held and how often not.
    pub branches: BTreeMap<(usize, u32), (u64, u64)>,
    /// The instructions of the line: by program, the first slot and the one behind the last.
    pub slots: BTreeSet<(usize, u32, u32)>,
    /// The tests that executed it.
    pub tests: BTreeSet<usize>,
}

/// How much of something was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// So many were.
    pub covered: usize,
    /// Of so many.
    pub all: usize,
}

impl Share {
    fn add(&mut self, covered: bool) {
        self.covered += usize::from(covered);
        self.all += 1;
    }

    /// From 0 to 1; 1 if there is nothing.
    pub fn rate(self) -> f64 {
        if self.all == 0 { 1.0 } else { self.covered as f64 / self.all as f64 }
    }

    fn percent(self) -> String {
        if self.all == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * self.rate()) }
    }
}

impl Coverage {
    /// What the tests of a report have executed, if they ran with [`Options::coverage`](crate::Options::coverage).
    /// Also returns the programs, whose numbers the lines have.
    pub fn of(report: &Report) -> (Self, Vec<(PathBuf, String)>) {
        let mut all = Self::default();
        let mut programs: BTreeMap<(PathBuf, String), usize> = BTreeMap::new();
        let mut sources: BTreeMap<(PathBuf, String), PathBuf> = BTreeMap::new();
        for (test, result) in report.results.iter().enumerate() {
            all.tests.push(format!("{}: {}", result.file.display(), result.name));
            for covered in &result.covered {
                let next = programs.len();
                let program =
                    *programs.entry((covered.object.clone(), covered.program.clone())).or_insert(next);
                let mut source = |file: &str| {
                    let key = (covered.object.clone(), file.to_owned());
                    sources.entry(key).or_insert_with(|| found(&covered.object, file)).clone()
                };
                all.add(covered, program, test, &mut source);
            }
        }
        let mut numbered: Vec<_> = programs.into_iter().collect();
        numbered.sort_by_key(|(_, number)| *number);
        (all, numbered.into_iter().map(|(program, _)| program).collect())
    }

    fn add(
        &mut self,
        covered: &Covered,
        program: usize,
        test: usize,
        source: &mut dyn FnMut(&str) -> PathBuf,
    ) {
        let Covered { coverage, functions, .. } = covered;
        if coverage.lines.is_empty() {
            self.without_lines.insert(format!("{} in {}", covered.program, covered.object.display()));
        }
        // A line may have several runs of instructions in a program: its count there is the greatest.
        let mut here: BTreeMap<(PathBuf, u32), Option<u64>> = BTreeMap::new();
        let mut branches = coverage.branches.iter().peekable();
        for line in &coverage.lines {
            let path = source(&line.file);
            let most = here.entry((path.clone(), line.line)).or_default();
            *most = (*most).max(line.executions);
            let file = self.files.entry(path).or_default();
            let known = file.lines.entry(line.line).or_default();
            if known.text.is_empty() {
                line.text.trim_end().clone_into(&mut known.text);
            }
            let (start, end) = line.slots;
            known.slots.insert((program, start, end));
            while branches.next_if(|branch| branch.slot < start).is_some() {}
            while let Some(branch) = branches.next_if(|branch| branch.slot < end) {
                let (taken, passed) = known.branches.entry((program, branch.slot)).or_default();
                *taken = taken.saturating_add(branch.taken);
                *passed = passed.saturating_add(branch.passed);
            }
            for (name, at) in functions.iter().filter(|(_, at)| (start..end).contains(at)) {
                let entered = coverage.executions.get(*at as usize).copied().flatten().unwrap_or(0);
                let function = file.functions.entry(name.clone()).or_insert((line.line, 0));
                function.1 = function.1.saturating_add(entered);
            }
        }
        for ((path, line), executions) in here {
            let Some(known) = self.files.get_mut(&path).and_then(|file| file.lines.get_mut(&line)) else {
                continue;
            };
            known.executions = match (known.executions, executions) {
                (Some(before), Some(more)) => Some(before.saturating_add(more)),
                (before, more) => before.or(more),
            };
            if executions.unwrap_or(0) > 0 {
                known.tests.insert(test);
            }
        }
    }

    /// How many lines were executed, of those to which paths lead.
    pub fn lines(&self) -> Share {
        self.files.values().fold(Share::default(), |all, file| all + file.line_share())
    }

    /// How many sides of conditional jumps were taken.
    pub fn branches(&self) -> Share {
        self.files.values().fold(Share::default(), |all, file| all + file.branch_share())
    }

    /// The shares of each file and of all, for people.
    pub fn summary(&self) -> String {
        let mut rows = vec![["file", "lines", "", "branches", "", "dead lines"].map(str::to_owned)];
        let row = |name: String, lines: Share, branches: Share, dead: usize| {
            let of = |share: Share| format!("{}/{}", share.covered, share.all);
            [name, of(lines), lines.percent(), of(branches), branches.percent(), dead.to_string()]
        };
        for (path, file) in &self.files {
            let path = skep::escaped(&path.display().to_string());
            rows.push(row(path, file.line_share(), file.branch_share(), file.dead()));
        }
        let dead = self.files.values().map(FileCoverage::dead).sum();
        rows.push(row("all".to_owned(), self.lines(), self.branches(), dead));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..6).map(width).collect();
        let mut out = String::new();
        for row in &rows {
            let _ = write!(out, "{:<1$}", row[0], widths[0]); // a string takes everything
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                let _ = write!(out, "  {cell:>width$}");
            }
            out.push('\n');
        }
        for program in &self.without_lines {
            let _ = writeln!(out, "no lines are known of {}: compile it with -g", skep::escaped(program));
        }
        out
    }

    /// The same as one JSON value, with the counts of lines.
    pub fn json(&self) -> Json {
        let share = |share: Share| json!({ "covered": share.covered, "all": share.all });
        let file = |(path, file): (&PathBuf, &FileCoverage)| {
            let line = |(number, line): (&u32, &LineCoverage)| {
                let branches = line.branches.values();
                json!({
                    "line": number,
                    "executions": line.executions,
                    "branches": branches.map(|(taken, passed)| json!([taken, passed])).collect::<Vec<_>>(),
                    "tests": line.tests.iter().map(|test| &self.tests[*test]).collect::<Vec<_>>(),
                })
            };
            json!({
                "file": path.to_string_lossy(),
                "lines": share(file.line_share()),
                "branches": share(file.branch_share()),
                "dead": file.dead(),
                "counts": file.lines.iter().map(line).collect::<Vec<_>>(),
            })
        };
        json!({
            "lines": share(self.lines()),
            "branches": share(self.branches()),
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
        })
    }

    /// In the format of lcov's tracefiles (`geninfo(1)`).
    pub fn lcov(&self) -> String {
        let mut out = String::from("TN:\n");
        // A string takes everything.
        for (path, file) in &self.files {
            let _ = writeln!(out, "SF:{}", path.display().to_string().replace('\n', " "));
            for (name, (line, _)) in &file.functions {
                let _ = writeln!(out, "FN:{line},{name}");
            }
            for (name, (_, entered)) in &file.functions {
                let _ = writeln!(out, "FNDA:{entered},{name}");
            }
            let entered = file.functions.values().filter(|(_, entered)| *entered > 0).count();
            let _ = writeln!(out, "FNF:{}\nFNH:{entered}", file.functions.len());
            for (number, line) in &file.lines {
                for (block, (taken, passed)) in line.branches.values().enumerate() {
                    for (branch, count) in [taken, passed].into_iter().enumerate() {
                        let _ = match line.executions {
                            Some(1..) => writeln!(out, "BRDA:{number},{block},{branch},{count}"),
                            _ => writeln!(out, "BRDA:{number},{block},{branch},-"),
                        };
                    }
                }
            }
            let (lines, branches) = (file.line_share(), file.branch_share());
            let _ = writeln!(out, "BRF:{}\nBRH:{}", branches.all, branches.covered);
            for (number, line) in &file.lines {
                if let Some(executions) = line.executions {
                    let _ = writeln!(out, "DA:{number},{executions}");
                }
            }
            let _ = writeln!(out, "LF:{}\nLH:{}\nend_of_record", lines.all, lines.covered);
        }
        out
    }

    /// In the format of Cobertura (`coverage-04.dtd`). `seconds`: since 1970, when the tests ran.
    pub fn cobertura(&self, seconds: u64) -> String {
        let (lines, branches) = (self.lines(), self.branches());
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE coverage SYSTEM \"http://cobertura.sourceforge.net/xml/coverage-04.dtd\">\n\
             <coverage line-rate=\"{:.4}\" branch-rate=\"{:.4}\" lines-covered=\"{}\" lines-valid=\"{}\" \
             branches-covered=\"{}\" branches-valid=\"{}\" complexity=\"0\" version=\"skep {}\" \
             timestamp=\"{seconds}\">\n  <sources><source>.</source></sources>\n  <packages>\n    \
             <package name=\"bpf\" line-rate=\"{:.4}\" branch-rate=\"{:.4}\" complexity=\"0\">\n      <classes>\n",
            lines.rate(),
            branches.rate(),
            lines.covered,
            lines.all,
            branches.covered,
            branches.all,
            env!("CARGO_PKG_VERSION"),
            lines.rate(),
            branches.rate(),
        );
        // A string takes everything.
        for (path, file) in &self.files {
            let name = crate::report::xml(&path.to_string_lossy());
            let (lines, branches) = (file.line_share(), file.branch_share());
            let _ = writeln!(
                out,
                "        <class name=\"{name}\" filename=\"{name}\" line-rate=\"{:.4}\" branch-rate=\"{:.4}\" complexity=\"0\">\n          <methods/>\n          <lines>",
                lines.rate(),
                branches.rate(),
            );
            for (number, line) in &file.lines {
                let Some(executions) = line.executions else { continue };
                let _ = write!(out, "            <line number=\"{number}\" hits=\"{executions}\"");
                let sides = line.branch_share();
                let _ = match sides.all {
                    0 => writeln!(out, " branch=\"false\"/>"),
                    all => writeln!(
                        out,
                        " branch=\"true\" condition-coverage=\"{:.0}% ({}/{all})\"/>",
                        100.0 * sides.rate(),
                        sides.covered
                    ),
                };
            }
            out.push_str("          </lines>\n        </class>\n");
        }
        out.push_str("      </classes>\n    </package>\n  </packages>\n</coverage>\n");
        out
    }
}

impl std::ops::Add for Share {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { covered: self.covered + other.covered, all: self.all + other.all }
    }
}

impl FileCoverage {
    /// How many lines were executed, of those to which paths lead.
    pub fn line_share(&self) -> Share {
        let mut share = Share::default();
        let counts = self.lines.values().filter_map(|line| line.executions);
        counts.for_each(|count| share.add(count > 0));
        share
    }

    /// How many sides of conditional jumps were taken.
    pub fn branch_share(&self) -> Share {
        self.lines.values().fold(Share::default(), |all, line| all + line.branch_share())
    }

    /// Lines to which no path leads.
    pub fn dead(&self) -> usize {
        self.lines.values().filter(|line| line.executions.is_none()).count()
    }
}

impl LineCoverage {
    /// How many sides of its conditional jumps were taken.
    pub fn branch_share(&self) -> Share {
        let mut share = Share::default();
        for (taken, passed) in self.branches.values() {
            share.add(*taken > 0);
            share.add(*passed > 0);
        }
        share
    }
}

/// Where a source is that an object names: as it is named, or beside the object.
fn found(object: &Path, name: &str) -> PathBuf {
    let named = Path::new(name);
    let folder = object.parent().unwrap_or(Path::new(""));
    let beside = named.file_name().map(|file| folder.join(file));
    let places = [Some(named.to_owned()), Some(folder.join(named)), beside];
    let there = places.into_iter().flatten().map(|path| shortened(&path)).find(|path| path.is_file());
    there.unwrap_or_else(|| named.to_owned())
}

/// A path without `.` and without folders that are left again. Where links are involved it may be another file's, so it
/// is only used if there is one.
fn shortened(path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(short.components().next_back(), Some(Component::Normal(_))) => {
                short.pop();
            }
            part => short.push(part),
        }
    }
    short
}
