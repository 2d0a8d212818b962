//! What clients rely on, through the system call as they make it.

use super::SysEngine;
use crate::{Runtime, World};
use skep_sys::{Caller, ClientSocket, Command, ControlGroup, Errno, Handle, System};
use std::collections::BTreeMap;

/// A process: 1 MiB of memory from address [`BASE`] on, descriptors, files.
pub(super) struct Process {
    pub(super) system: System<SysEngine>,
    pub(super) memory: Vec<u8>,
    /// Where the next thing goes.
    pub(super) free: usize,
    pub(super) descriptors: BTreeMap<i32, Handle<SysEngine>>,
    pins: BTreeMap<Vec<u8>, Handle<SysEngine>>,
    /// What iterators wrote.
    pub(super) outputs: Vec<Vec<u8>>,
    /// Other files: directories of control groups, and of its network namespace.
    pub(super) files: BTreeMap<i32, File>,
    pub(super) network: u64,
    /// Cookies of sockets that were closed since the last call.
    pub(super) closed_sockets: Vec<u64>,
    /// Whether it sees machine code.
    pub(super) sees_addresses: bool,
}

/// A file that is no object of the system call.
pub(super) enum File {
    Group(ControlGroup),
    Network(u64),
    Process(u32),
    Socket(ClientSocket),
}

pub(super) const BASE: u64 = 0x10000;

/// The part of a process that a call sees.
pub(super) struct Seen<'a>(pub(super) &'a mut Process);

impl Seen<'_> {
    fn at(&self, address: u64, len: usize) -> Result<std::ops::Range<usize>, Errno> {
        let start = address.checked_sub(BASE).ok_or(Errno::EFAULT)? as usize;
        let end = start.checked_add(len).filter(|end| *end <= self.0.memory.len());
        end.map(|end| start..end).ok_or(Errno::EFAULT)
    }
}

