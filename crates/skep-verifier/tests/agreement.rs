//! skep's verdicts beside Linux's: every program in `corpus/*.corpus`.
//!
//! The files hold what Linux says, so no kernel is needed here; `cargo xtask verdicts` asks one anew. skep must agree
//! with Linux wherever a file does not say otherwise, with the reason.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skep_abi::{Context, Entry as Given, MapDef, ProgramSource, Section};
use skep_agreement::{Entry, Program, Verdict, entries};
use skep_verifier::{Config, Unverified, verify};

/// Bytes that `raw` programs are given.
const BUFFER: u32 = 16;
/// `BPF_F_STRICT_ALIGNMENT`.
const STRICT_ALIGNMENT: u32 = 1;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "corpus"))
        .collect();
    files.sort();
    files
}

/// What skep says, and its log on a refusal.
fn verdict(entry: &Entry) -> Result<(Verdict, String), String> {
    let program = Program::of(entry).map_err(|error| error.to_string())?;
    let Some(section) = Section::parse(&entry.section) else {
        let text = format!("skep knows no type for {}", entry.section);
        return Ok((Verdict::Refuse("unsupported".to_owned()), text));
    };
    let kind = section.kind;
    let source = ProgramSource {
        functions: program.functions,
        gpl_compatible: ["GPL", "GPL v2", "Dual BSD/GPL", "Dual MIT/GPL"].contains(&entry.license.as_str()),
        sleepable: section.sleepable,
        target: section.target.map(str::to_owned),
        ..ProgramSource::new(entry.name.clone(), kind, program.insns)
    };
    let given = match kind.context {
        Context::Buffer => Given::Buffer { len: BUFFER },
        _ => Given::Context,
    };
    let maps: Arc<[MapDef]> = entry.maps.iter().map(|map| definition(entry, map)).collect();
    let config = Config { strict_alignment: entry.flags & STRICT_ALIGNMENT != 0, ..Config::default() };
    Ok(match verify(Unverified { source, maps, entry: given }, &config) {
        Ok(_) => (Verdict::Accept, String::new()),
        Err(refusal) => (Verdict::Refuse(refusal.code.name().to_owned()), refusal.to_string()),
    })
}

fn definition(entry: &Entry, map: &skep_agreement::MapLine) -> MapDef {
    let inner = map.inner.as_ref().and_then(|name| entry.maps.iter().find(|map| map.def.name == *name));
    MapDef { inner: inner.map(|map| Box::new(map.def.clone())), ..map.def.clone() }
}

/// What is wrong with skep's verdict, if anything.
fn difference(entry: &Entry) -> Option<String> {
    let Some(expected) = entry.expected() else {
        return Some("there is no verdict of Linux yet: cargo xtask verdicts".to_owned());
    };
    let (found, log) = match verdict(entry) {
        Ok(found) => found,
        Err(problem) => return Some(problem),
    };
    let mut text = match (expected, &found) {
        (expected, found) if !found.agrees_with(expected) => {
            format!("expected {expected}, skep says {found}")
        }
        (Verdict::Refuse(code), Verdict::Refuse(found)) if entry.skep.is_some() && code != found => {
            format!("expected the class {code}, found {found}")
        }
        _ => return None,
    };
    if !log.is_empty() {
        let _ = write!(text, "\n      {log}");
    }
    if let (Some(linux), true) = (&entry.linux, entry.skep.is_some()) {
        let _ = write!(text, "\n      Linux: {linux}");
    }
    Some(text)
}

#[test]
fn skep_agrees_with_linux_wherever_nothing_else_is_said() {
    let mut failures = String::new();
    for path in files() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let entries = entries(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let count = |wanted: &Verdict| {
            entries.iter().filter(|e| e.linux.as_ref().is_some_and(|linux| linux.agrees_with(wanted))).count()
        };
        let apart = entries.iter().filter(|e| e.why.is_some()).count();
        let mut wrong = 0;
        for entry in &entries {
            if let Some(text) = difference(entry) {
                wrong += 1;
                let _ = write!(failures, "\n  {name}:{}: {}: {text}", entry.line, entry.name);
            }
        }
        eprintln!(
            "{name}: {} programs, Linux accepts {} and refuses {}; skep differs on purpose in {apart}, otherwise in {wrong}",
            entries.len(),
            count(&Verdict::Accept),
            count(&Verdict::Refuse(String::new())),
        );
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn the_programs_cover_both_verdicts_in_numbers() {
    let all: Vec<Entry> =
        files().iter().flat_map(|path| entries(&fs::read_to_string(path).unwrap()).unwrap()).collect();
    let refused = all.iter().filter(|entry| matches!(entry.linux, Some(Verdict::Refuse(_)))).count();
    assert!(all.len() >= 30, "{} programs", all.len());
    assert!(3 * refused >= all.len(), "{refused} of {} are unsafe", all.len());
    let mut seen = HashMap::new();
    for entry in &all {
        let said =
            (&entry.maps, &entry.functions, &entry.license, entry.unprivileged, entry.flags, entry.attach);
        let whole = format!("{} {said:?} {}", entry.section, entry.text);
        if let Some(twin) = seen.insert(whole, &entry.name) {
            panic!("{} and {twin} are the same program", entry.name);
        }
    }
}
