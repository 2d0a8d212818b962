//! Programs that run.

use crate::{Scratch, command, from_output, root, skep};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TRAFFIC: &str = "examples/traffic.pcap";
const TINY: &str = "examples/captures/tiny.pcap";

fn map<'a>(report: &'a Value, name: &str) -> &'a Value {
    let maps = report["maps"].as_array().unwrap();
    maps.iter().find(|map| map["name"] == name).unwrap_or_else(|| panic!("no map {name}"))
}

#[test]
fn the_firewall_decides_as_documented() {
    let report = skep(&["run", "examples/firewall.bpf.o", "--pcap", TRAFFIC, "--json"]).json();
    assert_eq!(report["packets"], 6000);
    assert_eq!(report["verdicts"]["pass"], 4885);
    assert_eq!(report["verdicts"]["drop"], 1115);
    assert_eq!(report["type"], "xdp");
    assert_eq!(report["interrupted"], false);
    let expected = [3229, 1373, 130, 153, 99, 82, 28, 166, 186, 467, 5, 82];
    let counted = &map(&report, "verdicts")["elements"];
    for (index, count) in expected.iter().enumerate() {
        let key = index.to_string();
        let element = counted.as_array().unwrap().iter().find(|element| element["key"] == *key);
        assert_eq!(element.unwrap()["value"][0], *count, "packets of verdict {index}");
    }
    for number in ["ns_per_packet", "load_us", "parse_us", "verify_us", "jit_us", "code_bytes"] {
        assert!(report[number].as_f64().unwrap() > 0.0, "{number}");
    }
    assert!(report["pack"]["used_bytes"].as_u64().unwrap() >= report["code_bytes"].as_u64().unwrap());
    assert!(report["pack"]["huge"].is_boolean());
}

#[test]
fn input_may_come_from_standard_input() {
    let run = |args: &[&str], input: &str| {
        let file = std::fs::File::open(root().join(input)).unwrap();
        from_output(&command().args(args).stdin(file).output().unwrap())
    };
    let report = run(&["run", "examples/firewall.bpf.o", "--pcap", "-", "--json"], TRAFFIC).json();
    assert_eq!((&report["packets"], &report["verdicts"]["pass"]), (&6000.into(), &4885.into()));
    let report = run(&["run", "examples/firewall.bpf.o", "--data-in", "-", "--json"], "README.md").json();
    assert_eq!(report["runs"], 1);
    let twice = ["run", "examples/firewall.bpf.o", "--pcap", "-", "--repeat", "2"];
    let run = command().args(twice).stdin(Stdio::null()).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8(run.stderr).unwrap().contains("needs a file instead of standard input"));
}

#[test]
fn variables_and_capacities_are_set_before_the_load() {
    let report = |options: &[&str]| {
        let base = ["run", "examples/firewall.bpf.o", "--pcap", TRAFFIC, "--json"];
        skep(&[&base, options].concat()).json()
    };
    assert_eq!(report(&["--set", "drop_fragments=true"])["verdicts"]["drop"], 1115 + 227);
    assert_eq!(report(&["--set", "drop_fragments=0x0"])["verdicts"]["drop"], 1115);
    let small = report(&["--max-entries", "offenders=7", "--set", "track_offenders=1"]);
    assert_eq!(map(&small, "offenders")["max_entries"], 7);
    assert!(map(&small, "offenders")["elements"].as_array().unwrap().len() <= 7);
    for (options, phrase) in [
        (["--set", "drop_fragments"], "expected VARIABLE=VALUE"),
        (["--set", "drop_fragments=yes"], "expected a number of 4 bytes"),
        (["--set", "drop=1"], "unknown variable drop; there are static_prefixes4, "),
        (["--max-entries", "offenders=-1"], "expected a number up to 4294967295"),
        (["--max-entries", "ports=1"], "unknown map ports; there are verdicts, "),
    ] {
        let run = command()
            .args(["run", "examples/firewall.bpf.o", "--pcap", TRAFFIC])
            .args(options)
            .output()
            .unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains(phrase), "{said}");
    }
}