impl Caller<SysEngine> for Seen<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        if into.is_empty() {
            return Ok(());
        }
        let range = self.at(address, into.len())?;
        into.copy_from_slice(&self.0.memory[range]);
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Errno> {
        let range = self.at(address, from.len())?;
        self.0.memory[range].copy_from_slice(from);
        Ok(())
    }

    fn handle(&mut self, descriptor: i32) -> Result<Handle<SysEngine>, Errno> {
        // The first three are other files.
        let open = (0..3).contains(&descriptor) || self.0.files.contains_key(&descriptor);
        let other = if open { Errno::EINVAL } else { Errno::EBADF };
        self.0.descriptors.get(&descriptor).cloned().ok_or(other)
    }

    fn install(&mut self, handle: Handle<SysEngine>) -> Result<i32, Errno> {
        let free = self.0.free_descriptor();
        self.0.descriptors.insert(free, handle);
        Ok(free)
    }

    fn output(&mut self, bytes: &[u8]) -> Result<i32, Errno> {
        self.0.outputs.push(bytes.to_vec());
        Ok(1000 + self.0.outputs.len() as i32)
    }

    fn reserve(&mut self, taken: &[i32]) -> Result<i32, Errno> {
        let free = |number: &i32| !taken.contains(number) && !self.0.descriptors.contains_key(number);
        (500..600).rev().find(free).ok_or(Errno::EMFILE)
    }

    fn install_at(&mut self, number: i32, handle: Handle<SysEngine>) -> Result<(), Errno> {
        self.0.descriptors.insert(number, handle);
        Ok(())
    }

    fn pin(&mut self, _: Option<i32>, path: &[u8], handle: Handle<SysEngine>) -> Result<(), Errno> {
        let inside = path.strip_prefix(b"/sys/fs/bpf/").is_some_and(|name| !name.contains(&b'/'));
        if !inside {
            return Err(Errno::ENOENT);
        }
        if self.0.pins.contains_key(path) {
            return Err(Errno::EEXIST);
        }
        self.0.pins.insert(path.to_vec(), handle);
        Ok(())
    }

    fn pinned(&mut self, _: Option<i32>, path: &[u8]) -> Result<Handle<SysEngine>, Errno> {
        self.0.pins.get(path).cloned().ok_or(Errno::ENOENT)
    }

    fn control_group(&mut self, descriptor: i32) -> Result<ControlGroup, Errno> {
        match self.0.files.get(&descriptor) {
            Some(File::Group(group)) => Ok(group.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    fn socket(&mut self, descriptor: i32) -> Result<ClientSocket, Errno> {
        match self.0.files.get(&descriptor) {
            Some(File::Socket(socket)) => Ok(socket.clone()),
            _ => match self.handle(descriptor) {
                Err(Errno::EBADF) => Err(Errno::EBADF),
                _ => Err(Errno::ENOTSOCK),
            },
        }
    }

    fn closed_sockets(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.0.closed_sockets)
    }

    fn process(&mut self, descriptor: i32) -> Result<u32, Errno> {
        match self.0.files.get(&descriptor) {
            Some(File::Process(number)) => Ok(*number),
            _ => Err(Errno::EBADF),
        }
    }

    fn network(&mut self, descriptor: Option<i32>) -> Result<u64, Errno> {
        let Some(descriptor) = descriptor else { return Ok(self.0.network) };
        match self.0.files.get(&descriptor) {
            Some(File::Network(number)) => Ok(*number),
            _ => self.handle(descriptor).and(Err(Errno::EINVAL)),
        }
    }

    fn sees_addresses(&mut self) -> bool {
        self.0.sees_addresses
    }

    fn handle_of(&mut self, process: u32, descriptor: i32) -> Result<Handle<SysEngine>, Errno> {
        // It is the only process.
        if process == 1 { self.handle(descriptor) } else { Err(Errno::ENOENT) }
    }
}

/// Attributes under construction: numbers at offsets.
#[derive(Default)]
pub(super) struct Attr(pub(super) Vec<u8>);

impl Attr {
    pub(super) fn u32(mut self, at: usize, number: u32) -> Self {
        self.put(at, &number.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, at: usize, number: u64) -> Self {
        self.put(at, &number.to_ne_bytes());
        self
    }

    pub(super) fn bytes(mut self, at: usize, bytes: &[u8]) -> Self {
        self.put(at, bytes);
        self
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0.resize(self.0.len().max(at + bytes.len()), 0);
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PROG_ARRAY: u32 = 3;

impl Process {
    pub(super) fn new() -> Self {
        let mut machine = crate::world::Machine::new();
        machine.add_device(crate::world::Device::new("lo")).unwrap();
        let world = World::new(machine);
        let runtime = Runtime::builder().cpus(2).privileged(true).world(&world).build().unwrap();
        Self::of(System::new(SysEngine::new(runtime, Some(world))))
    }

    pub(super) fn of(system: System<SysEngine>) -> Self {
        let memory = vec![0; 1 << 20];
        Self {
            system,
            memory,
            free: 4096,
            descriptors: BTreeMap::new(),
            outputs: Vec::new(),
            pins: BTreeMap::new(),
            files: BTreeMap::new(),
            network: 1,
            closed_sockets: Vec::new(),
            sees_addresses: true,
        }
    }

    /// The lowest number that is no open file.
    pub(super) fn free_descriptor(&self) -> i32 {
        let used = |number: &i32| self.descriptors.contains_key(number) || self.files.contains_key(number);
        (3..).find(|number| !used(number)).unwrap_or(i32::MAX)
    }

    /// Puts bytes into its memory and returns their address.
    pub(super) fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.free;
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        self.free = (at + bytes.len()).next_multiple_of(8);
        BASE + at as u64
    }

    pub(super) fn get(&self, address: u64, len: usize) -> &[u8] {
        let at = (address - BASE) as usize;
        &self.memory[at..at + len]
    }

    /// A call, with its attributes at the beginning of the memory.
    pub(super) fn call(&mut self, command: Command, attr: &Attr) -> Result<i64, Errno> {
        self.memory[..attr.0.len()].copy_from_slice(&attr.0);
        let system = self.system.clone();
        system.call(&mut Seen(self), command as u32, BASE, attr.0.len() as u32)
    }

    /// A field of the attributes after a call.
    pub(super) fn answer(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.memory[at..at + 4].try_into().unwrap())
    }

    pub(super) fn map(&mut self, kind: u32, key: u32, value: u32, entries: u32) -> Result<i32, Errno> {
        let attr = Attr::default().u32(0, kind).u32(4, key).u32(8, value).u32(12, entries);
        self.call(Command::MapCreate, &attr).map(|descriptor| descriptor as i32)
    }

    pub(super) fn element(
        &mut self,
        command: Command,
        map: i32,
        key: &[u8],
        value: u64,
        flags: u64,
    ) -> Result<i64, Errno> {
        let key = self.put(key);
        let attr = Attr::default().u32(0, map as u32).u64(8, key);
        // Deletions have no value and no flags, the next key no flags.
        let attr = match command {
            Command::MapDeleteElem => attr,
            Command::MapGetNextKey => attr.u64(16, value),
            _ => attr.u64(16, value).u64(24, flags),
        };
        self.call(command, &attr)
    }

    pub(super) fn update(&mut self, map: i32, key: &[u8], value: &[u8], flags: u64) -> Result<i64, Errno> {
        let value = self.put(value);
        self.element(Command::MapUpdateElem, map, key, value, flags)
    }

    pub(super) fn lookup(&mut self, map: i32, key: &[u8], size: usize) -> Result<Vec<u8>, Errno> {
        let room = self.put(&vec![0; size]);
        self.element(Command::MapLookupElem, map, key, room, 0)?;
        Ok(self.get(room, size).to_vec())
    }

    /// A load, with the log's level, and the log.
    pub(super) fn load_with(
        &mut self,
        program_type: u32,
        text: &str,
        level: u32,
        room: u32,
    ) -> (Result<i64, Errno>, String) {
        let insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
        self.load_bytes(program_type, &insns, level, room)
    }

    pub(super) fn load_bytes(
        &mut self,
        program_type: u32,
        insns: &[u8],
        level: u32,
        room: u32,
    ) -> (Result<i64, Errno>, String) {
        let (at, licence, log) = (self.put(insns), self.put(b"GPL\0"), self.put(&vec![0; room as usize]));
        let mut attr = Attr::default().u32(0, program_type).u32(4, insns.len() as u32 / 8).u64(8, at);
        attr = attr.u64(16, licence).bytes(48, b"tested").u32(140, 0);
        if level != 0 {
            attr = attr.u32(24, level).u32(28, room).u64(32, log);
        }
        let answer = self.call(Command::ProgLoad, &attr);
        let text = self.get(log, room as usize);
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        (answer, String::from_utf8_lossy(&text[..end]).into_owned())
    }

    pub(super) fn next_id(&mut self, command: Command, after: u32) -> Result<u32, Errno> {
        self.call(command, &Attr::default().u32(0, after).u32(4, 0))?;
        Ok(self.answer(4))
    }

    pub(super) fn info(&mut self, descriptor: i32, size: usize) -> Vec<u8> {
        let room = self.put(&vec![0; size]);
        let attr = Attr::default().u32(0, descriptor as u32).u32(4, size as u32).u64(8, room);
        self.call(Command::ObjGetInfoByFd, &attr).unwrap();
        self.get(room, size).to_vec()
    }
}

/// One type: a number of four bytes.
pub(super) const INT: &[u8] = b"\x9f\xeb\x01\0\x18\0\0\0\0\0\0\0\x10\0\0\0\x10\0\0\0\x05\0\0\0\x01\0\0\0\0\0\0\x01\x04\0\0\0\x20\0\0\x01\0int\0";

#[test]
fn owners_of_storages_are_named_by_descriptors_and_are_the_worlds() {
    let mut machine = crate::world::Machine::new();
    machine.task = Some(crate::world::Task { pid: 7, ..Default::default() });
    machine.cgroups.insert(9, crate::world::Cgroup { id: 9, ..Default::default() });
    let world = World::new(machine);
    let runtime = Runtime::builder().world(&world).build().unwrap();
    let mut process = Process::of(System::new(SysEngine::new(runtime, Some(world.clone()))));
    let types = process.put(INT);
    let attr = Attr::default().u64(0, types).u32(16, INT.len() as u32);
    let types = process.call(Command::BtfLoad, &attr).unwrap() as u32;
    let group = |id| File::Group(ControlGroup::new(&[], id));
    for (kind, owner, stranger) in [(29, File::Process(7), File::Process(8)), (32, group(9), group(8))] {
        let attr = Attr::default().u32(0, kind).u32(4, 4).u32(8, 4).u32(16, 1);
        let attr = attr.u32(48, types).u32(52, 1).u32(56, 1);
        let map = process.call(Command::MapCreate, &attr).unwrap() as i32;
        process.files.insert(100, owner);
        process.files.insert(101, stranger);
        let key = |descriptor: i32| descriptor.to_ne_bytes();
        assert_eq!(process.lookup(map, &key(100), 4), Err(Errno::ENOENT));
        process.update(map, &key(100), &[5; 4], 1).unwrap();
        assert_eq!(process.lookup(map, &key(100), 4).unwrap(), [5; 4]);
        // One that the world does not have, no such descriptor, and the owner's own number.
        assert_eq!(process.update(map, &key(101), &[5; 4], 0), Err(Errno::ENOENT));
        assert_eq!(process.update(map, &key(102), &[5; 4], 0), Err(Errno::EBADF));
        assert_eq!(process.lookup(map, &key(7), 4), Err(Errno::EBADF));
        process.element(Command::MapDeleteElem, map, &key(100), 0, 0).unwrap();
        process.update(map, &key(100), &[6; 4], 1).unwrap();
        let gone = world.change(|machine| {
            (machine.task, machine.cgroups) = (None, Default::default());
            Ok::<(), ()>(())
        });
        assert_eq!(gone, Ok(()));
        assert_eq!(process.lookup(map, &key(100), 4), Err(Errno::ENOENT));
        let back = world.change(|machine| {
            machine.task = Some(crate::world::Task { pid: 7, ..Default::default() });
            machine.cgroups.insert(9, crate::world::Cgroup { id: 9, ..Default::default() });
            Ok::<(), ()>(())
        });
        assert_eq!(back, Ok(()));
        assert_eq!(process.lookup(map, &key(100), 4), Err(Errno::ENOENT));
    }
}

#[test]
fn elements_are_written_read_walked_and_deleted() {
    let mut process = Process::new();
    let map = process.map(HASH, 4, 8, 3).unwrap();
    let key = |number: u32| number.to_ne_bytes();
    for number in [1, 2, 3] {
        process.update(map, &key(number), &u64::from(number).to_ne_bytes(), 1).unwrap();
    }
    assert_eq!(process.update(map, &key(1), &[0; 8], 1), Err(Errno::EEXIST));
    assert_eq!(process.update(map, &key(4), &[0; 8], 2), Err(Errno::ENOENT));
    assert_eq!(process.update(map, &key(4), &[0; 8], 0), Err(Errno::E2BIG));
    assert_eq!(process.update(map, &key(1), &[0; 8], 9), Err(Errno::EINVAL));
    assert_eq!(process.lookup(map, &key(2), 8).unwrap(), 2u64.to_ne_bytes());
    assert_eq!(process.lookup(map, &key(9), 8), Err(Errno::ENOENT));
    let mut seen = walk(&mut process, map);
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3]);
    process.element(Command::MapDeleteElem, map, &key(1), 0, 0).unwrap();
    assert_eq!(process.element(Command::MapDeleteElem, map, &key(1), 0, 0), Err(Errno::ENOENT));
    let room = process.put(&[0; 8]);
    process.element(Command::MapLookupAndDeleteElem, map, &key(2), room, 0).unwrap();
    assert_eq!(process.get(room, 8), 2u64.to_ne_bytes());
    assert_eq!(process.lookup(map, &key(2), 8), Err(Errno::ENOENT));
}

