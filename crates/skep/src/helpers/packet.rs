//! Helpers that read, write and resize packets.

use super::errno::{EFAULT, EINVAL};
use skep_abi::{RunEnv, SkbContext, XdpContext};

/// Bytes of an Ethernet header: XDP never leaves less.
const ETHERNET: u64 = 14;
/// The most metadata before a packet, and what its size is a multiple of.
const META_MAX: u64 = 252;
const META_STEP: u64 = 4;
/// `BPF_F_RECOMPUTE_CSUM`: nothing to do here, no checksum of the whole packet is kept.
const RECOMPUTE: u64 = 1;
/// `BPF_F_INVALIDATE_HASH`.
const INVALIDATE_HASH: u64 = 2;

pub(super) unsafe extern "C" fn xdp_adjust_head(
    context: u64,
    delta: u64,
    _: u64,
    _: u64,
    _: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: the verifier proved `context` the run's own, and only XDP programs may call this.
    let xdp = unsafe { &mut *(context as *mut XdpContext) };
    let delta = i64::from(delta as u32 as i32);
    let meta = xdp.data - xdp.data_meta;
    let data = xdp.data.wrapping_add_signed(delta);
    let moved = xdp.data_meta.wrapping_add_signed(delta);
    if moved < xdp.buffer_start || data.saturating_add(ETHERNET) > xdp.data_end {
        return EINVAL;
    }
    // SAFETY: both ranges lie between `buffer_start` and `data_end`, one buffer of the host; `copy` allows overlap.
    unsafe { std::ptr::copy(xdp.data_meta as *const u8, moved as *mut u8, meta as usize) };
    xdp.data_meta = moved;
    xdp.data = data;
    0
}

pub(super) unsafe extern "C" fn xdp_adjust_tail(
    context: u64,
    delta: u64,
    _: u64,
    _: u64,
    _: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: as above.
    let xdp = unsafe { &mut *(context as *mut XdpContext) };
    let delta = i64::from(delta as u32 as i32);
    let end = xdp.data_end.wrapping_add_signed(delta);
    if end > xdp.buffer_end || end < xdp.data.saturating_add(ETHERNET) {
        return EINVAL;
    }
    if end > xdp.data_end {
        let grown = (end - xdp.data_end) as usize;
        // SAFETY: the bytes from `data_end` to `end` lie below `buffer_end`.
        unsafe { std::ptr::write_bytes(xdp.data_end as *mut u8, 0, grown) };
    }
    xdp.data_end = end;
    0
}

pub(super) unsafe extern "C" fn xdp_adjust_meta(
    context: u64,
    delta: u64,
    _: u64,
    _: u64,
    _: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: as above.
    let xdp = unsafe { &mut *(context as *mut XdpContext) };
    let meta = xdp.data_meta.wrapping_add_signed(i64::from(delta as u32 as i32));
    if meta < xdp.buffer_start || meta > xdp.data {
        return EINVAL;
    }
    let size = xdp.data - meta;
    if size > META_MAX || size % META_STEP != 0 {
        return EINVAL;
    }
    xdp.data_meta = meta;
    0
}

pub(super) unsafe extern "C" fn skb_load_bytes(
    context: u64,
    offset: u64,
    to: u64,
    len: u64,
    _: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: the verifier proved `context` the run's own, and only socket-buffer programs may call this.
    let skb = unsafe { &*(context as *const SkbContext) };
    let len = u64::from(len as u32);
    match packet_range(skb, offset, len) {
        Some(from) => {
            // SAFETY: `from` has `len` bytes in the packet, `to` is writable for `len` (proved); a program's
            // own memory and the packet may be the same only where the packet itself was passed: `copy`.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
            0
        }
        None => {
            // SAFETY: `to` is writable for `len`.
            unsafe { std::ptr::write_bytes(to as *mut u8, 0, len as usize) };
            EFAULT
        }
    }
}

pub(super) unsafe extern "C" fn skb_store_bytes(
    context: u64,
    offset: u64,
    from: u64,
    len: u64,
    flags: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: as above.
    let skb = unsafe { &mut *(context as *mut SkbContext) };
    if flags & !(RECOMPUTE | INVALIDATE_HASH) != 0 {
        return EINVAL;
    }
    let len = u64::from(len as u32);
    let Some(to) = packet_range(skb, offset, len) else { return EFAULT };
    // SAFETY: `to` has `len` bytes in the packet, `from` is readable for `len` (proved).
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
    if flags & INVALIDATE_HASH != 0 {
        skb.hash = 0;
    }
    0
}

