//! Helpers over socket buffers that leave their bytes alone: relative loads, time stamps, what the host says of them,
//! and the hash of the flow.

use super::buffer::{IPV4, IPV6, skb};
use super::errno::{EFAULT, EINVAL, EOPNOTSUPP};
use crate::packet::Packet;
use skep_abi::RunEnv;

/// `BPF_HDR_START_MAC` and `BPF_HDR_START_NET`.
const START_MAC: u64 = 0;
const START_NET: u64 = 1;

#[inline]
pub(super) unsafe fn load_bytes_relative(
    context: u64,
    offset: u64,
    to: u64,
    len: u64,
    start: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let (offset, len) = (u64::from(offset as u32), u64::from(len as u32));
    let from = match start as u32 as u64 {
        START_MAC => Some(skb.data - u64::from(skb.link)),
        START_NET => Some(skb.network_header()),
        _ => None,
    };
    let from = from.map(|start| start + offset);
    match from.filter(|from| offset <= 0xffff && from + len <= skb.data_end) {
        Some(from) => {
            // SAFETY: `from` has `len` bytes in the packet, `to` is writable for `len` (proved); `copy` allows overlap.
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

/// Sets the time stamp and the clock that it is of.
#[inline]
pub(super) unsafe fn set_tstamp(context: u64, time: u64, clock: u64, _: *mut RunEnv) -> u64 {
    /// `BPF_SKB_CLOCK_REALTIME`, `_MONOTONIC` and `_TAI`. The latter two are of times at which to send.
    const REAL: u32 = 0;
    const MONOTONIC: u32 = 1;
    const TAI: u32 = 2;
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if !matches!(skb.protocol, IPV4 | IPV6) {
        return EOPNOTSUPP;
    }
    match clock as u32 {
        REAL => {}
        MONOTONIC | TAI if time != 0 => {}
        _ => return EINVAL,
    }
    (skb.tstamp, skb.tstamp_type) = (time, clock as u8);
    0
}

/// The class of the sender's control group, as the host says.
#[inline]
pub(super) unsafe fn cgroup_classid(context: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own, whose caller waits.
    unsafe { Packet::of_run(skb(context).packet) }.map_or(0, |packet| packet.info.cgroup_classid.into())
}

/// The realm of the route, as the host says.
#[inline]
pub(super) unsafe fn route_realm(context: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { Packet::of_run(skb(context).packet) }.map_or(0, |packet| packet.info.route_realm.into())
}

/// The packet's hash, computed from its flow if it has none.
#[inline]
pub(super) unsafe fn get_hash_recalc(context: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if skb.hash == 0 {
        let start = skb.data - u64::from(skb.link);
        let len = (skb.data_end - start).min(FLOW_BYTES) as usize;
        // SAFETY: the packet has that many bytes. They are copied: the program may share them with other threads.
        let bytes: Vec<u8> = (0..len).map(|at| unsafe { *(start as *const u8).add(at) }).collect();
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
    use skep_abi::{HelperFn, SkbContext};

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
            network: 14,
            ..SkbContext::default()
        }
    }

    fn call(function: HelperFn, skb: &mut SkbContext, a: u64, b: u64) -> i64 {
        let context: *mut SkbContext = skb;
        // SAFETY: the context describes a live buffer; these helpers ignore the environment.
        unsafe { function(context as u64, a, b, 0, 0, std::ptr::null_mut()) as i64 }
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
}
