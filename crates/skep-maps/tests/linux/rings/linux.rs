//! Linux's ring buffers: a program of the kernel that executes requests, and a consumer as the documentation
//! describes it.
//!
//! ```text
//!   at the descriptor   0: the consumer's position | a page on: the producers' position | two pages on: records, and once more
//!   a header            length, 30 bits | discarded | busy | 32 bits of the kernel's own
//! ```

use std::thread;
use std::time::{Duration, Instant};

use skep_isa::{assemble, encode_bytes};
use skep_testkit::{LinuxDef, LinuxMap, LinuxProgram, SharedMemory, Waiter};

use super::ops::{Answer, Op, Reserve, Reserved, bytes, lengths};
use super::{BUSY, DISCARDED, Subject, total};

/// How long it is waited for a consumer to be woken.
const TOLD_MILLIS: i32 = 100;
/// How often a program that holds a record waits for the host, for as long as a loop may take (250 ms in newer
/// kernels).
const TURNS: usize = 20;

/// Where the array that program and host share has what: words, and the bytes of records.
mod at {
    /// What is to be done: 0 output, 1 query, 2 reserve.
    pub(super) const TASK: usize = 0;
    pub(super) const LEN: usize = 8;
    pub(super) const FLAGS: usize = 16;
    pub(super) const END: usize = 24;
    pub(super) const DISCARD: usize = 32;
    pub(super) const RESULT: usize = 40;
    pub(super) const AVAILABLE: usize = 48;
    pub(super) const POSITION: usize = 56;
    /// Set to 1 by the host, and to 2 by the program when it holds the record; until `SEEN` is 1, or for a while.
    pub(super) const HOLD: usize = 64;
    pub(super) const SEEN: usize = 72;
    pub(super) const WAS_SEEN: usize = 80;
    /// One more than the length of the record in the record.
    pub(super) const INNER_LEN: usize = 88;
    pub(super) const INNER_FLAGS: usize = 96;
    pub(super) const INNER_RESULT: usize = 104;
    pub(super) const BARE: usize = 112;
    pub(super) const BYTES: usize = 128;
}

/// Bytes in that array.
const SHARED: usize = 48 << 10;
/// No result of a program.
const NOTHING: u64 = 0x7777_7777;

/// A ring buffer of the kernel.
pub(crate) struct LinuxRing {
    size: usize,
    ring: LinuxMap,
    _control: LinuxMap,
    program: LinuxProgram,
    shared: SharedMemory,
    consumer: SharedMemory,
    producers: SharedMemory,
    /// Where the records begin behind the producers' position.
    records: usize,
}

impl LinuxRing {
    /// Two maps and a program; why not, where the kernel is too old for the program or has other pages.
    pub(crate) fn new(size: usize) -> Result<Self, String> {
        let page = page();
        if !size.is_multiple_of(page) {
            return Err(format!("pages of {page} bytes are larger than the ring"));
        }
        let ring = LinuxDef { kind: 27, max_entries: size as u32, ..LinuxDef::default() };
        let ring = LinuxMap::create(&ring, None).unwrap();
        // `BPF_F_MMAPABLE`
        let control = LinuxDef { kind: 2, key_size: 4, max_entries: 1, flags: 0x400, ..LinuxDef::default() };
        let control = LinuxMap::create(&LinuxDef { value_size: SHARED as u32, ..control }, None).unwrap();
        let text = program(size, ring.fd(), control.fd());
        let code = encode_bytes(&assemble(&text).unwrap()).unwrap();
        let program = LinuxProgram::load(&code).map_err(|(error, log)| format!("{error}: {log}"))?;
        Ok(Self {
            shared: SharedMemory::of(&control, 0, SHARED.next_multiple_of(page), true).unwrap(),
            consumer: SharedMemory::of(&ring, 0, page, true).unwrap(),
            producers: SharedMemory::of(&ring, page, page + 2 * size, false).unwrap(),
            records: page,
            size,
            ring,
            _control: control,
            program,
        })
    }

    /// Runs the program with what it is to do.
    fn run(&self, task: &[(usize, u64)]) -> u64 {
        self.prepare(task);
        assert_eq!(self.program.run().unwrap(), 0);
        self.shared.load8(at::RESULT)
    }

    fn prepare(&self, task: &[(usize, u64)]) {
        for word in (0..at::BYTES).step_by(8) {
            self.shared.store8(word, 0);
        }
        self.shared.store8(at::RESULT, NOTHING);
        task.iter().for_each(|(at, value)| self.shared.store8(*at, *value));
    }

