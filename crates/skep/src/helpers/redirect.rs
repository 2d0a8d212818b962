//! Helpers that send packets elsewhere. They record where in the packet's effects; the host, or the world's network,
//! moves the packet when the program has ended with that result.

use super::errno::EINVAL;
use crate::image::{Image, Input};
use crate::packet::{Copied, DeviceTarget, Effects, Packet, Redirect};
use crate::shared::Shared;
use skep_abi::{MapKind, RunEnv, SkbContext, XdpContext};
use skep_maps::Map;
use std::net::IpAddr;

/// `BPF_F_INGRESS`.
const INGRESS: u64 = 1;
/// Results: `XDP_ABORTED`, `XDP_REDIRECT`, `TC_ACT_SHOT`, `TC_ACT_REDIRECT`.
const XDP_ABORTED: u64 = 0;
const XDP_REDIRECT: u64 = 4;
const TC_SHOT: u64 = 2;
const TC_REDIRECT: u64 = 7;
/// `AF_INET` and `AF_INET6`.
const INET: u32 = 2;
const INET6: u32 = 10;
/// The most copies that one run makes: a loop must not take the host's memory.
const MAX_CLONES: usize = 256;
const ENOMEM: u64 = -12i64 as u64;
/// The size of `struct bpf_redir_neigh` in bytes.
const NEXT_HOP: usize = 20;

/// Sends the packet out of a device, or into it. Whether the device exists is only asked when the packet is moved.
#[inline]
pub(super) unsafe fn redirect(index: u64, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: `env` is the environment of the run in progress.
    let (image, effects) = unsafe { (Image::of_run(env), Effects::of_run(env)) };
    let xdp = image.input == Input::Xdp;
    let known = if xdp { 0 } else { INGRESS };
    if flags & !known != 0 {
        return if xdp { XDP_ABORTED } else { TC_SHOT };
    }
    record(effects, Redirect::Device { index: index as u32, ingress: flags & INGRESS != 0 });
    if xdp { XDP_REDIRECT } else { TC_REDIRECT }
}

/// Sends an XDP packet to a target in a map: a device, a CPU or a socket. If there is none with that key, returns the
/// verdict in the lowest bits of the flags.
#[inline]
pub(super) unsafe fn redirect_map(map: u64, key: u64, flags: u64, env: *mut RunEnv) -> u64 {
    /// The verdict if there is no such target.
    const OTHERWISE: u64 = 3;
    /// `BPF_F_BROADCAST` and `BPF_F_EXCLUDE_INGRESS`.
    const BROADCAST: u64 = 1 << 3;
    const EXCLUDE_INGRESS: u64 = 1 << 4;
    // SAFETY: the verifier proved that it is a map; `env` is the environment of the run in progress.
    let (map, effects, cpu, context) = unsafe {
        let map = &*std::ptr::with_exposed_provenance::<Map>(map as usize);
        (map, Effects::of_run(env), (*env).cpu, (*env).context)
    };
    let of_devices = matches!(map.kind(), MapKind::Devmap | MapKind::DevmapHash);
    let known = if of_devices { OTHERWISE | BROADCAST | EXCLUDE_INGRESS } else { OTHERWISE };
    let Some(effects) = effects.filter(|_| flags & !known == 0) else { return XDP_ABORTED };
    let key = key as u32;
    if flags & BROADCAST != 0 {
        // SAFETY: only XDP programs may call this, on packets.
        let from = unsafe { (*(context as *const XdpContext)).ingress_ifindex };
        effects.devices.clear();
        for (_, value) in map.entries() {
            let word =
                |at: usize| value.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
            let (index, program) = (word(0), word(4));
            if flags & EXCLUDE_INGRESS == 0 || index != from {
                effects.devices.push(DeviceTarget { index, program });
            }
        }
        effects.program = 0;
        effects.redirect = Some(Redirect::Devices);
        return XDP_REDIRECT;
    }
    // SAFETY: the run is in a section of the map's domain, as this virtual CPU.
    let Some(target) = (unsafe { map.target(key, cpu) }) else { return flags & OTHERWISE };
    effects.program = if map.kind() == MapKind::Xskmap { 0 } else { target.second };
    effects.redirect = Some(match map.kind() {
        MapKind::Cpumap => Redirect::Cpu { cpu: key },
        MapKind::Xskmap => Redirect::Socket { socket: target.second },
        _ => Redirect::Device { index: target.first, ingress: false },
    });
    XDP_REDIRECT
}

/// Sends the packet into the other end of a device's pair.
#[inline]
pub(super) unsafe fn redirect_peer(index: u64, flags: u64, env: *mut RunEnv) -> u64 {
    if flags != 0 {
        return TC_SHOT;
    }
    // SAFETY: as above.
    record(unsafe { Effects::of_run(env) }, Redirect::Peer { index: index as u32 });
    TC_REDIRECT
}

/// Sends the packet out of a device to the next hop, whose Ethernet address the machine knows.
#[inline]
pub(super) unsafe fn redirect_neigh(index: u64, params: u64, len: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let len = len as u32 as usize;
    if flags != 0 || (len != 0 && len < NEXT_HOP) {
        return TC_SHOT;
    }
    let mut next_hop = None;
    if params != 0 && len >= NEXT_HOP {
        // SAFETY: the verifier proved that `len` bytes are readable. They are copied: other threads may write them.
        let bytes = unsafe { std::ptr::read_unaligned(params as *const [u8; NEXT_HOP]) };
        let family = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        next_hop = match family {
            INET => Some(IpAddr::from([bytes[4], bytes[5], bytes[6], bytes[7]])),
            INET6 => {
                let mut address = [0; 16];
                address.copy_from_slice(&bytes[4..]);
                Some(IpAddr::from(address))
            }
            _ => None,
        };
    }
    // SAFETY: as above.
    let effects = unsafe { Effects::of_run(env) };
    record(effects, Redirect::Neighbour { index: index as u32, next_hop });
    TC_REDIRECT
}

/// Sends a copy of the packet out of a device, or into it, now.
#[inline]
pub(super) unsafe fn clone_redirect(context: u64, index: u64, flags: u64, env: *mut RunEnv) -> u64 {
    let index = index as u32;
    // SAFETY: as above.
    let (shared, effects) = unsafe { (Shared::of_run(env), Effects::of_run(env)) };
    let exists = shared.surroundings.with(|machine| machine.find_device(index).is_some());
    let Some(effects) = effects.filter(|_| exists && flags & !INGRESS == 0) else { return EINVAL };
    if effects.clones.len() == MAX_CLONES {
        return ENOMEM;
    }
    // SAFETY: the verifier proved that `context` is the run's own, and only socket-buffer programs may call this.
    let skb = unsafe { &*(context as *const SkbContext) };
    let start = skb.data - u64::from(skb.link);
    // SAFETY: the packet's bytes; nothing else accesses them during the run.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, (skb.data_end - start) as usize) };
    let mut packet = Packet::new(bytes);
    packet.take_info(skb);
    // SAFETY: as above.
    let original = unsafe { Packet::of_run(skb.packet) };
    packet.set_tunnel(original.and_then(|original| original.tunnel().cloned()));
    effects.clones.push(Copied { to: Redirect::Device { index, ingress: flags & INGRESS != 0 }, packet });
    0
}

/// The last call decides.
fn record(effects: Option<&mut Effects>, to: Redirect) {
    if let Some(effects) = effects {
        effects.program = 0;
        effects.redirect = Some(to);
    }
}
