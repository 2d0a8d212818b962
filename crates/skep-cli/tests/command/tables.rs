//! `skep test`: tables and checks in C.

use crate::{Scratch, command, object, root, skep};
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// A table about the firewall, and its file.
fn table(name: &str, tests: &str) -> (Scratch, String) {
    let object = root().join("examples/firewall.bpf.o").canonicalize().unwrap();
    let text = format!("object = {object:?}\nprogram = \"firewall\"\n{tests}");
    let scratch = Scratch::new(&format!("{name}.test.toml"), text.as_bytes());
    (scratch, text)
}

#[test]
fn the_examples_keep_what_their_tests_promise() {
    let report = skep(&["test", "examples/tests", "--json"]).json();
    assert_eq!((&report["failed"], &report["broken"], &report["skipped"]), (&0.into(), &0.into(), &0.into()));
    assert!(report["passed"].as_u64().unwrap() >= 53, "{report}");
    let interpreted = skep(&["test", "examples/tests", "--interp", "--jobs", "1", "--json"]).json();
    assert_eq!(interpreted["passed"], report["passed"]);
}

#[cfg(feature = "kernel")]
#[test]
fn what_the_kernel_cannot_run_is_skipped_with_the_reason() {
    for (test, reason) in [
        ("seed = 7", "the kernel's random numbers have no seed"),
        ("clock = '5s'", "the kernel's clock cannot be set"),
        ("after = '1s'", "the kernel's clock cannot be set"),
        ("expect.printed = []", "printed lines go to the machine's trace"),
        ("expect.redirect = 'device 3'", "does not tell where a packet goes"),
        ("metadata.rx_queue_index = 3", "a test run of the kernel has no rx_queue_index"),
        ("world = {}", "the kernel has no world"),
        ("hex = '00'", "the kernel runs no program on fewer than 14 bytes"),
    ] {
        let packet = if test.starts_with("hex") { "" } else { "packet = 'eth()'\n" };
        let (file, _) = table("kernel", &format!("[[test]]\nname = 'x'\n{packet}{test}\n"));
        let report = skep(&["test", file.path(), "--kernel", "--json"]).json();
        assert_eq!(report["tests"][0]["outcome"], "skipped", "{test}: {report}");
        assert!(report["tests"][0]["reason"].as_str().unwrap().contains(reason), "{test}: {report}");
    }
    let report = skep(&["test", "examples/tests/firewall_checks.bpf.o", "--kernel", "--json"]).json();
    assert_eq!((&report["skipped"], &report["passed"]), (&2.into(), &0.into()), "{report}");
}

#[cfg(not(feature = "kernel"))]
#[test]
fn a_command_without_libbpf_says_how_to_build_one_for_the_kernel() {
    skep(&["test", "examples/tests", "--kernel"]).refused(2, &["--features kernel", "libelf"]);
}

