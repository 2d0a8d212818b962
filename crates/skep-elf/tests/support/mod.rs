//! Makes BPF objects by hand, so that tests can have objects that no compiler emits.
#![allow(dead_code, unreachable_pub)] // every test file uses its own part

pub mod btf;

use std::collections::HashMap;

/// `r0 = 0; exit`
pub const RETURN_0: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
/// The first slot of `r1 = 0 ll`; a slot of zeroes follows.
pub const LOAD_R1: [u8; 8] = [0x18, 1, 0, 0, 0, 0, 0, 0];
/// `call` of a function, as clang leaves it to the linker.
pub const CALL: [u8; 8] = [0x85, 0x10, 0, 0, 0xff, 0xff, 0xff, 0xff];

pub const R_BPF_64_64: u32 = 1;
pub const R_BPF_64_ABS64: u32 = 2;
pub const R_BPF_64_ABS32: u32 = 3;
pub const R_BPF_64_32: u32 = 10;

/// Section types and flags, as the ELF specification numbers them.
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOBITS: u32 = 8;
const REL: u32 = 9;
const WRITE: u64 = 1;
const ALLOC: u64 = 2;
const EXEC: u64 = 4;

/// An object under construction.
#[derive(Default)]
pub struct ObjectFile {
    sections: Vec<Section>,
    /// Entries of the symbol table after the first.
    symbols: Vec<[u8; 24]>,
    relocations: HashMap<usize, Vec<u8>>,
    strings: Vec<u8>,
}

struct Section {
    name: String,
    kind: u32,
    flags: u64,
    data: Vec<u8>,
    size: u64,
}

/// The index of a section for symbols.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SectionId(usize);

/// The index of a symbol for relocations.
#[derive(Clone, Copy)]
pub struct SymbolId(usize);

impl ObjectFile {
    pub fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    /// An object with one XDP program that returns 0.
    pub fn with_program() -> Self {
        let mut file = Self::new();
        file.program("program", &RETURN_0);
        file
    }

    /// A program in a section `xdp` of its own.
    pub fn program(&mut self, name: &str, code: &[u8]) -> SectionId {
        let section = self.code("xdp", code);
        self.function(name, section, 0, code.len() as u64);
        section
    }

    pub fn code(&mut self, name: &str, data: &[u8]) -> SectionId {
        self.section(name, PROGBITS, ALLOC | EXEC, data.to_vec(), data.len() as u64)
    }

    pub fn data(&mut self, name: &str, data: &[u8]) -> SectionId {
        self.section(name, PROGBITS, ALLOC | WRITE, data.to_vec(), data.len() as u64)
    }

    pub fn zeroes(&mut self, name: &str, size: u64) -> SectionId {
        self.section(name, NOBITS, ALLOC | WRITE, Vec::new(), size)
    }

    /// A section that is not loaded, such as `.BTF`.
    pub fn info(&mut self, name: &str, data: Vec<u8>) -> SectionId {
        let size = data.len() as u64;
        self.section(name, PROGBITS, 0, data, size)
    }

    fn section(&mut self, name: &str, kind: u32, flags: u64, data: Vec<u8>, size: u64) -> SectionId {
        self.sections.push(Section { name: name.into(), kind, flags, data, size });
        SectionId(self.sections.len())
    }

    /// An exported function.
    pub fn function(&mut self, name: &str, section: SectionId, value: u64, size: u64) -> SymbolId {
        self.symbol(name, 0x12, section.0 as u16, value, size)
    }

    /// A static function.
    pub fn static_function(&mut self, name: &str, section: SectionId, value: u64, size: u64) -> SymbolId {
        self.symbol(name, 0x02, section.0 as u16, value, size)
    }

    /// An exported variable or map.
    pub fn variable(&mut self, name: &str, section: SectionId, value: u64, size: u64) -> SymbolId {
        self.symbol(name, 0x11, section.0 as u16, value, size)
    }

    pub fn section_symbol(&mut self, section: SectionId) -> SymbolId {
        self.symbol("", 0x03, section.0 as u16, 0, 0)
    }

    pub fn undefined(&mut self, name: &str) -> SymbolId {
        self.symbol(name, 0x10, 0, 0, 0)
    }

