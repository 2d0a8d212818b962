//! What a BPF program may see of its host: program types with their contexts, helpers with their
//! prototypes, map kinds, and the few structures that compiled code, helpers and maps share.
//!
//! Everything here is data; nothing runs. The loader, the verifier, the compilers and the runtime read the same
//! tables, so they cannot disagree.
#![forbid(unsafe_code)]

mod arch;
mod attach;
mod context;
mod counts;
mod ends;
mod env;
mod format;
mod helper;
mod helpers;
mod kfuncs;
mod machine;
mod map;
mod own;
mod packet;
mod printed;
mod program;
mod shown;
mod sleep;
mod special;
mod types;

pub use attach::{WRITABLE_MEMBERS, WritableMember};
pub use context::{ContextField, ContextLayout, FieldKind, Parts, SkbContext, StructKind, XdpContext};
pub use counts::{BranchCount, CountsLink};
pub use ends::{EndsLink, MAX_WEIGHT, call_weight, round_weights};
pub use env::{
    ArenaLink, CallbackFn, HelperFn, InlineArray, Linkage, MAX_LOOPS, MAX_TAIL_CALLS, MapLink, ProgramTable,
    RunEnv,
};
pub use format::{Conversion, FormatError, MAX_FORMAT, MAX_PRINTED, Piece, Shown, parse_format};
pub use helper::{
    Access, ArgKind, Callback, DynptrArg, DynptrKind, HelperFlags, HelperProto, RetKind, TAIL_CALL,
};
pub use helpers::{CONFORMANCE, HelperSet, LINUX, linux_helper, map_helpers};
pub use kfuncs::{KFUNCS, Kfunc, KfuncFlags, SpecialKfunc, kfunc_named};
pub use machine::{
    CGROUP_BYTES, CGROUP_KN, MACHINE_FIELDS, MACHINE_GONE, MACHINE_MEMBERS, MACHINE_NUMBER, MACHINE_OWNERS,
    MachineField, TASK_BYTES, TASK_CGROUPS, TASK_CSS_SET, TASK_TGID,
};
pub use map::{Defect, MapDef, MapFlags, MapKind, SpecialFieldAt};
pub use own::{
    OWN_KFUNC, OWN_KFUNCS, OwnIterator, OwnKfunc, OwnParam, OwnReturn, own_kfunc, own_kfunc_number,
};
pub use printed::{Printable, Printed};
pub use program::{
    Entry, Extern, ExternKind, Function, LineInfo, MISSING_FUNCTION, Param, ParamTags, ProgramSource,
    Prototype, TargetFunction, UNRELOCATED,
};
pub use shown::{SHOWN_STRUCTS, SHOWN_TARGETS, ShownStruct};
pub use skep_btf::{
    CGROUP, CPU_MASK, CSS_SET, KERNFS_NODE, MAX_SPECIAL, OWN_TYPE, SpecialField, SpecialKind, TASK,
    machine_type, machine_type_name,
};
pub use sleep::{may_sleep_at, sleepers_use};
pub use special::holders;
pub use types::{
    AttachTo, Context, Native, ProgramType, RAW, Results, SCHED_CLS, SOCKET_FILTER, Section, SocketMaps,
    TYPES, XDP,
};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