/// The keys of a map, in its order.
pub(super) fn walk(process: &mut Process, map: i32) -> Vec<u32> {
    let mut seen = Vec::new();
    let (next, mut address) = (process.put(&[0; 4]), 0);
    loop {
        let attr = Attr::default().u32(0, map as u32).u64(8, address).u64(16, next);
        match process.call(Command::MapGetNextKey, &attr) {
            Ok(_) => seen.push(u32::from_ne_bytes(process.get(next, 4).try_into().unwrap())),
            Err(error) => {
                assert_eq!(error, Errno::ENOENT);
                return seen;
            }
        }
        address = next;
    }
}

#[test]
fn attributes_may_be_shorter_or_longer_than_known_but_not_say_what_is_unknown() {
    let mut process = Process::new();
    let whole = Attr::default().u32(0, ARRAY).u32(4, 4).u32(8, 8).u32(12, 1);
    assert!(process.call(Command::MapCreate, &whole).is_ok());
    let longer = Attr(whole.0.clone()).u64(400, 0);
    assert!(process.call(Command::MapCreate, &longer).is_ok(), "zeroes that nobody knows");
    let unknown = Attr(whole.0.clone()).u64(400, 1);
    assert_eq!(process.call(Command::MapCreate, &unknown), Err(Errno::E2BIG));
    let of_others = Attr(whole.0.clone()).u64(128, 1);
    assert_eq!(process.call(Command::MapCreate, &of_others), Err(Errno::EINVAL));
    let system = process.system.clone();
    assert_eq!(system.call(&mut Seen(&mut process), 99, BASE, 16), Err(Errno::EINVAL));
    assert_eq!(system.call(&mut Seen(&mut process), 0, 1, 16), Err(Errno::EFAULT));
    assert_eq!(system.call(&mut Seen(&mut process), 0, BASE, 5000), Err(Errno::E2BIG));
}

