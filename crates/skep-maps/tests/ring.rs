//! Ring buffers: comparison with a plain model, refusals, many threads, signals, and sleep.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{create, def, map, stays_asleep, thread_id};
use proptest::prelude::*;
use skep_abi::MapKind;
use skep_maps::{Map, MapError, RingBuffer, UpdateFlags};
use skep_testkit::interrupt;

const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;

fn ring(bytes: u32) -> (Arc<Map>, RingBuffer) {
    let map = Arc::new(map(MapKind::Ringbuf, 0, 0, bytes));
    let consumer = RingBuffer::new(&map).unwrap();
    (map, consumer)
}

/// Reserves a record and fills it; returns its address, or `None` if there is no room.
fn reserve(map: &Map, bytes: &[u8]) -> Option<usize> {
    let record = map.ring_reserve_ptr(bytes.len() as u64, 0);
    if record.is_null() {
        return None;
    }
    assert!(record.addr().is_multiple_of(8));
    // SAFETY: a record of that length, which only this test has.
    unsafe {
        let place = std::slice::from_raw_parts_mut(record, bytes.len());
        assert!(place.iter().all(|byte| *byte == 0), "a record is all zeroes when it is reserved");
        place.copy_from_slice(bytes);
    }
    Some(record.expose_provenance())
}

fn submit(record: usize, flags: u64) {
    // SAFETY: the tests submit or discard each reserved record once.
    unsafe { Map::ring_submit_ptr(std::ptr::with_exposed_provenance_mut(record), flags) };
}

fn discard(record: usize) {
    // SAFETY: as above.
    unsafe { Map::ring_discard_ptr(std::ptr::with_exposed_provenance_mut(record), 0) };
}

fn output(map: &Map, bytes: &[u8], flags: u64) -> i64 {
    // SAFETY: the bytes are there.
    unsafe { map.ring_output_ptr(bytes.as_ptr(), bytes.len() as u64, flags) }
}

#[derive(Clone, Debug)]
enum Op {
    Output(usize),
    Reserve(usize),
    /// Submits or discards one of the reserved records.
    Commit(usize, bool),
    Take(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let len = || prop_oneof![8 => 0..100_usize, 2 => 100..2000_usize, 1 => 2000..4100_usize];
    let op = prop_oneof![
        len().prop_map(Op::Output),
        len().prop_map(Op::Reserve),
        (any::<usize>(), any::<bool>()).prop_map(|(which, submit)| Op::Commit(which, submit)),
        (1..20_usize).prop_map(Op::Take),
    ];
    proptest::collection::vec(op, 1..400)
}

/// A record of the model.
#[derive(PartialEq)]
enum State {
    Open(usize),
    Submitted,
    Discarded,
}

proptest! {
    #[test]
    fn a_ring_is_what_its_model_is(ops in ops()) {
        let (map, mut consumer) = ring(4096);
        let mut model: VecDeque<(State, Vec<u8>)> = VecDeque::new();
        let (mut used, mut number) = (0, 0_u8);
        let taken = |len: usize| (len + 8).next_multiple_of(8);
        for op in ops {
            match op {
                Op::Output(len) | Op::Reserve(len) => {
                    number = number.wrapping_add(1);
                    let bytes = vec![number | 1; len];
                    let fits = used + taken(len) < 4096;
                    if let Op::Output(_) = op {
                        prop_assert_eq!(output(&map, &bytes, 0), if fits { 0 } else { -11 });
                        if fits {
                            model.push_back((State::Submitted, bytes));
                        }
                    } else {
                        let record = reserve(&map, &bytes);
                        prop_assert_eq!(record.is_some(), fits);
                        if let Some(record) = record {
                            model.push_back((State::Open(record), bytes));
                        }
                    }
                    if fits {
                        used += taken(len);
                    }
                }
                Op::Commit(which, submitted) => {
                    let mut open: Vec<_> =
                        model.iter_mut().filter(|(state, _)| matches!(state, State::Open(_))).collect();
                    if open.is_empty() {
                        continue;
                    }
                    let at = which % open.len();
                    let state = &mut open[at].0;
                    let State::Open(record) = *state else { continue };
                    if submitted {
                        submit(record, 0);
                        *state = State::Submitted;
                    } else {
                        discard(record);
                        *state = State::Discarded;
                    }
                }
                Op::Take(count) => {
                    for _ in 0..count {
                        while let Some((State::Discarded, bytes)) = model.front() {
                            used -= taken(bytes.len());
                            model.pop_front();
                        }
                        let expected = match model.front() {
                            Some((State::Submitted, bytes)) => Some(bytes.clone()),
                            _ => None,
                        };
                        let record = consumer.next_record();
                        prop_assert_eq!(record.as_deref(), expected.as_deref());
                        if let Some(bytes) = expected {
                            used -= taken(bytes.len());
                            model.pop_front();
                        }
                    }
                }
            }
            prop_assert_eq!(consumer.available(), used as u64);
            prop_assert_eq!([0, 1].map(|what| map.ring_query(what)), [used as u64, 4096]);
            prop_assert_eq!(map.ring_query(3) - map.ring_query(2), used as u64);
        }
    }
}

#[test]
fn records_are_contiguous_at_every_position() {
    let (map, mut consumer) = ring(4096);
    for round in 0..3000_usize {
        let len = round * 37 % 4081;
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + round) as u8).collect();
        assert_eq!(output(&map, &bytes, 0), 0, "{len}");
        assert_eq!(consumer.next_record().as_deref(), Some(&bytes[..]));
    }
    assert_eq!(map.ring_query(2), map.ring_query(3));
    assert!(map.ring_query(2) > 100 * 4096, "it went round often");
}

