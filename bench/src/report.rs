//! One report for all benchmarks: a JSON document for scripts, and the same figures as text for people.
//!
//! A benchmark adds figures and tables in the order in which the text shows them. A row is a JSON object, so that each
//! key is written once. A table names the columns that the text shows of its rows:
//!
//! ```text
//!   "rows": [{"ns": {"best": 1.25}, "n": 7}, ..]      "n; ns = ns.best:1"  -->   n   ns
//!                                                                                7  1.3
//! ```
//!
//! Columns are separated by `;`. Each is `heading = path:digits`: the path of its value in a row, with dots between the
//! keys, and how many digits fractions get (without it none). Without `heading =` the path is the heading. The path `@`
//! is the key of a row where rows are a map. A column without any value is left out.
//!
//! Every document has `benchmark`, `arch`, `cpu`, `targets`, `linux_release` and `linux_unavailable`.

use crate::process;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// The path of a row's own key, where rows are a map from names to rows.
const KEY: &str = "@";

/// What a benchmark measured.
#[derive(Clone, Default)]
pub(crate) struct Report {
    document: Map<String, Value>,
    text: String,
    targets: Vec<Target>,
    /// A result that must not occur: the benchmark fails once its report is written.
    pub(crate) failure: Option<String>,
}

/// A figure to be reached, and what was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Target {
    name: String,
    unit: &'static str,
    /// The limit: at most this, or at least this where `at_least`.
    target: f64,
    at_least: bool,
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
    /// A report that names this machine; `summary` is one line about its figures.
    pub(crate) fn new(benchmark: &str, summary: impl Display) -> Self {
        let (arch, cpu) = (std::env::consts::ARCH, process::cpu("model name"));
        let cpu = cpu.unwrap_or_else(|| "unknown".to_owned());
        let mut report = Self { text: format!("{cpu} ({arch}), {summary}\n"), ..Self::default() };
        report.fields(json!({"benchmark": benchmark, "arch": arch, "cpu": cpu}));
        report.linux(&None)
    }

    /// Adds an object's values to the document alone.
    pub(crate) fn fields(&mut self, fields: Value) -> &mut Self {
        if let Value::Object(fields) = fields {
            self.document.extend(fields);
        }
        self
    }

    /// Adds a paragraph to the text alone.
    pub(crate) fn note(&mut self, text: impl Display) {
        self.text += &format!("\n{text}\n");
    }

    /// Adds rows, or a single one, to the document, and to the text as a table.
    pub(crate) fn table(&mut self, key: &str, title: &str, rows: impl Serialize, columns: &str) {
        self.fields(json!({key: rows}));
        self.view(key, title, columns);
    }

    /// Shows rows, or a single one, that are in the document under this path already.
    pub(crate) fn view(&mut self, path: &str, title: &str, columns: &str) {
        let (key, rest) = path.split_once('.').unwrap_or((path, ""));
        let named = |(name, row): (&String, &Value)| {
            let mut row = row.clone();
            row[KEY] = name.as_str().into();
            row
        };
        let rows: Vec<Value> = match self.document.get(key).and_then(|value| at(value, rest)) {
            Some(Value::Array(rows)) => rows.clone(),
            Some(Value::Object(rows)) if columns.contains(KEY) => rows.iter().map(named).collect(),
            Some(row) => vec![row.clone()],
            None => Vec::new(),
        };
        if !rows.is_empty() {
            self.text += &format!("\n{title}\n{}", table(&rows, columns));
        }
    }

    /// Says which kernel was measured as well, or why it was not; nothing where that was not wanted.
    pub(crate) fn linux(mut self, release: &Option<Result<String, String>>) -> Self {
        match release {
            Some(Ok(release)) => self.note(format!("Linux {release} ran the same.")),
            Some(Err(reason)) => self.note(format!("Linux was not measured: {reason}")),
            None => {}
        }
        let (release, reason) = match release {
            Some(result) => (result.as_ref().ok(), result.as_ref().err()),
            None => (None, None),
        };
        self.fields(json!({"linux_release": release, "linux_unavailable": reason}));
        self
    }

    /// Adds what was to be reached.
    pub(crate) fn targets(mut self, targets: Vec<Target>) -> Self {
        self.targets = targets;
        self
    }

    /// The whole document.
    pub(crate) fn json(mut self) -> Value {
        self.document.insert("targets".to_owned(), json!(self.targets));
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

/// The number at a path of a row; not a number where there is none.
pub(crate) fn number(row: &Value, path: &str) -> f64 {
    at(row, path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// The first row that has all these values.
pub(crate) fn find<'a>(rows: &'a [Value], key: &Value) -> Option<&'a Value> {
    rows.iter().find(|row| has(row, key))
}

/// Whether a row has all values of the object `key`.
pub(crate) fn has(row: &Value, key: &Value) -> bool {
    key.as_object().is_some_and(|key| key.iter().all(|(name, value)| row.get(name) == Some(value)))
}

/// The value at a path of keys with dots between them; the value itself where the path is empty.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() { Some(value) } else { value.pointer(&format!("/{}", path.replace('.', "/"))) }
}

