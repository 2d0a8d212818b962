//! User ring buffers: records from the host to programs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{create, def, map, stays_asleep, thread_id};
use proptest::prelude::*;
use skep_abi::{MapDef, MapFlags, MapKind};
use skep_maps::{Map, MapError, RingBuffer, UpdateFlags, UserRingBuffer};

const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;

fn ring(bytes: u32) -> (Arc<Map>, UserRingBuffer) {
    let map = Arc::new(map(MapKind::UserRingbuf, 0, 0, bytes));
    let host = UserRingBuffer::new(&map).unwrap();
    (map, host)
}

fn put(host: &mut UserRingBuffer, bytes: &[u8]) -> bool {
    let Some(mut sample) = host.reserve(bytes.len() as u32) else { return false };
    assert!(sample.iter().all(|byte| *byte == 0), "a record is all zeroes when it is reserved");
    sample.copy_from_slice(bytes);
    sample.submit();
    true
}

/// Drains as a program does, at most `most` records.
fn drain(map: &Map, flags: u64, most: usize) -> (i64, Vec<Vec<u8>>) {
    let mut seen = Vec::new();
    let result = map.user_ring_drain_ptr(flags, &mut |at, len| {
        assert!(at.addr().is_multiple_of(8));
        // SAFETY: the record is this function's while it runs.
        seen.push(unsafe { std::slice::from_raw_parts(at, len as usize) }.to_vec());
        seen.len() < most
    });
    (result, seen)
}

#[test]
fn definitions_are_checked_as_in_linux() {
    for (key_size, value_size, bytes, flags, fits) in [
        (0, 0, 4096, 0, true),
        (0, 0, 1 << 20, 0, true),
        (4, 0, 4096, 0, false),
        (0, 4, 4096, 0, false),
        (0, 0, 0, 0, false),
        (0, 0, 1, 0, false),
        (0, 0, 4095, 0, false),
        (0, 0, 12288, 0, false),
        (0, 0, u32::MAX, 0, false),
        (0, 0, 1 << 31, 0, false),
        (0, 0, 4096, 1, false),
        (0, 0, 4096, 0x80, false),
        (0, 0, 4096, 0x400, false),
    ] {
        let def = MapDef { flags: MapFlags(flags), ..def(MapKind::UserRingbuf, key_size, value_size, bytes) };
        assert_eq!(create(&def).is_ok(), fits, "{def:?}");
    }
}

#[test]
fn a_drain_gives_records_in_order_and_stops_when_it_is_told() {
    let (map, mut host) = ring(4096);
    assert_eq!(drain(&map, 0, 9), (0, vec![]));
    for bytes in [&b"one"[..], b"", b"three", b"12345678"] {
        assert!(put(&mut host, bytes));
    }
    drop(host.reserve(7).unwrap());
    assert!(put(&mut host, b"last"));
    assert_eq!(host.pending(), 16 + 8 + 16 + 16 + 16 + 16);
    assert_eq!(drain(&map, 0, 2), (2, vec![b"one".to_vec(), vec![]]));
    let left = vec![b"three".to_vec(), b"12345678".to_vec(), b"last".to_vec()];
    assert_eq!(drain(&map, 0, 9), (3, left), "what was discarded is skipped");
    assert_eq!((drain(&map, 0, 9).0, host.pending()), (0, 0));
}

#[test]
fn a_record_that_is_not_submitted_holds_back_those_behind_it_and_ends_with_its_owner() {
    let (map, mut host) = ring(4096);
    let sample = host.reserve(8).unwrap();
    assert_eq!(drain(&map, 0, 9), (0, vec![]));
    drop(sample);
    assert_eq!(drain(&map, 0, 9), (0, vec![]));
    assert_eq!(host.pending(), 0, "it was passed over");
}

#[test]
fn drains_that_interrupt_each_other_and_unknown_flags_are_refused() {
    let (map, mut host) = ring(4096);
    assert!(put(&mut host, b"a") && put(&mut host, b"b"));
    let mut inner = Vec::new();
    let outer = map.user_ring_drain_ptr(0, &mut |_, _| {
        inner.push(drain(&map, 0, 9));
        true
    });
    assert_eq!((outer, inner), (2, vec![(-16, vec![]), (-16, vec![])]));
    for flags in [4, 1 << 40, u64::MAX] {
        assert_eq!(drain(&map, flags, 9).0, -22);
    }
    assert_eq!(drain(&map, 0, 9).0, 0, "the last drain has ended");
    let other = crate::common::map(MapKind::Ringbuf, 0, 0, 4096);
    assert_eq!(drain(&other, 0, 9).0, -95);
}

