//! The checked view of an ELF file, on which the rest of the crate relies.
//!
//! The problem: no number in the file can be trusted. Only this module reads ELF headers, and everything that it
//! returns has been checked: ranges lie inside the file, relocations lie inside
//! their sections and name symbols that exist, names are UTF-8 of bounded length.
//!
//! The invariant that bounds memory: sections do not share bytes of the file ([`Elf::parse`] refuses files
//! whose sections add up to more than the file), so that copying each section once, in whatever form, copies
//! no more than a constant times the file's size. Names are the exception, many may share one string; they
//! are kept as offsets, and [`skep_btf::MAX_NAME`] bounds what a copy costs.

use std::ops::Range;
use std::sync::Arc;

use object::LittleEndian;
use object::elf::{self, FileHeader64, Rel64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::read::{SectionIndex, SymbolIndex};

use skep_btf::string_at;

use crate::error::Error;

/// A relocatable BPF file whose structure has been checked.
#[derive(Debug)]
pub(crate) struct Elf {
    bytes: Arc<[u8]>,
    pub(crate) sections: Vec<Section>,
    pub(crate) symbols: Vec<Symbol>,
    symbol_names: Range<usize>,
}

/// A section.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) name: Box<str>,
    /// Size in memory; larger than `data` only for sections of zeroes.
    pub(crate) size: u64,
    pub(crate) content: Content,
    /// Where its bytes are in the file.
    pub(crate) data: Range<usize>,
    /// Ascending by offset, each inside the section. Kept for loaded sections and `.BTF` alone.
    pub(crate) relocations: Vec<Relocation>,
}

/// What a section is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Code,
    Data,
    /// Data of zeroes, which takes no room in the file.
    Zeroed,
    /// Not loaded.
    Other,
}

/// A symbol. Its name is read on demand by [`Elf::symbol_name`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    name: u32,
    pub(crate) kind: SymbolKind,
    pub(crate) place: Place,
    pub(crate) value: u64,
    pub(crate) size: u64,
    /// Not static.
    pub(crate) exported: bool,
    /// Exported with hidden visibility.
    pub(crate) hidden: bool,
    /// May have no definition.
    pub(crate) weak: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Function,
    Data,
    Section,
    Other,
}

/// Where a symbol is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Undefined,
    Absolute,
    Common,
    Section(usize),
}

/// A relocation without explicit addend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    pub(crate) symbol: u32,
}

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// Bytes of a relocation entry.
const REL_BYTES: usize = size_of::<Rel64<LittleEndian>>();

impl Elf {
    /// Checks the file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        check_identity(bytes)?;
        let header = Header::parse(bytes).map_err(|e| damaged("the file header", e))?;
        let elf_type = header.e_type(LE);
        if elf_type != elf::ET_REL {
            return Err(Error::NotRelocatable { elf_type: elf_type.0 });
        }
        let table = header.sections(LE, bytes).map_err(|e| damaged("the section headers", e))?;
        let names = header.shstrndx(LE, bytes).map_err(|e| damaged("the file header", e))? as usize;
        let mut sections = sections(&table, names, bytes)?;
        let symbol_table =
            table.symbols(LE, bytes, elf::SHT_SYMTAB).map_err(|e| damaged("the symbol table", e))?;
        let symbols = symbols(&symbol_table, sections.len())?;
        let symbol_names = match symbol_table.string_section().0 {
            0 => 0..0,
            index => sections[index].data.clone(),
        };
        relocations(&table, bytes, &mut sections, symbols.len())?;
        Ok(Self { bytes: bytes.into(), sections, symbols, symbol_names })
    }

    /// The bytes of a section; empty for sections of zeroes.
    pub(crate) fn data(&self, section: usize) -> &[u8] {
        &self.bytes[self.sections[section].data.clone()]
    }

    /// The first section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<usize> {
        self.sections.iter().position(|section| &*section.name == name)
    }

    /// The name of a symbol; a section's symbol has the section's name.
    pub(crate) fn symbol_name(&self, symbol: &Symbol) -> Result<&str, Error> {
        if let (SymbolKind::Section, Place::Section(index)) = (symbol.kind, symbol.place) {
            return Ok(&self.sections[index].name);
        }
        let strings = &self.bytes[self.symbol_names.clone()];
        string_at(strings, symbol.name).map_err(|reason| Error::Damaged {
            place: format!("the name of a symbol, at byte {} of the symbol names", symbol.name),
            reason: reason.into(),
        })
    }

    /// The symbol that a relocation names; [`Elf::parse`] has checked that it exists.
    pub(crate) fn target(&self, relocation: &Relocation) -> &Symbol {
        &self.symbols[relocation.symbol as usize]
    }
}

