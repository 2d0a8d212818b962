//! skep's ring buffers: the programs' side as helpers call it, and the host's consumer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skep_abi::{MapDef, MapKind};
use skep_maps::{Map, Options, RingBuffer, UpdateFlags};

use super::ops::{Answer, Op, Reserve, Reserved, bytes};
use super::{BUSY, DISCARDED, Subject, total};
use crate::common::{stays_asleep, thread_id};

/// After how many looks that find the consumer asleep it sleeps; and after how many a record has not woken it.
const ASLEEP: u32 = 20;
const NOT_WOKEN: u32 = 100;
/// Longer than it sleeps.
const LONG: Duration = Duration::from_secs(60);

/// A ring buffer and its consumer.
pub(crate) struct Ring {
    map: Arc<Map>,
    consumer: RingBuffer,
    /// What Linux's headers would say of the records that are there: in skep's memory they have no place that the host
    /// sees.
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
            // SAFETY: a record of that length, which only this test has.
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
        let (map, consumer) = (&self.map, &mut self.consumer);
        let (begin, sleeper) = (Instant::now(), AtomicI32::new(0));
        let by = thread::scope(|scope| {
            let poll = scope.spawn(|| {
                sleeper.store(thread_id(), Ordering::Relaxed);
                assert!(consumer.poll(Some(LONG)), "there is a record");
            });
            let sleeper = || sleeper.load(Ordering::Relaxed);
            while !stays_asleep(sleeper(), ASLEEP) {
                assert!(begin.elapsed() < LONG / 2, "it does not sleep");
            }
            let by = flags.iter().position(|flags| {
                assert_eq!(output(map, &bytes(8, number), *flags), 0);
                while !poll.is_finished() && !stays_asleep(sleeper(), NOT_WOKEN) {}
                poll.is_finished()
            });
            while !poll.is_finished() {
                interrupt(sleeper());
                thread::sleep(Duration::from_millis(1));
            }
            assert!(begin.elapsed() < LONG, "nothing but the time has ended the sleep");
            by
        });
        let made = by.map_or(flags.len(), |last| last + 1);
        self.headers.extend(vec![8; made]);
        by
    }
}

/// Sends a thread a signal that ends its sleep and does nothing else.
fn interrupt(thread: libc::pid_t) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: a handler of the right signature; zero is right for the other fields. A thread that has ended gets no
    // signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1);
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
