//! Helpers that are others to some types of programs than to most: what they take in the place of the context, and
//! whom they are open to.

use super::kinds::*;
use crate::helper::HelperProto;

const OBJECT_COOKIE: HelperProto = f(46, "get_socket_cookie", [ANY_SOCKET], Number);
const OBJECT_SETSOCKOPT: HelperProto =
    f(49, "setsockopt", [ANY_SOCKET, Anything, Anything, READ, SIZE], Number);
const OBJECT_GETSOCKOPT: HelperProto =
    f(57, "getsockopt", [ANY_SOCKET, Anything, Anything, WRITE, SIZE], Number);
const OBJECT_BUFF_LEN: HelperProto = f(188, "xdp_get_buff_len", [object(&["xdp_buff"])], Number);

/// What they found of a socket may be none.
const STORAGE_OR_NONE: HelperProto = f(
    107,
    "sk_storage_get",
    [Map, HOST_SOCKET_OR_NULL, VALUE_OR_NULL, Anything],
    crate::RetKind::MapValueOrNull,
);
const DELETED_STORAGE_OR_NONE: HelperProto = f(108, "sk_storage_delete", [Map, HOST_SOCKET_OR_NULL], Number);

/// To programs that change what functions of the host return.
pub(crate) static TRACING: &[HelperProto] = &[OBJECT_COOKIE, OBJECT_BUFF_LEN];
/// To programs that trace functions of the host, and its tracepoints.
pub(crate) static TRACING_STORAGE: &[HelperProto] =
    &[OBJECT_COOKIE, OBJECT_BUFF_LEN, STORAGE_OR_NONE, DELETED_STORAGE_OR_NONE];
/// To iterators that see sockets.
pub(crate) static ITERATOR: &[HelperProto] = &[
    OBJECT_COOKIE,
    OBJECT_SETSOCKOPT,
    OBJECT_GETSOCKOPT,
    OBJECT_BUFF_LEN,
    STORAGE_OR_NONE,
    DELETED_STORAGE_OR_NONE,
];
/// To security hooks that see sockets.
pub(crate) static SOCKET_HOOKS: &[HelperProto] =
    &[OBJECT_COOKIE, OBJECT_SETSOCKOPT, OBJECT_GETSOCKOPT, OBJECT_BUFF_LEN];
/// To programs whose context is not the socket they are about.
pub(crate) static SOCKET_OPTIONS: &[HelperProto] = &[OBJECT_SETSOCKOPT, OBJECT_GETSOCKOPT];
/// To programs that choose a socket of a reuse-port group.
pub(crate) static REUSEPORT: &[HelperProto] = &[OBJECT_COOKIE];
/// To programs whose context is a socket that is made or given up.
pub(crate) static SOCKET_CONTEXT: &[HelperProto] =
    &[f(107, "sk_storage_get", [Map, Context, VALUE_OR_NULL, Anything], crate::RetKind::MapValueOrNull)];
/// To programs that choose a socket for a packet, which may also choose none.
pub(crate) static SOCKET_LOOKUP: &[HelperProto] =
    &[f(124, "sk_assign", [Context, ANY_SOCKET_OR_NULL, Anything], Number)];
/// To programs attached to performance events.
pub(crate) static PERF_EVENT: &[HelperProto] = &[f(27, "get_stackid", [Context, Map, Anything], Number)];
/// To programs attached to many functions at once.
pub(crate) static MULTI: &[HelperProto] = &[f(173, "get_func_ip", [Context], Number)];

/// All of them.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static HelperProto> {
    let sets = [
        TRACING,
        TRACING_STORAGE,
        ITERATOR,
        SOCKET_HOOKS,
        SOCKET_OPTIONS,
        REUSEPORT,
        SOCKET_CONTEXT,
        SOCKET_LOOKUP,
        PERF_EVENT,
        MULTI,
    ];
    sets.into_iter().flatten()
}
