//! Helpers that resize, read and write the packets of XDP programs.

use super::errno::{EACCES, EFAULT, EINVAL, ENODATA, EOPNOTSUPP};
use crate::packet::{Packet, PacketInfo};
use skep_abi::{RunEnv, XdpContext};

/// Bytes of an Ethernet header, of which a packet keeps at least so many.
const ETHERNET: u64 = 14;
/// The first bytes of the room before a packet, where drivers keep a `struct xdp_frame`.
const FRAME: u64 = 40;
/// From the start of the room to the end of what a packet may grow to: a page, less what the stack keeps at its end.
const PAGE: u64 = 4096 - 320;

/// The most metadata before a packet, and the alignment of its size.
const META_MAX: u64 = 252;
const META_STEP: u64 = 4;

#[inline]
pub(super) unsafe fn adjust_head(context: u64, delta: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own, and only XDP programs may call this.
    let xdp = unsafe { &mut *(context as *mut XdpContext) };
    let delta = i64::from(delta as u32 as i32);
    let meta = xdp.data - xdp.data_meta;
    let data = xdp.data.wrapping_add_signed(delta);
    let moved = xdp.data_meta.wrapping_add_signed(delta);
    if moved < xdp.buffer_start + FRAME || data.saturating_add(ETHERNET) > xdp.data_end {
        return EINVAL;
    }
    // SAFETY: both ranges are between `buffer_start` and `data_end`, one buffer of the host; `copy` allows overlap.
    unsafe { std::ptr::copy(xdp.data_meta as *const u8, moved as *mut u8, meta as usize) };
    xdp.data_meta = moved;
    xdp.data = data;
    0
}

#[inline]
pub(super) unsafe fn adjust_tail(context: u64, delta: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let xdp = unsafe { &mut *(context as *mut XdpContext) };
    let delta = i64::from(delta as u32 as i32);
    let end = xdp.data_end.wrapping_add_signed(delta);
    if end < xdp.data.saturating_add(ETHERNET) || delta > 0 && end > xdp.buffer_start + PAGE {
        return EINVAL;
    }
    let grown = end.saturating_sub(xdp.data_end);
    // SAFETY: the run's caller waits for the run.
    let grow = |xdp: &mut XdpContext| unsafe {
        Packet::of_run(xdp.packet).is_some_and(|packet| packet.grow_xdp(xdp, grown))
    };
    if end > xdp.buffer_end && !grow(xdp) {
        return EINVAL;
    }
    // SAFETY: these bytes are below `buffer_end`, which is another one if the packet has moved.
    unsafe { std::ptr::write_bytes(xdp.data_end as *mut u8, 0, grown as usize) };
    xdp.data_end = xdp.data_end.wrapping_add_signed(delta);
    0
}

#[inline]
pub(super) unsafe fn adjust_meta(context: u64, delta: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let xdp = unsafe { &mut *(context as *mut XdpContext) };
    let meta = xdp.data_meta.wrapping_add_signed(i64::from(delta as u32 as i32));
    if meta < xdp.buffer_start + FRAME || meta > xdp.data {
        return EINVAL;
    }
    let size = xdp.data - meta;
    if size > META_MAX || size % META_STEP != 0 {
        return EACCES;
    }
    xdp.data_meta = meta;
    0
}

/// What the device says of the packet; `found` takes it from there. Without it the error, and zeros for the program,
/// which takes its variables for written.
///
/// # Safety
///
/// `context` is the run's own, of an XDP program.
unsafe fn metadata<T: Default>(context: u64, found: impl Fn(&PacketInfo) -> Option<T>) -> (T, u64) {
    // SAFETY: the caller's promise; the run's caller waits for the run.
    let packet = unsafe { Packet::of_run((*(context as *const XdpContext)).packet) };
    match packet.map(|packet| found(&packet.info)) {
        Some(Some(found)) => (found, 0),
        Some(None) => (T::default(), ENODATA),
        None => (T::default(), EOPNOTSUPP),
    }
}