    /// A variable without a section, as older compilers emitted for uninitialised ones.
    pub fn common(&mut self, name: &str) -> SymbolId {
        self.symbol(name, 0x11, 0xfff2, 8, 8)
    }

    /// A symbol with all fields of its entry given.
    pub fn symbol(&mut self, name: &str, info: u8, section: u16, value: u64, size: u64) -> SymbolId {
        let name_at = self.string(name);
        self.symbol_named_at(name_at, info, section, value, size)
    }

    /// The same with a name at an offset of the string table.
    pub fn symbol_named_at(&mut self, name: u32, info: u8, section: u16, value: u64, size: u64) -> SymbolId {
        let mut entry = [0; 24];
        entry[..4].copy_from_slice(&name.to_le_bytes());
        entry[4] = info;
        entry[6..8].copy_from_slice(&section.to_le_bytes());
        entry[8..16].copy_from_slice(&value.to_le_bytes());
        entry[16..].copy_from_slice(&size.to_le_bytes());
        self.symbols.push(entry);
        SymbolId(self.symbols.len())
    }

    /// Adds a name; returns its offset.
    pub fn string(&mut self, string: &str) -> u32 {
        if string.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(string.as_bytes());
        self.strings.push(0);
        at
    }

    pub fn relocate(&mut self, section: SectionId, offset: u64, kind: u32, symbol: SymbolId) {
        let entries = self.relocations.entry(section.0).or_default();
        entries.extend(offset.to_le_bytes());
        entries.extend(kind.to_le_bytes());
        entries.extend((symbol.0 as u32).to_le_bytes());
    }

    /// The file: header, contents in order, section headers.
    pub fn build(mut self) -> Vec<u8> {
        let count = self.sections.len();
        let symbol_table = count + self.relocations.len() + 1;
        let mut links = vec![(0u32, 0u32, 0u64); count];
        let mut relocations: Vec<_> = std::mem::take(&mut self.relocations).into_iter().collect();
        relocations.sort_by_key(|(section, _)| *section);
        for (section, entries) in relocations {
            let name = format!(".rel{}", self.sections[section - 1].name);
            let size = entries.len() as u64;
            self.section(&name, REL, 0, entries, size);
            links.push((symbol_table as u32, section as u32, 16));
        }
        let symbols =
            std::iter::once([0; 24]).chain(std::mem::take(&mut self.symbols)).flatten().collect::<Vec<_>>();
        let size = symbols.len() as u64;
        self.section(".symtab", SYMTAB, 0, symbols, size);
        links.push((symbol_table as u32 + 1, 1, 24));
        let names: Vec<u32> = (0..self.sections.len())
            .map(|index| {
                let name = self.sections[index].name.clone();
                self.string(&name)
            })
            .collect();
        let strtab_name = self.string(".strtab");
        let strings = std::mem::take(&mut self.strings);
        let size = strings.len() as u64;
        self.section(".strtab", STRTAB, 0, strings, size);
        links.push((0, 0, 0));

        let mut file = vec![0; 64];
        let mut headers = vec![0; 64];
        let names = names.into_iter().chain([strtab_name]);
        for ((section, name), (link, info, entry)) in self.sections.iter().zip(names).zip(links) {
            file.resize(file.len().next_multiple_of(8), 0);
            headers.extend(name.to_le_bytes());
            headers.extend(section.kind.to_le_bytes());
            for word in [section.flags, 0, file.len() as u64, section.size] {
                headers.extend(word.to_le_bytes());
            }
            headers.extend(link.to_le_bytes());
            headers.extend(info.to_le_bytes());
            headers.extend(8u64.to_le_bytes());
            headers.extend(entry.to_le_bytes());
            file.extend(&section.data);
        }
        file.resize(file.len().next_multiple_of(8), 0);
        let at = file.len() as u64;
        file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
        file[16] = 1; // relocatable
        file[18] = 247; // BPF
        file[20] = 1;
        file[40..48].copy_from_slice(&at.to_le_bytes());
        file[52] = 64;
        file[58] = 64;
        file[60..62].copy_from_slice(&(self.sections.len() as u16 + 1).to_le_bytes());
        file[62..64].copy_from_slice(&(self.sections.len() as u16).to_le_bytes());
        file.extend(headers);
        file
    }
}