#[test]
fn names_have_letters_digits_points_and_an_end() {
    let mut process = Process::new();
    let named = |name: &[u8]| Attr::default().u32(0, ARRAY).u32(4, 4).u32(8, 8).u32(12, 1).bytes(28, name);
    for (name, wanted) in [
        (&b"my.map_1"[..], Ok(())),
        (b"fifteen_letters", Ok(())),
        (b"sixteen_letters_", Err(Errno::EINVAL)),
        (b"a-b", Err(Errno::EINVAL)),
        (b"a\0-", Ok(())),
    ] {
        assert_eq!(process.call(Command::MapCreate, &named(name)).map(drop), wanted, "{name:?}");
    }
}

#[test]
fn a_descriptor_for_reading_or_writing_does_only_that() {
    let mut process = Process::new();
    let with = |flags| Attr::default().u32(0, ARRAY).u32(4, 4).u32(8, 8).u32(12, 1).u32(16, flags);
    let (reading, writing) = (1 << 3, 1 << 4);
    let reader = process.call(Command::MapCreate, &with(reading)).unwrap() as i32;
    assert_eq!(process.update(reader, &[0; 4], &[1; 8], 0), Err(Errno::EPERM));
    assert_eq!(process.lookup(reader, &[0; 4], 8), Ok(vec![0; 8]));
    let writer = process.call(Command::MapCreate, &with(writing)).unwrap() as i32;
    assert_eq!(process.update(writer, &[0; 4], &[1; 8], 0), Ok(0));
    assert_eq!(process.lookup(writer, &[0; 4], 8), Err(Errno::EPERM));
    assert_eq!(process.call(Command::MapCreate, &with(reading | writing)), Err(Errno::EINVAL));
}