/// `int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *context, u64 *timestamp)`.
#[inline]
pub(super) unsafe fn rx_timestamp(context: u64, timestamp: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own, and only XDP programs may call this.
    let (found, error) = unsafe { metadata(context, |info| Some(info.hwtstamp).filter(|stamp| *stamp != 0)) };
    // SAFETY: the verifier proved that 8 bytes are writable there.
    unsafe { (timestamp as *mut u64).write_unaligned(found) };
    error
}

/// `int bpf_xdp_metadata_rx_hash(const struct xdp_md *context, u32 *hash, enum xdp_rss_hash_type *kind)`.
#[inline]
pub(super) unsafe fn rx_hash(context: u64, hash: u64, kind: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let ((found, of), error) =
        unsafe { metadata(context, |info| Some((info.hash, info.hash_type)).filter(|(hash, _)| *hash != 0)) };
    // SAFETY: the verifier proved that 4 bytes are writable at both.
    unsafe {
        (hash as *mut u32).write_unaligned(found);
        (kind as *mut u32).write_unaligned(of);
    }
    error
}

/// `int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *context, __be16 *protocol, u16 *tci)`.
#[inline]
pub(super) unsafe fn rx_vlan_tag(context: u64, protocol: u64, tci: u64, _: *mut RunEnv) -> u64 {
    let tag = |info: &PacketInfo| info.vlan.map(|vlan| (vlan.protocol, vlan.tci));
    // SAFETY: as above.
    let ((of, found), error) = unsafe { metadata(context, tag) };
    // SAFETY: the verifier proved that 2 bytes are writable at both.
    unsafe {
        (protocol as *mut u16).write_unaligned(of.to_be());
        (tci as *mut u16).write_unaligned(found);
    }
    error
}

/// The number of bytes in the packet.
#[inline]
pub(super) unsafe fn get_buff_len(context: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let xdp = unsafe { &*(context as *const XdpContext) };
    xdp.data_end - xdp.data
}

#[inline]
pub(super) unsafe fn load_bytes(context: u64, offset: u64, to: u64, len: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let xdp = unsafe { &*(context as *const XdpContext) };
    let len = u64::from(len as u32);
    let from = match range(xdp, offset, len) {
        Ok(from) => from,
        Err(error) => {
            // SAFETY: `to` is writable for `len`, and the program takes all of it for written.
            unsafe { std::ptr::write_bytes(to as *mut u8, 0, len as usize) };
            return error;
        }
    };
    // SAFETY: `from` has `len` bytes in the packet, `to` is writable for `len` (proved).
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
    0
}

#[inline]
pub(super) unsafe fn store_bytes(context: u64, offset: u64, from: u64, len: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let xdp = unsafe { &*(context as *const XdpContext) };
    let len = u64::from(len as u32);
    let to = match range(xdp, offset, len) {
        Ok(to) => to,
        Err(error) => return error,
    };
    // SAFETY: `to` has `len` bytes in the packet, `from` is readable for `len` (proved).
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
    0
}

