//! The report of `skep-bench verify`.

use super::bench;

#[test]
fn verification_is_measured_for_every_program_and_in_sum() {
    let report = bench(&["verify", "--quick", "--json"]).json();
    assert_eq!(report["rounds"], 2);
    assert!(report["arch"].is_string() && report["cpu"].is_string());
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        for text in ["program", "group", "what"] {
            assert!(!row[text].as_str().unwrap().is_empty(), "{text}: {row}");
        }
        for number in ["insns", "walked", "us", "us_best", "ns_per_walked"] {
            assert!(row[number].as_f64().unwrap() > 0.0, "{number}: {row}");
        }
        assert!(row["peak_states"].is_u64() && row["peak_bytes"].is_u64(), "{row}");
        assert!(row["us_best"].as_f64().unwrap() <= row["us"].as_f64().unwrap(), "{row}");
        assert_eq!(row["turns"], 2, "{row}");
        let per_walked = row["us"].as_f64().unwrap() * 1e3 / row["walked"].as_f64().unwrap();
        assert!((row["ns_per_walked"].as_f64().unwrap() / per_walked - 1.0).abs() < 1e-6, "{row}");
    }
    let of = |group: &str| rows.iter().filter(|row| row["group"] == group).count();
    assert!(of("examples") >= 8 && of("exec") >= 20 && of("generated") >= 9, "{}", rows.len());
    assert_eq!(of("look-alikes"), 4);
    let named = |name: &str| rows.iter().find(|row| row["program"] == name).unwrap();
    assert_eq!(
        (&named("straight_stack")["insns"], &named("straight_stack")["walked"]),
        (&4000.into(), &4000.into())
    );
    assert_eq!(named("switch_counter")["insns"], 81);
    for name in ["diamonds_apart", "diamonds_deep"] {
        assert!((10_000..20_000).contains(&named(name)["walked"].as_u64().unwrap()), "{name}");
    }
    assert!(named("long_loop")["walked"].as_u64().unwrap() > 900_000);
    assert!(named("long_loop")["peak_bytes"].as_u64().unwrap() > 1 << 20);

    let sums = report["sums"].as_array().unwrap();
    let names: Vec<_> = sums.iter().map(|sum| sum["of"].as_str().unwrap()).collect();
    assert_eq!(names, ["own", "generated", "look-alikes", "all"]);
    let walked: u64 = rows.iter().map(|row| row["walked"].as_u64().unwrap()).sum();
    assert_eq!(sums[3]["walked"].as_u64(), Some(walked));
    assert_eq!(sums[3]["programs"].as_u64(), Some(rows.len() as u64));
    for sum in sums {
        for (best, median) in [("us_best", "us"), ("ns_per_walked_best", "ns_per_walked")] {
            let (best, median) = (sum[best].as_f64().unwrap(), sum[median].as_f64().unwrap());
            assert!(0.0 < best && best <= median, "{sum}");
        }
    }
}

#[test]
fn what_was_to_be_reached_stands_beside_what_was() {
    let report = bench(&["verify", "--quick", "--json"]).json();
    let targets = report["targets"].as_array().unwrap();
    let wanted: Vec<_> = targets
        .iter()
        .map(|target| (target["target"].as_f64().unwrap(), target["unit"].as_str().unwrap()))
        .collect();
    assert_eq!(
        wanted,
        [(100.0, "ns"), (100.0, "ns"), (100.0, "ns"), (250.0, "us"), (20.0, "ms"), (64.0, "MiB")]
    );
    for target in targets {
        let (value, limit) = (target["value"].as_f64().unwrap(), target["target"].as_f64().unwrap());
        assert!(value > 0.0 && target["at_least"] == false, "{target}");
        assert_eq!(target["met"], value <= limit, "{target}");
    }
}

#[test]
fn the_text_shows_verification_too() {
    let said = bench(&["verify", "--quick"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    for words in ["ns/walked", "switch_counter", "firewall", "in sum", "at most 250"] {
        assert!(said.out.contains(words), "{words:?} is missing in: {}", said.out);
    }
}