#[test]
fn a_frozen_map_is_not_written_and_its_contents_are_constants() {
    const RDONLY_PROG: u32 = 1 << 7;
    let mut process = Process::new();
    let attr = Attr::default().u32(0, ARRAY).u32(4, 4).u32(8, 8).u32(12, 1).u32(16, RDONLY_PROG);
    let map = process.call(Command::MapCreate, &attr).unwrap() as i32;
    process.update(map, &[0; 4], &3u64.to_ne_bytes(), 0).unwrap();
    // A loop of as many rounds as the map says: without the constant it has no end that anybody can prove.
    let text = format!(
        "r1 = map_value[{map}]+0 ll
         r1 = *(u64 *)(r1 + 0)
         r0 = 0
         again:
         r0 += 2
         r1 -= 1
         if r1 != 0 goto again
         exit"
    );
    let insns = by_descriptor(&text);
    assert!(process.load_bytes(6, &insns, 0, 0).0.is_err());
    process.call(Command::MapFreeze, &Attr::default().u32(0, map as u32)).unwrap();
    assert_eq!(process.update(map, &[0; 4], &[0; 8], 0), Err(Errno::EPERM));
    assert_eq!(process.call(Command::MapFreeze, &Attr::default().u32(0, map as u32)), Err(Errno::EPERM));
    let (loaded, log) = process.load_bytes(6, &insns, 1, 4096);
    let program = loaded.unwrap_or_else(|error| panic!("{error}: {log}")) as i32;
    assert_eq!(run(&mut process, program, &[0; 64]).0, 6);
}

/// Instructions of a text that names maps by descriptors in place of indices.
fn by_descriptor(text: &str) -> Vec<u8> {
    let mut insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
    for insn in insns.as_chunks_mut::<8>().0 {
        if insn[0] == 0x18 {
            let source = match insn[1] >> 4 {
                5 => 1,
                6 => 2,
                other => other,
            };
            insn[1] = insn[1] & 0xf | source << 4;
        }
    }
    insns
}

