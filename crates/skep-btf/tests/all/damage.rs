//! Untrusted bytes: every query on them is answered or refused, in bounded time.

use crate::oracle;
use crate::support::Types;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn sample() -> Vec<u8> {
    let mut types = Types::new();
    let int = types.signed("int", 4);
    let node = types.composite(4, "node", 16, &[("color", int, 0), ("left", 3, 8)]);
    let pointer = types.pointer(node);
    let nodes = types.array(node, 4);
    let either = types.composite(5, "", 8, &[("word", int, 0), ("link", pointer, 0)]);
    let flags = types.bit_fields("flags", 4, &[("on", int, 0, 1), ("level", int, 1, 11)]);
    types.composite(4, "root", 96, &[("nodes", nodes, 0), ("", either, 64), ("flags", flags, 72)]);
    types.enumeration("e", &[("A", -1), ("B", 1)]);
    let function = types.function("f", 1, int, &[("p", pointer)]);
    types.add("tag", 17, 0, function, &[0]);
    types.data_section(".data", &[("v", int, 0, 4)]);
    types.build()
}

#[test]
fn any_word_may_be_wrong() {
    let right = sample();
    assert!(oracle::check(&right));
    for at in (0..right.len() - 3).step_by(4) {
        let mut bytes = right.clone();
        for wrong in [0, 1, 3, 7, 12, 0x0500_0001, 0x8400_ffff, 0x7fff_ffff, u32::MAX] {
            bytes[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
            oracle::check(&bytes);
        }
    }
    for end in 0..right.len() {
        oracle::check(&right[..end]);
    }
}

#[test]
fn several_bytes_may_be_wrong_together() {
    let right = sample();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12);
    runner(4000)
        .run(&changes, |changes| {
            let mut bytes = right.clone();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            oracle::check(&bytes);
            Ok(())
        })
        .unwrap();
    runner(500)
        .run(&prop::collection::vec(0u32..24, 3..60), |words| {
            let mut types = Types::new();
            types.string("abc___def");
            for part in words.chunks(3) {
                let kind = part[0].clamp(1, 19);
                let count = u32::from([4, 5, 6, 13, 15, 19].contains(&kind));
                types.add(
                    "",
                    kind,
                    count,
                    part[part.len() - 1],
                    &[1, part[part.len() / 2], 32, 0][..tail(kind)],
                );
            }
            oracle::check(&types.build());
            Ok(())
        })
        .unwrap();
}

/// The number of words after the header of a type of that kind with at most one element.
fn tail(kind: u32) -> usize {
    match kind {
        1 | 14 | 17 => 1,
        6 | 13 => 2,
        3..=5 | 15 | 19 => 3,
        _ => 0,
    }
}

/// A generator with the same cases in every run.
fn runner(cases: u32) -> TestRunner {
    // Under Miri a case takes a thousand times as long.
    let cases = if cfg!(miri) { cases / 100 } else { cases };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    TestRunner::new_with_rng(config, rng)
}
