//! `skep pack show`: every byte of the packs, as text, picture and document.

use crate::{Said, Scratch, object, skep};
use serde_json::Value;

fn show(args: &[&str]) -> Said {
    skep(&[&["pack", "show"], args].concat())
}

fn packs(document: &Value) -> &[Value] {
    document["packs"].as_array().unwrap()
}

fn spans(document: &Value) -> impl Iterator<Item = &Value> {
    packs(document).iter().flat_map(|pack| pack["spans"].as_array().unwrap())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn bytes_of(document: &Value, state: &str) -> u64 {
    spans(document).filter(|span| span["state"] == state).map(|span| number(&span["bytes"])).sum()
}

/// Checks that the spans cover each pack without gaps and add up to the figures.
#[track_caller]
fn covers_its_packs(document: &Value) {
    assert_eq!(number(&document["pack_count"]), packs(document).len() as u64);
    for pack in packs(document) {
        assert!(pack["address"].as_str().unwrap().starts_with("0x"));
        assert_eq!(pack["bytes"], 2 << 20);
        let mut end = 0;
        for span in pack["spans"].as_array().unwrap() {
            assert_eq!(number(&span["offset"]), end, "a gap or an overlap");
            assert!(number(&span["bytes"]) > 0 && number(&span["bytes"]).is_multiple_of(32));
            end += number(&span["bytes"]);
        }
        assert_eq!(end, 2 << 20);
    }
    let bytes = |state| bytes_of(document, state);
    assert_eq!(document["free_bytes"], bytes("free"));
    assert_eq!(document["waiting_bytes"], bytes("waiting"));
    assert_eq!(document["used_bytes"], bytes("text") + bytes("draft"));
    assert_eq!(
        document["mapped_bytes"],
        bytes("text") + bytes("draft") + bytes("free") + bytes("waiting"),
        "every state but `no_memory` is memory"
    );
    let longest = spans(document).filter(|span| span["state"] == "free").map(|span| number(&span["bytes"]));
    assert_eq!(document["largest_free_run"], longest.max().unwrap_or(0));
    let texts = spans(document).filter(|span| span["state"] == "text").count();
    assert_eq!(document["texts"], texts as u64);
}

/// A picture as XML; its tooltips.
#[track_caller]
fn tooltips(svg: &str) -> Vec<String> {
    assert!(svg.len() < 1 << 20, "{} bytes", svg.len());
    let document = roxmltree::Document::parse(svg).expect("well-formed XML");
    let root = document.root_element();
    assert_eq!(
        (root.tag_name().name(), root.tag_name().namespace()),
        ("svg", Some("http://www.w3.org/2000/svg"))
    );
    let titles = root.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "title")));
    titles.map(|title| title.text().unwrap_or("").to_owned()).collect()
}

#[test]
fn the_default_picture_has_every_state() {
    let document = show(&["--json"]).json();
    covers_its_packs(&document);
    for state in ["text", "free", "waiting", "draft"] {
        assert!(bytes_of(&document, state) > 0, "nothing is {state}");
    }
    assert!(packs(&document).len() >= 2, "more than one pack is full");
    assert_eq!(document["drafts"], 1);
    assert_eq!(document["example"]["objects"].as_array().unwrap().len(), 8);
    assert!(number(&document["example"]["runs"]) > 0);
    assert!((0.0..1.0).contains(&document["fragmentation"].as_f64().unwrap()));
    // Two packs for what nearly fits into one; an emulator maps both of them completely.
    assert!((0.4..1.0).contains(&document["utilisation"].as_f64().unwrap()));
    let each = document["bytes_per_program"].as_f64().unwrap();
    let mapped = number(&document["mapped_bytes"]) as f64;
    assert!((each - mapped / number(&document["texts"]) as f64).abs() < 1e-6);
    for field in ["backing", "huge_packs", "sealed_packs", "empty_packs", "code_bytes"] {
        assert!(!document[field].is_null(), "{field}");
    }
    for field in ["backing_refused", "huge_refused", "huge_bytes", "long_texts"] {
        assert!(document.get(field).is_some(), "{field}");
    }
}

#[test]
fn live_and_waiting_texts_name_their_program() {
    let document = show(&["--copies", "20", "--json"]).json();
    covers_its_packs(&document);
    let (mut texts, mut waiting, mut code) = (0, 0, 0);
    for span in spans(&document) {
        let state = span["state"].as_str().unwrap();
        assert_eq!(span.get("program").is_some(), ["text", "waiting"].contains(&state), "{span}");
        assert_eq!(span.get("tag").is_some(), span.get("program").is_some());
        if state == "text" {
            let len = number(&span["code_bytes"]);
            assert_eq!(len.next_multiple_of(32), number(&span["bytes"]));
            code += len;
            texts += 1;
        }
        waiting += u64::from(state == "waiting");
    }
    assert_eq!(document["example"]["waiting"], waiting);
    // The draft is not a program, but its bytes are in use.
    assert_eq!(number(&document["code_bytes"]), code + bytes_of(&document, "draft"));
    let programs = document["programs"].as_array().unwrap();
    let sum = |field: &str| programs.iter().map(|program| number(&program[field])).sum::<u64>();
    assert_eq!((sum("copies"), sum("waiting"), sum("code_bytes")), (texts, waiting, code));
    assert!(programs.iter().any(|program| program["program"] == "firewall"));
}

#[test]
fn the_picture_is_reproducible_except_for_addresses() {
    let layout =
        |document: &Value| packs(document).iter().map(|pack| pack["spans"].clone()).collect::<Vec<_>>();
    // Where the system puts maps decides the length of a few instructions, so that about one run in fifty differs.
    let pictures = [(); 4].map(|()| layout(&show(&["--copies", "100", "--json"]).json()));
    let equals = |one: &Vec<Value>| pictures.iter().filter(|other| *other == one).count();
    assert!(pictures.iter().any(|one| equals(one) >= 2), "four runs gave four pictures");
}

