//! VLAN tags: one beside the packet, as devices hand it over, all others in the packet.
//!
//! ```text
//!   tag beside the packet: 802.1Q 7        packet: | addresses | 802.1Q 5 | IPv4 | ...
//!   push 9  -->  beside: 9,                packet: | addresses | 802.1Q 7 | 802.1Q 5 | IPv4 | ...
//!   pop     -->  beside: 7,                packet: | addresses | 802.1Q 5 | IPv4 | ...
//! ```
//! As in Linux, the network header stays behind the first 14 bytes when a tag goes into the packet: it is the tag then.

use super::buffer::{insert, len, read, remove, skb, write};
use super::checksum::tracked;
use super::errno::ENOMEM;
use crate::packet::protocol;
use skep_abi::{RunEnv, SkbContext};

/// Bytes of both addresses of an Ethernet header, after which a tag is.
const ADDRESSES: u64 = 12;
/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;
/// Bytes of a tag.
const TAG: u64 = 4;
/// `ETH_P_8021Q` and `ETH_P_8021AD`, as a context's `vlan_proto` has them.
const Q: u32 = 0x8100u16.to_be() as u32;
const AD: u32 = 0x88a8u16.to_be() as u32;

#[inline]
pub(super) unsafe fn push(context: u64, proto: u64, tci: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    let proto = u32::from(proto as u16);
    let proto = if proto == AD { AD } else { Q };
    if skb.vlan_present != 0 {
        // SAFETY: as above.
        let pushed = unsafe {
            tracked(skb, |skb| {
                if len(skb) < ADDRESSES || !insert(skb, ADDRESSES, TAG) {
                    return false;
                }
                write(skb, ADDRESSES, &(skb.vlan_proto as u16).to_ne_bytes());
                write(skb, ADDRESSES + 2, &(skb.vlan_tci as u16).to_be_bytes());
                true
            })
        };
        if !pushed {
            return ENOMEM;
        }
        skb.protocol = skb.vlan_proto;
    }
    (skb.vlan_present, skb.vlan_proto, skb.vlan_tci) = (1, proto, u32::from(tci as u16));
    0
}

#[inline]
pub(super) unsafe fn pop(context: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    if skb.vlan_present != 0 {
        (skb.vlan_present, skb.vlan_proto, skb.vlan_tci) = (0, 0, 0);
    } else {
        if !is_tagged(skb) {
            return 0;
        }
        // SAFETY: as above.
        if unsafe { take(skb) }.is_none() {
            return ENOMEM;
        }
    }
    // The next tag moves out of the packet.
    if is_tagged(skb) {
        let proto = skb.protocol;
        // SAFETY: as above.
        let Some(tci) = (unsafe { take(skb) }) else { return ENOMEM };
        (skb.vlan_present, skb.vlan_proto, skb.vlan_tci) = (1, proto, tci.into());
    }
    0
}

/// Whether the packet itself has a tag.
fn is_tagged(skb: &SkbContext) -> bool {
    matches!(skb.protocol, Q | AD)
}

/// Takes the first tag out of the packet; `None` if it is too short for one.
///
/// # Safety
///
/// The context is the run's own.
unsafe fn take(skb: &mut SkbContext) -> Option<u16> {
    // SAFETY: the caller's promise.
    unsafe {
        let header: [u8; 18] = read(skb, 0)?;
        tracked(skb, |skb| {
            remove(skb, ADDRESSES, TAG);
            // Linux leaves the network header where it is in the packet, or behind the Ethernet header.
            skb.network = skb.network.saturating_sub(TAG as u32).max(ETHERNET);
        });
        let frame = read::<16>(skb, 0);
        skb.protocol = match frame {
            Some(frame) => protocol(&frame),
            None => protocol(&read::<14>(skb, 0)?),
        }
        .into();
        Some(u16::from_be_bytes([header[14], header[15]]))
    }
}

/// The protocol behind all tags that are in the packet.
///
/// # Safety
///
/// The context is the run's own.
pub(super) unsafe fn inner_protocol(skb: &SkbContext) -> u32 {
    /// The most tags that Linux looks behind.
    const DEEPEST: u64 = 8;
    let mut found = skb.protocol;
    // The type of a tag is in front of it, and that of what follows at its end.
    let first = u64::from(skb.network).saturating_sub(2);
    for depth in 0..DEEPEST {
        if !matches!(found, Q | AD) {
            return found;
        }
        // SAFETY: the caller's promise.
        let Some(next) = (unsafe { read::<2>(skb, first + depth * TAG) }) else { return 0 };
        found = u16::from_ne_bytes(next).into();
    }
    0
}
