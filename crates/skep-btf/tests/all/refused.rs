//! Types that a kernel refuses from a process, in its words.

use crate::support::Types;
use skep_btf::{Btf, CheckFault, check_sections};

/// What is wrong with types that begin with an integer of 4 bytes, which has the number 1.
fn wrong(make: impl FnOnce(&mut Types, u32)) -> String {
    let mut types = Types::new();
    let int = types.int("int", 4);
    make(&mut types, int);
    let checked = Btf::parse(types.build()).unwrap().check();
    checked.map_or_else(|malformed| malformed.to_string(), |()| "nothing".to_owned())
}

#[test]
fn parameters_are_named_by_their_number() {
    let proto = |params: &[(&str, u32)]| wrong(|types, int| _ = types.function("f", 0, int, params));
    assert_eq!(proto(&[("a", 1), ("b", 1)]), "nothing");
    assert_eq!(proto(&[("a", 1), ("", 0)]), "nothing", "of any number");
    assert_eq!(proto(&[("a", 1), ("b", 0)]), "[2] FUNC_PROTO Invalid arg#2");
    assert_eq!(proto(&[("", 0), ("b", 1)]), "[2] FUNC_PROTO Invalid arg#1");
    assert_eq!(proto(&[("a", 1), ("b", 1), ("!", 1)]), "[2] FUNC_PROTO Invalid arg#3");
    assert_eq!(proto(&[("a", 1), ("b", 77)]), "[2] FUNC_PROTO Invalid arg#2");
    assert_eq!(proto(&[("a", 1), ("", 1)]), "[3] FUNC Invalid arg#2");
}

#[test]
fn tags_come_before_typedefs_and_qualifiers() {
    let behind = |make: fn(&mut Types, u32) -> u32| {
        wrong(|types, int| {
            let target = make(types, int);
            types.pointer(target);
        })
    };
    let late = "PTR Type tags don't precede modifiers";
    assert_eq!(behind(|types, int| types.tag("user", int)), "nothing");
    assert_eq!(
        behind(|types, int| {
            let constant = types.constant(int);
            let one = types.tag("one", constant);
            types.tag("two", one)
        }),
        "nothing"
    );
    let constant = |types: &mut Types, int| {
        let tag = types.tag("user", int);
        types.constant(tag)
    };
    assert_eq!(behind(constant), format!("[4] {late}"));
    let tagged = |types: &mut Types, int| {
        let tag = types.tag("one", int);
        let name = types.typedef("t", tag);
        types.tag("two", name)
    };
    assert_eq!(behind(tagged), format!("[5] {late}"));
    // Behind another pointer, tags begin anew.
    let again = |types: &mut Types, int| {
        let tag = types.tag("user", int);
        let pointer = types.pointer(tag);
        types.constant(pointer)
    };
    assert_eq!(behind(again), "nothing");
    assert_eq!(wrong(|types, int| _ = constant(types, int)), "nothing", "no pointer");
}

#[test]
fn members_are_where_their_types_may_be() {
    let odd = |types: &mut Types| types.add("odd", 1, 0, 4, &[31]);
    let fields = |bits: u32, offset: u32| {
        wrong(|types, _| {
            let odd = odd(types);
            types.bit_fields("s", 8, &[("a", odd, offset, bits)]);
        })
    };
    assert_eq!(fields(3, 0), "[3] STRUCT Invalid member base type");
    assert_eq!(fields(0, 0), "[3] STRUCT Invalid member base type");
    let of_int = |bits, offset| wrong(|types, int| _ = types.bit_fields("s", 8, &[("a", int, offset, bits)]));
    assert_eq!((of_int(3, 1), of_int(0, 8)), ("nothing".to_owned(), "nothing".to_owned()));
    assert_eq!(of_int(0, 1), "[2] STRUCT Invalid member offset");
    assert_eq!(of_int(33, 0), "[2] STRUCT Invalid member bitfield_size");
    let of_enum = |offset| {
        wrong(|types, _| {
            let values = types.enumeration("e", &[("A", 1)]);
            types.bit_fields("s", 8, &[("a", values, offset, 0)]);
        })
    };
    assert_eq!(
        (of_enum(8), of_enum(4)),
        ("nothing".to_owned(), "[3] STRUCT Invalid member offset".to_owned())
    );
    let float = |size: u32, offset: u32| {
        wrong(|types, _| {
            let float = types.add("float", 16, 0, size, &[]);
            types.composite(4, "s", 32, &[("a", float, offset)]);
        })
    };
    assert_eq!((float(4, 4), float(16, 8)), ("nothing".to_owned(), "nothing".to_owned()));
    assert_eq!(float(4, 2), "[3] STRUCT Member is not properly aligned");
    assert_eq!(float(16, 4), "[3] STRUCT Member is not properly aligned");
}

#[test]
fn one_fault_is_told_before_another() {
    assert_eq!(wrong(|types, _| _ = types.add("", 7, 0, 1, &[])), "[2] FWD type != 0");
    assert_eq!(wrong(|types, int| _ = types.add("", 17, 0, int, &[0])), "[2] DECL_TAG Invalid value");
    let variables = wrong(|types, _| {
        types.add("a", 14, 0, 3, &[0]);
        types.add("b", 14, 0, 2, &[0]);
    });
    assert_eq!(variables, "[2] VAR Invalid type_id");
    let array = wrong(|types, int| {
        let variable = types.add("a", 14, 0, int, &[0]);
        types.add("", 3, 0, 0, &[variable, int, 1]);
    });
    assert_eq!(array, "[3] ARRAY Invalid elem");
}

#[test]
fn sections_lie_one_behind_the_other() {
    let mut types = Types::new();
    types.int("int", 4);
    let bytes = types.build();
    assert_eq!(check_sections(&bytes), Ok(()));
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let with = |changes: &[(usize, u32)], more: usize| {
        let mut bytes = bytes.clone();
        for (at, word) in changes {
            bytes[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes.resize(bytes.len() + more, 0);
        check_sections(&bytes).map_or_else(|malformed| malformed.to_string(), |()| "nothing".to_owned())
    };
    let (strings, len) = (word(16), word(20));
    assert_eq!(with(&[], 4), "Unsupported section found");
    assert_eq!(with(&[(8, 4)], 8), "Unsupported section found");
    assert_eq!(with(&[(16, strings + 4)], 4), "Unsupported section found");
    assert_eq!(with(&[(16, strings - 4)], 0), "Section overlap found");
    assert_eq!(with(&[(20, len + 1)], 0), "Total section length too long");
    assert_eq!(with(&[(20, u32::MAX)], 0), "Total section length too long");
    assert_eq!(with(&[(16, u32::MAX)], 0), "Invalid section offset");
    let mut longer = [&bytes[..24], &[1, 0, 0, 0], &bytes[24..]].concat();
    longer[4] = 28;
    let malformed = check_sections(&longer).unwrap_err();
    assert_eq!((malformed.reason.as_ref(), malformed.fault), ("Unsupported btf_header", CheckFault::Deep));
    longer[24] = 0;
    assert_eq!(check_sections(&longer), Ok(()), "what is unknown says nothing");
}
