//! Results for programs: JSON, and XML as JUnit writes it.

use crate::outcome::{Counts, Difference, Outcome, Report, TestResult, What};
use crate::show::{Style, details};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// The report as one JSON value.
///
/// ```text
///   { "passed": 1, "failed": 1, "broken": 0, "skipped": 0, "seconds": 0.1,
///     "tests": [ { "file": ..., "line": ..., "name": ..., "outcome": "failed", "seconds": ...,
///                  "printed": [...], "differences": [ { "step": 1, "what": "verdict", "expected": ..., "found": ... } ] } ] }
/// ```
pub fn json(report: &Report) -> Json {
    let Counts { passed, failed, broken, skipped } = report.counts();
    json!({
        "passed": passed,
        "failed": failed,
        "broken": broken,
        "skipped": skipped,
        "seconds": report.elapsed.as_secs_f64(),
        "tests": report.results.iter().map(test).collect::<Vec<_>>(),
    })
}

fn test(result: &TestResult) -> Json {
    let mut test = json!({
        "file": result.file.to_string_lossy(),
        "line": result.line,
        "name": result.name,
        "outcome": name(&result.outcome),
        "seconds": result.elapsed.as_secs_f64(),
        "printed": result.printed,
    });
    match &result.outcome {
        Outcome::Failed(differences) => {
            test["differences"] = differences.iter().map(difference).collect();
        }
        Outcome::Broken(text) => test["error"] = text.as_str().into(),
        Outcome::Skipped(Some(reason)) => test["reason"] = reason.as_str().into(),
        Outcome::Passed | Outcome::Skipped(None) => {}
    }
    test
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "failed",
        Outcome::Broken(_) => "broken",
        Outcome::Skipped(_) => "skipped",
    }
}

fn difference(difference: &Difference) -> Json {
    let (what, expected, found) = match &difference.what {
        What::Verdict { expected, found } => ("verdict", expected.as_str().into(), found.as_str().into()),
        What::Packet { expected, found } => {
            ("packet", skep_frames::text(expected).into(), skep_frames::text(found).into())
        }
        What::Value { of, expected, found } => {
            let or_null = |value: &Option<Json>| value.clone().unwrap_or(Json::Null);
            (of.as_str(), or_null(expected), or_null(found))
        }
        What::Check { text } => ("check", Json::Null, text.as_str().into()),
    };
    let (step, line) = (difference.step, difference.line);
    json!({ "step": step, "line": line, "what": what, "expected": expected, "found": found })
}

/// The report as XML that readers of JUnit's reports take: a suite for each file.
pub fn junit(report: &Report) -> String {
    let mut files: Vec<&TestResult> = Vec::new();
    for result in &report.results {
        if files.iter().all(|known| known.file != result.file) {
            files.push(result);
        }
    }
    let mut out =
        String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"skep test\">\n");
    for TestResult { file, .. } in files {
        let of_file = || report.results.iter().filter(|result| result.file == *file);
        let count = |of: fn(&Outcome) -> bool| of_file().filter(|result| of(&result.outcome)).count();
        let seconds: f64 = of_file().map(|result| result.elapsed.as_secs_f64()).sum();
        let suite = xml(&file.to_string_lossy());
        // A string takes everything.
        let _ = writeln!(
            out,
            "  <testsuite name=\"{suite}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{seconds:.6}\">",
            of_file().count(),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::Broken(_))),
            count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        );
        of_file().for_each(|result| case(&mut out, &suite, result));
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn case(out: &mut String, suite: &str, result: &TestResult) {
    let seconds = result.elapsed.as_secs_f64();
    let name = xml(&result.name);
    // A string takes everything.
    let _ = write!(out, "    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{seconds:.6}\"");
    let text = xml(&details(result, Style::default()));
    let body = match &result.outcome {
        Outcome::Passed => String::new(),
        Outcome::Skipped(None) => "<skipped/>".to_owned(),
        Outcome::Skipped(Some(reason)) => format!("<skipped message=\"{}\"/>", xml(reason)),
        Outcome::Failed(_) => format!("<failure message=\"not as expected\">{text}</failure>"),
        Outcome::Broken(error) => format!("<error message=\"{}\">{text}</error>", xml(error)),
    };
    let _ = match body.is_empty() {
        true => writeln!(out, "/>"),
        false => writeln!(out, ">{body}</testcase>"),
    };
}

/// Text in XML. Characters that XML cannot have are shown as a question mark.
pub(crate) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push(letter),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            letter if letter < ' ' => out.push('?'),
            letter => out.push(letter),
        }
    }
    out
}
