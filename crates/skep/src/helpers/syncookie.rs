//! SYN cookies over headers that the program passes: `bpf_tcp_raw_gen_syncookie_ipv4` and the like.
//!
//! ```text
//!   cookie   | period, 6 bits | size, 2 bits | hash, 24 bits |
//! ```
//!
//! The period is counted in 64 seconds of the runtime's clock; a cookie holds in its own period and the next one. The
//! size is an index into a table of segment sizes, those of Linux. The hash is keyed with a secret of the runtime, so
//! cookies are not those of the system's kernel: what one runtime makes, programs of the same runtime check.

use super::errno::{EACCES, EINVAL, ENOENT};
use crate::shared::Shared;
use crate::socket::NativeSocket;
use skep_abi::RunEnv;
use skep_world::{Protocol, SocketState};
use std::hash::{DefaultHasher, Hasher};

/// Nanoseconds of a period.
const PERIOD: u64 = 64_000_000_000;
/// The sizes of segments that a cookie can remember, in bytes.
const SIZES: [u16; 4] = [536, 1300, 1440, 1460];
const SIZES_IPV6: [u16; 4] = [1220, 1420, 1440, 8940];
/// Bytes of a TCP header without options, and the greatest with them.
const TCP: usize = 20;
const TCP_MOST: usize = 60;

/// The addresses of a connection, source first, as they are in the packet.
type Addresses = [u8; 32];

#[inline]
pub(super) unsafe fn gen_ipv4(ip: u64, tcp: u64, size: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the prototype says that `ip` has 20 readable bytes, `tcp` as many as `size` says.
    unsafe { generate(&ipv4(ip), tcp, size, &SIZES, env) }
}

#[inline]
pub(super) unsafe fn gen_ipv6(ip: u64, tcp: u64, size: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the prototype says that `ip` has 40 readable bytes, `tcp` as many as `size` says.
    unsafe { generate(&ipv6(ip), tcp, size, &SIZES_IPV6, env) }
}

#[inline]
pub(super) unsafe fn check_ipv4(ip: u64, tcp: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the prototype says that both have 20 readable bytes.
    unsafe { acknowledges(&ipv4(ip), tcp, env) }
}

#[inline]
pub(super) unsafe fn check_ipv6(ip: u64, tcp: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the prototype says that `ip` has 40 readable bytes and `tcp` 20.
    unsafe { acknowledges(&ipv6(ip), tcp, env) }
}

/// The cookie for a SYN that a listening socket has received, by its headers.
#[inline]
pub(super) unsafe fn make(
    socket: u64,
    ip: u64,
    ip_len: u64,
    tcp: u64,
    tcp_len: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: the prototype says that the argument is a socket, and how many bytes the headers have.
    unsafe {
        let from = connection(socket, (ip, ip_len), (tcp, tcp_len), |flags| {
            if flags & (SYN | ACK | FIN | RST) == SYN { Ok(()) } else { Err(EINVAL) }
        });
        match from {
            Ok(Either::V4(from)) => generate(&from, tcp, tcp_len, &SIZES, env),
            Ok(Either::V6(from)) => generate(&from, tcp, tcp_len, &SIZES_IPV6, env),
            Err(errno) => errno,
        }
    }
}

/// Whether an ACK that a listening socket has received acknowledges such a cookie.
#[inline]
pub(super) unsafe fn check(
    socket: u64,
    ip: u64,
    ip_len: u64,
    tcp: u64,
    tcp_len: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: as above.
    unsafe {
        let from = match connection(socket, (ip, ip_len), (tcp, tcp_len), |flags| {
            if flags & (SYN | ACK | RST) == ACK { Ok(()) } else { Err(ENOENT) }
        }) {
            Ok(Either::V4(from) | Either::V6(from)) => from,
            Err(errno) => return errno,
        };
        if acknowledges(&from, tcp, env) == 0 { 0 } else { ENOENT }
    }
}

/// Flags of a TCP header.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

enum Either {
    V4(Addresses),
    V6(Addresses),
}

/// The addresses of a connection to a listening socket, if the flags of its segment are right. The IP header is looked
/// at last, as in Linux.
///
/// # Safety
///
/// The first is a socket of this runtime; the headers have as many readable bytes as is said.
unsafe fn connection(
    socket: u64,
    (ip, ip_len): (u64, u64),
    (tcp, tcp_len): (u64, u64),
    right: impl FnOnce(u8) -> Result<(), u64>,
) -> Result<Either, u64> {
    let (ip_len, tcp_len) = (ip_len as u32, tcp_len as u32);
    if tcp_len < TCP as u32 {
        return Err(EINVAL);
    }
    // SAFETY: the caller's promise; bytes are read once.
    unsafe {
        let socket = NativeSocket::of(socket).ok_or(EINVAL)?.socket();
        if socket.protocol != Protocol::Tcp || socket.state != SocketState::Listen {
            return Err(EINVAL);
        }
        right(*((tcp + 13) as *const u8))?;
        if ip_len < 20 {
            return Err(EINVAL);
        }
        let from = match (*(ip as *const u8) >> 4, socket.local.is_ipv6()) {
            (4, _) => Either::V4(ipv4(ip)),
            (6, true) if ip_len >= 40 => Either::V6(ipv6(ip)),
            (6, _) => return Err(EINVAL),
            _ => return Err(EPROTONOSUPPORT),
        };
        Ok(from)
    }
}

