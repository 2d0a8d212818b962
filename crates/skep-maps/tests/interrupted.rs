//! Signal handlers run programs that change the map whose change they interrupt on the same thread: no thread waits
//! for itself, and nothing is lost.

mod common;

use std::cell::Cell;
use std::panic;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Barrier, Once};
use std::time::{Duration, Instant};

use common::{def, prefix};
use skep_abi::{MapFlags, MapKind};
use skep_maps::{Map, Options, Policy, Reclamation, UpdateFlags};
use skep_rcu::Domain;

const BUSY: i64 = -16;
const KEYS: u64 = 12;
/// A key that is never deleted.
const STABLE: u64 = 0;
const KINDS: [MapKind; 5] =
    [MapKind::Hash, MapKind::PercpuHash, MapKind::LruHash, MapKind::LruPercpuHash, MapKind::LpmTrie];

thread_local! {
    /// The map that the handlers on this thread change.
    static WORK: Cell<*const Work> = const { Cell::new(ptr::null()) };
    /// The page that is not readable yet, and the work to do before it becomes readable.
    static TRAP: Cell<*const Trap> = const { Cell::new(ptr::null()) };
}

/// A map that a thread and the handlers that interrupt it change.
struct Work {
    map: Map,
    policy: Policy,
    /// Changes of all handlers, and how many of them were refused.
    handled: AtomicU64,
    busy: AtomicU64,
}

impl Work {
    fn new(kind: MapKind, policy: Policy) -> Self {
        // LRU tables evict all the time; other kinds always have room.
        let entries = if is_lru(kind) { 6 } else { 4 * KEYS as u32 };
        let domain = Domain::new(4).unwrap();
        let mut def = def(kind, 8, 16, entries);
        if matches!(kind, MapKind::Hash | MapKind::PercpuHash) {
            def.flags = MapFlags::NO_PREALLOC;
        }
        let map = Map::create_in(
            &Reclamation { policy, ..Reclamation::new(domain) },
            &def,
            &Options { cpus: 4, limit: 1 << 30 },
        )
        .unwrap();
        map.update(&key(kind, STABLE), &host_value(&map, STABLE), UpdateFlags::Any).unwrap();
        Self { map, policy, handled: AtomicU64::new(0), busy: AtomicU64::new(0) }
    }

    /// Runs one operation of a program; returns its result.
    fn step(&self, cpu: u32, random: u64) -> i64 {
        let kind = self.map.kind();
        let id = random % KEYS;
        let (at, value) = (key(kind, id), value(id));
        let (from, what) = (at.as_ptr(), (random >> 16) % 8);
        // SAFETY: key and value have the map's sizes, and the CPU is the thread's, which is inside.
        let status = unsafe {
            match what {
                0..=3 => self.map.update_ptr(from, value.as_ptr().cast(), [0, 0, 1, 2][what as usize], cpu),
                4 | 5 if id != STABLE => self.map.delete_ptr(from, cpu),
                _ => {
                    self.look(cpu, id);
                    0
                }
            }
        };
        let permitted: &[i64] = match what {
            0 | 1 => &[],
            2 => &[-17],
            3..=5 => &[-2],
            _ => &[],
        };
        // At this rate all elements may wait for readers for a moment.
        let waits = status == -12 && what < 4 && self.policy != Policy::Immediate;
        assert!(
            matches!(status, 0 | BUSY) || waits || permitted.contains(&status),
            "{kind} {}: {what}: {status}",
            self.policy
        );
        status
    }