/// A test run on a packet: the result, and the packet afterwards.
pub(super) fn run(process: &mut Process, program: i32, packet: &[u8]) -> (u32, Vec<u8>) {
    let (input, output) = (process.put(packet), process.put(&[0; 512]));
    let attr = Attr::default()
        .u32(0, program as u32)
        .u32(8, packet.len() as u32)
        .u32(12, 512)
        .u64(16, input)
        .u64(24, output)
        .u32(32, 1);
    process.call(Command::ProgTestRun, &attr).unwrap();
    let len = process.answer(12) as usize;
    (process.answer(4), process.get(output, len).to_vec())
}

#[test]
fn programs_run_on_packets_and_change_maps() {
    let mut process = Process::new();
    let map = process.map(ARRAY, 4, 16, 1).unwrap();
    let text = format!(
        "r6 = *(u32 *)(r1 + 0)       // data
         r7 = *(u32 *)(r1 + 4)
         r2 = r6
         r2 += 14
         if r2 > r7 goto out
         r3 = 0x55
         *(u8 *)(r6 + 13) = r3
         r1 = map_value[{map}]+8 ll
         r2 = 5
         *(u64 *)(r1 + 0) = r2
         out:
         r0 = 2
         exit"
    );
    let (loaded, log) = process.load_bytes(6, &by_descriptor(&text), 1, 8192);
    let program = loaded.unwrap_or_else(|error| panic!("{error}: {log}")) as i32;
    let (result, packet) = run(&mut process, program, &[0; 60]);
    assert_eq!((result, packet.len(), packet[13]), (2, 60, 0x55));
    assert_eq!(process.lookup(map, &[0; 4], 16).unwrap()[8..], 5u64.to_ne_bytes());
}

#[test]
fn refused_programs_leave_a_log_that_is_cut_to_the_room_with_its_size() {
    let mut process = Process::new();
    let text = "r0 = *(u64 *)(r1 + 1000)\nexit";
    let (answer, log) = process.load_with(6, text, 1, 4096);
    assert_eq!(answer, Err(Errno::EACCES), "{log}");
    assert!(log.contains("contains bytes 1000..1008"), "{log}");
    assert!(log.contains("processed 1 insns"), "{log}");
    let size = process.answer(140) as usize;
    assert_eq!(size, log.len() + 1);
    // In less room its end, with the bit for that its beginning.
    let (answer, end) = process.load_with(6, text, 1, 20);
    assert_eq!(answer, Err(Errno::ENOSPC));
    assert!(end.len() == 19 && process.answer(140) as usize >= size - 2, "{end}");
    let (answer, beginning) = process.load_with(6, text, 1 | 8, 20);
    assert_eq!(answer, Err(Errno::ENOSPC));
    assert_eq!((beginning.len(), &log[..10]), (19, &beginning[..10]));
    assert_eq!(process.load_with(6, text, 0, 0).0, Err(Errno::EACCES));
    // An accepted program has statistics only.
    let (answer, log) = process.load_with(6, "r0 = 2\nexit", 1, 4096);
    assert!(answer.is_ok() && log.contains("processed 2 insns") && !log.contains("r0"), "{log}");
}

#[test]
fn a_descriptor_that_is_no_map_is_named_in_the_log() {
    let mut process = Process::new();
    let insns = by_descriptor("r1 = map[77] ll\nr0 = 0\nexit");
    let (answer, log) = process.load_bytes(6, &insns, 1, 4096);
    assert_eq!(answer, Err(Errno::EBADF));
    assert!(log.contains("fd 77 is not pointing to valid bpf_map"), "{log}");
}

#[test]
fn a_program_in_the_array_that_it_names_goes_with_the_last_descriptor() {
    let mut process = Process::new();
    let array = process.map(PROG_ARRAY, 4, 4, 4).unwrap();
    let text = format!("r2 = map[{array}] ll\nr3 = 0\ncall tail_call#12\nr0 = 7\nexit");
    let (loaded, log) = process.load_bytes(6, &by_descriptor(&text), 1, 4096);
    let program = loaded.unwrap_or_else(|error| panic!("{error}: {log}")) as i32;
    let id = process.next_id(Command::ProgGetNextId, 0).unwrap();
    process.update(array, &0u32.to_ne_bytes(), &program.to_ne_bytes(), 0).unwrap();
    assert_eq!(process.lookup(array, &0u32.to_ne_bytes(), 4).unwrap(), id.to_ne_bytes());
    assert_eq!(process.lookup(array, &1u32.to_ne_bytes(), 4), Err(Errno::ENOENT));
    assert_eq!(run(&mut process, program, &[0; 64]).0, 7, "33 tail calls to itself, then on");
    process.descriptors.remove(&program);
    assert_eq!(process.next_id(Command::ProgGetNextId, 0), Ok(id), "the array holds it");
    process.descriptors.remove(&array);
    assert_eq!(process.next_id(Command::ProgGetNextId, 0), Err(Errno::ENOENT));
    assert_eq!(process.next_id(Command::MapGetNextId, 0), Err(Errno::ENOENT));
}

