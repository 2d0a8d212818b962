//! Dynptrs over ring buffer records of variable size: both engines do what Linux does.
//!
//! One program follows the instructions in an array: it reserves a record, fills it, writes to a part, requests a
//! slice, reads a part, and submits or discards the record. Recorded results of Linux are in
//! `tests/data/dynptrs.linux`; where bpf(2) is allowed, the running kernel is compared as well, and `SKEP_RECORD=1`
//! records its results.

use std::path::PathBuf;

use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Map, Module, Object, RingBuffer, Runtime, UpdateFlags};
use skep_testkit::{LinuxDef, LinuxMap, LinuxProgram, SharedMemory, ask_linux, skip};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

/// Bytes of the ring buffer.
const RING: usize = 4096;
/// Page size. Linux shares the ring buffer's memory in pages.
const PAGE: usize = 4096;

/// Words of the array: the program's instructions and results.
mod at {
    /// For the record: its length, the flags, and how many bytes are filled.
    pub(super) const LEN: usize = 0;
    pub(super) const FLAGS: usize = 8;
    pub(super) const FILL: usize = 16;
    /// For the write: offset, length, flags.
    pub(super) const W_AT: usize = 24;
    pub(super) const W_LEN: usize = 32;
    pub(super) const W_FLAGS: usize = 40;
    /// Offset of the slice.
    pub(super) const DATA: usize = 48;
    /// For the read: the same as for the write.
    pub(super) const R_AT: usize = 56;
    pub(super) const R_LEN: usize = 64;
    pub(super) const R_FLAGS: usize = 72;
    pub(super) const DISCARD: usize = 80;

    pub(super) const RESERVED: usize = 88;
    pub(super) const FILLED: usize = 96;
    pub(super) const WRITTEN: usize = 104;
    pub(super) const FOUND: usize = 112;
    pub(super) const READ: usize = 120;
    /// Result of `bpf_ringbuf_query`: bytes in the ring buffer.
    pub(super) const AVAILABLE: usize = 128;
    /// For a dynptr of 4 bytes: the results of a write in bounds and of one beyond.
    pub(super) const VIEWED: usize = 136;
    pub(super) const BEYOND: usize = 144;
    pub(super) const FOUR: usize = 152;
}

const RESULTS: usize = (at::FOUR - at::RESERVED) / 8;
/// The bytes that fill a record, and the bytes that were read from it; the same number of each.
const FROM: usize = PAGE;
const TO: usize = 2 * PAGE;
const SHARED: usize = 3 * PAGE;

/// Instructions for the program.
#[derive(Clone, Copy, Debug)]
struct Op {
    /// Length of the record, and flags.
    reserve: [u64; 2],
    /// Offset, length, flags.
    write: [u64; 3],
    /// Offset of a slice of 8 bytes.
    data: u64,
    read: [u64; 3],
    discard: bool,
}

const PLAIN: Op = Op { reserve: [64, 0], write: [0, 8, 0], data: 0, read: [0, 64, 0], discard: false };

impl Op {
    fn words(self) -> [u64; at::RESERVED / 8] {
        let Self { reserve: [len, flags], write: [to, count, how], data, read: [from, bytes, by], discard } =
            self;
        [len, flags, len.min(PAGE as u64), to, count, how, data, from, bytes, by, discard.into()]
    }

    /// Every edge case of every call.
    fn all() -> Vec<Self> {
        let ring = RING as u64;
        let lens = [0, 1, 7, 8, 9, 64, 1000, ring - 16, ring - 9, ring - 8, ring - 7, ring, 2 * ring];
        let lens = lens.into_iter().chain([(1 << 24) - 1, 1 << 24, (1 << 30) - 1, 1 << 31, u32::MAX.into()]);
        let mut ops: Vec<Self> = lens.map(|len| Self { reserve: [len, 0], ..PLAIN }).collect();
        ops.extend([1, 2, 1 << 32, u64::MAX].map(|flags| Self { reserve: [64, flags], ..PLAIN }));
        let most = u64::from(u32::MAX);
        let offsets = [0, 1, 8, 55, 56, 57, 63, 64, 65, 1 << 24, most - 7, most];
        for at in offsets {
            ops.push(Self { data: at, ..PLAIN });
            for count in [0, 1, 7, 8, 9, 63, 64, 65, 4096] {
                ops.push(Self { write: [at, count, 0], read: [at, count, 0], ..PLAIN });
            }
        }
        for flags in [1, 2, 1 << 31, u64::MAX] {
            ops.push(Self { write: [0, 8, flags], read: [0, 8, flags], ..PLAIN });
            ops.push(Self { write: [65, 8, flags], read: [65, 8, flags], ..PLAIN });
        }
        ops.into_iter().flat_map(|op| [op, Self { discard: true, ..op }]).collect()
    }
}

