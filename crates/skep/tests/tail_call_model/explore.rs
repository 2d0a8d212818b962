//! Explores all reachable states, breadth first, so each finding has a shortest trace.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use crate::check::{self, Sight, Violation};
use crate::state::{Model, State};
use crate::steps::{Event, Steps};

/// The findings.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) sights: BTreeSet<Sight>,
    /// A shortest trace to each kind of violation.
    pub(crate) violations: BTreeMap<Violation, Trace>,
}

/// The path from the start to a state.
pub(crate) struct Trace {
    events: Vec<Event>,
    end: Violation,
}

/// The parent from which each state was first reached.
pub(crate) type Parents = HashMap<State, Option<State>, BuildHasherDefault<Mix>>;

/// A fast hash without protection against attacks: states are small, and hashing would take most of the time.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Model {
    /// Explores every state, but nothing after a violation.
    pub(crate) fn explore(&self) -> Report {
        self.reach().0
    }

    /// Also returns the states.
    pub(crate) fn reach(&self) -> (Report, Parents) {
        let start = self.start();
        let mut parents = Parents::from_iter([(start, None)]);
        let mut frontier = VecDeque::from([start]);
        let mut report = Report::default();
        while let Some(state) = frontier.pop_front() {
            report.sights.extend(check::sights_of_state(&state));
            let steps = Steps::from(self, &state);
            report.steps += steps.0.len();
            let is_still = steps.0.iter().all(|(event, _)| check::is_of_readers(event));
            if is_still && check::are_readers_outside(&state) && !check::is_quiet(&state) {
                self.found(Violation::Stuck, &parents, state, &mut report);
            }
            for (event, then) in steps.0 {
                report.sights.extend(check::sight_of_event(&event));
                let then = match then {
                    Ok(then) => then.canonical(self),
                    Err(violation) => {
                        self.found(violation, &parents, state, &mut report);
                        continue;
                    }
                };
                if parents.contains_key(&then) {
                    continue;
                }
                parents.insert(then, Some(state));
                match check::violation(self, &then) {
                    Some(violation) => self.found(violation, &parents, then, &mut report),
                    None => frontier.push_back(then),
                }
            }
        }
        report.states = parents.len();
        (report, parents)
    }

    fn found(&self, violation: Violation, parents: &Parents, last: State, report: &mut Report) {
        let trace = || {
            let mut path: Vec<State> = std::iter::successors(Some(last), |state| parents[state]).collect();
            path.reverse();
            self.trace(&path, violation)
        };
        report.violations.entry(violation).or_insert_with(trace);
    }

    /// Replays a path without canonical renumbering, so that each CPU keeps its number, and adds the wrong step.
    fn trace(&self, path: &[State], end: Violation) -> Trace {
        let mut state = self.start();
        let mut events = Vec::new();
        for next in &path[1..] {
            let leads_there = |then: &State| then.canonical(self) == *next;
            let steps = Steps::from(self, &state).0.into_iter();
            let mut steps = steps.filter_map(|(event, then)| Some((event, then.ok()?)));
            let (event, then) = steps.find(|(_, then)| leads_there(then)).expect("a path is made of steps");
            events.push(event);
            state = then;
        }
        let wrong = Steps::from(self, &state).0.into_iter().find(|(_, then)| *then == Err(end));
        events.extend(wrong.map(|(event, _)| event));
        Trace { events, end }
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }
    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }
    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, event) in self.events.iter().enumerate() {
            writeln!(f, "{:4}  {event}", index + 1)?;
        }
        writeln!(f, "      ==> {}", self.end)
    }
}