    fn output(&self, len: usize, flags: u64, number: usize) -> i64 {
        self.shared.write(at::BYTES, &bytes(len, number));
        self.run(&[(at::TASK, 0), (at::LEN, len as u64), (at::FLAGS, flags)]) as i64
    }

    fn reserve(&self, reserve: &Reserve, number: usize) -> Option<Reserved> {
        self.shared
            .write(at::BYTES, &bytes(reserve.len.max(reserve.output.map_or(0, |(len, _)| len)), number));
        let mut task = vec![
            (at::TASK, 2),
            (at::LEN, reserve.len as u64),
            (at::FLAGS, reserve.flags),
            (at::END, reserve.end),
            (at::DISCARD, reserve.discard.into()),
            (at::BARE, reserve.bare.into()),
        ];
        if let Some((len, flags)) = reserve.output {
            task.extend([(at::INNER_LEN, len as u64 + 1), (at::INNER_FLAGS, flags)]);
        }
        let (result, held) = match reserve.hold {
            true => self.run_and_look(&task, reserve.len),
            false => (self.run(&task), None),
        };
        assert!(matches!(result, 0 | 1), "a program that does not know {reserve:?}");
        (result == 1).then(|| Reserved {
            available: self.shared.load8(at::AVAILABLE),
            position: self.shared.load8(at::POSITION),
            output: reserve.output.map(|_| self.shared.load8(at::INNER_RESULT) as i64),
            held,
        })
    }

    /// As `run`; and the header while the program holds the record. The program goes on by itself after some time.
    fn run_and_look(&self, task: &[(usize, u64)], len: usize) -> (u64, Option<u32>) {
        const SOON: Duration = Duration::from_secs(5);
        self.prepare(task);
        self.shared.store8(at::HOLD, 1);
        let word = thread::scope(|scope| {
            let run = scope.spawn(|| self.program.run().unwrap());
            let started = Instant::now();
            while self.shared.load8(at::HOLD) != 2 && !run.is_finished() && started.elapsed() < SOON {
                std::hint::spin_loop();
            }
            let word = (self.shared.load8(at::HOLD) == 2).then(|| {
                let behind = self.shared.load8(at::POSITION) as usize;
                self.header(behind - total(len))
            });
            self.shared.store8(at::SEEN, 1);
            word
        });
        // The program tells whether it still held the record.
        let word = word.filter(|_| self.shared.load8(at::WAS_SEEN) == 1);
        (self.shared.load8(at::RESULT), word)
    }

    fn positions(&self) -> (usize, usize) {
        (self.consumer.load8(0) as usize, self.producers.load8(0) as usize)
    }

    fn header(&self, position: usize) -> u32 {
        self.producers.load4(self.records + position % self.size)
    }

    fn take(&self) -> Option<Vec<u8>> {
        loop {
            let (consumer, producers) = self.positions();
            let word =
                (consumer < producers).then(|| self.header(consumer)).filter(|word| word & BUSY == 0)?;
            let len = (word & !DISCARDED) as usize;
            let place = self.records + consumer % self.size + 8;
            let bytes = (word & DISCARDED == 0).then(|| self.producers.read(place, len));
            self.consumer.store8(0, (consumer + total(len)) as u64);
            if bytes.is_some() {
                return bytes;
            }
        }
    }

    fn headers(&self) -> Vec<u32> {
        let (mut position, end) = self.positions();
        let mut words = Vec::new();
        while position < end {
            let word = self.header(position);
            words.push(word);
            position += total((word & !(BUSY | DISCARDED)) as usize);
        }
        words
    }
}

