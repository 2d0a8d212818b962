//! One report for all benchmarks: a JSON document for scripts, and the same figures as text for people.
//!
//! A benchmark adds its figures and tables in the order in which the text shows them. Each comes with the key that it
//! has in the document, and a table also with its columns, so that rows are written down once, as structures:
//!
//! ```text
//!   rows: [Row { ns: 1.25, .. }, ..]  --serde-->  "rows": [{"ns": 1.25, ..}, ..]  --columns-->  ns
//!                                                                                              1.3
//! ```
//!
//! Every document has `benchmark`, `arch`, `cpu`, `targets`, `linux_release` and `linux_unavailable`.

use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Display;

/// A column of a table: its heading, the path of its values in a row with dots between the keys, and how many digits
/// fractions get. A column without any value is left out.
pub(crate) type Column<'a> = (&'a str, &'a str, usize);

/// The path of a row's own key, where rows are a map from names to rows.
pub(crate) const KEY: &str = "@";

/// What a benchmark measured.
#[derive(Clone, Default)]
pub(crate) struct Report {
    document: Map<String, Value>,
    text: String,
    targets: Vec<Target>,
    /// What was measured and must not be, for the exit status.
    failure: Option<String>,
}

/// A figure to be reached, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// The limit: at most this, or at least this where `at_least`.
    pub(crate) target: f64,
    pub(crate) at_least: bool,
    pub(crate) value: f64,
    pub(crate) met: bool,
}

impl Target {
    pub(crate) fn at_most(name: impl Into<String>, unit: &'static str, target: f64, value: f64) -> Self {
        Self { name: name.into(), unit, target, at_least: false, value, met: value <= target }
    }

    pub(crate) fn at_least(name: impl Into<String>, unit: &'static str, target: f64, value: f64) -> Self {
        Self { name: name.into(), unit, target, at_least: true, value, met: value >= target }
    }

    fn line(&self) -> Vec<String> {
        let Self { name, unit, target, at_least, value, met } = self;
        let limit = if *at_least { "at least" } else { "at most" };
        let met = if *met { "met" } else { "MISSED" };
        vec![name.clone(), format!("{value:.2} {unit}"), format!("{limit} {target}"), met.to_owned()]
    }
}

impl Report {
    /// A report that names this machine; `summary` says in one line what the figures are.
    pub(crate) fn new(benchmark: &str, summary: impl Display) -> Self {
        let (arch, cpu) = (std::env::consts::ARCH, cpu());
        let mut report =
            Self { document: Map::new(), text: format!("{cpu} ({arch}), {summary}\n"), ..Self::default() };
        report.field("benchmark", benchmark).field("arch", arch).field("cpu", cpu);
        report.linux(&None)
    }

    /// Adds a value to the document alone.
    pub(crate) fn field(&mut self, key: &str, value: impl Serialize) -> &mut Self {
        // Rows are structures, lists and maps with text as keys: they always have a form in JSON.
        let value = serde_json::to_value(value).unwrap_or_else(|error| Value::String(error.to_string()));
        self.document.insert(key.to_owned(), value);
        self
    }

    /// Adds a paragraph to the text alone.
    pub(crate) fn note(&mut self, text: impl Display) {
        self.text += &format!("\n{text}\n");
    }