#[test]
fn records_that_are_too_long_are_refused() {
    let (map, mut consumer) = ring(4096);
    // 4096 bytes minus the byte that stays free minus 8 for the header, in whole words.
    assert_eq!([4080, 4081, 4096, 1 << 20].map(|len| output(&map, &vec![1; len], 0)), [0, -11, -11, -11]);
    assert_eq!(consumer.for_each(|record| assert_eq!(record, [1; 4080])), 1);
    for len in [4081, u32::MAX.into(), 1 << 32, (1 << 32) + 8, u64::MAX] {
        assert!(map.ring_reserve_ptr(len, 0).is_null(), "{len}");
    }
    assert!(map.ring_reserve_ptr(8, 1).is_null(), "a flag that there is not");
    assert_eq!([4, 5, 1 << 63].map(|flags| output(&map, b"x", flags)), [-22; 3]);
    assert_eq!(output(&map, b"", 0), 0);
    assert_eq!(consumer.next_record().as_deref(), Some(&b""[..]));
    assert_eq!([4, 5, u64::MAX].map(|what| map.ring_query(what)), [0; 3]);
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, MapError>, errno: i32, text: &str) {
    let error = result.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.errno()), (text, errno));
}

#[test]
fn refusals_say_what_is_wrong() {
    for bytes in [1, 2048, 4095, 4097, 6144, u32::MAX] {
        refused(
            create(&def(MapKind::Ringbuf, 0, 0, bytes)),
            22,
            &format!(
                "map `m`: ring buffer size {bytes} is invalid: max_entries must be a power of two, at least 4096"
            ),
        );
    }
    assert_eq!(create(&def(MapKind::Ringbuf, 0, 0, 1 << 30)).unwrap_err().errno(), 7, "more than the limit");
    refused(
        create(&def(MapKind::Ringbuf, 0, 8, 4096)),
        22,
        "map `m`: value size 8 is invalid: kind ringbuf requires 0",
    );
    refused(
        create(&def(MapKind::Ringbuf, 4, 0, 4096)),
        22,
        "map `m`: key size 4 is invalid: kind ringbuf requires 0",
    );
    let (map, consumer) = ring(4096);
    let keys = "map `m`: elements of kind ringbuf have no keys: use a `RingBuffer`";
    refused(map.lookup(&[]), 95, keys);
    refused(map.update(&[], &[], UpdateFlags::Any), 95, keys);
    refused(map.delete(&[0; 4]), 95, keys);
    refused(map.next_key(None), 95, keys);
    refused(map.push(&[], UpdateFlags::Any), 95, "map `m`: maps of kind ringbuf have no `push`");
    assert_eq!((map.len(), map.entries().count(), map.host_value_size()), (0, 0, 0));
    // The data, its second mapping, and the control page.
    assert_eq!(map.memory(), 2 * 4096 + 5 * 64 + 48);

    refused(RingBuffer::new(&map), 16, "map `m` already has a consumer: drop it first");
    assert_eq!(output(&map, b"kept", 0), 0);
    drop(consumer);
    let mut consumer = RingBuffer::new(&map).unwrap();
    assert_eq!(consumer.next_record().as_deref(), Some(&b"kept"[..]));

    let array = Arc::new(common::map(MapKind::Array, 4, 8, 1));
    refused(RingBuffer::new(&array), 95, "map `m`: kind array is not a ring buffer");
    assert_eq!((output(&array, b"x", 0), array.ring_query(1)), (-95, 0));
    assert!(array.ring_reserve_ptr(8, 0).is_null());
}

