//! Damaged type information, and types that cannot be used.

use super::refused;
use crate::support::btf::Attribute::{Number, Type};
use crate::support::btf::{Types, lines, object_with_map};
use crate::support::*;
use skep_elf::Object;

/// The error of an object with this `.BTF`.
fn refused_btf(btf: Vec<u8>) -> String {
    let mut file = ObjectFile::with_program();
    file.info(".BTF", btf);
    refused(&file.build())
}

#[test]
fn damaged_type_information_says_where() {
    assert_eq!(
        refused_btf(vec![1; 30]),
        "section .BTF is damaged at byte 0: it does not begin with 9f eb; build the object again with `clang -g`"
    );
    assert!(refused_btf(vec![0xeb, 0x9f, 1, 0, 0, 0, 0, 24]).contains("it is big-endian"));
    assert!(refused_btf(vec![0x9f, 0xeb, 1]).contains("the header is cut off"));
    assert!(refused_btf(vec![0x9f, 0xeb, 2, 0, 24, 0, 0, 0]).contains("at byte 2: its version is not 1"));
    assert!(
        refused_btf(vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0]).contains("the length of its header is impossible")
    );
    let mut btf = Types::new().build();
    btf[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(refused_btf(btf).contains("at byte 8: the types lie beyond the section"));
    let mut types = Types::new();
    types.add("x", 31, 0, 0, &[]);
    assert!(refused_btf(types.build()).contains("at byte 24: a type is of an unknown kind"));
    let mut types = Types::new();
    types.add("x", 4, 5, 0, &[]);
    assert!(refused_btf(types.build()).contains("at byte 24: a type is cut off"));
}

/// The error of an object with a hash map whose key has that type.
fn refused_key(types: Types, key: u32) -> String {
    let attributes = [Number("type", 1), Type("key", key), Number("value_size", 4), Number("max_entries", 1)];
    refused(&object_with_map(types, &attributes))
}

#[test]
fn types_that_contain_themselves_are_refused() {
    let mut types = Types::new();
    let loops = types.typedef("t", 1);
    assert_eq!(
        refused_key(types, loops),
        "section .BTF is damaged: type 1 is made of itself; build the object again with `clang -g`"
    );
    let mut types = Types::new();
    let loops = types.array(1, 1);
    assert!(refused_key(types, loops).contains("type 1 is made of itself"));
}

#[test]
fn types_without_a_needed_size_are_refused() {
    let mut types = Types::new();
    let function = types.function_type();
    assert_eq!(
        refused_key(types, function),
        "type 1 in section .BTF has no size that fits 32 bits; give a complete type"
    );
    assert!(refused_key(Types::new(), 0).contains("type 0 in section .BTF has no size"));
    let mut types = Types::new();
    let byte = types.int("char", 1);
    let many = types.array(byte, u32::MAX);
    let more = types.array(many, u32::MAX);
    assert!(refused_key(types, more).contains("type 3 in section .BTF has no size"));
    assert!(refused_key(Types::new(), 1000).contains("there is no type 1000"));
}

#[test]
fn damaged_line_records_say_where() {
    let with = |change: fn(&mut Vec<u8>)| {
        let mut types = Types::new();
        let section = types.string("xdp");
        let mut ext = lines(section, &[[0, section, section, 1 << 10]]);
        change(&mut ext);
        let mut file = ObjectFile::with_program();
        file.info(".BTF", types.build());
        file.info(".BTF.ext", ext);
        Object::parse(&file.build()).and_then(|object| object.program("program")?.source(None))
    };
    assert_eq!(with(|_| ()).unwrap().lines[0].line, 1);
    let error = |change| with(change).unwrap_err().to_string();
    assert_eq!(
        error(|ext| ext[32] = 200),
        "section .BTF.ext is damaged at byte 32: there are fewer records than it says; build the object again \
         with `clang -g`"
    );
    assert!(error(|ext| ext[24] = 7).contains("at byte 24: the size of a record is impossible"));
    assert!(error(|ext| ext[20] = 255).contains("the line records lie beyond the section"));
    assert!(error(|ext| ext[42] = 1).contains("a line record names a string that lies beyond the strings"));
}
