//! Helpers that ask the world's machine for routes and MTUs.
//!
//! `struct bpf_fib_lookup` has 64 bytes. Its multi-byte fields are in the byte order of the machine, except ports and
//! addresses.
//!
//! ```text
//!   0 family u8 | 1 l4_protocol u8 | 2 sport | 4 dport | 6 tot_len, then mtu_result u16 | 8 ifindex u32
//!  12 tos u8 or flowinfo, then rt_metric u32 | 16 source 4 or 16 bytes | 32 destination | 48 tbid u32, then VLAN
//!  52 smac | 58 dmac
//! ```

use super::errno::EINVAL;
use crate::image::{Image, Input};
use crate::shared::Shared;
use skep_abi::{RunEnv, SkbContext, XdpContext};
use skep_world::{FibError, FibFlags, FibHop, FibQuery, FibResult, Machine};
use std::net::IpAddr;

/// The size of `struct bpf_fib_lookup` in bytes.
const PARAMS: usize = 64;
/// `BPF_FIB_LOOKUP_DIRECT`, `_OUTPUT`, `_SKIP_NEIGH`, `_TBID`, `_SRC`, `_MARK`.
const DIRECT: u64 = 1;
const OUTPUT: u64 = 1 << 1;
const SKIP_NEIGHBOUR: u64 = 1 << 2;
const TABLE: u64 = 1 << 3;
const SOURCE: u64 = 1 << 4;
const MARK: u64 = 1 << 5;
/// `AF_INET` and `AF_INET6`.
const INET: u8 = 2;
const INET6: u8 = 10;
const EAFNOSUPPORT: u64 = -97i64 as u64;
const ENODEV: u64 = -19i64 as u64;
/// `BPF_FIB_LKUP_RET_*`, and `BPF_MTU_CHK_RET_FRAG_NEEDED`.
const BLACKHOLE: u64 = 1;
const UNREACHABLE: u64 = 2;
const PROHIBIT: u64 = 3;
const NOT_FORWARDED: u64 = 4;
const FORWARDING_DISABLED: u64 = 5;
const NO_NEIGHBOUR: u64 = 7;
const TOO_LONG: u64 = 8;
const NO_SOURCE: u64 = 9;
/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// Where a packet with these addresses goes. The answer replaces the question in the parameters.
#[inline]
pub(super) unsafe fn fib_lookup(context: u64, params: u64, len: u64, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: `env` is the environment of the run in progress.
    let (image, shared) = unsafe { (Image::of_run(env), Shared::of_run(env)) };
    let known = DIRECT | OUTPUT | SKIP_NEIGHBOUR | TABLE | SOURCE | MARK;
    if (len as u32 as usize) < PARAMS || flags & !known != 0 {
        return EINVAL;
    }
    // SAFETY: the verifier proved that `len` bytes are readable and writable.
    let mut bytes = unsafe { std::ptr::read_unaligned(params as *const [u8; PARAMS]) };
    // SAFETY: the verifier proved that `context` is the run's own.
    let on_wire = (image.input == Input::Skb).then(|| unsafe { (*(context as *const SkbContext)).len });
    let (status, changed) = shared.surroundings.with(|machine| answer(machine, &mut bytes, flags, on_wire));
    if changed {
        // SAFETY: as above.
        unsafe { std::ptr::write_unaligned(params as *mut [u8; PARAMS], bytes) };
    }
    status
}

