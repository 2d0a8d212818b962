//! The reports of `skep-bench pack` and `skep-bench poke`.

use super::bench;
use serde_json::Value;
use std::sync::LazyLock;

/// One report for several tests: it takes seconds, and in an emulator minutes.
static PACK: LazyLock<Value> = LazyLock::new(|| bench(&["pack", "--quick", "--json"]).json());

#[test]
fn pack_gives_every_layout_a_time_and_a_size_for_every_row() {
    let report = &*PACK;
    let rows = report["rows"].as_array().unwrap();
    // 3 numbers of programs, 2 sizes, 2 orders, with footprint and without.
    assert_eq!(rows.len(), 24);
    for row in rows {
        assert!(["random", "round-robin"].contains(&row["order"].as_str().unwrap()), "{row}");
        assert!(["none", "large"].contains(&row["footprint"].as_str().unwrap()), "{row}");
        // What is left of two noisy times may be anything; a time itself is positive.
        for field in ["ns_page", "ns_page_coloured", "ns_pack4k"] {
            let ns = row[field].as_f64().unwrap();
            assert!(ns > 0.0 || row["footprint"] == "large", "{field}: {row}");
        }
        assert_ne!(row["ns_pack2m"].is_null(), row["huge_refused"].is_null(), "{row}");
        assert_eq!(row["bytes_per_program"]["page"], 4096.0);
        let code = row["bytes_per_program"]["pack4k"].as_f64().unwrap()
            / row["memory_per_code_byte"]["pack4k"].as_f64().unwrap();
        let size = row["size"].as_f64().unwrap();
        assert!((code / size - 1.0).abs() < 0.1, "{code} bytes of code in a program of {size}");
        assert!(row["n"].as_u64().unwrap() > 0);
    }
    // Either real counters, or the reason why there are none.
    assert_ne!(report["counters"].is_null(), report["counters_missing"].is_null());
}

#[test]
fn pack_puts_the_model_beside_what_was_published() {
    let report = &*PACK;
    let model = &report["model"];
    assert_eq!((&model["loaded"], &model["hot"]), (&160.into(), &100.into()));
    assert_eq!(model["published"]["misses_change_percent"], -63.16);
    assert_eq!(model["published"]["walks_change_percent"], -42.71);
    let names: Vec<&Value> = model["processors"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["zen4", "neoverse-n1"]);
    for processor in model["processors"].as_array().unwrap() {
        let layouts = processor["layouts"].as_array().unwrap();
        assert_eq!(layouts.len(), 3);
        assert!(layouts[2]["l1_change_percent"].as_f64().unwrap() < -30.0, "{processor}");
    }
    assert!(model["sensitivity"].as_array().unwrap().len() >= 12);
    assert!(report["targets"].as_array().unwrap().iter().all(|target| target["met"].is_boolean()));
}

#[test]
fn poke_times_every_batch_and_sees_nothing_torn_or_stale() {
    let report = bench(&["poke", "--quick", "--json"]).json();
    let refused = report["refused"].as_array().unwrap().len();
    assert_eq!(report["rows"].as_array().unwrap().len(), 6 * (2 - refused));
    for row in report["rows"].as_array().unwrap() {
        assert!([1, 16, 64].contains(&row["sites"].as_u64().unwrap()));
        assert!(row["ns_before_barrier"].as_f64().unwrap() > 0.0, "{row}");
        assert!(
            row["ns_per_poke"].as_f64().unwrap() > 0.0 && row["ns_barrier"].as_f64().unwrap() >= 0.0,
            "{row}"
        );
    }
    for check in report["checks"].as_array().unwrap() {
        assert_eq!((&check["torn"], &check["stale"]), (&0.into(), &0.into()), "{check}");
        assert_eq!(check["calls"], 200_000);
        assert!(check["pokes"].as_u64().unwrap() > 0);
    }
}

#[test]
fn poke_takes_full_or_quick_but_not_both() {
    bench(&["poke", "--quick", "--full"]).refused(2, &["--full", "--quick"]);
}
