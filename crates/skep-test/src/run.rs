//! Runs the tests of tables: steps one after the other, and after each what is expected of it.
//!
//! A test is a function of its table and its object: its clock moves only by `after`, random numbers follow from a
//! seed, and it shares no map with another one. So it finds the same alone, in parallel, and again.

use crate::check::{check, digits, raw_event};
use crate::compare::{self, Differences};
use crate::covered::{self, Covered};
use crate::fixture::Fixture;
use crate::kernel::{self, Kernel};
use crate::node::unknown;
use crate::options::Options;
use crate::outcome::{Outcome, Seen, SeenStep};
use crate::ran::{Ran, run_step};
use crate::table::{Expect, Input, Test};
use serde_json::Value as Json;
use skep::{Engine, Module, Object};

/// Runs a test.
pub(crate) fn test(
    test: &Test,
    object: &Object,
    options: &Options,
    covered: &mut Vec<Covered>,
) -> (Outcome, Vec<String>, Seen) {
    let mut seen = Seen { index: test.index, is_case: test.is_case, ..Seen::default() };
    let mut printed = Vec::new();
    let outcome = match steps(test, object, options, &mut seen, (&mut printed, covered)) {
        Ok(outcome) => outcome,
        Err(text) => Outcome::Broken(text),
    };
    (outcome, printed, seen)
}

fn steps(
    test: &Test,
    object: &Object,
    options: &Options,
    seen: &mut Seen,
    (printed, covered): (&mut Vec<String>, &mut Vec<Covered>),
) -> Result<Outcome, String> {
    let name = program_name(test, object)?;
    let buffer = test.steps.iter().find_map(|step| match &step.input {
        Input::Buffer(bytes) => u32::try_from(bytes.len()).ok(),
        _ => None,
    });
    let mut fixture = Fixture::load(test, object, &name, buffer.unwrap_or(0), options)?;
    let mut kernel = None;
    if options.kernel {
        let kind = fixture.module.program(&name).map(skep::Program::program_type);
        if let Some(reason) = kind.and_then(|kind| kernel::cannot(test, object, kind)) {
            return Ok(Outcome::Skipped(Some(reason)));
        }
        kernel = Some(Kernel::load(test, &fixture, &name)?);
    }
    let engine = if options.interp || test.interp { Engine::Interpreter } else { Engine::Jit };
    let mut found = Vec::new();
    let begin = options.bless.then(|| snapshot(&fixture.module));
    for (number, step) in (1..).zip(&test.steps) {
        let before = options.bless.then(|| snapshot(&fixture.module));
        let start = fixture.printed();
        let ran = match &mut kernel {
            Some(kernel) => kernel.step(&fixture, step),
            None => run_step(&mut fixture, &name, step, engine),
        };
        let lines = fixture.printed_since(start);
        printed.extend(lines.iter().cloned());
        if number == test.steps.len() || ran.is_err() {
            *covered = covered::of_module(&test.object.0, &fixture.module);
        }
        let ran = ran.map_err(|text| match test.steps.len() {
            1 => text,
            _ => format!("step {number}: {text}"),
        })?;
        let line = step.expect.as_ref().map_or(step.line, |expect| expect.line);
        let mut into = Differences { step: number, line, found: Vec::new() };
        let mut seen_step = noted(&ran, lines);
        if let Some(expect) = &step.expect {
            check(&fixture.module, expect, &ran, &mut seen_step, &mut into)?;
        }
        if let Some(before) = before {
            changes(&fixture.module, &before, step.expect.as_ref(), &mut seen_step);
        }
        seen.steps.push(seen_step);
        found.extend(into.found);
    }
    if let Some(expect) = &test.at_end {
        let mut into = Differences { step: 0, line: expect.line, found: Vec::new() };
        let ran = Ran::default();
        let mut at_end = noted(&ran, printed.clone());
        check(&fixture.module, expect, &ran, &mut at_end, &mut into)?;
        if let Some(before) = begin {
            changes(&fixture.module, &before, Some(expect), &mut at_end);
        }
        seen.at_end = Some(at_end);
        found.extend(into.found);
    }
    Ok(if found.is_empty() { Outcome::Passed } else { Outcome::Failed(found) })
}

fn program_name(test: &Test, object: &Object) -> Result<String, String> {
    let names = object.programs();
    match (&test.program, names.as_slice()) {
        (Some(node), names) => {
            let name = node.text().map_err(|error| error.to_string())?;
            match names.contains(&name) {
                true => Ok(name.to_owned()),
                false => Err(node.error(unknown("program", name, names)).to_string()),
            }
        }
        (None, [only]) => Ok((*only).to_owned()),
        (None, names) => {
            let text = format!("the object has several programs; add program = one of {}", names.join(", "));
            Err(test.object.1.error(text).to_string())
        }
    }
}

/// What a step has left, for expectations that are written.
fn noted(ran: &Ran, printed: Vec<String>) -> SeenStep {
    let verdict = match ran.verdict {
        Some(name) => name.into(),
        None => (ran.result as u32 as i32).into(),
    };
    let changed = ran.ran && ran.before != ran.after;
    SeenStep {
        ran: ran.ran,
        verdict,
        changed,
        packet: ran.is_packet.then(|| skep_frames::text(&ran.after)),
        buffer: (!ran.is_packet && ran.ran).then(|| digits(&ran.after)),
        printed,
        events: ran.events.iter().map(raw_event).collect(),
        ..SeenStep::default()
    }
}

/// The contents of all maps and variables, for what a step changes.
type Snapshot = Vec<(String, Vec<(Vec<u8>, Vec<u8>)>)>;

fn snapshot(module: &Module) -> Snapshot {
    let maps = module.maps().iter().filter(|map| !map.name().starts_with('.'));
    maps.map(|map| (map.name().to_owned(), compare::elements_of(map))).collect()
}

/// Notes the elements that a step changed, or those of the maps that are expected.
fn changes(module: &Module, before: &Snapshot, expect: Option<&Expect>, seen: &mut SeenStep) {
    for (name, old) in before {
        let (Some(map), Ok(json)) = (module.map(name), module.map_json(name)) else { continue };
        let expected = expect.is_some_and(|expect| expect.maps.iter().any(|(known, _)| known == name));
        if expect.is_some() && !expected {
            continue;
        }
        let now = compare::elements_of(map);
        let changed = now.iter().filter(|element| !old.contains(element));
        let elements: Vec<Json> = changed.map(|(key, value)| json.element(key, value)).collect();
        if !elements.is_empty() {
            seen.maps.push((name.clone(), elements.into()));
        }
    }
}