#[test]
fn objects_are_found_by_identifiers_and_by_paths() {
    let mut process = Process::new();
    let map = process.map(HASH, 4, 8, 3).unwrap();
    process.update(map, &[1; 4], &[7; 8], 0).unwrap();
    let path = process.put(b"/sys/fs/bpf/mine\0");
    process.call(Command::ObjPin, &Attr::default().u64(0, path).u32(8, map as u32)).unwrap();
    assert_eq!(
        process.call(Command::ObjPin, &Attr::default().u64(0, path).u32(8, map as u32)),
        Err(Errno::EEXIST)
    );
    process.descriptors.remove(&map);
    let id = process.next_id(Command::MapGetNextId, 0).unwrap();
    let other = process.call(Command::MapGetFdById, &Attr::default().u32(0, id)).unwrap() as i32;
    assert_eq!(process.lookup(other, &[1; 4], 8), Ok(vec![7; 8]));
    let pinned = process.call(Command::ObjGet, &Attr::default().u64(0, path).u32(12, 1 << 3)).unwrap() as i32;
    assert_eq!(process.update(pinned, &[1; 4], &[7; 8], 0), Err(Errno::EPERM), "opened for reading");
    let info = process.info(pinned, 88);
    assert_eq!(u32::from_ne_bytes(info[4..8].try_into().unwrap()), id);
    process.descriptors.clear();
    process.pins.clear();
    assert_eq!(process.next_id(Command::MapGetNextId, 0), Err(Errno::ENOENT));
    assert_eq!(process.call(Command::MapGetFdById, &Attr::default().u32(0, id)), Err(Errno::ENOENT));
}

#[test]
fn information_about_a_program_lists_its_maps_and_instructions() {
    let mut process = Process::new();
    let map = process.map(HASH, 4, 8, 3).unwrap();
    let text = format!("r1 = map[{map}] ll\nr0 = 2\nexit");
    let program = process.load_bytes(6, &by_descriptor(&text), 0, 0).0.unwrap() as i32;
    let (ids, insns) = (process.put(&[0; 64]), process.put(&[0; 256]));
    let mut info = vec![0; 232];
    info[20..24].copy_from_slice(&256u32.to_ne_bytes());
    info[32..40].copy_from_slice(&insns.to_ne_bytes());
    info[52..56].copy_from_slice(&16u32.to_ne_bytes());
    info[56..64].copy_from_slice(&ids.to_ne_bytes());
    let room = process.put(&info);
    let attr = Attr::default().u32(0, program as u32).u32(4, 232).u64(8, room);
    process.call(Command::ObjGetInfoByFd, &attr).unwrap();
    let info = process.get(room, 232).to_vec();
    let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20), word(52)), (6, 32, 1), "type, bytes of instructions, maps");
    assert_eq!(&info[64..71], b"tested\0");
    assert_eq!(process.get(insns + 24, 1), [0x95]);
    let id = process.next_id(Command::MapGetNextId, 0).unwrap();
    assert_eq!(process.get(ids, 4), id.to_ne_bytes());
}

/// Types: `int`, a prototype without parameters that returns it, a function `f` of that prototype, exported.
pub(super) fn types_of_a_function() -> Vec<u8> {
    let words: [u32; 12] = [
        1,
        1 << 24,
        4,
        32 | 1 << 24, // int, signed, 32 bits
        0,
        13 << 24,
        1, // its prototype
        5,
        12 << 24 | 1,
        2, // the function
        0,
        0,
    ];
    let records: Vec<u8> = words[..10].iter().flat_map(|word| word.to_le_bytes()).collect();
    let strings = b"\0int\0f\0";
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, records.len() as u32, records.len() as u32, strings.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    [bytes, records, strings.to_vec()].concat()
}

