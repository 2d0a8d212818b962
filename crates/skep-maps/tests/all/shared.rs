//! Maps in files, as another process maps them: a second mapping stands for that process.

use crate::common::{CPUS, def};
use rustix::mm::{MapFlags as Mapping, ProtFlags, mmap, munmap};
use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, MapError, Options, Reclamation, RingBuffer, UpdateFlags, UserRingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;
const RING: u64 = 4096;

fn shared(def: &MapDef) -> Arc<Map> {
    let memory = Reclamation::new(skep_rcu::Domain::new(CPUS).unwrap());
    Arc::new(Map::create_shared_in(&memory, def, &Options { cpus: CPUS, limit: 1 << 30 }).unwrap())
}

fn array(value_size: u32, entries: u32, flags: MapFlags) -> Arc<Map> {
    shared(&MapDef { flags, ..def(MapKind::Array, 4, value_size, entries) })
}

/// The file of a map, as a client has it mapped.
struct Client {
    base: *mut u8,
    len: usize,
}

// SAFETY: plain memory, which all sides access atomically.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    fn of(map: &Map, protection: ProtFlags) -> rustix::io::Result<Self> {
        let file = map.file().expect("the map is in a file");
        let len = rustix::fs::fstat(file)?.st_size as usize;
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, Mapping::SHARED, file, 0)? };
        Ok(Self { base: base.cast(), len })
    }

    fn writer(map: &Map) -> Self {
        Self::of(map, ProtFlags::READ | ProtFlags::WRITE).unwrap()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.len);
        // SAFETY: within the mapping.
        unsafe { &*self.base.add(at).cast() }
    }

    fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.len);
        // SAFETY: within the mapping.
        unsafe { &*self.base.add(at).cast() }
    }

    fn consumer(&self) -> &AtomicU64 {
        self.word(0)
    }

    fn producer(&self) -> &AtomicU64 {
        self.word(page())
    }

    /// The offset of the record at a position.
    fn at(&self, position: u64) -> usize {
        2 * page() + (position % RING) as usize
    }

    /// Reads the records as libbpf does, and frees them.
    fn take(&self) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        let mut position = self.consumer().load(Ordering::Acquire);
        while position < self.producer().load(Ordering::Acquire) {
            let at = self.at(position);
            let header = self.half(at).load(Ordering::Acquire);
            assert_eq!(header & BUSY, 0, "no record is visible before it is committed");
            let len = header & !DISCARDED;
            if header & DISCARDED == 0 {
                let words = (0..len.div_ceil(8) as usize).map(|n| self.word(at + 8 + 8 * n));
                let mut bytes: Vec<u8> =
                    words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
                bytes.truncate(len as usize);
                taken.push(bytes);
            }
            position += (u64::from(len) + 8).next_multiple_of(8);
            self.consumer().store(position, Ordering::Release);
        }
        taken
    }

    /// Writes a record as libbpf does.
    fn put(&self, bytes: &[u8], mark: u32) {
        let position = self.producer().load(Ordering::Relaxed);
        let at = self.at(position);
        for (n, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(at + 8 + 8 * n).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        self.half(at).store(bytes.len() as u32 | mark, Ordering::Release);
        self.producer().store(position + (bytes.len() as u64 + 8).next_multiple_of(8), Ordering::Release);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: mapped in `of`.
        unsafe { munmap(self.base.cast(), self.len) }.unwrap();
    }
}

fn page() -> usize {
    rustix::param::page_size()
}

fn output(map: &Map, bytes: &[u8], flags: u64) -> i64 {
    // SAFETY: the bytes are there.
    unsafe { map.ring_output_ptr(bytes.as_ptr(), bytes.len() as u64, flags) }
}

