//! User ring buffers: records from the host to programs.
//!
//! The ring is that of a ring buffer ([`crate::ring`]), with the ends exchanged: the host reserves and submits records,
//! and a program is the consumer while it drains them. A program that interrupts a drain, or drains at the same time,
//! is refused, so there is one consumer at a time. The host sleeps until a drain has made room.
//!
//! Instead of the host another process may be the producer, through a file ([`process`]).

mod process;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use skep_mem::Error;

use crate::op_error::errno;
use crate::ring::bell::Bell;
use crate::ring::pages::Pages;
use crate::ring::protocol::{Next, Wakeup};
use crate::ring::signal::Signal;
use crate::ring::{self, HEADER, Ring};
use crate::values::Values;
use process::ProcessRing;

/// Records that one drain takes at most, as in Linux (`BPF_MAX_USER_RINGBUF_SAMPLES`).
const MOST: u32 = 128 * 1024;
/// The longest record: what a dynptr can describe.
const LONGEST: u32 = (1 << 24) - 1;

/// By who produces the records.
#[derive(Debug)]
pub(crate) enum UserRing {
    Host(HostRing),
    Process(ProcessRing),
}

#[derive(Debug)]
pub(crate) struct HostRing {
    pub(crate) ring: Ring,
    /// Rings when there may be room again.
    pub(crate) room: Bell,
    /// What tells a producer that waits for a descriptor.
    pub(crate) signal: OnceLock<Signal>,
    produced: AtomicBool,
}

impl UserRing {
    pub(crate) fn new(bytes: u32) -> Result<Self, Error> {
        HostRing::new(bytes).map(Self::Host)
    }

    /// Another process produces the records, in a file of that name.
    pub(crate) fn in_file(name: &str, bytes: u32) -> Result<Self, Error> {
        ProcessRing::new(name, bytes).map(Self::Process)
    }

    /// Calls `visit` with the address and the length of each record, which it may read and write meanwhile, until it
    /// returns false. Returns the number of records, or a negated error number.
    pub(crate) fn drain(&self, flags: u64, visit: &mut dyn FnMut(*mut u8, u64) -> bool) -> i64 {
        let Some(wakeup) = ring::wakeup(flags) else { return -i64::from(errno::EINVAL) };
        match self {
            Self::Host(ring) => ring.drain(wakeup, visit),
            Self::Process(ring) => ring.drain(wakeup, visit),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Host(host) => host.ring.memory(),
            Self::Process(ring) => ring.pages().memory(),
        }
    }

    pub(crate) fn values(&self) -> &Values {
        match self {
            Self::Host(host) => host.ring.values(),
            Self::Process(ring) => ring.values(),
        }
    }

    /// The ring of a host that produces.
    pub(crate) fn host(&self) -> Option<&HostRing> {
        match self {
            Self::Host(host) => Some(host),
            Self::Process(_) => None,
        }
    }

    /// The file of a process that produces.
    pub(crate) fn pages(&self) -> Option<&Pages> {
        match self {
            Self::Host(_) => None,
            Self::Process(ring) => Some(ring.pages()),
        }
    }
}

impl HostRing {
    fn new(bytes: u32) -> Result<Self, Error> {
        let (room, signal, produced) = (Bell::new(), OnceLock::new(), AtomicBool::new(false));
        Ok(Self { ring: Ring::new(bytes)?, room, signal, produced })
    }

    /// Becomes the producer, unless there is one.
    pub(crate) fn claim(&self) -> bool {
        // Acquire: pairs with `unclaim`, for the last producer's changes.
        !self.produced.swap(true, Ordering::Acquire)
    }

    pub(crate) fn unclaim(&self) {
        // Release: pairs with `claim`.
        self.produced.store(false, Ordering::Release);
    }

    fn drain(&self, wakeup: Wakeup, visit: &mut dyn FnMut(*mut u8, u64) -> bool) -> i64 {
        let shared = self.ring.shared();
        if !shared.control.claim() {
            return -i64::from(errno::EBUSY);
        }
        let (mut taken, mut visited, mut failed) = (0, 0, None);
        while taken < MOST {
            let (position, Next::Record { len, submitted, .. }) = shared.next() else { break };
            if len > LONGEST {
                failed = Some(-i64::from(errno::E2BIG));
                break;
            }
            taken += 1;
            let mut goes_on = true;
            if submitted {
                visited += 1;
                let offset = (position % shared.control.size() + HEADER) as usize;
                goes_on = visit(self.ring.start().wrapping_add(offset), len.into());
            }
            shared.pass(position, len);
            if !goes_on {
                break;
            }
        }
        shared.control.unclaim();
        if wakeup == Wakeup::Forced || (wakeup == Wakeup::Usual && taken > 0) {
            ring::wake(&self.room, &self.signal);
        }
        failed.unwrap_or(visited)
    }
}