#[test]
fn watching_runs_tests_again_that_came_later_in_a_new_folder() {
    let (file, text) = table("watched", "[[test]]\nname = 'first'\npacket = 'eth()'\n");
    let scratch = Scratch::folder("watched-folder");
    let folder = Path::new(scratch.path());
    std::fs::copy(file.path(), folder.join("first.test.toml")).unwrap();
    let mut command = command();
    command.args(["test", "--watch", scratch.path()]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        while !line.contains("passed") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended");
        }
        line
    };
    assert!(next().starts_with("1 passed"));
    std::fs::create_dir(folder.join("deeper")).unwrap();
    // Not a moment when half of it is there.
    std::fs::write(folder.join("second"), text.replace("first", "second")).unwrap();
    std::fs::rename(folder.join("second"), folder.join("deeper/second.test.toml")).unwrap();
    assert!(next().starts_with("2 passed"));
    std::fs::remove_file(folder.join("first.test.toml")).unwrap();
    assert!(next().starts_with("1 passed"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_failure_shows_expected_and_found() {
    let (file, _) = table(
        "failure",
        "[[test]]\nname = \"wrong\"\npacket = 'eth()/ip4()/tcp(dport=23)'\nexpect.verdict = \"pass\"\n\
         expect.packet = 'eth()/ip4(ttl=63)/tcp(dport=23)'\nexpect.variables.frames_seen = 2\n\
         expect.maps.verdicts = [{ key = 9, value = { packets = 2, bytes = 54 } }]\n",
    );
    let said = skep(&["test", file.path()]);
    said.refused(
        1,
        &[
            ".test.toml:3: wrong",
            "verdict: expected pass, found drop",
            "!    22  ip4.ttl       63                 64",
            "variable frames_seen: expected 2, found 1",
            "map verdicts, key 9",
            "! [0].packets  2         1",
            "0 passed, 1 failed",
        ],
    );
}

#[test]
fn a_wrong_table_is_an_error_with_its_line_and_remedy() {
    for (test, said) in [
        ("[[test]]\nname = 'x'\npaket = ''", ":5: unknown key \"paket\"; did you mean \"packet\"?"),
        (
            "[[test]]\nname = 'x'\npacket = 'eth()/ip5()'",
            ":5: packet: column 7: there is no layer ip5; did you mean ip4?",
        ),
        (
            "[[test]]\nname = 'x'\npacket = 'eth()'\nexpect.verdict = 'dorp'",
            "unknown verdict \"dorp\"; did you mean \"drop\"?",
        ),
        (
            "[[test]]\nname = 'x'\npacket = 'eth()'\nmaps.verdict = []",
            "unknown map \"verdict\"; did you mean \"verdicts\"?",
        ),
        (
            "[[test]]\nname = 'x'\npacket = 'eth()'\nvariables.frames_sent = 1",
            "unknown variable \"frames_sent\"; did you mean \"frames_seen\"?",
        ),
        (
            "[[test]]\nname = 'x'\npacket = 'eth()'\nmaps.blocked_services = [{ key = 1, value = 1 }]",
            "map blocked_services: [0].key",
        ),
        ("[[test]]\nname = 'x'\nprogram = 'fire'\npacket = 'eth()'", "unknown program \"fire\""),
        ("[[test]]\nname = 'x'", ":3: nothing to run on"),
        ("[[test]]\npacket = 'eth()'", "the test has no name"),
        ("[[test]]\nname = 'x'\npacket = 'eth()'\nhex = '00'", "packet is given too"),
        ("[[test]]\nname = 'x'\nafter = '1 hour'\npacket = 'eth()'", "is no time"),
        ("test = 1", "expected a list"),
        ("[[test]\n", ".test.toml"),
    ] {
        let (file, _) = table("refused", test);
        skep(&["test", file.path()]).refused(1, &[said, "broken"]);
    }
    skep(&["test", "docs"]).refused(2, &["docs has no tests"]);
    skep(&["test", "examples/tests", "--filter", "no such test"]).refused(2, &["no test has"]);
}

#[test]
fn blessing_writes_what_is_missing_or_wrong_and_keeps_the_rest() {
    let (file, text) = table(
        "bless",
        "# about all\n[[test]]\nname = \"a\" # its name\npacket = 'eth()/ip4()/tcp(dport=23)'\n\
         expect.verdict = \"pass\" # why\nexpect.variables = { frames_seen = 7 }\n\n\
         [[test]]\nname = \"b\"\npacket = 'eth()/arp()'\n",
    );
    let said = skep(&["test", file.path(), "--bless"]);
    assert_eq!(said.status, Some(0), "{}{}", said.out, said.err);
    let blessed = std::fs::read_to_string(file.path()).unwrap();
    let expected =
        text.replace("\"pass\" # why", "\"drop\" # why").replace("frames_seen = 7", "frames_seen = 1");
    assert!(blessed.starts_with(&expected), "{blessed}");
    assert!(
        blessed[expected.len()..].starts_with("expect = { verdict = \"pass\", maps = { verdicts = ["),
        "{blessed}"
    );
    assert_eq!(skep(&["test", file.path(), "--json"]).json()["passed"], 2);
    skep(&["test", file.path(), "--bless"]);
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), blessed, "nothing is left to write");
}

