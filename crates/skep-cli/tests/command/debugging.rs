//! `skep debug`: sessions as scripts.

use crate::{Said, command, from_output, root, skep};
use serde_json::{Value, json};
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

/// What the adapter sends for requests that are sent at once, each as a command with its arguments.
fn adapter(requests: &[(&str, Value)]) -> Vec<Value> {
    let mut child = command()
        .arg("dap")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for (seq, (command, arguments)) in (1..).zip(requests) {
        let request = json!({ "seq": seq, "type": "request", "command": command, "arguments": arguments });
        let text = request.to_string();
        write!(input, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
    }
    drop(input);
    let said = from_output(&child.wait_with_output().unwrap());
    assert_eq!((said.status, &*said.err), (Some(0), ""));
    let mut messages = Vec::new();
    let mut rest = &*said.out;
    while !rest.is_empty() {
        let (header, body) = rest.split_once("\r\n\r\n").unwrap();
        let length: usize = header.strip_prefix("Content-Length: ").unwrap().parse().unwrap();
        messages.push(serde_json::from_str(&body[..length]).unwrap());
        rest = &body[length..];
    }
    messages
}

fn launched(requests: &[(&str, Value)]) -> Vec<Value> {
    let object = root().join("examples/firewall.bpf.o");
    let launch = json!({
        "object": object.to_str().unwrap(),
        "packet": "eth()/ip4(src=10.0.0.1)/tcp(dport=23,flags=S)",
        "stopOnEntry": true,
    });
    let begin = [("initialize", json!({ "adapterID": "skep" })), ("launch", launch)];
    adapter(&[&begin[..], requests].concat())
}

/// The answers to a command.
fn answers<'a>(messages: &'a [Value], command: &str) -> Vec<&'a Value> {
    messages.iter().filter(|message| message["type"] == "response" && message["command"] == command).collect()
}

#[test]
fn an_editor_sets_breakpoints_looks_at_variables_and_goes_back() {
    let seen = line("__sync_fetch_and_add(&bytes_seen");
    let lines = json!({ "source": { "path": "/anywhere/firewall.bpf.c" }, "breakpoints": [{ "line": seen }, { "line": 1 }] });
    let thread = || json!({ "threadId": 1 });
    let messages = launched(&[
        ("setBreakpoints", lines),
        (
            "setFunctionBreakpoints",
            json!({ "breakpoints": [{ "name": "bpf_map_lookup_elem" }, { "name": "no" }] }),
        ),
        ("configurationDone", Value::Null),
        ("threads", Value::Null),
        ("continue", thread()),
        ("stackTrace", thread()),
        ("scopes", json!({ "frameId": 1 })),
        ("variables", json!({ "variablesReference": 1 })),
        ("continue", thread()),
        ("stackTrace", thread()),
        ("stepBack", json!({ "threadId": 1, "granularity": "instruction" })),
        ("reverseContinue", thread()),
        ("stackTrace", thread()),
        ("evaluate", json!({ "expression": "*(u64 *)(r10 - 0x20)" })),
        ("evaluate", json!({ "expression": "x" })),
        ("readMemory", Value::Null),
        ("disconnect", Value::Null),
        ("threads", Value::Null),
    ]);
    let verified = |command: &str| -> Vec<bool> {
        let set = answers(&messages, command)[0]["body"]["breakpoints"].as_array().unwrap();
        set.iter().map(|set| set["verified"].as_bool().unwrap()).collect()
    };
    assert_eq!(
        (verified("setBreakpoints"), verified("setFunctionBreakpoints")),
        (vec![true, false], vec![true, false])
    );
    let stops: Vec<&Value> = messages.iter().filter(|message| message["event"] == "stopped").collect();
    let reasons: Vec<&str> = stops.iter().map(|stop| stop["body"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["entry", "breakpoint", "breakpoint", "step", "breakpoint"]);
    let traces = answers(&messages, "stackTrace");
    let frame = |at: usize| &traces[at]["body"]["stackFrames"][0];
    assert_eq!(frame(0)["line"], seen);
    assert_eq!(frame(0)["name"], "firewall");
    let source = root().join("examples/firewall.bpf.c").canonicalize().unwrap();
    assert_eq!(frame(0)["source"]["path"], source.to_str().unwrap());
    assert_ne!(frame(1)["line"], seen);
    assert_eq!(frame(2), frame(0), "backwards to where it was");
    let registers = answers(&messages, "variables")[0]["body"]["variables"].as_array().unwrap();
    assert_eq!((registers.len(), &registers[10]["name"]), (11, &"r10".into()));
    let evaluated = answers(&messages, "evaluate");
    assert_eq!((&evaluated[0]["success"], &evaluated[1]["success"]), (&true.into(), &false.into()));
    assert_eq!(answers(&messages, "readMemory")[0]["success"], false);
    assert_eq!(answers(&messages, "threads").len(), 1, "nothing after disconnect");
    let numbers: Vec<u64> = messages.iter().map(|message| message["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=messages.len() as u64).collect::<Vec<_>>());
}

#[test]
fn an_editor_is_told_what_it_cannot_debug_and_how_a_run_ends() {
    let nothing = json!({ "object": "/nonexistent.o", "packet": "eth()" });
    let messages = adapter(&[("threads", Value::Null), ("launch", nothing), ("disconnect", Value::Null)]);
    assert_eq!(messages[0]["message"], "there is no run yet: send launch first");
    assert!(messages[1]["message"].as_str().unwrap().contains("/nonexistent.o"), "{messages:?}");
    let to_the_end = [("configurationDone", Value::Null), ("continue", json!({})), ("continue", json!({}))];
    let messages = launched(&to_the_end);
    let last: Vec<&Value> = messages.iter().rev().take(3).collect();
    assert_eq!(last[0]["event"], "terminated");
    assert_eq!(last[2]["body"]["description"], "the run ends with drop (1)");
}

#[test]
fn malformed_messages_end_the_adapter_with_the_reason() {
    for (bytes, reason) in [
        ("Content-Length: 99999999999\r\n\r\n", "its length is no number up to 16 MiB"),
        ("Content-Length: x\r\n\r\n", "its length is no number"),
        ("Hello: 1\r\n\r\n", "no Content-Length"),
        ("Content-Length: 3\r\n\r\nabc", "expected"),
        ("Content-Length: 3", "its header has no end"),
        ("Content-Length: 30\r\n\r\n{}", "fill"),
    ] {
        let mut child = command()
            .arg("dap")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes.as_bytes()).unwrap();
        from_output(&child.wait_with_output().unwrap()).refused(1, &[reason]);
    }
}
