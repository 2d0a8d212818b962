//! Options of sockets, and what else a program changes of the socket that its context is about.
//!
//! The options that programs may read and set are a table. Values are kept by the world's socket
//! ([`skep_world::SocketOptions`]), so what one program sets all others and the host read. What is not in the table is
//! `-EINVAL`, as in Linux.

use super::errno::{EINVAL, EOPNOTSUPP};
use super::socket::own;
use crate::image::Image;
use crate::packet::Effects;
use crate::shared::Shared;
use crate::socket::NativeSocket;
use skep_abi::{ArgKind, RunEnv};
use skep_maps::Map;
use skep_world::Protocol;
use std::net::{IpAddr, SocketAddr};

const EADDRINUSE: u64 = -98i64 as u64;
const EADDRNOTAVAIL: u64 = -99i64 as u64;
const EAFNOSUPPORT: u64 = -97i64 as u64;
/// The longest name of a congestion control, with its zero.
const NAME: usize = 16;

/// An option.
struct SockOption {
    level: i32,
    name: i32,
    value: Value,
}

/// What values an option has.
#[derive(Clone, Copy)]
enum Value {
    /// A number of four bytes in a range, and what it is as long as nobody has set it.
    Number { min: i32, max: i32, first: i32 },
    /// The same; it cannot be read.
    Written { min: i32, max: i32 },
    /// Anything but 0 stands for 1.
    Bool,
    /// The size of a buffer: twice as much is kept, but not less than that.
    Buffer { least: i32, first: i32 },
    /// The mark and the priority, which are also fields of the socket.
    Field { word: usize },
    /// At least 1; negative numbers stand for the greatest.
    LowWater,
    /// A name.
    Name { first: &'static str },
}

/// `SOL_SOCKET`, `IPPROTO_IP`, `IPPROTO_IPV6`, `IPPROTO_TCP`.
const SOCKET: i32 = 1;
const IP: i32 = 0;
const IPV6: i32 = 41;
const TCP: i32 = 6;

const fn option(level: i32, name: i32, value: Value) -> SockOption {
    SockOption { level, name, value }
}

const fn number(level: i32, name: i32, min: i32, max: i32, first: i32) -> SockOption {
    option(level, name, Value::Number { min, max, first })
}

const ANY: (i32, i32) = (i32::MIN, i32::MAX);

/// The options, with the names of `setsockopt`.
static OPTIONS: &[SockOption] = &[
    option(SOCKET, 2, Value::Bool),                                   // SO_REUSEADDR
    option(SOCKET, 7, Value::Buffer { least: 4608, first: 212_992 }), // SO_SNDBUF
    option(SOCKET, 8, Value::Buffer { least: 2304, first: 212_992 }), // SO_RCVBUF
    option(SOCKET, 9, Value::Bool),                                   // SO_KEEPALIVE
    option(SOCKET, 12, Value::Field { word: NativeSocket::PRIORITY }), // SO_PRIORITY
    option(SOCKET, 18, Value::LowWater),                              // SO_RCVLOWAT
    option(SOCKET, 36, Value::Field { word: NativeSocket::MARK }),    // SO_MARK
    number(SOCKET, 47, ANY.0, ANY.1, -1),                             // SO_MAX_PACING_RATE
    number(IP, 1, 0, 255, 0),                                         // IP_TOS
    number(IPV6, 67, -1, 255, 0),                                     // IPV6_TCLASS
    option(IPV6, 70, Value::Bool),                                    // IPV6_AUTOFLOWLABEL
    option(TCP, 1, Value::Bool),                                      // TCP_NODELAY
    number(TCP, 2, 88, 32_767, 536),                                  // TCP_MAXSEG
    number(TCP, 4, 1, 32_767, 7200),                                  // TCP_KEEPIDLE
    number(TCP, 5, 1, 32_767, 75),                                    // TCP_KEEPINTVL
    number(TCP, 6, 1, 127, 9),                                        // TCP_KEEPCNT
    number(TCP, 7, 1, 127, 6),                                        // TCP_SYNCNT
    option(TCP, 13, Value::Name { first: "cubic" }),                  // TCP_CONGESTION
    number(TCP, 16, 0, 1, 0),                                         // TCP_THIN_LINEAR_TIMEOUTS
    number(TCP, 18, 0, i32::MAX, 0),                                  // TCP_USER_TIMEOUT
    number(TCP, 25, ANY.0, ANY.1, 0),                                 // TCP_NOTSENT_LOWAT
    number(TCP, 27, 0, 2, 0),                                         // TCP_SAVE_SYN
    option(TCP, 1001, Value::Written { min: 1, max: i32::MAX }),      // TCP_BPF_IW
    option(TCP, 1002, Value::Written { min: 1, max: i32::MAX }),      // TCP_BPF_SNDCWND_CLAMP
    option(TCP, 1003, Value::Written { min: 1, max: 200_000 }),       // TCP_BPF_DELACK_MAX
    option(TCP, 1004, Value::Written { min: 1, max: 200_000 }),       // TCP_BPF_RTO_MIN
];

/// The option, if the socket has such options.
fn find(socket: &NativeSocket, level: i32, name: i32) -> Option<&'static SockOption> {
    let value = socket.socket();
    let fits = match level {
        IP => value.local.is_ipv4(),
        IPV6 => value.local.is_ipv6(),
        TCP => value.protocol == Protocol::Tcp,
        _ => true,
    };
    let known = || OPTIONS.iter().find(|option| (option.level, option.name) == (level, name));
    if fits && socket.is_full() { known() } else { None }
}

