//! Helpers that change the length of socket buffers: at the end, at the head, between link-layer and network header,
//! and behind the network header.

use super::buffer::{IPV4, IPV6, LONGEST, insert, len, read, remove, set_len, skb};
use super::errno::{EALREADY, EFAULT, EINVAL, ENOMEM, ENOTSUPP};
use skep_abi::{RunEnv, SkbContext};

/// Flags of `bpf_skb_adjust_room`, `BPF_F_ADJ_ROOM_*`.
mod room {
    pub(super) const FIXED_GSO: u64 = 1;
    pub(super) const ENCAP_L3_IPV4: u64 = 1 << 1;
    pub(super) const ENCAP_L3_IPV6: u64 = 1 << 2;
    pub(super) const ENCAP_L4_GRE: u64 = 1 << 3;
    pub(super) const ENCAP_L4_UDP: u64 = 1 << 4;
    pub(super) const NO_CSUM_RESET: u64 = 1 << 5;
    pub(super) const ENCAP_L2_ETH: u64 = 1 << 6;
    pub(super) const DECAP_L3_IPV4: u64 = 1 << 7;
    pub(super) const DECAP_L3_IPV6: u64 = 1 << 8;
    /// Where the length of the inner link-layer header is.
    pub(super) const L2_SHIFT: u32 = 56;

    pub(super) const ENCAP_L3: u64 = ENCAP_L3_IPV4 | ENCAP_L3_IPV6;
    pub(super) const DECAP_L3: u64 = DECAP_L3_IPV4 | DECAP_L3_IPV6;
    pub(super) const ENCAP: u64 = ENCAP_L3 | ENCAP_L4_GRE | ENCAP_L4_UDP | ENCAP_L2_ETH | 0xff << L2_SHIFT;
    pub(super) const ALL: u64 = FIXED_GSO | NO_CSUM_RESET | ENCAP | DECAP_L3;
}

/// `BPF_ADJ_ROOM_NET` and `BPF_ADJ_ROOM_MAC`.
const ROOM_NET: u32 = 0;
const ROOM_MAC: u32 = 1;
/// The most bytes that `bpf_skb_adjust_room` moves.
const ROOM_MOST: u64 = 0xfff;

/// Does nothing: all bytes are always accessible.
#[inline]
pub(super) unsafe fn pull_data(context: u64, bytes: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if u64::from(bytes as u32) <= len(skb) { 0 } else { ENOMEM }
}

/// Changes the length of the packet; new bytes are zero.
#[inline]
pub(super) unsafe fn change_tail(context: u64, new: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let new = u64::from(new as u32);
    let transport = if skb.encapsulated > 1 { skb.encapsulated } else { 0 };
    if flags != 0 || new > LONGEST || new < u64::from(skb.network) + u64::from(transport) {
        return EINVAL;
    }
    if skb.encapsulated != 0 {
        return ENOTSUPP;
    }
    // SAFETY: as above.
    if !unsafe { set_len(skb, new) } {
        return ENOMEM;
    }
    // Segments would have other lengths.
    (skb.gso_size, skb.gso_segs, skb.gso_type) = (0, 0, 0);
    0
}

/// Inserts zeroes before the packet, for a link-layer header: the network header stays.
#[inline]
pub(super) unsafe fn change_head(context: u64, bytes: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let bytes = u64::from(bytes as u32);
    let new = len(skb) + bytes;
    if flags != 0 || new > u64::from(u32::MAX) || new > LONGEST && skb.gso_size == 0 {
        return EINVAL;
    }
    // What was the link-layer header is none any more; a program that does not see it has it replaced.
    (skb.link, skb.data_meta) = (0, skb.data);
    // SAFETY: as above.
    let made = unsafe {
        super::checksum::tracked(skb, |skb| {
            let made = insert(skb, 0, bytes);
            skb.network += if made { bytes as u32 } else { 0 };
            made
        })
    };
    if made { 0 } else { ENOMEM }
}

