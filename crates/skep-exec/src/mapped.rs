//! Maps and perf events that a process maps or waits for: mmap(2) and epoll_ctl(2) of their descriptors.
//!
//! An array with `BPF_F_MMAPABLE`, a ring buffer and an arena are files of memory ([`skep::Map::file`]), so the kernel
//! maps them once it was looked at what the process asks for. No memory file can be waited for: in its place the
//! process's epoll descriptor gets the map's bell ([`skep::Map::bell`]), and so it is with perf events ([`perf`]).

use crate::listener::Answer;
use crate::perf;
use crate::process::Process;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use skep::PerfEvent;
use skep::sys::SysEngine;
use skep_sys::{Errno, MapObject, Object};
use std::sync::Arc;

/// Kinds of maps: arrays, ring buffers, user ring buffers, arenas.
const ARRAY: u32 = 2;
const RINGBUF: u32 = 27;
const USER_RINGBUF: u32 = 31;
const ARENA: u32 = 33;
/// `BPF_F_RDONLY_PROG`
const F_RDONLY_PROG: u32 = 1 << 7;
/// `BPF_F_MMAPABLE`
const F_MMAPABLE: u32 = 1 << 10;
/// The bits of mmap(2)'s flags that say whether a mapping is shared.
const MAP_TYPE: u64 = 0xf;
/// The bits that say what an epoll descriptor waits for; the others say how.
const WAITED_FOR: u32 = 0x0fff_ffff;

/// What can be mapped and waited for.
enum Target {
    Map(Arc<MapObject<SysEngine>>),
    Event(Arc<PerfEvent>),
    /// Of a probe, which has no samples.
    Probe,
}

/// What a descriptor refers to, if it is that.
fn target_of(process: &Process<'_>, descriptor: i32) -> Option<Target> {
    let (file, _) = process.file(descriptor).ok()?;
    if let Some(event) = process.table.find_event(file) {
        return Some(Target::Event(event));
    }
    if process.table.find_probe(file).is_some() {
        return Some(Target::Probe);
    }
    match process.table.find(file)?.object() {
        Object::Map(map) => Some(Target::Map(Arc::clone(map))),
        _ => None,
    }
}

impl Target {
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Map(map) => map.map().map().bell(),
            Self::Event(event) => Some(event.bell()),
            Self::Probe => None,
        }
    }

    fn has_unread(&self) -> bool {
        match self {
            Self::Map(map) => map.map().map().ring_query(0) != 0,
            Self::Event(event) => event.has_unread(),
            Self::Probe => false,
        }
    }
}

/// A shared mapping of a file, which the kernel makes if Linux would make it of such a map.
pub(crate) fn mmap(process: &Process<'_>, arguments: [u64; 6]) -> Answer {
    let [address, len, protection, flags, descriptor, offset] = arguments;
    let writes = protection & libc::PROT_WRITE as u64 != 0;
    let map = match target_of(process, descriptor as i32) {
        Some(Target::Map(map)) => map,
        Some(Target::Event(event)) => return perf::mmap(&event, len, writes, offset),
        Some(Target::Probe) => return Answer::Error(Errno::EINVAL),
        None => return Answer::Continue,
    };
    let answer = match map.kind() {
        ARENA => may_map_arena(process, &map, descriptor as i32, Wanted { address, len, flags, offset }),
        _ => may_map(&map, len, offset, writes),
    };
    match answer {
        Ok(()) => Answer::Continue,
        Err(error) => Answer::Error(error),
    }
}

/// What mmap(2) asks for.
struct Wanted {
    address: u64,
    len: u64,
    flags: u64,
    offset: u64,
}

