//! `skep-bench alloc`.

use super::bench;

#[test]
fn allocation_grace_periods_and_sections_are_measured_beside_peers() {
    let report = bench(&["alloc", "--quick", "--json"]).json();
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["ns"].as_f64().unwrap() > 0.0, "{row}");
        assert!((0.0..=1.0).contains(&row["missing"].as_f64().unwrap()), "{row}");
    }
    let policies = ["none", "immediate", "reuse-after-gp", "free-after-gp", "call-rcu-first"];
    let skeps = policies.map(|policy| ("skep", policy.into()));
    let others = ["none", "mimalloc", "malloc"].map(|allocator| (allocator, serde_json::Value::Null));
    for (allocator, policy) in skeps.into_iter().chain(others) {
        for bytes in [32, 256, 4096] {
            for (how, threads) in
                [("one_by_one", 1), ("one_by_one", 2), ("several", 1), ("several", 2), ("across", 2)]
            {
                let of = |row: &&serde_json::Value| {
                    row["allocator"] == allocator
                        && row["policy"] == policy
                        && row["bytes"] == bytes
                        && row["how"] == how
                        && row["threads"] == threads
                };
                assert_eq!(rows.iter().filter(of).count(), 1, "{allocator} {policy} {bytes} {how} {threads}");
            }
        }
    }
    let grace = report["grace"].as_array().unwrap();
    for what in ["synchronize", "synchronize_expedited", "call"] {
        for busy in [false, true] {
            let row = grace.iter().find(|row| row["what"] == what && row["busy"] == busy).unwrap();
            let (median, p99) = (row["median_us"].as_f64().unwrap(), row["p99_us"].as_f64().unwrap());
            assert!(0.0 < median && median <= p99, "{row}");
        }
    }
    let sections = report["sections"].as_array().unwrap();
    for of in [
        "none",
        "skep",
        "skep, sleepable",
        "skep, looked up",
        "crossbeam-epoch",
        "crossbeam-epoch, looked up",
        "seize",
    ] {
        let rows: Vec<_> = sections.iter().filter(|row| row["of"] == of).collect();
        assert_eq!(rows.len(), 2, "{of}");
        assert!(rows.iter().all(|row| row["ns"].as_f64().unwrap() > 0.0), "{of}");
    }
    assert_eq!(report["targets"][0]["target"], 5.0);
    assert!(report["targets"][0]["value"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_text_shows_allocation_too() {
    let said = bench(&["alloc", "--quick"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    for word in ["mimalloc", "across", "synchronize_expedited", "seize", "targets"] {
        assert!(said.out.contains(word), "{word:?} is missing in: {}", said.out);
    }
}