/// Makes room for an IPv6 header where an IPv4 header is, or the other way round.
#[inline]
pub(super) unsafe fn change_proto(context: u64, protocol: u64, flags: u64, _: *mut RunEnv) -> u64 {
    /// By how much the headers differ.
    const LONGER: u64 = 20;
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if flags != 0 {
        return EINVAL;
    }
    let at = u64::from(skb.network);
    let protocol = u32::from(protocol as u16);
    let (from, to) = match (skb.protocol, protocol) {
        (IPV4, IPV6) => (SkbContext::GSO_TCPV4, SkbContext::GSO_TCPV6),
        (IPV6, IPV4) => (SkbContext::GSO_TCPV6, SkbContext::GSO_TCPV4),
        _ => return ENOTSUPP,
    };
    // SAFETY: as above.
    unsafe {
        if protocol == IPV6 {
            if !insert(skb, at.min(len(skb)), LONGER) {
                return ENOMEM;
            }
        } else if at + LONGER > len(skb) {
            return ENOMEM;
        } else {
            remove(skb, at, LONGER);
        }
    }
    skb.protocol = protocol;
    if skb.gso_size != 0 && skb.gso_type & from != 0 {
        skb.gso_type = skb.gso_type & !from | to;
    }
    skb.hash = 0;
    0
}

/// Makes room for headers between link layer and network (`BPF_ADJ_ROOM_MAC`) or behind the network header
/// (`BPF_ADJ_ROOM_NET`), or takes it away.
#[inline]
pub(super) unsafe fn adjust_room(context: u64, by: u64, mode: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let shrinks = (by as i32) < 0;
    let bytes = u64::from((by as i32).unsigned_abs());
    if flags & !room::ALL != 0 {
        return EINVAL;
    }
    if bytes > ROOM_MOST {
        return EFAULT;
    }
    let base = match skb.protocol {
        IPV4 => 20,
        IPV6 => 40,
        _ => return ENOTSUPP,
    };
    let at = match mode as u32 {
        ROOM_NET => u64::from(skb.network) + base,
        ROOM_MAC => u64::from(skb.network),
        _ => return ENOTSUPP,
    };
    let least = match flags & room::DECAP_L3 {
        0 => base,
        _ if !shrinks => return EINVAL,
        room::DECAP_L3_IPV4 => 20,
        room::DECAP_L3_IPV6 => 40,
        _ => return EINVAL,
    };
    // Helpers may have cut the packet before its network header.
    let behind = len(skb).saturating_sub(skb.network.into());
    let too_short = shrinks && (bytes >= behind || behind - bytes < least);
    if too_short || !shrinks && len(skb) + bytes > LONGEST && skb.gso_size == 0 {
        return ENOTSUPP;
    }
    // SAFETY: as above.
    let status = unsafe {
        match shrinks {
            true => shrink(skb, at, bytes, flags),
            false => widen(skb, at, bytes, flags),
        }
    };
    if status == 0 && flags & room::NO_CSUM_RESET == 0 && skb.summed == SkbContext::CORRECT {
        skb.summed = SkbContext::UNSUMMED;
    }
    status
}

/// # Safety
///
/// The context is the run's own.
unsafe fn widen(skb: &mut SkbContext, at: u64, bytes: u64, flags: u64) -> u64 {
    let inner_link = flags >> room::L2_SHIFT;
    if !segments_allow(skb, flags) {
        return ENOTSUPP;
    }
    let both = |two: u64| flags & two == two;
    if flags & room::ENCAP_L3 != 0 {
        if both(room::ENCAP_L3) || both(room::ENCAP_L4_GRE | room::ENCAP_L4_UDP) {
            return EINVAL;
        }
        if flags & room::ENCAP_L2_ETH != 0 && inner_link < 14 {
            return EINVAL;
        }
        if skb.encapsulated != 0 {
            return EALREADY;
        }
        if inner_link > bytes {
            return EINVAL;
        }
    }
    // SAFETY: the caller's promise.
    if !unsafe { insert(skb, at.min(len(skb)), bytes) } {
        return ENOMEM;
    }
    if flags & room::ENCAP_L3 != 0 {
        // With a header for transport, the length of the network header before it: no packet ends within that.
        let length = if both(room::ENCAP_L3_IPV6) { 40 } else { 20 };
        skb.encapsulated = if flags & (room::ENCAP_L4_GRE | room::ENCAP_L4_UDP) == 0 { 1 } else { length };
        skb.protocol = if both(room::ENCAP_L3_IPV6) { IPV6 } else { IPV4 };
    }
    resize_segments(skb, (bytes as u32).wrapping_neg(), flags);
    0
}