#[test]
fn checks_in_c_pass_fail_skip_and_break() {
    let checks = object("checks");
    let said = skep(&["test", &checks, "--json"]);
    assert_eq!(said.status, Some(1), "{}", said.err);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let outcome = |name: &str| {
        let tests = report["tests"].as_array().unwrap();
        tests.iter().find(|test| test["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    for (name, expected) in [
        ("passes", "passed"),
        ("fails", "failed"),
        ("skips", "skipped"),
        ("breaks", "broken"),
        ("parts", "failed"),
        ("sees_the_status", "passed"),
    ] {
        assert_eq!(outcome(name)["outcome"], expected, "{name}");
    }
    assert_eq!(outcome("fails")["printed"][0], "why it failed");
    assert_eq!(outcome("parts")["differences"][0]["found"], "part \"half\" failed");
}

#[test]
fn tests_are_listed_and_filtered() {
    let said = skep(&["test", "examples/tests", "--list", "--filter", "telnet"]);
    assert_eq!(
        (said.status, said.out.as_str()),
        (Some(0), "examples/tests/firewall_checks.bpf.o: telnet_is_dropped\n")
    );
    assert_eq!(skep(&["test", "examples/tests", "--filter", "flows", "--json"]).json()["passed"], 6);
}

#[test]
fn reports_of_junit_are_xml_with_a_case_for_each_test() {
    let (file, _) = table(
        "junit",
        "[[test]]\nname = \"<good> & \\\"fine\\\"\"\npacket = 'eth()'\n\
         [[test]]\nname = \"bad\"\npacket = 'eth()'\nexpect.verdict = 'tx'\n",
    );
    let out = Scratch::new("junit.xml", b"");
    skep(&["test", file.path(), "--junit", out.path()]).refused(1, &["1 passed, 1 failed"]);
    let text = std::fs::read_to_string(out.path()).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let cases: Vec<_> = document.descendants().filter(|node| node.has_tag_name("testcase")).collect();
    let names: Vec<_> = cases.iter().map(|case| case.attribute("name").unwrap()).collect();
    assert_eq!(names, ["<good> & \"fine\"", "bad"]);
    let failure = cases[1].children().find(|node| node.has_tag_name("failure")).unwrap();
    assert!(failure.text().unwrap().contains("expected tx, found pass"));
    let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
    assert_eq!((suite.attribute("tests"), suite.attribute("failures")), (Some("2"), Some("1")));
}

#[test]
fn tests_share_nothing() {
    let mut tests = String::new();
    for number in 0..200 {
        let port = if number % 2 == 0 { 23 } else { 80 };
        let verdict = if number % 2 == 0 { "drop" } else { "pass" };
        let _ = write!(
            tests,
            "[[test]]\nname = \"{number}\"\npacket = 'eth()/ip4()/tcp(dport={port})'\nrepeat = 2\n\
             expect = {{ verdict = \"{verdict}\", variables = {{ frames_seen = 2 }} }}\n"
        );
    }
    let (file, _) = table("many", &tests);
    let report = skep(&["test", file.path(), "--jobs", "4", "--json"]).json();
    assert_eq!(report["passed"], 200);
    let names: Vec<_> = report["tests"].as_array().unwrap().iter().map(|test| test["name"].clone()).collect();
    assert_eq!(names, (0..200).map(|number| number.to_string()).collect::<Vec<_>>(), "in the file's order");
}

/// A table about a classifier that prints, gives records, marks and redirects.
fn effects(name: &str, expect: &str) -> (Scratch, String) {
    let object = root().join(object("effects")).canonicalize().unwrap();
    let text = format!(
        "object = {object:?}\nseed = 7\nclock = \"2s\"\n[[test]]\nname = \"all\"\n\
         packet = 'eth()/ip4()/udp()'\nmetadata = {{ mark = 4 }}\n[test.expect]\n{expect}"
    );
    (Scratch::new(&format!("{name}.test.toml"), text.as_bytes()), text)
}

const EFFECTS: &str = r#"
verdict = "redirect"
redirect = "device 3"
printed = ["length 42"]
metadata = { mark = 5 }
variables = { random_number = 1674306020 }
events = [
    { map = "events", type = "struct event", value = { time = 2000000000, len = 42, color = "GREEN", name = "green" } },
    { map = "samples", value = 4 },
]
maps = { queue = [{ value = 42 }], table = { only = [{ key = 42, value = { color = 5 } }], absent = [7], len = 1 } }
"#;

#[test]
fn all_that_a_program_does_can_be_expected() {
    let (file, _) = effects("effects", EFFECTS);
    assert_eq!(skep(&["test", file.path(), "--json"]).json()["passed"], 1);
}

#[test]
fn each_expectation_fails_alone() {
    for (right, wrong, said) in [
        ("\"redirect\"\n", "\"ok\"\n", "verdict: expected ok, found redirect"),
        ("device 3", "device 4", "redirection: expected \"device 4\", found \"device 3\""),
        ("length 42", "length 41", "printed line 1: expected \"length 41\", found \"length 42\""),
        ("[\"length 42\"]", "[]", "printed line 1: expected nothing"),
        ("mark = 5", "mark = 6", "mark: expected 6, found 5"),
        ("1674306020", "1", "variable random_number: expected 1, found 1674306020"),
        ("time = 2000000000", "time = 1", "! time   1         2000000000"),
        ("\"GREEN\"", "\"RED\"", "! color  \"RED\"       \"GREEN\""),
        ("value = 4 }", "value = 5 }", "event 2: expected 5, found 4"),
        ("    { map = \"samples\", value = 4 },\n", "", "event 2: expected nothing"),
        (
            "{ value = 42 }",
            "{ value = 42 }, { value = 1 }",
            "map queue, element 1: expected 1, found nothing",
        ),
        ("[{ value = 42 }]", "[]", "map queue, element 0: expected nothing, found 42"),
        ("color = 5", "color = 0", "map table, key 42"),
        ("absent = [7]", "absent = [42]", "map table, key 42: expected nothing"),
        ("len = 1 }", "len = 2 }", "map table, number of elements: expected 2, found 1"),
        ("only = [{ key = 42, value = { color = 5 } }]", "only = []", "map table, key 42: expected nothing"),
    ] {
        assert!(EFFECTS.contains(right), "{right}");
        let (file, _) = effects("effect", &EFFECTS.replacen(right, wrong, 1));
        skep(&["test", file.path()]).refused(1, &[said, "0 passed, 1 failed in"]);
    }
}