/// How often the bell rang since the last look.
fn rung(map: &Map) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(map.bell().unwrap(), &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

fn drained(map: &Map, flags: u64) -> (i64, Vec<Vec<u8>>) {
    let mut records = Vec::new();
    let result = map.user_ring_drain_ptr(flags, &mut |at, len| {
        // SAFETY: the record is there during the call; in these tests nobody else writes to it.
        records.push(unsafe { std::slice::from_raw_parts(at, len as usize) }.to_vec());
        true
    });
    (result, records)
}

#[test]
fn only_maps_that_linux_lets_processes_map_are_in_files() {
    assert!(array(4, 1, MapFlags::MMAPABLE).file().is_some());
    assert!(array(4, 1, MapFlags::default()).file().is_none());
    assert!(shared(&def(MapKind::Hash, 4, 4, 1)).file().is_none());
    let ring = shared(&def(MapKind::Ringbuf, 0, 0, 4096));
    assert!(ring.file().is_some() && ring.bell().is_some());
    assert!(RingBuffer::new(&ring).is_err(), "another process reads the records");
    let requests = shared(&def(MapKind::UserRingbuf, 0, 0, 4096));
    assert!(requests.file().is_some());
    assert!(UserRingBuffer::new(&requests).is_err(), "another process writes the records");
}

#[test]
fn values_of_an_array_are_in_its_file() {
    let map = array(12, 1000, MapFlags::MMAPABLE);
    let client = Client::writer(&map);
    assert_eq!(client.len, 16_000_usize.next_multiple_of(page()));
    map.update(&7u32.to_ne_bytes(), &[5; 12], UpdateFlags::Any).unwrap();
    assert_eq!(client.word(7 * 16).load(Ordering::Relaxed), 0x0505_0505_0505_0505);
    client.word(999 * 16).store(77, Ordering::Relaxed);
    let value = map.lookup(&999u32.to_ne_bytes()).unwrap().unwrap();
    assert_eq!(value, [&77u64.to_ne_bytes()[..], &[0; 4]].concat());
}

#[test]
fn constants_are_not_frozen_while_a_process_can_write_them() {
    let map = array(8, 1, MapFlags::MMAPABLE.union(MapFlags::RDONLY_PROG));
    let key = 0u32.to_ne_bytes();
    map.update(&key, &[1; 8], UpdateFlags::Any).unwrap();
    let client = Client::writer(&map);
    let error = map.freeze().unwrap_err();
    assert!(matches!(error, MapError::Mapped { .. }), "{error}");
    assert_eq!(error.errno(), libc::EBUSY);
    assert!(!map.is_frozen());
    map.update(&key, &[2; 8], UpdateFlags::Any).unwrap();
    drop(client);

    map.freeze().unwrap();
    assert!(Client::of(&map, ProtFlags::READ | ProtFlags::WRITE).is_err(), "it would not be constant");
    let client = Client::of(&map, ProtFlags::READ).unwrap();
    assert_eq!(client.word(0).load(Ordering::Relaxed), 0x0202_0202_0202_0202);
    assert!(rustix::io::pwrite(map.file().unwrap(), &[9], 0).is_err());
    assert_eq!(map.lookup(&key).unwrap().unwrap(), [2; 8]);
    map.freeze().unwrap();
}

#[test]
fn a_frozen_map_that_programs_write_takes_no_new_writers() {
    let map = array(8, 1, MapFlags::MMAPABLE);
    map.freeze().unwrap();
    assert!(Client::of(&map, ProtFlags::READ | ProtFlags::WRITE).is_err());
    let client = Client::of(&map, ProtFlags::READ).unwrap();
    // What a program does.
    let key = 0u32.to_ne_bytes();
    // SAFETY: a key of four bytes; CPU 0 is this thread alone.
    let value = unsafe { map.lookup_ptr(key.as_ptr(), 0) };
    // SAFETY: the first value, which all sides access atomically.
    unsafe { AtomicU64::from_ptr(value.cast()) }.store(3, Ordering::Relaxed);
    assert_eq!(client.word(0).load(Ordering::Relaxed), 3);
}

#[test]
fn records_arrive_in_order_and_whole_also_across_the_end() {
    let map = shared(&def(MapKind::Ringbuf, 0, 0, RING as u32));
    let client = Client::writer(&map);
    for round in 0..200u64 {
        let records: Vec<Vec<u8>> =
            (0..3).map(|n| vec![(round + n) as u8; (round * 7 + n * 300) as usize % 900]).collect();
        for record in &records {
            assert_eq!(output(&map, record, 0), 0, "{round}");
        }
        assert_eq!(client.take(), records, "{round}");
    }
    assert!(client.producer().load(Ordering::Relaxed) > 20 * RING);
}

#[test]
fn a_record_is_not_visible_before_it_and_those_before_it_are_committed() {
    let map = shared(&def(MapKind::Ringbuf, 0, 0, RING as u32));
    let client = Client::writer(&map);
    let [first, second, third] = [1u8, 2, 3].map(|byte| {
        let record = map.ring_reserve_ptr(8, 0);
        // SAFETY: a record of eight bytes.
        unsafe { record.write_bytes(byte, 8) };
        record
    });
    // SAFETY: reserved above, committed once.
    unsafe { Map::ring_submit_ptr(second, 0) };
    assert_eq!(client.take(), Vec::<Vec<u8>>::new());
    // SAFETY: as above.
    unsafe { Map::ring_discard_ptr(first, 0) };
    assert_eq!(client.take(), [[2; 8]]);
    // SAFETY: as above.
    unsafe { Map::ring_submit_ptr(third, 0) };
    assert_eq!(client.take(), [[3; 8]]);
}

#[test]
fn room_depends_on_what_the_process_has_read() {
    let map = shared(&def(MapKind::Ringbuf, 0, 0, RING as u32));
    let client = Client::writer(&map);
    let record = [0; 1000];
    let full = (0..).take_while(|_| output(&map, &record, 0) == 0).count();
    assert_eq!(full, 4, "1008 bytes each, and one byte always stays free");
    assert_eq!([0, 1, 2, 3].map(|what| map.ring_query(what)), [4032, RING, 0, 4032]);
    assert_eq!(client.take().len(), 4);
    assert_eq!([0, 1, 2, 3].map(|what| map.ring_query(what)), [0, RING, 4032, 4032]);
    assert_eq!(output(&map, &record, 0), 0);
    assert_eq!(map.ring_query(0), 1008);
}

#[test]
fn the_bell_rings_as_a_kernel_wakes() {
    let map = shared(&def(MapKind::Ringbuf, 0, 0, RING as u32));
    let client = Client::writer(&map);
    assert_eq!(rung(&map), 0);
    output(&map, b"first", 0);
    assert_eq!(rung(&map), 1, "the process has read all before it");
    output(&map, b"second", 0);
    assert_eq!(rung(&map), 0, "it is awake");
    output(&map, b"third", FORCE_WAKEUP);
    assert_eq!(rung(&map), 1);
    assert!(map.remind(), "nothing was read");
    assert_eq!(rung(&map), 1);
    client.take();
    assert!(!map.remind());
    output(&map, b"fourth", NO_WAKEUP);
    assert_eq!(rung(&map), 0);
    assert!(!map.remind(), "nobody asked to wake it");
    assert_eq!(rung(&map), 0);
}

#[test]
fn records_of_many_threads_are_forwarded_once() {
    let map = shared(&def(MapKind::Ringbuf, 0, 0, RING as u32));
    let client = Client::writer(&map);
    let most = if skep_testkit::is_emulated() { 200 } else { 3000 };
    let producing = AtomicU32::new(3);
    let taken = thread::scope(|scope| {
        for thread in 0..3u64 {
            let (map, producing) = (&map, &producing);
            scope.spawn(move || {
                for number in 0..most {
                    let record = (thread << 32 | number).to_ne_bytes();
                    while output(map, &record, 0) != 0 {
                        thread::yield_now();
                    }
                }
                producing.fetch_sub(1, Ordering::Release);
            });
        }
        let mut taken = Vec::new();
        loop {
            let done = producing.load(Ordering::Acquire) == 0;
            taken.extend(
                client.take().into_iter().map(|record| u64::from_ne_bytes(record.try_into().unwrap())),
            );
            if done {
                break taken;
            }
            thread::yield_now();
        }
    });
    for thread in 0..3 {
        let own: Vec<u64> = taken
            .iter()
            .filter(|record| *record >> 32 == thread)
            .map(|record| record & 0xffff_ffff)
            .collect();
        assert_eq!(own, (0..most).collect::<Vec<_>>(), "thread {thread}");
    }
    assert_eq!(taken.len() as u64, 3 * most);
}

/// Overwrites a file at random until it is told to stop.
fn vandal(client: &Client, stop: &AtomicBool) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while !stop.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = match state >> 61 {
            0 => 0,
            1 => page(),
            2 => 2 * page(),
            _ => (state >> 20) as usize % (client.len / 8) * 8,
        };
        let value = if state >> 40 & 1 == 0 { state >> 33 & 0xffff } else { state };
        client.word(at).store(value, Ordering::Relaxed);
    }
}