/// # Safety
///
/// The context is the run's own.
unsafe fn shrink(skb: &mut SkbContext, at: u64, bytes: u64, flags: u64) -> u64 {
    if flags & room::ENCAP != 0 {
        return EINVAL;
    }
    if !segments_allow(skb, flags) {
        return ENOTSUPP;
    }
    if at + bytes > len(skb) {
        return ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { remove(skb, at, bytes) };
    match flags & room::DECAP_L3 {
        room::DECAP_L3_IPV4 => skb.protocol = IPV4,
        room::DECAP_L3_IPV6 => skb.protocol = IPV6,
        _ => {}
    }
    resize_segments(skb, bytes as u32, flags);
    0
}

/// Whether headers of the segments may change: the payload of a segment is a datagram unless it is TCP's.
fn segments_allow(skb: &SkbContext, flags: u64) -> bool {
    skb.gso_size == 0
        || skb.gso_type & SkbContext::GSO_TCP != 0
        || skb.gso_type & SkbContext::GSO_UDP != 0 && flags & room::FIXED_GSO != 0
}

/// After headers of segments have changed: the payload of each gets `more` bytes unless its size is fixed, and nobody
/// knows any more how many there are.
fn resize_segments(skb: &mut SkbContext, more: u32, flags: u64) {
    if skb.gso_size != 0 {
        if flags & room::FIXED_GSO == 0 {
            skb.gso_size = skb.gso_size.wrapping_add(more) & 0xffff;
        }
        skb.gso_segs = 0;
    }
}

/// Sets who the packet is addressed to.
#[inline]
pub(super) unsafe fn change_type(context: u64, kind: u64, _: *mut RunEnv) -> u64 {
    /// `PACKET_OTHERHOST`, the last of the kinds of received packets.
    const OTHER_HOST: u32 = 3;
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if skb.pkt_type > OTHER_HOST || kind as u32 > OTHER_HOST {
        return EINVAL;
    }
    skb.pkt_type = kind as u32;
    0
}

/// Marks the packet as having met congestion, if its sender takes part in ECN (RFC 3168). 1 if it is marked then.
#[inline]
pub(super) unsafe fn ecn_set_ce(context: u64, _: *mut RunEnv) -> u64 {
    /// `INET_ECN_CE`.
    const CE: u8 = 3;
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let at = u64::from(skb.network);
    // SAFETY: as above.
    unsafe {
        let Some(first) = read::<2>(skb, at) else { return 0 };
        match super::vlan::inner_protocol(skb) {
            IPV4 => {
                let Some(old) = read::<20>(skb, at) else { return 0 };
                if old[1] & CE == 0 || old[1] & CE == CE {
                    return (old[1] & CE == CE).into();
                }
                let sum = u16::from_ne_bytes([old[10], old[11]]);
                let word = |tos: u8| u16::from_ne_bytes([old[0], tos]);
                let new = super::checksum::replaced(sum, word(old[1]), word(old[1] | CE));
                super::buffer::write(skb, at + 1, &[old[1] | CE]);
                super::buffer::write(skb, at + 10, &new.to_ne_bytes());
                1
            }
            IPV6 if read::<40>(skb, at).is_some() => {
                // The bits are in the second byte: version 4, class 8, label 20.
                let old = first[1] >> 4 & CE;
                if old == 0 || old == CE {
                    return (old == CE).into();
                }
                super::checksum::tracked(skb, |skb| super::buffer::write(skb, at + 1, &[first[1] | CE << 4]));
                1
            }
            _ => 0,
        }
    }
}