/// The address of `len` bytes at `offset` in the packet, if all of them are in it.
fn range(xdp: &XdpContext, offset: u64, len: u64) -> Result<u64, u64> {
    /// The greatest offset and length.
    const MOST: u64 = 0xffff;
    let offset = u64::from(offset as u32);
    if offset > MOST || len > MOST {
        return Err(EFAULT);
    }
    if offset + len > xdp.data_end - xdp.data {
        return Err(EINVAL);
    }
    Ok(xdp.data + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a buffer, and where in it a packet of 64 bytes begins: 32 bytes behind what drivers keep for
    /// themselves.
    const BUFFER: usize = 168;
    const START: usize = 72;

    fn xdp(buffer: &mut [u8; BUFFER]) -> XdpContext {
        let start = buffer.as_mut_ptr() as u64;
        XdpContext {
            data: start + START as u64,
            data_end: start + START as u64 + 64,
            data_meta: start + START as u64,
            buffer_start: start,
            buffer_end: start + BUFFER as u64,
            ..XdpContext::default()
        }
    }

    fn call(f: unsafe fn(u64, u64, *mut RunEnv) -> u64, context: &mut XdpContext, delta: i32) -> i64 {
        let context: *mut XdpContext = context;
        // SAFETY: the context describes a live buffer; these helpers ignore the environment.
        unsafe { f(context as u64, delta as u32 as u64, std::ptr::null_mut()) as i64 }
    }

    #[test]
    fn the_head_moves_within_the_buffer_and_leaves_an_ethernet_header() {
        let mut buffer = [0; BUFFER];
        let mut context = xdp(&mut buffer);
        assert_eq!(call(adjust_head, &mut context, -33), -22);
        assert_eq!(call(adjust_head, &mut context, 51), -22);
        assert_eq!(call(adjust_head, &mut context, i32::MIN), -22);
        assert_eq!(call(adjust_head, &mut context, i32::MAX), -22);
        assert_eq!(call(adjust_head, &mut context, 50), 0);
        assert_eq!(context.data_end - context.data, 14);
        assert_eq!(call(adjust_head, &mut context, -82), 0);
        assert_eq!(context.data, context.buffer_start + FRAME);
    }

    #[test]
    fn metadata_travels_with_the_head() {
        let mut buffer = [0; BUFFER];
        buffer[64..72].copy_from_slice(b"metadata");
        let mut context = xdp(&mut buffer);
        assert_eq!(call(adjust_meta, &mut context, -6), -13, "not a multiple of 4");
        assert_eq!(call(adjust_meta, &mut context, -8), 0);
        assert_eq!(call(adjust_head, &mut context, -25), -22, "the metadata would leave the room");
        assert_eq!(call(adjust_head, &mut context, 4), 0);
        assert_eq!(context.data - context.data_meta, 8);
        assert_eq!(&buffer[68..76], b"metadata");
    }

    #[test]
    fn a_grown_tail_is_zeroed_and_a_shrunk_one_keeps_a_header() {
        let mut buffer = [0xff; BUFFER];
        let mut context = xdp(&mut buffer);
        assert_eq!(call(adjust_tail, &mut context, 33), -22);
        assert_eq!(call(adjust_tail, &mut context, -51), -22);
        assert_eq!(call(adjust_tail, &mut context, 32), 0);
        assert_eq!(buffer[START + 64..], [0; 32]);
        assert_eq!(buffer[..START + 64], [0xff; START + 64]);
    }

    #[test]
    fn bytes_are_copied_from_and_to_the_packet_and_nothing_beyond() {
        let mut buffer: [u8; BUFFER] = std::array::from_fn(|at| at as u8);
        let context = xdp(&mut buffer);
        let context = &raw const context as u64;
        let mut bytes = [0u8; 4];
        let at = bytes.as_mut_ptr() as u64;
        // SAFETY: the context describes a live buffer, `bytes` is readable and writable.
        unsafe {
            let env = std::ptr::null_mut();
            assert_eq!(get_buff_len(context, env), 64);
            assert_eq!(load_bytes(context, 61, at, 4, env), EINVAL);
            assert_eq!(load_bytes(context, u64::from(u32::MAX), at, 4, env), EFAULT);
            assert_eq!(load_bytes(context, 60, at, 4, env), 0);
            assert_eq!(store_bytes(context, 0, at, 4, env), 0);
            assert_eq!(store_bytes(context, 61, at, 4, env), EINVAL);
        }
        assert_eq!(
            (bytes, &buffer[70..78]),
            ([132, 133, 134, 135], &[70, 71, 132, 133, 134, 135, 76, 77][..])
        );
    }
}
