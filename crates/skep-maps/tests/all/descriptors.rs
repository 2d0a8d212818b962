//! Consumers that wait for a descriptor, as epoll(7) and poll(2) do.

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::AsFd;
use skep_abi::{MapDef, MapKind};
use skep_maps::{Map, MapError, Options, PerfReader, RingBuffer, UserRingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;

fn ring(kind: MapKind) -> Arc<Map> {
    let def = MapDef::new("events", kind, 0, 0, 4096);
    Arc::new(Map::create(&def, &Options { cpus: 2, limit: 1 << 20 }).unwrap())
}

fn output(map: &Map, number: u32, flags: u64) {
    let bytes = number.to_ne_bytes();
    // SAFETY: the record is as long as it says.
    assert_eq!(unsafe { map.ring_output_ptr(bytes.as_ptr(), 4, flags) }, 0);
}

fn is_readable(end: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(end, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

fn numbers(ring: &mut RingBuffer) -> Vec<u32> {
    let mut all = Vec::new();
    ring.for_each(|record| all.push(u32::from_ne_bytes(record.try_into().unwrap())));
    all
}

#[test]
fn a_ring_is_readable_from_its_first_record_until_nothing_is_found() {
    let map = ring(MapKind::Ringbuf);
    let mut events = RingBuffer::new(&map).unwrap();
    assert!(!is_readable(&events));
    output(&map, 1, 0);
    output(&map, 2, 0);
    assert!(is_readable(&events));
    assert_eq!(events.next_record().as_deref(), Some(&1u32.to_ne_bytes()[..]));
    assert!(is_readable(&events), "one record is left");
    assert_eq!(numbers(&mut events), [2]);
    assert!(!is_readable(&events));
    // A ring that had records before somebody asked for the descriptor.
    drop(events);
    output(&map, 3, 0);
    let mut events = RingBuffer::new(&map).unwrap();
    assert!(is_readable(&events));
    assert_eq!(numbers(&mut events), [3]);
    assert!(!is_readable(&events));
}

#[test]
fn flags_decide_about_signals_as_about_wake_ups() {
    let map = ring(MapKind::Ringbuf);
    let mut events = RingBuffer::new(&map).unwrap();
    assert!(!is_readable(&events));
    output(&map, 1, NO_WAKEUP);
    assert!(!is_readable(&events));
    // Not the record that the consumer waits for.
    output(&map, 2, 0);
    assert!(!is_readable(&events));
    output(&map, 3, FORCE_WAKEUP);
    assert!(is_readable(&events));
    assert_eq!(numbers(&mut events), [1, 2, 3]);
    assert!(!is_readable(&events));
}

#[test]
fn a_consumer_that_also_sleeps_keeps_a_right_descriptor() {
    let map = ring(MapKind::Ringbuf);
    let mut events = RingBuffer::new(&map).unwrap();
    assert!(!is_readable(&events) && !events.poll(Some(Duration::from_millis(1))));
    output(&map, 1, 0);
    assert!(is_readable(&events) && events.poll(None) && is_readable(&events));
    assert_eq!(numbers(&mut events), [1]);
    assert!(!is_readable(&events));
}

#[test]
fn no_record_is_missed_by_epoll_at_edges() {
    const RECORDS: u32 = if cfg!(miri) { 10 } else { 20_000 };
    let map = ring(MapKind::Ringbuf);
    let mut events = RingBuffer::new(&map).unwrap();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, &events, epoll::EventData::new_u64(7), flags).unwrap();
    let (consumed, ended) = (AtomicU32::new(0), AtomicBool::new(false));
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..RECORDS {
                // There is room for all; often the consumer has found nothing before the next one comes.
                let behind = if number % 4 == 0 { 0 } else { 100 };
                while number - consumed.load(Ordering::Acquire) > behind {
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::yield_now();
                }
                output(&map, number, 0);
            }
        });
        while seen.len() < RECORDS as usize {
            let mut found =
                [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
            let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
            if epoll::wait(&epoll, &mut found, Some(&timeout)).unwrap() != 1 {
                break; // and the comparison below fails
            }
            seen.extend(numbers(&mut events));
            consumed.store(seen.len() as u32, Ordering::Release);
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(seen.iter().copied().eq(0..RECORDS), "{} records of {RECORDS}", seen.len());
}

#[test]
fn samples_and_room_have_descriptors_too() {
    let def = MapDef::new("samples", MapKind::PerfEventArray, 4, 4, 2);
    let map = Arc::new(Map::create(&def, &Options { cpus: 2, limit: 1 << 20 }).unwrap());
    let mut samples = PerfReader::new(&map, 4096).unwrap();
    assert!(!is_readable(&samples));
    // SAFETY: the parts are as long as they say.
    assert_eq!(unsafe { map.perf_output_ptr(1, 1, (b"hello".as_ptr(), 5), (b"".as_ptr(), 0)) }, 0);
    assert!(is_readable(&samples));
    assert_eq!((samples.for_each(|cpu, _| assert_eq!(cpu, 1)), is_readable(&samples)), (1, false));

    let map = ring(MapKind::UserRingbuf);
    let mut requests = UserRingBuffer::new(&map).unwrap();
    assert!(is_readable(&requests), "the producer looks first");
    while let Some(sample) = requests.reserve(1000) {
        sample.submit();
    }
    assert!(!is_readable(&requests));
    assert_eq!(map.user_ring_drain_ptr(0, &mut |_, _| false), 1);
    assert!(is_readable(&requests));
    assert!(requests.reserve(1000).is_some());
}

#[test]
fn a_part_of_a_value_is_changed_alone_and_only_where_there_is_data() {
    let map = |kind, value, fields: Vec<skep_abi::SpecialField>| {
        let mut def = MapDef::new("values", kind, 4, value, 2);
        def.fields = fields;
        Map::create(&def, &Options { cpus: 1, limit: 1 << 20 }).unwrap()
    };
    let plain = map(MapKind::Array, 16, Vec::new());
    for offset in 0..16 {
        for len in 0..=16 - offset {
            let before = plain.lookup(&1u32.to_ne_bytes()).unwrap().unwrap();
            let bytes: Vec<u8> = (0..len).map(|at| (offset * 16 + at) as u8 ^ 0x5a).collect();
            plain.write_part(1, offset, &bytes).unwrap();
            let mut expected = before;
            expected[offset..offset + len].copy_from_slice(&bytes);
            assert_eq!(plain.lookup(&1u32.to_ne_bytes()).unwrap().unwrap(), expected, "{offset} {len}");
            let mut read = vec![0; len];
            plain.read_part(1, offset, &mut read).unwrap();
            assert_eq!(read, bytes);
        }
    }
    let outside = |result| matches!(result, Err(MapError::OutsideValue { .. }));
    assert!(outside(plain.write_part(0, 16, &[0])) && outside(plain.write_part(0, usize::MAX, &[0; 2])));
    assert!(matches!(plain.read_part(2, 0, &mut [0]), Err(MapError::OutOfRange { .. })));
    let lock = skep_abi::SpecialField { kind: skep_abi::SpecialKind::SpinLock, offset: 4, size: 4 };
    let locked = map(MapKind::Array, 16, vec![lock]);
    assert!(outside(locked.write_part(0, 7, &[1])) && outside(locked.write_part(0, 0, &[1; 16])));
    locked.write_part(0, 8, &[1; 8]).unwrap();
    locked.freeze().unwrap();
    assert!(matches!(locked.write_part(0, 8, &[1; 8]), Err(MapError::Frozen { .. })));
    assert!(matches!(
        map(MapKind::Hash, 4, Vec::new()).write_part(0, 0, &[0]),
        Err(MapError::NotForKind { .. })
    ));
}

#[test]
fn programs_signal_once_for_each_time_that_nothing_was_found() {
    // An eventfd counts what was written to it.
    let signals = |events: &RingBuffer| {
        let mut count = [0; 8];
        rustix::io::read(events, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    let map = ring(MapKind::Ringbuf);
    let mut events = RingBuffer::new(&map).unwrap();
    (0..50).for_each(|number| output(&map, number, 0));
    assert_eq!(signals(&events), 1, "the one that says that there were records before");
    assert_eq!(numbers(&mut events).len(), 50);
    (0..50).for_each(|number| output(&map, number, 0));
    assert_eq!(signals(&events), 1);
    for number in 0..20 {
        // The consumer is awake.
        drop(events.next_record().unwrap());
        output(&map, number, 0);
    }
    assert_eq!(signals(&events), 0);
}
