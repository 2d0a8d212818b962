//! Without memory, operations return an error, never panic, and lose nothing; afterwards everything works.
//!
//! The allocator of this test refuses one allocation: the first, the second and so on, as long as there is one to
//! refuse. A process of its own tests refusals by the system, under a limit of its address space.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{CPUS, def, prefix, program_delete, program_lookup, program_update};
use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, MapError, Options, Policy, Reclamation, UpdateFlags};
use skep_rcu::Domain;
use skep_testkit::{Hidden, Refusal, hidden};

struct Refusing;

static REFUSAL: Refusal = Refusal::new();
/// Allocations of at most this many bytes are not refused.
static SMALL: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicIsize = AtomicIsize::new(0);

/// The tests have one allocator.
static ALONE: Mutex<()> = Mutex::new(());

/// The standard library's reference-counted objects cannot report allocation errors. While a map is created,
/// allocations of this size are not refused.
const COUNTED: usize = 2048;

/// Bytes that the test harness may allocate meanwhile, for the thread of the next test.
const NOISE: isize = 8192;

/// Whether this is the allocation to refuse. Relaxed: a number.
fn is_refused(layout: Layout) -> bool {
    layout.size() > SMALL.load(Ordering::Relaxed) && REFUSAL.is_due()
}

// SAFETY: calls are passed on to the system's allocator, or refused by returning null.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout) {
            return ptr::null_mut();
        }
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout) {
            return ptr::null_mut();
        }
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

const ENTRIES: u32 = 600;

/// Definitions of every kind; their names need no allocation.
fn definitions() -> Vec<MapDef> {
    let kinds = [
        (MapKind::Array, 4, MapFlags(0)),
        (MapKind::PercpuArray, 4, MapFlags(0)),
        (MapKind::Hash, 4, MapFlags(0)),
        (MapKind::Hash, 4, MapFlags::NO_PREALLOC),
        (MapKind::PercpuHash, 4, MapFlags(0)),
        (MapKind::PercpuHash, 4, MapFlags::NO_PREALLOC),
        (MapKind::LruHash, 4, MapFlags(0)),
        (MapKind::LpmTrie, 8, MapFlags::NO_PREALLOC),
    ];
    let definition = |(kind, key_size, flags)| MapDef {
        name: String::new(),
        flags,
        // So large that several pieces of memory are allocated.
        ..def(kind, key_size, 1000, ENTRIES)
    };
    kinds.map(definition).into()
}

fn create(memory: &Reclamation, def: &MapDef, limit: u64) -> Result<Map, MapError> {
    Map::create_in(memory, def, &Options { cpus: CPUS, limit })
}

fn memory(policy: Policy) -> Reclamation {
    Reclamation { policy, ..Reclamation::new(Domain::new(CPUS).unwrap()) }
}

fn key(kind: MapKind, number: u32) -> Vec<u8> {
    match kind {
        MapKind::LpmTrie => prefix(32, &number.to_be_bytes()),
        _ => number.to_ne_bytes().to_vec(),
    }
}

fn value(number: u32) -> Vec<u8> {
    number.to_ne_bytes().repeat(250)
}

/// Fills a map as programs do, and returns how many updates failed, all for lack of memory. The others are found.
fn fill(map: &Map, keys: &[Vec<u8>], values: &[Vec<u8>]) -> usize {
    let mut refused = 0;
    for (key, value) in keys.iter().zip(values) {
        match program_update(map, key, value, 0, 1) {
            0 => {}
            -12 => refused += 1,
            other => panic!("{}: {other}", map.kind()),
        }
    }
    refused
}

/// Asserts that everything works: all elements fit at once, are found, and can be deleted.
fn works(map: &Map, keys: &[Vec<u8>], values: &[Vec<u8>]) {
    let copies = map.host_value_size() / values[0].len();
    for (key, value) in keys.iter().zip(values) {
        map.update(key, &value.repeat(copies), UpdateFlags::Any).unwrap();
    }
    assert_eq!(map.len(), ENTRIES);
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(program_lookup(map, key, 1).as_ref(), Some(value));
    }
    if !map.kind().is_array() {
        for key in keys {
            assert_eq!(program_delete(map, key), 0);
        }
        assert_eq!(map.len(), 0);
    }
}

