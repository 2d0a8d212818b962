//! Streams of events on tokio.

use futures_core::Stream;
use skep::abi::{MapDef, MapKind};
use skep::stream::{PerfStream, RingStream, UserRingSink};
use skep::{Map, MapOptions};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/tokio.rs"]
mod example;

fn executor() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn map(kind: MapKind, sizes: [u32; 3]) -> Arc<Map> {
    let def = MapDef::new("events", kind, sizes[0], sizes[1], sizes[2]);
    Arc::new(Map::create(&def, &MapOptions { cpus: 2, limit: 1 << 20 }).unwrap())
}

fn output(map: &Map, byte: u8) {
    // SAFETY: the record is as long as it says.
    assert_eq!(unsafe { map.ring_output_ptr([byte].as_ptr(), 1, 0) }, 0);
}

#[test]
fn the_example_host_gets_an_event_for_each_packet() {
    let bytes = executor().block_on(example::host()).unwrap();
    assert_eq!(bytes, (0..1000).map(|number| 60 + number % 100).sum::<u64>());
}

#[test]
fn a_stream_has_all_records_whether_they_come_before_or_while_it_waits() {
    let map = map(MapKind::Ringbuf, [0, 0, 4096]);
    output(&map, 0);
    executor().block_on(async {
        let mut records = RingStream::new(&map).unwrap();
        let other = Arc::clone(&map);
        let producer = std::thread::spawn(move || {
            for byte in 1..200 {
                output(&other, byte);
                if byte % 16 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        for byte in 0..200 {
            let next = std::future::poll_fn(|cx| Pin::new(&mut records).poll_next(cx));
            assert_eq!(next.await.unwrap().unwrap(), [byte]);
        }
        producer.join().unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(5), records.next_record()).await;
        assert!(waited.is_err(), "there is no record");
        output(&map, 7); // after a wait that was given up
        assert_eq!(records.next_record().await.unwrap(), [7]);
    });
}

#[test]
fn samples_have_their_cpu_and_user_records_wait_for_room() {
    let samples = map(MapKind::PerfEventArray, [4, 4, 2]);
    executor().block_on(async {
        let mut stream = PerfStream::new(&samples, 4096).unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(5), stream.next_sample()).await;
        assert!(waited.is_err());
        // SAFETY: the parts are as long as they say.
        let status = unsafe { samples.perf_output_ptr(1, 1, (b"hello".as_ptr(), 5), (b"".as_ptr(), 0)) };
        assert_eq!(status, 0);
        assert_eq!(stream.next_sample().await.unwrap().0, 1);
    });
    let requests = map(MapKind::UserRingbuf, [0, 0, 4096]);
    executor().block_on(async {
        let mut sink = UserRingSink::new(&map(MapKind::UserRingbuf, [0, 0, 4096])).unwrap();
        sink.send(&[0; 4080]).await.expect("with its header it leaves the last 8 bytes free");
        let mut sink = UserRingSink::new(&requests).unwrap();
        assert!(sink.send(&[0; 4081]).await.is_err());
        assert!(sink.send(&[0; 4096]).await.is_err());
        let record = [1; 1000];
        for _ in 0..4 {
            sink.send(&record).await.unwrap();
        }
        let full = tokio::time::timeout(Duration::from_millis(5), sink.send(&record)).await;
        assert!(full.is_err());
        let other = Arc::clone(&requests);
        let drain = std::thread::spawn(move || other.user_ring_drain_ptr(0, &mut |_, _| true));
        sink.send(&record).await.unwrap();
        assert!((4..=5).contains(&drain.join().unwrap()));
    });
}