/// Refuses files that are no BPF object, by their first 20 bytes, and says what they are instead.
fn check_identity(bytes: &[u8]) -> Result<(), Error> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err(Error::NotElf { bytes: bytes.len() });
    }
    let Some(&[class, order, ..]) = bytes.get(4..20) else {
        return Err(Error::Damaged {
            place: "the file header".into(),
            reason: format!("the file ends after {} bytes", bytes.len()),
        });
    };
    let machine = [bytes[18], bytes[19]];
    let machine =
        if order == elf::ELFDATA2MSB.0 { u16::from_be_bytes(machine) } else { u16::from_le_bytes(machine) };
    if machine != elf::EM_BPF.0 {
        return Err(Error::NotBpf { machine });
    }
    if order == elf::ELFDATA2MSB.0 {
        return Err(Error::BigEndian);
    }
    if class != elf::ELFCLASS64.0 {
        return Err(Error::Elf32);
    }
    Ok(())
}

fn sections(table: &SectionTable<'_, Header>, names: usize, bytes: &[u8]) -> Result<Vec<Section>, Error> {
    let names = match table.section(SectionIndex(names)) {
        Ok(header) => &bytes[file_range(header, bytes, || "the section names".into())?],
        Err(_) => &[],
    };
    let mut sections = Vec::with_capacity(table.len());
    let mut total = 0usize;
    for (index, header) in table.iter().enumerate() {
        let name: Box<str> = match string_at(names, header.sh_name.get(LE)) {
            Ok(name) => name.into(),
            Err(reason) => {
                let place = format!("the name of section {index}");
                return Err(Error::Damaged { place, reason: reason.into() });
            }
        };
        let place = || format!("section {index} ({name})");
        let data = file_range(header, bytes, place)?;
        // No section is larger than the file, and there are fewer than its bytes: far from overflow.
        total = total.saturating_add(data.len());
        if total > bytes.len() {
            let reason = "it and the sections before it are together larger than the file: they overlap";
            return Err(Error::Damaged { place: place(), reason: reason.into() });
        }
        let flags = header.sh_flags(LE);
        let allocated = flags.contains(elf::SHF_ALLOC);
        let content = match header.sh_type(LE) {
            elf::SHT_PROGBITS if flags.contains(elf::SHF_EXECINSTR) => Content::Code,
            elf::SHT_PROGBITS if allocated => Content::Data,
            elf::SHT_NOBITS if allocated => Content::Zeroed,
            _ => Content::Other,
        };
        if content != Content::Other && flags.contains(elf::SHF_COMPRESSED) {
            return Err(Error::Damaged { place: place(), reason: "it is compressed".into() });
        }
        let size = header.sh_size.get(LE);
        sections.push(Section { name, size, content, data, relocations: Vec::new() });
    }
    Ok(sections)
}

/// Where a section's bytes are; empty where it has none in the file.
fn file_range(
    header: &SectionHeader64<LittleEndian>,
    bytes: &[u8],
    place: impl Fn() -> String,
) -> Result<Range<usize>, Error> {
    if matches!(header.sh_type(LE), elf::SHT_NULL | elf::SHT_NOBITS) {
        return Ok(0..0);
    }
    let (offset, size) = (header.sh_offset.get(LE), header.sh_size.get(LE));
    match offset.checked_add(size) {
        // Both ends are at most a length of memory, so they fit.
        Some(end) if end <= bytes.len() as u64 => Ok(offset as usize..end as usize),
        _ => {
            let reason = format!(
                "its {size} bytes at byte {offset} reach beyond the file's end at byte {}",
                bytes.len()
            );
            Err(Error::Damaged { place: place(), reason })
        }
    }
}

