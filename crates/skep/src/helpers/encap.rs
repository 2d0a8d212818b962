//! Lightweight tunnels: `bpf_lwt_push_encap` puts an outer IP header, and what follows it, before the packet.
//!
//! Headers of segment routing (`BPF_LWT_ENCAP_SEG6`) need the system's routes and are refused, as by a kernel without
//! them.

use super::buffer::{IPV4, IPV6, insert, skb, write};
use super::checksum::{sum, tracked};
use super::errno::{EINVAL, ENOMEM};
use skep_abi::RunEnv;

/// `BPF_LWT_ENCAP_IP`.
const ENCAP_IP: u32 = 2;
/// The most bytes that a program may put before a packet (`LWT_BPF_MAX_HEADROOM`).
const MOST: usize = 256;

#[inline]
pub(super) unsafe fn push(context: u64, kind: u64, header: u64, size: u64, _: *mut RunEnv) -> u64 {
    let size = size as u32 as usize;
    if kind as u32 != ENCAP_IP || !(20..=MOST).contains(&size) {
        return EINVAL;
    }
    let mut bytes = [0; MOST];
    // SAFETY: `header` is readable for `size` bytes (proved). They are copied before the packet moves.
    unsafe { std::ptr::copy(header as *const u8, bytes.as_mut_ptr(), size) };
    let bytes = &mut bytes[..size];
    let protocol = match bytes[0] >> 4 {
        4 => {
            let own = usize::from(bytes[0] & 0xf) * 4;
            if own > size {
                return EINVAL;
            }
            if bytes[10..12] == [0; 2] {
                let check = !sum(&bytes[..own]);
                bytes[10..12].copy_from_slice(&check.to_ne_bytes());
            }
            IPV4
        }
        6 if size >= 40 => IPV6,
        _ => return EINVAL,
    };
    // SAFETY: the verifier proved that `context` is the run's own.
    let skb = unsafe { skb(context) };
    // SAFETY: as above.
    let pushed = unsafe {
        tracked(skb, |skb| {
            let made = insert(skb, 0, size as u64);
            if made {
                write(skb, 0, bytes);
                skb.network = 0;
            }
            made
        })
    };
    if !pushed {
        return ENOMEM;
    }
    (skb.protocol, skb.encapsulated, skb.hash) = (protocol, 1, 0);
    0
}