#[test]
fn a_process_that_writes_nonsense_harms_nobody_but_itself() {
    let rounds = if skep_testkit::is_emulated() { 2000 } else { 100_000 };
    let ring = shared(&def(MapKind::Ringbuf, 0, 0, RING as u32));
    let requests = shared(&def(MapKind::UserRingbuf, 0, 0, RING as u32));
    let clients = [Client::writer(&ring), Client::writer(&requests)];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| vandal(client, &stop));
        }
        for round in 0..rounds {
            let record = ring.ring_reserve_ptr(64, 0);
            if !record.is_null() {
                // SAFETY: a record of 64 bytes.
                unsafe {
                    record.write_bytes(round as u8, 64);
                    assert_eq!(ring.ring_record_len(record), Some(64), "a program relies on it");
                    let bytes = std::slice::from_raw_parts(record, 64);
                    assert!(bytes.iter().all(|byte| *byte == round as u8));
                    Map::ring_submit_ptr(record, u64::from(round % 3 == 0));
                }
            }
            let start = clients[1].len;
            let result = requests.user_ring_drain_ptr(0, &mut |at, len| {
                assert!(at.addr().is_multiple_of(8) && len < RING && (len as usize) < start);
                // SAFETY: within the ring's memory, whatever it says there.
                unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Relaxed);
                true
            });
            let known = [-i64::from(libc::EINVAL), -i64::from(libc::E2BIG)];
            assert!(result >= 0 || known.contains(&result), "{result}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn programs_drain_what_a_process_has_written() {
    let map = shared(&def(MapKind::UserRingbuf, 0, 0, RING as u32));
    let client = Client::writer(&map);
    assert_eq!(drained(&map, 0), (0, vec![]));
    for round in 0..100 {
        let records: Vec<Vec<u8>> =
            (1..4).map(|n| vec![n as u8; (round * 11 + n * 200) % 1000 + 1]).collect();
        client.put(&records[0], 0);
        client.put(&records[1], DISCARDED);
        client.put(&records[2], 0);
        assert_eq!(rung(&map), 0);
        let (count, seen) = drained(&map, 0);
        assert_eq!((count, seen), (2, vec![records[0].clone(), records[2].clone()]), "{round}");
        assert_eq!(client.consumer().load(Ordering::Acquire), client.producer().load(Ordering::Relaxed));
        assert_eq!(rung(&map), 1, "there is room again");
    }
    client.put(b"busy", BUSY);
    assert_eq!(drained(&map, 0), (0, vec![]));
    assert_eq!(rung(&map), 0);
    assert_eq!(drained(&map, FORCE_WAKEUP), (0, vec![]));
    assert_eq!(rung(&map), 1);
}

