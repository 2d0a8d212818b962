//! The peak of resident memory belongs to the whole process, so what measures it is tested in a process where nothing
//! else runs: this file has one test.

#[path = "../src/verify/resident.rs"]
mod resident;

use resident::Growth;

#[test]
fn memory_that_was_used_and_given_back_counts() {
    let Some(growth) = Growth::start() else {
        skep_testkit::skip("peak of resident memory", "the system does not count it");
        return;
    };
    let (_, large) = growth.peak_of(|| drop(std::hint::black_box(vec![1u8; 256 << 20])));
    let (_, small) = growth.peak_of(|| drop(std::hint::black_box(vec![1u8; 64 << 20])));
    let (large, small) = (large.unwrap(), small.unwrap());
    assert!(large >= 240 << 20 && small >= 48 << 20, "{large} {small}");
    assert!(small < large, "{small} of memory that was used since, not of before: {large}");
}
