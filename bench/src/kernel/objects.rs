//! Maps and programs of the kernel; they are gone with their descriptors.

use super::{Buffer, LoadAttr, MapAttr, PROG_LOAD, command, reason};
use skep::abi::MapDef;
use skep::isa::{Imm64, Insn, encode_bytes};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const TEST_RUN: libc::c_long = 10;
const MAP_FREEZE: libc::c_long = 22;
/// `BPF_PROG_TYPE_SCHED_CLS`
const SCHED_CLS: u32 = 3;

#[repr(C)]
#[derive(Default)]
struct ElementAttr {
    map_fd: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct FreezeAttr {
    map_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// A map of the kernel.
pub(crate) struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

impl Map {
    /// As an object declares it. Only hashes and arrays of one value are looked into later.
    pub(crate) fn new(def: &MapDef) -> io::Result<Self> {
        let mut attr = MapAttr {
            map_type: def.kind.number(),
            key_size: def.key_size,
            value_size: def.value_size,
            max_entries: def.max_entries,
            map_flags: def.flags.0,
        };
        let fd = super::created(super::MAP_CREATE, &mut attr)?;
        Ok(Self { fd, key_size: def.key_size as usize, value_size: def.value_size as usize })
    }

    pub(crate) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key, value.len())?;
        let mut attr = self.element(key, value.as_ptr() as u64);
        command(MAP_UPDATE, &mut attr).map(drop)
    }

    /// As [`Map::update`], of a map that has one value for each of so many CPUs, each of whole words.
    pub(crate) fn update_values(&self, key: &[u8], values: &[u8], cpus: usize) -> io::Result<()> {
        self.check(key, values.len() / cpus.max(1))?;
        let mut attr = self.element(key, values.as_ptr() as u64);
        command(MAP_UPDATE, &mut attr).map(drop)
    }

    /// Puts a program into a slot of an array of programs.
    pub(crate) fn install(&self, slot: u32, program: &Program) -> io::Result<()> {
        self.update(&slot.to_ne_bytes(), &program.0.as_raw_fd().to_ne_bytes())
    }

    /// Takes out what is in a slot of an array of programs.
    pub(crate) fn remove(&self, slot: u32) -> io::Result<()> {
        let key = slot.to_ne_bytes();
        self.check(&key, self.value_size)?;
        command(MAP_DELETE, &mut self.element(&key, 0)).map(drop)
    }

    /// The value of that key, of a map that has one value for all CPUs.
    pub(crate) fn lookup(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        let mut value = vec![0; self.value_size];
        self.check(key, value.len())?;
        let mut attr = self.element(key, value.as_mut_ptr() as u64);
        command(MAP_LOOKUP, &mut attr)?;
        Ok(value)
    }

    /// From now on nobody changes it by a system call; the verifier reads the values of constants then.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        command(MAP_FREEZE, &mut FreezeAttr { map_fd: self.fd() as u32 }).map(drop)
    }

    /// Bytes that the kernel says it holds.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.fd()))?;
        let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:"));
        bytes.and_then(|bytes| bytes.trim().parse().ok()).ok_or_else(|| io::Error::other("no memlock"))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The kernel reads and writes as many bytes as the map's keys and values have.
    fn check(&self, key: &[u8], value: usize) -> io::Result<()> {
        let fits = key.len() == self.key_size && value == self.value_size;
        if fits { Ok(()) } else { Err(io::Error::other("a key or value of another size than the map's")) }
    }

    fn element(&self, key: &[u8], value: u64) -> ElementAttr {
        ElementAttr { map_fd: self.fd() as u32, key: key.as_ptr() as u64, value, ..ElementAttr::default() }
    }
}

/// A loaded program for packets at a TC hook.
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads a program as skep's loader links it, with the kernel's maps by the indices in the object.
    pub(crate) fn load(insns: &[Insn], maps: &[&Map]) -> io::Result<Self> {
        let insns: Vec<Insn> = insns.iter().map(|insn| with_descriptor(insn, maps)).collect();
        let code = encode_bytes(&insns).map_err(io::Error::other)?;
        let mut log = Buffer::new();
        let mut attr = LoadAttr {
            prog_type: SCHED_CLS,
            insn_cnt: (code.len() / 8) as u32,
            insns: code.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            ..log.attr()
        };
        super::created(PROG_LOAD, &mut attr).map(Self).map_err(|error| match log.text() {
            text if text.is_empty() => error,
            text => io::Error::other(reason(&text)),
        })
    }

    /// Runs it on a packet, so many times without leaving the kernel: the last result, and how long that took.
    pub(crate) fn run(&self, packet: &[u8], repeat: u32) -> io::Result<(u32, Duration)> {
        let mut attr = TestAttr {
            prog_fd: self.0.as_raw_fd() as u32,
            data_size_in: packet.len() as u32,
            data_in: packet.as_ptr() as u64,
            repeat,
            ..TestAttr::default()
        };
        let started = Instant::now();
        command(TEST_RUN, &mut attr)?;
        Ok((attr.retval, started.elapsed()))
    }
}

fn with_descriptor(insn: &Insn, maps: &[&Map]) -> Insn {
    let fd = |map: u32| maps.get(map as usize).map_or(-1, |map| map.fd());
    match *insn {
        Insn::LoadImm64 { dst, value: Imm64::Map(map) } => {
            Insn::LoadImm64 { dst, value: Imm64::MapFd(fd(map)) }
        }
        Insn::LoadImm64 { dst, value: Imm64::MapValue { map, offset } } => {
            Insn::LoadImm64 { dst, value: Imm64::MapFdValue { fd: fd(map), offset } }
        }
        other => other,
    }
}
