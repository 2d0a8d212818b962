//! Damaged files: truncated, overwritten, invented. `oracle/load.rs` has the properties that each must keep.

use crate::oracle;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const FIREWALL: &[u8] = include_bytes!("../../../../examples/firewall.bpf.o");
const BALANCER: &[u8] = include_bytes!("../../../../examples/balancer.bpf.o");
const LINKAGE: &[u8] = include_bytes!("../objects/linkage.bpf.o");
const CORE: &[u8] = include_bytes!("../objects/core.bpf.o");
const KERNEL: &[u8] = include_bytes!("../objects/kernel.bpf.o");
const REFUSED: &[u8] = include_bytes!("../objects/refused.bpf.o");

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    for object in [FIREWALL, LINKAGE] {
        assert!(oracle::check(object) > 0);
        for end in 0..object.len() {
            let error = skep_elf::Object::parse(&object[..end]).expect_err("the section headers come last");
            assert!(!error.to_string().is_empty(), "{end}");
        }
    }
}

#[test]
fn any_byte_of_the_headers_may_be_wrong() {
    for object in [LINKAGE, FIREWALL] {
        let mut bytes = object.to_vec();
        let mut survivors = 0;
        for at in header_bytes(object).into_iter().step_by(sample()) {
            let right = bytes[at];
            let flipped = (0..8).map(|bit| right ^ 1 << bit);
            for wrong in flipped.chain([0, 1, 0x7f, 0x80, 0xff]) {
                bytes[at] = wrong;
                survivors += oracle::check(&bytes);
            }
            bytes[at] = right;
        }
        assert!(survivors > 1000, "{survivors}: the damage never gets past the first check");
    }
}

#[test]
fn any_word_of_types_symbols_and_relocations_may_be_wrong() {
    for object in [LINKAGE, BALANCER] {
        let mut bytes = object.to_vec();
        let mut survivors = 0;
        for (start, end) in table_sections(object) {
            for at in (start..end - 3).step_by(4 * sample()) {
                let right: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
                for wrong in [0, 1, 8, 0x0fff_ffff, u32::MAX, u32::from_le_bytes(right).wrapping_add(1)] {
                    bytes[at..at + 4].copy_from_slice(&wrong.to_le_bytes());
                    survivors += oracle::check(&bytes);
                }
                bytes[at..at + 4].copy_from_slice(&right);
            }
        }
        assert!(survivors > 1000, "{survivors}: the damage never gets past the first check");
    }
}

#[test]
fn any_bytes_anywhere_may_be_wrong() {
    let objects = prop::sample::select(vec![FIREWALL, BALANCER, LINKAGE, REFUSED, CORE, KERNEL]);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12);
    runner(3000)
        .run(&(objects, changes), |(object, changes)| {
            let mut bytes = object.to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            oracle::check(&bytes);
            Ok(())
        })
        .unwrap();
}

#[test]
fn any_words_of_the_tables_may_be_wrong_together() {
    let objects = prop::sample::select(vec![BALANCER, LINKAGE, CORE, KERNEL]);
    let word = prop_oneof![0u32..64, any::<u32>(), Just(u32::MAX), Just(0x8000_0000)];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), word), 1..6);
    runner(3000)
        .run(&(objects, changes), |(object, changes)| {
            let mut bytes = object.to_vec();
            let tables = table_sections(object);
            for (place, word) in changes {
                let (start, end) = tables[place.index(tables.len())];
                let at = start + place.index((end - start) / 4) * 4;
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            oracle::check(&bytes);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_header_followed_by_noise_is_refused() {
    runner(2000)
        .run(&prop::collection::vec(any::<u8>(), 44..2000), |noise| {
            let mut bytes = FIREWALL[..20].to_vec();
            bytes.extend(noise);
            oracle::check(&bytes);
            Ok(())
        })
        .unwrap();
}

/// Every position, or every third under an emulator, which would take a minute for all.
fn sample() -> usize {
    if skep_testkit::is_emulated() { 3 } else { 1 }
}

/// A generator with the same cases in every run.
fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    TestRunner::new_with_rng(config, rng)
}

/// The file header, the section headers, and the headers of `.BTF` and `.BTF.ext`.
fn header_bytes(object: &[u8]) -> Vec<usize> {
    let headers = u64_at(object, 40) as usize;
    let mut places: Vec<usize> = (0..64).chain(headers..object.len()).collect();
    for (start, _) in
        sections(object).into_iter().filter(|(start, _)| object[*start..].starts_with(&[0x9f, 0xeb]))
    {
        places.extend(start..start + 32);
    }
    places
}

/// `.BTF`, `.BTF.ext`, the symbols, and relocations of loaded sections. The many relocations of `.BTF.ext` and of
/// debugging information are never read, so damage to them would test nothing.
fn table_sections(object: &[u8]) -> Vec<(usize, usize)> {
    let small_relocations = |start: usize, end: usize| end - start < 400 && (end - start).is_multiple_of(16);
    sections(object)
        .into_iter()
        .enumerate()
        .filter(|&(index, (start, end))| {
            let header = u64_at(object, 40) as usize + index * 64;
            match object[header + 4] {
                2 => true,
                9 => small_relocations(start, end),
                _ => object[start..end].starts_with(&[0x9f, 0xeb]),
            }
        })
        .map(|(_, range)| range)
        .collect()
}

/// The byte ranges of sections in an undamaged file, by index.
fn sections(object: &[u8]) -> Vec<(usize, usize)> {
    let headers = u64_at(object, 40) as usize;
    let ranges = object[headers..].chunks_exact(64).map(|header| {
        let start = u64_at(header, 24) as usize;
        let size = if header[4] == 8 { 0 } else { u64_at(header, 32) as usize };
        (start, start + size)
    });
    ranges.collect()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
