//! What tests have found.

use crate::covered::Covered;
use serde::Serialize;
use serde_json::Value as Json;
use std::path::PathBuf;
use std::time::Duration;

/// All results, in the order of the files and of the tests in them.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One for each test that was run.
    pub results: Vec<TestResult>,
    /// The time that all took together.
    pub elapsed: Duration,
}

/// The result of a test.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TestResult {
    /// The table file or object.
    pub file: PathBuf,
    /// The test's name.
    pub name: String,
    /// The line where it begins; 0 in objects.
    pub line: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// What the programs printed (`bpf_printk`), and the log of a test in C.
    pub printed: Vec<String>,
    /// How long it took.
    pub elapsed: Duration,
    /// For [`bless`](crate::bless).
    pub(crate) seen: Seen,
    /// For [`Coverage`](crate::Coverage).
    pub(crate) covered: Vec<Covered>,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// As expected.
    Passed,
    /// Otherwise.
    Failed(Vec<Difference>),
    /// It could not be run: an error of the table, the object or the run.
    Broken(String),
    /// It skipped itself, or a part of a test in C did; or it cannot be run as it was asked for, and why.
    Skipped(Option<String>),
}

/// Something that was not as expected.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The step of the test, from 1; 0 after all steps.
    pub step: usize,
    /// The line of the step or of its expectation; 0 in objects.
    pub line: usize,
    /// What differs.
    pub what: What,
}

/// What differs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// The verdict.
    Verdict {
        /// Its name or number.
        expected: String,
        /// Its name or number.
        found: String,
    },
    /// The bytes of the packet.
    Packet {
        /// As it should be.
        expected: Vec<u8>,
        /// As the program left it.
        found: Vec<u8>,
    },
    /// A value: of a map's element, a variable, an event, a printed line, metadata.
    Value {
        /// Whose: `map flows, key 7`.
        of: String,
        /// `None` if there should be nothing.
        expected: Option<Json>,
        /// `None` if there is nothing.
        found: Option<Json>,
    },
    /// A part of a test in C says that it failed.
    Check {
        /// The part, and its log.
        text: String,
    },
}

/// What a test has seen, by step, and after all steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) index: usize,
    pub(crate) is_case: bool,
    pub(crate) steps: Vec<SeenStep>,
    pub(crate) at_end: Option<SeenStep>,
}

/// What a step has left.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenStep {
    pub(crate) ran: bool,
    pub(crate) verdict: Json,
    /// Whether the program changed the packet or buffer.
    pub(crate) changed: bool,
    /// The packet's text.
    pub(crate) packet: Option<String>,
    pub(crate) buffer: Option<String>,
    pub(crate) printed: Vec<String>,
    pub(crate) events: Vec<Json>,
    /// Elements as they are, of maps that are expected or that changed.
    pub(crate) maps: Vec<(String, Json)>,
    pub(crate) variables: Vec<(String, Json)>,
    /// Keys of the expectation that do not hold: they are written again.
    pub(crate) wrong: Vec<&'static str>,
    /// Maps whose expectations do not hold.
    pub(crate) wrong_maps: Vec<String>,
}

impl Report {
    /// How many passed, failed (broken ones included) and were skipped.
    pub fn counts(&self) -> Counts {
        let count =
            |of: fn(&Outcome) -> bool| self.results.iter().filter(|result| of(&result.outcome)).count();
        Counts {
            passed: count(|outcome| matches!(outcome, Outcome::Passed)),
            failed: count(|outcome| matches!(outcome, Outcome::Failed(_))),
            broken: count(|outcome| matches!(outcome, Outcome::Broken(_))),
            skipped: count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        }
    }
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// As expected.
    pub passed: usize,
    /// Otherwise.
    pub failed: usize,
    /// Could not be run.
    pub broken: usize,
    /// Skipped.
    pub skipped: usize,
}
