//! Verdicts on skep's own objects against those that real kernels gave, recorded in virtual machines.
//!
//! `data/recorded.tsv` has a line for each program: the object, the program, and what each release said when libbpf
//! loaded the program alone, as root.

use skep_abi::{Context, Entry, MapDef};
use skep_kernels::{Given, Object, Outcome, Program, Verdict, Version, abilities, judge, judge_unlinked};
use skep_verifier::{Config, Unverified, verify};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RECORDED: &str = include_str!("data/recorded.tsv");

/// The releases of the table's columns.
fn releases() -> Vec<Version> {
    let head = RECORDED.lines().find_map(|line| line.strip_prefix("# object\tprogram\t")).expect("a head");
    head.split('\t').map(|release| release.parse().expect("a known release")).collect()
}

fn path(object: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [examples, verdicts] = ["../../examples", "../skep/tests/objects/verdicts"]
        .map(|folder| root.join(folder).join(format!("{object}.bpf.o")));
    if examples.exists() { examples } else { verdicts }
}

fn needs_types(object: &skep_elf::Object, program: &str) -> bool {
    let program = object.program(program).expect("it exists");
    let kind = program.program_type().expect("known");
    object.is_linked_to_host() || matches!(kind.context, Context::Arguments { .. })
}

/// The verdicts on a program, in the order of the releases.
fn verdicts(object: &skep_elf::Object, name: &str, releases: &[Version]) -> Vec<Verdict> {
    let needs = Object::of(object);
    let program = object.program(name).expect("it exists");
    let source = match program.source(None) {
        Ok(source) => source,
        Err(error) => {
            return releases.iter().map(|version| judge_unlinked(&error, *version, false).verdict).collect();
        }
    };
    let maps: Arc<[MapDef]> = object.maps().iter().map(|map| map.def.clone()).collect();
    let verified = |config: &Config<'_>| {
        let unverified =
            Unverified { source: source.clone(), maps: Arc::clone(&maps), entry: Entry::Context };
        verify(unverified, config)
    };
    let whole = verified(&Config { privileged: true, ..Config::default() });
    let judged = releases.iter().map(|&version| {
        let config = Config { privileged: true, abilities: abilities(version), ..Config::default() };
        let limited = verified(&config).err();
        let outcome = match &whole {
            Ok(verified) => Outcome::Accepted(verified),
            Err(refusal) => Outcome::Refused(refusal),
        };
        let limited = limited.as_deref().filter(|_| whole.is_ok());
        let given = Given::default();
        judge(&Program { source: &source, object: Some(&needs), given, outcome, limited }, version).verdict
    });
    judged.collect()
}

#[test]
fn no_certain_verdict_differs_from_what_a_kernel_said_and_most_are_certain() {
    let releases = releases();
    let (mut certain, mut all, mut wrong) = (0, 0, Vec::new());
    let mut open: Option<(&str, skep_elf::Object)> = None;
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let (name, program) = (cells[0], cells[1]);
        if open.as_ref().is_none_or(|(known, _)| *known != name) {
            let bytes = std::fs::read(path(name)).expect("the object is in the repository");
            open = Some((name, skep_elf::Object::parse(&bytes).expect("correct")));
        }
        let Some((_, object)) = &open else { unreachable!("just opened") };
        if needs_types(object, program) {
            continue;
        }
        let recorded = cells[2..].iter().zip(verdicts(object, program, &releases)).zip(&releases);
        for ((said, verdict), release) in recorded {
            all += 1;
            certain += usize::from(verdict != Verdict::NotCertain);
            if verdict != Verdict::NotCertain && verdict.name() != *said {
                wrong.push(format!("{name} {program}: Linux {release} {said}, not {verdict}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(certain * 100 >= all * 80, "{certain} of {all} are certain");
}

#[test]
fn the_recorded_table_names_every_program_of_its_objects() {
    let rows: Vec<&str> = RECORDED.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(rows.len() > 200, "{}", rows.len());
    for row in &rows {
        assert_eq!(row.split('\t').count(), 2 + releases().len(), "{row}");
    }
}
