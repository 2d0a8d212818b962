//! Maps that a run starts with, and their contents after it.

use crate::{Said, Scratch, object, skep};
use serde_json::{Value, json};

const TINY: &str = "examples/captures/tiny.pcap";

/// What the program of `filled.bpf.c` expects, by map.
fn expected() -> Vec<(&'static str, Value)> {
    let rule = json!({ "port": 80, "protocol": 6, "name": "eth0" });
    let action = json!({
        "verdict": "VERDICT_FORWARD", "delta": -5, "v4": "0x01020304", "level": 77, "on": true,
        "big": "18446744073709551615",
    });
    vec![
        ("rules", json!([{ "key": rule, "value": action }])),
        ("counts", json!([{ "key": 1, "value": 9_007_199_254_740_991_u64 }])),
        ("routes", json!([{ "key": { "length": 8, "address": [10] }, "value": ["0x00", "0x01", "0xab"] }])),
        ("jobs", json!([{ "value": 513 }, { "value": 2 }])),
        ("calls", json!([{ "key": 2, "value": "forwards" }])),
        ("table", json!([{ "key": 1, "value": 9 }])),
        ("tables", json!([{ "key": 1, "value": "table" }])),
    ]
}

/// Runs the program with these files for its maps.
fn run(files: &[(&str, Scratch)]) -> Said {
    let object = object("filled");
    let given: Vec<String> = files.iter().map(|(map, file)| format!("{map}={}", file.path())).collect();
    let mut args = vec!["run", &object, "--prog", "checks", "--pcap", TINY, "--json"];
    given.iter().for_each(|given| args.extend(["--map", given]));
    skep(&args)
}

fn files<'a>(test: &str, maps: &[(&'a str, Value)]) -> Vec<(&'a str, Scratch)> {
    let file = |(map, value): &(&'a str, Value)| {
        (*map, Scratch::new(&format!("{test}-{map}.json"), value.to_string().as_bytes()))
    };
    maps.iter().map(file).collect()
}

fn map<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["maps"].as_array().unwrap().iter().find(|map| map["name"] == name).unwrap()
}

#[test]
fn a_program_finds_in_its_maps_what_the_files_say() {
    let all = expected();
    let report = run(&files("finds", &all)).json();
    assert_eq!(report["verdicts"], json!({ "tx": report["packets"] }), "{report:#}");
    // Without any one of them it does not get that far. (Without `tables` nothing would lead to `table`.)
    for missing in ["rules", "counts", "routes", "jobs", "calls", "table"] {
        let rest: Vec<_> = all.iter().filter(|(map, _)| *map != missing).cloned().collect();
        let report = run(&files(&format!("without-{missing}"), &rest)).json();
        assert_eq!(report["verdicts"]["tx"], Value::Null, "{missing}");
    }
}

