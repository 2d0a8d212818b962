//! Instructions with invalid references to symbols, sections or functions.

use super::{REFUSED, refused, relocated, unlinkable};
use crate::support::*;
use skep_elf::Object;

#[test]
fn symbols_of_the_kernel_need_its_types_or_configuration() {
    assert_eq!(
        unlinkable(REFUSED, "ksym"),
        "section xdp, byte 32: missing is declared with __ksym, but the types of no kernel are given to find it in; give some (--btf), or declare it __weak"
    );
    assert_eq!(
        unlinkable(REFUSED, "kconfig"),
        "section xdp, byte 56: the configuration has no value LINUX_KERNEL_VERSION; give one that has, or declare \
         it with __weak"
    );
    assert_eq!(
        unlinkable(REFUSED, "function"),
        "section xdp, byte 96: symbol missing_function is not defined in this object; define it, link the object \
         that does, or declare it with __ksym or __kconfig and compile with `clang -g`"
    );
}

#[test]
fn an_unlinkable_program_does_not_prevent_linking_others() {
    let object = Object::parse(REFUSED).unwrap();
    let linked: Vec<_> =
        object.programs().iter().filter(|program| program.source(None).is_ok()).map(|p| p.name()).collect();
    assert_eq!(linked, ["fine", "core"]);
}

#[test]
fn data_outside_the_data_sections_is_refused() {
    assert_eq!(
        unlinkable(REFUSED, "strange"),
        "section xdp, byte 112: odd is in section .strange, which is not loaded; put it into .data, .rodata \
         or .bss"
    );
    let mut file = ObjectFile::new();
    let code = file.program("f", &[&LOAD_R1[..], &[0; 8], &RETURN_0].concat());
    let common = file.common("uninitialised");
    file.relocate(code, 0, R_BPF_64_64, common);
    assert!(
        unlinkable(&file.build(), "f").contains("uninitialised is in section COMMON, which is not loaded")
    );
}

#[test]
fn data_that_holds_addresses_is_refused() {
    assert_eq!(
        unlinkable(REFUSED, "indirect"),
        "section .data, byte 8: the initial value is the address of target, which is not known before the \
         program runs; initialise the pointer in the program, or use an index"
    );
}

#[test]
fn relocations_at_the_wrong_place_are_refused() {
    let at = |offset, kind| {
        let bytes = relocated(|file, code| {
            let data = file.data(".data", &[0; 8]);
            let symbol = file.variable("v", data, 0, 8);
            file.relocate(code, offset, kind, symbol);
        });
        unlinkable(&bytes, "f")
    };
    assert_eq!(
        at(16, R_BPF_64_64),
        "section xdp, byte 16: relocation R_BPF_64_64 against v is not at a 64-bit immediate load"
    );
    assert!(at(8, R_BPF_64_64).contains("is not at an instruction's start"));
    assert!(at(17, R_BPF_64_32).contains("is not at an instruction's start"));
    assert!(at(0, R_BPF_64_32).contains("relocation R_BPF_64_32 against v is not at a call of a function"));
    assert!(at(0, R_BPF_64_ABS32).contains("relocation R_BPF_64_ABS32 against v has no meaning in code"));
    assert!(at(0, 77).contains("relocation type 77 against v has no meaning in code"));
}

#[test]
fn a_relocation_beyond_its_section_is_refused() {
    let bytes = relocated(|file, code| {
        let symbol = file.section_symbol(code);
        file.relocate(code, 4096, R_BPF_64_64, symbol);
    });
    assert_eq!(
        refused(&bytes),
        "section xdp: a relocation at byte 4096, but the section has 40 bytes; build the object again"
    );
}

#[test]
fn a_relocation_against_a_missing_symbol_is_refused() {
    let bytes = relocated(|file, code| {
        let symbol = file.section_symbol(code);
        file.relocate(code, 0, R_BPF_64_64, symbol);
        let entry = file.symbol("last", 0, 0, 0, 0);
        file.relocate(code, 0, R_BPF_64_64, entry);
    });
    // The relocation against `last` is the only one with symbol 3; make it 30.
    let at = bytes.windows(16).position(|w| w == [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]).unwrap();
    let mut bytes = bytes;
    bytes[at + 12] = 30;
    assert!(refused(&bytes).contains(
        "the relocation at byte 0 of section xdp: it names symbol 30, but there are only 4; copy or build it \
         again"
    ));
}

