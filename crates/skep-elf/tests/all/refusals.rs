//! What bad objects are told: where it is wrong, and what to do.

use crate::support::btf::{Attribute, Types, lines, object_with_map};
use crate::support::*;
use skep_abi::RAW;
use skep_elf::{Error, Object};

const FIREWALL: &[u8] = include_bytes!("../../../../examples/firewall.bpf.o");
const REFUSED: &[u8] = include_bytes!("../objects/refused.bpf.o");

/// What parsing says.
#[track_caller]
fn refused(bytes: &[u8]) -> String {
    Object::parse(bytes).expect_err("the object should be refused").to_string()
}

/// What linking a program says.
#[track_caller]
fn unlinkable(bytes: &[u8], program: &str) -> String {
    let object = Object::parse(bytes).expect("the object itself is fine");
    object.program(program).unwrap().source(None).expect_err("the program should be refused").to_string()
}

// ---- not an object ---------------------------------------------------------------------------------------

#[test]
fn a_file_that_is_not_elf_is_refused() {
    assert_eq!(
        refused(b"int main(void) { return 0; }"),
        "this is not an ELF file: its 28 bytes do not begin with 7f 45 4c 46; give the object that \
         `clang -target bpf -c` wrote"
    );
    assert!(refused(b"").starts_with("this is not an ELF file: its 0 bytes"));
}

#[test]
fn an_object_for_another_machine_is_refused() {
    let mut bytes = FIREWALL.to_vec();
    bytes[18] = 62;
    assert_eq!(
        refused(&bytes),
        "this is an ELF file for x86-64 (machine 62), not for BPF (machine 247); compile with \
         `clang -target bpf`"
    );
    bytes[18..20].copy_from_slice(&263u16.to_le_bytes());
    assert!(refused(&bytes).contains("for SBPF (Solana) (machine 263)"));
}

#[test]
fn a_program_of_this_machine_is_refused() {
    // The test's own executable is an ELF file on every Linux.
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(matches!(Object::parse(&own), Err(Error::NotBpf { .. })));
}

#[test]
fn a_big_endian_object_is_refused() {
    assert_eq!(
        refused(include_bytes!("../objects/big_endian.o")),
        "this BPF object is big-endian; compile with `clang -target bpfel`"
    );
}

#[test]
fn a_32_bit_object_is_refused() {
    let mut bytes = FIREWALL.to_vec();
    bytes[4] = 1;
    assert_eq!(
        refused(&bytes),
        "this is a 32-bit ELF file, but BPF objects are 64-bit; compile with `clang -target bpf`"
    );
}

#[test]
fn a_linked_file_is_refused() {
    let mut bytes = FIREWALL.to_vec();
    bytes[16] = 3;
    assert_eq!(
        refused(&bytes),
        "this BPF file is not relocatable (ELF type 3, not 1); compile with `clang -c`, without linking"
    );
}

#[test]
fn a_file_cut_off_says_where_it_ends() {
    assert_eq!(
        refused(&FIREWALL[..10]),
        "the object file is damaged: the file header: the file ends after 10 bytes; copy or build it again"
    );
    assert_eq!(
        refused(&FIREWALL[..20_000]),
        "the object file is damaged: the section headers: Invalid ELF section header offset/size/alignment; \
         copy or build it again"
    );
}

#[test]
fn a_section_beyond_the_file_is_refused() {
    let mut file = ObjectFile::with_program();
    file.info("note", vec![0; 8]);
    let mut bytes = file.build();
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    bytes[headers + 128 + 32..headers + 128 + 40].copy_from_slice(&u64::MAX.to_le_bytes());
    let length = bytes.len();
    assert_eq!(
        refused(&bytes),
        format!(
            "the object file is damaged: section 2 (note): its 18446744073709551615 bytes at byte 80 reach \
             beyond the file's end at byte {length}; copy or build it again"
        )
    );
}

