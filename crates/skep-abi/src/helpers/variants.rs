//! Helpers whose prototypes differ for some program types: other arguments in place of the context, or other
//! callers.

use super::kinds::*;
use crate::helper::HelperProto;

const OBJECT_COOKIE: HelperProto = f(46, "get_socket_cookie", [ANY_SOCKET], Number);
const OBJECT_SETSOCKOPT: HelperProto =
    f(49, "setsockopt", [ANY_SOCKET, Anything, Anything, READ, SIZE], Number);
const OBJECT_GETSOCKOPT: HelperProto =
    f(57, "getsockopt", [ANY_SOCKET, Anything, Anything, WRITE, SIZE], Number);
const OBJECT_BUFF_LEN: HelperProto = f(188, "xdp_get_buff_len", [object(&["xdp_buff"])], Number);

/// Socket arguments that may be null, since the programs found the socket by following pointers.
const STORAGE_OR_NONE: HelperProto = f(
    107,
    "sk_storage_get",
    [Map, HOST_SOCKET_OR_NULL, VALUE_OR_NULL, Anything],
    crate::RetKind::MapValueOrNull,
);
const DELETED_STORAGE_OR_NONE: HelperProto = f(108, "sk_storage_delete", [Map, HOST_SOCKET_OR_NULL], Number);

/// For programs that change the results of the host's functions.
pub(crate) static TRACING: &[HelperProto] = &[OBJECT_COOKIE, OBJECT_BUFF_LEN];
/// For programs that trace the host's functions and tracepoints.
pub(crate) static TRACING_STORAGE: &[HelperProto] =
    &[OBJECT_COOKIE, OBJECT_BUFF_LEN, STORAGE_OR_NONE, DELETED_STORAGE_OR_NONE];
/// For iterators that see sockets.
pub(crate) static ITERATOR: &[HelperProto] = &[
    OBJECT_COOKIE,
    OBJECT_SETSOCKOPT,
    OBJECT_GETSOCKOPT,
    OBJECT_BUFF_LEN,
    STORAGE_OR_NONE,
    DELETED_STORAGE_OR_NONE,
];
/// For security hooks that see sockets.
pub(crate) static SOCKET_HOOKS: &[HelperProto] =
    &[OBJECT_COOKIE, OBJECT_SETSOCKOPT, OBJECT_GETSOCKOPT, OBJECT_BUFF_LEN];
/// For programs that are about a socket but have another context.
pub(crate) static SOCKET_OPTIONS: &[HelperProto] = &[OBJECT_SETSOCKOPT, OBJECT_GETSOCKOPT];
/// For programs that select a socket of a reuse-port group.
pub(crate) static REUSEPORT: &[HelperProto] = &[OBJECT_COOKIE];
/// For programs whose context is a socket that is created or released.
pub(crate) static SOCKET_CONTEXT: &[HelperProto] =
    &[f(107, "sk_storage_get", [Map, Context, VALUE_OR_NULL, Anything], crate::RetKind::MapValueOrNull)];
/// For programs that select a socket for a packet, which may also select none.
pub(crate) static SOCKET_LOOKUP: &[HelperProto] =
    &[f(124, "sk_assign", [Context, ANY_SOCKET_OR_NULL, Anything], Number)];
/// For programs attached to performance events.
pub(crate) static PERF_EVENT: &[HelperProto] = &[f(27, "get_stackid", [Context, Map, Anything], Number)];
/// For programs attached to many functions at once.
pub(crate) static MULTI: &[HelperProto] = &[f(173, "get_func_ip", [Context], Number)];

/// All variants.
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
