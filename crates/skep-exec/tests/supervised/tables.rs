//! Applications with the library that looks up in hash tables. Updates are the supervisor's.

use super::preloaded::{answered, at, element, mapped, preloaded};
use super::{bpf, forked, raw, wait};
use skep_exec::possible_cpus;

const HASH: u64 = 1;
const PERCPU_HASH: u64 = 5;
const LRU_HASH: u64 = 9;
const LRU_PERCPU_HASH: u64 = 10;
const NO_PREALLOC: u64 = 1;
const RDONLY_PROG: u64 = 1 << 7;
const UPDATE: u32 = 2;
const DELETE: u32 = 3;
const LOOKUP: u32 = 1;

fn map(kind: u64, key: u64, value: u64, entries: u64, flags: u64) -> i32 {
    bpf(0, &[(0, kind, 4), (4, key, 4), (8, value, 4), (12, entries, 4), (16, flags, 4)]).unwrap() as i32
}

/// A command about an element with a key of any length.
fn keyed(command: u32, map: i32, key: &[u8], value: &mut [u8]) -> Result<(), i32> {
    at(command, map, key.as_ptr() as u64, value.as_mut_ptr() as u64, 0)
}

/// What the supervised application does.
pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "shares tables" => shares_tables(),
        "asks tables for errors" => asks_for_errors(),
        "changes tables" => changes_tables(),
        _ => return false,
    }
    true
}

fn shares_tables() {
    let cpus = possible_cpus().unwrap() as usize;
    for (kind, flags) in [
        (HASH, 0),
        (HASH, NO_PREALLOC),
        (HASH, RDONLY_PROG),
        (PERCPU_HASH, 0),
        (LRU_HASH, 0),
        (LRU_PERCPU_HASH, 0),
    ] {
        let copies = if matches!(kind, PERCPU_HASH | LRU_PERCPU_HASH) { cpus } else { 1 };
        for (key_size, value_size) in
            [(1, 1), (4, 4), (4, 8), (8, 12), (13, 256), (16, 8), (40, 5000), (512, 33)]
        {
            let table = map(kind, key_size, value_size, 50, flags);
            let key = |i: u8| (0..key_size).map(|at| i ^ (at / 3) as u8).collect::<Vec<_>>();
            let one = if copies == 1 { value_size as usize } else { value_size.next_multiple_of(8) as usize };
            let value = |i: u8| {
                let inside = |at: usize| at % one < value_size as usize;
                (0..one * copies).map(|at| if inside(at) { i ^ at as u8 } else { 0 }).collect::<Vec<_>>()
            };
            let found = |i: u8| {
                let mut found = vec![0xee; one * copies + 8];
                let answer = keyed(LOOKUP, table, &key(i), &mut found);
                assert_eq!(&found[one * copies..], &[0xee; 8], "behind the value");
                answer.map(|()| found[..one * copies].to_vec())
            };
            for i in 0..30 {
                assert_eq!(found(i), Err(libc::ENOENT), "{kind} {key_size} {value_size}");
                keyed(UPDATE, table, &key(i), &mut value(i)).unwrap();
                assert_eq!(found(i), Ok(value(i)), "{kind} {key_size} {value_size}");
            }
            keyed(UPDATE, table, &key(9), &mut value(99)).unwrap();
            at(DELETE, table, key(8).as_ptr() as u64, 0, 0).unwrap();
            assert_eq!(found(9), Ok(value(99)), "a change is there at once");
            assert_eq!(found(8), Err(libc::ENOENT), "so is a deletion");
            assert_eq!(found(7), Ok(value(7)));
            // Its buckets and its elements; those of the map before are let go of when the next one is opened.
            assert!((2..=4).contains(&mapped()), "{}", mapped());
            // SAFETY: a descriptor of this test.
            unsafe { libc::close(table) };
        }
    }
}

