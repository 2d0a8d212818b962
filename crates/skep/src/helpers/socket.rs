//! Helpers that find sockets, say what they are, and choose one for a packet.
//!
//! Sockets are those of the world's machine. What a run finds is kept by its effects until the next run, each socket
//! once, so a program that looks sockets up in a loop takes no more memory than there are sockets. The verifier sees to
//! it that each is released; nothing depends on it.

use super::errno::{EINVAL, EOPNOTSUPP};
use crate::image::{Image, Input};
use crate::packet::Effects;
use crate::shared::Shared;
use crate::socket::NativeSocket;
use skep_abi::{ArgKind, Context, FieldKind, RunEnv, SkbContext, XdpContext};
use skep_world::{Machine, Protocol, Socket, SocketState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const EEXIST: u64 = -17i64 as u64;
const EPROTOTYPE: u64 = -91i64 as u64;
const ESOCKTNOSUPPORT: u64 = -94i64 as u64;
const EAFNOSUPPORT: u64 = -97i64 as u64;
const ENETUNREACH: u64 = -101i64 as u64;
/// `overflowuid`: the user of sockets that have none.
const NOBODY: u64 = 65534;
/// Bytes of the halves of `struct bpf_sock_tuple`.
const TUPLE_IPV4: usize = 12;
const TUPLE_IPV6: usize = 36;

/// Where the run's packet or socket is: network namespace, and the device that it came in on.
unsafe fn place(context: u64, machine: &Machine, env: *mut RunEnv) -> (u32, Option<u32>) {
    // SAFETY: `env` is the environment of the run in progress, `context` its own context.
    let device = unsafe {
        match Image::of_run(env).input {
            Input::Xdp => (*(context as *const XdpContext)).ingress_ifindex,
            Input::Skb => (*(context as *const SkbContext)).ifindex,
            Input::Buffer(_)
            | Input::Context
            | Input::Host
            | Input::Arguments
            | Input::Netfilter
            | Input::Shown
            | Input::Inside => 0,
        }
    };
    if let Some(device) = machine.find_device(device) {
        return (device.namespace, Some(device.index));
    }
    // SAFETY: as above.
    (unsafe { own(context, env) }.map_or(0, |socket| socket.socket().namespace), None)
}

/// The socket that the context is about.
///
/// # Safety
///
/// `env` is the environment of the run in progress, `context` its own context.
pub(super) unsafe fn own<'a>(context: u64, env: *mut RunEnv) -> Option<&'a NativeSocket> {
    // SAFETY: the caller's promise; the fields of sockets are 0 or pointers to them.
    unsafe {
        let image = Image::of_run(env);
        match image.input {
            Input::Skb => NativeSocket::of((*(context as *const SkbContext)).sk),
            Input::Context => {
                let Context::Struct(layout) = image.verified.program_type().context else { return None };
                let socket = |kind| matches!(kind, FieldKind::Struct { .. });
                let field = layout.fields.iter().find(|field| field.name == "sk" && socket(field.kind));
                match field {
                    Some(field) => {
                        let at = context + u64::from(field.native_offset.unwrap_or(field.offset));
                        NativeSocket::of(*(at as *const u64))
                    }
                    // The context is the socket.
                    None => NativeSocket::of(Effects::of_run(env)?.own.as_ref()?.address()),
                }
            }
            Input::Xdp
            | Input::Host
            | Input::Buffer(_)
            | Input::Arguments
            | Input::Netfilter
            | Input::Shown
            | Input::Inside => None,
        }
    }
}

#[inline]
pub(super) unsafe fn lookup_tcp(
    context: u64,
    tuple: u64,
    size: u64,
    netns: u64,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: the call's own arguments.
    unsafe { look_up(context, (tuple, size), netns, flags, (Protocol::Tcp, true), env) }
}

#[inline]
pub(super) unsafe fn lookup_udp(
    context: u64,
    tuple: u64,
    size: u64,
    netns: u64,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: as above.
    unsafe { look_up(context, (tuple, size), netns, flags, (Protocol::Udp, true), env) }
}

#[inline]
pub(super) unsafe fn skc_lookup_tcp(
    context: u64,
    tuple: u64,
    size: u64,
    netns: u64,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: as above.
    unsafe { look_up(context, (tuple, size), netns, flags, (Protocol::Tcp, false), env) }
}

/// The socket that receives what is sent from the tuple's source to its destination; null if there is none.
///
/// # Safety
///
/// The tuple has as many readable bytes as its size says; `context` and `env` are those of the run in progress.
unsafe fn look_up(
    context: u64,
    (tuple, size): (u64, u64),
    netns: u64,
    flags: u64,
    (protocol, full): (Protocol, bool),
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: the caller's promise.
    let Some((remote, local)) = (unsafe { ends(tuple, size as u32 as usize) }) else { return 0 };
    // A negative number of 32 bits stands for the namespace that the run is in.
    let here = (netns as u32 as i32) < 0;
    if flags != 0 || !(here || i32::try_from(netns).is_ok()) {
        return 0;
    }
    // SAFETY: the caller's promise.
    let (shared, effects) = unsafe { (Shared::of_run(env), Effects::of_run(env)) };
    let found = shared.surroundings.with(|machine| {
        // SAFETY: the caller's promise.
        let (own, device) = unsafe { place(context, machine, env) };
        let namespace = if here { own } else { netns as u32 };
        let found = machine.find_socket(namespace, protocol, local, remote, device)?;
        if full { whole(machine, found) } else { Some(Arc::clone(found)) }
    });
    match (found, effects) {
        (Some(socket), Some(effects)) => effects.sockets().hold(&socket).address(),
        _ => 0,
    }
}

/// Source and destination of a `struct bpf_sock_tuple`.
///
/// # Safety
///
/// It has that many readable bytes.
unsafe fn ends(tuple: u64, size: usize) -> Option<(SocketAddr, SocketAddr)> {
    let mut bytes = [0; TUPLE_IPV6];
    if !matches!(size, TUPLE_IPV4 | TUPLE_IPV6) {
        return None;
    }
    // SAFETY: the caller's promise. The bytes are copied: other threads may write them.
    unsafe { std::ptr::copy(tuple as *const u8, bytes.as_mut_ptr(), size) };
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let [source, destination] = if size == TUPLE_IPV4 {
        let address = |at: usize| IpAddr::from([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        [(address(0), port(8)), (address(4), port(10))]
    } else {
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[at..at + 16]);
            IpAddr::from(octets)
        };
        [(address(0), port(32)), (address(16), port(34))]
    };
    Some((source.into(), destination.into()))
}

/// The full socket in place of one: for a request the listening one; none for a connection in `TIME_WAIT`.
fn whole(machine: &Machine, socket: &Arc<Socket>) -> Option<Arc<Socket>> {
    match socket.state {
        SocketState::TimeWait => None,
        SocketState::NewSynReceived => machine.listener(socket.namespace, socket.local).cloned(),
        _ => Some(Arc::clone(socket)),
    }
}

/// The program needs the socket no more. It stays until the run has ended.
#[inline]
pub(super) unsafe fn release(_socket: u64, _: *mut RunEnv) -> u64 {
    0
}

#[inline]
pub(super) unsafe fn fullsock(pointer: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is a socket of this runtime.
    unsafe { NativeSocket::keep(pointer) }
        .filter(|socket| socket.is_full())
        .map_or(0, |socket| socket.address())
}

#[inline]
pub(super) unsafe fn tcp_sock(pointer: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let socket = unsafe { NativeSocket::of(pointer) };
    let tcp = |socket: &&NativeSocket| socket.is_full() && socket.socket().protocol == Protocol::Tcp;
    socket.filter(tcp).map_or(0, NativeSocket::tcp_pointer)
}

#[inline]
pub(super) unsafe fn get_listener_sock(pointer: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as above; `env` is the environment of the run in progress.
    let (socket, shared, effects) =
        unsafe { (NativeSocket::of(pointer), Shared::of_run(env), Effects::of_run(env)) };
    let (Some(socket), Some(effects)) = (socket, effects) else { return 0 };
    let whole = shared.surroundings.with(|machine| whole(machine, socket.socket()));
    let listening = whole.filter(|socket| socket.state == SocketState::Listen);
    // Held anew: the result outlives the argument, which the program may release.
    listening.map_or(0, |socket| effects.sockets().hold(&socket).address())
}

/// The cookie of the context's socket, or of a socket that the program passes: by the program's type.
#[inline]
pub(super) unsafe fn get_cookie(argument: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved the argument by the type's prototype; `env` is that of the run in progress.
    let socket = unsafe {
        let kind = Image::of_run(env).verified.program_type();
        let of_context = kind.helper(46).is_some_and(|proto| proto.args[0] == ArgKind::Context);
        if of_context { own(argument, env) } else { NativeSocket::of(argument) }
    };
    socket.map_or(0, |socket| socket.socket().cookie)
}

#[inline]
pub(super) unsafe fn get_uid(context: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the call's own context and environment.
    let (socket, shared) = unsafe { (own(context, env), Shared::of_run(env)) };
    let whole = socket.and_then(|socket| shared.surroundings.with(|machine| whole(machine, socket.socket())));
    whole.map_or(NOBODY, |socket| socket.uid.into())
}

/// Namespaces have their number plus one: a cookie is not 0.
#[inline]
pub(super) unsafe fn get_netns_cookie(context: u64, env: *mut RunEnv) -> u64 {
    if context == 0 {
        return 1;
    }
    // SAFETY: the call's own context and environment.
    let namespace =
        unsafe { Shared::of_run(env).surroundings.with(|machine| place(context, machine, env).0) };
    u64::from(namespace) + 1
}

/// Chooses the socket that receives the packet: of a classifier the packet's own, of a look-up the result.
#[inline]
pub(super) unsafe fn assign(context: u64, pointer: u64, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it is a socket of this runtime or null; `env` is that of the run in progress.
    let (socket, input) = unsafe { (NativeSocket::keep(pointer), Image::of_run(env).input) };
    // SAFETY: the call's own context and environment.
    unsafe {
        match (input, socket) {
            (Input::Skb, Some(socket)) => assign_to_packet(context, &socket, flags, env),
            (Input::Context, socket) => assign_to_look_up(context, socket, flags, env),
            _ => EINVAL,
        }
    }
}

/// # Safety
///
/// `context` is the run's own socket buffer.
unsafe fn assign_to_packet(context: u64, socket: &Arc<NativeSocket>, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller's promise; nothing else accesses the context while a helper runs.
    let (skb, shared, effects) =
        unsafe { (&mut *(context as *mut SkbContext), Shared::of_run(env), Effects::of_run(env)) };
    if flags != 0 {
        return EINVAL;
    }
    // A packet that leaves has been assigned by its sender.
    if skb.ifindex != skb.ingress_ifindex {
        return EOPNOTSUPP;
    }
    // SAFETY: as above.
    let (namespace, _) = shared.surroundings.with(|machine| unsafe { place(context, machine, env) });
    if namespace != socket.socket().namespace {
        return ENETUNREACH;
    }
    let Some(effects) = effects else { return EINVAL };
    effects.sockets().chosen = Some(Some(Arc::clone(socket)));
    socket.describe(skb);
    0
}

/// # Safety
///
/// `context` is the run's own `struct bpf_sk_lookup`.
unsafe fn assign_to_look_up(
    context: u64,
    socket: Option<Arc<NativeSocket>>,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    /// `BPF_SK_LOOKUP_F_REPLACE` and `BPF_SK_LOOKUP_F_NO_REUSEPORT`.
    const REPLACE: u64 = 1;
    const NO_REUSEPORT: u64 = 2;
    /// Places in the structure.
    const FAMILY: u64 = 8;
    const PROTOCOL: u64 = 12;
    const INET: u32 = 2;
    if flags & !(REPLACE | NO_REUSEPORT) != 0 {
        return EINVAL;
    }
    // SAFETY: the caller's promise.
    let (selected, family, protocol, effects) = unsafe {
        (
            &mut *(context as *mut u64),
            *((context + FAMILY) as *const u32),
            *((context + PROTOCOL) as *const u32),
            Effects::of_run(env),
        )
    };
    if let Some(socket) = &socket {
        // Only sockets that wait for packets from anybody.
        if socket.socket().remote.is_some() || !socket.is_full() {
            return ESOCKTNOSUPPORT;
        }
        let words = socket.words();
        if words[3] != protocol {
            return EPROTOTYPE;
        }
        if words[1] != family && words[1] == INET {
            return EAFNOSUPPORT;
        }
    }
    if *selected != 0 && flags & REPLACE == 0 {
        return EEXIST;
    }
    let Some(effects) = effects else { return EINVAL };
    *selected = socket.as_ref().map_or(0, NativeSocket::address);
    let sockets = effects.sockets();
    (sockets.chosen, sockets.alone) = (Some(socket), flags & NO_REUSEPORT != 0);
    0
}
