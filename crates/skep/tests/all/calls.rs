//! Hostile sequences of the system call bpf(2).

#[path = "../oracle/sys.rs"]
mod oracle;

/// `SKEP_SEED` sets the first seed, `SKEP_CASES` the number of sequences.
#[test]
fn hostile_calls_write_only_where_they_may_and_leave_nothing() {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    let (first, cases) = (number("SKEP_SEED").unwrap_or(1), number("SKEP_CASES").unwrap_or(20));
    let mut done = 0;
    for seed in first..first + cases {
        println!("SKEP_SEED={seed} SKEP_CASES=1");
        done += oracle::check(&mut skep_testgen::Source::from_seed(seed), 500);
    }
    assert!(
        u64::from(done) > cases * 100,
        "only {done} calls were done: the calls are too wild to test much"
    );
}