#[test]
fn information_about_functions_that_does_not_fit_the_program_is_refused() {
    let mut process = Process::new();
    let types = types_of_a_function();
    let at = process.put(&types);
    let load = Attr::default().u64(0, at).u32(16, types.len() as u32);
    let btf = process.call(Command::BtfLoad, &load).unwrap() as u32;
    // The function at 2 is called, and so is the one at 4.
    let text = "call pc+1\nexit\ncall pc+1\nexit\nr0 = 7\nexit";
    let insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
    let lists: &[(&[u32], bool)] = &[
        (&[0, 2, 4], true),
        (&[0], false),
        (&[0, 2], false),
        (&[0, 4], false),
        (&[0, 1, 2, 4], false),
        (&[2, 4], false),
        (&[0, 4, 2], false),
        (&[0, 0, 2, 4], false),
        (&[0, 2, 4, 77], false),
        (&[0, 2, 4, u32::MAX], false),
    ];
    for (slots, fits) in lists {
        let records: Vec<u8> = slots.iter().flat_map(|slot| [*slot, 3]).flat_map(u32::to_ne_bytes).collect();
        let (insns_at, licence, info) = (process.put(&insns), process.put(b"GPL\0"), process.put(&records));
        let attr = Attr::default()
            .u32(0, 1)
            .u32(4, insns.len() as u32 / 8)
            .u64(8, insns_at)
            .u64(16, licence)
            .u32(72, btf)
            .u32(76, 8)
            .u64(80, info)
            .u32(88, slots.len() as u32);
        let wanted = if *fits { Ok(()) } else { Err(Errno::EINVAL) };
        assert_eq!(process.call(Command::ProgLoad, &attr).map(drop), wanted, "{slots:?}");
    }
}

#[test]
fn the_log_shows_the_text_of_a_source_line_and_nothing_behind_it() {
    let mut process = Process::new();
    let types = types_of_a_function();
    let at = process.put(&types);
    let load = Attr::default().u64(0, at).u32(16, types.len() as u32);
    let btf = process.call(Command::BtfLoad, &load).unwrap() as u32;
    let insns = skep_isa::encode_bytes(&skep_isa::assemble("exit").unwrap()).unwrap();
    // The first instruction is of line 7 of the file `f`, whose text is `int`.
    let line: Vec<u8> = [0, 5, 1, 7 << 10].into_iter().flat_map(u32::to_ne_bytes).collect();
    let function: Vec<u8> = [0, 3].into_iter().flat_map(u32::to_ne_bytes).collect();
    let (insns_at, licence, log) = (process.put(&insns), process.put(b"GPL\0"), process.put(&[0; 4096]));
    let (line, function) = (process.put(&line), process.put(&function));
    let attr = Attr::default().u32(0, 1).u32(4, 1).u64(8, insns_at).u64(16, licence);
    let attr = attr.u32(24, 1).u32(28, 4096).u64(32, log);
    let attr = attr.u32(72, btf).u32(76, 8).u64(80, function).u32(88, 1);
    let attr = attr.u32(92, 16).u64(96, line).u32(104, 1);
    assert_eq!(process.call(Command::ProgLoad, &attr), Err(Errno::EACCES));
    let text = process.get(log, 4096);
    let text = text.split(|byte| *byte == 0).next().unwrap();
    let lines: Vec<_> = std::str::from_utf8(text).unwrap().lines().collect();
    assert!(lines.contains(&"; int @ f:7"), "{lines:?}");
    assert!(lines.contains(&"R0 !read_ok"), "{lines:?}");
}

#[test]
fn a_syscall_program_changes_the_context_where_it_was_read() {
    let mut process = Process::new();
    let text = "r2 = *(u64 *)(r1 + 0)\nr2 += 1\n*(u64 *)(r1 + 0) = r2\nr0 = 0\nexit";
    let insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
    let (insns_at, licence, context) =
        (process.put(&insns), process.put(b"GPL\0"), process.put(&[99, 0, 0, 0, 0, 0, 0, 0]));
    let slots = insns.len() as u32 / 8;
    // BPF_PROG_TYPE_SYSCALL, which sleeps.
    let load = Attr::default().u32(0, 31).u32(4, slots).u64(8, insns_at).u64(16, licence).u32(44, 1 << 4);
    let program = process.call(Command::ProgLoad, &load).unwrap() as u32;
    let run = Attr::default().u32(0, program).u32(40, 8).u64(48, context);
    process.call(Command::ProgTestRun, &run).unwrap();
    assert_eq!(process.get(context, 8), [100, 0, 0, 0, 0, 0, 0, 0]);
}
