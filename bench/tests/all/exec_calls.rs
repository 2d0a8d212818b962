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
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().unwrap().to_owned();
    let calls: Vec<_> = rows.iter().map(|row| (text(row, "front"), text(row, "call"))).collect();
    let wanted = [
        "supervisor look_up",
        "supervisor look_up_array",
        "library look_up",
        "library look_up_array",
        "supervisor load",
    ];
    let calls: Vec<_> = calls.iter().map(|(front, call)| format!("{front} {call}")).collect();
    assert_eq!(calls, wanted);
    for row in rows {
        assert!(
            row["us"].as_f64() >= row["us_best"].as_f64() && row["us_best"].as_f64() > Some(0.0),
            "{row}"
        );
    }
}
