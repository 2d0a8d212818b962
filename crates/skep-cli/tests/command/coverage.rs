//! `skep test` with coverage: counts of lines and branches, and the files that other tools read.

use crate::{Scratch, root, skep};
use serde_json::Value;
use skep_testkit::skip;
use std::path::Path;
use std::process::Command;

/// The coverage of the examples' tests.
fn examples(more: &[&str]) -> Value {
    let report = skep(&[&["test", "examples/tests", "--json", "--coverage"], more].concat()).json();
    assert_eq!(report["failed"], 0, "{report}");
    report["coverage"].clone()
}

/// A line of a source, by its text.
fn line<'a>(coverage: &'a Value, file: &str, text: &str) -> &'a Value {
    let source = std::fs::read_to_string(root().join(file)).unwrap();
    let number = source.lines().position(|line| line.contains(text)).expect("the line is there") + 1;
    let files = coverage["files"].as_array().unwrap();
    let found = files
        .iter()
        .find(|known| known["file"].as_str().unwrap().ends_with(file))
        .expect("the file is covered");
    let counts = found["counts"].as_array().unwrap();
    counts.iter().find(|line| line["line"] == number).expect("the line has code")
}

#[test]
fn a_line_counts_as_often_as_tests_execute_it() {
    let folder = Scratch::folder("covered");
    let table = Path::new(folder.path()).join("two.test.toml");
    let object = root().join("examples/firewall.bpf.o").canonicalize().unwrap();
    let text = format!(
        "object = {object:?}\n\
         [[test]]\nname = 'dropped'\npacket = 'eth()/ip4()/tcp(dport=23)'\nexpect.verdict = 'drop'\n\
         [[test]]\nname = 'passed'\npacket = 'eth()/ip4()/tcp(dport=80)'\nrepeat = 4\nexpect.verdict = 'pass'\n"
    );
    std::fs::write(&table, text).unwrap();
    let report = skep(&["test", folder.path(), "--json", "--coverage"]).json();
    let seen = line(&report["coverage"], "examples/firewall.bpf.c", "__sync_fetch_and_add(&frames_seen, 1)");
    assert_eq!(seen["executions"], 5, "one run, and four");
    assert_eq!(seen["tests"].as_array().unwrap().len(), 2);
    let counts = report["coverage"]["files"][0]["counts"].as_array().unwrap();
    let missed: Vec<_> = counts.iter().filter(|line| line["executions"] == 0).collect();
    assert!(!missed.is_empty() && missed.iter().all(|line| line["tests"] == serde_json::json!([])));
}

#[test]
fn the_interpreter_counts_what_compiled_code_does() {
    let (compiled, interpreted) = (examples(&[]), examples(&["--interp", "--jobs", "1"]));
    assert_eq!(compiled, interpreted);
    assert!(compiled["lines"]["covered"].as_u64().unwrap() > 200, "{}", compiled["lines"]);
    assert!(compiled["branches"]["covered"].as_u64().unwrap() > 200, "{}", compiled["branches"]);
}

#[test]
fn all_formats_say_the_same() {
    let folder = Scratch::folder("formats");
    let path = |name: &str| Path::new(folder.path()).join(name).to_str().unwrap().to_owned();
    let (lcov, xml, html) = (path("lcov.info"), path("cobertura.xml"), path("pages"));
    let coverage = examples(&["--lcov", &lcov, "--cobertura", &xml, "--html", &html]);
    let number = |of: &str, which: &str| coverage[of][which].as_u64().unwrap();

    let tracefile = std::fs::read_to_string(&lcov).unwrap();
    let sum = |key: &str| -> u64 {
        tracefile.lines().filter_map(|line| line.strip_prefix(key)).map(|n| n.parse::<u64>().unwrap()).sum()
    };
    assert_eq!((sum("LH:"), sum("LF:")), (number("lines", "covered"), number("lines", "all")));
    assert_eq!((sum("BRH:"), sum("BRF:")), (number("branches", "covered"), number("branches", "all")));

    let text = std::fs::read_to_string(&xml).unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&text, options).unwrap();
    let of = |key| document.root_element().attribute(key).unwrap().parse::<u64>().unwrap();
    assert_eq!(
        (of("lines-covered"), of("lines-valid")),
        (number("lines", "covered"), number("lines", "all"))
    );
    let hit =
        |line: &roxmltree::Node<'_, '_>| line.has_tag_name("line") && line.attribute("hits") != Some("0");
    assert_eq!(document.descendants().filter(hit).count() as u64, number("lines", "covered"));

    let shown = format!("({}/{})", number("lines", "covered"), number("lines", "all"));
    let index = std::fs::read_to_string(Path::new(&html).join("index.html")).unwrap();
    assert!(index.contains(&shown) && !index.contains("<script"), "{index}");

    let mut genhtml = Command::new("genhtml");
    genhtml.args(["--branch-coverage", "--output-directory", &path("genhtml"), &lcov]);
    match genhtml.current_dir(root()).output() {
        Err(error) => skip("reading a tracefile with lcov", &format!("genhtml: {error}")),
        Ok(said) => {
            let text = String::from_utf8_lossy(&said.stdout);
            let wanted = format!("({} of {} lines)", number("lines", "covered"), number("lines", "all"));
            assert!(
                said.status.success() && text.contains(&wanted),
                "{text}{}",
                String::from_utf8_lossy(&said.stderr)
            );
        }
    }
}

#[test]
fn a_page_of_a_source_has_counts_tests_and_instructions() {
    let folder = Scratch::folder("source-page");
    examples(&["--html", folder.path()]);
    let pages = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let page =
        pages.into_iter().find(|path| path.to_string_lossy().ends_with("firewall.bpf.c.html")).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    for part in [
        "class=\"hit\"",
        "class=\"partly\"",
        "Executed by ",
        "port 23 of tcp is drop",
        "In firewall of firewall.bpf.o, as verified, what holds behind each instruction, and its machine code:",
        "default-src 'none'",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script"));
}

#[test]
fn a_page_of_a_source_has_the_ranges_that_the_verifier_s_log_has() {
    let folder = Scratch::folder("proved");
    examples(&["--html", folder.path()]);
    let pages = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let page =
        pages.into_iter().find(|path| path.to_string_lossy().ends_with("firewall.bpf.c.html")).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    let said = skep(&["verify", "examples/firewall.bpf.o", "--log"]);
    let range = said.out.lines().find(|line| line.contains(": (") && line.contains("R0_w=scalar(smin="));
    let range = range.and_then(|line| line.split_once("; ")).expect("a number of a range in the log").1;
    let shown = range.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    assert!(page.contains(&shown), "{shown} is not on the page");
    assert!(page.contains("class=\"proved\""));
}
