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