#[test]
fn an_unsubmitted_record_holds_back_later_ones() {
    let (map, mut consumer) = ring(4096);
    let first = reserve(&map, b"first").unwrap();
    let second = reserve(&map, b"second").unwrap();
    assert_eq!(output(&map, b"third", 0), 0);
    submit(second, 0);
    assert!(consumer.next_record().is_none());
    assert!(!consumer.poll(Some(Duration::from_millis(5))));
    discard(first);
    let mut seen = Vec::new();
    assert_eq!(consumer.for_each(|record| seen.push(record.to_vec())), 2);
    assert_eq!(seen, [&b"second"[..], b"third"]);
}

/// The consumer sleeps while another thread runs the closure; returns the time.
fn asleep(consumer: &mut RingBuffer, timeout: Duration, f: impl FnOnce() + Send) -> (bool, Duration) {
    thread::scope(|scope| {
        let sleeper = thread_id();
        scope.spawn(move || {
            while !stays_asleep(sleeper, 20) {}
            f();
        });
        let started = Instant::now();
        (consumer.poll(Some(timeout)), started.elapsed())
    })
}

#[test]
fn the_consumer_sleeps_until_a_record_or_forced_wake_up() {
    const LONG: Duration = Duration::from_secs(20);
    let (map, mut consumer) = ring(4096);
    for flags in [0, FORCE_WAKEUP, FORCE_WAKEUP | NO_WAKEUP] {
        let (found, slept) = asleep(&mut consumer, LONG, || assert_eq!(output(&map, b"x", flags), 0));
        assert!(found && slept < LONG, "{flags}");
        assert_eq!(consumer.for_each(|_| ()), 1);
    }
    // No wake-up: the consumer finds the record after its timeout.
    let short = Duration::from_secs(1);
    let (found, slept) = asleep(&mut consumer, short, || assert_eq!(output(&map, b"x", NO_WAKEUP), 0));
    assert!(found && slept >= short, "{slept:?}");
    assert_eq!(consumer.for_each(|_| ()), 1);
    // As in Linux, the consumer does not wait for the next record, which wakes it only by force.
    let (found, slept) = asleep(&mut consumer, LONG, || {
        assert_eq!([NO_WAKEUP, 0, FORCE_WAKEUP].map(|flags| output(&map, b"x", flags)), [0; 3]);
    });
    assert!(found && slept < LONG);
    assert_eq!(consumer.for_each(|_| ()), 3);
    // A held-back record does not end the sleep; submitting the one before it does.
    let first = reserve(&map, b"first").unwrap();
    let (found, slept) = asleep(&mut consumer, LONG, || {
        assert_eq!(output(&map, b"second", FORCE_WAKEUP), 0);
        discard(first);
    });
    assert!(found && slept < LONG);
    assert_eq!(consumer.next_record().as_deref(), Some(&b"second"[..]));
    assert!(!consumer.poll(Some(Duration::ZERO)));
}

/// A record that names its producer and shows if it is torn.
fn sealed(producer: u64, number: u64) -> Vec<u8> {
    let words = (3 + (producer * 7 + number) % 40) as usize;
    let mut bytes = [producer, number, producer ^ !number].map(u64::to_ne_bytes).concat();
    bytes.resize(words * 8 - (number % 8) as usize, number as u8);
    bytes
}

#[test]
fn records_of_many_producers_arrive_once_whole_in_order() {
    const PRODUCERS: u64 = 4;
    const EACH: u64 = 30_000;
    let (map, mut consumer) = ring(8192);
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let map = &map;
            scope.spawn(move || {
                for number in 0..EACH {
                    let bytes = sealed(producer, number);
                    if number % 3 == 0 {
                        // The consumer never sees this record.
                        if let Some(record) = reserve(map, &bytes) {
                            discard(record);
                        }
                    }
                    if number % 2 == 0 {
                        while output(map, &bytes, 0) != 0 {
                            thread::yield_now();
                        }
                    } else {
                        let record = loop {
                            match reserve(map, &bytes) {
                                Some(record) => break record,
                                None => thread::yield_now(),
                            }
                        };
                        submit(record, if number % 5 == 0 { FORCE_WAKEUP } else { 0 });
                    }
                }
            });
        }
        let mut next = [0; PRODUCERS as usize];
        while next.iter().sum::<u64>() < PRODUCERS * EACH {
            assert!(consumer.poll(Some(Duration::from_secs(60))), "a wake-up was lost: {next:?}");
            consumer.for_each(|record| {
                let producer = u64::from_ne_bytes(record[..8].try_into().unwrap());
                let number = &mut next[producer as usize];
                assert_eq!(record, sealed(producer, *number));
                *number += 1;
            });
        }
    });
    assert!(consumer.next_record().is_none());
}

