//! `skep verify --kernels`: its table, its documents, and what it says about bad input.

use crate::{Scratch, object, skep};
use serde_json::Value;

#[test]
fn a_table_says_for_each_kernel_what_stands_in_the_way() {
    let said = skep(&["verify", "--kernels", "5.10,6.1", "examples/flows.bpf.o", "examples/hello.bpf.o"]);
    assert_eq!(said.status, Some(1), "{}", said.err);
    let lines: Vec<&str> = said.out.lines().map(str::trim_end).collect();
    assert_eq!(lines[0], "examples/flows.bpf.o");
    assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["5.10", "6.1"]);
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["account_flows", "refused", "accepted"]);
    assert!(lines[3].starts_with("    5.10: an atomic operation"), "{}", said.out);
    assert!(lines[3].contains("came with Linux 5.12, at instruction "), "{}", said.out);
    assert!(lines[3].contains("(flows.bpf.c:"), "{}", said.out);
    assert!(said.out.ends_with("accepted     accepted\n"), "{}", said.out);
}

#[test]
fn accepted_by_all_is_success() {
    let said = skep(&["verify", "--kernels", "5.10,6.12", "examples/hello.bpf.o"]);
    assert_eq!(said.status, Some(0), "{}{}", said.out, said.err);
}

#[test]
fn the_json_document_has_a_verdict_for_each_program_and_kernel() {
    let said = skep(&["verify", "--kernels", "5.10,6.1", "--json", "examples/contacts.bpf.o"]);
    assert_eq!(said.status, Some(1));
    let document: Value = serde_json::from_str(&said.out).expect("one document");
    let program = &document[0]["programs"][0];
    assert_eq!(document[0]["object"], "examples/contacts.bpf.o");
    let kernels = program["kernels"].as_array().expect("a list");
    assert_eq!(kernels.len(), 2);
    assert_eq!((&kernels[0]["kernel"], &kernels[0]["verdict"]), (&"5.10".into(), &"refused".into()));
    assert_eq!((&kernels[0]["rule"], &kernels[0]["since"]), (&"map".into(), &"5.16".into()));
    assert_eq!(kernels[1]["verdict"], "accepted");
    assert!(kernels[1].get("reason").is_none());
}

#[test]
fn the_sarif_document_has_rules_results_and_lines() {
    let said = skep(&["verify", "--kernels", "5.10,6.1", "--sarif", "examples/flows.bpf.o"]);
    assert_eq!(said.status, Some(1));
    let document: Value = serde_json::from_str(&said.out).expect("one document");
    assert_eq!(document["version"], "2.1.0");
    let run = &document["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    let results = run["results"].as_array().expect("results");
    assert_eq!(results.len(), 1, "one program, one obstacle: {results:?}");
    let result = &results[0];
    assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]), "{result}");
    assert_eq!(
        (&result["level"], &result["properties"]["kernels"]),
        (&"error".into(), &Value::from(vec!["5.10"]))
    );
    let place = &result["locations"][0]["physicalLocation"];
    assert!(place["artifactLocation"]["uri"].as_str().expect("a uri").ends_with("flows.bpf.c"), "{place}");
    assert!(place["region"]["startLine"].as_u64().expect("a line") > 1, "{place}");
}

#[test]
fn a_refusal_of_the_verifier_holds_for_every_kernel() {
    let said = skep(&["verify", "--kernels", "5.15,6.6,6.18", &object("missing_null_check")]);
    said.refused(1, &["5.15, 6.6, 6.18: r0 may be null"]);
    assert!(!said.out.contains("accepted"), "{}", said.out);
}

#[test]
fn without_a_kernels_types_a_program_that_needs_them_is_not_certain() {
    let said = skep(&["verify", "--kernels", "6.12", "crates/skep/tests/objects/verdicts/tasks.bpf.o"]);
    assert!(said.out.contains("not certain"), "{}", said.out);
    assert!(said.out.contains("types"), "{}", said.out);
}

#[test]
fn kernels_that_are_not_known_and_types_that_belong_to_none_are_named() {
    let hello = "examples/hello.bpf.o";
    skep(&["verify", "--kernels", "4.2", hello]).refused(2, &["4.2", "5.10 to 5.19, 6.0 to 6.19"]);
    skep(&["verify", "--kernels", "6.x", hello]).refused(2, &["6.x", "such as 6.1"]);
    skep(&["verify", "--kernels", "6.1", "--btf", "x.btf", hello]).refused(2, &["--btf 6.1=x.btf"]);
    skep(&["verify", "--kernels", "6.1", "--btf", "6.6=x.btf", hello]).refused(2, &["6.6 is not among"]);
    skep(&["verify", "--kernels", "6.1", "--btf", "6.1=x.btf", hello]).refused(1, &["x.btf"]);
    skep(&["verify", "--kernels", "6.1", "nothing.o"]).refused(1, &["nothing.o", "not read"]);
    skep(&["verify", "--sarif", hello]).refused(2, &["--kernels"]);
}