fn elements(def: &MapDef) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    (0..ENTRIES).map(|number| (key(def.kind, number), value(number))).unzip()
}

/// Creates and fills with the n-th allocation refused, for growing n; returns how many attempts had a refusal.
fn refuse_each(memory: &Reclamation, def: &MapDef) -> u64 {
    let (keys, values) = elements(def);
    for _ in 0..2 {
        works(&create(memory, def, 1 << 30).unwrap(), &keys, &values);
    }
    let before = settled(memory);
    let (mut n, mut attempts) = (0, 0);
    loop {
        n += 1 + n / 4;
        SMALL.store(COUNTED, Ordering::Relaxed);
        REFUSAL.arm(n);
        let created = create(memory, def, 1 << 30);
        SMALL.store(0, Ordering::Relaxed);
        let refused = match &created {
            Err(MapError::NoMemory { .. }) => 1,
            Err(error) => panic!("{error}"),
            Ok(map) => fill(map, &keys, &values),
        };
        let none_left = REFUSAL.disarm();
        if let Ok(map) = &created {
            works(map, &keys, &values);
        }
        drop(created);
        if none_left {
            assert_eq!(refused, 0);
            let lost = settled(memory) - before;
            assert!(lost < NOISE, "{} {:?}, {}: {lost} bytes are lost", def.kind, def.flags, memory.policy);
            return attempts;
        }
        attempts += 1;
    }
}

/// Live bytes, after the keeper has freed what it can.
fn settled(memory: &Reclamation) -> isize {
    memory.domain.barrier().unwrap();
    let (begin, mut least) = (Instant::now(), isize::MAX);
    loop {
        let live = LIVE.load(Ordering::Relaxed);
        if live >= least && begin.elapsed() > Duration::from_millis(40) {
            return least;
        }
        least = least.min(live);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn any_allocation_may_fail_and_the_map_works_afterwards() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for policy in Policy::ALL {
        let memory = memory(policy);
        for def in definitions() {
            let attempts = refuse_each(&memory, &def);
            // A trie allocates nothing at creation, and elements come from a reserved range of addresses, except with
            // one policy.
            let none = def.kind == MapKind::LpmTrie && policy != Policy::None;
            assert!(attempts > 0 || none, "{policy}, {}: nothing was refused", def.kind);
        }
    }
}

#[test]
fn without_memory_maps_without_keys_are_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = memory(Policy::default());
    let inner = Some(Box::new(def(MapKind::Array, 4, 8, 1)));
    for (kind, key_size, value_size, max_entries) in [
        (MapKind::Queue, 0, 1000, ENTRIES),
        (MapKind::Stack, 0, 1000, ENTRIES),
        (MapKind::BloomFilter, 0, 8, 100_000),
        (MapKind::Ringbuf, 0, 0, 1 << 16),
        (MapKind::ProgArray, 4, 4, ENTRIES),
        (MapKind::ArrayOfMaps, 4, 4, ENTRIES),
        (MapKind::HashOfMaps, 4, 4, ENTRIES),
    ] {
        let def = MapDef {
            inner: inner.clone(),
            name: String::new(),
            ..def(kind, key_size, value_size, max_entries)
        };
        drop(create(&memory, &def, 1 << 30).unwrap());
        let before = settled(&memory);
        // Each several times, so that small leaks add up.
        for n in (1..).flat_map(|n| [n; 16]) {
            SMALL.store(COUNTED, Ordering::Relaxed);
            REFUSAL.arm(n);
            let created = create(&memory, &def, 1 << 30);
            let none_left = REFUSAL.disarm();
            SMALL.store(0, Ordering::Relaxed);
            match created {
                Ok(_) => assert!(none_left, "{kind}: allocation {n} was refused, and nobody noticed"),
                Err(MapError::NoMemory { .. }) => assert!(!none_left),
                Err(error) => panic!("{error}"),
            }
            drop(create(&memory, &def, 1 << 30).unwrap());
            if none_left {
                break;
            }
        }
        let lost = settled(&memory) - before;
        assert!(lost < NOISE, "{kind}: {lost} bytes are lost");
    }
}

