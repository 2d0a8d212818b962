//! Programs in the assembler's syntax, and the verifier's verdicts on them.
#![allow(dead_code)] // each test file uses its part

pub(crate) mod host;
pub(crate) mod world;

use skep_abi::{
    Context, Entry, Function, MapDef, MapFlags, MapKind, ProgramSource, ProgramType, RAW, SCHED_CLS,
    SOCKET_FILTER, XDP,
};
use skep_isa::{CallTarget, Imm64, Insn};
use skep_verifier::{Code, Config, Refusal, Unverified, Verified, verify};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maps that test programs may name by index.
///
/// 0: hash of 4-byte keys and 16-byte values; 1: array of one 64-byte value; 2: read-only array; 3: write-only array;
/// 4: program array; 5: per-CPU array of 8-byte values; 6: ring buffer; 7: hash with 8-byte keys and 4-byte values.
/// More in [`world::maps`].
pub(crate) fn maps() -> Arc<[MapDef]> {
    let map = |name: &str, kind, key_size, value_size, max_entries, flags| MapDef {
        flags,
        ..MapDef::new(name, kind, key_size, value_size, max_entries)
    };
    let mut maps = vec![
        map("hash", MapKind::Hash, 4, 16, 128, MapFlags(0)),
        map("bss", MapKind::Array, 4, 64, 1, MapFlags(0)),
        map("rodata", MapKind::Array, 4, 64, 1, MapFlags::RDONLY_PROG),
        map("sink", MapKind::Array, 4, 64, 1, MapFlags::WRONLY_PROG),
        map("programs", MapKind::ProgArray, 4, 4, 8, MapFlags(0)),
        map("counters", MapKind::PercpuArray, 4, 8, 16, MapFlags(0)),
        map("ring", MapKind::Ringbuf, 0, 0, 4096, MapFlags(0)),
        map("wide", MapKind::Hash, 8, 4, 128, MapFlags(0)),
    ];
    maps.extend(world::maps());
    maps.into()
}

/// The type of that name.
pub(crate) fn kind(name: &str) -> &'static ProgramType {
    match name {
        "xdp" => &XDP,
        "tc" => &SCHED_CLS,
        "socket" => &SOCKET_FILTER,
        "raw" => &RAW,
        "tracing" | "tracing.s" => &world::TRACING,
        "probe" => &world::PROBE,
        other => ProgramType::from_section(other).unwrap_or_else(|| panic!("no program type {other}")),
    }
}

/// A program of that type; each target of a local call becomes a function. Raw programs receive 16 bytes.
pub(crate) fn program(kind: &'static ProgramType, text: &str) -> Unverified {
    let insns = skep_isa::assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    from_insns(kind, insns)
}

pub(crate) fn from_insns(kind: &'static ProgramType, insns: Vec<Insn>) -> Unverified {
    let mut starts = BTreeSet::from([0]);
    for (slot, insn) in insns.iter().enumerate() {
        if let Insn::Call { target: CallTarget::Local(offset) }
        | Insn::LoadImm64 { value: Imm64::Function(offset), .. } = insn
        {
            starts.insert((slot as i64 + 1 + i64::from(*offset)) as u32);
        }
    }
    let functions =
        starts.into_iter().map(|start| Function::new(format!("f{start}"), start, false)).collect();
    let entry = match kind.context {
        Context::Buffer => Entry::Buffer { len: 16 },
        _ => Entry::Context,
    };
    let source = ProgramSource { functions, ..ProgramSource::new("test", kind, insns) };
    Unverified { source, maps: maps(), entry }
}

pub(crate) fn check(kind_name: &str, text: &str) -> Result<Verified, Box<Refusal>> {
    let mut program = program(kind(kind_name), text);
    program.source.sleepable = kind_name.ends_with(".s");
    verify(program, &Config::default())
}

#[track_caller]
pub(crate) fn accepted(kind_name: &str, text: &str) -> Verified {
    match check(kind_name, text) {
        Ok(verified) => verified,
        Err(refusal) => panic!("{refusal}\n{text}"),
    }
}

/// Asserts a refusal with that code and that phrase in its one-line text.
#[track_caller]
pub(crate) fn refused(kind_name: &str, text: &str, code: Code, phrase: &str) -> Refusal {
    match check(kind_name, text) {
        Ok(verified) => panic!("accepted after {} instructions\n{text}", verified.stats().walked),
        Err(refusal) => {
            let line = refusal.to_string();
            assert_eq!(refusal.code, code, "{line}\n{text}");
            assert!(line.contains(phrase), "no {phrase:?} in {line:?}\n{text}");
            assert!(!line.contains('\n'), "{line:?}");
            *refusal
        }
    }
}