#[test]
fn impossible_positions_and_lengths_are_refused() {
    let invalid = -i64::from(libc::EINVAL);
    let too_big = -i64::from(libc::E2BIG);
    let cases: [(u64, u32, i64); 6] = [
        (12, 0, invalid),              // no multiple of 8
        (8, 1, invalid),               // the record is longer than what was written
        (16, 9, invalid),              // the same
        (u64::MAX - 7, 4096, too_big), // longer than the ring
        (1 << 40, (1 << 24) + 1, too_big),
        (1 << 40, (1 << 30) - 1, too_big),
    ];
    for (producer, header, expected) in cases {
        let map = shared(&def(MapKind::UserRingbuf, 0, 0, RING as u32));
        let client = Client::writer(&map);
        client.half(client.at(0)).store(header, Ordering::Relaxed);
        client.producer().store(producer, Ordering::Relaxed);
        assert_eq!(drained(&map, 0), (expected, vec![]), "{producer:#x}, {header:#x}");
        assert_eq!(client.consumer().load(Ordering::Relaxed), 0, "nothing was taken");
    }
}

#[test]
fn pages_of_an_arena_that_a_client_touches_are_there_for_programs() {
    let arena = |flags: MapFlags| {
        shared(&MapDef { flags: MapFlags::MMAPABLE.union(flags), ..def(MapKind::Arena, 0, 0, 8) })
    };
    let map = arena(MapFlags(0));
    assert_eq!((map.arena().unwrap().known_start(), map.link().arena.is_some()), (None, false));
    let client = Client::writer(&map);
    let pages = map.arena().unwrap();
    assert!(!pages.set_start((5 << 32) + 1), "no page begins there");
    assert!(pages.set_start((5 << 32) + 0x1000));
    assert!(!pages.set_start(6 << 32), "once and for all");
    client.word(3 * 4096 + 8).store(7, Ordering::Relaxed);
    map.meet_touched_pages();
    assert_eq!((pages.pages(), pages.is_there(pages.start() + 3 * 4096)), (1, true));
    let mut bytes = [0; 8];
    pages.read(pages.start() + 3 * 4096 + 8, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 7);
    // An allocation passes over it, seen or not.
    client.word(0).store(1, Ordering::Relaxed);
    assert_eq!(map.arena_alloc_ptr(0, 1, -1, 0), pages.start() + 4096);
    assert_eq!(map.arena_alloc_ptr(pages.start(), 1, -1, 0), 0, "it is there");
    client.word(6 * 4096).store(1, Ordering::Relaxed);
    assert_eq!(pages.free(pages.start(), 8), Ok(4));
    assert_eq!(
        (client.word(0).load(Ordering::Relaxed), client.word(3 * 4096 + 8).load(Ordering::Relaxed)),
        (0, 0)
    );

    // With this flag a touch is a fault in Linux, so nothing is there.
    let map = arena(MapFlags::SEGV_ON_FAULT);
    let client = Client::writer(&map);
    client.word(8).store(7, Ordering::Relaxed);
    map.meet_touched_pages();
    assert_eq!(map.arena().unwrap().pages(), 0);
    let start = map.arena_alloc_ptr(0, 1, -1, 0);
    assert_eq!((start, client.word(8).load(Ordering::Relaxed)), (map.arena().unwrap().start(), 0));
}

