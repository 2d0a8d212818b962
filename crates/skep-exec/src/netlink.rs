//! Routing sockets (netlink(7)) for the world's devices: attachments of XDP and of traffic control that have no link.
//!
//! ```text
//!   socket(AF_NETLINK, _, NETLINK_ROUTE) --> a netlink socket of NETLINK_USERSOCK, at a high descriptor
//!   sendto, sendmsg of a high descriptor --> answered here; answers are sent from a socket of the supervisor's
//!   recvmsg, recvfrom                    --> the kernel's; the sender, if asked for, is the kernel's: port 0
//! ```
//!
//! The process has a real netlink socket, so that bind(2), getsockname(2), options and waiting are the kernel's.
//! A filter of system calls sees numbers, not what they refer to: sockets of the supervisor's have descriptors from
//! [`HIGH`] on, so the ordinary sockets of a process are not slowed down. A copy under another number does not reach
//! the supervisor, and its messages are refused (ECONNREFUSED).
//!
//! Only a supervisor with a world of its own does this ([`crate::Supervisor::network`]): with the kernel's devices the
//! process would lose its network.

mod device;
mod link;
mod message;
mod netkit;
mod traffic;

use crate::listener::Answer as Verdict;
use crate::process::Process;
pub(crate) use device::REQUESTS;
use message::{Answer, Request};
use parking_lot::Mutex;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use skep::sys::SysEngine;
use skep::world::World;
use skep_sys::{Caller as _, Errno, Handle, Object, System};
use std::collections::BTreeSet;
use std::ops::Range;
use traffic::Filter;

/// The descriptors of sockets, and of files that define probes: below what select(2) takes, and what processes may
/// usually have.
pub(crate) const HIGH: Range<u32> = 896..1024;
/// `NETLINK_USERSOCK`
const USERSOCK: i32 = 2;
/// The longest request, and the most that is received at once.
const LONGEST: usize = 1 << 16;
/// Parts of a message at most, as in Linux.
const PARTS: u64 = 1024;
/// The size of `struct sockaddr_nl`, `struct msghdr` and `struct iovec`.
const ADDRESS: usize = 12;
const MESSAGE: usize = 56;
const PART: usize = 16;

/// The world's devices as processes reach them.
pub(crate) struct Network {
    world: World,
    state: Mutex<State>,
    /// Answers come from here.
    socket: OwnedFd,
}

/// What requests have attached.
#[derive(Default)]
struct State {
    /// Devices with a `clsact`.
    clsact: BTreeSet<u32>,
    /// By device, direction and priority.
    filters: Vec<Filter>,
}

/// Who makes a request.
struct Caller<'a, 'b> {
    process: &'a mut Process<'b>,
    system: &'a System<SysEngine>,
}

