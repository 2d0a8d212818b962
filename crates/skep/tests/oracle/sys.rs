//! Hostile calls of bpf(2): a process that names anything as anything.
//!
//! The process has 1 MiB of memory. Its attributes are at the beginning; each address that it gives on purpose begins
//! an area of its own. The promises:
//!
//! - no call panics;
//! - a call writes to its attributes, and within [`AREA`] bytes behind an address that the attributes name, or that is
//!   in the first bytes of memory that they name (`struct bpf_prog_info` has such);
//! - when the process has closed and unpinned everything, no object is left;
//! - afterwards the system works as before.

use skep::sys::SysEngine;
use skep::world::{Device, Machine};
use skep::{Runtime, World};
use skep_sys::{Caller, ClientSocket, ClientState, Command, ControlGroup, Errno, Handle, System};
use skep_testgen::Source;
use std::collections::BTreeMap;

const MEMORY: usize = 1 << 20;
/// The address of the memory's first byte.
const BASE: u64 = 0x10000;
/// Bytes behind an address that a call may write: more than any buffer that the sizes below allow.
const AREA: u64 = 1 << 15;
/// Where areas begin, behind the attributes.
const AREAS: u64 = BASE + AREA;
/// Bytes of memory in which further addresses may be: the longest structure of information.
const NESTED: u64 = 256;
/// The most bytes of attributes.
const ATTRIBUTES: usize = 192;

/// A process.
struct Process {
    memory: Vec<u8>,
    descriptors: BTreeMap<i32, Handle<SysEngine>>,
    pins: BTreeMap<Vec<u8>, Handle<SysEngine>>,
    /// What the last call wrote.
    written: Vec<(u64, u64)>,
}

impl Process {
    fn range(&self, address: u64, len: usize) -> Result<std::ops::Range<usize>, Errno> {
        let start = address.checked_sub(BASE).ok_or(Errno::EFAULT)? as usize;
        let end = start.checked_add(len).filter(|end| *end <= MEMORY).ok_or(Errno::EFAULT)?;
        Ok(start..end)
    }

    /// The word at a place, however many of its bytes there are.
    fn word(&self, at: usize) -> u64 {
        let bytes = self.memory.get(at..at + 8).unwrap_or(&[0; 8]);
        u64::from_ne_bytes(bytes.try_into().unwrap_or_default())
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        let range = self.range(address, bytes.len()).expect("the test's own addresses are in its memory");
        self.memory[range].copy_from_slice(bytes);
    }
}

impl Caller<SysEngine> for &mut Process {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        if !into.is_empty() {
            into.copy_from_slice(&self.memory[self.range(address, into.len())?]);
        }
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Errno> {
        if !from.is_empty() {
            let range = self.range(address, from.len())?;
            self.memory[range].copy_from_slice(from);
            self.written.push((address, from.len() as u64));
        }
        Ok(())
    }

    fn handle(&mut self, descriptor: i32) -> Result<Handle<SysEngine>, Errno> {
        // The first three are other files.
        let other = if (0..3).contains(&descriptor) { Errno::EINVAL } else { Errno::EBADF };
        self.descriptors.get(&descriptor).cloned().ok_or(other)
    }

    fn install(&mut self, handle: Handle<SysEngine>) -> Result<i32, Errno> {
        // A small limit, so that it is met.
        let free = (3..40).find(|number| !self.descriptors.contains_key(number)).ok_or(Errno::EMFILE)?;
        self.descriptors.insert(free, handle);
        Ok(free)
    }

    fn output(&mut self, bytes: &[u8]) -> Result<i32, Errno> {
        assert!(bytes.len() <= 64 << 20, "a walk has an end");
        Ok(2)
    }

    fn pin(&mut self, _: Option<i32>, path: &[u8], handle: Handle<SysEngine>) -> Result<(), Errno> {
        if self.pins.contains_key(path) {
            return Err(Errno::EEXIST);
        }
        if self.pins.len() == 8 {
            return Err(Errno(28)); // ENOSPC
        }
        self.pins.insert(path.to_vec(), handle);
        Ok(())
    }

