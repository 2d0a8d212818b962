//! The helpers that families of program types may call.

use super::set::HelperSet;

/// What every type may call.
pub(crate) const COMMON: HelperSet = HelperSet::of(&[
    1, 2, 3, 5, 6, 7, 8, 12, 14, 35, 42, 80, 87, 88, 89, 93, 94, 105, 106, 112, 113, 114, 115, 118, 120, 123,
    125, 130, 131, 132, 133, 134, 149, 153, 154, 158, 164, 165, 169, 170, 171, 172, 175, 177, 181, 182, 194,
    195, 197, 198, 199, 200, 201, 202, 203, 208, 209, 210, 211,
]);

/// Conversions from a socket to the host's own structure.
const SOCKET_CASTS: HelperSet = HelperSet::of(&[136, 137, 138, 139, 140, 178, 196]);
/// Looking up sockets and releasing them.
const SOCKET_SEARCH: HelperSet = HelperSet::of(&[84, 85, 86, 99]);

/// What most network programs may call: events and a coarse clock.
pub(crate) const NETWORK: HelperSet = COMMON.with(&[25, 160]).union(SOCKET_CASTS);

/// Socket filters.
pub(crate) const SOCKET_FILTER: HelperSet = NETWORK.with(&[26, 46, 47, 68]);
/// Classifiers and actions.
pub(crate) const CLASSIFIER: HelperSet = SOCKET_FILTER.union(SOCKET_SEARCH).with(&[
    9, 10, 11, 13, 17, 18, 19, 20, 21, 23, 24, 28, 29, 30, 31, 32, 33, 34, 38, 39, 40, 41, 43, 48, 50, 66,
    69, 79, 83, 95, 96, 97, 98, 100, 107, 108, 110, 124, 135, 151, 152, 155, 163, 192, 204, 205, 206, 207,
]);
/// XDP.
pub(crate) const XDP: HelperSet = NETWORK
    .union(SOCKET_SEARCH)
    .with(&[23, 28, 44, 51, 54, 65, 69, 100, 110, 163, 188, 189, 190, 204, 205, 206, 207]);
/// Lightweight tunnels, output.
pub(crate) const TUNNEL_OUT: HelperSet = NETWORK.with(&[17, 24, 26, 28, 33, 34, 39]);
/// Lightweight tunnels, input.
pub(crate) const TUNNEL_IN: HelperSet = TUNNEL_OUT.with(&[73]);
/// Lightweight tunnels, transmission.
pub(crate) const TUNNEL_XMIT: HelperSet =
    TUNNEL_IN.with(&[9, 10, 11, 13, 20, 21, 23, 29, 30, 38, 40, 41, 43, 135]);
/// Lightweight tunnels, local segments (seg6local).
pub(crate) const TUNNEL_LOCAL: HelperSet = TUNNEL_OUT.with(&[74, 75, 76]);
/// Flow dissectors.
pub(crate) const DISSECTOR: HelperSet = NETWORK.without(&[25]).with(&[26]);
/// Streams of socket maps.
pub(crate) const STREAM: HelperSet =
    NETWORK.union(SOCKET_SEARCH).with(&[9, 26, 38, 39, 43, 46, 47, 50, 52, 72]);
/// Messages of socket maps.
pub(crate) const MESSAGE: HelperSet = NETWORK.with(&[15, 17, 60, 61, 62, 63, 71, 90, 91, 107, 108, 122]);
/// Events of TCP connections.
pub(crate) const SOCKET_OPS: HelperSet =
    NETWORK.with(&[46, 49, 53, 57, 59, 70, 81, 96, 107, 108, 122, 142, 143, 144]);
/// Socket look-up for a packet.
pub(crate) const SOCKET_LOOKUP: HelperSet = NETWORK.with(&[86, 124]);
/// Socket selection in a reuse-port group.
pub(crate) const REUSEPORT: HelperSet = COMMON.with(&[26, 46, 68, 82, 160]);

/// What all control group programs that run in the context of a task may call.
const CGROUP: HelperSet = COMMON.with(&[15, 16, 17, 25, 37, 81]);
/// Those of them that may also read and change their result.
const CGROUP_RESULT: HelperSet = CGROUP.with(&[186, 187]);
/// Packets of a control group.
pub(crate) const CGROUP_PACKET: HelperSet =
    SOCKET_FILTER.union(SOCKET_SEARCH).with(&[79, 81, 83, 95, 96, 97, 98, 107, 108, 128, 129]);
