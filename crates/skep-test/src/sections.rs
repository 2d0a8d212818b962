//! Tests in C: programs in sections named `TYPE/test/NAME/STAGE`, as Cilium's datapath tests have them.
//!
//! ```text
//!   pktgen   writes the packet                                   optional
//!   setup    fills maps, tail-calls the program under test       optional
//!   check    sees the result in 4 bytes, then the packet         returns 1 passed, 2 failed, 3 skipped, 0 an error
//! ```
//!
//! The stages of a test run one after the other on one packet and with the same maps. The map `suite_result_map`, if
//! the object has one, holds results of parts and log lines, as a message in the encoding of Protocol Buffers.

use crate::covered::{self, Covered};
use crate::error::Error;
use crate::fixture;
use crate::options::Options;
use crate::outcome::{Difference, Outcome, What};
use crate::proto;
use skep::{Engine, Object, Packet};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::PoisonError;

/// Bytes of the packet that the first stage gets: a page without head- and tailroom.
const PACKET: usize = 4096 - 256 - 320;
/// The map of results.
const RESULTS: &str = "suite_result_map";

/// A test in an object.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    pub(crate) name: String,
    pktgen: Option<String>,
    setup: Option<String>,
    check: String,
}

/// The tests in an object's bytes, in the order of their sections; none if it has no such sections.
pub(crate) fn tests(path: &Path, bytes: &[u8]) -> Result<Vec<Checks>, Error> {
    let wrong = |source| Error::Object { path: path.to_owned(), source: Box::new(source) };
    let object = skep_elf::Object::parse(bytes).map_err(wrong)?;
    let mut order = Vec::new();
    let mut stages: BTreeMap<(&str, &str), [Option<String>; 3]> = BTreeMap::new();
    for program in object.programs() {
        let Some((kind, rest)) = program.section().split_once("/test/") else { continue };
        let Some((name, stage)) = rest.rsplit_once('/') else { continue };
        let Some(at) = ["pktgen", "setup", "check"].iter().position(|known| *known == stage) else {
            continue;
        };
        let entry = stages.entry((kind, name)).or_insert_with(|| {
            order.push((kind, name));
            [None, None, None]
        });
        entry[at] = Some(program.name().to_owned());
    }
    let several = |name: &str| order.iter().filter(|(_, other)| *other == name).count() > 1;
    let tests = order.iter().filter_map(|key| {
        let [pktgen, setup, check] = stages.remove(key)?;
        let name = if several(key.1) { format!("{}/{}", key.0, key.1) } else { key.1.to_owned() };
        Some(Checks { name, pktgen, setup, check: check? })
    });
    Ok(tests.collect())
}

/// Runs a test. Returns its log beside its outcome.
pub(crate) fn run(
    test: &Checks,
    object: &Object,
    path: &Path,
    options: &Options,
    covered: &mut Vec<Covered>,
) -> (Outcome, Vec<String>) {
    match stages(test, object, path, options, covered) {
        Ok(done) => done,
        Err(text) => (Outcome::Broken(text), Vec::new()),
    }
}

fn stages(
    test: &Checks,
    object: &Object,
    path: &Path,
    options: &Options,
    covered: &mut Vec<Covered>,
) -> Result<(Outcome, Vec<String>), String> {
    let text = |error: skep::Error| error.to_string();
    let world = fixture::plain_world();
    let lines = fixture::Lines::default();
    let runtime = fixture::runtime(&world, &lines, options)?;
    let before = [&test.pktgen, &test.setup].into_iter().flatten();
    let linker =
        before.clone().fold(runtime.linker(object).only(&test.check), |linker, name| linker.and(name));
    let module = linker.load().map_err(text)?;
    let engine = if options.interp { Engine::Interpreter } else { Engine::Jit };
    let mut packet = Packet::new(&[0; PACKET]);
    let run = |name: &str, packet: &mut Packet| {
        let program = module.program(name).ok_or_else(|| format!("no program {name}"))?;
        program
            .run_with(engine, packet)
            .map(|result| result as u32)
            .map_err(|error| format!("{name}: {error}"))
    };
    let mut status = None;
    if let Some(name) = &test.pktgen {
        run(name, &mut packet)?;
    }
    if let Some(name) = &test.setup {
        status = Some(run(name, &mut packet)?);
    }
    if let Some(status) = status {
        let whole = [&status.to_ne_bytes()[..], packet.bytes()].concat();
        packet.set(&whole);
    }
    let result = run(&test.check, &mut packet);
    *covered = covered::of_module(path, &module);
    let result = result?;
    let mut log = lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let parts = match module.map(RESULTS).map(|map| map.lookup(&0u32.to_ne_bytes())) {
        Some(Ok(Some(bytes))) => proto::results(&bytes),
        _ => proto::Results::default(),
    };
    log.extend(parts.log.iter().cloned());
    Ok((outcome(result, &parts), log))
}

fn outcome(result: u32, parts: &proto::Results) -> Outcome {
    let mut failed = Vec::new();
    for part in &parts.parts {
        let text = match part.status {
            1 | 3 => continue,
            2 => format!("part {:?} failed", part.name),
            status => format!("part {:?} ended with the error {status}", part.name),
        };
        let log: String = part.log.iter().map(|line| format!("\n  {line}")).collect();
        failed.push(format!("{text}{log}"));
    }
    match result {
        1 if failed.is_empty() => {
            let skipped = !parts.parts.is_empty() && parts.parts.iter().all(|part| part.status == 3);
            return if skipped { Outcome::Skipped(None) } else { Outcome::Passed };
        }
        3 if failed.is_empty() => return Outcome::Skipped(None),
        0 => {
            return Outcome::Broken(
                "the check returned 0, an error: it ended before its first assertion".to_owned(),
            );
        }
        2 if failed.is_empty() => failed.push("the check failed".to_owned()),
        1..=3 => {}
        other => failed.push(format!("the check returned {other}: expected 1 passed, 2 failed or 3 skipped")),
    }
    let difference = |text| Difference { step: 1, line: 0, what: What::Check { text } };
    Outcome::Failed(failed.into_iter().map(difference).collect())
}
