//! What the tests' host has besides the tables of `skep-abi`: helpers whose rules are tested before any type of
//! program may call them, a type that traces, and maps of every kind of value.

use skep_abi::{
    Access, ArgKind, Context, DynptrArg, DynptrKind, HelperProto, MapDef, MapFlags, MapKind, ProgramType,
    RetKind, SpecialField, SpecialKind, StructKind,
};
use std::sync::{Arc, LazyLock};

use ArgKind::{
    AllocationSize, Anything, Callback, CallbackContext, Map, MapKey, None as No, Record, Scalar, SpinLock,
    Timer,
};

/// A type whose programs look at the host's addresses anyway.
pub(crate) static TRACING: ProgramType = ProgramType {
    name: "tracing",
    number: Some(26),
    context: Context::Bytes { name: "pt_regs", bytes: 64, writable: false, words: true },
    may_leak: true,
    helpers: &[1, 2, 3, 5, 6, 7, 8],
    ..ProgramType::PLAIN
};

/// A type of program that interrupts others.
pub(crate) static PROBE: ProgramType = ProgramType { number: Some(2), name: "probe", ..TRACING };

const READ: ArgKind = ArgKind::Memory { access: Access::Read, nullable: false };
const WRITE: ArgKind = ArgKind::Memory { access: Access::Write, nullable: false };
const SIZE0: ArgKind = ArgKind::Size { zero: true };
const SIZE: ArgKind = ArgKind::Size { zero: false };
const VALUE: ArgKind = ArgKind::MapValue(Access::Read);
const VALUE_OUT: ArgKind = ArgKind::MapValue(Access::Write);
const DYNPTR: ArgKind = ArgKind::Dynptr(DynptrArg::Any);
const WRITABLE: ArgKind = ArgKind::Dynptr(DynptrArg::Writable);
const BACK: ArgKind = ArgKind::Dynptr(DynptrArg::Release);
const SOCKETS: &[StructKind] =
    &[StructKind::SockCommon, StructKind::Sock, StructKind::TcpSock, StructKind::XdpSock];
const SOCKET: ArgKind = ArgKind::Struct { kinds: SOCKETS, nullable: false };
const SOCKET_OR_NULL: ArgKind = ArgKind::Struct { kinds: SOCKETS, nullable: true };
const RELEASED: ArgKind = ArgKind::Released { nullable: false };
const STATUS: RetKind = RetKind::Range { min: -4095, max: i32::MAX as i64 };

const fn make(kind: DynptrKind) -> ArgKind {
    ArgKind::Dynptr(DynptrArg::Make(kind))
}

const fn socket(kind: StructKind) -> RetKind {
    RetKind::Struct { kind, maybe_null: true }
}

static PROTOS: LazyLock<Vec<HelperProto>> = LazyLock::new(|| {
    let f = HelperProto::new;
    let acquiring = |id, name, args, ret| HelperProto { acquires: true, ..f(id, name, args, ret) };
    let sleeping = |id, name, args, ret| HelperProto { sleeps: true, ..f(id, name, args, ret) };
    vec![
        f(51, "redirect_map", [Map, Anything, Anything, No, No], RetKind::Scalar),
        acquiring(
            84,
            "sk_lookup_tcp",
            [ArgKind::Context, READ, SIZE, Anything, Anything],
            socket(StructKind::Sock),
        ),
        f(86, "sk_release", [RELEASED, No, No, No, No], RetKind::Scalar),
        f(87, "map_push_elem", [Map, VALUE, Anything, No, No], RetKind::Scalar),
        f(88, "map_pop_elem", [Map, VALUE_OUT, No, No, No], RetKind::Scalar),
        f(89, "map_peek_elem", [Map, VALUE_OUT, No, No, No], RetKind::Scalar),
        f(93, "spin_lock", [SpinLock, No, No, No, No], RetKind::Void),
        f(94, "spin_unlock", [SpinLock, No, No, No, No], RetKind::Void),
        f(95, "sk_fullsock", [SOCKET, No, No, No, No], socket(StructKind::Sock)),
        f(96, "tcp_sock", [SOCKET, No, No, No, No], socket(StructKind::TcpSock)),
        f(98, "get_listener_sock", [SOCKET, No, No, No, No], socket(StructKind::Sock)),
        f(
            105,
            "strtol",
            [READ, SIZE, Anything, ArgKind::FixedMemory { access: Access::Write, bytes: 8 }, No],
            RetKind::Scalar,
        ),
        f(
            107,
            "sk_storage_get",
            [Map, SOCKET, ArgKind::MapValueOrNull(Access::Read), Anything, No],
            RetKind::MapValueOrNull,
        ),
        f(124, "sk_assign", [ArgKind::Context, SOCKET_OR_NULL, Anything, No, No], RetKind::Scalar),
        f(130, "ringbuf_output", [Map, READ, SIZE0, Anything, No], RetKind::Scalar),
        acquiring(131, "ringbuf_reserve", [Map, AllocationSize, Anything, No, No], RetKind::MemoryOrNull),
        f(132, "ringbuf_submit", [Record, Anything, No, No, No], RetKind::Void),
        f(133, "ringbuf_discard", [Record, Anything, No, No, No], RetKind::Void),
        f(134, "ringbuf_query", [Map, Anything, No, No, No], RetKind::Scalar),
        sleeping(148, "copy_from_user", [WRITE, SIZE0, Anything, No, No], RetKind::Scalar),
        f(
            165,
            "snprintf",
            [
                ArgKind::Memory { access: Access::Write, nullable: true },
                SIZE0,
                ArgKind::ConstString,
                ArgKind::Memory { access: Access::Read, nullable: true },
                SIZE0,
            ],
            RetKind::Scalar,
        ),
        f(
            164,
            "for_each_map_elem",
            [Map, Callback(skep_abi::Callback::ForEach), CallbackContext, Anything, No],
            STATUS,
        ),
        f(
            170,
            "timer_set_callback",
            [Timer, Callback(skep_abi::Callback::Timer), No, No, No],
            RetKind::Scalar,
        ),
        f(181, "loop", [Anything, Callback(skep_abi::Callback::Loop), CallbackContext, Anything, No], STATUS),
        f(
            209,
            "user_ringbuf_drain",
            [Map, Callback(skep_abi::Callback::Drain), CallbackContext, Anything, No],
            STATUS,
        ),
        f(169, "timer_init", [Timer, Map, Anything, No, No], RetKind::Scalar),
        f(171, "timer_start", [Timer, Anything, Anything, No, No], RetKind::Scalar),
        f(172, "timer_cancel", [Timer, No, No, No, No], RetKind::Scalar),
        f(182, "strncmp", [READ, SIZE, ArgKind::ConstString, No, No], RetKind::Scalar),
        acquiring(
            194,
            "kptr_xchg",
            [ArgKind::KptrField, ArgKind::Released { nullable: true }, No, No, No],
            RetKind::KptrOrNull,
        ),
        f(195, "map_lookup_percpu_elem", [Map, MapKey, Anything, No, No], RetKind::MapValueOrNull),
        f(197, "dynptr_from_mem", [WRITE, SIZE0, Anything, make(DynptrKind::Local), No], RetKind::Scalar),
        f(
            198,
            "ringbuf_reserve_dynptr",
            [Map, Scalar, Anything, make(DynptrKind::Ringbuf), No],
            RetKind::Scalar,
        ),
        f(199, "ringbuf_submit_dynptr", [BACK, Anything, No, No, No], RetKind::Void),
        f(200, "ringbuf_discard_dynptr", [BACK, Anything, No, No, No], RetKind::Void),
        f(201, "dynptr_read", [WRITE, SIZE0, DYNPTR, Anything, Anything], RetKind::Scalar),
        f(202, "dynptr_write", [WRITABLE, Anything, READ, SIZE0, Anything], RetKind::Scalar),
        f(203, "dynptr_data", [DYNPTR, Anything, AllocationSize, No, No], RetKind::DynptrDataOrNull),
    ]
});

