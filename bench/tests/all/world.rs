//! `skep-bench world`.

use super::bench;

#[test]
fn each_chain_is_measured_by_the_world_and_by_the_host() {
    let report = bench(&["world", "--quick", "--json"]).json();
    let rows = report["rows"].as_array().unwrap();
    let chains: Vec<_> = rows.iter().map(|row| row["chain"].as_str().unwrap()).collect();
    assert_eq!(chains, ["redirect", "attached", "devmap", "routed", "many-routes"]);
    for row in rows {
        assert!(row["ns_world"].as_f64().unwrap() > 0.0 && row["ns_host"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["ns_hop"].is_number(), "{row}");
        assert_eq!(row["packets_checked"], 1000);
    }
    assert_eq!(report["targets"].as_array().unwrap().len(), 5);
}

#[test]
fn the_text_shows_hops_too() {
    let said = bench(&["world", "--quick"]);
    assert_eq!(said.status, Some(0));
    for word in ["redirect", "routed", "a hop more", "targets"] {
        assert!(said.out.contains(word), "{word:?} is missing in: {}", said.out);
    }
}

#[test]
fn a_chain_can_be_measured_alone() {
    let report = bench(&["world", "--quick", "--json", "--chain", "devmap"]).json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["chain"], "devmap");
}
