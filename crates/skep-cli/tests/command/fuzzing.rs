//! `skep fuzz`: what it finds, and that what it writes are tests.

use crate::{Scratch, object, root, skep};
use std::path::Path;

/// Enough to find what these tests look for, with room.
const RUNS: &str = "400000";

fn example(name: &str) -> Vec<u8> {
    std::fs::read(root().join(format!("examples/{name}.bpf.o"))).unwrap()
}

/// `if wN == NUMBER goto`, as an instruction (RFC 9669).
const JEQ32: u8 = 0x16;

/// An object in which comparisons with a number are comparisons with another one.
fn patched(name: &str, from: u32, to: u32) -> Scratch {
    let mut bytes = example(name);
    let before = bytes.clone();
    for insn in bytes.as_chunks_mut::<8>().0 {
        if insn[0] == JEQ32 && insn[4..] == from.to_le_bytes() {
            insn[4..].copy_from_slice(&to.to_le_bytes());
        }
    }
    assert_ne!(bytes, before, "the object has no such comparison");
    Scratch::new(&format!("patched-{name}.bpf.o"), &bytes)
}

/// Fuzzes an example against a version with a bug, and runs what was found as tests.
fn finds_the_difference(name: &str, program: &str, from: u32, to: u32) {
    let old = patched(name, from, to);
    let object = format!("examples/{name}.bpf.o");
    let folder = Scratch::folder(&format!("found-{name}"));
    let options = ["--against", old.path(), "--seconds", "0", "--runs", RUNS, "-o", folder.path()];
    let said = skep(&[&["fuzz", &object, program], &options[..]].concat());
    assert_eq!(said.status, Some(1), "{}{}", said.out, said.err);
    assert!(said.out.contains(&format!("found: {program} ")), "{}", said.out);
    let findings = Path::new(folder.path()).join("findings.test.toml");
    let report = skep(&["test", findings.to_str().unwrap(), "--json"]).run_json();
    // The tables say what the other version does.
    assert!(report["failed"].as_u64().unwrap() > 0 && report["passed"] == 0, "{report}");
    assert_eq!(report["broken"], 0, "{report}");
}

#[test]
fn a_bug_in_each_example_is_found() {
    // Types of Ethernet and ports are compared in network order: the outer tag, port 80, IPv6.
    finds_the_difference("firewall", "firewall", 0xa888, 0xa889);
    finds_the_difference("balancer", "balancer", 0x5000, 0x5001);
    finds_the_difference("flows", "account_flows", 0xdd86, 0xdd87);
}

#[test]
fn the_corpus_is_a_suite_that_passes_and_reaches_nearly_everything() {
    let folder = Scratch::folder("corpus");
    let options = ["--seconds", "0", "--runs", RUNS, "--json", "-o", folder.path()];
    let report = skep(&[&["fuzz", "examples/firewall.bpf.o"], &options[..]].concat()).json();
    let (reached, places) = (report["reached"].as_u64().unwrap(), report["places"].as_u64().unwrap());
    assert!(reached * 10 > places * 8, "{reached} of {places}");
    let corpus = Path::new(folder.path()).join("corpus.test.toml");
    let suite = skep(&["test", corpus.to_str().unwrap(), "--json"]).json();
    assert_eq!((&suite["failed"], &suite["broken"]), (&0.into(), &0.into()), "{suite}");
    assert_eq!(suite["passed"], report["corpus"]);
}

#[test]
fn the_same_seed_finds_the_same() {
    let run = |seed: &str| {
        let options = ["--seconds", "0", "--runs", "60000", "--never", "drop", "--json", "--seed", seed];
        let mut report = skep(&[&["fuzz", "examples/firewall.bpf.o"], &options[..]].concat()).run_json();
        report.as_object_mut().unwrap().remove("seconds");
        report
    };
    let first = run("7");
    assert_eq!(first, run("7"));
    assert_eq!(first["findings"].as_array().unwrap().len(), 1, "{first}");
    assert_eq!(first["findings"][0]["input"], "hex()", "the smallest packet that is dropped");
}

#[test]
fn a_check_finds_what_takes_two_packets() {
    let folder = Scratch::folder("judged");
    let options = ["--check", "judge", "--seconds", "0", "--runs", "60000", "-o", folder.path()];
    let said = skep(&[&["fuzz", &object("judged"), "judged"], &options[..]].concat());
    assert_eq!(said.status, Some(1), "{}{}", said.out, said.err);
    assert!(said.out.contains("found: judged is drop, and the check returns 2"), "{}", said.out);
    let findings = std::fs::read_to_string(Path::new(folder.path()).join("findings.test.toml")).unwrap();
    // Either a packet before it, or the variable that says what it was.
    let needed = findings.contains("[[test.step]]") || findings.contains("variables.\"last_type\"");
    assert!(needed, "{findings}");
    let table = Path::new(folder.path()).join("findings.test.toml");
    let report = skep(&["test", table.to_str().unwrap(), "--json"]).json();
    assert_eq!(report["broken"], 0, "{report}");
}

#[test]
fn what_cannot_be_fuzzed_is_refused_with_the_reason() {
    for (arguments, words) in [
        (&["examples/firewall.bpf.o", "--never", "dorp"][..], &["no verdict \"dorp\"", "drop"][..]),
        (&["examples/firewall.bpf.o", "--check", "nothing"], &["nothing"]),
        (&["examples/firewall.bpf.o", "fire"], &["no program \"fire\"", "firewall"]),
        (&["examples/firewall.bpf.o", "--seeds", "/nonexistent"], &["/nonexistent"]),
        (&["examples/firewall.bpf.o", "-o", "/proc/none"], &["cannot make the folder /proc/none"]),
    ] {
        skep(&[&["fuzz", "--seconds", "1"], arguments].concat()).refused(1, words);
    }
    skep(&["fuzz", "examples/raw.bpf.o", "--seconds", "1"]).refused(2, &["--data-len"]);
}

#[test]
fn a_buffer_is_fuzzed_too_and_what_takes_most_work_is_no_failure() {
    let options = ["--data-len", "64", "--slowest", "--seconds", "0", "--runs", "20000"];
    let said = skep(&[&["fuzz", "examples/raw.bpf.o"], &options[..]].concat());
    assert_eq!(said.status, Some(0), "{}{}", said.out, said.err);
    assert!(said.out.contains("takes the most work") && said.out.contains("buffer = \""), "{}", said.out);
}