    /// Adds rows to the document, and to the text as a table.
    pub(crate) fn table(&mut self, key: &str, title: &str, rows: &[impl Serialize], columns: &[Column<'_>]) {
        self.field(key, rows);
        self.view(key, title, columns);
    }

    /// Shows rows, or a single one, that are in the document under this path already.
    pub(crate) fn view(&mut self, path: &str, title: &str, columns: &[Column<'_>]) {
        let (key, rest) = path.split_once('.').unwrap_or((path, ""));
        let rows = self.document.get(key).and_then(|value| at(value, rest));
        let named = |(name, row): (&String, &Value)| match row.clone() {
            Value::Object(mut row) => {
                row.insert(KEY.to_owned(), name.as_str().into());
                Value::Object(row)
            }
            other => other,
        };
        let rows: Vec<Value> = match rows {
            Some(Value::Array(rows)) => rows.clone(),
            Some(Value::Object(rows)) if columns.iter().any(|(_, path, _)| *path == KEY) => {
                rows.iter().map(named).collect()
            }
            Some(row) => vec![row.clone()],
            None => Vec::new(),
        };
        if !rows.is_empty() {
            self.text += &format!("\n{title}\n{}", table(&rows, columns));
        }
    }

    /// Has the benchmark fail once its report is written.
    pub(crate) fn fail(&mut self, reason: String) {
        self.failure = Some(reason);
    }

    /// Says which kernel was measured as well, or why it was not; nothing where it was not to be.
    pub(crate) fn linux(mut self, release: &Option<Result<String, String>>) -> Self {
        let release = release.as_ref();
        if let Some(asked) = release {
            self.note(match asked {
                Ok(release) => format!("Linux {release} ran the same."),
                Err(reason) => format!("Linux was not measured: {reason}"),
            });
        }
        self.field("linux_release", release.and_then(|asked| asked.as_ref().ok()));
        self.field("linux_unavailable", release.and_then(|asked| asked.as_ref().err()));
        self
    }

    /// Adds what was to be reached.
    pub(crate) fn targets(mut self, targets: Vec<Target>) -> Self {
        self.targets = targets;
        self
    }

    /// Why the benchmark failed although it has a report.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The whole document.
    pub(crate) fn json(mut self) -> Value {
        let targets = std::mem::take(&mut self.targets);
        self.field("targets", targets);
        Value::Object(self.document)
    }

    /// The whole text.
    pub(crate) fn text(mut self) -> String {
        if !self.targets.is_empty() {
            let lines = self.targets.iter().map(Target::line).collect::<Vec<_>>();
            self.text += &format!("\ntargets\n{}", aligned(&lines, &[false, true, false, false]));
        }
        self.text
    }
}

/// The value at a path of keys with dots between them; the value itself where the path is empty.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() { Some(value) } else { value.pointer(&format!("/{}", path.replace('.', "/"))) }
}

fn table(rows: &[Value], columns: &[Column<'_>]) -> String {
    let cells = |path: &str| rows.iter().map(|row| at(row, path).unwrap_or(&Value::Null)).collect::<Vec<_>>();
    let columns: Vec<_> = columns
        .iter()
        .map(|(heading, path, digits)| (*heading, cells(path), *digits))
        .filter(|(_, cells, _)| cells.iter().any(|cell| !cell.is_null()))
        .collect();
    let mut lines = vec![columns.iter().map(|(heading, ..)| (*heading).to_owned()).collect::<Vec<_>>()];
    for row in 0..rows.len() {
        lines.push(columns.iter().map(|(_, cells, digits)| cell(cells[row], *digits)).collect());
    }
    let right: Vec<bool> = columns
        .iter()
        .map(|(_, cells, _)| cells.iter().all(|cell| cell.is_number() || cell.is_null()))
        .collect();
    aligned(&lines, &right)
}

fn cell(value: &Value, digits: usize) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(fraction) => format!("{fraction:.digits$}"),
            None => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Lines of cells, each column as wide as its widest cell.
fn aligned(lines: &[Vec<String>], right: &[bool]) -> String {
    let widths: Vec<usize> = (0..right.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).zip(right).map(|((cell, width), right)| match right {
            true => format!("  {cell:>width$}"),
            false => format!("  {cell:<width$}"),
        });
        text += cells.collect::<String>().trim_end();
        text.push('\n');
    }
    text
}

/// The processor, as the system names it.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_is_rows_in_the_document_and_aligned_columns_in_the_text() {
        let mut report = Report::new("made-up", "ns");
        let rows = [
            json!({"name": "one", "of": {"ns": 1.25}}),
            json!({"name": "three", "of": {"ns": 100.0}, "n": 7}),
        ];
        let columns = [("name", "name", 0), ("ns", "of.ns", 1), ("n", "n", 0), ("Linux", "linux", 0)];
        report.table("rows", "times", &rows, &columns);
        let target = [Target::at_most("one", "ns", 1.0, 1.25), Target::at_least("three", "ns", 1.0, 100.0)];
        let report = report.targets(target.into());
        assert_eq!(report.targets.iter().map(|target| target.met).collect::<Vec<_>>(), [false, true]);
        let text = report.clone().text();
        let (_, text) = text.split_once("\n\n").unwrap();
        assert_eq!(
            text,
            "times\n  name      ns  n\n  one      1.2  -\n  three  100.0  7\n\
             \ntargets\n  one      1.25 ns  at most 1   MISSED\n  three  100.00 ns  at least 1  met\n"
        );
        let document = report.json();
        assert_eq!(document["rows"][1]["of"]["ns"], 100.0);
        assert_eq!(document["targets"][0]["met"], false);
        assert_eq!((&document["benchmark"], &document["linux_release"]), (&"made-up".into(), &Value::Null));
    }

    #[test]
    fn the_report_says_which_kernel_was_measured_or_why_it_was_not() {
        let report = Report::new("made-up", "ns").linux(&Some(Err("no right".to_owned())));
        assert!(report.text.contains("Linux was not measured: no right"), "{}", report.text);
        assert_eq!(report.json()["linux_unavailable"], "no right");
        let report = Report::new("made-up", "ns").linux(&Some(Ok("6.12".to_owned())));
        assert_eq!(report.json()["linux_release"], "6.12");
    }
}
