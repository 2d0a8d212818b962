//! The report of `skep-bench flow-dissector`.

use super::bench;

#[test]
fn every_packet_is_measured_in_every_variant() {
    let report = bench(&["flow-dissector", "--quick", "--json"]).json();
    assert_eq!((&report["rounds"], &report["placements"]), (&2.into(), &1.into()));
    assert!(report["arch"].is_string() && report["cpu"].is_string());
    let floor = report["floor"]["ns"].as_f64().unwrap();
    assert!(floor > 0.0, "{}", report["floor"]);
    let rows = report["rows"].as_array().unwrap();
    let variants = [(true, true), (true, false), (false, true), (false, false)];
    for (tail_calls, map_update) in variants {
        let rows =
            rows.iter().filter(|row| row["tail_calls"] == tail_calls && row["map_update"] == map_update);
        let packets: Vec<_> = rows.map(|row| row["packet"].as_str().unwrap()).collect();
        let wanted =
            ["ipv4", "ipv6_extensions", "vlan", "vlan_double", "mpls", "gre", "ip_in_ip", "fragment"];
        assert_eq!(packets, wanted);
    }
    assert_eq!(rows.len(), variants.len() * 8);
    for row in rows {
        let ns = row["ns"].as_f64().unwrap();
        assert!(ns > 0.0 && ns <= row["ns_median"].as_f64().unwrap(), "{row}");
        assert!((ns - floor - row["ns_net"].as_f64().unwrap()).abs() < 1e-6, "{row}");
        for linux in ["ns_linux", "ns_linux_net"] {
            assert!(row[linux].is_null(), "{row}");
        }
    }
    assert!(report["linux_release"].is_null() && report["linux_unavailable"].is_null());
    assert_eq!(report["targets"], serde_json::json!([]));
}

#[test]
fn the_text_shows_the_dissector_too() {
    let said = bench(&["flow-dissector", "--quick"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    for words in ["ns a packet", "ipv6_extensions", "tail calls", "map update"] {
        assert!(said.out.contains(words), "{words:?} is missing in: {}", said.out);
    }
}
