//! What `skep verify --json` says.

use crate::{Said, object, skep};
use serde_json::Value;

/// The document of a command that ended with that status.
#[track_caller]
fn document(said: &Said, status: i32) -> Value {
    assert_eq!(said.status, Some(status), "{}", said.err);
    serde_json::from_str(&said.out).expect("one JSON document and nothing else")
}

/// What every verdict has.
#[track_caller]
fn has_what_all_have(verdict: &Value) {
    assert!(verdict["program"].is_string(), "{verdict}");
    assert!(verdict["walked"].as_u64().unwrap() > 0, "{verdict}");
    assert!(verdict["peak_states"].is_u64(), "{verdict}");
    let us = verdict["us"].as_f64().unwrap();
    assert!(us > 0.0 && us < 60e6, "{verdict}");
}

#[test]
fn a_refusal_of_an_object_with_line_information_has_every_field() {
    let verdict = document(&skep(&["verify", &object("endless"), "--json"]), 1);
    has_what_all_have(&verdict);
    assert_eq!((&verdict["verdict"], &verdict["code"]), (&"refused".into(), &"loop".into()));
    assert!(verdict["insn"].is_u64(), "{verdict}");
    assert!(verdict["file"].as_str().unwrap().ends_with("endless.bpf.c"), "{verdict}");
    assert!((9..=14).contains(&verdict["line"].as_u64().unwrap()), "{verdict}");
    for text in ["text", "source", "reason", "suggestion"] {
        assert!(!verdict[text].as_str().unwrap().is_empty(), "{text}: {verdict}");
    }
    assert!(verdict["peak_states"].as_u64().unwrap() > 0, "a loop is remembered: {verdict}");
    let path = verdict["path"].as_array().unwrap();
    assert!(!path.is_empty(), "{verdict}");
    for step in path {
        assert!(step["insn"].is_u64() && !step["text"].as_str().unwrap().is_empty(), "{step}");
    }
    assert!(verdict.get("tag").is_none(), "{verdict}");
}

#[test]
fn a_refusal_without_a_branch_before_it_has_an_empty_path() {
    let verdict = document(&skep(&["verify", &object("missing_null_check"), "--json"]), 1);
    has_what_all_have(&verdict);
    assert_eq!(verdict["code"], "maybe-null");
    assert_eq!(verdict["path"], serde_json::json!([]));
}

#[test]
fn what_is_accepted_has_a_tag_and_nothing_of_a_refusal() {
    let verdict = document(&skep(&["verify", "examples/firewall.bpf.o", "--json"]), 0);
    has_what_all_have(&verdict);
    assert_eq!(verdict["verdict"], "accepted");
    let tag = verdict["tag"].as_str().unwrap();
    assert!(tag.len() == 16 && tag.bytes().all(|byte| byte.is_ascii_hexdigit()), "{verdict}");
    assert!(verdict["peak_states"].as_u64().unwrap() > 0, "{verdict}");
    for absent in ["code", "insn", "text", "file", "line", "source", "reason", "suggestion", "path"] {
        assert!(verdict.get(absent).is_none(), "{absent}: {verdict}");
    }
}

#[test]
fn several_programs_are_a_list_refused_ones_among_accepted() {
    let verdicts = document(&skep(&["verify", &object("unchecked_packet"), "--json"]), 1);
    let verdicts = verdicts.as_array().unwrap();
    for verdict in verdicts {
        has_what_all_have(verdict);
        assert_eq!(verdict.get("code").is_some(), verdict["verdict"] == "refused", "{verdict}");
        assert_eq!(verdict["path"].is_array(), verdict["verdict"] == "refused", "{verdict}");
    }
    let of = |name: &str| verdicts.iter().find(|verdict| verdict["program"] == name).unwrap();
    assert_eq!((&of("hasty")["verdict"], &of("patient")["verdict"]), (&"refused".into(), &"accepted".into()));
}
