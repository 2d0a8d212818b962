//! `skep-bench exec-calls`.

use super::bench;

#[test]
fn an_application_under_the_supervisor_says_what_its_calls_take() {
    let said = bench(&["exec-calls", "--quick", "--json"]);
    if said.err.contains("cannot supervise the application") {
        return skep_testkit::skip("calls of an application under the supervisor", &said.err);
    }
    let report = said.json();
    let rows = report["rows"].as_array().unwrap();
    let calls: Vec<_> = rows.iter().map(|row| row["call"].as_str().unwrap()).collect();
    assert_eq!(calls, ["look_up", "load"]);
    for row in rows {
        assert!(
            row["us"].as_f64() >= row["us_best"].as_f64() && row["us_best"].as_f64() > Some(0.0),
            "{row}"
        );
        assert_eq!(row["front"], "supervisor");
    }
}
