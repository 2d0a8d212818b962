//! The smallest ELF object in which a debugger finds one function.
//!
//! ```text
//!   0    file header                   ET_EXEC of this machine
//!   64   section headers, 4 of them    null, .text, .symtab, .strtab
//!   320  symbols, 2 of them            null, the function
//!   368  strings                       those of the section names, then the name
//! ```
//!
//! `.text` has the function's address and size and no bytes (SHT_NOBITS): a debugger reads the bytes from the
//! process. There is no unwinding information; debuggers find the caller by the frame pointer, or at a function's
//! first instruction by the stack pointer.
//!
//! Layouts and constants: System V Application Binary Interface, "Object Files".

use crate::arch;

const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const SECTIONS: usize = 4;
const SYMBOLS_AT: usize = HEADER + SECTIONS * SECTION;
const STRINGS_AT: usize = SYMBOLS_AT + 2 * SYMBOL;

/// The constant strings; the function's name follows.
const STRINGS: &[u8] = b"\0.text\0.symtab\0.strtab\0";
const TEXT_NAME: u32 = 1;
const SYMTAB_NAME: u32 = 7;
const STRTAB_NAME: u32 = 15;

const TEXT: u16 = 1;
const STRTAB: u32 = 3;

/// An object with one symbol: the `len` bytes at `address` are the function `name`.
pub(super) fn object(name: &str, address: usize, len: usize) -> Vec<u8> {
    let (address, len) = (address as u64, len as u64);
    let strings_len = (STRINGS.len() + name.len() + 1) as u64;
    let mut out = Vec::with_capacity(STRINGS_AT + strings_len as usize);

    let class = 2; // 64 bits
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    out.extend_from_slice(&[0x7f, b'E', b'L', b'F', class, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&2u16.to_ne_bytes()); // e_type: ET_EXEC
    out.extend_from_slice(&arch::ELF_MACHINE.to_ne_bytes());
    out.extend_from_slice(&1u32.to_ne_bytes()); // e_version
    out.extend_from_slice(&0u64.to_ne_bytes()); // e_entry
    out.extend_from_slice(&0u64.to_ne_bytes()); // e_phoff
    out.extend_from_slice(&(HEADER as u64).to_ne_bytes()); // e_shoff
    out.extend_from_slice(&0u32.to_ne_bytes()); // e_flags
    for half in [HEADER as u16, 0, 0, SECTION as u16, SECTIONS as u16, STRTAB as u16] {
        out.extend_from_slice(&half.to_ne_bytes()); // e_ehsize, e_ph*, e_shentsize, e_shnum, e_shstrndx
    }

    const ALLOC_EXECINSTR: u64 = 2 | 4;
    section(&mut out, Section::default());
    section(
        &mut out,
        Section {
            name: TEXT_NAME,
            kind: 8, // SHT_NOBITS
            flags: ALLOC_EXECINSTR,
            address,
            offset: STRINGS_AT as u64,
            size: len,
            align: 16,
            ..Section::default()
        },
    );
    section(
        &mut out,
        Section {
            name: SYMTAB_NAME,
            kind: 2, // SHT_SYMTAB
            offset: SYMBOLS_AT as u64,
            size: 2 * SYMBOL as u64,
            link: STRTAB,
            info: 1, // the first symbol that is not local
            align: 8,
            entry_size: SYMBOL as u64,
            ..Section::default()
        },
    );
    section(
        &mut out,
        Section {
            name: STRTAB_NAME,
            kind: 3, // SHT_STRTAB
            offset: STRINGS_AT as u64,
            size: strings_len,
            align: 1,
            ..Section::default()
        },
    );

    out.extend_from_slice(&[0; SYMBOL]);
    out.extend_from_slice(&(STRINGS.len() as u32).to_ne_bytes()); // st_name
    out.extend_from_slice(&[1 << 4 | 2, 0]); // st_info: STB_GLOBAL, STT_FUNC; st_other
    out.extend_from_slice(&TEXT.to_ne_bytes()); // st_shndx
    out.extend_from_slice(&address.to_ne_bytes()); // st_value
    out.extend_from_slice(&len.to_ne_bytes()); // st_size

    out.extend_from_slice(STRINGS);
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    out
}

#[derive(Default)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry_size: u64,
}

fn section(out: &mut Vec<u8>, section: Section) {
    let Section { name, kind, flags, address, offset, size, link, info, align, entry_size } = section;
    out.extend_from_slice(&name.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    for word in [flags, address, offset, size] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out.extend_from_slice(&link.to_ne_bytes());
    out.extend_from_slice(&info.to_ne_bytes());
    out.extend_from_slice(&align.to_ne_bytes());
    out.extend_from_slice(&entry_size.to_ne_bytes());
}
