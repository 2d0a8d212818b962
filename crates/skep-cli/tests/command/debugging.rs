//! `skep debug`: sessions as scripts.

use crate::{Said, command, from_output, root, skep};
use std::io::Write;
use std::process::Stdio;

/// A session about the firewall and a packet that it drops.
fn session(script: &str) -> Said {
    let mut child = command()
        .args([
            "debug",
            "examples/firewall.bpf.o",
            "--packet",
            "eth()/ip4(src=10.0.0.1)/tcp(dport=23,flags=S)",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    from_output(&child.wait_with_output().unwrap())
}

/// The number of the line with this text in the firewall's source.
fn line(text: &str) -> usize {
    let source = std::fs::read_to_string(root().join("examples/firewall.bpf.c")).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() + 1
}

#[test]
fn a_session_stops_at_lines_and_helpers_and_goes_back() {
    let seen = line("__sync_fetch_and_add(&bytes_seen");
    let said = session(&format!("break {seen}\nbreak bpf_map_lookup_elem\nc\nc\nrc\ninfo run\nq\nhelp\n"));
    assert_eq!(said.status, Some(0), "{}", said.err);
    let stops: Vec<&str> = said.out.lines().filter(|line| line.starts_with("breakpoint ")).collect();
    let at = format!("firewall at ./firewall.bpf.c:{seen}");
    assert_eq!(stops[0], format!("breakpoint 1 at line {seen}"));
    assert_eq!(stops[1], "breakpoint 2 at calls of map_lookup_elem");
    assert_eq!(stops[2], format!("breakpoint 1, {at}"), "{}", said.out);
    assert!(stops[3].starts_with("breakpoint 2, "), "{}", said.out);
    assert_eq!(stops[4], stops[2], "backwards to where it was");
    assert!(said.out.contains("the run ends with drop (1)"), "{}", said.out);
    assert!(!said.out.contains("reverse-continue (rc)"), "nothing after quit");
}

#[test]
fn steps_back_undo_steps() {
    let there = session("s\ns\nn\ns\n").out;
    let back = session("s\ns\nn\ns\nrs\nrs\nrs\nrs\nsi\nrsi\n").out;
    let places: Vec<&str> = back.lines().filter(|line| line.starts_with("firewall at ")).collect();
    assert_eq!(places.len(), 11, "{back}");
    assert_eq!(
        &places[..5],
        &there.lines().filter(|line| line.starts_with("firewall at ")).collect::<Vec<_>>()[..]
    );
    let mirrored: Vec<&str> = places[..4].iter().rev().copied().collect();
    assert_eq!(&places[5..9], &mirrored[..], "{back}");
    assert_eq!(places[10], places[0]);
}

#[test]
fn registers_and_the_stack_are_printed() {
    let said =
        session("b *16\nc\np w8\np *(u64 *)(r10 - 0x20)\np *(u64 *)(r10 - 32)\ninfo stack\ninfo registers\n");
    assert!(said.out.contains("w8 = 4 (0x4)"), "{}", said.out);
    assert!(said.out.contains("*(u64 *)(r10 - 32) = 0 (0x0)"), "{}", said.out);
    assert!(said.out.contains("r10  0x"), "{}", said.out);
}

#[test]
fn wrong_commands_are_errors_and_the_session_goes_on() {
    let said = session(
        "brek 3\nbreak 1\nbreak nothing\nbreak *99999\ndelete 7\np x\np *(u32 *)(r1 + 0)\ninfo x\nbt\n",
    );
    for text in [
        "error: unknown command \"brek\": help lists them",
        "error: no code at line 1; the nearest line with code is ",
        "error: nothing is called \"nothing\"; the functions are firewall",
        "error: no instruction 99999: expected a number below 871",
        "error: there is no breakpoint \"7\"",
        "error: cannot print \"x\"",
        "is not in the stack of this function",
        "error: no info about \"x\"",
        "#0 firewall at ./firewall.bpf.c:",
    ] {
        assert!(said.out.contains(text), "{text}: {}", said.out);
    }
    assert_eq!(said.status, Some(0));
}

#[test]
fn what_cannot_be_debugged_is_refused() {
    skep(&["debug", "examples/firewall.bpf.o", "--packet", "eth()/ip5()"]).refused(2, &["column 7", "ip5"]);
    skep(&["debug", "examples/firewall.bpf.o", "--hex", "0"]).refused(2, &["the packet"]);
    skep(&["debug", "examples/raw.bpf.o", "--hex", "00"]).refused(1, &["packet"]);
}
