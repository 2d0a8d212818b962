//! `skep-bench tail-call`.

use super::bench;

#[test]
fn tail_calls_are_measured_for_each_kind_among_each_number_of_programs() {
    let report = bench(&["tail-call", "--quick", "--json"]).json();
    let rows = report["rows"].as_array().unwrap();
    for kind in ["direct", "slot", "indirect"] {
        for programs in [1, 4, 8, 33, 256] {
            for subprogram in [false, true] {
                let of = |row: &&serde_json::Value| {
                    row["kind"] == kind && row["programs"] == programs && row["subprogram"] == subprogram
                };
                let row = rows.iter().find(of).unwrap();
                assert!(row["ns"].is_number() && row["ns_linux"].is_null(), "{row}");
            }
        }
    }
    assert_eq!(rows.len(), 30);
    // What is left of one round without its floor may be anything.
    assert!(report["chain33_ns"].is_number());
    for number in ["updates_per_s", "update_ns", "update_idle_ns"] {
        assert!(report[number].as_f64().unwrap() > 0.0, "{number}");
    }
    assert_eq!(report["targets"].as_array().unwrap().len(), 4);
}

#[test]
fn the_text_shows_tail_calls_too() {
    let said = bench(&["tail-call", "--quick"]);
    assert_eq!(said.status, Some(0));
    for word in ["direct", "slot", "indirect", "subprogram", "a chain of 33", "an update", "targets"] {
        assert!(said.out.contains(word), "{word:?} is missing in: {}", said.out);
    }
}