fn asks_for_errors() {
    let table = map(HASH, 4, 8, 8, 0);
    let mut value = [1u8; 8];
    element(UPDATE, table, 0, &mut value, 0).unwrap();
    element(LOOKUP, table, 0, &mut value, 0).unwrap();
    assert_eq!(mapped(), 2);
    assert_eq!(element(LOOKUP, table, 0, &mut value, 4), Err(libc::EINVAL), "it has no lock");
    assert_eq!(element(LOOKUP, table, 0, &mut value, 2), Err(libc::EINVAL));
    assert_eq!(element(UPDATE, table, 0, &mut value, 1), Err(libc::EEXIST));
    let (key, missing) = (0u32, 5u32);
    let (key, missing) = (&raw const key as u64, &raw const missing as u64);
    let good = value.as_mut_ptr() as u64;
    for wild in [0, 1, 1 << 47, u64::MAX - 3, u64::MAX - 4096] {
        assert_eq!(at(LOOKUP, table, wild, good, 0), Err(libc::EFAULT), "{wild:#x}");
        assert_eq!(at(LOOKUP, table, key, wild, 0), Err(libc::EFAULT), "{wild:#x}");
        assert_eq!(at(LOOKUP, table, missing, wild, 0), Err(libc::ENOENT), "the key comes first: {wild:#x}");
    }
    assert_eq!(at(LOOKUP, table, key, c"constant".as_ptr() as u64, 0), Err(libc::EFAULT));
    let mut attributes = [0u64; 20];
    attributes[..3].copy_from_slice(&[table as u64, missing, good]);
    let address = attributes.as_mut_ptr() as u64;
    for (size, answer) in [(24, Err(libc::ENOENT)), (32, Err(libc::ENOENT)), (20, Err(libc::ENOENT))] {
        assert_eq!(raw(LOOKUP, address, size), answer, "{size}");
    }
    // Nobody can write to the files of a table.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps.lines().filter(|line| line.contains("/memfd:bpf-map")) {
        let range = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [range.0, range.1].map(|bound| usize::from_str_radix(bound, 16).unwrap());
        assert!(line.contains(" r--"), "{line}");
        // A private mapping may become writable: then the page is this process's own.
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the library's mapping, as any code of the process may change it; the pages are not written.
        assert_eq!(unsafe { libc::mprotect(from as *mut _, to - from, both) }, 0);
        assert!(line.contains("r--p"), "{line}");
    }
    // A table whose key is not there leaves errno to say so; one that is there leaves it alone.
    // SAFETY: this thread's own number.
    let errno = unsafe { &mut *libc::__errno_location() };
    *errno = 77;
    element(LOOKUP, table, 0, &mut value, 0).unwrap();
    assert_eq!(*errno, 77);
}

/// Children change a table while the parent looks up: keys that stay are always found, with one whole value.
fn changes_tables() {
    const STAY: u32 = 4;
    const WORDS: usize = 64;
    let table = map(HASH, 4, WORDS as u64 * 8, 16, 0);
    let value = |key: u32, round: u64| u64::to_ne_bytes(u64::from(key) << 32 | round).repeat(WORDS);
    for key in 0..STAY {
        element(UPDATE, table, key, &mut value(key, 0), 0).unwrap();
    }
    let children: Vec<_> = (0..2u32)
        .map(|child| {
            forked(|| {
                for round in 1..=1500 {
                    let key = (round as u32 * 2 + child) % STAY;
                    element(UPDATE, table, key, &mut value(key, round), 0).unwrap();
                    let other = STAY + round as u32 % 5;
                    // The other child may have filled the table, or deleted the key.
                    let _full = element(UPDATE, table, other, &mut value(other, round), 0);
                    let gone = STAY + (round as u32 + child) % 5;
                    let _gone = at(DELETE, table, &raw const gone as u64, 0, 0);
                }
            })
        })
        .collect();
    for turn in 0..200_000 {
        let key = turn % (STAY + 5);
        let mut found = vec![0; WORDS * 8];
        if element(LOOKUP, table, key, &mut found, 0).is_err() {
            assert!(key >= STAY, "{key} is always there");
            continue;
        }
        let (words, _) = found.as_chunks::<8>();
        assert!(words.iter().all(|word| *word == words[0]), "a torn value of {key}");
        assert_eq!(u64::from_ne_bytes(words[0]) >> 32, u64::from(key));
    }
    children.into_iter().for_each(wait);
}

#[test]
fn tables_are_read_without_the_supervisor() {
    let Some((status, traced, _)) = preloaded("shares tables") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
    assert_eq!(answered(&traced, "BPF_MAP_LOOKUP_ELEM"), 0);
}

#[test]
fn errors_of_tables_are_those_of_the_supervisor() {
    let Some((status, traced, _)) = preloaded("asks tables for errors") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn tables_that_other_processes_change_are_read_whole() {
    let Some((status, traced, _)) = preloaded("changes tables") else { return };
    assert!(status.success(), "{status}");
    let asked = answered(&traced, "BPF_MAP_LOOKUP_ELEM");
    assert!(asked < 20_000, "{asked} of 200,000 look-ups came to the supervisor");
}
