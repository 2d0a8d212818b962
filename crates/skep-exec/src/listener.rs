//! The supervisor's end of the filter: notified calls, answers, descriptors for the processes.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use skep_sys::Errno;
use std::io;
use std::mem::zeroed;

/// `SECCOMP_IOCTL_NOTIF_RECV` and the others of `linux/seccomp.h`.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const IS_VALID: libc::c_ulong = 0x4008_2102;
const ADD_DESCRIPTOR: libc::c_ulong = 0x4018_2103;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the two sides wait for each other, and can share a CPU.
const SYNC_WAKE_UP: libc::c_ulong = 1;
/// `SECCOMP_ADDFD_FLAG_SETFD`.
const SET_NUMBER: u32 = 1;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Identifies it.
    id: u64,
    /// The thread that made it.
    pub(crate) thread: u32,
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

/// An answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Value(i64),
    Error(Errno),
    /// The kernel shall do it.
    Continue,
}

/// The descriptor of the filter's listener.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

impl Listener {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        // SAFETY: the descriptor is a listener. Linux before 6.6 refuses, and only takes longer.
        let _set = unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
        Self(descriptor)
    }

    /// Waits for a call; `None` when no process is left. One thread at a time may wait.
    pub(crate) fn receive(&self) -> io::Result<Option<Call>> {
        loop {
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let events = fds[0].revents();
            if !events.contains(PollFlags::IN) {
                if events.intersects(PollFlags::HUP | PollFlags::ERR) {
                    return Ok(None);
                }
                continue;
            }
            // SAFETY: the structure is plain numbers, and the kernel asks for zeroes.
            let mut notification: libc::seccomp_notif = unsafe { zeroed() };
            // SAFETY: the descriptor is a listener, which writes such a structure.
            let done = unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE, &raw mut notification) };
            if done != 0 {
                match io::Error::last_os_error().raw_os_error() {
                    // The thread was killed meanwhile, or a signal came.
                    Some(libc::ENOENT | libc::EINTR) => continue,
                    Some(libc::ENOTCONN) => return Ok(None),
                    _ => return Err(io::Error::last_os_error()),
                }
            }
            return Ok(Some(Call {
                id: notification.id,
                thread: notification.pid,
                number: notification.data.nr.into(),
                arguments: notification.data.args,
            }));
        }
    }

    /// Whether the thread still waits for the answer: then its number is still its own.
    pub(crate) fn is_valid(&self, call: &Call) -> bool {
        // SAFETY: the descriptor is a listener, which reads the number.
        unsafe { libc::ioctl(self.0.as_raw_fd(), IS_VALID, &raw const call.id) == 0 }
    }

    /// Answers. Nothing happens if the thread is gone.
    pub(crate) fn answer(&self, call: &Call, answer: Answer) {
        // SAFETY: plain numbers.
        let mut response: libc::seccomp_notif_resp = unsafe { zeroed() };
        response.id = call.id;
        match answer {
            Answer::Value(value) => response.val = value,
            Answer::Error(Errno(number)) => response.error = -number,
            Answer::Continue => response.flags = CONTINUE,
        }
        // SAFETY: the descriptor is a listener, which reads such a structure. A thread that was killed needs no answer.
        let _answered = unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, &raw mut response) };
    }

    /// Gives the process a descriptor of the same open file, closed on exec.
    pub(crate) fn add(&self, call: &Call, file: BorrowedFd<'_>) -> Result<i32, Errno> {
        self.add_with(call, file, libc::O_CLOEXEC)
    }

    /// The same, with other flags: `O_CLOEXEC` or 0.
    pub(crate) fn add_with(&self, call: &Call, file: BorrowedFd<'_>, flags: i32) -> Result<i32, Errno> {
        self.give(call, file, flags, None)
    }

    /// The same, with that number. What has the number is closed.
    pub(crate) fn add_at(
        &self,
        call: &Call,
        file: BorrowedFd<'_>,
        flags: i32,
        number: u32,
    ) -> Result<i32, Errno> {
        self.give(call, file, flags, Some(number))
    }

    fn give(&self, call: &Call, file: BorrowedFd<'_>, flags: i32, number: Option<u32>) -> Result<i32, Errno> {
        // SAFETY: plain numbers.
        let mut request: libc::seccomp_notif_addfd = unsafe { zeroed() };
        request.id = call.id;
        request.srcfd = file.as_fd().as_raw_fd() as u32;
        request.newfd_flags = flags as u32;
        if let Some(number) = number {
            request.flags = SET_NUMBER;
            request.newfd = number;
        }
        // SAFETY: the descriptor is a listener, which reads such a structure; the file is open.
        let descriptor = unsafe { libc::ioctl(self.0.as_raw_fd(), ADD_DESCRIPTOR, &raw mut request) };
        if descriptor >= 0 {
            return Ok(descriptor);
        }
        let error = io::Error::last_os_error().raw_os_error();
        Err(Errno(error.filter(|number| *number != libc::ENOENT).unwrap_or(libc::EINTR)))
    }
}
