//! The tunnel of a packet: helpers that read and set its key and options.
//!
//! ```text
//!   struct bpf_tunnel_key
//!     0  tunnel_id   | 4  remote address, 4 or 16 bytes   | 20  tos | 21  ttl | 22  ext or flags | 24  label
//!    28  local address, 4 or 16 bytes                     | 44
//! ```
//! Numbers and addresses of IPv4 are in the order of the machine, addresses of IPv6 in network order. Older programs
//! have a shorter structure, which ends before the label, the extension or the type of service.

use super::buffer::skb;
use super::errno::{EINVAL, ENOENT, ENOMEM, EPROTO};
use crate::packet::{Packet, Tunnel};
use skep_abi::RunEnv;
use std::net::IpAddr;

/// `BPF_F_TUNINFO_IPV6`: the addresses are of IPv6.
const IPV6: u64 = 1;
/// `BPF_F_TUNINFO_FLAGS`: the tunnel's flags are wanted.
const FLAGS: u64 = 1 << 4;
/// `BPF_F_ZERO_CSUM_TX`, `_DONT_FRAGMENT`, `_SEQ_NUMBER` and `_NO_TUNNEL_KEY`.
const ZERO_CSUM: u64 = 1 << 1;
const DONT_FRAGMENT: u64 = 1 << 2;
const SEQ_NUMBER: u64 = 1 << 3;
const NO_KEY: u64 = 1 << 4;

/// Bits of [`Tunnel::flags`]: `TUNNEL_CSUM` and the like, in network order on the wire.
const HAS_CSUM: u16 = 0x01;
const HAS_KEY: u16 = 0x04;
const HAS_SEQ: u16 = 0x08;
const HAS_DONT_FRAGMENT: u16 = 0x0100;
const IS_NOCACHE: u16 = 0x2000;
/// Options of GENEVE, VXLAN, ERSPAN or GTP are there.
const HAS_OPTIONS: u16 = 0x0800 | 0x1000 | 0x4000 | 0x8000;

/// Bytes of the structure, and of its older forms.
const KEY: usize = 44;
const SHORTER: [usize; 4] = [28, 24, 22, 8];
/// The bits of a flow label.
const LABEL: u32 = 0xf_ffff;
/// The most bytes of options.
const OPTIONS_MAX: u64 = 255;

/// # Safety
///
/// `context` is the run's own.
unsafe fn packet<'a>(context: u64) -> Option<&'a mut Packet> {
    // SAFETY: the caller's promise; the run's caller waits for the run.
    unsafe { Packet::of_run(skb(context).packet) }
}

#[inline]
pub(super) unsafe fn get_key(context: u64, to: u64, size: u64, flags: u64, _: *mut RunEnv) -> u64 {
    let size = size as u32 as usize;
    // SAFETY: the verifier proved that `context` is the run's own, and that `to` is writable for `size` bytes.
    let (tunnel, to) = unsafe {
        std::ptr::write_bytes(to as *mut u8, 0, size);
        (packet(context).and_then(|packet| packet.tunnel()), to as *mut u8)
    };
    let Some(tunnel) = tunnel.filter(|_| flags & !(IPV6 | FLAGS) == 0) else { return EINVAL };
    let wide = tunnel.source.is_ipv6();
    if wide != (flags & IPV6 != 0) {
        return EPROTO;
    }
    // The shortest form has no room for addresses of IPv6.
    if size != KEY && !SHORTER.contains(&size) || size == SHORTER[3] && wide {
        return EINVAL;
    }
    let mut key = [0; KEY];
    key[..4].copy_from_slice(&(tunnel.id as u32).to_ne_bytes());
    put(&mut key[4..20], tunnel.source);
    (key[20], key[21]) = (tunnel.tos, tunnel.ttl);
    if flags & FLAGS != 0 {
        key[22..24].copy_from_slice(&tunnel.flags.to_be_bytes());
    }
    if wide {
        key[24..28].copy_from_slice(&tunnel.label.to_ne_bytes());
    }
    put(&mut key[28..], tunnel.destination);
    // SAFETY: `to` is writable for `size` bytes, at most those of the key.
    unsafe { std::ptr::copy(key.as_ptr(), to, size) };
    0
}