/// The socket that the helper of that number is called for: by the type's prototype the context's, or its argument.
unsafe fn subject<'a>(id: u32, argument: u64, env: *mut RunEnv) -> Option<&'a NativeSocket> {
    // SAFETY: the verifier proved the argument by the type's prototype; `env` is that of the run in progress.
    unsafe {
        let kind = Image::of_run(env).verified.program_type();
        let of_context = kind.helper(id).is_some_and(|proto| proto.args[0] == ArgKind::Context);
        if of_context { own(argument, env) } else { NativeSocket::of(argument) }
    }
}

#[inline]
pub(super) unsafe fn setsockopt(
    argument: u64,
    level: u64,
    name: u64,
    from: u64,
    len: u64,
    env: *mut RunEnv,
) -> u64 {
    let (level, name, len) = (level as i32, name as i32, len as u32 as usize);
    // SAFETY: the call's own arguments.
    let Some(socket) = (unsafe { subject(49, argument, env) }) else { return EINVAL };
    let Some(option) = find(socket, level, name) else { return EINVAL };
    let mut bytes = [0; NAME];
    let used = len.min(NAME);
    // SAFETY: the verifier proved that `len` bytes are readable. They are copied: other threads may write them.
    unsafe { std::ptr::copy(from as *const u8, bytes.as_mut_ptr(), used) };
    let options = &socket.socket().options;
    if let Value::Name { .. } = option.value {
        let name = bytes[..used].split(|byte| *byte == 0).next().unwrap_or_default();
        if name.is_empty() || name.len() == NAME {
            return EINVAL;
        }
        options.set(level, option.name, name);
        return 0;
    }
    if len != size_of::<i32>() {
        return EINVAL;
    }
    let given = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let kept = match option.value {
        Value::Number { min, max, .. } | Value::Written { min, max } if !(min..=max).contains(&given) => {
            return EINVAL;
        }
        Value::Number { .. } | Value::Written { .. } | Value::Field { .. } | Value::Name { .. } => given,
        Value::Bool => i32::from(given != 0),
        Value::Buffer { least, first } => given.clamp(0, first).saturating_mul(2).max(least),
        Value::LowWater => {
            if given < 0 {
                i32::MAX
            } else {
                given.max(1)
            }
        }
    };
    options.set_number(level, name, kept);
    if let Value::Field { word } = option.value {
        socket.set_word(word, kept.cast_unsigned());
    }
    0
}

#[inline]
pub(super) unsafe fn getsockopt(
    argument: u64,
    level: u64,
    name: u64,
    to: u64,
    len: u64,
    env: *mut RunEnv,
) -> u64 {
    let len = len as u32 as usize;
    // SAFETY: the call's own arguments.
    let socket = unsafe { subject(57, argument, env) };
    let read = socket.and_then(|socket| read(socket, level as i32, name as i32, len));
    let bytes = read.unwrap_or_default();
    let used = len.min(NAME);
    // SAFETY: the verifier proved that `to` is writable for `len`. What the value does not fill is zero.
    unsafe {
        std::ptr::write_bytes(to as *mut u8, 0, len);
        std::ptr::copy(bytes.as_ptr(), to as *mut u8, used);
    }
    if read.is_some() { 0 } else { EINVAL }
}

