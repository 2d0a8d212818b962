//! Abbreviations used by the helper tables.

use crate::context::StructKind;
use crate::helper::{Access, ArgKind, HelperProto, RetKind};

pub(super) use ArgKind::{
    AllocationSize, Anything, CallbackContext, ConstString, Context, ContextOrNull, Format, KptrField, Map,
    MapKey, None as No, PerCpuVariable, Printed, Record, Scalar, Timer, Values, Zero,
};
pub(super) use RetKind::{Scalar as Number, SizeOrError, Void};

/// Memory that the helper reads; the next argument is its size.
pub(super) const READ: ArgKind = ArgKind::Memory { access: Access::Read, nullable: false };
/// The same, or null.
pub(super) const READ_OR_NULL: ArgKind = ArgKind::Memory { access: Access::Read, nullable: true };
/// Memory that the helper fills; the next argument is its size.
pub(super) const WRITE: ArgKind = ArgKind::Memory { access: Access::Write, nullable: false };
/// The same, or null.
pub(super) const WRITE_OR_NULL: ArgKind = ArgKind::Memory { access: Access::Write, nullable: true };
/// Memory that the helper reads and changes; the next argument is its size.
pub(super) const UPDATE: ArgKind = ArgKind::Memory { access: Access::ReadWrite, nullable: false };
/// A size that is not 0.
pub(super) const SIZE: ArgKind = ArgKind::Size { zero: false };
/// A size, which may be 0.
pub(super) const SIZE0: ArgKind = ArgKind::Size { zero: true };
/// The value to store in the map.
pub(super) const VALUE: ArgKind = ArgKind::MapValue(Access::Read);
/// Room for a copy of the map's value.
pub(super) const VALUE_OUT: ArgKind = ArgKind::MapValue(Access::Write);
/// The initial value of a storage element, or null.
pub(super) const VALUE_OR_NULL: ArgKind = ArgKind::MapValueOrNull(Access::Read);
/// Room for a 64-bit number.
pub(super) const U64_OUT: ArgKind = fixed(Access::Write, 8);
/// The start of a string; the helper finds its end.
pub(super) const STRING: ArgKind = fixed(Access::Read, 1);

/// Any structure that begins like `struct bpf_sock`.
const SOCKETS: &[StructKind] =
    &[StructKind::SockCommon, StructKind::Sock, StructKind::TcpSock, StructKind::XdpSock];
/// A socket, as a structure with a stable layout.
pub(super) const SOCKET: ArgKind = ArgKind::Struct { kinds: SOCKETS, nullable: false };
/// A socket of the host, as a structure with a stable layout or by the host's own type.
pub(super) const ANY_SOCKET: ArgKind =
    ArgKind::StructOrObject { kinds: SOCKETS, types: &["sock_common"], nullable: false };
/// The same, or null.
pub(super) const ANY_SOCKET_OR_NULL: ArgKind =
    ArgKind::StructOrObject { kinds: SOCKETS, types: &["sock_common"], nullable: true };

/// A socket of the host that a read-side critical section may keep alive, or null.
pub(super) const HOST_SOCKET_OR_NULL: ArgKind = ArgKind::Object { types: &["sock_common"], nullable: true };

/// 0, or a negated error number.
pub(super) const STATUS: RetKind = RetKind::Range { min: -4095, max: 0 };
/// A number of 32 bits.
pub(super) const U32: RetKind = RetKind::Range { min: 0, max: u32::MAX as i64 };

/// A helper with fewer than six arguments.
pub(super) const fn f<const N: usize>(
    id: u32,
    name: &'static str,
    args: [ArgKind; N],
    ret: RetKind,
) -> HelperProto {
    let mut all = [No; 5];
    let mut at = 0;
    while at < N {
        all[at] = args[at];
        at += 1;
    }
    HelperProto::new(id, name, all, ret)
}

/// Memory of a fixed size.
pub(super) const fn fixed(access: Access, bytes: u32) -> ArgKind {
    ArgKind::FixedMemory { access, bytes }
}

/// An object of the host.
pub(super) const fn object(types: &'static [&'static str]) -> ArgKind {
    ArgKind::Object { types, nullable: false }
}

/// An object of the host, or null.
pub(super) const fn object_or_null(types: &'static [&'static str]) -> ArgKind {
    ArgKind::Object { types, nullable: true }
}

/// An object of the host as result, or null.
pub(super) const fn gives(of: &'static str) -> RetKind {
    RetKind::Object { of, maybe_null: true }
}

/// A structure with a stable layout as result, or null.
pub(super) const fn found(kind: StructKind) -> RetKind {
    RetKind::Struct { kind, maybe_null: true }
}
