//! Relocations of instructions: references to maps, variables, functions and the target's symbols.
//!
//! A relocation computes symbol + addend, and the addend is in the instruction (LLVM, "eBPF relocations"). For 64-bit
//! loads it is a distance in bytes, in the two immediates. For calls it is a distance in slots, less one, since a call
//! counts from the next instruction.

use skep_abi::MISSING_FUNCTION;
use skep_isa::Slot;

use crate::elf::{Content, Place, Relocation, Symbol};
use crate::error::{Error, RelocationType};
use crate::externs::Declared;
use crate::parsed::Role;

use super::code::{
    CALL_HELPER, CALL_KFUNC, CALL_LOCAL, Here, LOAD_FUNCTION, LOAD_MAP, LOAD_MAP_VALUE, LOAD_VARIABLE,
    Linker, OP_CALL, OP_LOAD,
};
use super::symbols::{Address, Use};

/// `R_BPF_64_64`: a 64-bit immediate load.
const LOAD: u32 = 1;
/// `R_BPF_64_32`: a call.
const CALL: u32 = 10;

impl Linker<'_> {
    /// Applies a relocation. Returns the function that the instruction refers to, if any.
    pub(super) fn relocate(
        &mut self,
        here: &Here,
        relocation: &Relocation,
        slots: &mut [Slot],
    ) -> Result<Option<usize>, Error> {
        if relocation.offset != here.offset() {
            return Err(self.unsupported(here, relocation, "is not at an instruction's start"));
        }
        let (head, tail) = slots[here.slot..].split_at_mut(1);
        let head = &mut head[0];
        let symbol = self.object.elf.target(relocation);
        if let Some(declared) = self.object.externs.declared(relocation.symbol) {
            self.relocate_extern(here, relocation, declared, head, tail.first_mut())?;
            return Ok(None);
        }
        let home = self.home(here, symbol)?;
        match (relocation.kind, head.opcode, tail.first_mut()) {
            (LOAD, OP_LOAD, Some(tail)) => self.relocate_load(here, symbol, home, head, tail),
            (LOAD, OP_LOAD, None) => {
                Err(self.unsupported(here, relocation, "is at a 64-bit load whose second half is missing"))
            }
            (LOAD, ..) => Err(self.unsupported(here, relocation, "is not at a 64-bit immediate load")),
            (CALL, OP_CALL, _) if head.src == CALL_LOCAL => {
                let distance = 8 * (i64::from(head.imm) + 1);
                let address = (symbol.value as i64).wrapping_add(distance);
                self.function_at(here, home, address).map(Some)
            }
            (CALL, ..) => Err(self.unsupported(here, relocation, "is not at a call of a function")),
            _ => Err(self.unsupported(here, relocation, "has no meaning in code")),
        }
    }

    /// Resolves a reference to a declaration: a configuration value, or a function or variable of the kernel.
    fn relocate_extern(
        &mut self,
        here: &Here,
        relocation: &Relocation,
        declared: Declared,
        head: &mut Slot,
        tail: Option<&mut Slot>,
    ) -> Result<(), Error> {
        let symbol = self.symbol_name(self.object.elf.target(relocation))?;
        let place = Use { section: &self.section_name(here.function.section), offset: here.offset() };
        match (relocation.kind, head.opcode, tail) {
            (LOAD, OP_LOAD, Some(tail)) => {
                let addend = i64::from(tail.imm) << 32 | i64::from(head.imm.cast_unsigned());
                let found = self.symbols.address(place, relocation.symbol, &symbol, declared)?;
                (head.src, head.imm, tail.imm) = match (found, addend) {
                    (Address::Value { map, offset }, addend) => {
                        let offset = i64::from(offset).checked_add(addend);
                        let inside = offset
                            .and_then(|offset| u32::try_from(offset).ok())
                            .filter(|&offset| offset <= self.object.externs.config_size);
                        match inside {
                            Some(offset) => (LOAD_MAP_VALUE, map as i32, offset.cast_signed()),
                            None => return Err(self.unsupported(here, relocation, "leads out of .kconfig")),
                        }
                    }
                    (Address::Type(id), 0) => (LOAD_VARIABLE, id.cast_signed(), 0),
                    (Address::Number(number), 0) => (0, number as i32, (number >> 32) as i32),
                    _ => {
                        return Err(self.unsupported(
                            here,
                            relocation,
                            "leads into what it names, not to it",
                        ));
                    }
                };
                Ok(())
            }
            (CALL, OP_CALL, _) if head.src == CALL_LOCAL => {
                let called = self.symbols.function(place, relocation.symbol, &symbol, declared)?;
                (head.src, head.imm) = match called {
                    Some(id) => (CALL_KFUNC, id.cast_signed()),
                    None => (CALL_HELPER, MISSING_FUNCTION.cast_signed()),
                };
                head.offset = 0;
                Ok(())
            }
            _ => Err(self.unsupported(here, relocation, "is at no load and no call")),
        }
    }

    fn relocate_load(
        &self,
        here: &Here,
        symbol: &Symbol,
        home: usize,
        head: &mut Slot,
        tail: &mut Slot,
    ) -> Result<Option<usize>, Error> {
        let addend = i64::from(tail.imm) << 32 | i64::from(head.imm.cast_unsigned());
        let address = i128::from(symbol.value) + i128::from(addend);
        let size = self.object.elf.sections[home].size;
        let mut write = |src, imm, offset| {
            (head.src, head.imm, tail.imm) = (src, imm, offset);
        };
        match self.object.roles[home] {
            Role::Maps => {
                let map = u64::try_from(address).ok().and_then(|at| self.object.map_at(home, at));
                match map {
                    Some(map) => {
                        write(LOAD_MAP, map as i32, 0);
                        Ok(None)
                    }
                    None => Err(Error::NotAMap {
                        section: self.section_name(here.function.section),
                        offset: here.offset(),
                        symbol: self.symbol_name(symbol)?,
                    }),
                }
            }
            // C allows a pointer to just past the end of an object. The verifier checks accesses.
            Role::Data(map) | Role::Arena(map) => match u32::try_from(address) {
                Ok(offset) if u64::from(offset) <= size => {
                    self.without_pointers(home)?;
                    write(LOAD_MAP_VALUE, map as i32, offset.cast_signed());
                    Ok(None)
                }
                _ => Err(Error::AddressOutside {
                    section: self.section_name(here.function.section),
                    offset: here.offset(),
                    symbol: self.symbol_name(symbol)?,
                    target: self.section_name(home),
                    address,
                    size,
                }),
            },
            Role::Other if self.object.elf.sections[home].content == Content::Code => {
                write(LOAD_FUNCTION, 0, 0);
                let address = i64::try_from(address).unwrap_or(-1);
                self.function_at(here, home, address).map(Some)
            }
            Role::Other => Err(Error::DataNotLoaded {
                section: self.section_name(here.function.section),
                offset: here.offset(),
                symbol: self.symbol_name(symbol)?,
                target: self.section_name(home),
            }),
        }
    }

    /// The section that a symbol is defined in.
    fn home(&self, here: &Here, symbol: &Symbol) -> Result<usize, Error> {
        let nowhere = match symbol.place {
            Place::Section(home) => return Ok(home),
            Place::Undefined => None,
            Place::Common => Some("COMMON"),
            Place::Absolute => Some("ABSOLUTE"),
        };
        let section = self.section_name(here.function.section);
        let (offset, symbol) = (here.offset(), self.symbol_name(symbol)?);
        Err(match nowhere {
            None => Error::UnresolvedSymbol { section, offset, symbol },
            Some(target) => Error::DataNotLoaded { section, offset, symbol, target: target.into() },
        })
    }

    /// Refuses data that holds addresses: the loader cannot fill them in.
    fn without_pointers(&self, section: usize) -> Result<(), Error> {
        match self.object.elf.sections[section].relocations.first() {
            None => Ok(()),
            Some(relocation) => Err(Error::PointerInData {
                section: self.section_name(section),
                offset: relocation.offset,
                symbol: self.symbol_name(self.object.elf.target(relocation))?,
            }),
        }
    }

    pub(super) fn function_at(&self, here: &Here, section: usize, address: i64) -> Result<usize, Error> {
        let found = u64::try_from(address)
            .ok()
            .and_then(|address| self.object.functions.starting_at(section, address));
        found.ok_or_else(|| Error::NotAFunction {
            section: self.section_name(here.function.section),
            offset: here.offset(),
            target: self.section_name(section),
            address,
        })
    }

    pub(super) fn unsupported(&self, here: &Here, relocation: &Relocation, reason: &'static str) -> Error {
        let symbol = match self.symbol_name(self.object.elf.target(relocation)) {
            Ok(symbol) => symbol,
            Err(error) => return error,
        };
        Error::RelocationUnsupported {
            section: self.section_name(here.function.section),
            offset: relocation.offset,
            kind: RelocationType(relocation.kind),
            symbol,
            reason,
        }
    }

    pub(super) fn section_name(&self, section: usize) -> String {
        self.object.elf.sections[section].name.to_string()
    }

    fn symbol_name(&self, symbol: &Symbol) -> Result<String, Error> {
        self.object.elf.symbol_name(symbol).map(str::to_owned)
    }
}
