//! Ring buffers, for programs. The host has a [`RingBuffer`](crate::RingBuffer).

use std::ptr;

use super::Map;
use crate::op_error::errno;
use crate::ring::protocol::{Outcome, Wakeup};
use crate::ring::{self, Ring};
use crate::table::Table;
use crate::user_ring::UserRing;

/// Ring buffers, for programs.
impl Map {
    /// The address of a new record of `len` bytes, all zeroes, at a multiple of 8. Null if there is no room, if
    /// `flags` is not 0, and for other kinds.
    ///
    /// It may be written until it is [submitted](Self::ring_submit_ptr) or [discarded](Self::ring_discard_ptr), which
    /// must happen exactly once: until then it holds back later records.
    pub fn ring_reserve_ptr(&self, len: u64, flags: u64) -> *mut u8 {
        let Some(ring) = self.ring().filter(|_| flags == 0) else { return ptr::null_mut() };
        ring.reserve(len).unwrap_or(ptr::null_mut())
    }

    /// The length of a record of this map; `None` if `record` is elsewhere.
    ///
    /// # Safety
    ///
    /// [`ring_reserve_ptr`](Self::ring_reserve_ptr) of this map or of another that still lives returned `record`, which
    /// is neither submitted nor discarded yet.
    pub unsafe fn ring_record_len(&self, record: *const u8) -> Option<u32> {
        let ring = self.ring().filter(|ring| ring.holds(record))?;
        // SAFETY: by the caller's contract it is a record, and it is one of this ring.
        Some(unsafe { ring.record_len(record) })
    }

    /// Passes a record to the consumer. `flags`: `BPF_RB_NO_WAKEUP` (1) does not wake it, `BPF_RB_FORCE_WAKEUP` (2)
    /// does if it sleeps; with 0 only the record that it waits for wakes it.
    ///
    /// # Safety
    ///
    /// [`ring_reserve_ptr`](Self::ring_reserve_ptr) returned `record`, which is neither submitted nor discarded yet;
    /// the map still lives. No other code writes to the record any more.
    pub unsafe fn ring_submit_ptr(record: *mut u8, flags: u64) {
        // SAFETY: by the caller's contract.
        unsafe { ring::commit(record, Outcome::Submitted, woken(flags)) };
    }

    /// Makes the consumer skip a record; flags as for [`ring_submit_ptr`](Self::ring_submit_ptr).
    ///
    /// # Safety
    ///
    /// As for [`ring_submit_ptr`](Self::ring_submit_ptr).
    pub unsafe fn ring_discard_ptr(record: *mut u8, flags: u64) {
        // SAFETY: by the caller's contract.
        unsafe { ring::commit(record, Outcome::Discarded, woken(flags)) };
    }

    /// Submits a copy; flags as for [`ring_submit_ptr`](Self::ring_submit_ptr).
    ///
    /// Returns 0, or as Linux does `-EAGAIN` (11) if there is no room, `-EINVAL` (22) for other flags, `-EOPNOTSUPP`
    /// (95) for other kinds.
    ///
    /// # Safety
    ///
    /// `from` is readable for `len` bytes, at any alignment; others may write there.
    pub unsafe fn ring_output_ptr(&self, from: *const u8, len: u64, flags: u64) -> i64 {
        let Some(ring) = self.ring() else { return -i64::from(errno::EOPNOTSUPP) };
        let Some(wakeup) = ring::wakeup(flags) else { return -i64::from(errno::EINVAL) };
        let Some(record) = ring.reserve(len) else { return -i64::from(errno::EAGAIN) };
        // SAFETY: reserved with this length just now; `from` by the caller's contract.
        unsafe {
            ring::fill(record, from, len as usize);
            ring::commit(record, Outcome::Submitted, wakeup);
        }
        0
    }

    /// Queries a ring buffer: `BPF_RB_AVAIL_DATA` (0), bytes that are reserved and not consumed; `BPF_RB_RING_SIZE`
    /// (1); `BPF_RB_CONS_POS` (2) and `BPF_RB_PROD_POS` (3). 0 for other queries and other kinds.
    pub fn ring_query(&self, what: u64) -> u64 {
        let answers = self.ring().map_or([0; 4], Ring::query);
        usize::try_from(what).ok().and_then(|what| answers.get(what)).copied().unwrap_or(0)
    }

    /// Drains a user ring buffer: calls `visit` with the address and the length of each record, until it returns false.
    /// The record may be read and written until `visit` returns. `flags`: `BPF_RB_NO_WAKEUP` (1) does not wake a host
    /// that waits for room, `BPF_RB_FORCE_WAKEUP` (2) does even if nothing was taken.
    ///
    /// Returns the number of records, at most 131,072, or as Linux does `-EINVAL` (22) for other flags, `-EBUSY` (16)
    /// while another drain is in progress, `-E2BIG` (7) for a record of 2^24 bytes or more, `-EOPNOTSUPP` (95) for
    /// other kinds.
    pub fn user_ring_drain_ptr(&self, flags: u64, visit: &mut dyn FnMut(*mut u8, u64) -> bool) -> i64 {
        self.user_ring().map_or(-i64::from(errno::EOPNOTSUPP), |user| user.drain(flags, visit))
    }

    pub(crate) fn user_ring(&self) -> Option<&UserRing> {
        match &self.table {
            Table::UserRing(user) => Some(user),
            _ => None,
        }
    }

    pub(crate) fn ring(&self) -> Option<&Ring> {
        match &self.table {
            Table::Ring(ring) => Some(ring),
            _ => None,
        }
    }
}

/// A record must be submitted or discarded whatever the flags are.
fn woken(flags: u64) -> Wakeup {
    ring::wakeup(flags & 3).unwrap_or(Wakeup::Usual)
}
