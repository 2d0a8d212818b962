//! Results as text for people: a line of what happened, and of failures everything that helps to find out why.

use crate::outcome::{Counts, Difference, Outcome, Report, TestResult, What};
use serde_json::Value as Json;
use std::fmt::Write;

/// How text is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether a terminal shows it, with colours.
    pub colours: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// Where a test is: `FILE:LINE: NAME`.
fn place(result: &TestResult) -> String {
    match result.line {
        0 => skep::escaped(&format!("{}: {}", result.file.display(), result.name)),
        line => skep::escaped(&format!("{}:{line}: {}", result.file.display(), result.name)),
    }
}

/// What is to be said of a test: nothing of one that passed.
pub fn details(result: &TestResult, style: Style) -> String {
    let mut out = String::new();
    // A string takes everything.
    let _ = match &result.outcome {
        Outcome::Passed => return out,
        Outcome::Skipped(reason) => {
            let reason =
                reason.as_ref().map_or_else(String::new, |reason| format!(": {}", skep::escaped(reason)));
            return format!("{} {}{reason}\n", style.faint("skipped"), place(result));
        }
        Outcome::Failed(_) => writeln!(out, "{} {}", style.bad("FAILED"), place(result)),
        Outcome::Broken(_) => writeln!(out, "{} {}", style.bad("BROKEN"), place(result)),
    };
    match &result.outcome {
        Outcome::Failed(differences) => {
            let several = differences.iter().any(|difference| difference.step != differences[0].step)
                || differences.first().is_some_and(|difference| difference.step > 1);
            for difference in differences {
                out.push_str(&difference_text(difference, several, style));
            }
        }
        Outcome::Broken(text) => {
            for line in text.lines() {
                let _ = writeln!(out, "  {}", skep::escaped(line));
            }
        }
        _ => {}
    }
    if !result.printed.is_empty() {
        let _ = writeln!(out, "  {}", style.faint("printed:"));
        for line in &result.printed {
            let _ = writeln!(out, "    {}", skep::escaped(line));
        }
    }
    out
}

/// A difference, indented.
fn difference_text(difference: &Difference, several: bool, style: Style) -> String {
    let mut out = String::new();
    let at = match (several, difference.step) {
        (false, _) => String::new(),
        (true, 0) => format!("after all steps (line {}): ", difference.line),
        (true, step) => format!("step {step} (line {}): ", difference.line),
    };
    // A string takes everything.
    let _ = match &difference.what {
        What::Verdict { expected, found } => {
            let (expected, found) = (skep::escaped(expected), skep::escaped(found));
            writeln!(out, "  {at}verdict: expected {}, found {}", style.good(&expected), style.bad(&found))
        }
        What::Check { text } => {
            let mut lines = text.lines().map(skep::escaped);
            let _ = writeln!(out, "  {at}{}", lines.next().unwrap_or_default());
            lines.try_for_each(|line| writeln!(out, "  {line}"))
        }
        What::Packet { expected, found } => {
            let _ = writeln!(out, "  {at}packet:");
            let table = skep_frames::side_by_side(expected, found).to_string();
            let rows = table
                .lines()
                .map(skep::escaped)
                .map(|row| if row.starts_with('!') { style.bad(&row) } else { row });
            rows.into_iter().try_for_each(|row| writeln!(out, "    {row}"))
        }
        What::Value { of, expected, found } => {
            let of = skep::escaped(of);
            let composite = |value: &Option<Json>| {
                value.as_ref().is_some_and(|value| value.is_object() || value.is_array())
            };
            if composite(expected) && composite(found) {
                let _ = writeln!(out, "  {at}{of}:");
                out.push_str(&fields(expected, found, style));
                Ok(())
            } else {
                let shown = |value: &Option<Json>| value.as_ref().map_or("nothing".to_owned(), json);
                let (expected, found) = (style.good(&shown(expected)), style.bad(&shown(found)));
                writeln!(out, "  {at}{of}: expected {expected}, found {found}")
            }
        }
    };
    out
}

/// Two values field by field, in columns. Fields of which nothing is expected are left out if nothing else is there.
fn fields(expected: &Option<Json>, found: &Option<Json>, style: Style) -> String {
    let list = |value: &Option<Json>| {
        let mut list = Vec::new();
        value.iter().for_each(|value| flatten("", value, &mut list));
        list
    };
    let (expected, found) = (list(expected), list(found));
    let mut names: Vec<&String> = expected.iter().map(|(name, _)| name).collect();
    names.extend(
        found.iter().map(|(name, _)| name).filter(|name| expected.iter().all(|(known, _)| known != *name)),
    );
    let value = |list: &[(String, String)], name: &str| {
        list.iter().find(|(known, _)| known == name).map_or("-".to_owned(), |(_, value)| value.clone())
    };
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    let column = expected.iter().map(|(_, value)| value.chars().count()).max().unwrap_or(0).max(8);
    let mut out = String::new();
    let _ = writeln!(out, "      {:width$}  {:column$}  found", "field", "expected"); // a string takes everything
    for name in names {
        let (expected, found) = (value(&expected, name), value(&found, name));
        let mark = if expected == "-" || expected == found { ' ' } else { '!' };
        let row = format!("{mark} {name:width$}  {expected:column$}  {found}");
        let _ = writeln!(out, "    {}", if mark == '!' { style.bad(&row) } else { row });
    }
    out
}

/// The numbers and texts in a value, by their paths.
fn flatten(path: &str, value: &Json, into: &mut Vec<(String, String)>) {
    match value {
        Json::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, into);
            }
        }
        Json::Array(values) if values.iter().any(|value| value.is_object()) || values.len() <= 4 => {
            for (index, value) in values.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), value, into);
            }
        }
        value => into.push((skep::escaped(path), json(value))),
    }
}

/// A value in JSON, which leaves U+007F to U+009F as they are: terminals take some of them for commands.
fn json(value: &Json) -> String {
    skep::escaped(&value.to_string())
}

/// The last line: how many tests passed.
pub fn summary(report: &Report, style: Style) -> String {
    let Counts { passed, failed, broken, skipped } = report.counts();
    let mut text = style.good(&format!("{passed} passed"));
    for (count, what) in [(failed, "failed"), (broken, "broken")] {
        if count > 0 {
            let _ = write!(text, ", {}", style.bad(&format!("{count} {what}"))); // a string takes everything
        }
    }
    if skipped > 0 {
        let _ = write!(text, ", {skipped} skipped");
    }
    format!("{text} in {:.2} s", report.elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_of_programs_do_not_reach_the_terminal_as_commands() {
        let command = std::str::from_utf8(&[0xc2, 0x9b]).unwrap();
        let text = json!(format!("{command}31m"));
        let lists = [json!({ command: text, "b": 1 }), json!({ "b": [{ command: text }] })];
        let value = |expected: &Json, found: &Json| What::Value {
            of: format!("map {command}"),
            expected: Some(expected.clone()),
            found: Some(found.clone()),
        };
        let verdict = What::Verdict { expected: command.to_owned(), found: command.to_owned() };
        for what in [value(&json!(1), &text), value(&text, &json!(1)), value(&lists[0], &lists[1]), verdict] {
            let shown = difference_text(&Difference { step: 1, line: 1, what }, false, Style::default());
            assert!(shown.contains("\\u{9b}"), "{shown:?}");
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        }
    }
}
