//! Arrays of perf events: samples in order, what does not fit, who may read.

use crate::common::CPUS;
use skep_abi::{MapDef, MapKind};
use skep_maps::{Map, MapError, Options, PerfReader, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn events(max_entries: u32) -> Arc<Map> {
    let def = MapDef::new("samples", MapKind::PerfEventArray, 4, 4, max_entries);
    Arc::new(Map::create(&def, &Options { cpus: CPUS, limit: 1 << 20 }).unwrap())
}

fn output(map: &Map, index: u32, cpu: u32, first: &[u8], second: &[u8]) -> i64 {
    let part = |bytes: &[u8]| (bytes.as_ptr(), bytes.len() as u32);
    // SAFETY: the parts are as long as they say.
    unsafe { map.perf_output_ptr(index, cpu, part(first), part(second)) }
}

#[test]
fn samples_arrive_whole_and_in_order_with_their_cpu() {
    let map = events(CPUS);
    let mut reader = PerfReader::new(&map, 4096).unwrap();
    let bytes: Vec<u8> = (0..64).collect();
    let mut expected = Vec::new();
    for first in 0..20 {
        for second in 0..20 {
            let cpu = (first + second) as u32 % CPUS;
            assert_eq!(output(&map, cpu, cpu, &bytes[..first], &bytes[40..40 + second]), 0);
            expected.push((cpu, [&bytes[..first], &bytes[40..40 + second]].concat()));
            if expected.len() == 16 {
                let mut found = Vec::new();
                assert_eq!(reader.for_each(|cpu, sample| found.push((cpu, sample.to_vec()))), 16);
                assert_eq!(found, std::mem::take(&mut expected));
            }
        }
    }
    assert_eq!(reader.lost(), 0);
}

#[test]
fn errors_are_those_of_linux() {
    let map = events(2);
    assert_eq!(output(&map, 0, 0, b"early", b""), -2, "nobody reads");
    let reader = PerfReader::new(&map, 4096).unwrap();
    assert_eq!(output(&map, 2, 2, b"beyond", b""), -7);
    assert_eq!(output(&map, 1, 0, b"other", b""), -95);
    assert_eq!(output(&map, 1, 1, b"right", b""), 0);
    drop(reader);
    assert_eq!(output(&map, 0, 0, b"late", b""), -2);
    let mut reader = PerfReader::new(&map, 4096).unwrap();
    assert_eq!(&reader.next_sample().unwrap()[..], b"right", "the next reader finds what was left");
}

#[test]
fn what_finds_no_room_is_counted() {
    let map = events(1);
    let mut reader = PerfReader::new(&map, 1).unwrap();
    let sample = [7; 1000];
    let mut stored = 0;
    while output(&map, 0, 0, &sample, b"") == 0 {
        stored += 1;
    }
    assert_eq!(output(&map, 0, 0, &sample, b""), -28);
    assert_eq!((stored, reader.lost(), reader.lost()), (4, 2, 0));
    assert_eq!(reader.for_each(|_, bytes| assert_eq!(bytes, sample)), 4);
    assert_eq!(output(&map, 0, 0, &[1; 5000], b""), -28, "longer than the ring");
    assert_eq!(output(&map, 0, 0, &sample, b""), 0);
}

#[test]
fn a_map_has_one_reader_of_the_right_kind() {
    let map = events(1);
    let reader = PerfReader::new(&map, 4096).unwrap();
    assert!(matches!(PerfReader::new(&map, 4096), Err(MapError::Consumed { .. })));
    assert!(matches!(RingBuffer::new(&map), Err(MapError::NotARing { .. })));
    drop(reader);
    let def = MapDef::new("ring", MapKind::Ringbuf, 0, 0, 4096);
    let ring = Arc::new(Map::create(&def, &Options { cpus: 1, limit: 1 << 20 }).unwrap());
    let refused = PerfReader::new(&ring, 4096).unwrap_err();
    assert_eq!(refused.to_string(), "map `ring`: kind ringbuf is not an array of perf events");
    // Elements are not bytes.
    assert!(map.lookup(&0u32.to_ne_bytes()).is_err());
    assert!(map.update(&0u32.to_ne_bytes(), &[0; 4], skep_maps::UpdateFlags::Any).is_err());
    for (key, value, len) in [(8, 4, 1), (4, 8, 1), (4, 4, 0)] {
        let def = MapDef::new("m", MapKind::PerfEventArray, key, value, len);
        assert!(Map::create(&def, &Options { cpus: 1, limit: 1 << 20 }).is_err());
    }
    // A huge array takes no more than there are CPUs.
    assert!(events(u32::MAX).memory() < 4096);
}

#[test]
fn a_sleeping_reader_gets_what_all_cpus_output() {
    let map = events(CPUS);
    let mut reader = PerfReader::new(&map, 1 << 14).unwrap();
    let each = 2000u32;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (map, done) = (&map, &done);
        let writers: Vec<_> = (0..CPUS)
            .map(|cpu| {
                scope.spawn(move || {
                    for number in 0..each {
                        while output(map, cpu, cpu, &number.to_ne_bytes(), &cpu.to_ne_bytes()) != 0 {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = vec![0; CPUS as usize];
        while next.iter().any(|next| *next < each) {
            assert!(reader.poll(Some(Duration::from_secs(60))));
            reader.for_each(|cpu, sample| {
                let number = u32::from_ne_bytes(sample[..4].try_into().unwrap());
                assert_eq!((number, &sample[4..]), (next[cpu as usize], &cpu.to_ne_bytes()[..]));
                next[cpu as usize] += 1;
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(done.into_inner());
}
