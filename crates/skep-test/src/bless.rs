//! Writes expectations into table files: those that do not hold, and those that a test lacks. All else in the file,
//! comments included, stays as it is.
//!
//! What is written is what the program did, right or not: the difference must be read before it is committed. It never
//! demands less than what it replaces: an expectation that a list of changed elements cannot say is left to be
//! changed by hand.

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
            (Outcome::Skipped(_), ..) | (Outcome::Passed, 0, _) | (Outcome::Passed, _, true) => continue,
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
            std::fs::write(path, with_ends_of(&text, &document.to_string()))
                .map_err(Error::file("write", path))?;
            blessed.files.push((path.clone(), changed));
        }
    }
    Ok(blessed)
}

/// A text with the line ends of another.
fn with_ends_of(old: &str, new: &str) -> String {
    let new = new.replace("\r\n", "\n");
    if old.split('\n').next().is_some_and(|first| first.ends_with('\r')) {
        return new.replace('\n', "\r\n");
    }
    new
}

/// Whether the expectation of a map says more than a list of the elements that the program has changed.
fn is_by_hand(step: &dyn TableLike, seen: &SeenStep, name: &str) -> bool {
    let of = |item: Option<&Item>, key: &str| item?.as_table_like()?.get(key).cloned();
    let Some(expected) = of(of(step.get("expect"), "maps").as_ref(), name) else { return false };
    let found = seen.maps.iter().find(|(known, _)| known == name).and_then(|(_, found)| found.as_array());
    let (Some(expected), Some(found)) = (expected.as_array(), found) else { return true };
    expected.len() > found.len()
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
    if seen.wrong_maps.iter().any(|name| is_by_hand(step, seen, name)) {
        return Err(
            "maps with has, only, absent or len are not blessed, nor elements that the program did not change",
        );
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
    let is_written = |name: &String| lacks_all || seen.wrong_maps.contains(name);
    let maps = seen.maps.iter().filter(|(name, _)| is_written(name));
    values.extend(maps.map(|(name, found)| ("maps", Some(&**name), value(found))));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A test's table after a run in which the program has set key 1 of `m` and of `n` to 5.
    fn blessed(table: &str, wrong: &[&str]) -> Result<String, &'static str> {
        let mut document: DocumentMut = table.parse().unwrap();
        let found = json!([{ "key": 1, "value": 5 }]);
        let maps = ["m", "n"].map(|name| (name.to_owned(), found.clone())).to_vec();
        let wrong_maps = wrong.iter().map(|name| (*name).to_owned()).collect();
        let seen = SeenStep { maps, wrong_maps, ..SeenStep::default() };
        write_step(document.as_table_mut(), &seen)?;
        Ok(document.to_string())
    }

    #[test]
    fn a_map_is_written_if_it_is_wrong_and_a_list() {
        let table = |value: u32| {
            format!(
                "[expect.maps]\nm = [{{ key = 1, value = {value} }}] # one\n\
                 n = {{ only = [{{ key = 1, value = 5 }}], len = 1 }} # two\n"
            )
        };
        assert_eq!(blessed(&table(4), &["m"]), Ok(table(5)), "the other one holds, and stays");
    }

    #[test]
    fn an_expectation_that_says_more_than_a_list_is_left() {
        for map in [
            "{ only = [{ key = 1, value = 4 }] }",
            "{ len = 2 }",
            "{ absent = [1] }",
            "{ has = [{ key = 1, value = 4 }] }",
            "[{ key = 1, value = 4 }, { key = 2, value = 4 }]",
        ] {
            let said = blessed(&format!("expect.maps.m = {map}\n"), &["m"]);
            assert!(said.is_err_and(|reason| reason.starts_with("maps with")), "{map}");
        }
        let unchanged = blessed("expect.maps.o = [{ key = 1, value = 4 }]\n", &["o"]);
        assert!(unchanged.is_err(), "the program did not change it");
    }

    #[test]
    fn lines_keep_their_ends() {
        let (unix, dos) = ("a = 1\nb = 2\n", "a = 1\r\nb = 2\r\n");
        assert_eq!((with_ends_of(unix, unix), with_ends_of(dos, unix)), (unix.to_owned(), dos.to_owned()));
        assert_eq!(with_ends_of(dos, dos), dos);
    }
}
