//! Files that are not BPF objects, and files with damaged headers, sections or symbols.

use super::{FIREWALL, refused, relocated};
use crate::support::*;
use skep_elf::{Error, Object};

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
        refused(include_bytes!("../../objects/big_endian.o")),
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

// ---- damage to single fields -----------------------------------------------------------------------------

/// The file offset of a section's header.
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
fn names_are_bounded_and_inside_the_string_table() {
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