#[test]
fn printed_contents_have_the_types_of_the_object() {
    let report = run(&files("typed", &expected())).json();
    let action = json!({
        "verdict": "VERDICT_FORWARD", "delta": -5, "v6": [4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        "urgent": 0, "level": 77, "on": true, "big": "18446744073709551615",
    });
    let rule = json!({ "port": 80, "protocol": 6, "name": "eth0" });
    let rules = map(&report, "rules");
    assert_eq!(rules["contents"], json!([{ "key": rule, "value": action }]));
    assert_eq!(rules["complete"], true);
    assert_eq!(map(&report, "calls")["contents"], json!([{ "key": 2, "value": "forwards" }]));
    assert_eq!(map(&report, "tables")["contents"], json!([{ "key": 1, "value": "table" }]));
    // A number that readers lose digits of is text.
    let counts = map(&report, "counts")["contents"][0]["values"].as_array().unwrap();
    let most = counts.iter().find(|count| count.is_string()).expect("one CPU has counted further");
    let counted = 9_007_199_254_740_991 + report["packets"].as_u64().unwrap();
    assert_eq!(*most, counted.to_string());
}

#[test]
fn what_a_run_prints_can_be_given_to_the_next_one() {
    let mut all = expected();
    let first = run(&files("first", &all)).json();
    for (name, value) in &mut all {
        match *name {
            // Queues are read by taking from them.
            "jobs" => {}
            // Any of the three forms.
            "rules" => *value = map(&first, "rules")["contents"].clone(),
            "routes" | "calls" => *value = map(&first, name).clone(),
            _ => *value = first.clone(),
        }
    }
    let second = run(&files("second", &all)).json();
    assert_eq!(second["verdicts"], first["verdicts"]);
    for name in ["rules", "routes", "calls", "table", "tables"] {
        assert_eq!(map(&second, name)["contents"], map(&first, name)["contents"], "{name}");
    }
    let counted = |report: &Value| {
        let values = map(report, "counts")["contents"][0]["values"].as_array().unwrap().clone();
        let number =
            |value: &Value| value.as_u64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
        values.iter().map(number).map(u128::from).sum::<u128>()
    };
    assert_eq!(counted(&second) - counted(&first), u128::from(second["packets"].as_u64().unwrap()));
}

#[test]
fn errors_name_the_file_the_element_and_the_field() {
    let rule = json!({ "port": 80, "protocol": 6, "name": "eth0" });
    let two = |value: Value| json!([{ "key": rule, "value": {} }, value]);
    let cases = [
        ("rules", two(json!({ "key": { "port": 70000 }, "value": {} })), "[1].key.port: 70000 does not fit"),
        (
            "rules",
            two(json!({ "key": { "prot": 1 }, "value": {} })),
            "[1].key: struct rule has no member prot; it has port",
        ),
        (
            "rules",
            two(json!({ "key": { "name": "too long!" }, "value": {} })),
            "[1].key.name: expected text of at most 8",
        ),
        (
            "rules",
            two(json!({ "key": {}, "value": { "delta": "many" } })),
            "[1].value.delta: expected a number",
        ),
        ("rules", two(json!({ "key": {}, "value": { "v4": 1, "v6": [] } })), "only one of v4, v6"),
        (
            "rules",
            two(json!({ "key": {}, "value": { "v6": [1, 2, 300] } })),
            "[1].value.v6[2]: 300 does not fit",
        ),
        (
            "rules",
            two(json!({ "key": {}, "value": { "level": 128 } })),
            "[1].value.level: 128 does not fit a bit field",
        ),
        ("rules", two(json!({ "key": {}, "value": { "verdict": "PASS" } })), "such as VERDICT_DROP"),
        ("rules", two(json!({ "key": rule, "value": {} })), "[1].key: element [0] has the same key"),
        ("rules", two(json!({ "key": {} })), "[1]: has no value"),
        (
            "rules",
            two(json!({ "key": {}, "value": {}, "flags": 1 })),
            "[1]: elements of a hash have no field flags",
        ),
        ("rules", two(json!(7)), "[1]: expected an object"),
        ("rules", json!("all"), "expected a list of elements"),
        ("rules", json!({ "contents": [], "complete": false }), "has only the first"),
        ("rules", json!({ "maps": [] }), "the report has no map rules"),
        ("counts", json!([{ "key": 4, "value": 1 }]), "[0]: "),
        (
            "counts",
            json!([{ "key": 0, "value": 1, "values": [1] }]),
            "[0]: give value, for all CPUs, or values",
        ),
        ("counts", json!([{ "key": 0, "values": vec![0; 100_000] }]), "[0].values: has 100000 values"),
        ("counts", json!([{ "key": 0, "value": -1 }]), "[0].value: -1 does not fit"),
        ("counts", json!([{ "key": 0, "value": 1.5 }]), "[0].value: expected a number"),
        ("routes", json!([{ "key": {}, "value": 7 }]), "[0].value: expected an array of 3 bytes"),
        ("routes", json!([{ "key": { "length": 33 }, "value": ["0x00", "0x00", "0x00"] }]), "[0]: "),
        ("jobs", json!([{ "key": 0, "value": 1 }]), "[0]: elements of a queue have no field key"),
        (
            "jobs",
            json!([{ "value": 1 }, { "value": 2 }, { "value": 3 }, { "value": 4 }, { "value": 5 }]),
            "[4]: ",
        ),
        ("calls", json!([{ "key": 0, "value": "nobody" }]), "[0].value: the object has no program nobody"),
        ("calls", json!([{ "key": 4, "value": "forwards" }]), "[0].value: "),
        ("tables", json!([{ "key": 0, "value": "idle" }]), "[0].value: "),
        ("tables", json!([{ "key": 0, "value": 1 }]), "[0].value: expected the name of a program or map"),
        ("idle", json!([]), "the program does not use this map"),
    ];
    for (name, content, phrase) in cases {
        let given = files("refused", &[(name, content.clone())]);
        let said = run(&given);
        said.refused(1, &[phrase, given[0].1.path()]);
    }
    let text = Scratch::new("refused-text", b"[{");
    run(&[("rules", text)]).refused(1, &["is no JSON"]);
    let object = object("filled");
    for (given, phrase) in [
        ("rules", "expected MAP=FILE"),
        ("rulez=x", "unknown map rulez; there are rules, "),
        (".rodata=x", "holds global variables: set them with --set"),
    ] {
        skep(&["run", &object, "--prog", "checks", "--pcap", TINY, "--map", given]).refused(2, &[phrase]);
    }
    let missing = ["run", &*object, "--prog", "checks", "--pcap", TINY, "--map", "rules=/nowhere/x.json"];
    skep(&missing).refused(1, &["/nowhere/x.json: cannot be read"]);
}

#[test]
fn numbers_beyond_2_to_the_53_are_text() {
    let bytes = Scratch::new("beyond", &[0xff; 8]);
    let report = skep(&["run", "examples/raw.bpf.o", "--data-in", bytes.path(), "--json"]).json();
    assert!(report["result"].is_u64(), "{report}");
    let (all, small) = (u64::MAX.to_string(), (1u64 << 53).to_string());
    for (set, printed) in
        [(&*all, json!(all)), ("9007199254740991", json!((1u64 << 53) - 1)), (&*small, json!(small))]
    {
        let content = json!([{ "key": {}, "value": { "big": set } }]);
        let report = run(&files("beyond", &[("rules", content)])).json();
        assert_eq!(map(&report, "rules")["contents"][0]["value"]["big"], printed);
    }
}