const EPROTONOSUPPORT: u64 = -93i64 as u64;

/// # Safety
///
/// `ip` has 20 readable bytes.
unsafe fn ipv4(ip: u64) -> Addresses {
    // SAFETY: the caller's promise. The bytes are copied: other threads may write them.
    let header = unsafe { *(ip as *const [u8; 20]) };
    let mut addresses = [0; 32];
    addresses[..8].copy_from_slice(&header[12..20]);
    addresses
}

/// # Safety
///
/// `ip` has 40 readable bytes.
unsafe fn ipv6(ip: u64) -> Addresses {
    // SAFETY: as above.
    let header = unsafe { *(ip as *const [u8; 40]) };
    let mut addresses = [0; 32];
    addresses.copy_from_slice(&header[8..40]);
    addresses
}

/// The cookie for the SYN with that TCP header, and above it the size of segments.
///
/// # Safety
///
/// `tcp` has `size` readable bytes, `env` is the environment of the run in progress.
unsafe fn generate(from: &Addresses, tcp: u64, size: u64, sizes: &[u16; 4], env: *mut RunEnv) -> u64 {
    let size = size as u32 as usize;
    if !(TCP..=TCP_MOST).contains(&size) {
        return EINVAL;
    }
    let mut header = [0; TCP_MOST];
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy(tcp as *const u8, header.as_mut_ptr(), size) };
    let header = &header[..size];
    if usize::from(header[12] >> 4) * 4 != size {
        return EINVAL;
    }
    let wanted = segment_size(&header[TCP..]).unwrap_or(sizes[0]);
    let index = sizes.iter().rposition(|size| *size <= wanted).unwrap_or(0);
    // SAFETY: the caller's promise.
    let shared = unsafe { Shared::of_run(env) };
    let period = shared.now() / PERIOD;
    let cookie = cookie(shared, from, header, word(header, 4), period, index as u32);
    u64::from(cookie) | u64::from(sizes[index]) << 32
}

/// Whether the ACK with that TCP header acknowledges a cookie.
///
/// # Safety
///
/// `tcp` has 20 readable bytes, `env` is the environment of the run in progress.
unsafe fn acknowledges(from: &Addresses, tcp: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller's promise.
    let (header, shared) = unsafe { (*(tcp as *const [u8; TCP]), Shared::of_run(env)) };
    let sequence = word(&header, 4).wrapping_sub(1);
    let given = word(&header, 8).wrapping_sub(1);
    let now = shared.now() / PERIOD;
    let age = (now as u32).wrapping_sub(given >> 26) & 0x3f;
    let right = age <= 1
        && now >= u64::from(age)
        && cookie(shared, from, &header, sequence, now - u64::from(age), given >> 24 & 3) == given;
    if right { 0 } else { EACCES }
}

fn cookie(shared: &Shared, from: &Addresses, tcp: &[u8], sequence: u32, period: u64, index: u32) -> u32 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u128(shared.surroundings.secret());
    hasher.write(from);
    hasher.write(&tcp[..4]);
    hasher.write_u32(sequence);
    hasher.write_u64(period);
    hasher.write_u32(index);
    (period as u32) << 26 | index << 24 | hasher.finish() as u32 & 0xff_ffff
}

/// The number in network order at that byte.
fn word(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The size of segments that the options ask for; `None` where they do not, or are malformed.
fn segment_size(mut options: &[u8]) -> Option<u16> {
    loop {
        options = match options {
            [1, rest @ ..] => rest,
            [2, 4, high, low, ..] => {
                return Some(u16::from_be_bytes([*high, *low])).filter(|size| *size != 0);
            }
            [0, ..] | [] => return None,
            [_, size, ..] if *size >= 2 => options.get(usize::from(*size)..)?,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_size_is_found_behind_other_options_and_malformed_ones_end_the_search() {
        assert_eq!(segment_size(&[2, 4, 5, 0xb4]), Some(1460));
        assert_eq!(segment_size(&[1, 1, 3, 3, 7, 4, 2, 2, 4, 5, 0xb4]), Some(1460));
        assert_eq!(segment_size(&[0, 2, 4, 5, 0xb4]), None);
        assert_eq!(segment_size(&[2, 4, 0, 0]), None);
        for malformed in
            [&[3][..], &[3, 1, 2, 4, 5, 0xb4], &[3, 0], &[3, 200, 2, 4, 5, 0xb4], &[2, 4, 5], &[2]]
        {
            assert_eq!(segment_size(malformed), None, "{malformed:?}");
        }
    }
}