    fn pinned(&mut self, _: Option<i32>, path: &[u8]) -> Result<Handle<SysEngine>, Errno> {
        self.pins.get(path).cloned().ok_or(Errno::ENOENT)
    }

    fn control_group(&mut self, descriptor: i32) -> Result<ControlGroup, Errno> {
        match descriptor {
            1 => Ok(ControlGroup::new(&[], 1)),
            2 => Ok(ControlGroup::new(&[1], 2)),
            _ => Err(Errno::EBADF),
        }
    }

    fn socket(&mut self, descriptor: i32) -> Result<ClientSocket, Errno> {
        let (kind, protocol, state) = match descriptor {
            1 => (1, 6, ClientState::Established),
            2 => (2, 17, ClientState::Other),
            _ => return self.handle(descriptor).and(Err(Errno::ENOTSOCK)),
        };
        let local = Some(([127, 0, 0, 1], 80).into());
        let cookie = descriptor as u64;
        Ok(ClientSocket { cookie, family: 2, kind, protocol, state, reuse_port: true, local, remote: None })
    }

    fn closed_sockets(&mut self) -> Vec<u64> {
        // The second one is closed all the time.
        vec![2]
    }

    fn network(&mut self, descriptor: Option<i32>) -> Result<u64, Errno> {
        match descriptor {
            None | Some(1 | 2) => Ok(1),
            _ => Err(Errno::EBADF),
        }
    }

    fn sees_addresses(&mut self) -> bool {
        true
    }

    fn interrupted(&mut self) -> bool {
        // Runs may be repeated billions of times.
        true
    }

    fn handle_of(&mut self, process: u32, descriptor: i32) -> Result<Handle<SysEngine>, Errno> {
        if process == 1 { self.handle(descriptor) } else { Err(Errno::ENOENT) }
    }
}

