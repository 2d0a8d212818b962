//! The peak of resident memory belongs to the whole process, so what measures it is tested in a process where nothing
//! else runs: this file has one test.

#[path = "../src/process.rs"]
#[expect(dead_code, reason = "the benchmarks use the rest")]
mod process;

use process::peak_of;

#[test]
fn memory_that_was_used_and_given_back_counts() {
    let (_, Some(before)) = peak_of(|| ()) else {
        skep_testkit::skip("peak of resident memory", "the system does not count it");
        return;
    };
    let grown_by = |bytes: usize| {
        let (_, peak) = peak_of(|| drop(std::hint::black_box(vec![1u8; bytes])));
        peak.unwrap().saturating_sub(before)
    };
    let (large, small) = (grown_by(256 << 20), grown_by(64 << 20));
    assert!(large >= 240 << 20 && small >= 48 << 20, "{large} {small}");
    assert!(small < large, "{small} of memory that was used since, not of before: {large}");
}