/// An arena has the same addresses in all its mappings: those of `map_extra`, or of the first one, whose place the
/// kernel chooses. That place is looked up when it matters: for the next mapping, or for a program's load.
fn may_map_arena(
    process: &Process<'_>,
    map: &MapObject<SysEngine>,
    descriptor: i32,
    wanted: Wanted,
) -> Result<(), Errno> {
    let Wanted { address, len, flags, offset } = wanted;
    let arena = map.map().map().arena().ok_or(Errno::EINVAL)?;
    // A private mapping would show programs nothing.
    if offset != 0 || flags & MAP_TYPE == libc::MAP_PRIVATE as u64 {
        return Err(Errno::EINVAL);
    }
    if len > 1 << 32 {
        return Err(Errno::E2BIG);
    }
    if arena.known_start().is_none() {
        let (file, _) = process.file(descriptor)?;
        if let Some(first) = process.mapping_of(file) {
            arena.set_start(first);
        }
    }
    let page = rustix::param::page_size() as u64;
    let len = len.checked_next_multiple_of(page).ok_or(Errno::EINVAL)?;
    match arena.known_start() {
        None if len > arena.len() => Err(Errno::EINVAL),
        None => Ok(()),
        Some(_) if len > arena.len() => Err(Errno::E2BIG),
        Some(start) if start != address && flags & libc::MAP_FIXED as u64 != 0 => Err(Errno::EBUSY),
        Some(start) if start != address || len != arena.len() => Err(Errno::EINVAL),
        Some(_) => Ok(()),
    }
}

fn may_map(map: &MapObject<SysEngine>, len: u64, offset: u64, writes: bool) -> Result<(), Errno> {
    let page = rustix::param::page_size() as u64;
    match map.kind() {
        ARRAY | RINGBUF | USER_RINGBUF => {}
        _ => return Err(Errno::ENOTSUPP),
    }
    let inner = map.map().map();
    if !inner.def().fields.is_empty() {
        return Err(Errno::ENOTSUPP);
    }
    if writes && inner.is_frozen() {
        return Err(Errno::EPERM);
    }
    if writes && map.flags() & F_RDONLY_PROG != 0 {
        return Err(Errno::EACCES);
    }
    match map.kind() {
        ARRAY if map.flags() & F_MMAPABLE == 0 => return Err(Errno::EINVAL),
        // The process writes the consumer's position alone.
        RINGBUF if writes && (offset != 0 || len.next_multiple_of(page) != page) => return Err(Errno::EPERM),
        // It writes all but that.
        USER_RINGBUF if writes && offset == 0 => return Err(Errno::EPERM),
        _ => {}
    }
    let size =
        inner.file().and_then(|file| rustix::fs::fstat(file).ok()).map_or(0, |file| file.st_size as u64);
    let end = len.checked_next_multiple_of(page).and_then(|len| len.checked_add(offset));
    if end.is_none_or(|end| end > size) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// A change of what an epoll descriptor waits for.
pub(crate) fn epoll_ctl(process: &mut Process<'_>, arguments: [u64; 6]) -> Answer {
    let [epoll, operation, descriptor, event, ..] = arguments;
    let Some(target) = target_of(process, descriptor as i32) else { return Answer::Continue };
    let Some(bell) = target.bell() else { return Answer::Continue };
    let mut change = || {
        let mut wanted = libc::epoll_event { events: 0, u64: 0 };
        if operation as i32 != libc::EPOLL_CTL_DEL {
            wanted = read_event(process, event)?;
        }
        let epoll = process.take_descriptor(epoll as i32)?;
        let how = wanted.events & !WAITED_FOR;
        // The bell says that there is something to read, or room to write, each time anew.
        let mut ours = libc::epoll_event { events: how | (libc::EPOLLIN | libc::EPOLLET) as u32, ..wanted };
        // What was rung before is no news; unread records are.
        if operation as i32 == libc::EPOLL_CTL_ADD {
            let mut count = [0; 8];
            let _silent = rustix::io::read(bell, &mut count);
            if target.has_unread() {
                let _rung = rustix::io::write(bell, &1u64.to_ne_bytes());
            }
        }
        if let Target::Map(map) = &target {
            process.table.waited_for(map);
        }
        change_epoll(&epoll, operation as i32, bell.as_raw_fd(), &mut ours)
    };
    match change() {
        Ok(()) => Answer::Value(0),
        Err(error) => Answer::Error(error),
    }
}

fn read_event(process: &mut Process<'_>, address: u64) -> Result<libc::epoll_event, Errno> {
    use skep_sys::Caller;
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: the structure's own bytes; any bytes make such a structure, whose fields are plain numbers.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut((&raw mut event).cast::<u8>(), size_of::<libc::epoll_event>())
    };
    process.read(address, bytes)?;
    Ok(event)
}

fn change_epoll(
    epoll: &OwnedFd,
    operation: i32,
    file: i32,
    event: &mut libc::epoll_event,
) -> Result<(), Errno> {
    // SAFETY: both descriptors are open, and the kernel only reads the event.
    let done = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, file, event) };
    if done == 0 {
        return Ok(());
    }
    Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)))
}
