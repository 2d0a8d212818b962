//! Verdicts as SARIF 2.1.0 (Static Analysis Results Interchange Format, OASIS), which code review pages read.
//!
//! There is a result for each program and each thing that stands in its way, with all releases that it is of. A
//! refusal is an error, and an uncertain verdict a note. A result is at the source line if the object has line
//! information, else at the object.

use super::{Cell, Report, Row};
use serde_json::{Value, json};
use skep_kernels::{Rule, Verdict};
use std::fmt::Write;
use std::path::Path;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

pub(super) fn document(reports: &[Report]) -> Value {
    let rules: Vec<Value> = Rule::ALL
        .iter()
        .map(|rule| json!({ "id": rule.name(), "shortDescription": { "text": rule.description() } }))
        .collect();
    let results: Vec<Value> = reports.iter().flat_map(of_report).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "skep", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": results,
        }],
    })
}

fn of_report(report: &Report) -> Vec<Value> {
    if let Some(error) = &report.error {
        return vec![json!({
            "ruleId": Rule::Missing.name(),
            "level": "error",
            "message": { "text": error },
            "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri(&report.object) } } }],
        })];
    }
    let rows = report.programs.iter();
    rows.flat_map(|row| {
        let groups = row.groups().into_iter().filter(|(cell, _)| cell.reason.is_some());
        groups.map(|(cell, kernels)| result(report, row, cell, &kernels))
    })
    .collect()
}

fn result(report: &Report, row: &Row, cell: &Cell, kernels: &[&str]) -> Value {
    let refused = cell.verdict == Verdict::Refused.name();
    let reason = cell.reason.as_deref().unwrap_or_default();
    let said = if refused { "refused by" } else { "not certain for" };
    let text = format!("program {} is {said} Linux {}: {reason}", row.program, kernels.join(", "));
    let physical = match (&cell.file, cell.line) {
        (Some(file), Some(line)) => json!({
            "artifactLocation": { "uri": uri(file) },
            "region": { "startLine": line },
        }),
        _ => json!({ "artifactLocation": { "uri": uri(&report.object) } }),
    };
    json!({
        "ruleId": cell.rule,
        "level": if refused { "error" } else { "note" },
        "message": { "text": text },
        "locations": [{
            "physicalLocation": physical,
            "logicalLocations": [{ "name": row.program, "kind": "function" }],
        }],
        "properties": { "object": report.object, "kernels": kernels, "verdict": cell.verdict },
    })
}

/// A path as a URI: relative to the working directory if it is inside of it.
fn uri(path: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let relative = Path::new(path).strip_prefix(&here).ok().and_then(Path::to_str).unwrap_or(path);
    let start = if relative.starts_with('/') { "file://" } else { "" };
    let mut uri = start.to_owned();
    for byte in relative.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' | b'+' => {
                uri.push(byte.into())
            }
            // Writing to a string cannot fail.
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn paths_below_the_working_directory_are_relative_uris() {
        let here = std::env::current_dir().expect("it exists");
        assert_eq!(uri(&here.join("src/a b.c").display().to_string()), "src/a%20b.c");
        assert_eq!(uri("x/ü.c"), "x/%C3%BC.c");
        assert_eq!(uri("/elsewhere/x.c"), "file:///elsewhere/x.c");
    }
}