/// The outcome: results of calls, bytes read, and the record that the consumer finds.
struct Answer {
    results: [u64; RESULTS],
    read: Vec<u8>,
    record: Option<Vec<u8>>,
}

impl Answer {
    fn line(&self, op: &Op) -> String {
        let results = self.results.map(|word| (word as i64).to_string()).join(" ");
        let record = self.record.as_deref().map_or("none".to_owned(), sum);
        let text = format!("{op:?} -> {results}, read {}, record {record}", sum(&self.read));
        text.replace(['{', '}', ',', ':'], "").replace("Op  ", "").replace("  ->", " ->")
    }
}

/// The number of bytes and a hash of them (FNV-1a).
fn sum(bytes: &[u8]) -> String {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("{} {:016x}", bytes.len(), bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash))
}

/// The bytes that fill records.
fn pattern() -> Vec<u8> {
    (0..PAGE).map(|at| (at * 7 + at / 256 + 1) as u8).collect()
}

/// The program, with the names of its maps.
fn program(ring: &str, array: &str) -> Vec<u8> {
    use at::*;
    let word = "*(u64 *)(r9 +";
    let text = format!(
        "r9 = {array} ll
         // source and destination
         r6 = r9
         r6 += {FROM}
         r7 = r9
         r7 += {TO}
         r8 = r10
         r8 += -16
         r1 = {ring} ll
         r2 = {word} {LEN})
         r3 = {word} {FLAGS})
         r4 = r8
         call 198 // bpf_ringbuf_reserve_dynptr
         {word} {RESERVED}) = r0
         r4 = {word} {FILL})
         if r4 > {PAGE} goto filled
         r1 = r8
         r2 = 0
         r3 = r6
         r5 = 0
         call 202 // bpf_dynptr_write
         {word} {FILLED}) = r0
filled:  r2 = {word} {W_AT})
         r4 = {word} {W_LEN})
         r5 = {word} {W_FLAGS})
         if r4 > {PAGE} goto written
         r1 = r8
         r3 = r6
         call 202
         {word} {WRITTEN}) = r0
written: r1 = r8
         r2 = {word} {DATA})
         r3 = 8
         call 203 // bpf_dynptr_data
         if r0 == 0 goto nowhere
         r1 = 0x1122334455667788 ll
         *(u64 *)(r0 + 0) = r1
         r0 = 1
nowhere: {word} {FOUND}) = r0
         r4 = {word} {R_AT})
         r2 = {word} {R_LEN})
         r5 = {word} {R_FLAGS})
         if r2 > {PAGE} goto read
         r1 = r7
         r3 = r8
         call 201 // bpf_dynptr_read
         {word} {READ}) = r0
read:    r1 = {ring} ll
         r2 = 0
         call 134 // bpf_ringbuf_query
         {word} {AVAILABLE}) = r0
         r1 = r8
         r2 = 0
         r3 = {word} {DISCARD})
         if r3 != 0 goto discard
         call 199 // bpf_ringbuf_submit_dynptr
         goto over
discard: call 200 // bpf_ringbuf_discard_dynptr
over:    r1 = r9
         r1 += {FOUR}
         r2 = 4
         r3 = 0
         r4 = r8
         call 197 // bpf_dynptr_from_mem
         {word} {VIEWED}) = r0
         r1 = r8
         r2 = 1
         r3 = r6
         r4 = 4
         r5 = 0
         call 202
         {word} {BEYOND}) = r0
         r0 = 0
         exit"
    );
    encode_bytes(&assemble(&text).unwrap()).unwrap()
}

/// The array before the program runs.
fn prepared(op: &Op) -> Vec<u8> {
    // A value that no call returns.
    let untouched = [0x7777_u64; RESULTS];
    let words = op.words().into_iter().chain(untouched).flat_map(u64::to_ne_bytes);
    let mut bytes: Vec<u8> = words.collect();
    bytes.resize(FROM, 0);
    bytes.extend(pattern());
    bytes.resize(SHARED, 0);
    bytes
}

fn answered(op: &Op, array: &[u8], record: Option<Vec<u8>>) -> Answer {
    let word = |at: usize| u64::from_ne_bytes(array[at * 8..at * 8 + 8].try_into().unwrap());
    let count = if op.read[1] > PAGE as u64 { 0 } else { op.read[1] as usize };
    Answer {
        results: std::array::from_fn(|index| word(at::RESERVED / 8 + index)),
        read: array[TO..TO + count].to_vec(),
        record,
    }
}

/// skep, with one of its engines.
struct Here {
    module: Module,
    engine: Engine,
    consumer: RingBuffer,
}

