//! Helpers over socket buffers other than loads and stores: sizes, and the hash of the flow.

use super::errno::{EINVAL, ENOTSUPP};
use super::packet::{ETHERNET, packet_range, skb_load_bytes};
use skep_abi::{RunEnv, SkbContext};

/// `BPF_HDR_START_MAC` and `BPF_HDR_START_NET`.
const START_MAC: u64 = 0;
const START_NET: u64 = 1;

/// The run's socket buffer.
///
/// # Safety
///
/// The verifier proved that `context` is the run's own, and only socket-buffer programs may call the helpers here.
unsafe fn skb<'a>(context: u64) -> &'a mut SkbContext {
    // SAFETY: the caller's promise; nothing else accesses the context while a helper runs.
    unsafe { &mut *(context as *mut SkbContext) }
}

#[inline]
pub(super) unsafe fn load_bytes_relative(
    context: u64,
    offset: u64,
    to: u64,
    len: u64,
    start: u64,
    env: *mut RunEnv,
) -> u64 {
    let offset = u64::from(offset as u32);
    let offset = match start as u32 as u64 {
        START_MAC if offset <= 0xffff => offset,
        START_NET if offset <= 0xffff => offset + ETHERNET,
        // Beyond the end of every packet, so that the destination is zeroed.
        _ => u64::from(u32::MAX),
    };
    // SAFETY: the same was proved of the arguments of both helpers.
    unsafe { skb_load_bytes(context, offset, to, len, env) }
}

/// Does nothing: all bytes are always accessible.
#[inline]
pub(super) unsafe fn pull_data(context: u64, len: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if packet_range(skb, 0, u64::from(len as u32)).is_some() { 0 } else { EINVAL }
}

/// Changes the length of the packet to `len` bytes; new bytes are zero.
#[inline]
pub(super) unsafe fn change_tail(context: u64, len: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let len = u64::from(len as u32);
    if flags != 0 || len < ETHERNET || len > skb.buffer_end - skb.data {
        return EINVAL;
    }
    let end = skb.data + len;
    if end > skb.data_end {
        // SAFETY: the bytes up to `end` are below `buffer_end`.
        unsafe { std::ptr::write_bytes(skb.data_end as *mut u8, 0, (end - skb.data_end) as usize) };
    }
    skb.data_end = end;
    skb.len = len as u32;
    0
}

/// Inserts `len` zeroes before the packet.
#[inline]
pub(super) unsafe fn change_head(context: u64, len: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let len = u64::from(len as u32);
    if flags != 0 || len > skb.data - skb.buffer_start {
        return EINVAL;
    }
    skb.data -= len;
    skb.data_meta = skb.data;
    skb.len += len as u32;
    // SAFETY: these bytes are between `buffer_start` and the packet.
    unsafe { std::ptr::write_bytes(skb.data as *mut u8, 0, len as usize) };
    0
}

/// No checksum of the whole packet is kept, so there is none to update.
#[inline]
pub(super) unsafe fn csum_update(_: *mut RunEnv) -> u64 {
    ENOTSUPP
}

/// The packet's hash, computed from its flow if it has none.
#[inline]
pub(super) unsafe fn get_hash_recalc(context: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if skb.hash == 0 {
        let len = (skb.data_end - skb.data).min(FLOW_BYTES) as usize;
        // SAFETY: the packet has that many bytes. They are copied: the program may share them with other threads.
        let bytes: Vec<u8> = (0..len).map(|at| unsafe { *(skb.data as *const u8).add(at) }).collect();
        skb.hash = flow_hash(&bytes);
    }
    skb.hash.into()
}

#[inline]
pub(super) unsafe fn set_hash_invalid(context: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    unsafe { skb(context) }.hash = 0;
    0
}

#[inline]
pub(super) unsafe fn set_hash(context: u64, hash: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    unsafe { skb(context) }.hash = hash as u32;
    0
}

/// Number of bytes of a packet that are searched for its flow.
const FLOW_BYTES: u64 = 128;