/// Sockets that are created and released.
pub(crate) const CGROUP_SOCKET: HelperSet = CGROUP_RESULT.with(&[46, 107, 122, 160]);
/// Devices.
pub(crate) const CGROUP_DEVICE: HelperSet = CGROUP_RESULT;
/// Addresses, if the result only says that the program ran.
pub(crate) const CGROUP_ADDRESS_ONLY: HelperSet =
    CGROUP.union(SOCKET_CASTS).union(SOCKET_SEARCH).with(&[46, 49, 57, 107, 108, 122, 160]);
/// Addresses.
pub(crate) const CGROUP_ADDRESS: HelperSet = CGROUP_ADDRESS_ONLY.with(&[186, 187]);
/// Addresses of outgoing connections.
pub(crate) const CGROUP_CONNECT: HelperSet = CGROUP_ADDRESS.with(&[64]);
/// Sysctl settings.
pub(crate) const CGROUP_SYSCTL: HelperSet = CGROUP_RESULT.with(&[101, 102, 103, 104, 160]);
/// Reading socket options.
pub(crate) const CGROUP_GETSOCKOPT: HelperSet = CGROUP_RESULT.with(&[96, 107, 108, 122]);
/// Setting socket options.
pub(crate) const CGROUP_SETSOCKOPT: HelperSet = CGROUP_GETSOCKOPT.with(&[49, 57]);

/// What all tracing programs may call.
const TRACE: HelperSet =
    COMMON.with(&[4, 15, 16, 22, 25, 27, 36, 37, 45, 55, 67, 109, 117, 141, 148, 156, 157, 176, 180, 191]);
/// Tracepoints.
pub(crate) const TRACEPOINT: HelperSet = TRACE.with(&[174]);
/// Probes. Whether `override_return` (58) is available depends on how the host was built.
pub(crate) const PROBE: HelperSet = TRACEPOINT.with(&[58, 173]);
/// Performance events.
pub(crate) const PERF_EVENT: HelperSet = TRACEPOINT.with(&[56, 119]);
/// Programs that see the host's objects.
const OBJECTS: HelperSet = TRACE.union(SOCKET_CASTS).with(&[46, 111, 121, 162, 188]);
/// Functions whose result the program may replace.
pub(crate) const FUNCTION_MODIFY: HelperSet = OBJECTS.with(&[147, 173, 174, 183, 184, 185]);
/// Functions.
pub(crate) const FUNCTION: HelperSet = FUNCTION_MODIFY.with(&[107, 108]);
/// Tracepoints with typed arguments.
pub(crate) const TYPED_TRACEPOINT: HelperSet = OBJECTS.with(&[107, 108, 174]);
/// Iterators.
pub(crate) const ITERATOR: HelperSet = OBJECTS.with(&[49, 57, 107, 108, 126, 127, 147, 150]);
/// Security hooks. Some of these helpers only in some hooks.
const SECURITY: HelperSet = OBJECTS.with(&[107, 108, 145, 146, 147, 159, 161, 193]);
/// Security hooks of the whole system.
pub(crate) const SECURITY_HOOK: HelperSet = SECURITY.with(&[174, 183, 184, 185]);
/// Security hooks of a control group.
pub(crate) const CGROUP_SECURITY_HOOK: HelperSet = SECURITY.with(&[49, 57, 81, 186, 187]);
/// System calls.
pub(crate) const SYSCALL: HelperSet = OBJECTS.with(&[166, 167, 168, 179]);
/// `struct_ops`; the last is for congestion control alone.
pub(crate) const STRUCT_OPS: HelperSet = COMMON.with(&[49, 57, 107, 108, 160, 116]);
/// Infrared remote controls.
pub(crate) const INFRARED: HelperSet = COMMON.with(&[77, 78, 92]);
/// What skep's own type may call: helpers that need neither a task nor a host's memory.
pub(crate) const RAW: HelperSet = HelperSet::of(&[
    1, 2, 3, 5, 6, 7, 8, 12, 28, 42, 87, 88, 89, 93, 94, 105, 106, 118, 125, 130, 131, 132, 133, 134, 160,
    164, 165, 169, 170, 171, 172, 177, 181, 182, 194, 195, 197, 198, 199, 200, 201, 202, 203, 208, 209,
]);
