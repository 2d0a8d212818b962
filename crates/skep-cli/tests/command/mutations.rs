//! `skep mutate`: changes that tests notice, and those that they do not.

use crate::{Scratch, root, skep};
use serde_json::Value;

const FLOWS: &str = "examples/flows.bpf.o";
const FIREWALL: &str = "examples/firewall.bpf.o";

/// A table of tests of an object of the examples.
fn table(name: &str, object: &str, tests: &str) -> Scratch {
    let object = root().join(object).canonicalize().unwrap();
    Scratch::new(&format!("{name}.test.toml"), format!("object = {object:?}\n{tests}").as_bytes())
}

fn changes(report: &Value) -> &[Value] {
    report.as_array().or_else(|| report["changes"].as_array()).expect("a list of changes")
}

#[test]
fn tests_that_expect_nothing_notice_nothing_but_a_run_that_breaks() {
    let tests = table("blind", FLOWS, "[[test]]\nname = 'runs'\npacket = 'eth()/ip4()/udp()'\n");
    let report = skep(&["mutate", FLOWS, "--tests", tests.path(), "--sample", "60", "--json"]).json();
    assert_eq!(changes(&report).len(), 60);
    assert_eq!(report["noticed"], 0, "{report:#}");
    assert!(report["survived"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report["refused"].as_u64().unwrap() > 0, "{report:#}");
}

#[test]
fn the_examples_tests_notice_changes_of_each_example() {
    for (object, tests, least) in
        [(FLOWS, "flows", "25"), (FIREWALL, "firewall", "25"), ("examples/balancer.bpf.o", "balancer", "25")]
    {
        let tests = format!("examples/tests/{tests}.test.toml");
        let report =
            skep(&["mutate", object, "--tests", &tests, "--sample", "120", "--at-least", least, "--json"])
                .json();
        let noticed = changes(&report).iter().find(|change| change["fate"] == "noticed").unwrap();
        assert_eq!(noticed["noticed_by"]["file"], tests, "{noticed}");
        assert!(noticed["line"].as_u64() > Some(0), "{noticed}");
    }
}

#[test]
fn a_change_is_noticed_by_the_test_that_depends_on_it() {
    let tests = "[[test]]\nname = 'telnet'\npacket = 'eth()/ip4()/tcp(dport=23)'\n";
    let expecting = table("expecting", FIREWALL, &format!("{tests}expect.variables.frames_seen = 1\n"));
    let blind = table("not-expecting", FIREWALL, &format!("{tests}expect.verdict = 'drop'\n"));
    let list = skep(&["mutate", FIREWALL, "--list", "--json"]).json();
    let counts = |change: &&Value| {
        change["text"].as_str().unwrap().contains("frames_seen") && change["change"] == "store removed"
    };
    let change = changes(&list).iter().find(counts).expect("the firewall counts frames");
    let number = change["number"].to_string();
    let fate = |tests: &Scratch| {
        let said = skep(&["mutate", FIREWALL, "--tests", tests.path(), "--only", &number, "--json"]).json();
        changes(&said)[0]["fate"].clone()
    };
    assert_eq!(fate(&expecting), "noticed");
    assert_eq!(fate(&blind), "survived");

    // The written object behaves as the mutant did.
    let written = std::env::temp_dir().join(format!("skep-command-{}-mutant.o", std::process::id()));
    let written = Scratch(written);
    let said = skep(&["mutate", FIREWALL, "--only", &number, "--write", written.path()]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let original = std::fs::read(root().join(FIREWALL)).unwrap();
    let mutant = std::fs::read(&written.0).unwrap();
    let differing: Vec<usize> =
        (0..original.len()).filter(|&at| original.get(at) != mutant.get(at)).collect();
    assert_eq!(original.len(), mutant.len());
    assert!(!differing.is_empty() && differing.last().unwrap() - differing[0] < 8, "{differing:?}");
    let text =
        format!("object = {:?}\nprogram = 'firewall'\n{tests}expect.variables.frames_seen = 0\n", written.0);
    let alone = Scratch::new("alone.test.toml", text.as_bytes());
    assert_eq!(skep(&["test", alone.path(), "--json"]).json()["passed"], 1);
}

#[test]
fn the_same_changes_have_the_same_numbers_and_fates_on_any_number_of_threads() {
    let run = |jobs: &str| {
        let tests = "examples/tests/flows.test.toml";
        skep(&["mutate", FLOWS, "--tests", tests, "--sample", "25", "--jobs", jobs, "--json"]).json()
    };
    assert_eq!(run("1"), run("3"));
}

#[test]
fn wrong_usage_and_failing_tests_are_errors_with_a_remedy() {
    let failing = table(
        "failing",
        FLOWS,
        "[[test]]\nname = 'wrong'\npacket = 'eth()/ip4()/udp()'\nexpect.maps.flows = { len = 7 }\n",
    );
    skep(&["mutate", FLOWS, "--tests", failing.path()])
        .refused(1, &["\"wrong\" does not pass on the unchanged object", "skep test"]);
    skep(&["mutate", FLOWS, "--tests", "examples/tests/firewall.test.toml"])
        .refused(2, &["none of these tests is of examples/flows.bpf.o"]);
    skep(&["mutate", FLOWS]).refused(2, &["--tests"]);
    skep(&["mutate", FLOWS, "--list", "--only", "1000000"]).refused(2, &["there is no change 1000000"]);
    skep(&["mutate", FLOWS, "--list", "--only", "0"]).refused(2, &["numbered 1 to"]);
    skep(&["mutate", FLOWS, "--list", "--prog", "x"]).refused(2, &["no program \"x\"", "account_flows"]);
    skep(&["mutate", "README.md", "--list"]).refused(1, &["README.md"]);
    let tests = table("blind-too", FLOWS, "[[test]]\nname = 'runs'\npacket = 'eth()/ip4()/udp()'\n");
    skep(&["mutate", FLOWS, "--tests", tests.path(), "--sample", "30", "--at-least", "1"])
        .refused(1, &["0.0 % of the changes were noticed, fewer than 1 %", "no test notices"]);
}
