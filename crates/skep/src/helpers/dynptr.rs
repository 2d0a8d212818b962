//! Dynptrs: pointers to memory whose size is known only at run time. A `struct bpf_dynptr` is in the program's
//! stack.
//!
//! ```text
//!   0  of memory: its first byte, of a packet: its context, of nothing: 0 | 8  bytes, kind, right u32 | 12  offset u32
//! ```
//!
//! The verifier lets only calls access it, and proves that a record behind one is released exactly once. A dynptr of a
//! packet outlives moves of the packet, so it is the context that tells where the bytes are, and how many are left.

use super::errno::{E2BIG, EINVAL, ERANGE};
use super::map::map;
use super::{packet, xdp};
use crate::image::Image;
use skep_abi::{RunEnv, SkbContext, XdpContext};
use skep_maps::Map;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The most bytes of one dynptr, as in Linux.
const MOST: u32 = (1 << 24) - 1;
/// Bits beside the number of bytes.
const READ_ONLY: u32 = 1 << 31;
const SKB: u32 = 1 << 29;
const XDP: u32 = 1 << 28;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Dynptr {
    data: u64,
    bits: u32,
    offset: u32,
}

/// What is behind a dynptr.
enum Behind {
    Nothing,
    Memory,
    Skb,
    Xdp,
}

impl Dynptr {
    const NOTHING: Self = Self { data: 0, bits: 0, offset: 0 };

    /// Of at most [`MOST`] bytes at an address.
    const fn at(data: u64, bytes: u32) -> Self {
        Self { data, bits: bytes, offset: 0 }
    }

    /// Of memory that a helper lends to a function: at most [`MOST`] bytes.
    pub(super) fn over(data: *mut u8, bytes: u64) -> Self {
        Self::at(data.expose_provenance() as u64, bytes as u32 & MOST)
    }

    const fn bytes(&self) -> u32 {
        self.bits & MOST
    }

    const fn is_null(&self) -> bool {
        self.data == 0
    }

    const fn behind(&self) -> Behind {
        match self.bits {
            _ if self.is_null() => Behind::Nothing,
            bits if bits & SKB != 0 => Behind::Skb,
            bits if bits & XDP != 0 => Behind::Xdp,
            _ => Behind::Memory,
        }
    }

    /// Whether `bytes` bytes at `offset` are within bounds.
    const fn has(&self, offset: u32, bytes: u32) -> bool {
        offset as u64 + bytes as u64 <= self.bytes() as u64
    }

    /// The address of a part, if it is within bounds and, in a packet, still there.
    ///
    /// # Safety
    ///
    /// The dynptr is one that the functions here made, in the run that is in progress.
    unsafe fn part(&self, offset: u32, bytes: u32) -> Option<u64> {
        if !self.has(offset, bytes) {
            return None;
        }
        // SAFETY: the caller's promise: a dynptr of a packet has the address of the run's own context.
        let (start, end) = unsafe {
            match self.behind() {
                Behind::Nothing => return None,
                Behind::Memory => return Some(self.data + u64::from(self.offset) + u64::from(offset)),
                Behind::Skb => {
                    let skb = &*(self.data as *const SkbContext);
                    (skb.data, skb.data_end)
                }
                Behind::Xdp => {
                    let xdp = &*(self.data as *const XdpContext);
                    (xdp.data, xdp.data_end)
                }
            }
        };
        let at = start + u64::from(self.offset) + u64::from(offset);
        (at + u64::from(bytes) <= end).then_some(at)
    }
}

/// Copies bytes one by one. Other threads may write them, and the ranges may overlap.
///
/// # Safety
///
/// Both are valid for that many bytes.
unsafe fn copy(from: u64, to: u64, bytes: u64) {
    // SAFETY: by contract; bytes are always aligned.
    let one = |at: u64| unsafe {
        let byte = (*((from + at) as *const AtomicU8)).load(Relaxed);
        (*((to + at) as *const AtomicU8)).store(byte, Relaxed);
    };
    if from < to { (0..bytes).rev().for_each(one) } else { (0..bytes).for_each(one) }
}

#[inline]
pub(super) unsafe fn from_mem(data: u64, bytes: u64, flags: u64, out: u64, _: *mut RunEnv) -> u64 {
    let (dynptr, result) = match flags {
        0 if bytes <= MOST.into() => (Dynptr::at(data, bytes as u32), 0),
        0 => (Dynptr::NOTHING, E2BIG),
        _ => (Dynptr::NOTHING, EINVAL),
    };
    // SAFETY: the verifier proved that `out` is room for a dynptr in the stack, and that `data` has that size and
    // stays valid.
    unsafe { (out as *mut Dynptr).write(dynptr) };
    result
}

