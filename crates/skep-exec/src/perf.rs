//! Perf events for the samples of programs: perf_event_open(2), ioctl(2) and mmap(2) of them.
//!
//! Such an event (`PERF_COUNT_SW_BPF_OUTPUT`) is a memory file, which becomes a ring ([`skep::PerfEvent`]) when it is
//! mapped; then its size never changes. All other perf events are the kernel's. Of those, none gets a program.

mod attr;

use crate::listener::Answer;
use crate::probes::{self, Probes};
use crate::process::Process;
pub(crate) use attr::Attr;
use attr::{FIRST_SIZE, LARGEST};
use rustix::fd::AsFd;
use skep::sys::SysEngine;
use skep::{PerfEvent, PerfMapError};
use skep_sys::{Caller, Errno, System};
use std::sync::Arc;

/// The name of its file.
const NAME: &str = "perf_event";
/// `PERF_FLAG_FD_CLOEXEC`, `PERF_FLAG_FD_NO_GROUP`.
const FD_NO_GROUP: u64 = 1;
const FD_CLOEXEC: u64 = 8;

/// `PERF_EVENT_IOC_*` of `linux/perf_event.h`.
pub(crate) mod request {
    pub(crate) const ENABLE: u32 = 0x2400;
    pub(crate) const DISABLE: u32 = 0x2401;
    pub(crate) const RESET: u32 = 0x2403;
    pub(crate) const ID: u32 = 0x8008_2407;
    pub(crate) const SET_BPF: u32 = 0x4004_2408;
    pub(crate) const PAUSE_OUTPUT: u32 = 0x4004_2409;
    pub(crate) const REFRESH: u32 = 0x2402;
    pub(crate) const PERIOD: u32 = 0x4008_2404;
    pub(crate) const SET_OUTPUT: u32 = 0x2405;
    pub(crate) const SET_FILTER: u32 = 0x4008_2406;
    pub(crate) const QUERY_BPF: u32 = 0xc008_240a;
    pub(crate) const MODIFY_ATTRIBUTES: u32 = 0x4008_240b;
}

/// A perf event is opened: ours, if it is for samples of programs or for a probe.
pub(crate) fn open(probes: Option<&Probes>, process: &mut Process<'_>, arguments: [u64; 6]) -> Answer {
    let [attr, pid, cpu, group, flags, _] = arguments;
    // What cannot be read, or has no size that there is, is the kernel's to refuse.
    let attr = read_attr(process, attr);
    if let (Some(probes), Some(attr)) = (probes, &attr)
        && probes::is_probe(attr.half(0))
    {
        let opened = probes::open(probes, process, attr, arguments);
        return opened.map_or_else(Answer::Error, Answer::Value);
    }
    let Some(attr) = attr.filter(Attr::is_bpf_output) else { return Answer::Continue };
    open_ours(process, &attr, (pid as i32, cpu as i32), group as i32, flags)
        .map_or_else(Answer::Error, Answer::Value)
}

fn read_attr(process: &mut Process<'_>, address: u64) -> Option<Attr> {
    let mut size = [0; 4];
    process.read(address.checked_add(4)?, &mut size).ok()?;
    let size = match u32::from_ne_bytes(size) {
        0 => FIRST_SIZE,
        size => size,
    };
    if !(FIRST_SIZE..=LARGEST).contains(&size) {
        return None;
    }
    let mut bytes = vec![0; Attr::SIZE.min(size as usize)];
    process.read(address, &mut bytes).ok()?;
    Some(Attr::new(&bytes))
}

fn open_ours(
    process: &Process<'_>,
    attr: &Attr,
    (pid, cpu): (i32, i32),
    group: i32,
    flags: u64,
) -> Result<i64, Errno> {
    if flags & !(FD_NO_GROUP | FD_CLOEXEC) != 0 || group != -1 {
        return Err(Errno::EINVAL);
    }
    if pid != -1 {
        // Programs do not run in any process of the application's.
        process.engine.note_lack("perf event", "samples of one process");
        return Err(Errno::EOPNOTSUPP);
    }
    let cpus = crate::possible_cpus().map_err(|_| Errno::EIO)?;
    let cpu = u32::try_from(cpu).ok().filter(|cpu| *cpu < cpus).ok_or(Errno::EINVAL)?;
    let id = process.table.next_event();
    let settings = attr.settings(cpu, id.into()).inspect_err(|_| {
        process.engine.note_lack("perf event", "fields of samples other than time, CPU, period and raw");
    })?;
    let event = PerfEvent::new(NAME, settings).map_err(|_| Errno::ENOMEM)?;
    let file = process.table.open_event(id, Arc::new(event))?;
    let flags = if flags & FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    process.listener.add_with(process.call, file.as_fd(), flags).map(i64::from)
}

/// A mapping of an event.
pub(crate) fn mmap(event: &PerfEvent, len: u64, writes: bool, offset: u64) -> Answer {
    if offset != 0 {
        return Answer::Error(Errno::EINVAL);
    }
    match event.map(len, writes) {
        Ok(()) => Answer::Continue,
        Err(PerfMapError::NoMemory(_)) => Answer::Error(Errno::ENOMEM),
        Err(_) => Answer::Error(Errno::EINVAL),
    }
}

/// A request to a perf event.
pub(crate) fn ioctl(system: &System<SysEngine>, process: &mut Process<'_>, arguments: [u64; 6]) -> Answer {
    let [descriptor, request, argument, ..] = arguments;
    if let Some(opened) = process.opened_probe(descriptor as i32) {
        return probes::ioctl(system, process, &opened, (request as u32, argument));
    }
    let Some(event) = process.event(descriptor as i32) else {
        let sets_program = request as u32 == request::SET_BPF;
        if sets_program && process.is_perf_event_of_kernel(descriptor as i32) {
            // As of a kernel that has no such events.
            process.engine.note_lack("perf event", "programs of functions, tracepoints and counters");
            return Answer::Error(Errno::EOPNOTSUPP);
        }
        return Answer::Continue;
    };
    let done = match request as u32 {
        request::ENABLE | request::DISABLE => {
            event.enable(request as u32 == request::ENABLE);
            Ok(())
        }
        // It counts nothing.
        request::RESET => Ok(()),
        request::PAUSE_OUTPUT => {
            event.pause(argument as u32 != 0);
            Ok(())
        }
        request::ID => process.write(argument, &event.settings().id.to_ne_bytes()),
        // Without another event it is as it is.
        request::SET_OUTPUT if argument as i32 == -1 => Ok(()),
        request::REFRESH
        | request::PERIOD
        | request::SET_OUTPUT
        | request::SET_FILTER
        | request::SET_BPF
        | request::QUERY_BPF
        | request::MODIFY_ATTRIBUTES => Err(Errno::EINVAL),
        _ => Err(Errno(libc::ENOTTY)),
    };
    done.map_or_else(Answer::Error, |()| Answer::Value(0))
}
