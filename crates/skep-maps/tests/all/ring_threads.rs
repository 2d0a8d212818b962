//! Many producers and one consumer that sleeps: nothing is lost, torn or out of order.

use std::sync::Arc;
use std::time::Duration;

use skep_abi::{MapDef, MapKind};
use skep_maps::{Map, Options, RingBuffer};

#[test]
fn no_record_is_lost_or_torn_and_no_wake_up_missed() {
    const EACH: u64 = 200_000;
    let def = MapDef::new("events", MapKind::Ringbuf, 0, 0, 4096);
    let map = Arc::new(Map::create(&def, &Options { cpus: 4, limit: 1 << 20 }).unwrap());
    let mut ring = RingBuffer::new(&map).unwrap();
    assert!(RingBuffer::new(&map).is_err());
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let map = &map;
            scope.spawn(move || {
                for number in 0..EACH {
                    let len = 16 + (number * 31 + thread * 7) % 700;
                    let at = loop {
                        let at = map.ring_reserve_ptr(len, 0);
                        if !at.is_null() {
                            break at;
                        }
                        std::thread::yield_now();
                    };
                    // SAFETY: the record has `len` bytes.
                    unsafe {
                        let bytes = std::slice::from_raw_parts_mut(at, len as usize);
                        assert!(bytes.iter().all(|byte| *byte == 0), "not zeroed");
                        bytes.fill(number as u8);
                        bytes[..8].copy_from_slice(&(number << 8 | thread).to_ne_bytes());
                        if number % 11 == 5 {
                            Map::ring_discard_ptr(at, 0);
                        } else {
                            Map::ring_submit_ptr(at, 0);
                        }
                    }
                }
            });
        }
        let mut next = [0_u64; 3];
        let skip = |number: u64| if number % 11 == 5 { number + 1 } else { number };
        while next.iter().any(|&next| skip(next) < EACH) {
            assert!(ring.poll(Some(Duration::from_secs(10))), "lost: {next:?}");
            while let Some(record) = ring.next_record() {
                let head = u64::from_ne_bytes(record[..8].try_into().unwrap());
                let (thread, number) = ((head & 255) as usize, head >> 8);
                assert_eq!(skip(next[thread]), number);
                assert_eq!(record.len() as u64, 16 + (number * 31 + thread as u64 * 7) % 700);
                assert!(record[8..].iter().all(|byte| *byte == number as u8));
                next[thread] = number + 1;
            }
        }
    });
}
