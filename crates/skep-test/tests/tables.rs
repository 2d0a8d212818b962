//! Tables that are damaged: an error with a line, and never a panic.

mod oracle;

const TABLE: &str = r#"
object = "x.bpf.o"
clock = "5s"
maps.m = [{ key = 1, value = "be16:7" }]

[[test]]
name = "a {n}"
packet = 'eth()/ip4(src=10.0.0.{n})/tcp(dport=80,options=[mss(1460)])/"x"'
cases = [{ n = 1, verdict = "drop" }, { n = 2, verdict = 3 }]
expect = { verdict = "{verdict}", maps = { m = { only = [{ key = 1, value = 2 }], len = 1 } } }

[[test]]
name = "b"
world = { seed = 1, device = [{ name = "eth0" }] }

[[test.step]]
hex = "0102"
repeat = 2
after = "20ms"
expect.printed = ["x"]

[[test.step]]
after = "1s"
"#;

#[test]
fn a_table_has_its_tests() {
    assert_eq!(skep_test::check_text(TABLE), Ok(3));
}

#[test]
fn a_table_without_one_of_its_characters_is_a_table_or_an_error_in_a_line() {
    for at in 0..TABLE.len() {
        let mut text = TABLE.to_owned();
        text.remove(at);
        oracle::reads(&text);
        oracle::reads(&TABLE[..at]);
    }
}

#[test]
fn two_lines_exchanged_are_a_table_or_an_error_in_a_line() {
    let lines: Vec<&str> = TABLE.lines().collect();
    for a in 0..lines.len() {
        for b in 0..a {
            let mut lines = lines.clone();
            lines.swap(a, b);
            oracle::reads(&lines.join("\n"));
        }
    }
}

#[test]
fn a_step_runs_at_most_a_million_times() {
    let table = |runs: u32| TABLE.replace("repeat = 2", &format!("repeat = {runs}"));
    assert_eq!(skep_test::check_text(&table(1_000_000)), Ok(3));
    let error = skep_test::check_text(&table(1_000_001)).unwrap_err();
    let line = TABLE.lines().position(|line| line.starts_with("repeat")).unwrap() + 1;
    assert_eq!(error.line, line);
    assert!(error.text.contains("at most 1000000"), "{error}");
}