#[inline]
pub(super) unsafe fn ringbuf_reserve(handle: u64, bytes: u64, flags: u64, out: u64, _: *mut RunEnv) -> u64 {
    let bytes = bytes as u32;
    let (dynptr, result) = if flags != 0 {
        (Dynptr::NOTHING, EINVAL)
    } else if bytes > MOST {
        (Dynptr::NOTHING, E2BIG)
    } else {
        // SAFETY: the verifier proved that `handle` is a map.
        let record = unsafe { map(handle).ring_reserve_ptr(bytes.into(), 0) };
        match record.is_null() {
            true => (Dynptr::NOTHING, EINVAL),
            false => (Dynptr::at(record.expose_provenance() as u64, bytes), 0),
        }
    };
    // SAFETY: the verifier proved that `out` is room for a dynptr in the stack.
    unsafe { (out as *mut Dynptr).write(dynptr) };
    result
}

/// Releases the record behind a dynptr, if there is one, by submitting or discarding it. The dynptr is null
/// afterwards.
///
/// # Safety
///
/// `dynptr` is the address of a dynptr that the verifier proved to be over a record, or null, and to be released
/// once. `how` is one of the two functions of [`Map`] that release records.
unsafe fn give_back(dynptr: u64, flags: u64, how: unsafe fn(*mut u8, u64)) -> u64 {
    // SAFETY: by contract.
    unsafe {
        let taken = (dynptr as *mut Dynptr).replace(Dynptr::NOTHING);
        if taken.data != 0 {
            how(taken.data as *mut u8, flags);
        }
    }
    0
}

/// The record behind a dynptr, or 0.
///
/// # Safety
///
/// As for [`give_back`], but it need not be released.
pub(super) unsafe fn record(dynptr: u64) -> u64 {
    // SAFETY: by contract.
    unsafe { (*(dynptr as *const Dynptr)).data }
}

#[inline]
pub(super) unsafe fn ringbuf_submit(dynptr: u64, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is over a record, or null, and is released once.
    unsafe {
        let over = *(dynptr as *const Dynptr);
        if !over.is_null() {
            super::ring::keep(over.data as *const u8, env);
        }
        give_back(dynptr, flags, Map::ring_submit_ptr)
    }
}

#[inline]
pub(super) unsafe fn ringbuf_discard(dynptr: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { give_back(dynptr, flags, Map::ring_discard_ptr) }
}

#[inline]
pub(super) unsafe fn read(
    to: u64,
    bytes: u64,
    dynptr: u64,
    offset: u64,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    // Only the lower 32 bits count, also in the functions below.
    let (offset, bytes) = (offset as u32, bytes as u32);
    // SAFETY: the verifier proved that it is initialised, and that `to` has room.
    unsafe {
        let dynptr = *(dynptr as *const Dynptr);
        let in_packet = u64::from(dynptr.offset) + u64::from(offset);
        let status = match dynptr.behind() {
            Behind::Nothing => EINVAL,
            _ if flags != 0 => EINVAL,
            _ if !dynptr.has(offset, bytes) => E2BIG,
            Behind::Memory => {
                copy(dynptr.data + in_packet, to, bytes.into());
                return 0;
            }
            Behind::Skb => return packet::skb_load_bytes(dynptr.data, in_packet, to, bytes.into(), env),
            Behind::Xdp => return xdp::load_bytes(dynptr.data, in_packet, to, bytes.into(), env),
        };
        // The program takes the destination for written.
        (to as *mut u8).write_bytes(0, bytes as usize);
        status
    }
}

#[inline]
pub(super) unsafe fn write(
    dynptr: u64,
    offset: u64,
    from: u64,
    bytes: u64,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    let (offset, bytes) = (offset as u32, bytes as u32);
    // SAFETY: the verifier proved that it is initialised, and that `from` is readable.
    unsafe {
        let dynptr = *(dynptr as *const Dynptr);
        if dynptr.is_null() || dynptr.bits & READ_ONLY != 0 {
            return EINVAL;
        }
        if !dynptr.has(offset, bytes) {
            return E2BIG;
        }
        let in_packet = u64::from(dynptr.offset) + u64::from(offset);
        match dynptr.behind() {
            Behind::Skb => packet::skb_store_bytes(dynptr.data, in_packet, from, bytes.into(), flags, env),
            // Checked in this order, unlike in `read`, as in Linux.
            _ if flags != 0 => EINVAL,
            Behind::Xdp => xdp::store_bytes(dynptr.data, in_packet, from, bytes.into(), env),
            Behind::Memory | Behind::Nothing => {
                copy(from, dynptr.data + in_packet, bytes.into());
                0
            }
        }
    }
}

