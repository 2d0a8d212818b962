//! The supervisor's side of the library that is loaded into applications (`skep-preload`).
//!
//! ```text
//!   descriptor of a map --position--> token: which map, how it is open
//!   states: memory that processes only read | map, frozen | map, frozen | ...     a word for each shared map
//!   values: the file of an array, or the files of a hash table, which the library maps
//! ```
//!
//! What the library may do, the process may do anyway: it gets the values of maps that it has open for both reading and
//! writing. Values that programs' verdicts rely on (`BPF_F_RDONLY_PROG`) it maps for reading alone, so that they can be
//! frozen. Hash tables nobody else ever maps for writing.
//!
//! Invariant: a state names a map that exists, or none. Who finds another map there than its own knows that its own has
//! ended.

use crate::process::Process;
use parking_lot::Mutex;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{SeekFrom, fstat, seek};
use skep::sys::SysEngine;
use skep_mem::Block;
use skep_preload::protocol::{self, JOIN, OPEN, Opened, Part, STATES, Token};
use skep_sys::{Access, Caller, Command, Errno, Handle, MapObject, Object};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// `BPF_F_RDONLY_PROG`
const F_RDONLY_PROG: u32 = 1 << 7;

/// What the library of all processes needs.
#[derive(Debug)]
pub(crate) struct Front {
    states: Block,
    /// The map of each state; dead ones make room.
    places: Mutex<Vec<Weak<MapObject<SysEngine>>>>,
    /// How many filters of system calls a process has that has none of its own.
    filters: u32,
}

/// Lets the descriptor of a map say which map it is, if its values are shared.
pub(crate) fn mark(file: &OwnedFd, handle: &Handle<SysEngine>) {
    let Object::Map(map) = handle.object() else { return };
    if map.map().map().is_shared() {
        let Access { read, write } = handle.access();
        let token = Token::new(map.id(), read, write);
        // Without it the library passes all calls on.
        let _marked = seek(file, SeekFrom::Start(token.position()));
    }
}

/// Whether a command is no application's.
pub(crate) fn is_of_the_library(command: u32) -> bool {
    matches!(command, JOIN | OPEN)
}

impl Front {
    pub(crate) fn new() -> io::Result<Self> {
        let states = Block::in_file("bpf-states", STATES * size_of::<u64>()).map_err(io::Error::other)?;
        states.refuse_writers();
        let filters = filters_of("self")?.saturating_add(1);
        Ok(Self { states, places: Mutex::default(), filters })
    }

    /// Answers the library's own commands; `None` for the commands of all.
    pub(crate) fn answer(&self, process: &mut Process<'_>) -> Option<Result<i64, Errno>> {
        let [command, attributes, size, ..] = process.call.arguments;
        match command as u32 {
            JOIN => Some(self.join(process)),
            OPEN => Some(self.open(process, attributes, size as u32)),
            _ => None,
        }
    }

    /// After a command that has succeeded, and before its caller knows.
    pub(crate) fn follow(&self, command: u32) {
        if Command::from_number(command) == Some(Command::MapFreeze) {
            self.tell(&self.places.lock());
        }
    }

    fn join(&self, process: &Process<'_>) -> Result<i64, Errno> {
        let filters = filters_of(&process.call.thread.to_string()).map_err(|_| Errno::EINTR)?;
        if !process.listener.is_valid(process.call) {
            return Err(Errno::EINTR);
        }
        if filters != self.filters {
            // Its own filter may forbid the calls that the library makes.
            return Err(Errno::EPERM);
        }
        let file = self.states.file().ok_or(Errno::EIO)?;
        process.listener.add(process.call, file).map(i64::from)
    }

