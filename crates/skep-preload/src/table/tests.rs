//! Look-ups through a second mapping of a table, which stands for that of another process.

use super::*;
use crate::copy;
use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use skep_abi::{MapDef, MapKind};
use skep_maps::{Map, Options, Reclamation, UpdateFlags};
use skep_mem::Policy;
use skep_rcu::Domain;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::thread;

const CPUS: u32 = 4;

struct Shared {
    map: Map,
    base: usize,
    len: usize,
    table: Table,
}

impl Shared {
    fn new(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32, policy: Policy) -> Self {
        let memory = Reclamation { policy, ..Reclamation::new(Domain::new(CPUS).unwrap()) };
        let def = MapDef::new("table", kind, key_size, value_size, max_entries);
        let options = Options { cpus: CPUS, limit: 1 << 30 };
        let map = Map::create_shared_in(&memory, &def, &options).unwrap();
        let shared = map.shared_table().unwrap();
        let buckets_len = (shared.bucket_count as usize * BUCKET).next_multiple_of(4096);
        let values = if shared.cpu_stride == 0 {
            value_size.next_multiple_of(8) as usize
        } else {
            shared.cpu_stride * CPUS as usize
        };
        let table = Table {
            key_size: key_size as usize,
            buckets: mapped(shared.buckets, buckets_len, 0),
            buckets_len,
            mask: shared.bucket_count as usize - 1,
            address: shared.address,
            last: shared.len - shared.values_at - values,
            values_at: shared.values_at,
            seed: shared.seed.map(|number| number as usize),
        };
        let base = mapped(shared.elements, shared.len, shared.offset as u64);
        Self { base, len: shared.len, table, map }
    }

    /// The value of the first CPU.
    fn look_up(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let mut words = vec![0; key.len().div_ceil(8)];
        // SAFETY: the key's bytes, and as many words.
        unsafe { copy::key(key.as_ptr(), key.len(), &mut words) };
        let mut value = vec![0; self.map.def().value_size as usize];
        // SAFETY: both parts are mapped; the element has a value of that size.
        let found = unsafe {
            self.table.look_up(self.base, &words, |from| copy::read(from, value.as_mut_ptr(), value.len()))
        };
        found.map(|found| found.then_some(value))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mappings of `new`, which nobody uses any more.
        unsafe {
            munmap(self.base as *mut _, self.len).unwrap();
            munmap(self.table.buckets as *mut _, self.table.buckets_len).unwrap();
        }
    }
}

fn mapped(file: BorrowedFd<'_>, len: usize, offset: u64) -> usize {
    // SAFETY: new mappings at addresses that the system chooses.
    unsafe {
        assert!(mmap(ptr::null_mut(), len, ProtFlags::WRITE, MapFlags::SHARED, file, offset).is_err());
        mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset).unwrap() as usize
    }
}

#[test]
fn keys_and_values_of_every_size_are_found_as_the_host_finds_them() {
    for kind in [MapKind::Hash, MapKind::LruHash, MapKind::PercpuHash, MapKind::LruPercpuHash] {
        for key_size in [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 32, 40, 64, 65, 100, 511, 512] {
            for value_size in [1, 8, 12, 300] {
                let shared = Shared::new(kind, key_size, value_size, 40, Policy::ReuseAfterGp);
                let key =
                    |i: u8| -> Vec<u8> { (0..key_size as u8 as usize).map(|at| i ^ at as u8).collect() };
                let key = |i: u8| {
                    let mut key = key(i);
                    key.resize(key_size as usize, i);
                    key
                };
                let one = value_size.next_multiple_of(8) as usize;
                let copies = if shared.map.def().kind.is_per_cpu() { CPUS as usize } else { 1 };
                for i in 0..30 {
                    let mut value = vec![i ^ 0x5a; value_size as usize];
                    if copies > 1 {
                        value.resize(one * copies, 0);
                    }
                    shared.map.update(&key(i), &value, UpdateFlags::Any).unwrap();
                }
                for i in 0..40 {
                    let expected = (i < 30).then(|| vec![i ^ 0x5a; value_size as usize]);
                    assert_eq!(shared.look_up(&key(i)), Some(expected), "{kind} {key_size} {value_size} {i}");
                }
                shared.map.delete(&key(7)).unwrap();
                assert_eq!(shared.look_up(&key(7)), Some(None));
            }
        }
    }
}