impl Caller<'_, '_> {
    /// The program of a descriptor, of that type.
    fn program(&mut self, descriptor: i32, kind: u32) -> Result<Handle<SysEngine>, Errno> {
        let handle = self.process.handle(descriptor)?;
        match handle.object() {
            Object::Program(program) if program.program_type() == kind => Ok(handle),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl Network {
    /// # Errors
    ///
    /// Where there are no such sockets.
    pub(crate) fn new(world: World) -> std::io::Result<Self> {
        let socket = socket(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
            .map_err(|error| std::io::Error::from_raw_os_error(error.0))?;
        Ok(Self { world, state: Mutex::new(State::default()), socket })
    }

    /// A process opens a routing socket.
    pub(crate) fn open(&self, process: &Process<'_>, arguments: [u64; 6]) -> Verdict {
        let kind = arguments[1] as i32;
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        if !matches!(kind & !flags, libc::SOCK_RAW | libc::SOCK_DGRAM) {
            return Verdict::Continue;
        }
        let given = socket(kind & flags)
            .and_then(|theirs| give_high(process, &theirs, kind & libc::SOCK_CLOEXEC != 0));
        given.map_or_else(Verdict::Error, |number| Verdict::Value(number.into()))
    }

    /// A process sends: by sendto(2), or a message by sendmsg(2).
    pub(crate) fn send(
        &self,
        system: &System<SysEngine>,
        process: &mut Process<'_>,
        arguments: [u64; 6],
        is_message: bool,
    ) -> Verdict {
        let Some(socket) = ours(process, arguments[0] as i32) else { return Verdict::Continue };
        let read = if is_message {
            read_message(process, arguments[1]).and_then(|message| message.gather(process))
        } else {
            read(process, &[(arguments[1], arguments[2])])
        };
        let done = read.and_then(|bytes| {
            self.serve(&mut Caller { process, system }, &socket, &bytes)?;
            Ok(bytes.len() as i64)
        });
        done.map_or_else(Verdict::Error, Verdict::Value)
    }

    fn serve(&self, caller: &mut Caller<'_, '_>, socket: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
        // A link that was closed before does not hold its place.
        caller.process.table.settle(false);
        let port = port(socket)?;
        for request in message::requests(bytes) {
            let mut answer = Answer::new(port);
            let done = self.answer(caller, &request, &mut answer);
            if done == Err(Errno::EOPNOTSUPP) {
                caller.process.engine.note_lack("routing request", message::name(request.kind));
            }
            answer.finish(&request, done.map_or_else(|error| error.0, |()| 0));
            for part in answer.parts() {
                self.give(port, part)?;
            }
        }
        Ok(())
    }

    fn answer(
        &self,
        caller: &mut Caller<'_, '_>,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        /// `RTM_*`
        const NEWLINK: u16 = 16;
        const DELLINK: u16 = 17;
        const GETLINK: u16 = 18;
        const SETLINK: u16 = 19;
        const GETADDR: u16 = 22;
        const NEWQDISC: u16 = 36;
        const DELQDISC: u16 = 37;
        const GETQDISC: u16 = 38;
        const GETTCLASS: u16 = 42;
        const NEWTFILTER: u16 = 44;
        const DELTFILTER: u16 = 45;
        const GETTFILTER: u16 = 46;
        match request.kind {
            GETLINK => self.links(caller, request, answer),
            SETLINK => self.set_link(caller, request),
            NEWLINK if request.flags & message::CREATE == 0 => self.change_link(caller, request),
            NEWLINK => self.new_link(request),
            DELLINK => self.delete_link(request),
            GETADDR if request.flags & message::DUMP == message::DUMP => self.addresses(request, answer),
            NEWQDISC => self.new_discipline(request),
            DELQDISC => self.delete_discipline(caller, request),
            GETQDISC if request.flags & message::DUMP == message::DUMP => self.disciplines(request, answer),
            // There are none.
            GETTCLASS if request.flags & message::DUMP == message::DUMP => Ok(()),
            NEWTFILTER => self.new_filter(caller, request, answer),
            DELTFILTER => self.delete_filter(caller, request, answer),
            GETTFILTER => self.filters(caller, request, answer),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Sends to a process's socket.
    fn give(&self, port: u32, bytes: &[u8]) -> Result<(), Errno> {
        let mut to = [0u32; ADDRESS / 4];
        (to[0], to[1]) = (libc::AF_NETLINK as u32, port);
        let from = bytes.as_ptr().cast();
        // SAFETY: the kernel reads the bytes and an address of that size.
        let sent = unsafe {
            let (to, len) = (to.as_ptr().cast(), ADDRESS as u32);
            libc::sendto(self.socket.as_raw_fd(), from, bytes.len(), libc::MSG_DONTWAIT, to, len)
        };
        // There is no room in the process's socket, or it is gone.
        if sent == bytes.len() as isize { Ok(()) } else { Err(Errno(libc::ENOBUFS)) }
    }

    /// A process receives and asks who sent it: by recvfrom(2), or a message by recvmsg(2).
    pub(crate) fn receive(
        &self,
        process: &mut Process<'_>,
        arguments: [u64; 6],
        is_message: bool,
    ) -> Verdict {
        let [descriptor, first, second, third, address, address_len] = arguments;
        let Some(socket) = ours(process, descriptor as i32) else { return Verdict::Continue };
        let (message, flags) = if is_message {
            match read_message(process, first) {
                Ok(message) => (message, second as i32),
                Err(error) => return Verdict::Error(error),
            }
        } else {
            let mut room = [0; 4];
            if address != 0
                && let Err(error) = process.read(address_len, &mut room)
            {
                return Verdict::Error(error);
            }
            let (room, parts) = (u32::from_ne_bytes(room), vec![(first, second)]);
            (Message { name: address, room, parts, at: None }, third as i32)
        };
        if message.name == 0 {
            return Verdict::Continue;
        }
        let mut bytes = vec![0; message.len().min(LONGEST)];
        let how = libc::MSG_DONTWAIT | libc::MSG_TRUNC | flags & libc::MSG_PEEK;
        // SAFETY: the kernel writes at most as many bytes as there are.
        let whole = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), how) };
        let Ok(whole) = usize::try_from(whole) else {
            // There is nothing yet: a process that waits for it waits in the kernel.
            return Verdict::Continue;
        };
        let truncated = whole > bytes.len();
        bytes.truncate(whole);
        let given = message.give(process, &bytes, truncated, (!is_message).then_some(address_len));
        let len = if flags & libc::MSG_TRUNC != 0 { whole } else { bytes.len() };
        given.map_or_else(Verdict::Error, |()| Verdict::Value(len as i64))
    }
}

/// Gives a process a file under a number that the filter looks for.
pub(crate) fn give_high(process: &Process<'_>, file: &OwnedFd, closes: bool) -> Result<i32, Errno> {
    // One at a time chooses a number.
    static CHOOSING: Mutex<()> = Mutex::new(());
    let _choosing = CHOOSING.lock();
    let free = HIGH.clone().find(|number| !process.has_descriptor(*number as i32));
    let close = if closes { libc::O_CLOEXEC } else { 0 };
    let added = process.listener.add_at(process.call, file.as_fd(), close, free.ok_or(Errno::EMFILE)?);
    // The number is above the process's limit.
    added.map_err(|error| if error == Errno::EBADF { Errno::EMFILE } else { error })
}

/// Whether a request of ioctl(2) is answered from the world.
pub(crate) fn is_about_device(request: u32) -> bool {
    device::REQUESTS.contains(&request)
}

/// A socket as processes get it.
fn socket(flags: i32) -> Result<OwnedFd, Errno> {
    use rustix::fd::FromRawFd;
    // SAFETY: numbers.
    let socket =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags, USERSOCK) };
    if socket < 0 {
        return Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPROTONOSUPPORT)));
    }
    // SAFETY: the kernel has just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// A copy of a process's descriptor, if it is a socket of that kind.
