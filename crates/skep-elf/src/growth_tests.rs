//! How work grows with what a file makes large: in steps, which do not depend on the machine.

#[path = "../tests/support/mod.rs"]
mod support;

use crate::Object;
use crate::steps::counted;
use support::btf::{Types, lines};
use support::{ObjectFile, RETURN_0};

/// Twice as much of it may cost so many times as much.
const GROWTH: f64 = 2.5;

fn assert_grows_with_the_file(what: &str, steps: impl Fn(u32) -> u64) {
    let (one, two) = (steps(1_000), steps(2_000));
    assert!(one >= 1_000, "{what}: only {one} steps were counted");
    let growth = two as f64 / one as f64;
    assert!(growth < GROWTH, "{what}: {one} steps, and for twice as much {two}");
}

/// So many programs in one section, with a source line for each instruction.
fn programs(count: u32) -> Object {
    let mut file = ObjectFile::new();
    let section = file.code("xdp", &RETURN_0.repeat(count as usize));
    for number in 0..count {
        file.function(&format!("program_{number}"), section, u64::from(number) * 16, 16);
    }
    let mut types = Types::new();
    let (name, text) = (types.string("xdp"), types.string("return 0;"));
    let records: Vec<_> = (0..2 * count).map(|insn| [insn * 8, text, text, insn << 10]).collect();
    file.info(".BTF", types.build());
    file.info(".BTF.ext", lines(name, &records));
    Object::parse(&file.build()).unwrap()
}

#[test]
fn linking_all_programs_of_an_object_grows_with_the_object() {
    assert_grows_with_the_file("programs", |count| {
        let object = programs(count);
        counted(|| {
            for number in 0..count {
                let program = object.program(&format!("program_{number}")).unwrap();
                assert_eq!(program.source(None).unwrap().lines.len(), 2);
            }
        })
    });
}

/// So many programs, each the only function of a structure of its own.
fn members(count: u32) -> Object {
    let mut file = ObjectFile::new();
    let section = file.code("struct_ops", &RETURN_0.repeat(count as usize));
    let data = file.data(".struct_ops", &vec![0; 8 * count as usize]);
    let mut types = Types::new();
    let function = types.function_type();
    let pointer = types.pointer(function);
    let names: Vec<_> = (0..count).map(|number| format!("member_{number}")).collect();
    let ops = types.structure("ops", &[("start", pointer)]);
    let variables: Vec<_> =
        names.iter().zip(0..).map(|(name, number)| (&**name, ops, 8 * number, 8)).collect();
    types.data_section(".struct_ops", &variables);
    for (name, number) in names.iter().zip(0..) {
        let symbol = file.function(name, section, number * 16, 16);
        file.relocate(data, number * 8, 2, symbol);
    }
    file.info(".BTF", types.build());
    Object::parse(&file.build()).unwrap()
}

#[test]
fn finding_the_members_that_programs_are_grows_with_the_object() {
    assert_grows_with_the_file("members of structures", |count| {
        counted(|| {
            let object = members(count);
            for program in object.programs() {
                let target = program.source(None).unwrap().target;
                assert_eq!(target.as_deref(), Some("ops.start"), "{}", program.name());
            }
        })
    });
}

/// As many members of one structure.
fn members_of_one(count: u32) -> Object {
    let mut file = ObjectFile::new();
    let section = file.code("struct_ops", &RETURN_0.repeat(count as usize));
    let data = file.data(".struct_ops", &vec![0; 8 * count as usize]);
    let mut types = Types::new();
    let function = types.function_type();
    let pointer = types.pointer(function);
    let names: Vec<_> = (0..count).map(|number| format!("member_{number}")).collect();
    let list: Vec<_> = names.iter().map(|name| (&**name, pointer)).collect();
    let ops = types.structure("ops", &list);
    types.data_section(".struct_ops", &[("one", ops, 0, 8 * count)]);
    for (name, number) in names.iter().zip(0..) {
        let symbol = file.function(name, section, number * 16, 16);
        file.relocate(data, number * 8, 2, symbol);
    }
    file.info(".BTF", types.build());
    Object::parse(&file.build()).unwrap()
}

#[test]
fn finding_many_members_of_one_structure_grows_with_the_object() {
    assert_grows_with_the_file("members of one structure", |count| {
        counted(|| {
            let object = members_of_one(count);
            for program in object.programs() {
                let target = program.source(None).unwrap().target;
                assert_eq!(target, Some(format!("ops.{}", program.name())));
            }
        })
    });
}
