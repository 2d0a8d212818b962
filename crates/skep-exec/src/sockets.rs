//! Sockets of clients that maps hold by their cookies.
//!
//! To learn a socket's cookie, family and state, the supervisor needs a descriptor of it for a moment. It must not keep
//! one: the socket would not be closed when the client closes it, and its peer would wait for ever. So the socket goes
//! into an epoll set of ours, which holds nothing open: the kernel takes it out when the last descriptor anywhere is
//! closed, in messages and other processes too. Nobody waits by this set. Which sockets are left in it is read from
//! `/proc/self/fdinfo`, by their cookies.
//!
//! ```text
//!   client's descriptor --pidfd_getfd--> helper: facts, epoll_ctl(ADD, data = cookie), close --> answers
//!                                                     |
//!   known cookies  -  those in /proc/self/fdinfo/EPOLL  =  closed
//! ```
//!
//! **Closing is the danger.** The client may close its own descriptor at any moment, and then ours is the last. Closing
//! that may wait: for data to be sent (`SO_LINGER`), or for the file system of a file that was put in the socket's
//! place. Asking a socket may wait as well, for a thread of the client's that has locked it and does not go on. So
//! that is the work of a helper, a thread with a table of descriptors of its own, and the thread that answers the call
//! does not wait long for it. There are few helpers, so that a client which makes them wait harms itself alone.
//!
//! **Invariant.** A cookie is known only once the call that has named its socket is over, and its socket was in the set
//! before. So what is known and not in the set is closed, and elements that the call has made are there to be removed.
//! It stays known until they are: everyone who looks before that removes them too. What another call has named
//! meanwhile stays known for that one's elements.
//!
//! What would break it: a number of the helper's descriptor that is not always the same. A socket would be in the set
//! twice, once for each number.

use parking_lot::Mutex;
use rustix::event::epoll;
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::fs::{FileType, fstat};
use rustix::net::{AddressFamily, SocketAddrAny, getpeername, getsockname, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use skep_sys::{ClientSocket, ClientState, Errno};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::table::number;

/// The most helpers at a time: those of a client that makes them wait are not replaced by others without end.
const HELPERS: usize = 32;
/// How long a call waits for its helper.
const PATIENCE: Duration = Duration::from_secs(10);
/// `TCP_ESTABLISHED` and `TCP_LISTEN`.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
const IPPROTO_TCP: u32 = 6;

/// The sockets that were named by calls.
#[derive(Debug)]
pub(crate) struct Sockets {
    open: OwnedFd,
    known: Mutex<Known>,
    helpers: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Known {
    /// How many calls have named sockets.
    calls: u64,
    /// Cookies, and the number of the last call that has named each.
    sockets: BTreeMap<u64, u64>,
}

/// A socket that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) cookie: u64,
    /// The last call that had named it.
    call: u64,
}

impl Sockets {
    pub(crate) fn new() -> io::Result<Self> {
        let open = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { open, known: Mutex::default(), helpers: Arc::default() })
    }

    /// What a descriptor of a process is, whose file has that number. The socket is watched from now on.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it is another file by now; [`Errno::EAGAIN`] if the socket, or other sockets, keep a helper
    /// waiting; [`Errno::ENOMEM`] if no more can be watched.
    pub(crate) fn look(&self, process: Pid, descriptor: i32, file: u64) -> Result<ClientSocket, Errno> {
        let place = Helper::new(&self.helpers).ok_or(Errno::EAGAIN)?;
        let epoll = self.open.as_raw_fd();
        let (answer, answered) = sync_channel(1);
        let helper = move || {
            let _place = place;
            // It is closed before the answer: the client may be about to close the last one, and to look.
            let found = Taken::take(process, descriptor, epoll).and_then(|taken| taken.watch(file));
            // Nobody may wait any more.
            let _unheard = answer.send(found);
        };
        thread::Builder::new().spawn(helper).map_err(|_| Errno::EAGAIN)?;
        match answered.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(Errno::EAGAIN),
            Err(RecvTimeoutError::Disconnected) => Err(Errno::EIO),
        }
    }

    /// These were named by a call that is over.
    pub(crate) fn know(&self, cookies: &[u64]) {
        if !cookies.is_empty() {
            let mut known = self.known.lock();
            known.calls += 1;
            let call = known.calls;
            known.sockets.extend(cookies.iter().map(|cookie| (*cookie, call)));
        }
    }

    /// Those that are closed by now, until they are [forgotten](Self::forget).
    pub(crate) fn closed(&self) -> Vec<Closed> {
        let known = self.known.lock().sockets.clone();
        if known.is_empty() {
            return Vec::new();
        }
        let path = format!("/proc/self/fdinfo/{}", self.open.as_raw_fd());
        let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
        let open = cookies(&text);
        let closed = known.into_iter().filter(|(cookie, _)| !open.contains(cookie));
        closed.map(|(cookie, call)| Closed { cookie, call }).collect()
    }

    /// No map holds these any more, but for what calls have done that named them since they were found closed.
    pub(crate) fn forget(&self, ended: &[Closed]) {
        if !ended.is_empty() {
            let mut known = self.known.lock();
            let is_ended = |cookie, call| ended.contains(&Closed { cookie, call });
            known.sockets.retain(|cookie, call| !is_ended(*cookie, *call));
        }
    }
}

