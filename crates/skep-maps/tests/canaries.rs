//! An element that a host finds inside a read section stays that element until the section ends, whatever other
//! threads do.
//!
//! Values carry their key, a unique sequence number, and words computed from both. Readers look up an element and
//! read it repeatedly, while writers delete and add keys. With *immediate* reuse readers see elements turn into
//! others, which shows that the test can detect it. With every other policy they never do.
//!
//! Takes two seconds for each policy, or `SKEP_CANARY_SECONDS`.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{def, prefix};
use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, Options, Policy, Reclamation, UpdateFlags};
use skep_rcu::Domain;

const KEYS: u64 = 64;
const WORDS: usize = 6;
/// Time limit for seeing immediate reuse, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

const KINDS: &[(MapKind, u32, MapFlags)] = &[
    (MapKind::Hash, 8, MapFlags(0)),
    (MapKind::Hash, 8, MapFlags::NO_PREALLOC),
    (MapKind::PercpuHash, 8, MapFlags(0)),
    (MapKind::LruHash, 8, MapFlags(0)),
    (MapKind::LpmTrie, 12, MapFlags::NO_PREALLOC),
];

/// The words of an element's value.
fn sealed(key: u64, sequence: u64) -> [u64; WORDS] {
    let check = key.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [key, sequence, check, !key, !sequence, !check]
}

/// Whether the value at an address is whole, belongs to that key, and stays the same over `rounds` reads.
fn is_still(at: *mut u8, key: u64, rounds: u64) -> bool {
    // SAFETY: a value of that many aligned words, which are only ever accessed atomically.
    let words = unsafe { &*at.cast::<[AtomicU64; WORDS]>() };
    let sequence = words[1].load(Ordering::Relaxed);
    (0..rounds).all(|_| words.each_ref().map(|word| word.load(Ordering::Relaxed)) == sealed(key, sequence))
}

struct Cage {
    domain: Domain,
    map: Map,
}

/// The observations.
#[derive(Debug, Default)]
struct Seen {
    absent: AtomicU64,
    sound: AtomicU64,
    recycled: AtomicU64,
    added: AtomicU64,
    /// Insertions that found no memory, because objects that wait for readers are not reused.
    refused: AtomicU64,
}