#[test]
fn a_map_is_refused_or_respects_its_limit() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = memory(Policy::default());
    for def in definitions() {
        let (keys, values) = elements(&def);
        // A sufficient limit.
        let is_enough =
            |limit: &u64| create(&memory, &def, *limit).is_ok_and(|map| fill(&map, &keys, &values) == 0);
        let most = std::iter::successors(Some(1 << 16), |limit| Some(limit * 5 / 4)).find(is_enough).unwrap();
        let (mut too_large, mut filled, mut partly) = (0, 0, 0);
        for limit in (0..=64).map(|part| most * part / 64 + part % 3) {
            match create(&memory, &def, limit) {
                Err(MapError::TooLarge { .. }) => too_large += 1,
                Err(error) => panic!("{error}"),
                Ok(map) => {
                    let refused = fill(&map, &keys, &values);
                    assert!(map.memory() <= limit, "{}: {} of {limit}", def.kind, map.memory());
                    assert_eq!(map.len() as usize + refused, ENTRIES as usize);
                    *(if refused == 0 { &mut filled } else { &mut partly }) += 1;
                    // An update of a trie allocates a new node, even for an existing key.
                    if refused == 0 && def.kind != MapKind::LpmTrie {
                        works(&map, &keys, &values);
                    }
                }
            }
        }
        let promised = def.kind != MapKind::LpmTrie && !def.flags.contains(MapFlags::NO_PREALLOC);
        assert!(filled > 0 && too_large > 0, "{}: {too_large} {filled}", def.kind);
        assert_eq!(partly == 0, promised, "{} {:?}: {partly}", def.kind, def.flags);
    }
}

/// Set in the process whose addresses are limited.
const CHILD: &str = "SKEP_FAULTS_CHILD";
/// Its message if the system ignores the limit.
const NOT_LIMITED: i32 = 77;

#[test]
fn maps_report_the_system_s_refusal_of_memory_and_recover() {
    if std::env::var_os(CHILD).is_some() {
        definitions().iter().for_each(refuse_addresses);
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // One heap: reserved addresses for threads' heaps would escape the limit.
    let mut child = skep_testkit::this_test();
    let status = child.env(CHILD, "1").env("MALLOC_ARENA_MAX", "1").status().unwrap();
    if status.code() == Some(NOT_LIMITED) {
        return hidden(Hidden::AddressSpaceLimit, "maps without memory");
    }
    assert!(status.success(), "{status}");
}

/// Creates and fills with the address space limited to its present size plus a growing amount.
fn refuse_addresses(def: &MapDef) {
    let memory = memory(Policy::default());
    let (keys, values) = elements(def);
    works(&create(&memory, def, 1 << 30).unwrap(), &keys, &values);
    // Wait until the keeper runs: a thread that starts without memory ends the process.
    memory.domain.barrier().unwrap();
    // Freed memory goes back to the system at once, not to the next map. SAFETY: sets a number.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 10) };
    let used = address_space();
    limit_addresses(Some(used));
    // SAFETY: new memory, which nothing uses.
    let more = unsafe {
        libc::mmap(ptr::null_mut(), 64 << 20, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if more != libc::MAP_FAILED {
        std::process::exit(NOT_LIMITED);
    }
    let (mut some, mut none) = (0, 0);
    for more in (0..28).map(|step| (1 << step) - 1) {
        limit_addresses(Some(used + more));
        let created = create(&memory, def, 1 << 30);
        let refused = match &created {
            Err(MapError::NoMemory { .. }) => ENTRIES as usize,
            Err(error) => panic!("{error}"),
            Ok(map) => fill(map, &keys, &values),
        };
        limit_addresses(None);
        if let Ok(map) = &created {
            works(map, &keys, &values);
        }
        some += u32::from(refused > 0);
        none += u32::from(refused == 0);
    }
    assert!(some > 0 && none > 0, "{some} limits were too low, {none} high enough");
}

fn address_space() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: asks for a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize
}

/// Limits the bytes of all mappings together.
fn limit_addresses(bytes: Option<usize>) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the limit, and a limit that is not above what is allowed.
    let done = unsafe {
        libc::getrlimit(libc::RLIMIT_AS, &mut limit);
        limit.rlim_cur = bytes.map_or(limit.rlim_max, |bytes| bytes as libc::rlim_t);
        libc::setrlimit(libc::RLIMIT_AS, &limit)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