/// An object with programs for functions and hooks of the kernel, and types that have them.
const FILES: &str = "crates/skep/tests/objects/verdicts/files.bpf.o";
const TYPES: &str = "6.12=crates/skep-verifier/verdicts/linux.btf";

/// The verdict on one program of that object for 6.12, and the first reason.
fn verdict_on(program: &str, options: &[&str]) -> (String, String) {
    let fixed = ["verify", "--kernels", "6.12", "--btf", TYPES, "--json", "--prog", program];
    let said = skep(&[&fixed, options, &[FILES]].concat());
    let document: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
    let cell = &document[0]["programs"][0]["kernels"][0];
    let text = |key: &str| cell[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("reason"))
}

#[test]
fn symbols_say_whether_a_build_kept_the_function_that_a_program_is_for() {
    let (verdict, reason) = verdict_on("reads", &[]);
    assert_eq!(verdict, "not certain");
    assert!(reason.contains("inlined or renamed vfs_read"), "{reason}");

    let kept = Scratch::new("kept.symbols", b"ffffffff81000000 T vfs_read\n");
    assert_eq!(verdict_on("reads", &["--symbols", &format!("6.12={}", kept.path())]).0, "accepted");

    let inlined = Scratch::new("inlined.symbols", b"ffffffff81000000 t vfs_read.part.0\n");
    let (verdict, reason) = verdict_on("reads", &["--symbols", &format!("6.12={}", inlined.path())]);
    assert_eq!(verdict, "refused");
    assert!(reason.contains("the given symbols have no vfs_read"), "{reason}");

    let none = Scratch::new("no.symbols", b"nothing\n");
    let option = format!("6.12={}", none.path());
    skep(&["verify", "--kernels", "6.12", "--symbols", &option, FILES])
        .refused(2, &["no symbols", "kallsyms"]);
    skep(&["verify", "--symbols", &option, FILES]).refused(2, &["--kernels"]);
}

#[test]
fn a_configuration_says_which_types_of_programs_there_are() {
    assert_eq!(verdict_on("guarded", &[]).0, "accepted");
    let with = Scratch::new("with.config", b"CONFIG_BPF_LSM=y\n");
    assert_eq!(verdict_on("guarded", &["--kconfig", &format!("6.12={}", with.path())]).0, "accepted");
    let without = Scratch::new("without.config", b"# CONFIG_BPF_LSM is not set\n");
    let (verdict, reason) = verdict_on("guarded", &["--kconfig", &format!("6.12={}", without.path())]);
    assert_eq!(verdict, "refused");
    assert!(reason.contains("CONFIG_BPF_LSM"), "{reason}");
}

#[test]
fn a_configuration_has_the_values_that_an_object_asks_for() {
    let path = object("configured");
    let said = skep(&["verify", "--kernels", "6.1,6.12", &path]);
    assert!(said.out.contains("not certain"), "{}", said.out);
    assert!(said.out.contains("CONFIG_HZ"), "{}", said.out);
    let config = Scratch::new("hz.config", b"CONFIG_HZ=250\n");
    let given = |release: &str| format!("{release}={}", config.path());
    let both = ["--kconfig", &given("6.1"), "--kconfig", &given("6.12")];
    let said = skep(&[&["verify", "--kernels", "6.1,6.12"], &both[..], &[&path]].concat());
    assert_eq!(said.status, Some(0), "{}{}", said.out, said.err);
    skep(&["verify", "--kconfig", "a", "--kconfig", "b", &path]).refused(2, &["--kconfig", "--kernels"]);
}

#[test]
fn types_of_modules_are_joined_with_those_of_their_kernel() {
    let hello = "examples/hello.bpf.o";
    // The second file of a release is a module's, and a kernel's types are none.
    let twice = ["verify", "--kernels", "6.12", "--btf", TYPES, "--btf", "6.12=README.md", hello];
    skep(&twice).refused(1, &["README.md"]);
}

#[test]
fn a_section_that_libbpf_does_not_know_needs_a_type() {
    let path = object("unknown_section");
    skep(&["verify", "--kernels", "6.1", &path]).refused(1, &["no section no_such_hook/here", "--type"]);
    let said = skep(&["verify", "--kernels", "6.1", "--type", "xdp", &path]);
    assert_eq!(said.status, Some(0), "{}{}", said.out, said.err);
}