#[inline]
pub(super) unsafe fn data(dynptr: u64, offset: u64, bytes: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is initialised.
    unsafe {
        let dynptr = *(dynptr as *const Dynptr);
        match dynptr.behind() {
            Behind::Memory => dynptr.part(offset as u32, bytes as u32).unwrap_or(0),
            // Slices are for packets.
            _ => 0,
        }
    }
}

#[inline]
pub(super) unsafe fn from_skb(context: u64, flags: u64, out: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own, of a program on socket buffers.
    let len = unsafe {
        let skb = &*(context as *const SkbContext);
        skb.data_end - skb.data
    };
    // SAFETY: as above.
    unsafe { of_packet(context, len, SKB, flags, out, env) }
}

#[inline]
pub(super) unsafe fn from_xdp(context: u64, flags: u64, out: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own, of an XDP program.
    let len = unsafe {
        let xdp = &*(context as *const XdpContext);
        xdp.data_end - xdp.data
    };
    // SAFETY: as above.
    unsafe { of_packet(context, len, XDP, flags, out, env) }
}

/// Makes a dynptr of a packet of `len` bytes.
///
/// # Safety
///
/// `context` is that of the run in progress, and of that kind; `out` is room for a dynptr.
unsafe fn of_packet(context: u64, len: u64, kind: u32, flags: u64, out: u64, env: *mut RunEnv) -> u64 {
    let mut made = Dynptr::NOTHING;
    let status = if flags != 0 {
        EINVAL
    } else if len > MOST.into() {
        E2BIG
    } else {
        // SAFETY: the caller's promise.
        let kind_of_program = unsafe { Image::of_run(env) }.verified.program_type();
        // The verifier decides by the same rule.
        let right = if kind_of_program.writes_packet { 0 } else { READ_ONLY };
        made = Dynptr { data: context, bits: len as u32 | kind | right, offset: 0 };
        0
    };
    // SAFETY: the caller's promise.
    unsafe { (out as *mut Dynptr).write(made) };
    status
}

/// The bytes themselves: packets of this runtime are in one piece, so nothing is ever copied into the buffer.
#[inline]
pub(super) unsafe fn slice(dynptr: u64, offset: u64, _buffer: u64, bytes: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is initialised.
    unsafe { (*(dynptr as *const Dynptr)).part(offset as u32, bytes as u32).unwrap_or(0) }
}

#[inline]
pub(super) unsafe fn slice_rdwr(dynptr: u64, offset: u64, buffer: u64, bytes: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe {
        if (*(dynptr as *const Dynptr)).bits & READ_ONLY != 0 {
            return 0;
        }
        slice(dynptr, offset, buffer, bytes, env)
    }
}

/// Makes a dynptr smaller: the bytes from `start` to `end` are left.
#[inline]
pub(super) unsafe fn adjust(dynptr: u64, start: u64, end: u64, _: *mut RunEnv) -> u64 {
    let (start, end) = (start as u32, end as u32);
    // SAFETY: as above; nothing else accesses it during the call.
    let dynptr = unsafe { &mut *(dynptr as *mut Dynptr) };
    if dynptr.is_null() || start > end {
        return EINVAL;
    }
    if end > dynptr.bytes() {
        return ERANGE;
    }
    dynptr.offset += start;
    dynptr.bits = dynptr.bits & !MOST | (end - start);
    0
}

#[inline]
pub(super) unsafe fn is_null(dynptr: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { (*(dynptr as *const Dynptr)).is_null().into() }
}

#[inline]
pub(super) unsafe fn is_rdonly(dynptr: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let dynptr = unsafe { *(dynptr as *const Dynptr) };
    (!dynptr.is_null() && dynptr.bits & READ_ONLY != 0).into()
}

#[inline]
pub(super) unsafe fn size(dynptr: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let dynptr = unsafe { *(dynptr as *const Dynptr) };
    if dynptr.is_null() { EINVAL } else { dynptr.bytes().into() }
}

#[inline]
pub(super) unsafe fn clone(dynptr: u64, out: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above, and `out` is room for a dynptr.
    unsafe {
        let dynptr = *(dynptr as *const Dynptr);
        (out as *mut Dynptr).write(dynptr);
        if dynptr.is_null() { EINVAL } else { 0 }
    }
}