/// The prototype of that helper, first from the tables that hosts use.
pub(crate) fn helper(id: u32) -> Option<&'static HelperProto> {
    skep_abi::linux_helper(id).or_else(|| PROTOS.iter().find(|proto| proto.id == id))
}

/// Maps from index 8 on:
///
/// 8: array whose 48-byte values have a lock at 0, a timer at 16 and a pointer to an object of type 7 at 32;
/// 9: the same as 8; 10: array of maps like 8; 11: queue of 8-byte values; 12: bloom filter of 4-byte values;
/// 13: xskmap; 14: sockmap; 15: devmap; 16: constants, "skep" and the numbers 1 to 12 behind its zero byte;
/// 17: sk_storage of 8-byte values; 18: stack traces; 19: hash of maps like 0 with 8-byte values; 20: array whose
/// 16-byte values are a pointer to an object of type 7 and one that nobody owns.
pub(crate) fn maps() -> Vec<MapDef> {
    let map = |name: &str, kind, sizes: (u32, u32), max_entries, flags| MapDef {
        name: name.to_owned(),
        kind,
        key_size: sizes.0,
        value_size: sizes.1,
        max_entries,
        flags,
        inner: None,
        fields: Vec::new(),
        frozen: None,
    };
    let plain = MapFlags(0);
    let field = |kind, offset, size| SpecialField { kind, offset, size };
    let locked = |name| MapDef {
        fields: vec![
            field(SpecialKind::SpinLock, 0, 4),
            field(SpecialKind::Timer, 16, 16),
            field(SpecialKind::Kptr { to: 7 }, 32, 8),
        ],
        ..map(name, MapKind::Array, (4, 48), 8, plain)
    };
    let constants: Vec<u8> = b"skep\0".iter().copied().chain(1..12).collect();
    vec![
        locked("locked"),
        locked("twin"),
        MapDef {
            inner: Some(Box::new(locked("outer.inner"))),
            ..map("outer", MapKind::ArrayOfMaps, (4, 4), 8, plain)
        },
        map("queue", MapKind::Queue, (0, 8), 8, plain),
        map("bloom", MapKind::BloomFilter, (0, 4), 8, plain),
        map("xsks", MapKind::Xskmap, (4, 4), 8, plain),
        map("socks", MapKind::Sockmap, (4, 4), 8, plain),
        map("devices", MapKind::Devmap, (4, 4), 8, plain),
        MapDef {
            frozen: Some(Arc::from(constants)),
            ..map("constants", MapKind::Array, (4, 16), 1, MapFlags::RDONLY_PROG)
        },
        map("storage", MapKind::SkStorage, (4, 8), 0, plain),
        map("traces", MapKind::StackTrace, (4, 64), 8, plain),
        MapDef {
            inner: Some(Box::new(map("tables.inner", MapKind::Hash, (4, 8), 8, plain))),
            ..map("tables", MapKind::HashOfMaps, (4, 4), 8, plain)
        },
        MapDef {
            fields: vec![
                field(SpecialKind::Kptr { to: 7 }, 0, 8),
                field(SpecialKind::KptrUntrusted { to: 7 }, 8, 8),
            ],
            ..map("kept", MapKind::Array, (4, 16), 8, plain)
        },
    ]
}
