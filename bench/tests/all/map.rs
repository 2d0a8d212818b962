//! `skep-bench map`.

use super::bench;

#[test]
fn maps_are_measured_for_each_operation_from_programs_and_the_host_beside_peers() {
    let report = bench(&["map", "--quick", "--json"]).json();
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["ns"].as_f64().unwrap() > 0.0 && row["ns_linux"].is_null(), "{row}");
    }
    let count = |map: &str, from: &str, op: &str| {
        let of = |row: &&serde_json::Value| row["map"] == map && row["from"] == from && row["op"] == op;
        rows.iter().filter(of).count()
    };
    // Two sizes, one thread and two.
    assert_eq!(count("none", "program", "nothing"), 4);
    for op in ["look_up", "update", "insert_delete"] {
        for from in ["program", "host"] {
            for map in ["hash", "percpu_hash", "lpm_trie"] {
                assert_eq!(count(map, from, op), 4, "{map} {from} {op}");
            }
            let of_arrays = if op == "insert_delete" { 0 } else { 4 };
            for map in ["array", "percpu_array"] {
                assert_eq!(count(map, from, op), of_arrays, "{map} {from} {op}");
            }
        }
        for peer in ["mutex-hashmap", "dashmap", "papaya"] {
            assert_eq!(count(peer, "host", op), 4, "{peer} {op}");
        }
    }
    for missing in report["unavailable"].as_array().unwrap() {
        assert!(!missing["reason"].as_str().unwrap().is_empty(), "{missing}");
    }
    let targets = report["targets"].as_array().unwrap();
    let wanted: Vec<_> = targets.iter().map(|target| target["target"].as_f64().unwrap()).collect();
    assert_eq!(wanted, [8.0, 12.0, 25.0, 40.0, 50.0]);
}

#[test]
fn the_text_shows_maps_too() {
    let said = bench(&["map", "--quick"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    for word in ["percpu_hash", "insert_delete", "papaya", "threads", "targets"] {
        assert!(said.out.contains(word), "{word:?} is missing in: {}", said.out);
    }
}