#[test]
fn an_arena_across_a_multiple_of_4_gib_is_one_piece() {
    let map = shared(&MapDef { flags: MapFlags::MMAPABLE, ..def(MapKind::Arena, 0, 0, 4) });
    let (client, arena) = (Client::writer(&map), map.arena().unwrap());
    let start = (8 << 32) - 2 * 4096;
    assert!(arena.set_start(start));
    let link = map.link().arena.unwrap();
    assert_eq!(link.user_address(0x1234_ffff_f008), (8 << 32) - 0xff8);
    assert_eq!(link.user_address(0x1234_0000_1008), (8 << 32) + 0x1008);
    assert_eq!(link.user_address(0x1234_0000_0000), 0);
    let bytes: Vec<u8> = (0..4 * 4096u32).map(|at| (at / 64) as u8).collect();
    arena.write(start, &bytes).unwrap();
    let mut read = vec![0; bytes.len()];
    arena.read(start, &mut read).unwrap();
    assert!(read == bytes);
    assert_eq!(client.word(3 * 4096).load(Ordering::Relaxed), 0xc0c0_c0c0_c0c0_c0c0);
    assert_eq!(arena.free(start + 4096, 2), Ok(2));
    assert_eq!(client.word(4096).load(Ordering::Relaxed), 0);
    assert_eq!(map.arena_alloc_ptr(0, 1, -1, 0), start + 2 * 4096, "the client's look was a touch");
}
