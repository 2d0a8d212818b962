//! Writes expectations into table files: those that do not hold, and those that a test lacks. All else in the file,
//! comments included, stays as it is.
//!
//! What is written is what the program did, right or not: whoever blesses reads the difference before it is committed.

use crate::error::{Error, TableError};
use crate::outcome::{Outcome, Report, SeenStep, TestResult};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use toml_edit::{Array, DocumentMut, InlineTable, Item, TableLike, Value};

/// What was written, and what was not.
#[derive(Clone, Debug, Default)]
pub struct Blessed {
    /// Files, and the number of tests that were changed in each.
    pub files: Vec<(PathBuf, usize)>,
    /// Tests that must be changed by hand, and why.
    pub left: Vec<(PathBuf, String, &'static str)>,
}

/// Writes what the tests of a [run for that](crate::Options::bless) have seen into their files.
///
/// # Errors
///
/// [`Error::File`]; [`Error::Table`] if a file was changed meanwhile.
pub fn bless(report: &Report) -> Result<Blessed, Error> {
    let mut blessed = Blessed::default();
    let mut files: BTreeMap<&PathBuf, Vec<&TestResult>> = BTreeMap::new();
    for result in &report.results {
        let reason = match (&result.outcome, result.line, result.seen.is_case) {
            (Outcome::Broken(_), ..) => Some("it is broken"),
            (Outcome::Failed(_), 0, _) => Some("it is a test in C"),
            (Outcome::Failed(_), _, true) => Some("it is one of several cases"),
            (Outcome::Skipped, ..) | (Outcome::Passed, 0, _) | (Outcome::Passed, _, true) => continue,
            _ => None,
        };
        match reason {
            Some(reason) => blessed.left.push((result.file.clone(), result.name.clone(), reason)),
            None => files.entry(&result.file).or_default().push(result),
        }
    }
    for (path, results) in files {
        let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
        let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| TableError {
            path: path.clone(),
            line: 1,
            text: error.message().to_owned(),
        })?;
        let mut changed = 0;
        for result in results {
            match write_test(&mut document, result) {
                Ok(wrote) => changed += usize::from(wrote),
                Err(reason) => blessed.left.push((path.clone(), result.name.clone(), reason)),
            }
        }
        if changed > 0 {
            std::fs::write(path, document.to_string()).map_err(Error::file("write", path))?;
            blessed.files.push((path.clone(), changed));
        }
    }
    Ok(blessed)
}

/// Writes what a test has seen. Returns whether that changed something.
fn write_test(document: &mut DocumentMut, result: &TestResult) -> Result<bool, &'static str> {
    let gone = "the file has changed since it ran";
    let test = nth(document.get_mut("test"), result.seen.index).ok_or(gone)?;
    if test.get("name").and_then(Item::as_str) != Some(&result.name) {
        return Err(gone);
    }
    let mut wrote = false;
    if test.contains_key("step") {
        for (index, seen) in result.seen.steps.iter().enumerate() {
            let step = nth(test.get_mut("step"), index).ok_or(gone)?;
            wrote |= write_step(step, seen)?;
        }
        if let Some(seen) = &result.seen.at_end {
            wrote |= write_step(test, seen)?;
        }
    } else if let Some(seen) = result.seen.steps.first() {
        wrote |= write_step(test, seen)?;
    }
    Ok(wrote)
}

/// A table of a list of tables, in either notation.
fn nth(item: Option<&mut Item>, index: usize) -> Option<&mut dyn TableLike> {
    match item? {
        Item::ArrayOfTables(tables) => tables.get_mut(index).map(|table| table as &mut dyn TableLike),
        Item::Value(Value::Array(values)) => {
            values.get_mut(index)?.as_inline_table_mut().map(|table| table as &mut dyn TableLike)
        }
        _ => None,
    }
}

fn write_step(step: &mut dyn TableLike, seen: &SeenStep) -> Result<bool, &'static str> {
    let lacks_all = !step.contains_key("expect");
    let mut values: Vec<(&str, Option<&str>, Value)> = Vec::new();
    let has = |step: &dyn TableLike, key: &str| {
        step.get("expect").and_then(Item::as_table_like).is_some_and(|expect| expect.contains_key(key))
    };
    let wrong = |key: &str| seen.wrong.contains(&key);
    if wrong("metadata") || wrong("redirect") {
        return Err("metadata and redirections are not blessed");
    }
    if seen.ran && (wrong("verdict") || !has(step, "verdict")) {
        values.push(("verdict", None, value(&seen.verdict)));
    }
    for (key, found) in [("packet", &seen.packet), ("buffer", &seen.buffer)] {
        if let Some(text) = found.as_ref().filter(|_| wrong(key) || (seen.changed && !has(step, key))) {
            values.push((key, None, text.as_str().into()));
        }
    }
    if wrong("printed") || (lacks_all && !seen.printed.is_empty()) {
        values.push(("printed", None, seen.printed.iter().map(String::as_str).collect::<Array>().into()));
    }
    if wrong("events") || (lacks_all && !seen.events.is_empty()) {
        values.push(("events", None, seen.events.iter().map(value).collect::<Array>().into()));
    }
    if wrong("variables") {
        values.extend(seen.variables.iter().map(|(name, found)| ("variables", Some(&**name), value(found))));
    }
    if wrong("maps") || lacks_all {
        values.extend(seen.maps.iter().map(|(name, found)| ("maps", Some(&**name), value(found))));
    }
    let mut wrote = false;
    for (key, name, new) in values {
        wrote |= put(step, key, name, new);
    }
    Ok(wrote)
}

/// Sets a value of the expectation. Its decoration stays, so comments behind it do.
fn put(step: &mut dyn TableLike, key: &str, name: Option<&str>, mut new: Value) -> bool {
    if !step.contains_key("expect") {
        step.insert("expect", Item::Value(InlineTable::new().into()));
    }
    let Some(expect) = step.get_mut("expect").and_then(Item::as_table_like_mut) else { return false };
    let table = match name {
        None => expect,
        Some(_) => {
            if !expect.contains_key(key) {
                expect.insert(key, Item::Value(InlineTable::new().into()));
            }
            match expect.get_mut(key).and_then(Item::as_table_like_mut) {
                Some(table) => table,
                None => return false,
            }
        }
    };
    let key = name.unwrap_or(key);
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            if old.to_string().trim() == new.to_string().trim() {
                return false;
            }
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => {
            table.insert(key, Item::Value(new));
        }
    }
    true
}

/// A JSON value in TOML.
fn value(json: &Json) -> Value {
    match json {
        Json::Null => "".into(),
        Json::Bool(truth) => (*truth).into(),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.into(),
            (None, number) => number.unwrap_or(0.0).into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(values) => values.iter().map(value).collect::<Array>().into(),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.as_str(), value(field)));
            fields.collect::<InlineTable>().into()
        }
    }
}