/// What a field of attributes is.
#[derive(Clone, Copy)]
enum Field {
    /// The number of a descriptor.
    Descriptor,
    /// An address of memory with random words.
    Address,
    /// An address of three instructions, most often a program that loads.
    Program,
    /// An address of a path or a licence.
    Text,
    /// An address of types: a number, a prototype, a function.
    Types,
    /// An address of records about functions and relocations of the program, most often ones that fit.
    Records,
    /// One of these.
    Of(&'static [u64]),
    /// A small number: a size, a count, an identifier.
    Small,
    /// Flags, or what must be zero.
    Flags,
}

impl Field {
    fn is_address(self) -> bool {
        !matches!(self, Self::Descriptor | Self::Of(_) | Self::Small | Self::Flags)
    }
}

use Field::{
    Address as A, Descriptor as D, Flags as F, Of, Program as P, Records as R, Small as S, Text as T,
    Types as Y,
};

const ELEMENT: &[(usize, Field)] = &[(0, D), (8, A), (16, A), (24, F), (28, F)];
const BATCH: &[(usize, Field)] = &[(0, A), (8, A), (16, A), (24, A), (32, S), (36, D), (40, F), (48, F)];
/// Maps of any kind, mostly refused; hash tables and their like; arrays; rings; queues; maps of maps.
const MAP: &[(usize, Field)] = &[(0, S), (4, S), (8, S), (12, S), (16, F), (20, D), (24, F)];
const HASH: &[(usize, Field)] =
    &[(0, Of(&[1, 5, 9, 10])), (4, Of(&[4, 8])), (8, Of(&[1, 8, 12])), (12, S), (16, F)];
const ARRAY: &[(usize, Field)] =
    &[(0, Of(&[2, 3, 4, 6, 14, 15, 18])), (4, Of(&[4])), (8, Of(&[4])), (12, S), (16, F)];
const RING: &[(usize, Field)] = &[(0, Of(&[27, 31])), (4, F), (8, F), (12, Of(&[4096, 8192])), (16, F)];
const QUEUE: &[(usize, Field)] = &[(0, Of(&[22, 23, 30])), (4, F), (8, Of(&[4, 8])), (12, S), (16, F)];
const OUTER: &[(usize, Field)] =
    &[(0, Of(&[12, 13])), (4, Of(&[4])), (8, Of(&[4])), (12, S), (16, F), (20, D)];
/// Types of programs whose results may be 2, or not; places for them.
const TYPES: Field = Of(&[1, 3, 6, 7, 8, 26, 31]);
const PLACES: Field = Of(&[0, 1, 2, 3, 5, 7, 17, 36, 37, 38, 45, 46, 47]);
const LOAD: &[(usize, Field)] =
    &[(0, TYPES), (4, Of(&[3])), (8, P), (16, T), (24, F), (28, F), (32, F), (44, F), (64, F), (68, F)];
/// The same with a log.
const LOGGED: &[(usize, Field)] =
    &[(0, TYPES), (4, Of(&[3])), (8, P), (16, T), (24, Of(&[1, 2, 4, 6])), (28, Of(&[128, 4096])), (32, A)];
/// The same with types, functions, lines and relocations.
const TYPED: &[(usize, Field)] = &[
    (0, TYPES),
    (4, Of(&[3])),
    (8, P),
    (16, T),
    (72, D),
    (76, Of(&[8])),
    (80, R),
    (88, Of(&[1])),
    (92, Of(&[16])),
    (96, R),
    (104, Of(&[0, 1])),
    (116, Of(&[0, 1, 2])),
    (128, R),
    (136, Of(&[16, 20])),
];
const RUN: &[(usize, Field)] =
    &[(0, D), (8, Of(&[0, 14, 64])), (12, Of(&[0, 64])), (16, A), (24, A), (32, S), (36, F), (64, F)];
/// The same with a context.
const RUN_CONTEXT: &[(usize, Field)] =
    &[(0, D), (8, Of(&[14, 64])), (12, Of(&[64])), (16, A), (24, A), (40, S), (44, S), (48, A), (56, A)];
/// Of each command, its fields with their offsets; those often that make the objects of the others.
const SHAPES: &[(Command, &[(usize, Field)])] = &[
    (Command::MapCreate, MAP),
    (Command::MapCreate, HASH),
    (Command::MapCreate, HASH),
    (Command::MapCreate, ARRAY),
    (Command::MapCreate, ARRAY),
    (Command::MapCreate, RING),
    (Command::MapCreate, QUEUE),
    (Command::MapCreate, OUTER),
    (Command::MapCreate, OUTER),
    (Command::MapLookupElem, ELEMENT),
    (Command::MapUpdateElem, ELEMENT),
    (Command::MapUpdateElem, ELEMENT),
    (Command::MapDeleteElem, &[(0, D), (8, A)]),
    (Command::MapGetNextKey, &[(0, D), (8, A), (16, A)]),
    (Command::MapLookupAndDeleteElem, ELEMENT),
    (Command::MapFreeze, &[(0, D)]),
    (Command::MapLookupBatch, BATCH),
    (Command::MapLookupAndDeleteBatch, BATCH),
    (Command::MapUpdateBatch, BATCH),
    (Command::MapDeleteBatch, BATCH),
    (Command::ProgLoad, LOAD),
    (Command::ProgLoad, LOAD),
    (Command::ProgLoad, LOGGED),
    (Command::ProgLoad, TYPED),
    (Command::ObjPin, &[(0, T), (8, D), (12, F)]),
    (Command::ObjGet, &[(0, T), (12, F)]),
    (Command::ProgAttach, &[(0, Of(&[1, 2])), (4, D), (8, PLACES), (12, F), (16, D)]),
    (Command::ProgDetach, &[(0, Of(&[1, 2])), (4, D), (8, PLACES), (12, F)]),
    (Command::ProgTestRun, RUN),
    (Command::ProgTestRun, RUN_CONTEXT),
    (Command::ProgQuery, &[(0, Of(&[1, 2])), (4, PLACES), (8, F), (16, A), (24, S)]),
    (Command::ProgGetNextId, &[(0, S)]),
    (Command::MapGetNextId, &[(0, S)]),
    (Command::BtfGetNextId, &[(0, S)]),
    (Command::LinkGetNextId, &[(0, S)]),
    (Command::ProgGetFdById, &[(0, S)]),
    (Command::MapGetFdById, &[(0, S), (8, F)]),
    (Command::BtfGetFdById, &[(0, S)]),
    (Command::LinkGetFdById, &[(0, S)]),
    (Command::ObjGetInfoByFd, &[(0, D), (4, S), (8, A)]),
    (Command::RawTracepointOpen, &[(0, T), (8, D)]),
    (Command::BtfLoad, &[(0, Y), (16, Of(&[TYPES_SIZE]))]),
    (Command::BtfLoad, &[(0, A), (8, A), (16, S), (20, S), (24, F), (28, F)]),
    (Command::TaskFdQuery, &[(0, S), (4, D), (8, F), (12, S), (16, A)]),
    (Command::LinkCreate, &[(0, D), (4, Of(&[1, 2])), (8, PLACES), (12, F)]),
    (Command::LinkUpdate, &[(0, D), (4, D), (8, F), (12, F)]),
    (Command::LinkDetach, &[(0, D)]),
    (Command::EnableStats, &[(0, F)]),
    (Command::IterCreate, &[(0, D), (4, F)]),
    (Command::ProgBindMap, &[(0, D), (4, D), (8, F)]),
    (Command::TokenCreate, &[(0, F), (4, D)]),
];

/// The types' section: its head, a number, a prototype, a function, strings.
const OF_TYPES: [u32; 19] = [
    0x1_eb9f,
    24,
    0,
    40,
    40,
    12, // the head
    1,
    1 << 24,
    4,
    0x100_0020, // int
    0,
    13 << 24,
    1, // int ()
    5,
    12 << 24,
    2, // f
    0x746e_6900,
    0x6600,
    0x30, // "", "int", "f", "0"
];
const TYPES_SIZE: u64 = 76;

const TEXTS: [&[u8]; 3] = [b"GPL\0", b"/sys/fs/bpf/a\0", b"/sys/fs/bpf/b\0"];

/// A number that looks like what a call may name.
fn hostile(source: &mut Source) -> u64 {
    match source.below(10) {
        0..=3 => source.below(40).into(),
        4 => source.pick(&[u64::MAX, u64::MAX - 8, 1 << 31, 1 << 32, i32::MAX as u64, 0]),
        5..=7 => BASE + u64::from(source.below(MEMORY as u32)),
        8 => 1 << source.below(64),
        _ => source.word(),
    }
}

/// An address at which an area begins.
fn area(source: &mut Source) -> u64 {
    AREAS + u64::from(source.below((MEMORY as u64 / AREA - 2) as u32)) * AREA
}

/// A number for a field; puts into memory what it refers to.
fn number(source: &mut Source, process: &mut Process, field: Field) -> u64 {
    if source.chance(2) {
        let number = hostile(source);
        // Values are shorter than an area, or larger than the memory for maps.
        let size = number as u32;
        let between = !field.is_address() && (4096..1 << 28).contains(&size);
        return if between { (size % 4096).into() } else { number };
    }
    match field {
        Field::Descriptor => 3 + u64::from(source.below(16)),
        Field::Address => {
            let address = area(source);
            for at in 0..source.below(8) {
                // Small numbers are keys, counts and descriptors.
                let word = if source.chance(60) { source.below(6).into() } else { hostile(source) };
                process.put(address + 8 * u64::from(at), &word.to_ne_bytes());
            }
            address
        }
        Field::Program => {
            let address = area(source);
            let text =
                source.pick(&["r0 = 1\nr0 += 1\nexit", "r0 = 1\nr2 = r1\nexit", "r2 = r1\nr0 = r1\nexit"]);
            let program = skep::isa::encode_bytes(&skep::isa::assemble(text).expect("it is a program"));
            process.put(address, &program.expect("it is a program"));
            address
        }
        Field::Text => {
            let address = area(source);
            let text = source.pick(&TEXTS);
            process.put(address, text);
            address
        }
        Field::Types => {
            let address = area(source);
            let bytes: Vec<u8> = OF_TYPES.iter().flat_map(|word| word.to_le_bytes()).collect();
            process.put(address, &bytes);
            address
        }
        Field::Records => {
            let address = area(source);
            // The first instruction, a type, a string, a kind or a place.
            let mut words = [0, source.below(5), source.below(9), source.below(14), 0, 0, 0, 0];
            if source.chance(20) {
                words[source.below(8) as usize] = hostile(source) as u32;
            }
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            process.put(address, &bytes);
            address
        }
        Field::Of(list) => source.pick(list),
        Field::Small => source.below(17).into(),
        Field::Flags if source.chance(96) => 0,
        Field::Flags => 1 << source.below(20),
    }
}

/// Whether a call with those attributes may write there.
fn may_write(before: &[u8], attributes: usize, at: (u64, u64)) -> bool {
    let word = |at: usize| {
        before.get(at..at + 8).map_or(0, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    };
    let within = |start: u64, len: u64| at.0 >= start && at.0 + at.1 <= start.saturating_add(len);
    let named: Vec<u64> = (0..attributes).step_by(8).map(word).collect();
    let nested = |address: u64| {
        let start = address.wrapping_sub(BASE) as usize;
        let words = if start < MEMORY { NESTED as usize } else { 0 };
        (0..words).step_by(8).any(|offset| within(word(start + offset), AREA))
    };
    within(BASE, ATTRIBUTES as u64) || named.iter().any(|&address| within(address, AREA) || nested(address))
}

/// A system and a process of it.
struct Session {
    system: System<SysEngine>,
    process: Process,
    done: u32,
}

impl Session {
    fn new() -> Self {
        let mut machine = Machine::new();
        machine.add_device(Device::new("eth0").index(2)).expect("the first device fits");
        let world = World::new(machine);
        let runtime = Runtime::builder().cpus(2).map_memory(64 << 20).privileged(true).world(&world).build();
        let process = Process {
            memory: vec![0; MEMORY],
            descriptors: BTreeMap::new(),
            pins: BTreeMap::new(),
            written: Vec::new(),
        };
        let engine = SysEngine::new(runtime.expect("there is memory"), Some(world));
        Self { system: System::new(engine), process, done: 0 }
    }

    /// A call with attributes of that size. Panics if it writes where it may not.
    fn call(&mut self, command: u32, attributes: &[u8; ATTRIBUTES], size: usize) {
        let process = &mut self.process;
        process.put(BASE, attributes);
        let before = process.memory.clone();
        process.written.clear();
        let answer = self.system.call(&mut &mut *process, command, BASE, size as u32);
        self.done += u32::from(answer.is_ok());
        for &written in &process.written {
            assert!(
                may_write(&before, size, written),
                "command {command} wrote {written:x?}, which {:x?} does not name",
                &attributes[..size.min(ATTRIBUTES)]
            );
        }
    }

    /// A call with fields that mostly are what they should be.
    fn step(&mut self, source: &mut Source) {
        let (command, fields) = source.pick(SHAPES);
        let mut attributes = [0; ATTRIBUTES];
        let mut size = 0;
        for &(at, field) in fields {
            let number = number(source, &mut self.process, field);
            let width = if field.is_address() { 8 } else { 4 };
            attributes[at..at + width].copy_from_slice(&number.to_ne_bytes()[..width]);
            size = at + width;
        }
        match source.below(40) {
            // More than the call has, or less.
            0 => size = ATTRIBUTES,
            1 => size = source.below(size as u32) as usize,
            2 => attributes[source.below(ATTRIBUTES as u32) as usize] = source.word() as u8,
            _ => {}
        }
        self.call(command as u32, &attributes, size);
    }

    /// The process ends: nothing is left, and the system works.
    fn end(mut self) -> u32 {
        let process = &mut self.process;
        process.descriptors.clear();
        process.pins.clear();
        detach_all(&self.system, process);
        let next =
            [Command::ProgGetNextId, Command::MapGetNextId, Command::BtfGetNextId, Command::LinkGetNextId];
        for command in next {
            process.put(BASE, &[0; ATTRIBUTES]);
            let answer = self.system.call(&mut &mut *process, command as u32, BASE, 12);
            assert_eq!(
                answer,
                Err(Errno::ENOENT),
                "{command:?} finds {} after the end",
                process.word(4) as u32
            );
        }
        still_works(&self.system, process);
        self.done
    }
}

/// A sequence of calls that the source decides. Returns how many of them were done.
///
/// # Panics
///
/// Where a promise does not hold.
pub(crate) fn check(source: &mut Source, calls: u32) -> u32 {
    let mut session = Session::new();
    for _ in 0..calls {
        session.step(source);
        if session.process.descriptors.len() > 20 {
            let closed = 3 + source.below(37) as i32;
            session.process.descriptors.remove(&closed);
        }
        if source.chance(2) {
            session.process.pins.clear();
        }
    }
    session.end()
}

/// Calls whose command, size and attributes are `data`, one after the other, in a process that has some objects.
///
/// # Panics
///
/// Where a promise does not hold.
#[allow(dead_code, reason = "the fuzzer's; random attributes alone test little")]
pub(crate) fn check_attributes(data: &[u8]) {
    let mut session = Session::new();
    let mut source = Source::from_seed(1);
    for _ in 0..100 {
        session.step(&mut source);
    }
    for call in data.chunks(2 + ATTRIBUTES) {
        let [command, size, fields @ ..] = call else { break };
        let mut attributes = [0; ATTRIBUTES];
        attributes[..fields.len()].copy_from_slice(fields);
        session.call((*command).into(), &attributes, (*size).into());
    }
    session.end();
}

/// Ends what outlives its process: attachments that no link holds.
fn detach_all(system: &System<SysEngine>, process: &mut Process) {
    system.control_groups().into_iter().for_each(|id| system.end_control_group(id));
    let mut call = |command: Command, words: [u32; 3]| {
        process.put(BASE, &[0; ATTRIBUTES]);
        for (at, word) in words.iter().enumerate() {
            process.put(BASE + 4 * at as u64, &word.to_ne_bytes());
        }
        let answer = system.call(&mut &mut *process, command as u32, BASE, 12);
        (answer, u32::from_ne_bytes(process.memory[4..8].try_into().unwrap_or_default()))
    };
    let mut last = 0;
    while let (Ok(_), id) = call(Command::ProgGetNextId, [last, 0, 0]) {
        if let (Ok(descriptor), _) = call(Command::ProgGetFdById, [id, 0, 0]) {
            // The dissector of the namespace; both directions of the device. Most are not there.
            for (target, place) in [(0, 17), (2, 46), (2, 47)] {
                let _answer = call(Command::ProgDetach, [target, descriptor as u32, place]);
            }
        }
        last = id;
    }
    process.descriptors.clear();
}

/// A map can be made, filled and read.
fn still_works(system: &System<SysEngine>, process: &mut Process) {
    let mut call = |command: Command, fields: &[(usize, u64)]| {
        process.put(BASE, &[0; ATTRIBUTES]);
        for (at, number) in fields {
            process.put(BASE + *at as u64, &number.to_ne_bytes());
        }
        system.call(&mut &mut *process, command as u32, BASE, 32)
    };
    // A hash table with keys of 4 bytes and values of 8, for one element.
    let map = call(Command::MapCreate, &[(0, 1 | 4 << 32), (8, 8 | 1 << 32)]).expect("a map");
    let (key, value, found) = (AREAS, AREAS + AREA, AREAS + 2 * AREA);
    call(Command::MapUpdateElem, &[(0, map as u64), (8, key), (16, value)]).expect("an element");
    call(Command::MapLookupElem, &[(0, map as u64), (8, key), (16, found)]).expect("the element");
    let word = |address: u64| process.word((address - BASE) as usize);
    assert_eq!(word(value), word(found));
}