/// A hash of what all packets of a flow have in common: addresses, protocol, and ports if there are any. Never 0.
fn flow_hash(packet: &[u8]) -> u32 {
    let ports = |at: usize, protocol: u8| match protocol {
        6 | 17 => packet.get(at..at + 4).unwrap_or_default(),
        _ => &[],
    };
    let parts: [&[u8]; 3] = match (packet.get(12..14), packet.get(14)) {
        (Some([0x08, 0x00]), Some(first)) if packet.len() >= 34 => {
            let fragment = packet[20] & 0x3f != 0 || packet[21] != 0;
            let header = 14 + usize::from(first & 0xf) * 4;
            let ports = if fragment { &[][..] } else { ports(header, packet[23]) };
            [&packet[26..34], &packet[23..24], ports]
        }
        (Some([0x86, 0xdd]), _) if packet.len() >= 54 => {
            [&packet[22..54], &packet[20..21], ports(54, packet[20])]
        }
        _ => [packet.get(..14).unwrap_or(packet), &[], &[]],
    };
    // The 32-bit FNV-1a hash.
    let hash = parts
        .into_iter()
        .flatten()
        .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_abi::HelperFn;

    /// A 64-byte packet in the middle of a 128-byte buffer.
    fn packet(buffer: &mut [u8; 128]) -> SkbContext {
        let start = buffer.as_mut_ptr() as u64;
        SkbContext {
            data: start + 32,
            data_end: start + 96,
            data_meta: start + 32,
            buffer_start: start,
            buffer_end: start + 128,
            len: 64,
            ..SkbContext::default()
        }
    }

    fn call(function: HelperFn, skb: &mut SkbContext, a: u64, b: u64) -> i64 {
        let context: *mut SkbContext = skb;
        // SAFETY: the context describes a live buffer; these helpers ignore the environment.
        unsafe { function(context as u64, a, b, 0, 0, std::ptr::null_mut()) as i64 }
    }

    #[test]
    fn the_tail_moves_within_the_buffer_and_leaves_an_ethernet_header() {
        let mut buffer = [0xff; 128];
        let mut skb = packet(&mut buffer);
        assert_eq!(call(helper!(change_tail, 3), &mut skb, 97, 0), -22);
        assert_eq!(call(helper!(change_tail, 3), &mut skb, 13, 0), -22);
        assert_eq!(call(helper!(change_tail, 3), &mut skb, 60, 1), -22);
        assert_eq!(call(helper!(change_tail, 3), &mut skb, 96, 0), 0);
        assert_eq!((skb.len, skb.data_end), (96, skb.buffer_end));
        assert_eq!(call(helper!(change_tail, 3), &mut skb, 14, 0), 0);
        assert_eq!((skb.len, skb.data_end - skb.data), (14, 14));
        assert_eq!((&buffer[32..96], &buffer[96..]), (&[0xff; 64][..], &[0; 32][..]));
    }

    #[test]
    fn the_head_grows_into_the_room_before_it() {
        let mut buffer = [0xff; 128];
        let mut skb = packet(&mut buffer);
        assert_eq!(call(helper!(change_head, 3), &mut skb, 33, 0), -22);
        assert_eq!(call(helper!(change_head, 3), &mut skb, 14, 0), 0);
        assert_eq!((skb.len, skb.data_end - skb.data, skb.data_meta), (78, 78, skb.data));
        assert_eq!((&buffer[..18], &buffer[18..32]), (&[0xff; 18][..], &[0; 14][..]));
    }

    #[test]
    fn loads_are_relative_to_the_given_header() {
        let mut buffer: [u8; 128] = std::array::from_fn(|at| at as u8);
        let skb = packet(&mut buffer);
        let load = |offset: u64, start: u64| {
            let mut out = [0xaau8; 2];
            let (context, to) = (&raw const skb as u64, out.as_mut_ptr() as u64);
            // SAFETY: the context describes a live buffer, `out` is writable.
            let status =
                unsafe { load_bytes_relative(context, offset, to, 2, start, std::ptr::null_mut()) as i64 };
            (status, out)
        };
        assert_eq!(load(0, 0), (0, [32, 33]));
        assert_eq!(load(0, 1), (0, [46, 47]));
        assert_eq!(load(48, 1), (0, [94, 95]));
        assert_eq!(load(49, 1), (-14, [0; 2]));
        assert_eq!(load(0, 2), (-14, [0; 2]));
        assert_eq!(load(u64::from(u32::MAX), 1), (-14, [0; 2]));
    }

    #[test]
    fn packets_of_one_flow_have_one_hash_until_it_is_changed() {
        let mut buffer = [0; 128];
        buffer[32 + 12] = 8;
        buffer[32 + 14] = 0x45;
        buffer[32 + 23] = 17;
        let hash = |buffer: &mut [u8; 128]| call(helper!(get_hash_recalc, 1), &mut packet(buffer), 0, 0);
        let first = hash(&mut buffer);
        assert_ne!(first, 0);
        buffer[32 + 24] = 1; // the header's checksum
        assert_eq!(hash(&mut buffer), first);
        for at in [26, 30, 23, 34, 36] {
            let mut other = buffer;
            other[32 + at] ^= 1;
            assert_ne!(hash(&mut other), first, "byte {at}");
        }
        let mut skb = packet(&mut buffer);
        assert_eq!(call(helper!(set_hash, 2), &mut skb, 77, 0), 0);
        assert_eq!(call(helper!(get_hash_recalc, 1), &mut skb, 0, 0), 77);
        call(helper!(set_hash_invalid, 1), &mut skb, 0, 0);
        assert_eq!(call(helper!(get_hash_recalc, 1), &mut skb, 0, 0), first);
    }

    #[test]
    fn all_bytes_of_the_packet_are_accessible() {
        let mut buffer = [0; 128];
        let mut skb = packet(&mut buffer);
        assert_eq!(call(helper!(pull_data, 2), &mut skb, 0, 0), 0);
        assert_eq!(call(helper!(pull_data, 2), &mut skb, 64, 0), 0);
        assert_eq!(call(helper!(pull_data, 2), &mut skb, 65, 0), -22);
    }
}
