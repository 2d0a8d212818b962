//! The types of the running system: found quickly, and what everybody knows of them.

use std::time::{Duration, Instant};

use skep_btf::{Btf, Kind, What};

const PATH: &str = "/sys/kernel/btf/vmlinux";

fn system() -> Option<Vec<u8>> {
    match std::fs::read(PATH) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            eprintln!("SKIPPED: types of the running system: {PATH}: {error}");
            None
        }
    }
}

#[test]
fn a_systems_types_are_found_in_milliseconds() {
    let Some(bytes) = system() else { return };
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let bytes: std::sync::Arc<[u8]> = bytes.as_slice().into();
        let started = Instant::now();
        let btf = Btf::parse(bytes).unwrap();
        let parsed = started.elapsed();
        let task = btf.find("task_struct", Kind::Struct);
        let found = started.elapsed();
        best = best.min(found);
        assert!(task.is_some() && btf.len() > 10_000);
        eprintln!("{} types: parsed in {parsed:?}, first name in {found:?}", btf.len());
    }
    assert!(best < Duration::from_millis(200), "{best:?}");
}

#[test]
fn every_type_of_the_system_has_a_name_and_every_member_a_place() {
    let Some(bytes) = system() else { return };
    let btf = Btf::parse(bytes).unwrap();
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
    assert!(members > 10_000, "{members}");
}

#[test]
fn functions_and_trace_points_of_the_system_have_prototypes() {
    let Some(bytes) = system() else { return };
    let btf = Btf::parse(bytes).unwrap();
    let function = btf.find("vfs_read", Kind::Func).unwrap();
    let params: Vec<_> = btf.prototype(function).unwrap().params().map(|p| p.name().unwrap()).collect();
    assert_eq!(params, ["file", "buf", "count", "pos"]);
    let point = btf.find("btf_trace_sched_switch", Kind::Typedef).unwrap();
    assert!(btf.prototype(point).unwrap().params().len() >= 4);
    let kfuncs = btf.own_types().filter(|ty| ty.kind == Kind::Func);
    let kfuncs = kfuncs.filter(|ty| btf.decl_tags(ty.id).any(|tag| tag.name == "bpf_kfunc")).count();
    eprintln!("{kfuncs} kfuncs");
}
