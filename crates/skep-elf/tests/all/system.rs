//! Programs for a whole system: CO-RE and kernel symbols with the committed part of a Linux kernel's types, and with
//! the running system's if they are readable.

use skep_abi::{ExternKind, MISSING_FUNCTION, ProgramSource, RAW, UNRELOCATED};
use skep_btf::{Btf, Kind};
use skep_elf::{LinkOptions, Object};
use skep_isa::{CallTarget, Imm64, Insn, Operand};
use std::path::Path;

const SYSTEM: &[u8] = include_bytes!("../objects/system.bpf.o");
const RUNNING: &str = "/sys/kernel/btf/vmlinux";

fn targets() -> Vec<Btf> {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../skep-verifier/verdicts/linux.btf");
    let running = std::fs::read(RUNNING).inspect_err(|error| eprintln!("{RUNNING}: {error}")).ok();
    let files = std::iter::once(std::fs::read(committed).unwrap()).chain(running);
    files.map(|bytes| Btf::parse(bytes).unwrap()).collect()
}

fn link(program: &str, target: &Btf) -> ProgramSource {
    let options = LinkOptions { target: Some(target), ..LinkOptions::default() };
    Object::parse(SYSTEM).unwrap().program(program).unwrap().link(Some(&RAW), &options).unwrap()
}

#[test]
fn loads_find_the_systems_fields() {
    targets().iter().for_each(fields_are_found);
}

fn fields_are_found(target: &Btf) {
    let task = target.find("task_struct", Kind::Struct).unwrap();
    let offset = |name: &str| {
        let found = target.members(task).unwrap().find(|member| member.name() == Ok(name));
        found.unwrap().bit_offset as i16 / 8
    };
    let loads = |insn: &Insn| match *insn {
        Insn::Load { offset, .. } => Some(offset),
        _ => None,
    };
    let mut offsets: Vec<i16> = link("reads", target).insns.iter().filter_map(loads).collect();
    let mut expected = [offset("pid"), offset("real_parent"), offset("tgid"), offset("comm") + 3];
    offsets.sort_unstable();
    expected.sort_unstable();
    assert_eq!(offsets, expected);
    let chosen = link("chooses", target).insns;
    assert!(chosen.contains(&Insn::Call { target: CallTarget::Helper(UNRELOCATED) }));
    let immediates: Vec<i32> = link("execve", target)
        .insns
        .iter()
        .filter_map(|insn| match insn {
            Insn::Alu { src: Operand::Imm(imm), .. } => Some(*imm),
            _ => None,
        })
        .collect();
    // One bit that is not the highest of its integer: 63 bits are shifted out to the right.
    assert!(immediates.contains(&63), "{immediates:?}");
}

#[test]
fn enumerators_and_symbols_are_the_systems() {
    let targets = targets();
    targets.iter().for_each(values_and_symbols_are_found);
    assert!(targets[0].find("runqueues", Kind::Var).is_some(), "the committed types have variables");
}

fn values_and_symbols_are_found(target: &Btf) {
    let loads = |source: &ProgramSource| -> Vec<Imm64> {
        let value = |insn: &Insn| match insn {
            Insn::LoadImm64 { value, .. } => Some(*value),
            _ => None,
        };
        source.insns.iter().filter_map(value).collect()
    };
    let kinds = target.find("bpf_map_type", Kind::Enum).unwrap();
    let has = |name: &str| target.ty(kinds).unwrap().enumerators().any(|value| value.name() == Ok(name));
    if has("BPF_MAP_TYPE_ARENA") {
        let values = loads(&link("values", target));
        assert!(values.contains(&Imm64::Value(33)) && values.contains(&Imm64::Value(0)), "{values:?}");
    }
    // A running system's types may lack variables.
    let Some(runqueues) = target.find("runqueues", Kind::Var) else { return };
    let symbols = link("symbols", target);
    assert!(loads(&symbols).contains(&Imm64::Variable { id: runqueues.cast_signed(), object: 0 }));
    let called = |target| symbols.insns.contains(&Insn::Call { target });
    for name in ["bpf_rcu_read_lock", "bpf_rcu_read_unlock"] {
        let id = target.find(name, Kind::Func).unwrap().cast_signed();
        assert!(called(CallTarget::Kfunc { id, object: 0 }), "{name}");
    }
    assert!(called(CallTarget::Helper(MISSING_FUNCTION)));
    let names: Vec<&str> = symbols.externs.iter().map(|symbol| &*symbol.name).collect();
    assert_eq!(names.len(), 3);
    assert!(symbols.externs.iter().any(|symbol| symbol.kind == ExternKind::Variable(runqueues)));
}