    /// Asserts that look-ups find existing keys, each with its own value.
    fn look(&self, cpu: u32, id: u64) {
        let kind = self.map.kind();
        for id in [id, STABLE] {
            // SAFETY: as in `step`; values are words, and read as such.
            let found = unsafe {
                let at = self.map.lookup_ptr(key(kind, id).as_ptr(), cpu).cast::<AtomicU64>();
                if at.is_null() { None } else { Some((*at).load(Ordering::Relaxed)) }
            };
            assert!(found.is_some() || id != STABLE || is_lru(kind), "{kind}: a key that stays is not found");
            // With immediate reuse the value may belong to another key already.
            if let Some(found) = found.filter(|_| self.policy != Policy::Immediate) {
                // Another CPU's insertion leaves zeroes in this CPU's value.
                let new = found == 0 && self.map.host_value_size() != 16;
                assert!(
                    found == id || new || kind == MapKind::LpmTrie && covers(found, id),
                    "{kind}: {found}, not {id}"
                );
            }
        }
        if matches!(kind, MapKind::Hash | MapKind::PercpuHash) {
            let mut met = 0;
            // SAFETY: as above.
            unsafe {
                self.map.for_each_ptr(cpu, &mut |key, _| {
                    met += u32::from(key.cast::<u64>().read() == STABLE);
                    true
                });
            }
            assert_eq!(met, 1, "{kind}: a key that stays is met once");
        }
    }

    /// The work of a handler.
    fn interrupt(&self) {
        let section = self.map.reuse().domain.enter().unwrap();
        let mut random = self.handled.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..6 {
            random = next(random);
            let refused = self.step(section.number(), random >> 8) == BUSY;
            self.busy.fetch_add(u64::from(refused), Ordering::Relaxed);
        }
    }

    /// The work of the interrupted thread, which counts its steps. Returns how often it was refused itself.
    fn run(&self, seed: u64, steps: &AtomicU64, over: impl Fn() -> bool) -> u64 {
        WORK.set(self);
        let (mut random, mut refused) = (seed, 0);
        while !over() {
            let section = self.map.reuse().domain.enter().unwrap();
            for _ in 0..64 {
                random = next(random);
                refused += u64::from(self.step(section.number(), random >> 8) == BUSY);
                steps.fetch_add(1, Ordering::Relaxed);
            }
        }
        WORK.set(ptr::null());
        refused
    }

    /// Asserts that each element is in the map once and can be deleted, and that the map is empty then.
    fn check(&self) {
        let (kind, policy) = (self.map.kind(), self.policy);
        let mut keys: Vec<_> = self.map.entries().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), self.map.len() as usize, "{kind} {policy}");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), self.map.len() as usize, "{kind} {policy}");
        for key in &keys {
            self.map.delete(key).unwrap();
        }
        assert_eq!((self.map.len(), self.map.stats().in_use), (0, 0), "{kind} {policy}");
        // And the map can be filled again.
        for id in 0..KEYS {
            self.map.update(&key(kind, id), &host_value(&self.map, id), UpdateFlags::Any).unwrap();
        }
        assert_eq!(u64::from(self.map.len()), KEYS.min(self.map.def().max_entries.into()));
    }
}

fn is_lru(kind: MapKind) -> bool {
    matches!(kind, MapKind::LruHash | MapKind::LruPercpuHash)
}

/// Xorshift.
fn next(mut random: u64) -> u64 {
    random = random.max(1);
    random ^= random << 13;
    random ^= random >> 7;
    random ^ random << 17
}

/// The prefix for a key in a trie: one of four lengths in one of three networks.
fn network(id: u64) -> (u32, u32) {
    (8 * (id as u32 % 4 + 1), (10 + id as u32 / 4) << 24)
}

fn covers(id: u64, other: u64) -> bool {
    let ((len, network_of), (other_len, other_of)) = (network(id), network(other));
    len <= other_len && (network_of ^ other_of).leading_zeros() >= len
}

