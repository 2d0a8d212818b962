//! Errors of invalid objects: the defect, its place, and the remedy.

mod file;
mod maps;
mod programs;
mod relocations;
mod types;

use crate::support::*;
use skep_elf::Object;

const FIREWALL: &[u8] = include_bytes!("../../../../examples/firewall.bpf.o");
const REFUSED: &[u8] = include_bytes!("../objects/refused.bpf.o");

/// The error of parsing.
#[track_caller]
fn refused(bytes: &[u8]) -> String {
    Object::parse(bytes).expect_err("the object should be refused").to_string()
}

/// The error of linking a program.
#[track_caller]
fn unlinkable(bytes: &[u8], program: &str) -> String {
    let object = Object::parse(bytes).expect("the object itself is fine");
    object.program(program).unwrap().source(None).expect_err("the program should be refused").to_string()
}

/// An object whose program loads an address and calls, with one relocation.
fn relocated(place: impl FnOnce(&mut ObjectFile, SectionId)) -> Vec<u8> {
    let mut file = ObjectFile::new();
    let code = file.program("f", &[&LOAD_R1[..], &[0; 8], &CALL, &RETURN_0].concat());
    place(&mut file, code);
    file.build()
}
