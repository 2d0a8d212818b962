//! Output of `skep verify --json`.

use crate::{Said, command, from_output, object, skep};
use serde_json::Value;

/// The verdicts of a command that ended with that status.
#[track_caller]
fn verdicts(said: &Said, status: i32) -> Vec<Value> {
    assert_eq!(said.status, Some(status), "{}", said.err);
    serde_json::from_str(&said.out).expect("one list and nothing else")
}

/// The only verdict of a command that ended with that status.
#[track_caller]
fn document(said: &Said, status: i32) -> Value {
    let verdicts = verdicts(said, status);
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    verdicts.into_iter().next().unwrap()
}

/// The fields of every verdict.
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
fn a_path_gives_value_place_and_reason_of_each_step() {
    let verdict = document(&skep(&["verify", &object("missing_null_check"), "--json"]), 1);
    has_what_all_have(&verdict);
    assert_eq!(verdict["code"], "maybe-null");
    let path = verdict["path"].as_array().unwrap();
    assert_eq!(path.len(), 1, "only the look-up made the pointer: {verdict}");
    let step = &path[0];
    assert_eq!(step["why"], "makes");
    let state = step["state"].as_str().unwrap();
    assert!(
        state.starts_with("r0 = map_value_or_null(") && state.contains("map=counters,ks=4,vs=8"),
        "{step}"
    );
    assert!(step["file"].as_str().unwrap().ends_with("missing_null_check.bpf.c"), "{step}");
    assert!(step["line"].as_u64().unwrap() < verdict["line"].as_u64().unwrap(), "{verdict}");
    assert!(step["source"].as_str().unwrap().contains("bpf_map_lookup_elem"), "{step}");
}

#[test]
fn unreadable_or_unlinkable_objects_give_one_document() {
    for (object, code, word) in [
        ("no/such/file.bpf.o".to_owned(), "object", "no/such/file.bpf.o"),
        (env!("CARGO_BIN_EXE_skep").to_owned(), "object", "BPF"),
        (object("unknown_map_kind"), "object", "9999"),
        (object("unresolved_symbol"), "link", "defined_elsewhere"),
        (object("unknown_section"), "link", "no_such_hook"),
    ] {
        let verdict = document(&skep(&["verify", &object, "--json"]), 1);
        assert_eq!((&verdict["verdict"], &verdict["code"]), (&"refused".into(), &code.into()), "{verdict}");
        assert!(verdict["reason"].as_str().unwrap().contains(word), "{verdict}");
        assert_eq!(verdict["path"], serde_json::json!([]));
        assert_eq!((&verdict["walked"], &verdict["peak_states"]), (&0.into(), &0.into()));
    }
    let said = skep(&["verify", "examples/firewall.bpf.o", "--prog", "nobody", "--json"]);
    assert!(document(&said, 1)["reason"].as_str().unwrap().contains("nobody"));
}

#[test]
fn facts_are_listed_on_request() {
    let verdict = document(&skep(&["verify", "examples/firewall.bpf.o", "--json", "--facts"]), 0);
    let facts = verdict["facts"].as_array().unwrap();
    let some = |name: &str| facts.iter().any(|fact| !fact[name].is_null());
    assert!(some("rewritten") && some("map") && some("without_extension"), "{verdict}");
    let said = skep(&["verify", "examples/firewall.bpf.o", "--facts"]);
    assert_eq!(said.status, Some(0));
    assert!(said.out.contains("; was r") && said.out.contains("always map"), "{}", said.out);
    let without = document(&skep(&["verify", "examples/firewall.bpf.o", "--json"]), 0);
    assert!(without.get("facts").is_none(), "{without}");
}

#[test]
fn the_log_never_mixes_with_the_document() {
    let said = skep(&["verify", &object("missing_null_check"), "--log"]);
    said.refused(
        1,
        &["0: R1=ctx() R10=fp0", "(85) call bpf_map_lookup_elem#1", "processed ", "refused at instruction"],
    );
    let json = skep(&["verify", "examples/hello.bpf.o", "--log", "--json"]);
    document(&json, 0);
    assert!(json.err.contains("processed "), "{}", json.err);
}

#[test]
fn text_verdicts_are_one_line_without_colours_in_files() {
    let said = skep(&["verify", "examples/firewall.bpf.o"]);
    assert_eq!(said.status, Some(0));
    assert_eq!(said.out.lines().count(), 1, "{}", said.out);
    assert!(said.out.starts_with("firewall: accepted (xdp, "), "{}", said.out);
    let refused = skep(&["verify", &object("unchecked_packet"), "--prog", "hasty"]);
    assert_eq!(refused.status, Some(1));
    assert!(refused.out.starts_with("program hasty refused at instruction "), "{}", refused.out);
    assert!(!said.out.contains('\u{1b}') && !refused.out.contains('\u{1b}'));
}