fn key(kind: MapKind, id: u64) -> [u8; 8] {
    if kind != MapKind::LpmTrie {
        return id.to_ne_bytes();
    }
    let (len, address) = network(id);
    let [a, b, c, d] = len.to_ne_bytes();
    let [e, f, g, h] = address.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

fn value(id: u64) -> [u64; 2] {
    [id, !id]
}

fn host_value(map: &Map, id: u64) -> Vec<u8> {
    let one: Vec<u8> = value(id).iter().flat_map(|word| word.to_ne_bytes()).collect();
    one.repeat(map.host_value_size() / one.len())
}

extern "C" fn interrupt(_: libc::c_int) {
    let work = WORK.get();
    // SAFETY: the pointer is set only while the work lives.
    if let Some(work) = unsafe { work.as_ref() } {
        work.interrupt();
    }
}

/// A thread that is interrupted.
#[derive(Default)]
struct Target {
    name: AtomicU64,
    /// Steps outside of handlers.
    steps: AtomicU64,
}

/// Two signals, so that handlers can interrupt each other.
const SIGNALS: [libc::c_int; 2] = [libc::SIGUSR1, libc::SIGUSR2];

fn install() {
    static ONCE: Once = Once::new();
    // SAFETY: a handler that calls only the map; zero is valid for the other fields.
    ONCE.call_once(|| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = interrupt as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        for signal in SIGNALS {
            assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0);
        }
    });
}

/// Runs the work on `threads` threads, all of them interrupted all the time. Returns how often they were refused
/// outside of handlers.
fn disturb(work: &Work, threads: usize, enough: impl Fn() -> bool) -> u64 {
    install();
    let (over, ready) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let targets: Vec<Target> = (0..threads).map(|_| Target::default()).collect();
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for (index, Target { name, steps }) in targets.iter().enumerate() {
            let (over, ready) = (&over, &ready);
            workers.push(scope.spawn(move || {
                // SAFETY: asks for this thread's own name.
                name.store(unsafe { libc::pthread_self() } as u64, Ordering::Relaxed);
                // A handler cannot claim a slot while its thread is claiming one.
                drop(work.map.reuse().domain.enter().unwrap());
                ready.wait();
                let run = || work.run(index as u64 + 7, steps, || over.load(Ordering::Acquire));
                let result = panic::catch_unwind(panic::AssertUnwindSafe(run));
                over.store(true, Ordering::Release);
                ready.wait(); // until the signals stop
                result.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
            }));
        }
        ready.wait();
        let (begin, mut last) = (Instant::now(), vec![None; threads]);
        'disturbed: while begin.elapsed() < Duration::from_secs(60) {
            for (Target { name, steps }, last) in targets.iter().zip(&mut last) {
                if enough() || over.load(Ordering::Acquire) {
                    break 'disturbed;
                }
                // Only after the thread has made progress since the last signal: slow handlers would leave it no
                // time.
                let steps = Some(steps.load(Ordering::Relaxed));
                if steps != *last {
                    *last = steps;
                    let thread = name.load(Ordering::Relaxed) as libc::pthread_t;
                    for signal in SIGNALS {
                        // SAFETY: the thread lives: it waits for us to be done.
                        assert_eq!(unsafe { libc::pthread_kill(thread, signal) }, 0);
                    }
                }
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        over.store(true, Ordering::Release);
        ready.wait();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

#[test]
fn a_change_that_interrupts_another_succeeds_or_is_refused() {
    for kind in KINDS {
        for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::None) {
            let work = Work::new(kind, policy);
            let begin = Instant::now();
            // Many changes of handlers are refused; on a slow machine at least one.
            let refused = disturb(&work, 1, || {
                let (busy, time) = (work.busy.load(Ordering::Relaxed), begin.elapsed());
                time > Duration::from_millis(150) && busy >= 20 || time > Duration::from_secs(3) && busy > 0
            });
            // The interrupted change held nothing when it began.
            assert_eq!(refused, 0, "{kind} {policy}");
            assert!(
                work.busy.load(Ordering::Relaxed) > 0,
                "{kind} {policy}: never in the middle of a change"
            );
            work.check();
        }
    }
}

#[test]
fn two_interrupted_threads_finish() {
    for kind in [MapKind::Hash, MapKind::LruPercpuHash, MapKind::LpmTrie] {
        let work = Work::new(kind, Policy::default());
        let begin = Instant::now();
        disturb(&work, 2, || {
            begin.elapsed() > Duration::from_millis(500) && work.handled.load(Ordering::Relaxed) > 0
        });
        assert!(work.handled.load(Ordering::Relaxed) > 0, "{kind}");
        work.check();
    }
}

/// A page from which a change reads the value: the first read faults, and the fault's handler runs programs in the
/// middle of the change.
struct Trap<'a> {
    page: *mut u8,
    map: &'a Map,
    statuses: [AtomicU32; 4],
}

