//! A table of definitions with Linux's answers, and skep's answers where they differ:
//! `tests/data/linux/creation.txt`.

use std::path::PathBuf;

use skep_maps::{Map, MapError, Options};
use skep_testkit::LinuxMap;

use crate::cases::Case;
use crate::{data, recording, seed};

/// Rows of the table that one run asks Linux about; many runs cover all.
const ASKED: usize = 6;

/// A row of the table.
struct Row {
    case: Case,
    linux: String,
    /// skep's own answer, and why it differs.
    own: Option<(String, String)>,
}

/// Checks that skep's answers are those of the table.
pub(crate) fn check_here() {
    let mut wrong = Vec::new();
    for row in &rows() {
        let created = Map::create(&row.case.def(), &Options { cpus: 2, limit: 1 << 30 });
        if let Err(MapError::KindNotProvided { .. }) = created {
            assert!(row.own.is_none(), "{}: a kind that is not provided", row.case);
            continue;
        }
        let answer = answer(created.map(drop).map_err(|error| error.errno()));
        let expected = row.own.as_ref().map_or(&row.linux, |(answer, _)| answer);
        if answer != *expected {
            wrong.push(format!("{} -> {}, here {answer}", row.case, row.linux));
        }
        if let Some((own, why)) = &row.own {
            assert!(*own != row.linux && !why.is_empty(), "{}: no difference, or no reason", row.case);
        }
    }
    assert!(wrong.is_empty(), "skep differs from the table:\n{}", wrong.join("\n"));
}

/// Checks some rows of the table against the running Linux. With `SKEP_RECORD=1` it records Linux's answers.
pub(crate) fn check_linux() {
    let mut rows = rows();
    let count = rows.len();
    let first = seed() as usize * ASKED % count;
    for at in first..first + ASKED {
        let row = &mut rows[at % count];
        let created = LinuxMap::create(&row.case.linux(), None);
        let answer = answer(created.map(drop).map_err(|error| error.raw_os_error().unwrap_or(-1)));
        if recording() {
            row.linux = answer;
            continue;
        }
        assert_eq!(answer, row.linux, "Linux on {}; the table has another answer", row.case);
    }
    if recording() {
        write(&rows);
    }
}

fn answer(result: Result<(), i32>) -> String {
    result.map_or_else(|number| format!("error {number}"), |()| "ok".to_owned())
}

fn path() -> PathBuf {
    data("creation.txt")
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(path()).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| row(line).unwrap_or_else(|| panic!("not a row: {line}"))).collect()
}

fn row(line: &str) -> Option<Row> {
    let (case, answers) = line.split_once(" ->")?;
    let (linux, own) = match answers.split_once(" | ") {
        None => (answers, None),
        Some((linux, own)) => (linux, Some(own.split_once(": ")?)),
    };
    let own = own.map(|(answer, why)| (answer.to_owned(), why.to_owned()));
    Some(Row { case: case.parse().ok()?, linux: linux.trim().to_owned(), own })
}

fn write(rows: &[Row]) {
    let text = std::fs::read_to_string(path()).unwrap();
    let mut lines: Vec<String> =
        text.lines().filter(|line| line.starts_with('#')).map(String::from).collect();
    lines.extend(rows.iter().map(|Row { case, linux, own }| {
        let own = own.as_ref().map_or_else(String::new, |(answer, why)| format!(" | {answer}: {why}"));
        format!("{case} -> {linux}{own}")
    }));
    std::fs::write(path(), lines.join("\n") + "\n").unwrap();
}
