//! Maps are created and dropped repeatedly, and nothing grows: neither memory nor mappings nor threads.
//!
//! A million times in release mode, fewer otherwise; `SKEP_CYCLES` sets the number.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{CPUS, create, def, prefix, program_delete, program_update};
use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, Options, Policy, Reclamation, UpdateFlags};
use skep_rcu::Domain;
use skep_testkit::say;

/// Serialises the tests, which measure the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes by which resident memory may differ: what the allocator keeps and pages that were not touched before.
const SLACK: usize = 4 << 20;
/// The resources of the process.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    resident: usize,
    mappings: usize,
    threads: usize,
}

impl Holdings {
    fn now() -> Self {
        let resident = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = resident.split(' ').nth(1).unwrap().parse().unwrap();
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mappings = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        Self { resident: pages * page, mappings, threads }
    }

    /// The resources once they stop shrinking.
    fn settled() -> Self {
        let (mut now, mut same) = (Self::now(), 0);
        while same < 8 {
            std::thread::sleep(Duration::from_millis(10));
            let next = Self::now();
            same = if next.threads < now.threads || next.mappings < now.mappings { 0 } else { same + 1 };
            now = next;
        }
        now
    }

    /// Waits for resources that are still being freed, then compares. `few`: how many more mappings the allocator may
    /// have.
    fn assert_no_growth(self, few: usize, what: &str) {
        let mut now = Self::now();
        for _ in 0..1000 {
            let threads = now.threads <= self.threads;
            // An emulator's memory and mappings are not compared: it translates code and keeps the translations.
            let memory = skep_testkit::is_emulated()
                || (now.mappings <= self.mappings + few && now.resident <= self.resident + SLACK);
            if threads && memory {
                return say(&format!("MEASURED: {what}: {self:?}, then {now:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
            now = Self::now();
        }
        panic!("{what}: {self:?} before, {now:?} after");
    }
}

fn cycles() -> u64 {
    let usual = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let usual = if skep_testkit::is_emulated() { usual / 20 } else { usual };
    std::env::var("SKEP_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Creates a map, uses it a little, and drops it, `times` times.
fn cycle(def: &MapDef, memory: Option<&Reclamation>, times: u64) {
    for round in 0..times {
        let map = match memory {
            Some(memory) => Map::create_in(memory, def, &Options { cpus: CPUS, limit: 1 << 30 }),
            None => create(def),
        };
        let map = map.unwrap();
        // No element, one element, or several with some of them deleted.
        for number in 0..round % 4 {
            assert_eq!(program_update(&map, &key(&map, number), &[round as u8; 16], 0, 1), 0);
        }
        if round % 8 == 3 {
            assert_eq!(program_delete(&map, &key(&map, 1)), 0);
            map.update(&key(&map, 5), &vec![1; map.host_value_size()], UpdateFlags::NoExist).unwrap();
        }
    }
}

fn key(map: &Map, number: u64) -> Vec<u8> {
    match map.kind() {
        MapKind::LpmTrie => prefix(32, &(number as u32).to_be_bytes()),
        _ => (number as u32).to_ne_bytes().to_vec(),
    }
}

/// Definitions, with the share of the cycles that each gets.
fn definitions() -> Vec<(MapDef, u64)> {
    let kinds = [
        (MapKind::Hash, 4, MapFlags(0), 8),
        (MapKind::Hash, 4, MapFlags::NO_PREALLOC, 2),
        (MapKind::PercpuHash, 4, MapFlags(0), 2),
        (MapKind::LpmTrie, 8, MapFlags::NO_PREALLOC, 2),
    ];
    let definition = |(kind, key_size, flags, part)| (MapDef { flags, ..def(kind, key_size, 16, 16) }, part);
    kinds.map(definition).into()
}

#[test]
fn maps_created_and_dropped_repeatedly_leak_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for policy in Policy::ALL {
        let memory = Reclamation { policy, ..Reclamation::new(Domain::new(CPUS).unwrap()) };
        for (def, part) in definitions() {
            cycle(&def, Some(&memory), 1000);
            let before = Holdings::settled();
            let times = cycles() * part / 14 / Policy::ALL.len() as u64;
            cycle(&def, Some(&memory), times);
            before.assert_no_growth(8, &format!("{times} maps, {policy}, {}", def.kind));
        }
    }
}

#[test]
fn maps_with_their_own_domain_leak_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (def, part) in definitions() {
        cycle(&def, None, 1000);
        let before = Holdings::settled();
        let times = cycles() * part / 14 / 10;
        cycle(&def, None, times);
        // Each map's keeper is a thread, and the allocator may give it a heap.
        before.assert_no_growth(100, &format!("{times} maps with readers of their own, {}", def.kind));
    }
}

#[test]
fn maps_dropped_inside_a_section_are_freed_after_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for policy in Policy::ALL {
        let memory = Reclamation { policy, ..Reclamation::new(Domain::new(CPUS).unwrap()) };
        cycle(&definitions()[0].0, Some(&memory), 1000);
        let before = Holdings::settled();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _inside = memory.domain.enter().unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            for (def, part) in definitions() {
                // Also by a thread that is in a section itself: dropping a map does not wait.
                let _inside = memory.domain.enter().unwrap();
                cycle(&def, Some(&memory), cycles() * part / 14 / 200);
            }
            over.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        before.assert_no_growth(8, &format!("maps dropped with a reader inside, {policy}"));
    }
}