impl Here {
    fn new(engine: Engine) -> Self {
        let ring = MapDef::new("ring", MapKind::Ringbuf, 0, 0, RING as u32);
        let array = MapDef::new("array", MapKind::Array, 4, SHARED as u32, 1);
        let code = program("map[0]", "map_value[1]+0x0");
        let object = Object::from_bytecode_and_maps("program", &RAW, &code, vec![ring, array]).unwrap();
        let module = Runtime::new().unwrap().linker(&object).load().unwrap();
        let consumer = RingBuffer::new(module.map("ring").unwrap()).unwrap();
        Self { module, engine, consumer }
    }

    fn array(&self) -> &Map {
        self.module.map("array").unwrap()
    }

    fn answer(&mut self, op: &Op) -> Answer {
        self.array().update(&[0; 4], &prepared(op), UpdateFlags::Any).unwrap();
        assert_eq!(self.module.programs()[0].run_raw_with(self.engine, &mut []).unwrap(), 0);
        let record = self.consumer.next_record().map(|record| record.to_vec());
        assert!(record.is_none() || self.consumer.next_record().is_none());
        answered(op, &self.array().lookup(&[0; 4]).unwrap().unwrap(), record)
    }
}

/// Linux.
struct Theirs {
    program: LinuxProgram,
    array: SharedMemory,
    /// The consumer's position; and the producers', which the records follow.
    consumer: SharedMemory,
    producers: SharedMemory,
    _maps: [LinuxMap; 2],
}

impl Theirs {
    /// Creates two maps and a program; the error if the kernel is too old for the program.
    fn new() -> Result<Self, String> {
        let ring = LinuxDef { kind: 27, max_entries: RING as u32, ..LinuxDef::default() };
        let ring = LinuxMap::create(&ring, None).unwrap();
        // `BPF_F_MMAPABLE`
        let array = LinuxDef { kind: 2, key_size: 4, max_entries: 1, flags: 0x400, ..LinuxDef::default() };
        let array = LinuxMap::create(&LinuxDef { value_size: SHARED as u32, ..array }, None).unwrap();
        let code = program(&format!("map_fd[{}]", ring.fd()), &format!("map_fd_value[{}]+0x0", array.fd()));
        Ok(Self {
            program: LinuxProgram::load(&code).map_err(|(error, log)| format!("{error}: {log}"))?,
            array: SharedMemory::of(&array, 0, SHARED, true).unwrap(),
            consumer: SharedMemory::of(&ring, 0, PAGE, true).unwrap(),
            producers: SharedMemory::of(&ring, PAGE, PAGE + 2 * RING, false).unwrap(),
            _maps: [ring, array],
        })
    }

    fn answer(&self, op: &Op) -> Answer {
        self.array.write(0, &prepared(op));
        assert_eq!(self.program.run().unwrap(), 0);
        let (from, to) = (self.consumer.load8(0), self.producers.load8(0));
        let record = (from < to).then(|| {
            let at = PAGE + from as usize % RING;
            let header = self.producers.load4(at);
            assert_eq!(header & 1 << 31, 0, "the record is not busy");
            (header & 1 << 30 == 0).then(|| self.producers.read(at + 8, header as usize))
        });
        self.consumer.store8(0, to);
        answered(op, &self.array.read(0, SHARED), record.flatten())
    }
}

fn recorded() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/dynptrs.linux")
}

#[test]
fn dynptrs_match_recorded_results_of_linux() {
    let text = std::fs::read_to_string(recorded()).unwrap();
    let ops = Op::all();
    assert_eq!(text.lines().count(), ops.len());
    for engine in ENGINES {
        let mut here = Here::new(engine);
        for (op, line) in ops.iter().zip(text.lines()) {
            assert_eq!(here.answer(op).line(op), line, "{engine:?}");
        }
    }
}

#[test]
fn dynptrs_match_the_running_linux() {
    let what = "comparison of views of records with Linux's";
    ask_linux(what, || {
        let theirs = match Theirs::new() {
            Ok(theirs) => theirs,
            Err(why) => return skip(what, &why),
        };
        let mut here = ENGINES.map(Here::new);
        let (ops, mut lines) = (Op::all(), String::new());
        for op in &ops {
            lines += &format!("{}\n", theirs.answer(op).line(op));
        }
        if std::env::var_os("SKEP_RECORD").is_some_and(|value| value == "1") {
            return std::fs::write(recorded(), lines).unwrap();
        }
        for (op, line) in ops.iter().zip(lines.lines()) {
            for here in &mut here {
                assert_eq!(here.answer(op).line(op), line, "{:?}", here.engine);
            }
        }
    });
}