/// Keys that stay are replaced, others come and go in the same buckets, and a reader finds each key that stays, with
/// one whole value of its own.
fn read_while_others_write(kind: MapKind, policy: Policy) {
    const STAY: u64 = 4;
    // Long values: a reader is more likely to be overtaken.
    let shared = Shared::new(kind, 8, 4096, 16, policy);
    let value = |key: u64, round: u64| (key << 32 | round).to_ne_bytes().repeat(512);
    for key in 0..STAY {
        shared.map.update(&key.to_ne_bytes(), &value(key, 0), UpdateFlags::Any).unwrap();
    }
    let done = AtomicBool::new(false);
    let (answers, asked) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=30_000_u64 {
                for key in [round % STAY, STAY + round % 7] {
                    shared.map.update(&key.to_ne_bytes(), &value(key, round), UpdateFlags::Any).unwrap();
                }
                // What never came cannot go.
                let _gone = shared.map.delete(&(STAY + round * 3 % 7).to_ne_bytes());
            }
            done.store(true, Ordering::Relaxed);
        });
        let (mut answers, mut asked) = (0_u64, 0_u64);
        while !done.load(Ordering::Relaxed) || asked < 10_000 {
            let key = asked % (STAY + 7);
            asked += 1;
            let Some(found) = shared.look_up(&key.to_ne_bytes()) else { continue };
            answers += 1;
            let Some(found) = found else {
                assert!(key >= STAY, "{key} is always there");
                continue;
            };
            let (words, _) = found.as_chunks::<8>();
            assert!(words.iter().all(|word| *word == words[0]), "a torn value of {key}");
            assert_eq!(u64::from_ne_bytes(words[0]) >> 32, key, "another key's value");
        }
        writer.join().unwrap();
        (answers, asked)
    });
    assert!(answers * 10 > asked, "{answers} of {asked} look-ups were answered");
}

#[test]
fn readers_in_another_mapping_see_whole_elements() {
    for policy in [Policy::Immediate, Policy::ReuseAfterGp] {
        read_while_others_write(MapKind::Hash, policy);
        read_while_others_write(MapKind::LruHash, policy);
    }
}

#[test]
fn a_bucket_that_somebody_changes_is_left_to_the_supervisor() {
    let word = AtomicU64::new(5 << 17);
    let attempt = Attempt::begin(&word).unwrap();
    assert!(attempt.is_valid());
    word.store(6 << 17, Ordering::Relaxed);
    assert!(!attempt.is_valid());
    word.store(6 << 17 | 1, Ordering::Relaxed);
    assert!(Attempt::begin(&word).is_none());
}

#[test]
fn links_that_lead_nowhere_end_the_walk() {
    // One bucket, and one element whose link leads astray.
    let key = 7_u64;
    for link in [8_u64, 0xffff_ffff_ffff_fff8, 0x1000 + 24, 0x1000 + 4, 0x1000 + 16, 1] {
        let elements = [link, 99, 0, 0];
        let buckets = [0x1000_u64, 0];
        let table = Table {
            key_size: 8,
            buckets: buckets.as_ptr().expose_provenance(),
            address: 0x1000,
            last: 8,
            values_at: 16,
            ..Table::default()
        };
        // SAFETY: a bucket and the elements' memory; nothing is copied.
        let found =
            unsafe { table.look_up(elements.as_ptr().expose_provenance(), &[key], |_| panic!("copied")) };
        assert_eq!(found, None, "{link:#x}");
    }
}
