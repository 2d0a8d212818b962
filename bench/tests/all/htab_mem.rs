//! `skep-bench htab-mem`.

use super::bench;
use serde_json::Value;

const POLICIES: [&str; 5] = ["none", "immediate", "reuse-after-gp", "free-after-gp", "call-rcu-first"];
const PEERS: [&str; 3] = ["mutex-hashmap", "dashmap", "papaya"];

/// Checks what is measured in a process of its own, and returns why it is not, where that cannot be started.
fn check(row: &Value) -> Option<&str> {
    if let Some(reason) = row["unavailable"].as_str() {
        assert!(!reason.is_empty() && row["loops_k_per_s"].is_null(), "{row}");
        return Some(reason);
    }
    assert!(row["loops_k_per_s"].as_f64().unwrap() > 0.0, "{row}");
    assert!(row["loops_k_per_cpu_s"].as_f64().unwrap() > 0.0, "{row}");
    let failed = row["failed_per_loop"].as_f64().unwrap();
    assert!(failed == 0.0 || !row["policy"].is_null() && row["policy"] != "immediate", "{row}");
    let (average, peak) = (row["avg_mib"].as_f64().unwrap(), row["peak_mib"].as_f64().unwrap());
    assert!(0.0 < average && average <= peak, "{row}");
    if row["peer"].is_null() {
        let (average, peak) = (row["map_avg_mib"].as_f64().unwrap(), row["map_peak_mib"].as_f64().unwrap());
        assert!(0.0 < average && average <= peak, "{row}");
    }
    for moment in ["before", "peak", "after"] {
        assert!(row["threads"][moment].as_u64().unwrap() > 0, "{row}");
    }
    None
}

#[test]
fn every_case_is_measured_under_every_policy_and_on_every_peer() {
    let runner = skep_testkit::runner();
    let report = bench(&["htab-mem", "--quick", "--json", "--runner", &runner]).json();
    let rows = report["rows"].as_array().unwrap();
    let mut missing = Vec::new();
    for case in ["no_op", "overwrite", "batch_add_batch_del", "add_del_on_diff_cpu"] {
        for producers in [1, 2, 8] {
            let policies = POLICIES.map(|policy| (Value::from(policy), Value::Null));
            let peers = PEERS.map(|peer| (Value::Null, Value::from(peer)));
            for (policy, peer) in policies.into_iter().chain(peers) {
                let of = |row: &&Value| {
                    row["case"] == case
                        && row["producers"] == producers
                        && row["policy"] == policy
                        && row["peer"] == peer
                };
                let found: Vec<_> = rows.iter().filter(of).collect();
                assert_eq!(found.len(), 1, "{case} {producers} {policy} {peer}");
                missing.extend(check(found[0]));
                let published = !policy.is_null() && producers == 8 && case != "no_op";
                assert_eq!(found[0]["published"].is_object(), published, "{}", found[0]);
                let alone = producers == 1 && case == "add_del_on_diff_cpu";
                assert_eq!(found[0]["note"].is_string(), alone, "{}", found[0]);
            }
        }
    }
    assert_eq!(rows.len(), 4 * 3 * 8);
    if missing.len() == rows.len() {
        assert!(missing[0].starts_with("its process"), "{}", missing[0]);
        skep_testkit::skip("skep-bench htab-mem", missing[0]);
    }
}

#[test]
fn the_text_shows_the_published_table_too() {
    let said = bench(&["htab-mem", "--quick"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    for word in ["add_del_on_diff_cpu", "call-rcu-first", "papaya", "k loops/s", "published", "targets"] {
        assert!(said.out.contains(word), "{word:?} is missing in: {}", said.out);
    }
}

#[test]
fn a_task_that_makes_no_sense_is_refused() {
    for odd in
        [r#"["overwrite"]"#, r#"["overwrite","immediate",0,10]"#, r#"["overwrite","immediate",1,"soon"]"#]
    {
        assert_eq!(bench(&["htab-mem", "--only", odd]).status, Some(2), "{odd}");
    }
}