#[test]
fn aligned_programs_pass_strict_alignment() {
    let verdict = document(&skep(&["verify", "examples/firewall.bpf.o", "--strict-alignment", "--json"]), 0);
    assert_eq!(verdict["verdict"], "accepted");
}

#[test]
fn accepted_programs_have_a_tag_and_no_refusal_fields() {
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
fn several_programs_give_a_list_of_verdicts() {
    let verdicts = verdicts(&skep(&["verify", &object("unchecked_packet"), "--json"]), 1);
    for verdict in &verdicts {
        has_what_all_have(verdict);
        assert_eq!(verdict.get("code").is_some(), verdict["verdict"] == "refused", "{verdict}");
        assert_eq!(verdict["path"].is_array(), verdict["verdict"] == "refused", "{verdict}");
    }
    let of = |name: &str| verdicts.iter().find(|verdict| verdict["program"] == name).unwrap();
    assert_eq!((&of("hasty")["verdict"], &of("patient")["verdict"]), (&"refused".into(), &"accepted".into()));
}

#[test]
fn several_objects_are_verified_in_turn_and_named() {
    let missing = "no/such/file.bpf.o";
    let endless = object("endless");
    let arguments = ["verify", "examples/hello.bpf.o", missing, &endless, "--json"];
    let found = verdicts(&skep(&arguments), 1);
    let summary: Vec<_> =
        found.iter().map(|it| (it["object"].as_str().unwrap(), it["code"].as_str())).collect();
    assert_eq!(
        summary,
        [("examples/hello.bpf.o", None), (missing, Some("object")), (endless.as_str(), Some("loop"))]
    );
    let said = skep(&["verify", "examples/hello.bpf.o", "examples/raw.bpf.o"]);
    assert_eq!(said.status, Some(0));
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!((lines[0], lines[2]), ("examples/hello.bpf.o", "examples/raw.bpf.o"), "{}", said.out);
    // What cannot be read is named on standard error, and the others are verified.
    let said = skep(&["verify", missing, "examples/hello.bpf.o"]);
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains(missing) && said.out.contains("hello: accepted"), "{}{}", said.out, said.err);
}

#[test]
fn an_object_may_come_from_standard_input() {
    let file = std::fs::File::open(crate::root().join("examples/hello.bpf.o")).unwrap();
    let said = from_output(&command().args(["verify", "-", "--json"]).stdin(file).output().unwrap());
    assert_eq!(document(&said, 0)["program"], "hello");
    skep(&["run", "-", "--pcap", "-"]).refused(2, &["standard input", "not both"]);
}

/// The committed part of a kernel's types.
const TYPES: &str = "crates/skep-verifier/verdicts/linux.btf";
/// Programs that refer to a kernel's structures, values and symbols.
const FOR_A_KERNEL: &str = "crates/skep-elf/tests/objects/system.bpf.o";

#[test]
fn kernel_programs_are_verified_with_the_given_types() {
    let verify =
        |name: &str, types: &str| skep(&["verify", FOR_A_KERNEL, "--prog", name, "--btf", types, "--json"]);
    for name in ["chooses", "execve", "values"] {
        let found = document(&verify(name, TYPES), 0);
        assert_eq!(found["verdict"], "accepted", "{name}: {found}");
    }
    let refused = document(&verify("symbols", TYPES), 1);
    assert!(refused["reason"].as_str().unwrap().contains("percpu_ptr_rq"), "{refused}");
    // The other host's types do not have that value.
    let lacking = document(&verify("values", "crates/skep-verifier/tests/data/host.btf"), 1);
    let reason = lacking["reason"].as_str().unwrap();
    assert!(reason.contains("CO-RE"), "{reason}");
}

#[test]
fn unusable_companion_files_are_named() {
    let verify = |option, file| skep(&["verify", FOR_A_KERNEL, option, file]);
    verify("--btf", "README.md").refused(1, &["README.md", "raw BTF"]);
    verify("--btf", "no/such/file.btf").refused(1, &["no/such/file.btf"]);
    verify("--kconfig", "no/such/config").refused(1, &["no/such/config"]);
    let found = document(&skep(&["verify", FOR_A_KERNEL, "--btf", "README.md", "--json"]), 1);
    assert_eq!((&found["code"], &found["program"]), (&Value::from("object"), &Value::Null));
    skep(&["verify", "README.md"]).refused(1, &["README.md", "ELF"]);
}

#[test]
fn a_release_is_numbers() {
    let verify = |release| skep(&["verify", "examples/hello.bpf.o", "--kernel", release]);
    for release in ["6.12", "6.12.95", "6.18.0-rc3+deb14-amd64"] {
        assert_eq!(verify(release).status, Some(0), "{release}");
    }
    for release in ["new", "6", "6.x", ""] {
        verify(release).refused(2, &["--kernel", "6.12.0"]);
    }
}
