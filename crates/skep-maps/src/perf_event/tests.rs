//! Rings as their readers see them.

use super::*;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The reader's mapping.
struct Seen(*mut u8, usize);

impl Seen {
    fn new(event: &PerfEvent, len: usize) -> Self {
        event.map(len as u64, true).unwrap();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let base = unsafe { mmap(ptr::null_mut(), len, both, MapFlags::SHARED, event.file(), 0) };
        Self(base.unwrap().cast(), len)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.1);
        // SAFETY: within the mapping.
        unsafe { &*self.0.add(at).cast() }
    }

    fn head(&self) -> u64 {
        self.word(page::DATA_HEAD).load(Ordering::Acquire)
    }

    /// The bytes of the ring from a position on.
    fn bytes(&self, position: u64, len: u64) -> Vec<u8> {
        let start = rustix::param::page_size();
        let size = (self.1 - start) as u64;
        let word = |at: u64| self.word(start + (at % size / 8 * 8) as usize).load(Ordering::Relaxed);
        (0..len)
            .map(|at| position.wrapping_add(at))
            .map(|at| word(at).to_ne_bytes()[at as usize % 8])
            .collect()
    }

    /// The record at a position: its kind, and what follows the header.
    fn record(&self, position: u64) -> (u32, Vec<u8>) {
        let header = self.bytes(position, 8);
        let len = u16::from_ne_bytes(header[6..].try_into().unwrap());
        let kind = u32::from_ne_bytes(header[..4].try_into().unwrap());
        (kind, self.bytes(position.wrapping_add(8), u64::from(len) - 8))
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`.
        unsafe { munmap(self.0.cast(), self.1) }.unwrap();
    }
}

fn settings() -> PerfSettings {
    PerfSettings {
        cpu: 1,
        id: 77,
        fields: SampleFields { raw: true, ..SampleFields::default() },
        fields_of_all: false,
        wakeup: PerfWakeup::Samples(1),
        backward: false,
        enabled: true,
    }
}

fn output(event: &PerfEvent, bytes: &[u8]) -> i64 {
    // SAFETY: the parts are as long as they say.
    unsafe { event.output(1, (bytes.as_ptr(), bytes.len() as u32), (b"..".as_ptr(), 2)) }
}

fn rung(event: &PerfEvent) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(event.bell(), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

fn raw(bytes: &[u8]) -> Vec<u8> {
    let mut all = [&[0; 4], bytes, b".."].concat();
    all.resize(all.len().next_multiple_of(8), 0);
    let len = all.len() as u32 - 4;
    all[..4].copy_from_slice(&len.to_ne_bytes());
    all
}

fn page() -> usize {
    rustix::param::page_size()
}

#[test]
fn samples_of_every_length_arrive_whole_also_across_the_end() {
    let event = PerfEvent::new("test", settings()).unwrap();
    assert_eq!(output(&event, b"early"), -2, "nobody has mapped it");
    let seen = Seen::new(&event, 2 * page());
    assert_eq!(seen.word(page::DATA_SIZE).load(Ordering::Relaxed), page() as u64);
    for round in 0..2000usize {
        let bytes: Vec<u8> = (0..round % 311).map(|at| (at + round) as u8).collect();
        let at = seen.head();
        assert_eq!(output(&event, &bytes), 0, "round {round}");
        assert_eq!(seen.record(at), (SAMPLE, raw(&bytes)), "round {round}");
        seen.word(page::DATA_TAIL).store(seen.head(), Ordering::Release);
    }
    assert_eq!(rung(&event), 2000);
}

#[test]
fn a_full_ring_loses_samples_and_tells_how_many_before_the_next_one() {
    let event = PerfEvent::new("test", settings()).unwrap();
    let seen = Seen::new(&event, 2 * page());
    let mut kept = 0;
    while output(&event, &[5; 500]) == 0 {
        kept += 1;
    }
    assert_eq!((kept, output(&event, &[5; 500])), (page() / 520, -28));
    let at = seen.head();
    seen.word(page::DATA_TAIL).store(at, Ordering::Release);
    assert_eq!(output(&event, b"again"), 0);
    let (kind, told) = seen.record(at);
    assert_eq!((kind, told), (LOST, [77u64.to_ne_bytes(), 2u64.to_ne_bytes()].concat()));
    assert_eq!(seen.record(at + 24), (SAMPLE, raw(b"again")));
}

#[test]
fn positions_that_no_reader_has_lose_its_own_samples_alone() {
    let event = PerfEvent::new("test", settings()).unwrap();
    let seen = Seen::new(&event, 2 * page());
    for wild in [8, u64::MAX, 1 << 63, u64::MAX - page() as u64] {
        seen.word(page::DATA_TAIL).store(wild, Ordering::Release);
        // Both what the ring says of itself and what it does not say are the reader's to spoil.
        seen.word(page::DATA_SIZE).store(wild, Ordering::Release);
        seen.word(page::DATA_OFFSET).store(wild, Ordering::Release);
        seen.word(page::DATA_HEAD).store(wild, Ordering::Release);
        let all = (0..100).map(|_| output(&event, &[1; 300])).collect::<Vec<_>>();
        assert!(all.iter().all(|status| *status == 0 || *status == -28), "{all:?}");
        assert!(all.contains(&-28));
    }
}

#[test]
fn the_newest_record_of_a_backward_ring_is_at_its_head() {
    let event = PerfEvent::new("test", PerfSettings { backward: true, ..settings() }).unwrap();
    event.map(2 * page() as u64, false).unwrap();
    let seen = Seen::new(&event, 2 * page());
    for round in 0..500u32 {
        assert_eq!(output(&event, &round.to_ne_bytes()), 0);
        let newest = seen.head();
        assert_eq!(seen.record(newest), (SAMPLE, raw(&round.to_ne_bytes())));
        if round > 0 {
            assert_eq!(seen.record(newest.wrapping_add(24)).1, raw(&(round - 1).to_ne_bytes()));
        }
    }
}

#[test]
fn the_bell_rings_as_often_as_was_asked_for() {
    let rings = |wakeup| {
        let event = PerfEvent::new("test", PerfSettings { wakeup, ..settings() }).unwrap();
        let _seen = Seen::new(&event, 9 * page());
        (0..100).for_each(|_| assert_eq!(output(&event, &[0; 10]), 0));
        rung(&event)
    };
    assert_eq!(rings(PerfWakeup::Samples(0)), 100);
    assert_eq!(rings(PerfWakeup::Samples(30)), 3);
    assert_eq!(rings(PerfWakeup::Bytes(1)), 100);
    assert_eq!(rings(PerfWakeup::Bytes(240)), 10, "24 bytes each");
    assert_eq!(rings(PerfWakeup::Bytes(0)), 0);
}

#[test]
fn other_fields_come_before_the_bytes_in_the_order_of_the_interface() {
    let fields = SampleFields { time: true, cpu: true, period: true, raw: true };
    let event = PerfEvent::new("test", PerfSettings { fields, fields_of_all: true, ..settings() }).unwrap();
    let seen = Seen::new(&event, 2 * page());
    assert_eq!(output(&event, b"x"), 0);
    let (_, sample) = seen.record(0);
    assert_ne!(sample[..8], [0; 8], "a time");
    assert_eq!(sample[8..16], pair(1, 0).to_ne_bytes());
    assert_eq!(sample[16..24], 1u64.to_ne_bytes());
    assert_eq!(sample[24..], raw(b"x"));
    while output(&event, &[0; 100]) == 0 {}
    let at = seen.head();
    seen.word(page::DATA_TAIL).store(at, Ordering::Release);
    assert_eq!(output(&event, b""), 0);
    let (kind, told) = seen.record(at);
    assert_eq!((kind, told.len()), (LOST, 32), "with a time and the CPU");
}

#[test]
fn what_cannot_be_done_has_linux_s_error() {
    let event = PerfEvent::new("test", PerfSettings { enabled: false, ..settings() }).unwrap();
    for pages in [0, 1, 4, 6, 1 << 51] {
        let len = pages * page() as u64;
        assert_eq!(event.map(len, true), Err(PerfMapError::Length { len }), "{pages}");
    }
    event.map(2 * page() as u64, true).unwrap();
    event.map(2 * page() as u64, true).unwrap();
    assert_eq!(event.map(3 * page() as u64, true), Err(PerfMapError::Changed));
    assert_eq!(output(&event, b""), -95, "disabled");
    event.enable(true);
    assert_eq!(output(&event, b""), 0);
    // SAFETY: empty parts.
    let other = unsafe { event.output(0, (b"".as_ptr(), 0), (b"".as_ptr(), 0)) };
    assert_eq!(other, -95, "another CPU's");
    let long = vec![0; 70_000];
    assert_eq!(output(&event, &long), -7);
    event.pause(true);
    assert_eq!(output(&event, b""), -2);
    event.pause(false);
    event.detach();
    assert_eq!(output(&event, b""), -2);
}