/// The data of an epoll set's entries.
fn cookies(text: &str) -> BTreeSet<u64> {
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
        words.find(|word| *word == "data:")?;
        u64::from_str_radix(words.next()?, 16).ok()
    };
    text.lines().filter_map(of_line).collect()
}

/// A place among the helpers.
struct Helper(Arc<AtomicUsize>);

impl Helper {
    fn new(all: &Arc<AtomicUsize>) -> Option<Self> {
        // A number alone: what helpers share is the kernel's.
        let before = all.fetch_add(1, Ordering::Relaxed);
        let helper = Self(Arc::clone(all));
        (before < HELPERS).then_some(helper)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // As above.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a helper has in its own table.
struct Taken {
    _own: OwnedFd,
    epoll: OwnedFd,
    _process: OwnedFd,
    file: OwnedFd,
}

impl Taken {
    /// Leaves the table of descriptors of the other threads, and takes one of a process.
    fn take(process: Pid, descriptor: i32, epoll: RawFd) -> Result<Self, Errno> {
        const CLOSE_RANGE_UNSHARE: u32 = 2;
        // SAFETY: numbers alone. The thread's table is its own and empty from here on, if the call succeeds; if not,
        // nothing is closed. It has no descriptor in its hands.
        if unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, CLOSE_RANGE_UNSHARE) } != 0 {
            return Err(Errno::EAGAIN);
        }
        let find =
            |of: &OwnedFd, descriptor| pidfd_getfd(of, descriptor, PidfdGetfdFlags::empty()).map_err(number);
        // The process's first thread has all descriptors of the supervisor.
        let own = pidfd_open(getpid(), PidfdFlags::empty()).map_err(number)?;
        let epoll = find(&own, epoll)?;
        let process = pidfd_open(process, PidfdFlags::empty()).map_err(number)?;
        let file = find(&process, descriptor)?;
        Ok(Self { _own: own, epoll, _process: process, file })
    }

    /// Puts the socket into the set, lets it go, and says what it is.
    fn watch(self, file: u64) -> Result<ClientSocket, Errno> {
        let status = fstat(&self.file).map_err(number)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::Socket || status.st_ino != file {
            return Err(Errno::EBADF);
        }
        let socket = describe(&self.file).map_err(number)?;
        let data = epoll::EventData::new_u64(socket.cookie);
        match epoll::add(&self.epoll, &self.file, data, epoll::EventFlags::ONESHOT) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(socket),
            Err(_) => Err(Errno::ENOMEM),
        }
    }
}

/// What a socket says of itself.
fn describe(socket: &OwnedFd) -> rustix::io::Result<ClientSocket> {
    let family = sockopt::socket_domain(socket)?;
    let kind = sockopt::socket_type(socket)?.as_raw();
    let protocol = sockopt::socket_protocol(socket)?.map_or(0, |protocol| protocol.as_raw().get());
    let address = |any: SocketAddrAny| SocketAddr::try_from(any).ok();
    let is_ip = [AddressFamily::INET, AddressFamily::INET6].contains(&family);
    let peer = getpeername(socket);
    let state = match tcp_state(socket).filter(|_| is_ip && protocol == IPPROTO_TCP) {
        Some(ESTABLISHED) => ClientState::Established,
        Some(LISTEN) => ClientState::Listening,
        Some(_) => ClientState::Other,
        None if matches!(peer, Ok(Some(_))) => ClientState::Established,
        None if sockopt::socket_acceptconn(socket)? => ClientState::Listening,
        None => ClientState::Other,
    };
    Ok(ClientSocket {
        cookie: sockopt::socket_cookie(socket)?,
        family: family.as_raw().into(),
        kind,
        protocol,
        state,
        reuse_port: is_ip && sockopt::socket_reuseport(socket)?,
        local: getsockname(socket).ok().filter(|_| is_ip).and_then(address),
        remote: peer.ok().flatten().filter(|_| is_ip).and_then(address),
    })
}

/// The state of a socket of TCP.
fn tcp_state(socket: &OwnedFd) -> Option<u8> {
    let mut state = 0u8;
    let mut size: libc::socklen_t = 1;
    let socket = socket.as_raw_fd();
    // SAFETY: the descriptor is open, and the kernel writes at most one byte, of this frame.
    let asked = unsafe {
        libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut size)
    };
    (asked == 0 && size == 1).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookies_of(sockets: &Sockets) -> Vec<u64> {
        sockets.closed().iter().map(|closed| closed.cookie).collect()
    }

    #[test]
    fn a_closed_socket_is_told_to_everyone_until_its_elements_are_gone() {
        let sockets = Sockets::new().unwrap();
        sockets.know(&[7, 8]);
        let first = sockets.closed();
        assert_eq!(cookies_of(&sockets), [7, 8]);
        sockets.forget(&first[..1]);
        assert_eq!(cookies_of(&sockets), [8]);
    }

    #[test]
    fn a_socket_that_a_call_has_named_meanwhile_is_told_again() {
        let sockets = Sockets::new().unwrap();
        sockets.know(&[7]);
        let (first, second) = (sockets.closed(), sockets.closed());
        sockets.know(&[7]);
        sockets.forget(&first);
        assert_eq!(cookies_of(&sockets), [7], "named while the first was at work");
        sockets.forget(&sockets.closed());
        sockets.know(&[7]);
        sockets.forget(&second);
        assert_eq!(cookies_of(&sockets), [7], "forgotten and named again");
    }
}
