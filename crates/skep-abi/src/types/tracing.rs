//! Types of programs that see the host's objects with their types.

use super::{AttachTo, Context, ProgramType, Results};
use crate::helpers::{sets, variants};

/// The family's types.
pub(super) static TYPES: &[&ProgramType] = &[
    &ProgramType {
        attach: Some(24),
        sections: &["fentry"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::FunctionEntry },
        helpers: sets::FUNCTION,
        results: ZERO,
        ..TRACING
    },
    &ProgramType {
        attach: Some(25),
        sections: &["fexit"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::FunctionExit },
        helpers: sets::FUNCTION,
        results: ZERO,
        ..TRACING
    },
    &ProgramType {
        attach: Some(26),
        sections: &["fmod_ret"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::FunctionModify },
        helpers: sets::FUNCTION_MODIFY,
        ..TRACING
    },
    &ProgramType {
        attach: Some(23),
        sections: &["tp_btf"],
        context: Context::Arguments { of: AttachTo::Tracepoint },
        helpers: sets::TYPED_TRACEPOINT,
        ..TRACING
    },
    &ProgramType {
        attach: Some(28),
        sections: &["iter"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::Iterator },
        helpers: sets::ITERATOR,
        variants: variants::TRACING_SOCKETS,
        results: FLAG,
        ..TRACING
    },
    &ProgramType {
        name: "lsm",
        number: Some(29),
        attach: Some(27),
        sections: &["lsm"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::SecurityHook },
        helpers: sets::SECURITY_HOOK,
        results: Results::OfAttachment,
        ..TRACING
    },
    &ProgramType {
        name: "lsm",
        number: Some(29),
        attach: Some(43),
        sections: &["lsm_cgroup"],
        context: Context::Arguments { of: AttachTo::SecurityHook },
        helpers: sets::CGROUP_SECURITY_HOOK,
        variants: variants::TRACING_SOCKETS,
        results: FLAG,
        ..TRACING
    },
    &ProgramType {
        name: "struct_ops",
        number: Some(27),
        sections: &["struct_ops"],
        may_sleep: true,
        context: Context::Arguments { of: AttachTo::StructOps },
        helpers: sets::STRUCT_OPS,
        variants: variants::SOCKET_OPTIONS,
        results: Results::OfAttachment,
        ..TRACING
    },
    &ProgramType {
        name: "ext",
        number: Some(28),
        sections: &["freplace"],
        context: Context::Arguments { of: AttachTo::ProgramFunction },
        helpers: sets::COMMON,
        variants: &[],
        results: Results::OfAttachment,
        ..TRACING
    },
];

const ZERO: Results = Results::Range { min: 0, max: 0 };
const FLAG: Results = Results::Range { min: 0, max: 1 };

const TRACING: ProgramType = ProgramType {
    name: "tracing",
    number: Some(26),
    may_leak: true,
    variants: variants::TRACING,
    ..ProgramType::PLAIN
};