#[inline]
pub(super) unsafe fn set_key(context: u64, from: u64, size: u64, flags: u64, _: *mut RunEnv) -> u64 {
    let size = size as u32 as usize;
    if flags & !(IPV6 | ZERO_CSUM | DONT_FRAGMENT | SEQ_NUMBER | NO_KEY) != 0
        || size != KEY && !SHORTER.contains(&size)
    {
        return EINVAL;
    }
    let mut key = [0; KEY];
    // SAFETY: `from` is readable for `size` bytes (proved), at most those of the key.
    unsafe { std::ptr::copy(from as *const u8, key.as_mut_ptr(), size) };
    let word = |at: usize| u32::from_ne_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
    let wide = flags & IPV6 != 0;
    if key[22..24] != [0; 2] || !wide && word(24) != 0 {
        return EINVAL;
    }
    let address = |at: usize| match wide {
        true => {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&key[at..at + 16]);
            IpAddr::V6(bytes.into())
        }
        false => IpAddr::V4(word(at).into()),
    };
    let when = |flag: u64, set: u16| if flags & flag != 0 { set } else { 0 };
    let tunnel = Tunnel {
        id: word(0).into(),
        source: address(28),
        destination: address(4),
        tos: key[20],
        ttl: key[21],
        label: word(24) & LABEL,
        flags: IS_NOCACHE
            | HAS_CSUM & !when(ZERO_CSUM, HAS_CSUM)
            | HAS_KEY & !when(NO_KEY, HAS_KEY)
            | when(DONT_FRAGMENT, HAS_DONT_FRAGMENT)
            | when(SEQ_NUMBER, HAS_SEQ),
        options: Vec::new(),
        send: true,
    };
    // SAFETY: the verifier proved that `context` is the run's own.
    let Some(packet) = (unsafe { packet(context) }) else { return ENOMEM };
    packet.set_tunnel(Some(tunnel));
    0
}

#[inline]
pub(super) unsafe fn get_opt(context: u64, to: u64, size: u64, _: *mut RunEnv) -> u64 {
    let size = size as u32 as usize;
    // SAFETY: the verifier proved that `context` is the run's own, and that `to` is writable for `size` bytes.
    let tunnel = unsafe {
        std::ptr::write_bytes(to as *mut u8, 0, size);
        packet(context).and_then(|packet| packet.tunnel())
    };
    let Some(tunnel) = tunnel.filter(|tunnel| tunnel.flags & HAS_OPTIONS != 0) else { return ENOENT };
    let options = &tunnel.options;
    if size < options.len() {
        return ENOMEM;
    }
    // SAFETY: `to` is writable for as many bytes.
    unsafe { std::ptr::copy(options.as_ptr(), to as *mut u8, options.len()) };
    options.len() as u64
}

#[inline]
pub(super) unsafe fn set_opt(context: u64, from: u64, size: u64, _: *mut RunEnv) -> u64 {
    let size = u64::from(size as u32);
    // SAFETY: the verifier proved that `context` is the run's own.
    let tunnel = unsafe { packet(context) }.and_then(|packet| packet.tunnel_mut());
    // Only of a tunnel that a program has set, not of the one that the packet came from.
    let Some(tunnel) = tunnel.filter(|tunnel| tunnel.send && size % 4 == 0) else { return EINVAL };
    if size > OPTIONS_MAX {
        return ENOMEM;
    }
    // SAFETY: `from` is readable for `size` bytes (proved).
    tunnel.options = (0..size).map(|at| unsafe { *((from + at) as *const u8) }).collect();
    tunnel.flags |= HAS_OPTIONS;
    0
}

/// An address as the structure has it.
fn put(to: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => to[..4].copy_from_slice(&u32::from(address).to_ne_bytes()),
        IpAddr::V6(address) => to.copy_from_slice(&address.octets()),
    }
}
