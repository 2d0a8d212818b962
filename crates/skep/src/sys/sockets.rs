//! Sockets of clients in maps.
//!
//! A socket of the machine's kernel is an element as one of a world is: programs of test runs look it up and read its
//! addresses, state and cookie as they were when it was put into the map. No packet of a world reaches it, since it is
//! in a namespace that no device has. Sockets that are not of IP are elements too, but programs do not see them.
//!
//! What would break it: a world that takes a client's socket for its own with the same cookie. So a world compares the
//! namespace as well.

use crate::socket::{socket_member, socket_of};
use crate::world::{Protocol, Socket, SocketState};
use skep_abi::MapKind;
use skep_maps::{Map, Member};
use skep_sys::{ClientSocket, ClientState};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The namespace of clients' sockets: the last number, which no world gives by itself.
const OF_CLIENTS: u32 = u32::MAX;

/// A socket that programs do not see.
struct Unseen;

/// The element for a client's socket.
pub(super) fn member(socket: &ClientSocket) -> Member {
    let protocol = match socket {
        _ if socket.is_tcp() => Protocol::Tcp,
        _ if socket.is_udp() => Protocol::Udp,
        _ => return Member::new(socket.cookie, Arc::new(Unseen)),
    };
    let local = socket.local.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
    let mut seen = match socket.remote {
        Some(remote) => Socket::connected(protocol, local, remote),
        None => Socket::bound(local),
    };
    seen.protocol = protocol;
    seen.state = match socket.state {
        ClientState::Established => SocketState::Established,
        ClientState::Listening => SocketState::Listen,
        ClientState::Other => SocketState::Closed,
    };
    (seen.cookie, seen.namespace, seen.reuse_port) = (socket.cookie, OF_CLIENTS, socket.reuse_port);
    socket_member(Arc::new(seen))
}

fn is_of_client(member: &Member, cookie: u64) -> bool {
    let seen = || socket_of(member).is_some_and(|socket| socket.namespace == OF_CLIENTS);
    member.id() == cookie && (member.object().is::<Unseen>() || seen())
}

/// Whether a map has a client's socket.
pub(super) fn holds(map: &Map, cookie: u64) -> bool {
    map.members().iter().any(|(_, member)| is_of_client(member, cookie))
}

/// Removes a client's socket from a map, or its value.
pub(super) fn forget(map: &Map, cookie: u64) {
    if map.kind() != MapKind::SkStorage {
        return map.remove_members(|member| is_of_client(member, cookie));
    }
    let Ok(number) = u32::try_from(cookie) else { return };
    // Most have no value there.
    let _none = map.delete(&number.to_ne_bytes());
}