#[test]
fn an_arena_is_reported_by_its_pages_and_variables() {
    let args = ["run", "crates/skep/tests/objects/arenas/tree.bpf.o", "--prog", "add", "--pcap", TRAFFIC];
    let report = skep(&[&args[..], &["--json", "--set", "step=9"]].concat()).json();
    let heap = map(&report, "heap");
    assert_eq!(
        (&heap["kind"], &heap["entries"], &heap["max_entries"]),
        (&"arena".into(), &1.into(), &16.into())
    );
    let value = |name: &str| {
        let elements = heap["elements"].as_array().unwrap();
        elements.iter().find(|element| element["key"] == name).unwrap()["value"].clone()
    };
    assert_eq!((value("step"), value("nodes"), value("refused")), (9.into(), 0.into(), 5994.into()));
    let said = skep(&args).out;
    assert!(said.contains("map heap: arena, 1 of 16 pages\n    nodes "), "{said}");
}

#[test]
fn engines_agree_on_verdicts_maps_and_packets() {
    for program in ["firewall", "balancer", "unvlan", "remark"] {
        let object = format!("examples/{program}.bpf.o");
        let (compiled, interpreted) =
            (Scratch::new(&format!("{program}-a"), b""), Scratch::new(&format!("{program}-b"), b""));
        let args = ["run", &object, "--pcap", TRAFFIC, "--json", "--write"];
        let a = skep(&[&args[..], &[compiled.path()]].concat()).json();
        let b = skep(&[&args[..], &[interpreted.path(), "--interp"]].concat()).json();
        assert_eq!((&a["engine"], &b["engine"]), (&"jit".into(), &"interpreter".into()));
        assert_eq!(a["verdicts"], b["verdicts"], "{program}");
        for (a, b) in a["maps"].as_array().unwrap().iter().zip(b["maps"].as_array().unwrap()) {
            assert_eq!(a["entries"], b["entries"], "{program}: {}", a["name"]);
        }
        let (a, b) = (std::fs::read(&compiled.0).unwrap(), std::fs::read(&interpreted.0).unwrap());
        assert!(a.len() > 24, "{program} passes packets");
        assert!(a == b, "{program}: the packets written differ");
    }
}

