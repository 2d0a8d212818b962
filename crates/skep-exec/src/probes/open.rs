//! Perf events of probes: perf_event_open(2), and ioctl(2) of them.
//!
//! Such an event has an empty file. It gives no samples: it runs its program.

use super::Probes;
use super::events::named;
use super::files::{KPROBE, UPROBE};
use crate::listener::Answer;
use crate::perf::{Attr, request};
use crate::process::Process;
use parking_lot::Mutex;
use rustix::fd::AsFd;
use skep::sys::{ProbeEvent, ProbeRequest, Probing, SysEngine};
use skep_sys::{Caller, Errno, Handle, System};
use std::sync::Arc;

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// `PERF_FLAG_FD_NO_GROUP`, `PERF_FLAG_FD_CLOEXEC`.
const FD_NO_GROUP: u64 = 1;
const FD_CLOEXEC: u64 = 8;
/// The bit of `config` that asks for returns.
const RETURNS: u64 = 1;
/// The longest symbol, with its end.
const SYMBOL: usize = 512;

/// An open event.
pub(crate) struct Opened {
    pub(crate) event: Arc<ProbeEvent>,
    number: u32,
    /// The program that ioctl(2) has attached, which is detached before it is let go.
    program: Mutex<Option<(Probing, Handle<SysEngine>)>>,
    /// Keeps the definition of the tracepoint.
    _defined: Arc<()>,
}

/// Whether an event is of a probe or a tracepoint of the world.
pub(crate) fn is_probe(kind: u32) -> bool {
    matches!(kind, KPROBE | UPROBE | TRACEPOINT)
}

/// Opens one.
pub(crate) fn open(
    probes: &Probes,
    process: &mut Process<'_>,
    attr: &Attr,
    arguments: [u64; 6],
) -> Result<i64, Errno> {
    let [_, pid, cpu, _, flags, _] = arguments;
    let (pid, cpu) = (pid as i32, cpu as i32);
    if flags & !(FD_NO_GROUP | FD_CLOEXEC) != 0 || (pid == -1 && cpu == -1) {
        return Err(Errno::EINVAL);
    }
    let of = match pid {
        -1 => None,
        0 => Some(process.group().ok_or(Errno::EINTR)?),
        pid => {
            let pid = u32::try_from(pid).or(Err(Errno::ESRCH))?;
            Some(process.group_of(pid).ok_or(Errno::ESRCH)?)
        }
    };
    let (name, place, config) = (attr.word(56), attr.word(64), attr.word(8));
    let mut defined = Arc::new(());
    let request = match attr.half(0) {
        KPROBE => {
            let name = match name {
                0 => None,
                address => Some(text(process, address)?),
            };
            ProbeRequest::Function { name, offset: place, returns: config & RETURNS != 0 }
        }
        UPROBE => {
            if name == 0 {
                return Err(Errno::EINVAL);
            }
            let given = process.text(name)?;
            let path = named(process, probes, &given)?;
            let given = String::from_utf8_lossy(&given).into_owned();
            ProbeRequest::Binary { path, given, offset: place, returns: config & RETURNS != 0 }
        }
        _ => {
            let (request, hold) = probes.tracepoint(config).ok_or(Errno::EINVAL)?;
            defined = hold;
            request
        }
    };
    let event = process.engine.open_probe(request, of, !attr.is_disabled())?;
    let number = process.table.next_event();
    let opened = Opened { event, number, program: Mutex::new(None), _defined: defined };
    let file = process.table.open_probe(number, opened)?;
    let flags = if flags & FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    process.listener.add_with(process.call, file.as_fd(), flags).map(i64::from)
}

fn text(process: &mut Process<'_>, address: u64) -> Result<String, Errno> {
    let bytes = process.text(address)?;
    if bytes.len() >= SYMBOL {
        return Err(Errno::E2BIG);
    }
    // No function has another name.
    String::from_utf8(bytes).or(Err(Errno::ENOENT))
}

/// A request to one.
pub(crate) fn ioctl(
    system: &System<SysEngine>,
    process: &mut Process<'_>,
    opened: &Opened,
    (number, argument): (u32, u64),
) -> Answer {
    let done = match number {
        request::ENABLE | request::DISABLE => {
            opened.event.enable(number == request::ENABLE);
            Ok(())
        }
        request::RESET | request::PAUSE_OUTPUT => Ok(()),
        request::ID => process.write(argument, &u64::from(opened.number).to_ne_bytes()),
        request::SET_OUTPUT if argument as i32 == -1 => Ok(()),
        request::SET_BPF => set_program(system, process, opened, argument as i32),
        request::QUERY_BPF => query(process, opened, argument),
        request::REFRESH
        | request::PERIOD
        | request::SET_OUTPUT
        | request::SET_FILTER
        | request::MODIFY_ATTRIBUTES => Err(Errno::EINVAL),
        _ => Err(Errno(libc::ENOTTY)),
    };
    done.map_or_else(Answer::Error, |()| Answer::Value(0))
}

fn set_program(
    system: &System<SysEngine>,
    process: &mut Process<'_>,
    opened: &Opened,
    descriptor: i32,
) -> Result<(), Errno> {
    let program = process.handle(descriptor)?;
    let probing = system.probe(&opened.event, &program)?;
    // The event had none: its place for one was free.
    *opened.program.lock() = Some((probing, program));
    Ok(())
}

/// `struct perf_event_query_bpf`: room for so many identifiers, how many there are, the identifiers.
fn query(process: &mut Process<'_>, opened: &Opened, address: u64) -> Result<(), Errno> {
    let mut room = [0; 4];
    process.read(address, &mut room)?;
    let program = opened.event.program();
    let count = u32::from(program.is_some());
    process.write(address.wrapping_add(4), &count.to_ne_bytes())?;
    match program {
        Some(_) if u32::from_ne_bytes(room) == 0 => Err(Errno::ENOSPC),
        Some(id) => process.write(address.wrapping_add(8), &id.to_ne_bytes()),
        None => Ok(()),
    }
}
