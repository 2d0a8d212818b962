//! An element that a program has found stays that element until the program ends, whatever other threads do
//! meanwhile.
//!
//! Values carry their key, a unique sequence number, and words computed from both. Readers look up an element and
//! read it repeatedly, while writers keep deleting keys and adding others. With *immediate* reuse readers see
//! elements turn into others, which shows that the test can detect it. With every other policy they never do.
//!
//! About two seconds for each policy; `SKEP_CANARY_SECONDS` sets the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skep::abi::{MapDef, MapFlags, MapKind, OWN_KFUNC, RAW};
use skep::isa::assemble;
use skep::{Engine, Map, Object, Policy, Program, Runtime, UpdateFlags};

const KEYS: u64 = 64;
/// Writers of each kind, and readers for each engine.
const THREADS: u64 = 2;
/// Time limit for immediate reuse to become visible, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

const ABSENT: u64 = 0;
const SOUND: u64 = 1;
const RECYCLED: u64 = 2;

/// A reader of the key in its buffer: finds the element and reads all its words repeatedly. A sleepable one does so
/// between `bpf_rcu_read_lock` and `bpf_rcu_read_unlock`.
const READER: &str = "
    r6 = *(u64 *)(r1 + 0)
    {enter}
    {key of r6}
    r1 = map[0] ll
    call 1
    if r0 == 0 goto absent
    r7 = *(u64 *)(r0 + 8)
    r8 = r6
    r8 *= 0x2545f491
    r1 = r7
    r1 *= 0x4f6cdd1d
    r8 ^= r1
    r9 = {rounds}
again:
    r1 = *(u64 *)(r0 + 0)
    if r1 != r6 goto recycled
    r1 = *(u64 *)(r0 + 8)
    if r1 != r7 goto recycled
    r1 = *(u64 *)(r0 + 16)
    if r1 != r8 goto recycled
    r1 = *(u64 *)(r0 + 24)
    r1 ^= -1
    if r1 != r6 goto recycled
    r1 = *(u64 *)(r0 + 32)
    r1 ^= -1
    if r1 != r7 goto recycled
    r1 = *(u64 *)(r0 + 40)
    r1 ^= -1
    if r1 != r8 goto recycled
    r9 += -1
    if r9 != 0 goto again
    r6 = 1
    goto out
recycled:
    r6 = 2
    goto out
absent:
    r6 = 0
out:
    {leave}
    r0 = r6
    exit
";

/// A writer: deletes the key at the start of its buffer, and adds the element that follows in the buffer.
const WRITER: &str = "
    r6 = r1
    r7 = *(u64 *)(r6 + 0)
    {key of r7}
    r1 = map[0] ll
    call 3
    r7 = *(u64 *)(r6 + 8)
    {key of r7}
    r1 = map[0] ll
    r3 = r6
    r3 += 8
    r4 = 1
    call 2
    exit
";

/// The words of an element's value, as the reader checks them.
fn sealed(key: u64, sequence: u64) -> [u64; 6] {
    let check = key.wrapping_mul(0x2545_f491) ^ sequence.wrapping_mul(0x4f6c_dd1d);
    [key, sequence, check, !key, !sequence, !check]
}

/// A map of one kind, and the programs that use it.
struct Cage {
    map: Arc<Map>,
    readers: Vec<Program>,
    writer: Program,
}

