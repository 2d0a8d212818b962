//! Programs for the running system: what CO-RE and kernel symbols become with the types that it offers.

use skep_abi::{ExternKind, MISSING_FUNCTION, ProgramSource, RAW, UNRELOCATED};
use skep_btf::{Btf, Kind};
use skep_elf::{LinkOptions, Object};
use skep_isa::{CallTarget, Imm64, Insn, Operand};

const SYSTEM: &[u8] = include_bytes!("objects/system.bpf.o");
const PATH: &str = "/sys/kernel/btf/vmlinux";

fn target() -> Option<Btf> {
    match std::fs::read(PATH) {
        Ok(bytes) => Some(Btf::parse(bytes).unwrap()),
        Err(error) => {
            eprintln!("SKIPPED: programs for the running system: {PATH}: {error}");
            None
        }
    }
}

fn link(program: &str, target: &Btf) -> ProgramSource {
    let options = LinkOptions { target: Some(target), ..LinkOptions::default() };
    Object::parse(SYSTEM).unwrap().program(program).unwrap().link(Some(&RAW), &options).unwrap()
}

#[test]
fn loads_find_the_systems_fields() {
    let Some(target) = target() else { return };
    let task = target.find("task_struct", Kind::Struct).unwrap();
    let offset = |name: &str| {
        let found = target.members(task).unwrap().find(|member| member.name() == Ok(name));
        found.unwrap().bit_offset as i16 / 8
    };
    let loads = |insn: &Insn| match *insn {
        Insn::Load { offset, .. } => Some(offset),
        _ => None,
    };
    let mut offsets: Vec<i16> = link("reads", &target).insns.iter().filter_map(loads).collect();
    let mut expected = [offset("pid"), offset("real_parent"), offset("tgid"), offset("comm") + 3];
    offsets.sort_unstable();
    expected.sort_unstable();
    assert_eq!(offsets, expected);
    let chosen = link("chooses", &target).insns;
    assert!(chosen.contains(&Insn::Call { target: CallTarget::Helper(UNRELOCATED) }));
    let immediates: Vec<i32> = link("execve", &target)
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
    let Some(target) = target() else { return };
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
        let values = loads(&link("values", &target));
        assert!(values.contains(&Imm64::Value(33)) && values.contains(&Imm64::Value(0)), "{values:?}");
    }
    let Some(runqueues) = target.find("runqueues", Kind::Var) else {
        eprintln!("SKIPPED: kernel variables: the types of this system have none");
        return;
    };
    let symbols = link("symbols", &target);
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
