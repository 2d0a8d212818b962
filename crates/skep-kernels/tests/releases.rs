//! Verdicts on the small programs of `skep-verifier/verdicts` against those that real kernels gave.
//!
//! `data/releases.tsv` has a line for each program: the file, the program, and what each release said when root loaded
//! it. Each program is one side of a rule, so a rule that a release has otherwise shows here.

#[path = "../../skep-verifier/tests/verdicts/build.rs"]
mod build;

use skep_abi::{Context, Extern, ExternKind, MapDef, ProgramSource, SpecialKind};
use skep_isa::{CallTarget, Insn};
use skep_kernels::{Given, Outcome, Program, Verdict, Version, abilities, judge};
use skep_verdicts::{Entry, entries};
use skep_verifier::{Code, Config, Refusal, Unverified, Verified, verify};
use std::collections::HashMap;
use std::path::Path;

const RECORDED: &str = include_str!("data/releases.tsv");

/// Flags of a load, and capabilities, are not what verdicts of releases are for. What lies in the kernel's structures
/// depends on its types, which are 6.12's here; and what maps' values hold is a need of the object, which is none.
fn is_plain(entry: &Entry, source: &ProgramSource, maps: &[MapDef]) -> bool {
    let holds_objects =
        maps.iter().flat_map(|map| &map.fields).any(|field| field.kind != SpecialKind::SpinLock);
    let of_kernel = matches!(source.program_type.context, Context::Arguments { .. });
    entry.flags == 0 && !entry.unprivileged && !of_kernel && !holds_objects
}

/// Whether the verdict depends on the kernel's structures.
fn needs_types(found: &Result<Verified, Box<Refusal>>) -> bool {
    found.as_ref().is_err_and(|refusal| refusal.code == Code::Types)
}

/// The functions of the kernel that the program calls, by name.
fn externs(source: &ProgramSource) -> Vec<Extern> {
    let types = build::linux_types();
    let called = source.insns.iter().filter_map(|insn| match insn {
        Insn::Call { target: CallTarget::Kfunc { id, .. } } => Some(*id as u32),
        _ => None,
    });
    let named = |id: u32| {
        let name = types.ty(id).ok()?.name().ok()?.to_owned();
        Some(Extern { name: name.into(), kind: ExternKind::Function(id) })
    };
    called.filter_map(named).collect()
}

/// The verdicts on a program, in the order of the releases; `None` if skep has no such type.
fn verdicts(entry: &Entry, releases: &[Version]) -> Option<Vec<(Verdict, String)>> {
    let (mut source, maps, given) = build::source(entry).expect("it can be built")?;
    if !is_plain(entry, &source, &maps) {
        return None;
    }
    source.externs = externs(&source);
    let verified = |config: &Config<'_>| {
        verify(Unverified { source: source.clone(), maps: maps.clone(), entry: given }, config)
    };
    let rooted = || Config { btf: Some(build::linux_types()), privileged: true, ..Config::default() };
    if needs_types(&verified(&Config { btf: None, ..rooted() })) && source.externs.is_empty() {
        return None;
    }
    let whole = verified(&rooted());
    let judged = releases.iter().map(|&version| {
        let outcome = match &whole {
            Ok(verified) => Outcome::Accepted(verified),
            Err(refusal) => Outcome::Refused(refusal),
        };
        let limited = verified(&Config { abilities: abilities(version), ..rooted() }).err();
        let limited = limited.as_deref().filter(|_| whole.is_ok());
        let program = Program { source: &source, object: None, given: Given::default(), outcome, limited };
        let judgement = judge(&program, version);
        (judgement.verdict, judgement.obstacle.map_or_else(String::new, |obstacle| obstacle.to_string()))
    });
    Some(judged.collect())
}

#[test]
fn no_certain_verdict_on_a_rule_differs_from_what_a_kernel_said() {
    let head = RECORDED.lines().find_map(|line| line.strip_prefix("# file\tprogram\t")).expect("a head");
    let mut releases: Vec<Version> =
        head.split('\t').map(|release| release.parse().expect("known")).collect();
    // What 6.12 says is in the files.
    releases.push(Version::new(6, 12));
    let mut files: HashMap<&str, HashMap<String, Entry>> = HashMap::new();
    let (mut certain, mut all, mut wrong) = (vec![0; releases.len()], vec![0; releases.len()], Vec::new());
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let known = files.entry(cells[0]).or_insert_with(|| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../skep-verifier/verdicts");
            let text =
                std::fs::read_to_string(folder.join(format!("{}.verdicts", cells[0]))).expect("it exists");
            let entries = entries(&text).expect("correct").into_iter();
            entries.map(|entry| (entry.name.clone(), entry)).collect()
        });
        // Programs that were removed or renamed since are asked about again with the next kernel.
        let Some(entry) = known.get(cells[1]) else { continue };
        let Some(found) = verdicts(entry, &releases) else { continue };
        let nearest = match &entry.linux {
            Some(said) if said.agrees_with(&skep_verdicts::Verdict::Accept) => "a",
            Some(skep_verdicts::Verdict::Refuse(_)) => "r",
            _ => "-",
        };
        let said = cells[2..].iter().chain([&nearest]);
        for (at, ((verdict, why), said)) in found.iter().zip(said).enumerate() {
            let said = match *said {
                "a" => Verdict::Accepted,
                "r" => Verdict::Refused,
                _ => continue,
            };
            all[at] += 1;
            certain[at] += usize::from(*verdict != Verdict::NotCertain);
            if *verdict != Verdict::NotCertain && *verdict != said {
                wrong.push(format!(
                    "{}: {}: {} {said}, not {verdict}: {why}",
                    cells[0], cells[1], releases[at]
                ));
            }
        }
    }
    eprintln!("certain: {certain:?} of {all:?}");
    assert!(all.iter().all(|count| *count > 1000), "{all:?}");
    assert_eq!(wrong, [""; 0]);
    for (certain, all) in certain.iter().zip(&all) {
        assert!(certain * 100 >= all * 70, "{certain} of {all} are certain");
    }
}