impl Cage {
    fn new(kind: MapKind, flags: MapFlags, policy: Policy) -> Self {
        let runtime = Runtime::builder().cpus(16).policy(policy).build().unwrap();
        let key_size = if kind == MapKind::LpmTrie { 12 } else { 8 };
        // Room for all keys, so an insertion is refused only for lack of memory; a map that evicts elements has to
        // evict.
        let entries = if kind == MapKind::LruHash { KEYS / 4 } else { KEYS };
        let def = MapDef { flags, ..MapDef::new("cage", kind, key_size, 48, entries as u32) };
        let load = |text: &str, rounds: u32, brackets: bool, map: Option<&Arc<Map>>| {
            let bracket =
                |which| if brackets { format!("call kfunc[{}]", OWN_KFUNC + which) } else { String::new() };
            let text = program(kind, text).replace("{rounds}", &rounds.to_string());
            let text = text.replace("{enter}", &bracket(0)).replace("{leave}", &bracket(1));
            let insns = assemble(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let code = skep::isa::encode_bytes(&insns).unwrap();
            let object = Object::from_bytecode_and_maps("canary", &RAW, &code, vec![def.clone()]).unwrap();
            let mut linker = runtime.linker(&object).buffer_len(64).sleepable(brackets);
            if let Some(map) = map {
                linker = linker.map("cage", Arc::clone(map));
            }
            linker.load().unwrap_or_else(|error| panic!("{error}\n{text}"))
        };
        let module = load(WRITER, 0, false, None);
        let map = Arc::clone(&module.maps()[0]);
        let reader = |rounds, brackets| load(READER, rounds, brackets, Some(&map)).programs()[0].clone();
        let readers = [false, true].map(|brackets| [1, 20, 500].map(|rounds| reader(rounds, brackets)));
        let readers = readers.concat();
        Self { map, readers, writer: module.programs()[0].clone() }
    }

    fn key(&self, key: u64) -> Vec<u8> {
        match self.map.kind() {
            MapKind::LpmTrie => [&64_u32.to_ne_bytes()[..], &key.to_ne_bytes()].concat(),
            _ => key.to_ne_bytes().to_vec(),
        }
    }
}

/// Includes the code that stores a key on the stack and its address in `r2`.
fn program(kind: MapKind, text: &str) -> String {
    let (length, at) = match kind {
        MapKind::LpmTrie => ("r2 = 64\n*(u32 *)(r10 - 12) = r2\n", 12),
        _ => ("", 8),
    };
    let key = |from| format!("{length}*(u64 *)(r10 - 8) = {from}\nr2 = r10\nr2 += -{at}\n");
    text.replace("{key of r6}", &key("r6")).replace("{key of r7}", &key("r7"))
}

/// What readers and writers observed.
#[derive(Debug, Default)]
struct Seen {
    absent: AtomicU64,
    sound: AtomicU64,
    recycled: AtomicU64,
    added: AtomicU64,
    /// Insertions that failed for lack of memory, since elements that wait for readers are not reused.
    refused: AtomicU64,
}

impl Seen {
    fn count(&self, result: u64) {
        let counter = match result {
            ABSENT => &self.absent,
            SOUND => &self.sound,
            RECYCLED => &self.recycled,
            other => panic!("a reader returned {other}"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn added(&self, errno: i64) {
        const EEXIST: i64 = -17;
        match errno {
            0 => self.added.fetch_add(1, Ordering::Relaxed),
            // Another writer was faster; a table with room for all keys gives no other error.
            EEXIST => 0,
            -12 | -7 | -28 => self.refused.fetch_add(1, Ordering::Relaxed),
            other => panic!("an insertion failed: {other}"),
        };
    }
}

/// Runs readers and writers until the time is over, or the expected event was seen.
fn watch(cage: &Cage, time: Duration, until_recycled: bool) -> Seen {
    let (seen, over, numbers) = (Seen::default(), AtomicBool::new(false), AtomicU64::new(1));
    let until_over = |work: &mut dyn FnMut(u64)| {
        let mut random = numbers.fetch_add(1, Ordering::Relaxed) << 32;
        while !over.load(Ordering::Relaxed) {
            for _ in 0..16 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                work(random >> 20);
            }
        }
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for engine in [Engine::Jit, Engine::Interpreter] {
            let (until_over, seen) = (&until_over, &seen);
            for _ in 0..THREADS {
                threads.push(scope.spawn(move || {
                    until_over(&mut |random| {
                        let mut buffer = [0; 64];
                        buffer[..8].copy_from_slice(&(random % KEYS).to_ne_bytes());
                        let reader = &cage.readers[(random >> 8) as usize % cage.readers.len()];
                        seen.count(reader.run_raw_with(engine, &mut buffer).unwrap());
                    });
                }));
            }
        }
        for _ in 0..THREADS {
            threads.push(scope.spawn(|| {
                until_over(&mut |random| {
                    let value = sealed((random >> 8) % KEYS, numbers.fetch_add(1, Ordering::Relaxed));
                    let mut buffer = [0; 64];
                    for (at, word) in [&[random % KEYS][..], &value].concat().iter().enumerate() {
                        buffer[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
                    }
                    seen.added(cage.writer.run_raw(&mut buffer).unwrap() as i64);
                });
            }));
            threads.push(scope.spawn(|| {
                until_over(&mut |random| {
                    let _ = cage.map.delete(&cage.key(random % KEYS));
                    let key = (random >> 8) % KEYS;
                    let value = sealed(key, numbers.fetch_add(1, Ordering::Relaxed)).map(u64::to_ne_bytes);
                    let copies = cage.map.host_value_size() / 48;
                    let value = value.concat().repeat(copies);
                    let result = cage.map.update(&cage.key(key), &value, UpdateFlags::NoExist);
                    seen.added(result.map_or_else(|error| -i64::from(error.errno()), |()| 0));
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

const KINDS: &[(MapKind, MapFlags)] = &[
    (MapKind::Hash, MapFlags(0)),
    (MapKind::Hash, MapFlags::NO_PREALLOC),
    (MapKind::LruHash, MapFlags(0)),
    (MapKind::LpmTrie, MapFlags::NO_PREALLOC),
];

/// Tests one policy with all kinds of maps.
fn time() -> Duration {
    let seconds = std::env::var("SKEP_CANARY_SECONDS").map_or(2, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

#[test]
fn with_immediate_reuse_readers_see_elements_change() {
    for &(kind, flags) in KINDS {
        let seen = watch(&Cage::new(kind, flags, Policy::Immediate), PATIENCE, true);
        let recycled = seen.recycled.load(Ordering::Relaxed);
        assert!(recycled > 0, "{kind}: what is not seen here proves nothing: {seen:?}");
    }
}

#[test]
fn with_every_other_policy_elements_never_change_under_readers() {
    for policy in Policy::ALL.into_iter().filter(|policy| policy.waits_for_readers()) {
        for &(kind, flags) in KINDS {
            let cage = Cage::new(kind, flags, policy);
            let seen = watch(&cage, time() / KINDS.len() as u32, false);
            eprintln!("MEASURED: {policy}, {kind} {:#x}: {seen:?}, {:?}", flags.0, cage.map.stats());
            assert_eq!(seen.recycled.load(Ordering::Relaxed), 0, "{policy}, {kind}: {seen:?}");
            for (what, count) in [("found", &seen.sound), ("added", &seen.added)] {
                assert!(count.load(Ordering::Relaxed) > 0, "{policy}, {kind}: nothing was {what}: {seen:?}");
            }
        }
    }
}