#[test]
fn two_relocations_at_one_instruction_are_refused() {
    let bytes = relocated(|file, code| {
        let data = file.data(".data", &[0; 8]);
        let symbol = file.variable("v", data, 0, 8);
        file.relocate(code, 0, R_BPF_64_64, symbol);
        file.relocate(code, 0, R_BPF_64_64, symbol);
    });
    assert!(unlinkable(&bytes, "f").contains("is the second at one instruction"));
}

#[test]
fn references_beyond_the_data_they_name_are_refused() {
    let at = |value| {
        let bytes = relocated(|file, code| {
            let data = file.data(".data", &[0; 8]);
            let symbol = file.symbol("v", 0x11, 2, value, 0);
            let _ = data;
            file.relocate(code, 0, R_BPF_64_64, symbol);
        });
        Object::parse(&bytes).and_then(|object| object.program("f")?.source(None)).unwrap_err().to_string()
    };
    assert!(at(9).contains("variable v: it lies beyond the end of section .data"));
    let bytes = relocated(|file, code| {
        let data = file.zeroes(".bss", 16);
        // NOTYPE: not a variable, but an address nevertheless.
        let symbol = file.symbol("mark", 0x10, 2, 17, 0);
        let _ = data;
        file.relocate(code, 0, R_BPF_64_64, symbol);
    });
    assert_eq!(
        unlinkable(&bytes, "f"),
        "section xdp, byte 0: mark leads to byte 17 of section .bss, which has 16"
    );
}

#[test]
fn two_programs_of_one_name_are_refused_wherever_they_are() {
    let mut file = ObjectFile::with_program();
    let section = file.code("tc", &RETURN_0);
    file.function("program", section, 0, 16);
    assert_eq!(
        refused(&file.build()),
        "function program in section tc has the name of another program (bytes 0 to 16); build the object again"
    );
    // Functions that are not programs may share a name, like static functions of several files.
    let mut file = ObjectFile::with_program();
    let section = file.code(".text", &RETURN_0);
    file.static_function("program", section, 0, 16);
    assert_eq!(Object::parse(&file.build()).unwrap().programs().len(), 1);
}

#[test]
fn calls_without_a_function_as_target_are_refused() {
    let bytes = relocated(|file, code| {
        let symbol = file.symbol("inside", 0x10, 1, 24, 0);
        file.relocate(code, 16, R_BPF_64_32, symbol);
    });
    assert_eq!(
        unlinkable(&bytes, "f"),
        "section xdp, byte 16: no function starts at byte 24 of section xdp; build the object again"
    );
    let bytes = relocated(|file, code| {
        let data = file.data(".data", &[0; 8]);
        let symbol = file.variable("v", data, 0, 8);
        file.relocate(code, 16, R_BPF_64_32, symbol);
    });
    assert!(unlinkable(&bytes, "f").contains("no function starts at byte 0 of section .data"));
    // Without a relocation, a call is counted inside its section: this one leads back before its start.
    let mut file = ObjectFile::new();
    let wild = [0x85, 0x10, 0, 0, 0xf0, 0xff, 0xff, 0xff];
    file.program("f", &[&wild[..], &RETURN_0].concat());
    assert!(unlinkable(&file.build(), "f").contains("no function starts at byte -120 of section xdp"));
}

#[test]
fn a_load_that_names_a_map_by_number_is_refused() {
    for kind in [1, 2, 3, 5, 6] {
        let mut load = LOAD_R1;
        load[1] |= kind << 4;
        let mut file = ObjectFile::new();
        file.program("f", &[&load[..], &[0; 8], &RETURN_0].concat());
        assert_eq!(
            unlinkable(&file.build(), "f"),
            format!(
                "section xdp, byte 0: a 64-bit immediate load of kind {kind} without a relocation; object files \
                 name maps and functions by relocations"
            )
        );
    }
}

#[test]
fn a_wide_load_across_a_function_s_end_is_refused() {
    let mut file = ObjectFile::new();
    let code = file.code("xdp", &[&LOAD_R1[..], &[0; 8], &RETURN_0].concat());
    file.function("f", code, 0, 8);
    let data = file.data(".data", &[0; 8]);
    let symbol = file.variable("v", data, 0, 8);
    file.relocate(code, 0, R_BPF_64_64, symbol);
    assert!(unlinkable(&file.build(), "f").contains("is at a 64-bit load whose second half is missing"));
}
