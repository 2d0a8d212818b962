//! Programs that cannot be selected, and functions that cannot be linked.

use super::{REFUSED, refused, unlinkable};
use crate::support::*;
use skep_abi::RAW;
use skep_elf::Object;

#[test]
fn an_object_without_programs_is_refused_with_a_remedy() {
    let object = Object::parse(&ObjectFile::new().build()).unwrap();
    let expected = "the object has no program; put one into a section such as SEC(\"xdp\")";
    assert_eq!(object.only_program().unwrap_err().to_string(), expected);
    assert_eq!(object.program("x").unwrap_err().to_string(), expected);
}

#[test]
fn an_unknown_program_is_refused_with_the_known_ones() {
    let object = Object::parse(REFUSED).unwrap();
    assert_eq!(
        object.program("fire").unwrap_err().to_string(),
        "the object has no program fire; it has fine, core, ksym, kconfig, function, strange, indirect"
    );
    assert_eq!(
        object.only_program().unwrap_err().to_string(),
        "the object has several programs, name one of them: fine, core, ksym, kconfig, function, strange, \
         indirect"
    );
}

#[test]
fn an_unknown_section_is_refused_unless_the_type_is_given() {
    let bytes = include_bytes!("../../objects/linkage.bpf.o");
    let error = unlinkable(bytes, "mystery");
    let start = "program mystery: section mystery/thing stands for no known program type; say the type (--type), or use xdp, ";
    assert!(error.starts_with(start) && error.ends_with(", raw"), "{error}");
    assert!(error.contains(", socket, ") && error.len() < 600, "{error}");
    let object = Object::parse(bytes).unwrap();
    let source = object.program("mystery").unwrap().source(Some(&RAW)).unwrap();
    assert_eq!((source.program_type.name, source.insns.len()), ("raw", 2));
}

#[test]
fn the_type_of_an_old_section_name_is_suggested() {
    for (section, name) in [
        ("xdp_prog", "xdp"),
        ("xdp_prog/0", "xdp"),
        ("socket1", "socket_filter"),
        ("socket_filter", "socket_filter"),
        ("cgroup/sock1", "cgroup_sock"),
        ("classifier_egress", "sched_cls"),
    ] {
        let mut file = ObjectFile::new();
        let code = file.code(section, &RETURN_0);
        file.function("main", code, 0, RETURN_0.len() as u64);
        let error = unlinkable(&file.build(), "main");
        let expected = format!(
            "program main: section {section} stands for no known program type; say the type, probably --type {name}"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn functions_with_impossible_bounds_are_refused() {
    let with = |symbols: &[(&str, u64, u64)]| {
        let mut file = ObjectFile::new();
        let section = file.code("xdp", &[RETURN_0, RETURN_0].concat());
        for &(name, start, size) in symbols {
            file.function(name, section, start, size);
        }
        refused(&file.build())
    };
    assert_eq!(
        with(&[("f", 16, 24)]),
        "function f in section xdp reaches beyond the section's end (bytes 16 to 40); build the object again"
    );
    assert!(with(&[("f", 0, u64::MAX)]).contains("reaches beyond the section's end"));
    assert!(with(&[("f", u64::MAX - 8, 16)]).contains("reaches beyond the section's end"));
    assert!(with(&[("f", 4, 8)]).contains("does not divide into instructions of 8 bytes"));
    assert!(with(&[("f", 0, 20)]).contains("does not divide into instructions of 8 bytes"));
    assert!(
        with(&[("f", 0, 24), ("g", 16, 16)])
            .contains("function g in section xdp overlaps the function before it")
    );
    assert!(with(&[("f", 32, 0)]).contains("is empty"));
    assert!(with(&[("", 0, 16)]).contains("has no name"));
}

#[test]
fn invalid_instructions_are_named() {
    let mut file = ObjectFile::new();
    let code = file.code("xdp", &[&RETURN_0[..], &[0xff; 8], &RETURN_0[8..]].concat());
    file.function("f", code, 0, 32);
    assert_eq!(
        unlinkable(&file.build(), "f"),
        "function f in section xdp, counted from its start: slot 2: no instruction has the opcode 0xff"
    );
}