/// The status, and whether the parameters changed. `on_wire` is the length of a socket buffer with its Ethernet header:
/// those are compared with the device's MTU if the parameters give no length.
fn answer(machine: &Machine, bytes: &mut [u8; PARAMS], flags: u64, on_wire: Option<u32>) -> (u64, bool) {
    let word = |bytes: &[u8; PARAMS], at: usize| {
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let address = |bytes: &[u8; PARAMS], at: usize| match bytes[0] {
        INET => Some(IpAddr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])),
        INET6 => bytes[at..at + 16].try_into().ok().map(|all: [u8; 16]| IpAddr::from(all)),
        _ => None,
    };
    let index = word(bytes, 8);
    let (Some(source), Some(destination)) = (address(bytes, 16), address(bytes, 32)) else {
        return (EAFNOSUPPORT, false);
    };
    let mut query = FibQuery::new(index, source, destination);
    query.length = u16::from_ne_bytes([bytes[6], bytes[7]]).into();
    query.table = (flags & TABLE != 0).then(|| word(bytes, 48));
    let has = |flag: u64| flags & flag != 0;
    let how = FibFlags {
        direct: has(DIRECT),
        output: has(OUTPUT),
        skip_neighbour: has(SKIP_NEIGHBOUR),
        source: has(SOURCE),
    };
    let found = match machine.fib(&query, how) {
        Ok(found) => found,
        Err(FibError::NoDevice(_)) => return (ENODEV, false),
        Err(FibError::MixedFamilies) => return (EINVAL, false),
    };
    let mut put_mtu = |mtu: u32| {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        bytes[6..8].copy_from_slice(&mtu.to_ne_bytes());
    };
    match found {
        FibResult::Forward(hop) => {
            let mut status = 0;
            if query.length > 0 {
                put_mtu(hop.mtu);
            } else if let Some(on_wire) = on_wire {
                let mtu = machine.find_device(hop.device).map_or(0, |device| device.mtu);
                put_mtu(mtu);
                status = if on_wire > mtu + ETHERNET { TOO_LONG } else { 0 };
            }
            put_hop(bytes, &hop);
            if !how.skip_neighbour {
                bytes[52..58].copy_from_slice(&hop.source.0);
                bytes[58..64].copy_from_slice(&hop.destination.0);
            }
            bytes[48..52].fill(0);
            (status, true)
        }
        FibResult::NoNeighbour(hop) => {
            put_hop(bytes, &hop);
            (NO_NEIGHBOUR, true)
        }
        FibResult::TooLong { mtu, .. } => {
            put_mtu(mtu);
            (TOO_LONG, true)
        }
        FibResult::NoSource => (NO_SOURCE, false),
        FibResult::ForwardingDisabled => (FORWARDING_DISABLED, false),
        FibResult::Blackhole => (BLACKHOLE, false),
        FibResult::Unreachable => (UNREACHABLE, false),
        FibResult::Prohibit => (PROHIBIT, false),
        _ => (NOT_FORWARDED, false),
    }
}

/// The device, metric, addresses and family of the next hop.
fn put_hop(bytes: &mut [u8; PARAMS], hop: &FibHop) {
    bytes[8..12].copy_from_slice(&hop.device.to_ne_bytes());
    bytes[12..16].copy_from_slice(&hop.metric.to_ne_bytes());
    if let Some(source) = hop.preferred_source {
        put_address(bytes, 16, source);
    }
    if let Some(gateway) = hop.gateway {
        bytes[0] = if gateway.is_ipv4() { INET } else { INET6 };
        put_address(bytes, 32, gateway);
    }
}

fn put_address(bytes: &mut [u8; PARAMS], at: usize, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => bytes[at..at + 4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes[at..at + 16].copy_from_slice(&v6.octets()),
    }
}

/// Whether the packet, made longer by `delta` bytes, fits a device's MTU. `length` holds the packet's length without
/// its Ethernet header, or 0 for the packet's own, and then the MTU.
#[inline]
pub(super) unsafe fn check_mtu(
    context: u64,
    index: u64,
    length: u64,
    delta: u64,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    /// `BPF_MTU_CHK_SEGS`.
    const SEGMENTS: u64 = 1;
    const FRAG_NEEDED: u64 = 1;
    // SAFETY: `env` is the environment of the run in progress.
    let (image, shared) = unsafe { (Image::of_run(env), Shared::of_run(env)) };
    let xdp = image.input == Input::Xdp;
    // SAFETY: the verifier proved that `length` is an aligned number of the program's.
    let given = unsafe { *(length as *const u32) };
    // Segments cannot be compared with a length from the caller.
    let wrong = if xdp { flags != 0 } else { flags & !SEGMENTS != 0 || (flags != 0 && given != 0) };
    if wrong {
        return EINVAL;
    }
    // SAFETY: the verifier proved that `context` is the run's own.
    let (own, here) = unsafe {
        if xdp {
            let xdp = &*(context as *const XdpContext);
            ((xdp.data_end - xdp.data) as u32, xdp.ingress_ifindex)
        } else {
            let skb = &*(context as *const SkbContext);
            (skb.len, skb.ifindex)
        }
    };
    let index = if index as u32 == 0 { here } else { index as u32 };
    let Some(mtu) = shared.surroundings.with(|machine| machine.find_device(index).map(|device| device.mtu))
    else {
        return ENODEV;
    };
    let length_before = if given == 0 { i64::from(own) } else { i64::from(given) + i64::from(ETHERNET) };
    let after = length_before + i64::from(delta as u32 as i32);
    // SAFETY: as above: it is writable too.
    unsafe { *(length as *mut u32) = mtu };
    if after > i64::from(mtu) + i64::from(ETHERNET) { FRAG_NEEDED } else { 0 }
}