fn table(rows: &[Value], columns: &str) -> String {
    let mut lines = vec![Vec::new(); rows.len() + 1];
    let mut right = Vec::new();
    for (heading, path, digits) in columns.split(';').map(column) {
        let cells: Vec<&Value> = rows.iter().map(|row| at(row, path).unwrap_or(&Value::Null)).collect();
        if cells.iter().all(|cell| cell.is_null()) {
            continue;
        }
        right.push(cells.iter().all(|cell| cell.is_number() || cell.is_null()));
        lines[0].push(heading.to_owned());
        for (line, value) in lines[1..].iter_mut().zip(cells) {
            line.push(cell(value, digits));
        }
    }
    aligned(&lines, &right)
}

/// Heading, path and digits.
fn column(text: &str) -> (&str, &str, usize) {
    let (heading, value) = text.split_once('=').map_or((None, text), |(name, value)| (Some(name), value));
    let (path, digits) = value.rsplit_once(':').unwrap_or((value, "0"));
    (heading.unwrap_or(path).trim(), path.trim(), digits.trim().parse().unwrap_or(0))
}

fn cell(value: &Value, digits: usize) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.digits$}", number.as_f64().unwrap_or(f64::NAN))
        }
        other => other.to_string(),
    }
}

/// Lines of cells, each column as wide as its widest cell.
fn aligned(lines: &[Vec<String>], right: &[bool]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(right).enumerate().map(|(column, (cell, right))| match right {
            true => format!("  {cell:>width$}", width = width(column)),
            false => format!("  {cell:<width$}", width = width(column)),
        });
        text += cells.collect::<String>().trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_rows_in_the_document_and_aligned_columns_in_the_text() {
        let mut report = Report::new("made-up", "ns");
        let rows = [
            json!({"name": "one", "of": {"ns": 1.25}}),
            json!({"name": "three", "of": {"ns": 100.0}, "n": 7}),
        ];
        report.table("rows", "times", rows, "name; all: ns = of.ns:1; n; Linux = linux");
        let target = [Target::at_most("one", "ns", 1.0, 1.25), Target::at_least("three", "ns", 1.0, 100.0)];
        let report = report.targets(target.into());
        assert_eq!(report.targets.iter().map(|target| target.met).collect::<Vec<_>>(), [false, true]);
        let text = report.clone().text();
        let (_, text) = text.split_once("\n\n").unwrap();
        assert_eq!(
            text,
            "times\n  name   all: ns  n\n  one        1.2  -\n  three    100.0  7\n\
             \ntargets\n  one      1.25 ns  at most 1   MISSED\n  three  100.00 ns  at least 1  met\n"
        );
        let document = report.json();
        assert_eq!(document["rows"][1]["of"]["ns"], 100.0);
        assert_eq!(document["targets"][0]["met"], false);
        assert_eq!((&document["benchmark"], &document["linux_release"]), (&"made-up".into(), &Value::Null));
    }

    #[test]
    fn a_map_of_rows_is_shown_with_its_keys() {
        let mut report = Report::new("made-up", "ns");
        report.table("ratios", "", json!({"a": {"best": 1.5}, "b": {"best": 2.5}}), " = @; best:1");
        assert!(report.text.ends_with("     best\n  a   1.5\n  b   2.5\n"), "{}", report.text);
    }

    #[test]
    fn rows_are_found_by_some_of_their_values() {
        let rows = [json!({"n": 1, "ns": 2.5}), json!({"n": 2, "of": {"ns": 3.5}})];
        assert_eq!(find(&rows, &json!({"n": 2})).map(|row| number(row, "of.ns")), Some(3.5));
        assert_eq!(find(&rows, &json!({"n": 3})), None);
        assert!(number(&rows[1], "ns").is_nan());
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