#[test]
fn sections_that_overlap_are_refused() {
    let mut file = ObjectFile::with_program();
    for _ in 0..4 {
        file.data(".data.big", &[1; 400]);
    }
    let mut bytes = file.build();
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let length = bytes.len() as u64;
    for section in 2..6 {
        let header = headers + 64 * section;
        bytes[header + 24..header + 32].copy_from_slice(&0u64.to_le_bytes());
        bytes[header + 32..header + 40].copy_from_slice(&(length / 2).to_le_bytes());
    }
    assert_eq!(
        refused(&bytes),
        "the object file is damaged: section 3 (.data.big): it and the sections before it are together larger \
         than the file: they overlap; copy or build it again"
    );
}

// ---- programs --------------------------------------------------------------------------------------------

#[test]
fn asking_an_object_without_programs_for_one_says_how_to_make_one() {
    let object = Object::parse(&ObjectFile::new().build()).unwrap();
    let expected = "the object has no program; put one into a section such as SEC(\"xdp\")";
    assert_eq!(object.only_program().unwrap_err().to_string(), expected);
    assert_eq!(object.program("x").unwrap_err().to_string(), expected);
}

#[test]
fn asking_for_a_program_that_does_not_exist_lists_those_that_do() {
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
fn a_section_that_stands_for_no_type_is_refused_unless_the_type_is_said() {
    let bytes = include_bytes!("../objects/linkage.bpf.o");
    let error = unlinkable(bytes, "mystery");
    let start = "program mystery: section mystery/thing stands for no known program type; say the type (--type), or use xdp, ";
    assert!(error.starts_with(start) && error.ends_with(", raw"), "{error}");
    assert!(error.contains(", socket, ") && error.len() < 600, "{error}");
    let object = Object::parse(bytes).unwrap();
    let source = object.program("mystery").unwrap().source(Some(&RAW)).unwrap();
    assert_eq!((source.program_type.name, source.insns.len()), ("raw", 2));
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
fn bytes_that_are_no_instruction_are_named() {
    let mut file = ObjectFile::new();
    let code = file.code("xdp", &[&RETURN_0[..], &[0xff; 8], &RETURN_0[8..]].concat());
    file.function("f", code, 0, 32);
    assert_eq!(
        unlinkable(&file.build(), "f"),
        "function f in section xdp, counted from its start: slot 2: no instruction has the opcode 0xff"
    );
}

// ---- relocations -----------------------------------------------------------------------------------------

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
fn a_program_that_cannot_be_linked_keeps_no_other_from_it() {
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

/// An object whose program loads an address and calls, with one relocation.
fn relocated(place: impl FnOnce(&mut ObjectFile, SectionId)) -> Vec<u8> {
    let mut file = ObjectFile::new();
    let code = file.program("f", &[&LOAD_R1[..], &[0; 8], &CALL, &RETURN_0].concat());
    place(&mut file, code);
    file.build()
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
fn a_relocation_against_a_symbol_that_does_not_exist_is_refused() {
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
        // NOTYPE: no variable, but an address all the same.
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
    // Functions that are no programs may share a name, as static ones of several files do.
    let mut file = ObjectFile::with_program();
    let section = file.code(".text", &RETURN_0);
    file.static_function("program", section, 0, 16);
    assert_eq!(Object::parse(&file.build()).unwrap().programs().len(), 1);
}

#[test]
fn calls_that_lead_to_no_function_are_refused() {
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
fn a_load_cut_in_half_by_its_functions_end_is_refused() {
    let mut file = ObjectFile::new();
    let code = file.code("xdp", &[&LOAD_R1[..], &[0; 8], &RETURN_0].concat());
    file.function("f", code, 0, 8);
    let data = file.data(".data", &[0; 8]);
    let symbol = file.variable("v", data, 0, 8);
    file.relocate(code, 0, R_BPF_64_64, symbol);
    assert!(unlinkable(&file.build(), "f").contains("is at a 64-bit load whose second half is missing"));
}

// ---- maps ------------------------------------------------------------------------------------------------

use Attribute::{Member, Number, Type};

#[test]
fn maps_of_the_old_form_are_refused_with_the_new_one() {
    assert_eq!(
        refused(include_bytes!("../objects/legacy.bpf.o")),
        "section maps declares maps in the old form (struct bpf_map_def), which says nothing about types; \
         declare them in SEC(\".maps\") with __uint() and __type()"
    );
}

#[test]
fn maps_without_type_information_are_refused() {
    assert_eq!(
        refused(include_bytes!("../objects/linkage.nobtf.o")),
        "section .maps declares maps by their types, but the object has no .BTF; compile with `clang -g`"
    );
    let mut file = ObjectFile::with_program();
    file.data(".maps", &[0; 8]);
    file.info(".BTF", Types::new().build());
    assert!(refused(&file.build()).contains("but the object has no types for them"));
}

#[test]
fn a_map_of_unknown_kind_is_refused() {
    let bytes = object_with_map(Types::new(), &[Number("type", 99), Number("max_entries", 1)]);
    assert_eq!(refused(&bytes), "map m is of the unknown type 99; the last that is known is 33 (arena)");
    let bytes = object_with_map(Types::new(), &[Number("max_entries", 1)]);
    assert_eq!(refused(&bytes), "map m has no type; add __uint(type, BPF_MAP_TYPE_...)");
}

#[test]
fn a_size_of_zero_is_refused() {
    let hash = |key, value, entries| {
        let sizes = [("key_size", key), ("value_size", value), ("max_entries", entries)];
        let mut attributes = vec![Number("type", 1)];
        attributes
            .extend(sizes.into_iter().filter(|(_, size)| *size > 0).map(|(name, size)| Number(name, size)));
        object_with_map(Types::new(), &attributes)
    };
    assert!(Object::parse(&hash(4, 4, 4)).is_ok());
    assert_eq!(
        refused(&hash(0, 4, 4)),
        "map m: key_size is 0, but a map of type hash needs one; add __type(key, ...)"
    );
    assert_eq!(
        refused(&hash(4, 0, 4)),
        "map m: value_size is 0, but a map of type hash needs one; add __type(value, ...)"
    );
    // How many there are may be the host's to say, who knows the machine.
    assert_eq!(Object::parse(&hash(4, 4, 0)).unwrap().maps()[0].def.max_entries, 0);
    let empty_key = {
        let mut types = Types::new();
        let int = types.int("int", 4);
        let none = types.array(int, 0);
        let attributes =
            [Number("type", 1), Type("key", none), Number("value_size", 4), Number("max_entries", 1)];
        object_with_map(types, &attributes)
    };
    assert!(refused(&empty_key).contains("key_size is 0"));
}

#[test]
fn a_size_that_the_kind_does_not_have_is_refused() {
    let array = [Number("type", 2), Number("key_size", 8), Number("value_size", 4), Number("max_entries", 1)];
    assert_eq!(
        refused(&object_with_map(Types::new(), &array)),
        "map m: key_size is 8, but a map of type array needs 4"
    );
    let ring = [Number("type", 27), Number("value_size", 4), Number("max_entries", 4096)];
    assert_eq!(
        refused(&object_with_map(Types::new(), &ring)),
        "map m: value_size is 4, but a map of type ringbuf needs 0"
    );
}

#[test]
fn two_sizes_that_disagree_are_refused() {
    let mut types = Types::new();
    let long = types.int("long", 8);
    let attributes = [Number("type", 1), Type("key", long), Number("key_size", 4)];
    assert_eq!(
        refused(&object_with_map(types, &attributes)),
        "map m: key_size says 4 bytes, but the type has 8; drop one of the two"
    );
}

#[test]
fn attributes_that_mean_nothing_are_refused() {
    assert_eq!(
        refused(&object_with_map(Types::new(), &[Number("max_entires", 1)])),
        "map m: unknown attribute max_entires; known are type, key, value, key_size, value_size, max_entries, \
         map_flags, numa_node, pinning, map_extra, values"
    );
    let mut types = Types::new();
    let int = types.int("int", 4);
    assert_eq!(
        refused(&object_with_map(types, &[Member("type", int)])),
        "map m: attribute type is malformed; write __uint(name, number)"
    );
    let mut types = Types::new();
    let int = types.int("int", 4);
    assert!(refused(&object_with_map(types, &[Member("key", int)])).contains("write __type(name, type)"));
    assert_eq!(
        refused(&object_with_map(Types::new(), &[Number("type", 1), Number("type", 2)])),
        "map m: its declaration says an attribute twice; declare it as an anonymous struct in SEC(\".maps\")"
    );
}

#[test]
fn maps_of_maps_must_say_what_is_in_them() {
    let outer = [Number("type", 12), Number("key_size", 4), Number("max_entries", 1)];
    assert_eq!(
        refused(&object_with_map(Types::new(), &outer)),
        "map m of type array_of_maps: it does not say what its maps look like; add __array(values, struct ...)"
    );
    let nested = |kind: u32, inner: &[Attribute]| {
        let mut types = Types::new();
        let inner = types.map(inner);
        let pointer = types.pointer(inner);
        let values = types.array(pointer, 0);
        let attributes = [
            Number("type", kind),
            Number("key_size", 4),
            Number("value_size", 4),
            Number("max_entries", 1),
            Member("values", values),
        ];
        Object::parse(&object_with_map(types, &attributes)).map(|object| object.maps()[0].def.clone())
    };
    let array = [Number("type", 2), Number("key_size", 4), Number("value_size", 4), Number("max_entries", 1)];
    assert_eq!(nested(12, &array).unwrap().inner.unwrap().value_size, 4);
    assert_eq!(
        nested(2, &array).unwrap_err().to_string(),
        "map m of type array: only maps of maps and of programs have values; remove __array(values, ...)"
    );
    assert_eq!(
        nested(12, &[]).unwrap_err().to_string(),
        "map m.inner has no type; add __uint(type, BPF_MAP_TYPE_...)"
    );
    let mut types = Types::new();
    let innermost = types.map(&array);
    let pointer = types.pointer(innermost);
    let values = types.array(pointer, 0);
    let middle = types.map(&[
        Number("type", 12),
        Number("key_size", 4),
        Number("max_entries", 1),
        Member("values", values),
    ]);
    let pointer = types.pointer(middle);
    let values = types.array(pointer, 0);
    let outer =
        [Number("type", 12), Number("key_size", 4), Number("max_entries", 1), Member("values", values)];
    assert_eq!(
        refused(&object_with_map(types, &outer)),
        "map m.inner of type array_of_maps: a map inside a map cannot hold maps itself"
    );
}

#[test]
fn a_declaration_outside_its_section_is_refused() {
    let mut types = Types::new();
    let map = types.map(&[
        Number("type", 2),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
    ]);
    types.data_section(".maps", &[("m", map, 8, 32)]);
    let mut file = ObjectFile::with_program();
    file.data(".maps", &[0; 32]);
    file.info(".BTF", types.build());
    assert_eq!(
        refused(&file.build()),
        "map m: its declaration lies beyond the end of section .maps; declare it as an anonymous struct in \
         SEC(\".maps\")"
    );
}

#[test]
fn a_reference_between_maps_is_refused() {
    let mut types = Types::new();
    let map = types.map(&[
        Number("type", 2),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
    ]);
    types.data_section(".maps", &[("a", map, 0, 32), ("b", map, 32, 32)]);
    let types = types.build();
    let link = |address| {
        let mut file = ObjectFile::new();
        let code = file.program("f", &[&LOAD_R1[..], &[0; 8], &RETURN_0].concat());
        let maps = file.data(".maps", &[0; 64]);
        file.info(".BTF", types.clone());
        let symbol = file.variable("x", maps, address, 8);
        file.relocate(code, 0, R_BPF_64_64, symbol);
        Object::parse(&file.build()).unwrap().program("f").unwrap().source(None)
    };
    assert!(link(32).is_ok());
    assert_eq!(
        link(8).unwrap_err().to_string(),
        "section xdp, byte 0: x is not a map; build the object again"
    );
}

#[test]
fn maps_that_overlap_are_refused() {
    let mut types = Types::new();
    let map = types.map(&[
        Number("type", 2),
        Number("key_size", 4),
        Number("value_size", 4),
        Number("max_entries", 1),
    ]);
    types.data_section(".maps", &[("a", map, 0, 32), ("b", map, 24, 32)]);
    let mut file = ObjectFile::with_program();
    file.data(".maps", &[0; 64]);
    file.info(".BTF", types.build());
    assert!(refused(&file.build()).starts_with("map b: its declaration overlaps another map's"));
}

#[test]
fn an_initial_value_that_is_no_map_is_refused() {
    let with = |place: fn(&mut ObjectFile, SectionId) -> (u64, SymbolId)| {
        let mut types = Types::new();
        let inner = types.map(&[
            Number("type", 2),
            Number("key_size", 4),
            Number("value_size", 4),
            Number("max_entries", 1),
        ]);
        let pointer = types.pointer(inner);
        let values = types.array(pointer, 0);
        let outer = types.map(&[
            Number("type", 12),
            Number("key_size", 4),
            Number("max_entries", 2),
            Member("values", values),
        ]);
        types.data_section(".maps", &[("m", outer, 0, 32)]);
        let mut file = ObjectFile::with_program();
        let maps = file.data(".maps", &[0; 64]);
        file.info(".BTF", types.build());
        let (offset, symbol) = place(&mut file, maps);
        file.relocate(maps, offset, R_BPF_64_ABS64, symbol);
        refused(&file.build())
    };
    assert_eq!(
        with(|file, _| (24, file.undefined("elsewhere"))),
        "map m: the initial value at byte 24 of section .maps names elsewhere, which is not a map"
    );
    assert!(
        with(|file, maps| (40, file.variable("m", maps, 0, 32)))
            .contains("has initial values beyond max_entries")
    );
    assert!(with(|file, maps| (8, file.variable("m", maps, 0, 32))).contains("section .maps, byte 8"));
}

// ---- type information ------------------------------------------------------------------------------------

/// What an object with this `.BTF` is told.
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

/// What an object with a hash map whose key is that type is told.
fn refused_key(types: Types, key: u32) -> String {
    let attributes = [Number("type", 1), Type("key", key), Number("value_size", 4), Number("max_entries", 1)];
    refused(&object_with_map(types, &attributes))
}

#[test]
fn types_made_of_themselves_are_refused() {
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
fn types_without_a_size_are_refused_where_one_is_needed() {
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

// ---- damage to single fields -----------------------------------------------------------------------------

/// Where the header of a section is in the file.
fn header_of(bytes: &[u8], section: usize) -> usize {
    u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize + 64 * section
}

#[test]
fn relocations_with_explicit_addends_are_refused() {
    let mut bytes = relocated(|file, code| {
        let symbol = file.section_symbol(code);
        file.relocate(code, 0, R_BPF_64_64, symbol);
    });
    let header = header_of(&bytes, 2);
    bytes[header + 4] = 4; // RELA
    assert!(refused(&bytes).contains("the relocations of section xdp: they have explicit addends (RELA)"));
}

#[test]
fn relocations_that_do_not_divide_into_entries_are_refused() {
    let mut bytes = relocated(|file, code| {
        let symbol = file.section_symbol(code);
        file.relocate(code, 0, R_BPF_64_64, symbol);
    });
    let header = header_of(&bytes, 2);
    bytes[header + 32] = 15;
    assert!(refused(&bytes).contains("15 bytes do not divide into entries of 16"));
}

#[test]
fn compressed_sections_are_refused() {
    let mut bytes = ObjectFile::with_program().build();
    let header = header_of(&bytes, 1);
    bytes[header + 9] |= 8; // SHF_COMPRESSED
    assert!(refused(&bytes).contains("section 1 (xdp): it is compressed"));
}

#[test]
fn symbols_of_sections_that_do_not_exist_are_refused() {
    let mut file = ObjectFile::with_program();
    file.symbol("lost", 0x12, 500, 0, 16);
    assert!(refused(&file.build()).contains("symbol 2: it is in section 500, but there are only 4"));
}

#[test]
fn names_are_bounded_and_lie_where_names_are() {
    let named_at = |place: fn(&mut ObjectFile) -> u32| {
        let mut file = ObjectFile::with_program();
        let name = place(&mut file);
        file.symbol_named_at(name, 0x12, 1, 0, 16);
        refused(&file.build())
    };
    assert!(named_at(|file| file.string(&"n".repeat(1025))).contains("it is longer than 1024 bytes"));
    assert!(
        named_at(|_| u32::MAX).contains("at byte 4294967295 of the symbol names: it lies beyond the strings")
    );
    let mut file = ObjectFile::with_program();
    file.data(&"s".repeat(2000), &[0]);
    assert!(refused(&file.build()).contains("the name of section 2: it is longer than 1024 bytes"));
}
