//! The load test's report.

use super::bench;

#[test]
fn the_load_test_reports_where_its_time_went() {
    let report = bench(&["load", "--quick", "--json"]).json();
    assert_eq!(report["quick"], true);
    let (programs, instructions) =
        (report["programs"].as_u64().unwrap(), report["instructions"].as_u64().unwrap());
    assert!(programs >= 20 && instructions > 1000 * programs, "{programs} of {instructions} instructions");
    for number in ["seconds", "cpu_seconds", "ns_per_program", "ns_per_instruction", "code_bytes"] {
        assert!(report[number].as_f64().unwrap() > 0.0, "{number}");
    }
    assert!(report["background_cpu_seconds"].as_f64().unwrap() >= 0.0);

    let shares = report["shares"].as_array().unwrap();
    let names: Vec<_> = shares.iter().map(|share| share["what"].as_str().unwrap()).collect();
    assert_eq!(names, ["tag", "verify", "compile", "install", "free", "other"]);
    let whole: f64 = shares.iter().map(|share| share["percent"].as_f64().unwrap()).sum();
    assert!((whole - 100.0).abs() < 1.0, "{whole} per cent");

    let published: Vec<_> =
        report["published"].as_array().unwrap().iter().map(|row| row["seconds"].as_f64().unwrap()).collect();
    assert_eq!(published, [21.487, 19.695, 16.0]);
}

#[test]
fn installation_and_allocation_are_measured_beside_a_page_for_each_program() {
    let report = bench(&["load", "--quick", "--json"]).json();
    let backings = report["install"].as_array().unwrap();
    assert!(!backings.is_empty());
    for install in backings {
        assert_eq!(install["bytes"], 400);
        for number in ["ns", "page_ns", "free_ns", "page_free_ns"] {
            assert!(install[number].as_f64().unwrap() > 0.0, "{number}: {install}");
        }
    }
    for number in ["programs", "average_bytes", "allocate_ns", "free_ns", "replaced"] {
        assert!(report["crowded"][number].as_f64().unwrap() > 0.0, "{number}");
    }
    for share in ["utilisation_percent", "chunk_utilisation_percent"] {
        let share = report["crowded"][share].as_f64().unwrap();
        assert!((1.0..=100.0).contains(&share), "{share}");
    }
    let targets = report["targets"].as_array().unwrap();
    assert!(targets.len() >= 4);
    for target in targets {
        let (value, limit) = (target["value"].as_f64().unwrap(), target["target"].as_f64().unwrap());
        let enough = if target["at_least"] == true { value >= limit } else { value <= limit };
        assert_eq!(target["met"], enough, "{target}");
    }
}

#[test]
fn the_text_shows_the_load_test_too() {
    let said = bench(&["load", "--quick"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    for words in ["instructions in all", "verify", "own page", "% of the memory is code", "targets"] {
        assert!(said.out.contains(words), "{words:?} is missing in: {}", said.out);
    }
}