fn ours(process: &Process<'_>, descriptor: i32) -> Option<OwnedFd> {
    let socket = process.take_descriptor(descriptor).ok()?;
    let is = |name, wanted: i32| {
        let (mut value, mut len) = (0i32, 4u32);
        // SAFETY: the kernel writes at most four bytes.
        let done = unsafe {
            let value = (&raw mut value).cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, &raw mut len)
        };
        done == 0 && value == wanted
    };
    let it_is = is(libc::SO_DOMAIN, libc::AF_NETLINK) && is(libc::SO_PROTOCOL, USERSOCK);
    it_is.then_some(socket)
}

/// The address of a socket, which it gets now if it has none.
fn port(socket: &OwnedFd) -> Result<u32, Errno> {
    for _ in 0..2 {
        let (mut address, mut len) = ([0u32; ADDRESS / 4], ADDRESS as u32);
        // SAFETY: the kernel writes at most as many bytes as `len` says.
        let done =
            unsafe { libc::getsockname(socket.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut len) };
        if done == 0 && address[1] != 0 {
            return Ok(address[1]);
        }
        address = [libc::AF_NETLINK as u32, 0, 0];
        // SAFETY: the kernel reads an address of that size.
        let _bound = unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), ADDRESS as u32) };
    }
    Err(Errno(libc::EADDRINUSE))
}

/// `struct msghdr` of a process.
struct Message {
    name: u64,
    room: u32,
    /// Addresses and lengths.
    parts: Vec<(u64, u64)>,
    /// Where the structure is.
    at: Option<u64>,
}

fn read_message(process: &mut Process<'_>, address: u64) -> Result<Message, Errno> {
    let word =
        |bytes: &[u8], at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    let mut header = [0; MESSAGE];
    process.read(address, &mut header)?;
    let (parts, count) = (word(&header, 16), word(&header, 24));
    if count > PARTS {
        return Err(Errno(libc::EMSGSIZE));
    }
    let mut bytes = vec![0; count as usize * PART];
    process.read(parts, &mut bytes)?;
    let parts = bytes.chunks_exact(PART).map(|part| (word(part, 0), word(part, 8))).collect();
    Ok(Message { name: word(&header, 0), room: word(&header, 8) as u32, parts, at: Some(address) })
}

fn read(process: &mut Process<'_>, parts: &[(u64, u64)]) -> Result<Vec<u8>, Errno> {
    let len = parts.iter().try_fold(0u64, |all, (_, len)| all.checked_add(*len));
    let len = len.filter(|len| *len <= LONGEST as u64).ok_or(Errno(libc::EMSGSIZE))?;
    let (mut bytes, mut at) = (vec![0; len as usize], 0);
    for (address, len) in parts {
        process.read(*address, &mut bytes[at..at + *len as usize])?;
        at += *len as usize;
    }
    Ok(bytes)
}

impl Message {
    fn len(&self) -> usize {
        self.parts
            .iter()
            .fold(0u64, |all, (_, len)| all.saturating_add(*len))
            .try_into()
            .unwrap_or(usize::MAX)
    }

    fn gather(&self, process: &mut Process<'_>) -> Result<Vec<u8>, Errno> {
        read(process, &self.parts)
    }

    /// Writes what was received, and that the kernel sent it. `len_at`: where recvfrom(2) wants the length of the
    /// sender's address.
    fn give(
        &self,
        process: &mut Process<'_>,
        mut bytes: &[u8],
        truncated: bool,
        len_at: Option<u64>,
    ) -> Result<(), Errno> {
        for (address, len) in &self.parts {
            let now = bytes.len().min(usize::try_from(*len).unwrap_or(usize::MAX));
            process.write(*address, &bytes[..now])?;
            bytes = &bytes[now..];
        }
        let mut kernel = [0u8; ADDRESS];
        kernel[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
        process.write(self.name, &kernel[..ADDRESS.min(self.room as usize)])?;
        let len = (ADDRESS as u32).to_ne_bytes();
        if let Some(at) = len_at {
            process.write(at, &len)?;
        }
        if let Some(at) = self.at {
            // The length of the name; no control data; the flags.
            let flags = if truncated { libc::MSG_TRUNC } else { 0 };
            process.write(at.wrapping_add(8), &len)?;
            process.write(at.wrapping_add(40), &0u64.to_ne_bytes())?;
            process.write(at.wrapping_add(48), &flags.to_ne_bytes())?;
        }
        Ok(())
    }
}
