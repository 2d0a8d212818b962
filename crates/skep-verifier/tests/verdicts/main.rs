//! Compares skep's verdicts with Linux's, for every program in `verdicts/*.verdicts`.
//!
//! The files record Linux's verdicts, so this test needs no kernel; `cargo xtask verdicts` asks a kernel again. skep
//! must agree with Linux unless the file records a difference and its reason.
//!
//! [`equivalent`] changes each of them to another program that does the same, [`owners`] makes new ones of objects that
//! programs allocate.

mod build;
mod equivalent;
mod owners;
mod words;

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use skep_abi::ProgramSource;
use skep_verdicts::{Entry, Verdict, entries};
use skep_verifier::{Config, Unverified, verify};

/// A flag of a load, as Linux numbers them.
const STRICT_ALIGNMENT: u32 = 1;

/// The recorded verdicts, or only the file that `SKEP_VERDICTS` names.
fn files() -> Vec<PathBuf> {
    if let Some(file) = std::env::var_os("SKEP_VERDICTS") {
        return vec![file.into()];
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("verdicts");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "verdicts"))
        .collect();
    files.sort();
    files
}

/// skep's verdict, and its log if it refuses.
fn verdict(entry: &Entry, privileged: bool) -> Result<(Verdict, String), String> {
    verdict_on(entry, privileged, |source| source)
}

/// The same on what `change` makes of the program.
fn verdict_on(
    entry: &Entry,
    privileged: bool,
    change: impl FnOnce(ProgramSource) -> ProgramSource,
) -> Result<(Verdict, String), String> {
    let Some((source, maps, given)) = build::source(entry)? else {
        let text = format!("skep knows no type for {}", entry.section);
        return Ok((Verdict::Refuse("unsupported".to_owned()), text));
    };
    let config = Config {
        btf: Some(build::linux_types()),
        strict_alignment: entry.flags & STRICT_ALIGNMENT != 0,
        privileged,
        ..Config::default()
    };
    let source = change(source);
    Ok(match verify(Unverified { source, maps, entry: given }, &config) {
        Ok(_) => (Verdict::Accept, String::new()),
        Err(refusal) => (Verdict::Refuse(refusal.code.name().to_owned()), refusal.to_string()),
    })
}

/// The error in skep's verdict, if there is one.
fn difference(entry: &Entry, privileged: bool) -> Option<String> {
    let expected = if privileged { entry.expected_privileged() } else { entry.expected() };
    let Some(expected) = expected else {
        return Some("there is no verdict of Linux yet: cargo xtask verdicts".to_owned());
    };
    let (found, log) = match verdict(entry, privileged) {
        Ok(found) => found,
        Err(problem) => return Some(problem),
    };
    let mut text = match (expected, &found) {
        (expected, found) if !found.agrees_with(expected) => {
            let how = if privileged { " if privileged" } else { "" };
            format!("expected {expected}{how}, skep says {found}")
        }
        (Verdict::Refuse(code), Verdict::Refuse(found))
            if entry.skep.is_some() && !privileged && code != found =>
        {
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
fn skep_agrees_with_linux_except_where_a_file_says_otherwise() {
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
            // Programs that Linux was asked about without capabilities are compared as such alone.
            let rules = if entry.unprivileged { &[false][..] } else { &[false, true] };
            for text in rules.iter().filter_map(|privileged| difference(entry, *privileged)) {
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

/// Linux refuses to load such types at all, so no program with them can be recorded.
#[test]
fn own_types_that_contradict_themselves_are_refused_where_they_are_used() {
    let allocate = |structs: &str, of: &str| {
        format!(
            "== x\ntype: xdp\n{structs}insns:\nr1 = type[{of}]\nr2 = 0\ncall kfunc[bpf_obj_new_impl]\n\
             if r0 == 0 goto out\nr1 = r0\nr2 = 0\ncall kfunc[bpf_obj_drop_impl]\nout:\nr0 = 0\nexit\n"
        )
    };
    let pop = "== x\ntype: xdp\nstruct: item 40 lnode@16\nmap: l array 4 24 1 lock@0 list@8=item:pad0\ninsns:\n\
               r1 = map_value[l] ll\ncall bpf_spin_lock\nr1 = map_value[l]+8 ll\ncall kfunc[bpf_list_pop_front]\n\
               r6 = r0\nr1 = map_value[l] ll\ncall bpf_spin_unlock\nif r6 == 0 goto out\nr1 = r6\nr2 = 0\n\
               call kfunc[bpf_obj_drop_impl]\nout:\nr0 = 0\nexit\n";
    let lists = "struct: leaf 24 lnode@0\nstruct: inner 48 lock@0 list@8=leaf:lnode0 lnode@24\n\
                 struct: outer 48 lock@0 list@8=inner:lnode24 lnode@24\n";
    let types = Verdict::Refuse("types".to_owned());
    let cases = [
        ("nodes without a count", allocate("struct: both 64 lnode@8 rnode@32\n", "both"), &types),
        (
            "the same with one",
            allocate("struct: both 72 lnode@8 rnode@32 refcount@64\n", "both"),
            &Verdict::Accept,
        ),
        ("a list of lists", allocate(lists, "outer"), &types),
        ("a list of leaves", allocate(lists, "inner"), &Verdict::Accept),
        ("a list by a member that is no node", pop.to_owned(), &types),
        (
            "the same by its node",
            pop.replace("pad0", "lnode16").replace("r1 = r6\n", "r1 = r6\nr1 += -16\n"),
            &Verdict::Accept,
        ),
    ];
    for (what, text, expected) in cases {
        let (found, log) = verdict(&entries(&text).unwrap()[0], false).unwrap();
        assert_eq!(&found, expected, "{what}: {log}");
    }
}

#[test]
fn the_programs_cover_both_verdicts_in_numbers() {
    let all: Vec<Entry> =
        files().iter().flat_map(|path| entries(&fs::read_to_string(path).unwrap()).unwrap()).collect();
    let refused = all.iter().filter(|entry| matches!(entry.linux, Some(Verdict::Refuse(_)))).count();
    assert!(all.len() >= 900, "{} programs", all.len());
    assert!(2 * refused >= all.len(), "{refused} of {} are unsafe", all.len());
    let mut seen = HashMap::new();
    for entry in &all {
        let said = (
            (&entry.maps, &entry.structs),
            &entry.functions,
            &entry.tags,
            &entry.license,
            entry.unprivileged,
            entry.flags,
            entry.attach,
        );
        let whole = format!("{} {said:?} {}", entry.section, entry.text);
        if let Some(twin) = seen.insert(whole, &entry.name) {
            panic!("{} and {twin} are the same program", entry.name);
        }
    }
}