fn symbols(table: &SymbolTable<'_, Header>, sections: usize) -> Result<Vec<Symbol>, Error> {
    let mut symbols = Vec::with_capacity(table.len());
    for (index, symbol) in table.enumerate() {
        symbols.push(Symbol {
            name: symbol.st_name(LE),
            kind: match symbol.st_type() {
                elf::STT_FUNC => SymbolKind::Function,
                elf::STT_OBJECT => SymbolKind::Data,
                elf::STT_SECTION => SymbolKind::Section,
                _ => SymbolKind::Other,
            },
            place: place(table, index, symbol, sections)?,
            value: symbol.st_value(LE),
            size: symbol.st_size(LE),
            exported: !symbol.is_local(),
            weak: symbol.is_weak(),
            hidden: matches!(symbol.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL),
        });
    }
    Ok(symbols)
}

fn place(
    table: &SymbolTable<'_, Header>,
    index: SymbolIndex,
    symbol: &Sym64<LittleEndian>,
    sections: usize,
) -> Result<Place, Error> {
    if symbol.is_undefined(LE) {
        return Ok(Place::Undefined);
    }
    if symbol.is_common(LE) {
        return Ok(Place::Common);
    }
    let section =
        table.symbol_section(LE, symbol, index).map_err(|e| damaged(&format!("symbol {}", index.0), e))?;
    match section {
        None => Ok(Place::Absolute),
        Some(SectionIndex(section)) if section < sections => Ok(Place::Section(section)),
        Some(SectionIndex(section)) => Err(Error::Damaged {
            place: format!("symbol {}", index.0),
            reason: format!("it is in section {section}, but there are only {sections}"),
        }),
    }
}

/// Hands each section its relocations.
fn relocations(
    table: &SectionTable<'_, Header>,
    bytes: &[u8],
    sections: &mut [Section],
    symbols: usize,
) -> Result<(), Error> {
    for (index, header) in table.iter().enumerate() {
        let kind = header.sh_type(LE);
        if kind != elf::SHT_REL && kind != elf::SHT_RELA {
            continue;
        }
        let info = header.sh_info(LE) as usize;
        let Some(section) = sections.get_mut(info) else {
            return Err(Error::Damaged {
                place: format!("relocation section {index}"),
                reason: format!("it relocates section {info}, but there are only {}", table.len()),
            });
        };
        if section.content == Content::Other && &*section.name != ".BTF" {
            continue;
        }
        if kind == elf::SHT_RELA {
            return Err(Error::Damaged {
                place: format!("the relocations of section {}", section.name),
                reason: "they have explicit addends (RELA), which BPF does not".into(),
            });
        }
        let data = header.data(LE, bytes).map_err(|e| damaged("relocations", e))?;
        let entries = match object::pod::slice_from_all_bytes::<Rel64<LittleEndian>>(data) {
            Ok(entries) if data.len() % REL_BYTES == 0 => entries,
            _ => {
                return Err(Error::Damaged {
                    place: format!("the relocations of section {}", section.name),
                    reason: format!("{} bytes do not divide into entries of 16", data.len()),
                });
            }
        };
        section.relocations.reserve_exact(entries.len());
        for entry in entries {
            let relocation = Relocation {
                offset: entry.r_offset.get(LE),
                kind: entry.r_type(LE).0,
                symbol: entry.r_sym(LE),
            };
            if relocation.kind == 0 {
                continue; // R_BPF_NONE
            }
            if relocation.offset >= section.size {
                return Err(Error::RelocationOutside {
                    section: section.name.to_string(),
                    offset: relocation.offset,
                    size: section.size,
                });
            }
            if relocation.symbol as usize >= symbols {
                return Err(Error::Damaged {
                    place: format!(
                        "the relocation at byte {} of section {}",
                        relocation.offset, section.name
                    ),
                    reason: format!("it names symbol {}, but there are only {symbols}", relocation.symbol),
                });
            }
            section.relocations.push(relocation);
        }
        section.relocations.sort_by_key(|relocation| relocation.offset);
    }
    Ok(())
}

fn damaged(place: &str, error: object::read::Error) -> Error {
    Error::Damaged { place: place.into(), reason: error.to_string() }
}
