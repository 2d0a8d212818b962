//! What an object has, told without running it: lists, types, graphs, source beside machine code.

use crate::{Scratch, object, root, skep};
use serde_json::{Value, json};
use skep_testkit::{answer, skip};
use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn programs_are_listed_with_their_types_sizes_and_maps() {
    let listed = skep(&["prog", "list", "examples/contacts.bpf.o", "--json"]).json();
    let expected = json!([
        { "program": "contact", "type": "xdp", "sleepable": false, "gpl_compatible": true, "insns": 77,
          "functions": ["contact"], "maps": ["rings", "known", "latest", ".bss"] },
        { "program": "forget", "type": "xdp", "sleepable": false, "gpl_compatible": true, "insns": 10,
          "functions": ["forget"], "maps": ["latest"] },
    ]);
    assert_eq!(listed, expected);
    let said = skep(&["prog", "list", "examples/contacts.bpf.o"]);
    let lines: Vec<Vec<&str>> = said.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["program", "type", "insns", "functions", "maps"]);
    assert_eq!(lines[2], ["forget", "xdp", "10", "1", "latest"]);
}

/// One program needs a kernel's types; the others are listed all the same.
#[test]
fn a_program_that_cannot_be_linked_is_listed_with_the_reason() {
    let listed = skep(&["prog", "list", "crates/skep-elf/tests/objects/system.bpf.o", "--json"]).json();
    let of = |name: &str| listed.as_array().unwrap().iter().find(|it| it["program"] == name).unwrap().clone();
    assert!(of("symbols")["error"].as_str().unwrap().contains("__ksym"), "{listed}");
    assert_eq!(of("values")["type"], "raw");
}

#[test]
fn maps_are_listed_with_the_types_of_keys_and_values() {
    let listed = skep(&["map", "list", "examples/flows.bpf.o", "--json"]).json();
    let flows = &listed[0];
    assert_eq!((&flows["map"], &flows["kind"]), (&"flows".into(), &"hash".into()));
    assert_eq!((&flows["key"], &flows["value"]), (&"struct flow_key".into(), &"struct flow".into()));
    assert_eq!((&flows["key_size"], &flows["value_size"]), (&40.into(), &40.into()));
    let globals = skep(&["map", "list", "examples/contacts.bpf.o", "--json"]).json();
    let bss = globals.as_array().unwrap().iter().find(|map| map["map"] == ".bss").unwrap();
    assert_eq!(bss["variables"], json!(["unheard", "contacts"]));
}

const TYPES: &str = "crates/skep-verifier/verdicts/linux.btf";

fn bpftool(arguments: &[&str]) -> Option<String> {
    match Command::new("bpftool").args(arguments).current_dir(root()).output() {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(_) => {
            skip("types as bpftool prints them", "bpftool not found");
            None
        }
    }
}

#[test]
fn types_are_printed_as_bpftool_prints_them() {
    for file in ["examples/contacts.bpf.o", "crates/skep-elf/tests/objects/system.bpf.o", TYPES] {
        let Some(theirs) = bpftool(&["btf", "dump", "file", file]) else { return };
        let ours = skep(&["btf", "dump", file]);
        assert_eq!(ours.status, Some(0), "{}", ours.err);
        let difference = ours.out.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
        assert_eq!(difference, None, "{file}");
        assert_eq!(ours.out.lines().count(), theirs.lines().count(), "{file}");
        let Some(theirs) = bpftool(&["-j", "btf", "dump", "file", file]) else { return };
        let mut theirs: Value = serde_json::from_str(&theirs).unwrap();
        // bpftool extends the sign of unsigned enumerators of 32 bits in JSON, though not in text.
        for ty in theirs["types"].as_array_mut().unwrap() {
            if ty["kind"] == "ENUM" && ty["encoding"] == "UNSIGNED" {
                for value in ty["values"].as_array_mut().unwrap() {
                    value["val"] = (value["val"].as_u64().unwrap() & 0xffff_ffff).into();
                }
            }
        }
        let ours = skep(&["btf", "dump", file, "--json"]).json();
        let (ours, theirs) = (ours["types"].as_array().unwrap(), theirs["types"].as_array().unwrap());
        assert_eq!(ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs), None, "{file}");
        assert_eq!(ours.len(), theirs.len(), "{file}");
    }
}

#[test]
fn types_are_a_header_that_clang_compiles() {
    let said = skep(&["btf", "dump", "examples/flows.bpf.o", "--format", "c"]);
    assert!(said.out.contains("struct flow_key {\n"), "{}{}", said.out, said.err);
    let program = format!("{}\nint size = sizeof(struct flow_key) == 40 ? 1 : -1;\n", said.out);
    let arguments = ["-x", "c", "-target", "bpf", "-Wall", "-fsyntax-only", "-"];
    answer("a header of types", &["clang-19", "clang"], &arguments, &program);
}

