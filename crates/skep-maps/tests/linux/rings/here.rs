//! skep's ring buffers: the programs' side as helpers call it, and the host's consumer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skep_abi::{MapDef, MapKind};
use skep_maps::{Map, Options, RingBuffer, UpdateFlags};

use super::ops::{Answer, Op, Reserve, Reserved, bytes};
use super::{BUSY, DISCARDED, Subject, total};

/// How long a consumer takes to fall asleep, and how long to be woken, at most.
const TO_SLEEP: Duration = Duration::from_millis(100);
const TO_WAKE: Duration = Duration::from_millis(250);

/// A ring buffer and its consumer.
pub(crate) struct Ring {
    map: Arc<Map>,
    consumer: RingBuffer,
    /// What Linux's headers would say of the records that are there: in skep's memory they have no place that the host sees.
    headers: VecDeque<u32>,
    /// The position of the first of them.
    first: u64,
}

impl Ring {
    pub(crate) fn new(size: usize) -> Self {
        let def = MapDef::new("m", MapKind::Ringbuf, 0, 0, size as u32);
        let map = Arc::new(Map::create(&def, &Options { cpus: 1, limit: 1 << 20 }).unwrap());
        let consumer = RingBuffer::new(&map).unwrap();
        Self { map, consumer, headers: VecDeque::new(), first: 0 }
    }

    fn output(&mut self, len: usize, flags: u64, number: usize) -> i64 {
        let status = output(&self.map, &bytes(len, number), flags);
        if status == 0 {
            self.headers.push_back(len as u32);
        }
        status
    }

    fn reserve(&mut self, reserve: &Reserve, number: usize) -> Option<Reserved> {
        let record = self.map.ring_reserve_ptr(reserve.len as u64, reserve.flags);
        if record.is_null() {
            return None;
        }
        let available = self.map.ring_query(0);
        let position = self.map.ring_query(3);
        let own = self.headers.len();
        self.headers.push_back(reserve.len as u32 | BUSY);
        if !reserve.bare {
            let bytes = bytes(reserve.len, number);
            // SAFETY: a record of that length, which nobody else has.
            unsafe { record.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        let output = reserve.output.map(|(len, flags)| self.output(len, flags, number));
        let held = reserve.hold.then(|| {
            let oldest = available == total(reserve.len) as u64;
            assert!(!oldest || self.consumer.next_record().is_none(), "it is not ready");
            self.headers[own]
        });
        let state = if reserve.discard { DISCARDED } else { 0 };
        // SAFETY: reserved above, and given back once.
        unsafe {
            match reserve.discard {
                true => Map::ring_discard_ptr(record, reserve.end),
                false => Map::ring_submit_ptr(record, reserve.end),
            }
        }
        self.headers[own] = reserve.len as u32 | state;
        Some(Reserved { available, position, output, held })
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let bytes = self.consumer.next_record().map(|record| record.to_vec());
        let position = self.map.ring_query(2);
        while self.first < position {
            let passed = self.headers.pop_front().expect("a record that was passed");
            self.first += total((passed & !DISCARDED) as usize) as u64;
        }
        assert_eq!(self.first, position, "the consumer stands before a record");
        bytes
    }

    /// By which of the records a consumer is woken that sleeps.
    fn woken_by(&mut self, flags: &[u64], number: usize) -> Option<usize> {
        while self.take().is_some() {}
        let woken = AtomicBool::new(false);
        let patience = 2 * TO_SLEEP + TO_WAKE * flags.len() as u32;
        let (map, consumer) = (&self.map, &mut self.consumer);
        let by = thread::scope(|scope| {
            scope.spawn(|| {
                let slept = Instant::now();
                let found = consumer.poll(Some(patience));
                woken.store(found && slept.elapsed() < patience, Ordering::Release);
            });
            thread::sleep(TO_SLEEP);
            flags.iter().position(|flags| {
                assert_eq!(output(map, &bytes(8, number), *flags), 0);
                let since = Instant::now();
                while !woken.load(Ordering::Acquire) && since.elapsed() < TO_WAKE {
                    thread::sleep(Duration::from_millis(1));
                }
                woken.load(Ordering::Acquire)
            })
        });
        let made = by.map_or(flags.len(), |last| last + 1);
        self.headers.extend(vec![8; made]);
        by
    }
}

fn output(map: &Map, bytes: &[u8], flags: u64) -> i64 {
    // SAFETY: the bytes are there.
    unsafe { map.ring_output_ptr(bytes.as_ptr(), bytes.len() as u64, flags) }
}

impl Subject for Ring {
    fn answer(&mut self, op: &Op, number: usize) -> Answer {
        match op {
            Op::Output(len, flags) => Answer::Output(self.output(*len, *flags, number)),
            Op::Reserve(reserve) => Answer::Reserved(self.reserve(reserve, number)),
            Op::Query(what) => Answer::Number(self.map.ring_query(*what)),
            Op::Take => Answer::Taken(self.take()),
            Op::Headers => Answer::Headers(self.headers.iter().copied().collect()),
            Op::Asleep(flags) => Answer::Woken(self.woken_by(flags, number)),
            Op::Host(what) => {
                let result = match *what {
                    "lookup" => self.map.lookup(&[]).map(drop),
                    "update" => self.map.update(&[], &[], UpdateFlags::Any),
                    "delete" => self.map.delete(&[]),
                    _ => self.map.next_key(None).map(drop),
                };
                Answer::Refused(result.map_or_else(|error| error.errno(), |()| 0))
            }
        }
    }
}
