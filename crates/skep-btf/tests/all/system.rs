//! Well-known types of a whole system: of the committed part of a Linux kernel's BTF, and of the running system's if
//! it is readable.

use std::path::Path;
use std::time::Instant;

use skep_btf::{Btf, Kind, What};

const RUNNING: &str = "/sys/kernel/btf/vmlinux";

pub(crate) fn systems() -> Vec<Vec<u8>> {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../skep-verifier/verdicts/linux.btf");
    let running = std::fs::read(RUNNING).inspect_err(|error| eprintln!("{RUNNING}: {error}")).ok();
    std::iter::once(std::fs::read(committed).unwrap()).chain(running).collect()
}

#[test]
fn a_systems_types_are_found_by_name() {
    for bytes in systems() {
        let started = Instant::now();
        let btf = Btf::parse(bytes).unwrap();
        let parsed = started.elapsed();
        let task = btf.find("task_struct", Kind::Struct);
        eprintln!("{} types: parsed in {parsed:?}, first name in {:?}", btf.len(), started.elapsed());
        assert!(task.is_some() && btf.len() > 1000);
        assert_eq!(btf.find("task_struct", Kind::Func), None);
        assert_eq!(btf.find("a_structure_of_no_system", Kind::Struct), None);
    }
}

#[test]
fn types_of_a_system_have_names_and_member_offsets() {
    for bytes in systems() {
        every_member_is_found(&Btf::parse(bytes).unwrap());
    }
}

fn every_member_is_found(btf: &Btf) {
    let mut members = 0;
    for ty in btf.own_types() {
        assert!(!btf.type_name(ty.id).unwrap().is_empty());
        for member in ty.members() {
            member.name().unwrap();
            let size = btf.size(member.ty).unwrap();
            if member.bits > 0 || size == 0 || ty.kind == Kind::Union {
                continue;
            }
            let found = btf.walk(ty.id, member.bit_offset / 8, size);
            match btf.resolve(member.ty).unwrap().kind {
                Kind::Ptr | Kind::Int | Kind::Enum => {
                    let found = found.unwrap_or_else(|error| panic!("{ty:?}: {error}"));
                    assert!(
                        matches!(found.what, What::Pointer(_) | What::Scalar { .. }),
                        "{ty:?} {member:?}"
                    );
                    assert_eq!((found.inner, found.path.len()), (0, 1), "{ty:?} {member:?}");
                    members += 1;
                }
                _ => {}
            }
        }
    }
    assert!(members > 500, "{members}");
}

#[test]
fn functions_and_trace_points_of_a_system_have_prototypes() {
    for bytes in systems() {
        let btf = Btf::parse(bytes).unwrap();
        let function = btf.find("vfs_read", Kind::Func).unwrap();
        let params: Vec<_> =
            btf.prototype(function).unwrap().params().map(|param| param.name().unwrap()).collect();
        assert_eq!(params, ["file", "buf", "count", "pos"]);
        let point = btf.find("btf_trace_sched_switch", Kind::Typedef).unwrap();
        assert!(btf.prototype(point).unwrap().params().len() >= 4);
    }
}