#[test]
fn types_that_are_none_are_refused_by_the_name_of_their_file() {
    skep(&["btf", "dump", "README.md"]).refused(1, &["README.md", "raw BTF"]);
    skep(&["btf", "dump", "no/such/file"]).refused(1, &["no/such/file"]);
    skep(&["btf", "dump", TYPES, "--base", "README.md"]).refused(1, &["README.md"]);
}

/// The nodes of a graph, and its edges.
fn graph(dot: &str) -> (BTreeSet<usize>, Vec<(usize, usize)>) {
    let slot = |name: &str| name.trim().strip_prefix('b').and_then(|text| text.parse::<usize>().ok());
    let mut nodes = BTreeSet::new();
    let mut edges = Vec::new();
    for line in dot.lines() {
        let head = line.split(['[', ';']).next().unwrap();
        match head.split_once("->") {
            Some((from, to)) => edges.push((slot(from).unwrap(), slot(to).unwrap())),
            None => nodes.extend(slot(head)),
        }
    }
    (nodes, edges)
}

/// The oracle is the listing: each jump's target is a node, and each block's end leads there.
#[test]
fn a_graph_has_a_block_and_an_edge_for_each_jump() {
    let said = skep(&["cfg", "examples/firewall.bpf.o"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let (nodes, edges) = graph(&said.out);
    let listing = skep(&["prog", "dump", "xlated", "examples/firewall.bpf.o", "--json"]).json();
    let mut jumps = 0;
    for line in listing.as_array().unwrap() {
        let (at, text) = (line["at"].as_u64().unwrap() as usize, line["text"].as_str().unwrap());
        let Some((_, offset)) = text.split_once("goto ") else { continue };
        let offset = offset.split_whitespace().next().unwrap();
        let (sign, digits) = offset.split_at(1);
        let distance = i64::from_str_radix(digits.trim_start_matches("0x"), 16).unwrap();
        let target = at as i64 + 1 + if sign == "-" { -distance } else { distance };
        // A jump that is never taken is none.
        if target == at as i64 + 1 {
            continue;
        }
        let from = *nodes.range(..=at).next_back().unwrap();
        assert!(edges.contains(&(from, target as usize)), "{at}: {text}");
        assert!(text.starts_with("goto") || edges.contains(&(from, at + 1)), "{at}: {text}");
        jumps += 1;
    }
    assert!(jumps > 50, "{jumps} jumps");
    assert!(edges.iter().all(|(_, to)| nodes.contains(to)));
}

#[test]
fn a_graph_is_drawn_with_an_arrow_for_each_edge() {
    for name in ["firewall", "flows"] {
        let path = format!("examples/{name}.bpf.o");
        let (nodes, edges) = graph(&skep(&["cfg", &path]).out);
        let picture = skep(&["cfg", &path, "--svg", "-"]);
        let picture = roxmltree::Document::parse(&picture.out).expect("well-formed XML");
        let svg = "http://www.w3.org/2000/svg";
        let count = |name| picture.descendants().filter(|node| node.has_tag_name((svg, name))).count();
        assert_eq!(count("rect"), nodes.len());
        // One more is the arrow's head.
        assert_eq!(count("path"), edges.len() + 1);
    }
}

#[test]
fn a_graph_of_a_refused_program_is_refused_with_the_reason() {
    skep(&["cfg", &object("missing_null_check")]).refused(1, &["r0 may be null"]);
    skep(&["cfg", "examples/socket_filter.bpf.o"]).refused(2, &["keep_dns", "keep_headers"]);
}

/// Each source line of the verified program stands above machine code, in the same order.
#[test]
fn machine_code_has_its_source_lines() {
    let sources = |form: &str, options: &[&str]| -> Vec<String> {
        let arguments = [&["prog", "dump", form, "examples/flows.bpf.o", "--json"], options].concat();
        let dump = skep(&arguments).json();
        let texts = dump.as_array().unwrap().iter().filter_map(|line| line["source"].as_str());
        texts.flat_map(|text| text.split("\n; ")).map(str::to_owned).collect()
    };
    let expected = sources("xlated", &[]);
    assert!(expected.len() > 50, "{expected:?}");
    for arch in [&[][..], &["--arch", "aarch64"], &["--arch", "x86_64"]] {
        assert_eq!(sources("jited", arch), expected, "{arch:?}");
    }
}

#[test]
fn completions_and_manual_pages_name_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = skep(&["completions", shell]);
        assert_eq!(script.status, Some(0), "{}", script.err);
        assert!(script.out.contains("max-entries"), "{shell}");
    }
    let page = skep(&["man"]);
    assert!(page.out.contains(".TH skep 1") && page.out.contains("skep\\-run(1)"), "{}", page.out);
    let folder = Scratch::folder("man");
    assert_eq!(skep(&["man", "--out", folder.path()]).status, Some(0));
    let run = std::fs::read_to_string(folder.0.join("skep-run.1")).unwrap();
    assert!(run.contains("\\-\\-pcap"), "{run}");
    skep(&["man", "--out", "README.md/man"]).refused(1, &["README.md/man"]);
}