const PAGE: usize = 4096;

impl<'a> Trap<'a> {
    /// The minimum time that a program waits for a lock's holder before it gives up. It must not wait for the change
    /// that it interrupted.
    const SHORTEST_WAIT: Duration = Duration::from_millis(500);
    /// How often the handler updates and deletes the key that is being changed: often enough to tell a slow machine
    /// from a wait.
    const TRIES: u32 = 20;

    fn new(map: &'a Map, value: &[u8]) -> Self {
        // SAFETY: new memory of a page, into which the value fits.
        let page = unsafe {
            let (all, private) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(ptr::null_mut(), PAGE, all, private, -1, 0).cast::<u8>();
            assert_ne!(page.cast(), libc::MAP_FAILED);
            page.copy_from_nonoverlapping(value.as_ptr(), value.len());
            page
        };
        Self { page, map, statuses: Default::default() }
    }

    /// Runs a change of the map with the value's address; it is interrupted at its first read of the value.
    fn spring<R>(&self, change: impl FnOnce(*const u8) -> R) -> R {
        static ONCE: Once = Once::new();
        // SAFETY: a handler that passes on what is not its own; zero is right for the other fields.
        ONCE.call_once(|| unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = fault as extern "C" fn(_, _, _) as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()), 0);
        });
        TRAP.set(ptr::from_ref(self).cast());
        // SAFETY: this trap's own page.
        assert_eq!(unsafe { libc::mprotect(self.page.cast(), PAGE, libc::PROT_NONE) }, 0);
        let begin = Instant::now();
        let result = change(self.page);
        assert!(TRAP.get().is_null(), "the change was not interrupted");
        // Half of the time that two waiting changes for each try would take.
        let at_most = Self::SHORTEST_WAIT * Self::TRIES;
        assert!(begin.elapsed() < at_most, "a program waited for what it interrupted");
        result
    }

    /// The handler's counts: changes made and refused; look-ups that found the key and that did not.
    fn handle(&self) {
        let section = self.map.reuse().domain.enter().unwrap();
        let cpu = section.number();
        let kind = self.map.kind();
        let (at, new) = (key(kind, STABLE), value(STABLE));
        for _ in 0..Self::TRIES {
            // SAFETY: key and value have the map's sizes, and the CPU is the thread's, which is inside.
            let refused = unsafe {
                [
                    self.map.update_ptr(at.as_ptr(), new.as_ptr().cast(), 0, cpu),
                    self.map.delete_ptr(at.as_ptr(), cpu),
                ]
            };
            assert_eq!(refused, [BUSY; 2], "{kind}: the key that is being changed");
        }
        for id in 0..KEYS {
            let (key, value) = (key(kind, id), value(id));
            // SAFETY: key and value have the map's sizes, and the CPU is the thread's, which is inside.
            unsafe {
                let found = !self.map.lookup_ptr(key.as_ptr(), cpu).is_null();
                self.statuses[2 + usize::from(!found)].fetch_add(1, Ordering::Relaxed);
                for status in [
                    self.map.update_ptr(key.as_ptr(), value.as_ptr().cast(), 0, cpu),
                    self.map.delete_ptr(key.as_ptr(), cpu),
                ] {
                    assert!(matches!(status, 0 | -2 | BUSY), "{kind}: {status}");
                    self.statuses[usize::from(status == BUSY)].fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Drop for Trap<'_> {
    fn drop(&mut self) {
        // SAFETY: this trap's own page.
        unsafe { libc::munmap(self.page.cast(), PAGE) };
    }
}

extern "C" fn fault(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the trap lives as long as it is set; the kernel passes the fault's address.
    unsafe {
        let trap = TRAP.replace(ptr::null());
        match trap.as_ref() {
            Some(trap) if (*info).si_addr() as usize & !(PAGE - 1) == trap.page as usize => {
                trap.handle();
                libc::mprotect(trap.page.cast(), PAGE, libc::PROT_READ);
            }
            _ => _ = libc::signal(signal, libc::SIG_DFL),
        }
    }
}

/// Kinds whose changes read the value under the lock, both the host's and programs'.
const COPY_LOCKED: [MapKind; 3] = [MapKind::PercpuHash, MapKind::LruPercpuHash, MapKind::LpmTrie];

#[test]
fn a_program_inside_a_program_s_change_reads_and_cannot_change() {
    // A program's update of an ordinary table reads it there if a free object is at hand, such as one just freed.
    let at_once = (MapKind::Hash, Policy::Immediate);
    for (kind, policy) in COPY_LOCKED.map(|kind| (kind, Policy::default())).into_iter().chain([at_once]) {
        let work = Work::new(kind, policy);
        let trap = Trap::new(&work.map, &host_value(&work.map, STABLE));
        let section = work.map.reuse().domain.enter().unwrap();
        // Keys are aligned, as on a program's stack.
        let [key, other] = [STABLE, 1].map(|id| u64::from_ne_bytes(key(kind, id)));
        let (key, other, value) = (&raw const key, &raw const other, value(1));
        if policy == Policy::Immediate {
            // SAFETY: key and value have the map's sizes, and the CPU is the thread's.
            let done = unsafe {
                [
                    work.map.update_ptr(other.cast(), value.as_ptr().cast(), 0, section.number()),
                    work.map.delete_ptr(other.cast(), section.number()),
                ]
            };
            assert_eq!(done, [0, 0]);
        }
        let status = trap.spring(|value| {
            // SAFETY: the key has the map's size, the fault handler makes the value readable, and the CPU is the
            // thread's.
            unsafe { work.map.update_ptr(key.cast(), value, 0, section.number()) }
        });
        assert_eq!(status, 0, "{kind}: the one that was interrupted");
        judge(&trap);
        work.look(section.number(), STABLE);
        drop(section);
        work.check();
    }
}

#[test]
fn a_program_inside_a_host_s_change_is_refused() {
    for with_slot in [false, true] {
        for kind in COPY_LOCKED {
            let work = Work::new(kind, Policy::default());
            std::thread::scope(|scope| {
                // A thread that has no slot yet.
                scope.spawn(|| {
                    if with_slot {
                        drop(work.map.reuse().domain.enter().unwrap());
                    }
                    let value = host_value(&work.map, STABLE);
                    let trap = Trap::new(&work.map, &value);
                    let result = trap.spring(|at| {
                        // SAFETY: readable for that length once the fault handler ran.
                        let value = unsafe { std::slice::from_raw_parts(at, value.len()) };
                        work.map.update(&key(kind, STABLE), value, UpdateFlags::Any)
                    });
                    assert_eq!(result, Ok(()), "{kind}");
                    judge(&trap);
                });
            });
            work.check();
        }
    }
}

/// What a handler must have seen that ran in the middle of a change of the map's only key.
fn judge(trap: &Trap<'_>) {
    let kind = trap.map.kind();
    let [made, refused, found, missing] = trap.statuses.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert!(found >= 1, "{kind}: what is being changed is still there");
    if kind == MapKind::LpmTrie {
        // A trie has one lock; every address of the network finds the existing prefix.
        assert_eq!((made, refused), (0, 2 * KEYS as u32));
    } else {
        assert!(refused >= 2 && made > 0, "{kind}: {made} changes made, {refused} refused");
        assert_eq!((found, missing), (1, KEYS as u32 - 1), "{kind}");
    }
}

/// Keys of tries here have the same layout as in the other tests.
#[test]
fn keys_of_tries_are_prefixes() {
    let (len, address) = network(5);
    assert_eq!(key(MapKind::LpmTrie, 5).to_vec(), prefix(len, &address.to_be_bytes()));
    assert!(covers(0, 1) && covers(0, 2) && !covers(1, 0));
}