impl Subject for LinuxRing {
    fn answer(&mut self, op: &Op, number: usize) -> Answer {
        match op {
            Op::Output(len, flags) => Answer::Output(self.output(*len, *flags, number)),
            Op::Reserve(reserve) => {
                let reserved = self.reserve(reserve, number);
                let missed =
                    reserved.as_ref().is_some_and(|reserved| reserved.held.is_some() != reserve.hold);
                assert!(!missed, "nobody looked while the program held the record");
                Answer::Reserved(reserved)
            }
            Op::Query(what) => Answer::Number(self.run(&[(at::TASK, 1), (at::FLAGS, *what)])),
            Op::Take => Answer::Taken(self.take()),
            Op::Headers => Answer::Headers(self.headers()),
            Op::Asleep(flags) => {
                while self.take().is_some() {}
                let waiter = Waiter::of(&self.ring).unwrap();
                assert!(!waiter.was_told(0).unwrap(), "nothing is there");
                let wakes = |flags: &u64| {
                    assert_eq!(self.output(8, *flags, number), 0);
                    waiter.was_told(TOLD_MILLIS).unwrap()
                };
                Answer::Woken(flags.iter().position(wakes))
            }
            Op::Host(what) => {
                let result = match *what {
                    "lookup" => self.ring.lookup(&[], 0).map(drop),
                    "update" => self.ring.update(&[], &[], 0),
                    "delete" => self.ring.delete(&[]),
                    _ => self.ring.next_key(None).map(drop),
                };
                Answer::Refused(result.err().unwrap_or(0))
            }
        }
    }
}

fn page() -> usize {
    // SAFETY: takes no addresses.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// A program that does one thing with a ring buffer, as the shared array says. Lengths of reservations are constants to
/// the verifier, so there is a branch for each.
fn program(size: usize, ring: i32, control: i32) -> String {
    use at::*;
    let ring = format!("r1 = map_fd[{ring}] ll");
    let reserve = |len| {
        format!(
            "if r6 != {len} goto not_{len}
             {ring}
             r2 = {len}
             r3 = *(u64 *)(r9 + {FLAGS})
             call 131
             if r0 == 0 goto null
             r8 = r0
             r1 = *(u64 *)(r9 + {BARE})
             if r1 != 0 goto held
             r1 = r8
             r2 = {len}
             r3 = r9
             r3 += {BYTES}
             call 113 // bpf_probe_read_kernel
             goto held
             not_{len}:\n"
        )
    };
    let reservations: String = lengths(size).map(reserve).concat();
    let turns = format!("call wait\nr1 = *(u64 *)(r9 + {WAS_SEEN})\nif r1 != 0 goto commit\n").repeat(TURNS);
    let most = SHARED - BYTES;
    format!(
        "r9 = map_fd_value[{control}]+0x0 ll
         r6 = *(u64 *)(r9 + {TASK})
         if r6 == 1 goto query
         if r6 == 2 goto reserve
         r3 = *(u64 *)(r9 + {LEN})
         if r3 > {most} goto unknown
         {ring}
         r2 = r9
         r2 += {BYTES}
         r4 = *(u64 *)(r9 + {FLAGS})
         call 130
         *(u64 *)(r9 + {RESULT}) = r0
         r0 = 0
         exit
         query:
         {ring}
         r2 = *(u64 *)(r9 + {FLAGS})
         call 134
         *(u64 *)(r9 + {RESULT}) = r0
         r0 = 0
         exit
         reserve:
         r6 = *(u64 *)(r9 + {LEN})
         {reservations}
         unknown:
         r0 = 0
         exit
         null:
         *(u64 *)(r9 + {RESULT}) = r0
         exit
         held:
         {ring}
         r2 = 0
         call 134
         *(u64 *)(r9 + {AVAILABLE}) = r0
         {ring}
         r2 = 3
         call 134
         *(u64 *)(r9 + {POSITION}) = r0
         r3 = *(u64 *)(r9 + {INNER_LEN})
         if r3 == 0 goto alone
         r3 += -1
         if r3 > {most} goto alone
         {ring}
         r2 = r9
         r2 += {BYTES}
         r4 = *(u64 *)(r9 + {INNER_FLAGS})
         call 130
         *(u64 *)(r9 + {INNER_RESULT}) = r0
         alone:
         r1 = *(u64 *)(r9 + {HOLD})
         if r1 == 0 goto commit
         r1 = 2
         *(u64 *)(r9 + {HOLD}) = r1
         {turns}
         commit:
         r1 = 1
         *(u64 *)(r9 + {RESULT}) = r1
         r1 = r8
         r2 = *(u64 *)(r9 + {END})
         r3 = *(u64 *)(r9 + {DISCARD})
         if r3 != 0 goto discard
         call 132
         r0 = 0
         exit
         discard:
         call 133
         r0 = 0
         exit
         wait:
         r2 = map_fd_value[{control}]+0x0 ll
         again:
         r1 = *(u64 *)(r2 + {SEEN})
         if r1 != 0 goto seen
         may_goto +1
         goto again
         r0 = 0
         exit
         seen:
         *(u64 *)(r2 + {WAS_SEEN}) = r1
         r0 = 0
         exit"
    )
}
