//! How helpers change the length of a socket buffer: bytes go in at the head, behind the headers or at the end.
//!
//! ```text
//!   insert(at, len)   | headers | payload |   -->   | headers | 0 0 0 | payload |     the headers move to the front
//!   remove(at, len)   | headers | gone | payload |  -->      | headers | payload |     the headers move to the back
//! ```
//!
//! A buffer that is too small is replaced by a larger one: the context has new addresses then. The program's pointers
//! into the packet are void after every helper that calls these functions ([`skep_abi::HelperProto::moves_packet`]).
//! Metadata before the packet ends where the packet's start moves. A link-layer header before `data`, which programs
//! that see packets from the network header on do not see, moves along.

use super::checksum;
use crate::packet::Packet;
use skep_abi::SkbContext;

/// `ETH_P_IP` and the like, as a context's `protocol` has them.
pub(super) const IPV4: u32 = 0x0800u16.to_be() as u32;
pub(super) const IPV6: u32 = 0x86ddu16.to_be() as u32;

/// The longest packet that helpers make where no device says more: what Linux's helpers allow.
pub(super) const LONGEST: u64 = 16_064;

/// The run's socket buffer.
///
/// # Safety
///
/// The verifier proved that `context` is the run's own, and only socket-buffer programs may call the helper in
/// progress.
pub(super) unsafe fn skb<'a>(context: u64) -> &'a mut SkbContext {
    // SAFETY: the caller's promise; nothing else accesses the context while a helper runs.
    unsafe { &mut *(context as *mut SkbContext) }
}

/// The packet's length.
pub(super) fn len(skb: &SkbContext) -> u64 {
    skb.data_end - skb.data
}

/// The bytes at `at`, if all of them are in the packet.
///
/// # Safety
///
/// The context describes a live buffer.
pub(super) unsafe fn read<const N: usize>(skb: &SkbContext, at: u64) -> Option<[u8; N]> {
    let inside = at.checked_add(N as u64).is_some_and(|end| end <= len(skb));
    // SAFETY: these bytes are in the packet; byte arrays have no alignment.
    inside.then(|| unsafe { *((skb.data + at) as *const [u8; N]) })
}

/// Replaces the bytes at `at`, all of which must be in the packet.
///
/// # Safety
///
/// The context describes a live buffer.
pub(super) unsafe fn write(skb: &SkbContext, at: u64, bytes: &[u8]) {
    assert!(at + bytes.len() as u64 <= len(skb));
    // SAFETY: these bytes are in the packet.
    unsafe { std::ptr::copy(bytes.as_ptr(), (skb.data + at) as *mut u8, bytes.len()) };
}

/// Inserts `bytes` zeroes at `at`, which is in the packet or at its end. False where there is no room.
///
/// # Safety
///
/// The context is the run's own.
pub(super) unsafe fn insert(skb: &mut SkbContext, at: u64, bytes: u64) -> bool {
    debug_assert!(at <= len(skb));
    skb.data_meta = skb.data;
    let link = u64::from(skb.link);
    // SAFETY: the caller's promise.
    if skb.data - link - skb.buffer_start < bytes && !unsafe { grow(skb, bytes + link, 0) } {
        return false;
    }
    // SAFETY: both ranges are between `buffer_start` and `data_end`.
    unsafe {
        checksum::tracked(skb, |skb| {
            let (from, to) = (skb.data - link, skb.data - link - bytes);
            std::ptr::copy(from as *const u8, to as *mut u8, (link + at) as usize);
            std::ptr::write_bytes((to + link + at) as *mut u8, 0, bytes as usize);
            skb.data -= bytes;
        });
    }
    ends(skb);
    true
}

/// Removes `bytes` bytes at `at`, all of which must be in the packet.
///
/// # Safety
///
/// The context is the run's own.
pub(super) unsafe fn remove(skb: &mut SkbContext, at: u64, bytes: u64) {
    assert!(at + bytes <= len(skb));
    // SAFETY: both ranges are in the packet.
    unsafe {
        checksum::tracked(skb, |skb| {
            let link = u64::from(skb.link);
            let from = skb.data - link;
            std::ptr::copy(from as *const u8, (from + bytes) as *mut u8, (link + at) as usize);
            skb.data += bytes;
        });
    }
    ends(skb);
}

/// Makes the packet so long; new bytes are zero. False where there is no room.
///
/// # Safety
///
/// The context is the run's own.
pub(super) unsafe fn set_len(skb: &mut SkbContext, new: u64) -> bool {
    let old = len(skb);
    // SAFETY: the caller's promise.
    if new > skb.buffer_end - skb.data && !unsafe { grow(skb, 0, new - old) } {
        return false;
    }
    // SAFETY: the bytes up to the new end are below `buffer_end`.
    unsafe {
        checksum::tracked(skb, |skb| {
            if new > old {
                std::ptr::write_bytes(skb.data_end as *mut u8, 0, (new - old) as usize);
            }
            skb.data_end = skb.data + new;
        });
    }
    skb.len = new as u32;
    true
}

/// After the packet's start has moved.
fn ends(skb: &mut SkbContext) {
    skb.data_meta = skb.data;
    skb.len = len(skb) as u32;
}

/// # Safety
///
/// The context is the run's own.
unsafe fn grow(skb: &mut SkbContext, head: u64, tail: u64) -> bool {
    // SAFETY: the caller's promise: the run's caller waits for the run.
    unsafe { Packet::of_run(skb.packet) }.is_some_and(|packet| packet.grow_skb(skb, head, tail))
}