    fn open(&self, process: &mut Process<'_>, address: u64, size: u32) -> Result<i64, Errno> {
        if size as usize != Opened::BYTES {
            return Err(Errno::EINVAL);
        }
        let mut descriptor = [0; 4];
        process.read(address.wrapping_add(std::mem::offset_of!(Opened, map) as u64), &mut descriptor)?;
        let handle = process.handle(i32::from_ne_bytes(descriptor))?;
        let Object::Map(map) = handle.object() else { return Err(Errno::EINVAL) };
        if handle.access() != Access::ALL {
            return Err(Errno::EPERM);
        }
        if !map.map().map().is_shared() {
            return Err(Errno::EINVAL);
        }
        let place = self.place(map).ok_or(Errno::ENOSPC)? as u64;
        let opened = Opened { place, ..give(process, map)? };
        process.write(address, &opened.to_bytes()).map(|()| 0)
    }

    /// The place of a map's state, which is told then.
    fn place(&self, map: &Arc<MapObject<SysEngine>>) -> Option<usize> {
        let mut places = self.places.lock();
        let ours = Arc::downgrade(map);
        let known = places.iter().position(|place| place.ptr_eq(&ours));
        let free = || places.iter().position(|place| place.strong_count() == 0);
        let place = known.or_else(free).unwrap_or(places.len());
        if place >= STATES {
            return None;
        }
        if place == places.len() {
            places.push(ours);
        } else {
            places[place] = ours;
        }
        self.tell(&places);
        Some(place)
    }

    /// Writes all states.
    fn tell(&self, places: &[Weak<MapObject<SysEngine>>]) {
        for (at, place) in places.iter().enumerate() {
            let state =
                place.upgrade().map_or(0, |map| protocol::state(map.id(), map.map().map().is_frozen()));
            // SAFETY: the block has a word for each state, of which there are at most `STATES`; all sides access it
            // atomically.
            let word = unsafe { &*self.states.base().as_ptr().cast::<AtomicU64>().add(at) };
            // Pairs with the loads of the library.
            word.store(state, Ordering::Release);
        }
    }
}

/// Gives a process the files of a map, and says what is in them.
fn give(process: &Process<'_>, map: &MapObject<SysEngine>) -> Result<Opened, Errno> {
    let inner = map.map().map();
    let def = inner.def();
    let value_size = def.value_size.into();
    if let Some(values) = inner.shared_values() {
        let len = fstat(values.file).map_err(crate::table::number)?.st_size as u64;
        let writable = map.flags() & F_RDONLY_PROG == 0 && !inner.is_frozen();
        return Ok(Opened {
            values: part(process, values.file, 0, len)?,
            entries: def.max_entries.into(),
            stride: values.stride as u64,
            value_size,
            cpus: values.cpus.into(),
            cpu_stride: values.cpu_stride as u64,
            writable: writable.into(),
            ..Opened::default()
        });
    }
    let table = inner.shared_table().ok_or(Errno::EINVAL)?;
    let buckets = fstat(table.buckets).map_err(crate::table::number)?.st_size as u64;
    Ok(Opened {
        values: part(process, table.elements, table.offset as u64, table.len as u64)?,
        entries: table.bucket_count,
        value_size,
        cpus: table.cpus.into(),
        cpu_stride: table.cpu_stride as u64,
        key_size: def.key_size.into(),
        // If the process has no descriptor left for it, the library closes the first one.
        buckets: part(process, table.buckets, 0, buckets).unwrap_or_default(),
        address: table.address as u64,
        values_at: table.values_at as u64,
        seed: table.seed,
        ..Opened::default()
    })
}

/// Gives a process a file, of which the library maps a part.
fn part(process: &Process<'_>, file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<Part, Errno> {
    let status = fstat(file).map_err(crate::table::number)?;
    let given = process.listener.add(process.call, file)?;
    Ok(Part { file: given as u64, device: status.st_dev, number: status.st_ino, offset, len })
}

/// How many filters of system calls a thread has.
fn filters_of(thread: &str) -> io::Result<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let number = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    number.and_then(|number| number.trim().parse().ok()).ok_or_else(|| io::Error::other("no Seccomp_filters"))
}
