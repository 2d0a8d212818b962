//! A descriptor by which a host waits for something together with other descriptors (poll(2), epoll(7)).
//!
//! It is an eventfd(2). The consumer lowers it and announces that it listens; the producer raises it once
//! ([`protocol`](super::protocol), [`bell`](super::bell)). The producer may be late, when the consumer has looked
//! already: so a host that finds nothing lowers it each time.
//!
//! It lives as long as the ring: a program that is about to raise it must not find the number of another file.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, write};

#[derive(Debug)]
pub(crate) struct Signal(OwnedFd);

impl Signal {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes the descriptor readable. Signal handlers may call it.
    pub(crate) fn raise(&self) {
        // Fails only if it was raised 2^64 times, and is readable then.
        let _raised = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn lower(&self) {
        // Fails if it was not readable.
        let _lowered = read(&self.0, &mut [0u8; 8]);
    }
}