impl Seen {
    fn count(&self, is_sound: impl FnOnce() -> bool) {
        let counter = if is_sound() { &self.sound } else { &self.recycled };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Cage {
    fn new(kind: MapKind, key_size: u32, flags: MapFlags, policy: Policy) -> Self {
        // A slot for each thread, and some for threads whose end the system has not reported yet.
        let domain = Domain::new(16).unwrap();
        let memory = Reclamation { policy, ..Reclamation::new(domain.clone()) };
        // The map must evict all the time, if it can.
        let entries = if kind == MapKind::LruHash { KEYS / 4 } else { KEYS };
        let def = MapDef { flags, ..def(kind, key_size, (WORDS * 8) as u32, entries as u32) };
        let map = Map::create_in(&memory, &def, &Options { cpus: 16, limit: 1 << 30 }).unwrap();
        Self { domain, map }
    }

    fn key(&self, key: u64) -> Vec<u8> {
        match self.map.kind() {
            MapKind::LpmTrie => prefix(64, &key.to_ne_bytes()),
            _ => key.to_ne_bytes().to_vec(),
        }
    }

    /// Looks a key up inside a section and reads the element `rounds` times.
    fn read(&self, key: u64, rounds: u64, seen: &Seen) {
        let bytes = self.key(key);
        let section = self.domain.enter().unwrap();
        // SAFETY: the key has the map's size, the number is that of a section of the map's domain.
        let at = unsafe { self.map.lookup_ptr(bytes.as_ptr(), section.number()) };
        if at.is_null() {
            seen.absent.fetch_add(1, Ordering::Relaxed);
            return;
        }
        seen.count(|| is_still(at, key, rounds));
    }

    /// Visits all elements inside a section and reads each `rounds` times, and the one before it once more.
    fn read_all(&self, rounds: u64, seen: &Seen) {
        let section = self.domain.enter().unwrap();
        let mut before = None;
        let mut visit = |key: *const u8, at: *mut u8| {
            // SAFETY: an element's key, of 8 bytes, valid for this visit.
            let key = u64::from_ne_bytes(unsafe { key.cast::<[u8; 8]>().read() });
            seen.count(|| is_still(at, key, rounds));
            if let Some((at, key)) = before.replace((at, key)) {
                seen.count(|| is_still(at, key, 1));
            }
            true
        };
        // SAFETY: the number is that of a section of the map's domain.
        unsafe { self.map.for_each_ptr(section.number(), &mut visit) };
    }

    /// Deletes one key and adds another, through the host's interface or the programs'.
    fn write(&self, delete: u64, add: u64, sequence: u64, seen: &Seen) {
        let (delete, add, value) =
            (self.key(delete), self.key(add), sealed(add, sequence).map(u64::to_ne_bytes).concat());
        let errno = if sequence.is_multiple_of(2) && !self.map.kind().is_per_cpu() {
            let section = self.domain.enter().unwrap();
            // SAFETY: keys and value have the map's sizes, and the number is that of a section of the map's domain.
            unsafe {
                self.map.delete_ptr(delete.as_ptr(), section.number());
                -self.map.update_ptr(add.as_ptr(), value.as_ptr(), 1, section.number()) as i32
            }
        } else {
            let _ = self.map.delete(&delete);
            let values = value.repeat(self.map.host_value_size() / value.len());
            self.map.update(&add, &values, UpdateFlags::NoExist).map_or_else(|error| error.errno(), |()| 0)
        };
        match errno {
            0 => seen.added.fetch_add(1, Ordering::Relaxed),
            // Another writer was faster.
            17 => 0,
            7 | 12 | 28 => seen.refused.fetch_add(1, Ordering::Relaxed),
            other => panic!("an insertion failed: {other}"),
        };
    }
}

/// Runs two readers and two writers until the time is over, or until the awaited observation.
fn watch(cage: &Cage, time: Duration, until_recycled: bool) -> Seen {
    let (seen, over, sequence) = (Seen::default(), AtomicBool::new(false), AtomicU64::new(1));
    let until_over = |first: u64, work: &dyn Fn(u64)| {
        let mut random = first;
        while !over.load(Ordering::Relaxed) {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            work(random >> 20);
        }
    };
    (0..KEYS / 2).for_each(|key| cage.write(KEYS, key, 0, &seen));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..2 {
            let (seen, until_over, sequence) = (&seen, &until_over, &sequence);
            threads.push(scope.spawn(move || {
                let rounds = |random: u64| [1, 20, 500, 20_000][(random >> 6) as usize % 4];
                until_over(number, &|random| match random >> 8 & 15 {
                    // Tries have no visit of all elements.
                    0 if cage.map.kind() != MapKind::LpmTrie => cage.read_all(rounds(random).min(500), seen),
                    _ => cage.read(random % KEYS, rounds(random), seen),
                });
            }));
            threads.push(scope.spawn(move || {
                let next = || sequence.fetch_add(1, Ordering::Relaxed);
                until_over(number + 7, &|random| {
                    cage.write(random % KEYS, (random >> 8) % KEYS, next(), seen);
                });
            }));
        }
        let started = Instant::now();
        // On a busy machine a thread may not have run at all in that time.
        let idle = || [&seen.sound, &seen.added].iter().any(|count| count.load(Ordering::Relaxed) == 0);
        while (started.elapsed() < time || (idle() && started.elapsed() < PATIENCE))
            && !(until_recycled && seen.recycled.load(Ordering::Relaxed) > 0)
            && !threads.iter().any(|thread| thread.is_finished())
        {
            thread::sleep(Duration::from_millis(10));
        }
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    seen
}

/// All kinds, with one policy.
fn time() -> Duration {
    let seconds = std::env::var("SKEP_CANARY_SECONDS").map_or(2, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

#[test]
fn with_immediate_reuse_readers_see_elements_change() {
    for &(kind, key_size, flags) in KINDS {
        let cage = Cage::new(kind, key_size, flags, Policy::Immediate);
        let seen = watch(&cage, PATIENCE, true);
        assert!(
            seen.recycled.load(Ordering::Relaxed) > 0,
            "{kind}: what is not seen here proves nothing: {seen:?}"
        );
    }
}

#[test]
fn with_other_policies_elements_stay_until_the_section_ends() {
    for policy in Policy::ALL.into_iter().filter(|policy| policy.waits_for_readers()) {
        for &(kind, key_size, flags) in KINDS {
            let cage = Cage::new(kind, key_size, flags, policy);
            let seen = watch(&cage, time() / KINDS.len() as u32, false);
            skep_testkit::say(&format!("MEASURED: {policy}, {kind} {:#x}: {seen:?}", flags.0));
            assert_eq!(seen.recycled.load(Ordering::Relaxed), 0, "{policy}, {kind}: {seen:?}");
            for (what, count) in [("found", &seen.sound), ("added", &seen.added)] {
                assert!(count.load(Ordering::Relaxed) > 0, "{policy}, {kind}: nothing was {what}: {seen:?}");
            }
        }
    }
}
