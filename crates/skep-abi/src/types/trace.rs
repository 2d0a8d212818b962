//! Types of programs that trace the host without type information: probes, tracepoints, performance events.

use super::fields::{double, layout, number, placed, pointer};
use super::{Context, Native, ProgramType, Results};
use crate::arch::PROBE_REGISTERS;
use crate::context::{ContextField, ContextLayout, FieldKind, Parts};
use crate::helpers::{sets, variants};
use skep_isa::Size;

/// The family's types.
pub(super) static TYPES: &[&ProgramType] = &[
    &ProgramType { sections: &["kprobe", "kretprobe", "ksyscall", "kretsyscall"], ..PROBE },
    &ProgramType { sections: &["uprobe", "uretprobe", "usdt"], may_sleep: true, ..PROBE },
    &ProgramType { attach: Some(42), sections: &["kprobe.multi", "kretprobe.multi"], ..MULTI },
    &ProgramType {
        attach: Some(56),
        sections: &["kprobe.session"],
        results: Results::Range { min: 0, max: 1 },
        ..MULTI
    },
    &ProgramType {
        attach: Some(48),
        sections: &["uprobe.multi", "uretprobe.multi"],
        may_sleep: true,
        ..MULTI
    },
    &ProgramType {
        name: "tracepoint",
        number: Some(5),
        sections: &["tracepoint", "tp"],
        context: Context::Bytes {
            name: "the tracepoint's record",
            first: 8,
            bytes: 8192,
            writable: false,
            words: false,
        },
        native: Some(Native::Bytes),
        helpers: sets::TRACEPOINT,
        ..TRACE
    },
    &ProgramType {
        name: "perf_event",
        number: Some(7),
        sections: &["perf_event"],
        context: Context::Struct(&PERF_EVENT_DATA),
        native: Some(Native::Struct),
        helpers: sets::PERF_EVENT,
        variants: variants::PERF_EVENT,
        ..TRACE
    },
    &ProgramType {
        name: "raw_tracepoint",
        number: Some(17),
        sections: &["raw_tracepoint", "raw_tp"],
        context: Context::Bytes {
            name: "bpf_raw_tracepoint_args",
            first: 0,
            bytes: 8 * RAW_ARGUMENTS,
            writable: false,
            words: false,
        },
        native: Some(Native::Bytes),
        helpers: sets::TRACEPOINT,
        ..TRACE
    },
    &ProgramType {
        name: "raw_tracepoint_writable",
        number: Some(24),
        sections: &["raw_tracepoint.w", "raw_tp.w"],
        context: Context::Struct(&RAW_WRITABLE),
        native: Some(Native::Struct),
        helpers: sets::TRACEPOINT,
        ..TRACE
    },
];

const TRACE: ProgramType = ProgramType { may_leak: true, ..ProgramType::PLAIN };

const PROBE: ProgramType = ProgramType {
    name: "kprobe",
    number: Some(2),
    context: Context::Bytes {
        name: "pt_regs",
        first: 0,
        bytes: 8 * PROBE_REGISTERS as u32,
        writable: false,
        words: false,
    },
    native: Some(Native::Bytes),
    helpers: sets::PROBE,
    ..TRACE
};

const MULTI: ProgramType = ProgramType { variants: variants::MULTI, ..PROBE };

/// Most arguments of a tracepoint.
const RAW_ARGUMENTS: u32 = 12;

/// `struct bpf_perf_event_data`: the registers, then the period of the sample and the address that was accessed.
static PERF_EVENT_DATA: ContextLayout = layout(
    "bpf_perf_event_data",
    8 * (PROBE_REGISTERS as u32 + 2),
    placed!(8 * (PROBE_REGISTERS as u32 + 2), &PERF_EVENT_FIELDS),
);

const PERF_EVENT_FIELDS: [ContextField; PROBE_REGISTERS + 2] = {
    let mut fields = [double("regs", 0); PROBE_REGISTERS + 2];
    let mut at = 0;
    while at < PROBE_REGISTERS {
        fields[at].offset = 8 * at as u32;
        at += 1;
    }
    let behind = 8 * PROBE_REGISTERS as u32;
    fields[PROBE_REGISTERS] = number("sample_period", behind, Size::B8, Parts::any(Size::B8));
    fields[PROBE_REGISTERS + 1] = number("addr", behind + 8, Size::B8, Parts::any(Size::B8));
    fields
};

/// The first argument is the address of a record that the program may write. Its length is known at attachment.
static RAW_WRITABLE: ContextLayout =
    layout("bpf_raw_tracepoint_args", 8 * RAW_ARGUMENTS, placed!(8 * RAW_ARGUMENTS, &RAW_FIELDS));

const RAW_FIELDS: [ContextField; RAW_ARGUMENTS as usize] = {
    let any = number("args", 0, Size::B8, Parts::any(Size::B8));
    let mut fields = [any; RAW_ARGUMENTS as usize];
    fields[0] = pointer(
        "args[0]",
        0,
        FieldKind::Memory { bytes: i16::MAX as u32, writable: true, maybe_null: false },
    );
    let mut at = 1;
    while at < fields.len() {
        fields[at].offset = 8 * at as u32;
        at += 1;
    }
    fields
};
