//! Legacy packet loads. They are rare and need many checks, so compiled code calls a function for them.

use skep_abi::{RunEnv, SkbContext};
use skep_isa::Size;

/// What [`load`] returns where the packet has no such bytes: more than any load of 4 bytes.
pub(crate) const MISSING: u64 = u64::MAX;

/// The bytes at `offset` of the packet of a [`SkbContext`], in network order; [`MISSING`] where there are none.
///
/// # Safety
///
/// `context` is the address of the run's native context, whose packet is valid.
pub(crate) unsafe extern "C" fn load(
    context: u64,
    offset: u64,
    bytes: u64,
    _: u64,
    _: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: the caller's promise.
    let skb = unsafe { &*(context as *const SkbContext) };
    let Some(size) = Size::from_bytes(bytes as u32) else { return MISSING };
    let Some(at) = skb.legacy_load(offset as i32, size) else { return MISSING };
    (0..bytes).fold(0, |value, byte| {
        // SAFETY: that many bytes lie in the packet.
        value << 8 | u64::from(unsafe { *((at + byte) as *const u8) })
    })
}
