//! Programs that clang compiled from ordinary and from wrong C get Linux's verdict: every program of
//! `objects/verdicts`.
//!
//! `verdicts.tsv` there holds the recorded verdicts of a kernel, so none is needed here. Programs that refer to
//! kernel types are linked with the types that the verifier's recorded verdicts keep.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skep::{Btf, Error, Object, ProgramOptions};

/// The release that gave these verdicts.
const RELEASE: &str = "6.12.95";

/// A line of the table.
struct Line {
    linux: String,
    skep: String,
    why: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects/verdicts")
}

/// Verdicts by object and program.
fn table() -> BTreeMap<(String, String), Line> {
    let text = fs::read_to_string(folder().join("verdicts.tsv")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let table: BTreeMap<_, _> = lines
        .iter()
        .map(|line| {
            let mut columns = line.split('\t').map(str::to_owned);
            let mut next = || columns.next().unwrap_or_default();
            ((next(), next()), Line { linux: next(), skep: next(), why: next() })
        })
        .collect();
    assert_eq!(table.len(), lines.len(), "a program has two lines");
    table
}

/// Every object by its name, with its programs.
fn objects() -> Vec<(String, Object)> {
    let types = Path::new(env!("CARGO_MANIFEST_DIR")).join("../skep-verifier/verdicts/linux.btf");
    let types = Arc::new(Btf::parse(fs::read(types).unwrap()).unwrap());
    let mut paths: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    let open = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(".bpf.o")?.to_owned();
        let mut object = Object::open(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        object.set_host_types(types.clone());
        object.set_config("", Some(RELEASE)).unwrap();
        Some((name, object))
    };
    paths.iter().filter_map(open).collect()
}

fn verdict(object: &Object, program: &str) -> (String, String) {
    match object.verify(program, ProgramOptions::default()) {
        Ok(_) => ("accept".to_owned(), String::new()),
        Err(Error::Refused(refusal)) => (format!("refuse: {}", refusal.code.name()), refusal.to_string()),
        Err(error) => ("not linked".to_owned(), error.to_string()),
    }
}

#[test]
fn compiled_programs_get_their_recorded_verdict() {
    let table = table();
    let mut wrong = Vec::new();
    let mut met = BTreeSet::new();
    for (name, object) in objects() {
        for program in object.programs() {
            let key = (name.clone(), program.to_owned());
            let Some(line) = table.get(&key) else {
                wrong.push(format!("{name} {program} has no line in verdicts.tsv"));
                continue;
            };
            let (said, text) = verdict(&object, program);
            if said != line.skep {
                wrong.push(format!("{name} {program}: expected {}, found {said}\n{text}", line.skep));
            }
            met.insert(key);
        }
    }
    wrong.extend(table.keys().filter(|key| !met.contains(*key)).map(|key| format!("{key:?} is no program")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn verdicts_differ_from_linux_only_with_a_reason() {
    for ((object, program), line) in table() {
        let word = |verdict: &str| verdict.split(':').next().unwrap_or_default().to_owned();
        let (linux, skep) = (word(&line.linux), word(&line.skep));
        assert!(["accept", "refuse"].contains(&linux.as_str()), "{object} {program}: {linux}");
        assert_eq!(linux != skep, !line.why.is_empty(), "{object} {program}: {}", line.why);
    }
}

#[test]
fn wrong_programs_are_refused_and_the_others_accepted() {
    for ((object, program), line) in table() {
        assert_eq!(line.skep != "accept", program.starts_with("bad_"), "{object} {program}: {}", line.skep);
    }
}