#[test]
fn maps_without_keys_are_summarised() {
    let args = ["run", "examples/contacts.bpf.o", "--prog", "contact", "--pcap", TRAFFIC];
    let report = skep(&[&args[..], &["--json"]].concat()).json();
    for (name, kind, entries) in
        [("latest", "queue", 32), ("rings", "hash_of_maps", 2), ("known", "bloom_filter", 0)]
    {
        let map = map(&report, name);
        assert_eq!((&map["kind"], &map["entries"]), (&kind.into(), &entries.into()));
    }
    // Each record takes 32 bytes and is never consumed.
    let waiting = map(&report, "tcp")["entries"].as_u64().unwrap();
    assert!(waiting > 3200 && waiting.is_multiple_of(32), "{waiting}");
    let text = skep(&args).out;
    for words in
        ["map latest: queue, 32 of 32 entries", "map known: bloom_filter for 10000 values", " of 65536 bytes"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn flows_are_accounted_and_a_second_pass_adds_to_the_first() {
    let once = skep(&["run", "examples/flows.bpf.o", "--pcap", TRAFFIC, "--json"]).json();
    assert_eq!(once["verdicts"]["ok"], 5672);
    assert_eq!(once["verdicts"]["unspec"], 328);
    assert_eq!(map(&once, "flows")["entries"], 1278);
    let twice = skep(&["run", "examples/flows.bpf.o", "--pcap", TRAFFIC, "--repeat", "2", "--json"]).json();
    assert_eq!(twice["packets"], 12000);
    assert_eq!(map(&twice, "flows")["entries"], 1278);
}

#[test]
fn the_balancer_forwards_and_counts_packets() {
    let report = skep(&["run", "examples/balancer.bpf.o", "--pcap", TRAFFIC, "--json"]).json();
    assert_eq!(report["verdicts"]["tx"], 985);
    assert_eq!(report["verdicts"]["pass"], 4800);
    assert_eq!(report["verdicts"]["drop"], 215);
}

#[test]
fn every_capture_format_gives_the_same_verdicts() {
    let verdicts = |capture: &str| {
        let path = format!("examples/captures/{capture}");
        skep(&["run", "examples/firewall.bpf.o", "--pcap", &path, "--json"]).json()["verdicts"].clone()
    };
    let expected = verdicts("tiny.pcap");
    for capture in
        ["tiny-ns.pcap", "tiny-be.pcap", "tiny-be-ns.pcap", "tiny.pcapng", "tiny-ns.pcapng", "tiny-be.pcapng"]
    {
        assert_eq!(verdicts(capture), expected, "{capture}");
    }
}

#[test]
fn a_raw_program_runs_on_bytes_and_reports_its_time() {
    let bytes = Scratch::new("bytes", &[1, 2, 3, 4, 5, 6, 7, 8]);
    let args = ["run", "examples/raw.bpf.o", "--data-in", bytes.path(), "--repeat", "1000", "--json"];
    let report = skep(&args).json();
    assert_eq!(report["result"], 36);
    assert_eq!(report["runs"], 1000);
    let (best, median) = (report["ns_best"].as_f64().unwrap(), report["ns_median"].as_f64().unwrap());
    assert!(0.0 < best && best <= median);
    let interpreted = skep(&[&args[..], &["--interp"]].concat()).json();
    assert_eq!(interpreted["result"], 36);
}

#[test]
fn a_packet_program_runs_on_the_bytes_of_one_packet() {
    let mut frame = [0u8; 64];
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    let packet = Scratch::new("arp", &frame);
    let report = skep(&["run", "examples/firewall.bpf.o", "--data-in", packet.path(), "--json"]).json();
    assert_eq!((report["result"].as_u64(), report["verdict"].as_str()), (Some(2), Some("pass")));
}

#[test]
fn bpf_printk_goes_to_standard_error() {
    let said = skep(&["run", "examples/hello.bpf.o", "--pcap", "examples/captures/tiny.pcap", "--json"]);
    let report = said.json();
    assert_eq!(report["packets"], 20);
    assert!(said.err.lines().count() >= 20, "{}", said.err);
}

#[test]
fn people_get_a_table() {
    let said = skep(&["run", "examples/firewall.bpf.o", "--pcap", TRAFFIC]);
    assert_eq!(said.status, Some(0));
    for word in
        ["verdict", "pass", "4885", "drop", "1115", "ns per packet", "interpreted", "pack:", "map verdicts"]
    {
        assert!(said.out.contains(word), "{word:?} is missing in: {}", said.out);
    }
}

#[test]
fn an_interrupt_ends_the_run_and_prints_the_counts() {
    let child = command()
        .args(["run", "examples/firewall.bpf.o", "--pcap", TRAFFIC, "--repeat", "1000000000", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Wait for the thread of that name: then the handler is installed, and the run has years to go.
    let tasks = format!("/proc/{}/task", child.id());
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let names = || std::fs::read_dir(&tasks).unwrap().flatten().map(name);
    let started = Instant::now();
    while !names().any(|name| name.trim_end() == "ctrl-c") {
        assert!(started.elapsed() < Duration::from_secs(120), "{:?}", names().collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(2));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let report = from_output(&child.wait_with_output().unwrap()).json();
    assert_eq!(report["interrupted"], true);
    assert!(report["packets"].as_u64().unwrap() > 0);
    assert!(report["verdicts"]["pass"].as_u64().unwrap() > 0);
}

#[test]
fn a_program_is_selected_by_name() {
    let said = skep(&["run", "examples/socket_filter.bpf.o", "--pcap", TRAFFIC]);
    said.refused(2, &["several programs", "name one of"]);
    let names: Vec<String> = {
        let list = said.err.split("name one of ").nth(1).unwrap().lines().next().unwrap();
        list.split(", ").map(str::to_owned).collect()
    };
    assert_eq!(names.len(), 2);
    for name in &names {
        let report =
            skep(&["run", "examples/socket_filter.bpf.o", "--prog", name, "--pcap", TRAFFIC, "--json"]);
        assert_eq!(report.json()["packets"], 6000);
    }
}

#[test]
fn programs_are_dumped_as_verified_and_as_machine_code() {
    let xlated = skep(&["prog", "dump", "xlated", "examples/firewall.bpf.o"]);
    assert_eq!(xlated.status, Some(0), "{}", xlated.err);
    assert!(xlated.out.contains("exit"));
    assert!(xlated.out.contains("map_lookup_elem"), "helpers are named");
    assert!(xlated.out.contains("; "), "source lines are between the instructions");
    let jited = skep(&["prog", "dump", "jited", "examples/firewall.bpf.o"]);
    assert_eq!(jited.status, Some(0), "{}", jited.err);
    assert!(jited.out.contains("ret"));
    assert!(!jited.out.contains("(bad)"), "every instruction decodes");
    let json = skep(&["prog", "dump", "xlated", "examples/firewall.bpf.o", "--json"]).json();
    assert!(json.as_array().unwrap().len() > 50);
}

#[test]
fn machine_code_of_both_architectures_is_shown_anywhere() {
    for (arch, ret, other) in [("x86_64", "ret", "stp"), ("aarch64", "stp x29, x30, [sp, ", "push")] {
        let jited = skep(&["prog", "dump", "jited", "examples/firewall.bpf.o", "--arch", arch]);
        assert_eq!(jited.status, Some(0), "{}", jited.err);
        assert!(jited.out.contains(ret) && !jited.out.contains(other), "{}", jited.out);
    }
    let unknown = skep(&["prog", "dump", "jited", "examples/firewall.bpf.o", "--arch", "pdp11"]);
    assert_eq!(unknown.status, Some(2));
    assert!(unknown.err.contains("x86_64 and aarch64"), "{}", unknown.err);
}

#[test]
fn every_example_is_accepted() {
    for entry in std::fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "o") {
            let said = skep(&["verify", path.to_str().unwrap(), "--data-len", "64"]);
            assert_eq!(said.status, Some(0), "{}: {}{}", path.display(), said.out, said.err);
            assert!(said.out.contains("accepted"));
        }
    }
}

#[test]
fn a_json_verdict_has_the_tag_and_the_cost() {
    let verdict = &skep(&["verify", "examples/firewall.bpf.o", "--json"]).json()[0];
    assert_eq!(verdict["verdict"], "accepted");
    assert_eq!(verdict["tag"].as_str().unwrap().len(), 16);
    assert!(verdict["walked"].as_u64().unwrap() > 100);
    assert!(verdict["us"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_output_must_not_overwrite_the_input_capture() {
    let capture = Scratch::new("itself", &std::fs::read(root().join(TRAFFIC)).unwrap());
    let link = std::env::temp_dir().join(format!("skep-command-{}-link", std::process::id()));
    std::os::unix::fs::symlink(&capture.0, &link).unwrap();
    let before = std::fs::metadata(&capture.0).unwrap().len();
    for out in [capture.path(), link.to_str().unwrap()] {
        let args = ["run", "examples/firewall.bpf.o", "--pcap", capture.path(), "--write", out];
        skep(&args).refused(2, &["is the input"]);
        assert_eq!(std::fs::metadata(&capture.0).unwrap().len(), before);
    }
    std::fs::remove_file(link).unwrap();
}

#[test]
fn a_program_that_prints_survives_a_closed_standard_error() {
    let mut command = command();
    command.args(["run", "examples/hello.bpf.o", "--pcap", TRAFFIC, "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take()); // from now on writes to it fail
    let report = from_output(&child.wait_with_output().unwrap()).json();
    assert_eq!(report["packets"], 6000);
}

#[test]
fn packets_go_their_whole_way_through_a_world() {
    let out = Scratch::new("arrived.pcap", b"");
    let path = out.path().to_owned();
    let base =
        ["run", "examples/firewall.bpf.o", "--pcap", TRAFFIC, "--world", "examples/network.toml", "--json"];
    let report = skep(&[&base[..], &["--write", &path]].concat()).json();
    assert_eq!((&report["verdicts"]["pass"], &report["verdicts"]["drop"]), (&4885.into(), &1115.into()));
    let ends = report["ends"].as_object().unwrap();
    let count = |end: &str| ends.get(end).map_or(0, |count| count.as_u64().unwrap());
    assert_eq!(ends.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), 6000);
    assert_eq!(count("dropped by firewall: drop"), 1115);
    assert!(
        count("delivered on eth0") > 0 && count("ignored on eth0: it is for another machine") > 0,
        "{ends:?}"
    );
    // What arrived was written.
    let again = skep(&["run", "examples/firewall.bpf.o", "--pcap", &path, "--json"]).json();
    assert_eq!(again["packets"], count("delivered on eth0") + count("sent by eth1"));
}

#[test]
fn a_wrong_world_is_refused_with_its_place() {
    let file = Scratch::new("wrong.toml", b"");
    let path = file.path().to_owned();
    let base = ["run", "examples/firewall.bpf.o", "--pcap", TRAFFIC, "--world", &path];
    let cases = [
        ("[[device]]\nnam = 'x'", "line 2, column 1"),
        ("seed = 1", "it has no devices"),
        (
            "[[device]]\nname = 'a'\n[[route]]\nto = '0.0.0.0/0'\ndevice = 'b'",
            "route 1: there is no device b",
        ),
    ];
    for (text, word) in cases {
        std::fs::write(file.path(), text).unwrap();
        skep(&base).refused(1, &[word, "wrong.toml"]);
    }
    std::fs::write(file.path(), "[[device]]\nname = 'a'").unwrap();
    skep(&[&base[..], &["--dev", "b"]].concat()).refused(1, &["there is no device b; devices: a (1)"]);
}

#[test]
fn statistics_count_each_packet_and_only_if_asked() {
    let firewall = "examples/firewall.bpf.o";
    let plain = skep(&["run", firewall, "--pcap", TINY, "--json"]).json();
    assert!(plain.get("stats").is_none());
    let args = ["run", firewall, "--pcap", TINY, "--repeat", "3", "--stats"];
    let json = skep(&[&args[..], &["--json"]].concat()).json();
    let stats = &json["stats"];
    assert_eq!((&stats["run_cnt"], &stats["misses"]), (&json["packets"], &0.into()));
    let buckets = stats["histogram"].as_array().unwrap();
    let sum: u64 = buckets.iter().map(|bucket| bucket[2].as_u64().unwrap()).sum();
    assert_eq!(json["packets"], sum);
    let said = skep(&args);
    assert!(said.out.contains(&format!("{sum} runs in ")), "{}", said.out);
}

#[test]
fn the_header_for_a_host_s_plugins_comes_from_its_types() {
    let said = skep(&["header", "crates/skep/examples/http_filter.bpf.o"]);
    assert_eq!((said.status, &*said.err), (Some(0), ""));
    let header = std::fs::read_to_string(root().join("crates/skep/examples/http_filter.h")).unwrap();
    // The example's runtime also declares its functions.
    assert!(said.out.contains("struct http_request {"), "{}", said.out);
    assert!(said.out.lines().all(|line| header.contains(line)), "{}", said.out);
    let said = skep(&["header", "examples/firewall.bpf.o"]);
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("no structure has the tag skep:context"), "{}", said.err);
}