#[test]
fn a_map_has_one_producer_and_no_other_operations() {
    let (map, host) = ring(4096);
    assert!(matches!(UserRingBuffer::new(&map), Err(MapError::Consumed { .. })));
    drop(host);
    assert!(UserRingBuffer::new(&map).is_ok());
    assert!(matches!(RingBuffer::new(&map), Err(MapError::NotARing { .. })));
    let records = Arc::new(crate::common::map(MapKind::Ringbuf, 0, 0, 4096));
    assert!(matches!(UserRingBuffer::new(&records), Err(MapError::NotARing { .. })));
    assert!(map.ring_reserve_ptr(8, 0).is_null());
    assert_eq!(map.ring_query(1), 0);
    assert_eq!(map.lookup(&[]).unwrap_err().errno(), 95);
    assert_eq!(map.update(&[], &[], UpdateFlags::Any).unwrap_err().errno(), 95);
    assert_eq!(map.delete(&[]).unwrap_err().errno(), 95);
    assert_eq!((map.len(), map.entries().count()), (0, 0));
    let error = map.lookup(&[]).unwrap_err().to_string();
    assert_eq!(error, "map `m`: elements of kind user_ringbuf have no keys: use a `UserRingBuffer`");
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let (map, mut host) = ring(4096);
    for len in [4096, 4088, u32::MAX, u32::MAX - 8] {
        assert!(host.reserve(len).is_none(), "{len}");
        assert!(host.reserve_within(len, None).is_none(), "{len}: it does not wait for ever");
    }
    assert!(put(&mut host, &[1; 4080]));
    assert!(host.reserve(0).is_none());
    assert!(host.reserve_within(0, Some(Duration::from_millis(1))).is_none());
    assert_eq!(drain(&map, 0, 1).0, 1);
    assert!(put(&mut host, &[2; 4080]), "across the ring's end");
    assert_eq!(drain(&map, 0, 1).1, [vec![2; 4080]]);
}

#[test]
fn a_host_that_waits_for_room_is_woken_by_a_drain_as_its_flags_say() {
    let (map, mut host) = ring(4096);
    let (waits, got) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=3 {
                while put(&mut host, &[0; 1000]) {}
                waits.store(thread_id() as u64, Ordering::SeqCst);
                host.reserve_within(1000, Some(Duration::from_secs(60))).unwrap().submit();
                got.store(number, Ordering::SeqCst);
            }
        });
        let asleep = || {
            let thread = loop {
                match waits.swap(0, Ordering::SeqCst) {
                    0 => thread::yield_now(),
                    thread => break thread as i32,
                }
            };
            while !stays_asleep(thread, 3) {}
            thread
        };
        let until = |number| {
            while got.load(Ordering::SeqCst) < number {
                thread::yield_now();
            }
        };
        asleep();
        assert_eq!(drain(&map, 0, 1).0, 1);
        until(1);
        let thread = asleep();
        assert_eq!(drain(&map, NO_WAKEUP, 1).0, 1);
        assert!(stays_asleep(thread, 3));
        assert_eq!(drain(&map, FORCE_WAKEUP, 1).0, 1);
        until(2);
        asleep();
        assert!(drain(&map, 0, 9).0 > 0);
        until(3);
    });
}

#[test]
fn no_record_is_lost_torn_or_taken_twice_by_many_programs() {
    const ALL: u64 = 60_000;
    let (map, mut host) = ring(4096);
    let (sum, count) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while count.load(Ordering::SeqCst) < ALL {
                    let result = map.user_ring_drain_ptr(0, &mut |at, len| {
                        // SAFETY: the record is this function's while it runs.
                        let bytes = unsafe { std::slice::from_raw_parts_mut(at, len as usize) };
                        let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                        assert_eq!(len, 8 + number % 50);
                        assert!(bytes[8..].iter().all(|byte| *byte == number as u8));
                        bytes.fill(0xee); // a program may write to it
                        sum.fetch_add(number, Ordering::SeqCst);
                        count.fetch_add(1, Ordering::SeqCst);
                        !number.is_multiple_of(13)
                    });
                    assert!(result >= 0 || result == -16, "{result}");
                    if result <= 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        for number in 1..=ALL {
            let mut sample = host.reserve_within(8 + (number % 50) as u32, None).unwrap();
            assert!(sample.iter().all(|byte| *byte == 0));
            sample[..8].copy_from_slice(&number.to_ne_bytes());
            sample[8..].fill(number as u8);
            sample.submit();
        }
    });
    assert_eq!((count.into_inner(), sum.into_inner()), (ALL, ALL * (ALL + 1) / 2));
}

#[derive(Clone, Debug)]
enum Op {
    Submit(usize),
    Discard(usize),
    Drain(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![0..40_usize, 0..1500_usize];
    prop_oneof![len.clone().prop_map(Op::Submit), len.prop_map(Op::Discard), (1..5_usize).prop_map(Op::Drain),]
}

proptest! {
    #[test]
    fn a_user_ring_is_a_queue_of_bounded_size(ops in prop::collection::vec(op(), 1..150)) {
        let (map, mut host) = ring(4096);
        let total = |len: usize| (len + 8).next_multiple_of(8);
        let mut model: VecDeque<(usize, Option<Vec<u8>>)> = VecDeque::new();
        for (number, op) in ops.into_iter().enumerate() {
            let taken: usize = model.iter().map(|(len, _)| total(*len)).sum();
            match op {
                Op::Submit(len) => {
                    let bytes = vec![number as u8; len];
                    let fits = taken + total(len) < 4096;
                    prop_assert_eq!(put(&mut host, &bytes), fits);
                    if fits { model.push_back((len, Some(bytes))) }
                }
                Op::Discard(len) => {
                    let fits = taken + total(len) < 4096;
                    prop_assert_eq!(host.reserve(len as u32).is_some(), fits);
                    if fits { model.push_back((len, None)) }
                }
                Op::Drain(most) => {
                    let mut expected = Vec::new();
                    while expected.len() < most && let Some((_, record)) = model.pop_front() {
                        expected.extend(record);
                    }
                    prop_assert_eq!(drain(&map, 0, most), (expected.len() as i64, expected));
                }
            }
            let taken: usize = model.iter().map(|(len, _)| total(*len)).sum();
            prop_assert_eq!(host.pending() as usize, taken);
        }
    }
}
