//! The remaining types: system calls, netfilter, infrared remote controls, and skep's own.

use super::fields::{layout, placed, whole};
use super::{AttachTo, Context, Native, ProgramType, Results};
use crate::context::ContextLayout;
use crate::helpers::{sets, variants};

/// The family's types.
pub(super) static TYPES: &[&ProgramType] = &[
    &ProgramType {
        name: "syscall",
        number: Some(31),
        sections: &["syscall"],
        always_sleeps: true,
        context: Context::Bytes {
            name: "the caller's bytes",
            first: 0,
            bytes: u16::MAX as u32,
            writable: true,
            words: false,
        },
        native: Some(Native::Bytes),
        may_leak: true,
        helpers: sets::SYSCALL,
        variants: variants::TRACING,
        ..ProgramType::PLAIN
    },
    &ProgramType {
        name: "netfilter",
        number: Some(32),
        attach: Some(45),
        sections: &["netfilter"],
        context: Context::Arguments { of: AttachTo::Netfilter },
        native: Some(Native::Netfilter),
        helpers: sets::COMMON,
        results: Results::Range { min: 0, max: 1 },
        verdicts: &[(0, "drop"), (1, "accept")],
        ..ProgramType::PLAIN
    },
    &ProgramType {
        name: "lirc_mode2",
        number: Some(20),
        attach: Some(16),
        sections: &["lirc_mode2"],
        context: Context::Struct(&SAMPLE),
        native: Some(Native::Struct),
        helpers: sets::INFRARED,
        ..ProgramType::PLAIN
    },
    &RAW,
];

/// Programs over a host's buffer: `long prog(void *buffer, unsigned long len)`.
pub static RAW: ProgramType = ProgramType {
    name: "raw",
    sections: &["raw"],
    may_sleep: true,
    context: Context::Buffer,
    native: Some(Native::Buffer),
    helpers: sets::RAW,
    ..ProgramType::PLAIN
};

/// One pulse or pause.
static SAMPLE: ContextLayout = layout("the sample", 4, placed!(4, &[whole("sample", 0)]));