fn read(socket: &NativeSocket, level: i32, name: i32, len: usize) -> Option<[u8; NAME]> {
    let option = find(socket, level, name)?;
    let options = &socket.socket().options;
    let mut bytes = [0; NAME];
    let first = match option.value {
        Value::Name { first } => {
            let kept = options.get(level, name).unwrap_or_else(|| first.as_bytes().to_vec());
            // It ends with a zero where it is cut off.
            let used = kept.len().min(NAME - 1).min(len.checked_sub(1)?);
            bytes[..used].copy_from_slice(&kept[..used]);
            return Some(bytes);
        }
        Value::Written { .. } => return None,
        Value::Number { first, .. } | Value::Buffer { first, .. } => first,
        Value::Bool => 0,
        Value::LowWater => 1,
        Value::Field { word } => socket.words()[word].cast_signed(),
    };
    if len != size_of::<i32>() {
        return None;
    }
    let value = options.number(level, name).unwrap_or(first);
    bytes[..4].copy_from_slice(&value.to_ne_bytes());
    Some(bytes)
}

/// Sets which events of its connection a program wants; the result is what it asked for and does not exist.
#[inline]
pub(super) unsafe fn cb_flags_set(context: u64, flags: u64, _: *mut RunEnv) -> u64 {
    /// Places in `struct bpf_sock_ops`, and all flags.
    const IS_FULL: u64 = 72;
    const FLAGS: u64 = 84;
    const ALL: u32 = 0x7f;
    let flags = flags as u32;
    // SAFETY: the verifier proved that `context` is the run's own, and only programs over that structure may call this.
    let (is_full, kept) =
        unsafe { (*((context + IS_FULL) as *const u32), &mut *((context + FLAGS) as *mut u32)) };
    if is_full == 0 {
        return EINVAL;
    }
    *kept = flags & ALL;
    (flags & !ALL).into()
}

/// Binds the context's socket to an address of its namespace. The host finds the address in the context.
#[inline]
pub(super) unsafe fn bind(context: u64, address: u64, len: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the call's own context and environment; the verifier proved that `len` bytes are readable.
    let (socket, shared, effects, to) = unsafe {
        (own(context, env), Shared::of_run(env), Effects::of_run(env), end(address, len as u32 as usize))
    };
    let to = match to {
        Ok(to) => to,
        Err(errno) => return errno,
    };
    let (Some(socket), Some(effects)) = (socket, effects) else { return EINVAL };
    let value = socket.socket();
    if value.local.port() != 0 {
        return EINVAL;
    }
    if value.local.is_ipv4() && !to.is_ipv4() {
        return EAFNOSUPPORT;
    }
    let free = shared.surroundings.with(|machine| {
        if !to.ip().is_unspecified() && !machine.is_own_address(value.namespace, to.ip()) {
            return Err(EADDRNOTAVAIL);
        }
        let taken = to.port() != 0 && machine.is_bound(value.namespace, value.protocol, to);
        if taken { Err(EADDRINUSE) } else { Ok(()) }
    });
    match free {
        Ok(()) => {
            effects.sockets().bound = Some(to);
            0
        }
        Err(errno) => errno,
    }
}

/// The address in a `struct sockaddr`.
///
/// # Safety
///
/// It has that many readable bytes.
unsafe fn end(address: u64, len: usize) -> Result<SocketAddr, u64> {
    const INET: u16 = 2;
    const INET6: u16 = 10;
    const IN: usize = 16;
    const IN6: usize = 24;
    let mut bytes = [0; IN6];
    if len < 2 {
        return Err(EINVAL);
    }
    // SAFETY: the caller's promise. The bytes are copied: other threads may write them.
    unsafe { std::ptr::copy(address as *const u8, bytes.as_mut_ptr(), len.min(IN6)) };
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match u16::from_ne_bytes([bytes[0], bytes[1]]) {
        INET if len >= IN => Ok((IpAddr::from([bytes[4], bytes[5], bytes[6], bytes[7]]), port).into()),
        INET6 if len >= IN6 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[8..]);
            Ok((IpAddr::from(octets), port).into())
        }
        INET | INET6 => Err(EINVAL),
        _ => Err(EAFNOSUPPORT),
    }
}

/// Stores the context's socket in a map of sockets: when its connection is established, or when it begins to listen.
#[inline]
pub(super) unsafe fn store_own(context: u64, map: u64, key: u64, flags: u64, env: *mut RunEnv) -> u64 {
    /// `BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB`, `_PASSIVE_ESTABLISHED_CB` and `_TCP_LISTEN_CB`.
    const STORING: [u32; 3] = [4, 5, 11];
    // SAFETY: the call's own arguments: the structure begins with the operation, the map is one, and the key is
    // readable for its key size.
    unsafe {
        let Some(socket) = own(context, env) else { return EINVAL };
        if !STORING.contains(&*(context as *const u32)) {
            return EOPNOTSUPP;
        }
        let native = std::ptr::from_ref(socket).expose_provenance();
        let map = &*std::ptr::with_exposed_provenance::<Map>(map as usize);
        map.update_ptr(key as *const u8, std::ptr::without_provenance(native), flags, (*env).cpu) as u64
    }
}
