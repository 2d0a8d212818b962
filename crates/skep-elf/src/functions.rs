//! Functions: where each starts and ends, and which are programs.
//!
//! The invariant: functions lie inside their sections, start and end between slots, are not empty, and do not
//! overlap. So a place in a section belongs to one function at most, and copying each function that a program reaches
//! once copies no more bytes than the file has.

mod exceptions;
mod struct_ops;

pub(crate) use exceptions::callbacks as exception_callbacks;
pub(crate) use struct_ops::Members;
pub use struct_ops::Table;

use crate::elf::{Content, Elf, Place, SymbolKind};
use crate::error::Error;
use skep_abi::ProgramType;
use skep_isa::Slot;
use std::collections::HashSet;

/// Bytes in a slot.
const SLOT: u64 = Slot::BYTES as u64;

/// Every function of an object.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// Ascending by section and start.
    all: Vec<CodeRange>,
    /// Symbols of programs with their functions, in the order of the file.
    pub(crate) programs: Vec<(usize, usize)>,
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeRange {
    pub(crate) section: usize,
    /// First byte in the section.
    pub(crate) start: u64,
    /// One past the last byte.
    pub(crate) end: u64,
    /// The symbol that names it.
    pub(crate) symbol: usize,
    /// Whether other objects can see it.
    pub(crate) global: bool,
}

impl Functions {
    /// Collects the functions that the symbols name.
    pub(crate) fn parse(elf: &Elf) -> Result<Self, Error> {
        let mut all: Vec<CodeRange> = Vec::new();
        for (index, symbol) in elf.symbols.iter().enumerate() {
            let (SymbolKind::Function, Place::Section(section)) = (symbol.kind, symbol.place) else {
                continue;
            };
            if elf.sections[section].content != Content::Code {
                continue;
            }
            let global = symbol.exported && !symbol.hidden;
            let end = symbol.value.saturating_add(symbol.size);
            all.push(CodeRange { section, start: symbol.value, end, symbol: index, global });
        }
        // Of several names for one function the exported one comes first and stays.
        all.sort_by_key(|f| (f.section, f.start, !f.global, f.symbol));
        let names = all.clone();
        all.dedup_by_key(|f| (f.section, f.start));
        close(elf, &mut all);
        check(elf, &all)?;
        let mut functions = Self { all, programs: Vec::new() };
        functions.programs = functions.programs_among(elf, &names);
        functions.check_names(elf)?;
        Ok(functions)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The function of that number.
    pub(crate) fn function(&self, index: usize) -> CodeRange {
        self.all[index]
    }

    /// The function that starts at that byte of a section.
    pub(crate) fn starting_at(&self, section: usize, start: u64) -> Option<usize> {
        self.all.binary_search_by_key(&(section, start), |f| (f.section, f.start)).ok()
    }

    /// The symbol of the program that starts at that byte of a section.
    pub(crate) fn program_at(&self, section: usize, start: u64) -> Option<usize> {
        let function = self.starting_at(section, start)?;
        // Programs are in the order of their functions.
        let at = self.programs.binary_search_by_key(&function, |&(_, function)| function).ok()?;
        Some(self.programs[at].0)
    }

    /// Programs are found by name, so no two may have the same one. Linkers ensure that too.
    fn check_names(&self, elf: &Elf) -> Result<(), Error> {
        let mut seen = HashSet::with_capacity(self.programs.len());
        for &(symbol, function) in &self.programs {
            let name = elf.symbol_name(&elf.symbols[symbol])?;
            if !seen.insert(name) {
                let CodeRange { section, start, end, .. } = self.all[function];
                return Err(Error::FunctionMalformed {
                    function: name.into(),
                    section: elf.sections[section].name.to_string(),
                    start,
                    end,
                    reason: "has the name of another program",
                });
            }
        }
        Ok(())
    }

    /// Programs are the exported functions of sections other than `.text`. If an object has none of these, its programs
    /// are those of `.text`. Static functions are programs too where nothing else can be meant: see [`only_static`].
    fn programs_among(&self, elf: &Elf, names: &[CodeRange]) -> Vec<(usize, usize)> {
        let is_text = |f: &CodeRange| {
            let name = &*elf.sections[f.section].name;
            name == ".text" || name.starts_with(".text.")
        };
        let only_static = only_static(elf, names);
        let of = |text: bool| -> Vec<_> {
            let mut programs: Vec<_> = names
                .iter()
                .filter(|f| is_text(f) == text && (f.global || only_static.contains(&f.section)))
                .filter_map(|f| Some((f.symbol, self.starting_at(f.section, f.start)?)))
                .collect();
            programs.sort_by_key(|&(symbol, function)| (function, symbol));
            programs
        };
        let programs = of(false);
        if programs.is_empty() { of(true) } else { programs }
    }
}

/// The sections whose static functions are programs: their names select a program type, they export no function, and
/// no code of another section refers to them, as it would to subprograms.
fn only_static(elf: &Elf, names: &[CodeRange]) -> HashSet<usize> {
    let typed = |f: &&CodeRange| ProgramType::from_section(&elf.sections[f.section].name).is_some();
    let mut found: HashSet<usize> = names.iter().filter(typed).map(|f| f.section).collect();
    for function in names.iter().filter(|f| f.global) {
        found.remove(&function.section);
    }
    if found.is_empty() {
        return found;
    }
    for (index, section) in elf.sections.iter().enumerate().filter(|(_, s)| s.content == Content::Code) {
        for relocation in &section.relocations {
            if let Place::Section(home) = elf.target(relocation).place
                && home != index
            {
                found.remove(&home);
            }
        }
    }
    found
}

/// Sets the end of functions without a size, which assembly may leave out, to the start of the next function.
fn close(elf: &Elf, all: &mut [CodeRange]) {
    let mut next: Option<(usize, u64)> = None;
    for function in all.iter_mut().rev() {
        if function.end == function.start {
            function.end = match next {
                Some((section, start)) if section == function.section => start,
                _ => elf.sections[function.section].size,
            };
        }
        next = Some((function.section, function.start));
    }
}

fn check(elf: &Elf, all: &[CodeRange]) -> Result<(), Error> {
    let mut before: Option<CodeRange> = None;
    for function in all {
        let CodeRange { section, start, end, .. } = *function;
        let name = elf.symbol_name(&elf.symbols[function.symbol])?;
        let reason = if name.is_empty() {
            "has no name"
        } else if end > elf.sections[section].size {
            "reaches beyond the section's end"
        } else if start % SLOT != 0 || end % SLOT != 0 {
            "does not divide into instructions of 8 bytes"
        } else if start >= end {
            "is empty"
        } else if before.is_some_and(|before| before.section == section && before.end > start) {
            "overlaps the function before it"
        } else {
            before = Some(*function);
            continue;
        };
        return Err(Error::FunctionMalformed {
            function: name.into(),
            section: elf.sections[section].name.to_string(),
            start,
            end,
            reason,
        });
    }
    Ok(())
}