#[test]
fn every_backing_is_drawn_as_xml_that_names_programs() {
    for backing in ["memfd", "hardened", "procmem"] {
        let picture = Scratch::new(&format!("{backing}.svg"), b"");
        let said = show(&["--copies", "12", "--backing", backing, "--svg", picture.path(), "--json"]);
        let document = said.json();
        assert_eq!(document["backing"], backing);
        covers_its_packs(&document);
        let svg = std::fs::read_to_string(&picture.0).unwrap();
        let tooltips = tooltips(&svg);
        for span in spans(&document).filter(|span| span.get("program").is_some()) {
            let address = number(&span["offset"]) + address(&packs(&document)[0]);
            let (name, tag) = (span["program"].as_str().unwrap(), span["tag"].as_str().unwrap());
            let all = |tooltip: &&String| {
                tooltip.starts_with(name)
                    && tooltip.contains(tag)
                    && tooltip.contains(&format!("{address:#x}\n"))
            };
            assert_eq!(tooltips.iter().filter(all).count(), 1, "{backing}: {span}");
        }
        assert!(tooltips.iter().any(|tooltip| tooltip.contains("waits for readers")));
        assert!(tooltips.iter().any(|tooltip| tooltip.starts_with("draft")));
        assert!(tooltips.iter().any(|tooltip| tooltip.starts_with("free")));
    }
}

fn address(pack: &Value) -> u64 {
    u64::from_str_radix(pack["address"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

#[test]
fn a_picture_of_many_programs_stays_small_without_tooltips() {
    let args = ["--copies", "6000", "--churn", "1", "--svg", "-", "examples/hello.bpf.o"];
    let said = show(&args);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(tooltips(&said.out).is_empty());
    assert!(said.err.contains("waiting"), "the text goes elsewhere: {}", said.err);
}

#[test]
fn the_text_has_figures_and_a_map_with_a_legend() {
    let said = show(&["--copies", "30"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert_eq!(said.err, "");
    for words in [
        "backing",
        "huge pages",
        "as reported by the kernel",
        "fragmentation",
        "of the memory",
        "balancer",
        "waiting",
        "a character is 2 KiB",
        "while a reader was in a read-side critical section",
        "pack 0 at 0x",
    ] {
        assert!(said.out.contains(words), "{words:?} is missing in: {}", said.out);
    }
    let map: Vec<&str> =
        said.out.lines().filter_map(|line| line.split_once(" KiB |")).map(|(_, map)| map).collect();
    assert!(!map.is_empty());
    assert!(map.iter().all(|line| line.len() == 65), "lines of one length: {map:?}");
    let drawn: String = map.concat();
    assert!(['w', 'd', '+'].iter().all(|glyph| drawn.contains(*glyph)), "{drawn}");
    assert!(said.out.lines().all(|line| line.chars().count() <= 120 && !line.contains('\u{1b}')));
}

#[test]
fn without_frees_nothing_waits() {
    let document = show(&["--copies", "3", "--churn", "0", "--json"]).json();
    covers_its_packs(&document);
    assert_eq!((&document["waiting_bytes"], &document["example"]["freed"]), (&0.into(), &0.into()));
    assert_eq!(document["texts"], 27, "nine programs, three times");
}

#[test]
fn packs_are_huge_or_small_as_requested() {
    let small = show(&["--copies", "4", "--no-huge", "--json"]).json();
    assert_eq!((&small["huge_packs"], &small["example"]["promoted"]), (&0.into(), &Value::Null));
    assert!(bytes_of(&small, "no_memory") > 0, "four copies do not fill a pack");
    let huge = show(&["--copies", "4", "--promote", "--json"]).json();
    covers_its_packs(&huge);
    // Systems may refuse huge pages, but must say so.
    if huge["example"]["promoted"] == true {
        assert_eq!(huge["huge_packs"], huge["pack_count"]);
        assert_eq!(bytes_of(&huge, "no_memory"), 0);
    } else {
        assert!(huge["huge_refused"].is_string());
    }
    show(&["--promote", "--no-huge"]).refused(2, &["--promote", "--no-huge"]);
}

#[test]
fn random_placement_is_fully_accounted_for() {
    covers_its_packs(&show(&["--copies", "20", "--random", "--json"]).json());
}

#[test]
fn given_objects_replace_the_examples() {
    let document = show(&["examples/firewall.bpf.o", "--copies", "8", "--json"]).json();
    covers_its_packs(&document);
    assert_eq!(document["example"]["objects"], serde_json::json!(["examples/firewall.bpf.o"]));
    assert!(document["programs"].as_array().unwrap().iter().all(|program| program["program"] == "firewall"));
}

#[test]
fn unusable_objects_are_refused_with_the_reason() {
    show(&[&object("missing_null_check")]).refused(1, &["missing_null_check.bpf.o", "null"]);
    show(&["no/such.bpf.o"]).refused(1, &["no/such.bpf.o"]);
    let garbage = Scratch::new("garbage.o", b"not an object");
    show(&[garbage.path()]).refused(1, &["garbage.o"]);
    show(&["--copies", "2", "--svg", "no/such/picture.svg"]).refused(1, &["no/such/picture.svg"]);
}

#[test]
fn wrong_usage_is_not_a_refusal() {
    show(&["--backing", "wood"]).refused(2, &["wood", "memfd", "hardened", "procmem"]);
    show(&["--copies", "0"]).refused(2, &["--copies"]);
    show(&["--svg", "-", "--json"]).refused(2, &["standard output"]);
    skep(&["pack"]).refused(2, &["show"]);
}