/// The address of `len` bytes at `offset` in the packet, where they all lie in it.
pub(super) fn packet_range(skb: &SkbContext, offset: u64, len: u64) -> Option<u64> {
    let offset = u64::from(offset as u32);
    let size = skb.data_end - skb.data;
    (offset.checked_add(len)? <= size).then_some(skb.data + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-byte packet in the middle of a 128-byte buffer.
    fn xdp(buffer: &mut [u8; 128]) -> XdpContext {
        let start = buffer.as_mut_ptr() as u64;
        XdpContext {
            data: start + 32,
            data_end: start + 96,
            data_meta: start + 32,
            buffer_start: start,
            buffer_end: start + 128,
            ..XdpContext::default()
        }
    }

    fn call(f: skep_abi::HelperFn, context: &mut XdpContext, delta: i32) -> i64 {
        let context: *mut XdpContext = context;
        // SAFETY: the context describes a live buffer; these helpers ignore the environment.
        unsafe { f(context as u64, delta as u32 as u64, 0, 0, 0, std::ptr::null_mut()) as i64 }
    }

    #[test]
    fn the_head_moves_within_the_buffer_and_leaves_an_ethernet_header() {
        let mut buffer = [0; 128];
        let mut context = xdp(&mut buffer);
        assert_eq!(call(xdp_adjust_head, &mut context, -33), -22);
        assert_eq!(call(xdp_adjust_head, &mut context, 51), -22);
        assert_eq!(call(xdp_adjust_head, &mut context, i32::MIN), -22);
        assert_eq!(call(xdp_adjust_head, &mut context, i32::MAX), -22);
        assert_eq!(call(xdp_adjust_head, &mut context, 50), 0);
        assert_eq!(context.data_end - context.data, 14);
        assert_eq!(call(xdp_adjust_head, &mut context, -82), 0);
        assert_eq!(context.data, context.buffer_start);
    }

    #[test]
    fn metadata_travels_with_the_head() {
        let mut buffer = [0; 128];
        buffer[24..32].copy_from_slice(b"metadata");
        let mut context = xdp(&mut buffer);
        assert_eq!(call(xdp_adjust_meta, &mut context, -6), -22, "not a multiple of 4");
        assert_eq!(call(xdp_adjust_meta, &mut context, -8), 0);
        assert_eq!(call(xdp_adjust_head, &mut context, -25), -22, "the metadata would leave the buffer");
        assert_eq!(call(xdp_adjust_head, &mut context, 4), 0);
        assert_eq!(context.data - context.data_meta, 8);
        assert_eq!(&buffer[28..36], b"metadata");
    }

    #[test]
    fn a_grown_tail_is_zeroed_and_a_shrunk_one_keeps_a_header() {
        let mut buffer = [0xff; 128];
        let mut context = xdp(&mut buffer);
        assert_eq!(call(xdp_adjust_tail, &mut context, 33), -22);
        assert_eq!(call(xdp_adjust_tail, &mut context, -51), -22);
        assert_eq!(call(xdp_adjust_tail, &mut context, 32), 0);
        assert_eq!(buffer[96..], [0; 32]);
        assert_eq!(buffer[..96], [0xff; 96]);
    }

    #[test]
    fn loads_past_the_packet_fail_and_clear_their_target() {
        let packet = *b"0123456789";
        let skb = SkbContext {
            data: packet.as_ptr() as u64,
            data_end: packet.as_ptr() as u64 + 10,
            ..SkbContext::default()
        };
        let load = |offset: u64, out: &mut [u8]| {
            // SAFETY: `out` is writable for its length, `skb` describes `packet`.
            unsafe {
                skb_load_bytes(
                    &raw const skb as u64,
                    offset,
                    out.as_mut_ptr() as u64,
                    out.len() as u64,
                    0,
                    std::ptr::null_mut(),
                ) as i64
            }
        };
        let mut out = [0xaa; 4];
        assert_eq!((load(6, &mut out), &out), (0, b"6789"));
        assert_eq!((load(7, &mut out), &out), (-14, &[0; 4]));
        assert_eq!(load(u64::from(u32::MAX), &mut out), -14);
    }
}