/// The ring that the signal handler writes to, with the counts of its records and failures.
static INTERRUPTED: AtomicPtr<Map> = AtomicPtr::new(std::ptr::null_mut());
static FROM_HANDLER: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

extern "C" fn produce(_: libc::c_int) {
    let map = INTERRUPTED.load(Ordering::Acquire);
    // SAFETY: the test keeps it while signals come.
    let Some(map) = (unsafe { map.as_ref() }) else { return };
    let number = FROM_HANDLER.load(Ordering::Relaxed);
    let words = [1, number, 1 ^ !number];
    // SAFETY: 24 bytes.
    match unsafe { map.ring_output_ptr(words.as_ptr().cast(), 24, 0) } {
        0 => FROM_HANDLER.store(number + 1, Ordering::Relaxed),
        _ => drop(REFUSED.fetch_add(1, Ordering::Relaxed)),
    }
}

#[test]
fn a_reservation_in_a_signal_handler_may_interrupt_another() {
    const RECORDS: u64 = 200_000;
    let (map, mut consumer) = ring(1 << 16);
    INTERRUPTED.store(Arc::as_ptr(&map).cast_mut(), Ordering::Release);
    // SAFETY: a handler with the right signature, which is async-signal-safe.
    unsafe {
        let handler = produce as extern "C" fn(libc::c_int);
        assert_ne!(libc::signal(libc::SIGUSR1, handler as libc::sighandler_t), libc::SIG_ERR);
    }
    let (steps, [over, stop]) = (AtomicU64::new(0), [const { AtomicBool::new(false) }; 2]);
    let [mut own, mut others] = [0; 2];
    // As many as the ring has room for: while the producer runs, another record may always follow.
    let mut take = |consumer: &mut RingBuffer| {
        for record in (0..1 << 11).map_while(|_| consumer.next_record().map(|record| record.to_vec())) {
            let word = |at: usize| u64::from_ne_bytes(record[at * 8..at * 8 + 8].try_into().unwrap());
            assert_eq!(word(2), word(0) ^ !word(1));
            let next = if word(0) == 0 { &mut own } else { &mut others };
            assert_eq!(word(1), *next);
            *next += 1;
        }
        (own, others)
    };
    let written = thread::scope(|scope| {
        let (ready, wait) = std::sync::mpsc::channel();
        let (map, steps, over, stop) = (&map, &steps, &over, &stop);
        let producer = scope.spawn(move || {
            // SAFETY: always succeeds.
            ready.send(unsafe { libc::pthread_self() }).unwrap();
            let mut number = 0_u64;
            // The thread stays until the signals stop.
            while !stop.load(Ordering::Acquire) {
                let words = [0, number, !number].map(u64::to_ne_bytes).concat();
                match output(map, &words, 0) {
                    0 => number += 1,
                    _ => thread::yield_now(),
                }
                steps.fetch_add(1, Ordering::Relaxed);
            }
            number
        });
        let target = wait.recv().unwrap();
        // SAFETY: the thread lives until this one has ended.
        let signals = scope.spawn(move || unsafe {
            interrupt(target, libc::SIGUSR1, steps, || over.load(Ordering::Acquire));
        });
        let (begin, mut taken) = (Instant::now(), (0, 0));
        while taken.0 < RECORDS || taken.1 <= 100 && begin.elapsed() < Duration::from_secs(60) {
            assert!(consumer.poll(Some(Duration::from_secs(60))), "a wake-up was lost");
            taken = take(&mut consumer);
        }
        over.store(true, Ordering::Release);
        signals.join().unwrap();
        stop.store(true, Ordering::Release);
        producer.join().unwrap()
    });
    INTERRUPTED.store(std::ptr::null_mut(), Ordering::Release);
    let (own, others) = take(&mut consumer);
    assert_eq!((own, others), (written, FROM_HANDLER.load(Ordering::Relaxed)));
    assert!(others > 100, "{others} records from the handler, {} refused", REFUSED.load(Ordering::Relaxed));
}
