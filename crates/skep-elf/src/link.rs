//! From sections to one program: its function, then every function it reaches, each once.
//!
//! ```text
//!   section xdp                section .text              the program
//!  +---------+---------+      +-------+-------+         0 +---------+
//!  | other   | entry --+--+   | g     | f     |           | entry   | call f
//!  +---------+---------+  |   +-------+-------+           +---------+
//!                         +-----------^   |               | f       | call g
//!                                 ^-------+               +---------+
//!                                                         | g       |
//!                                                         +---------+
//! ```
//!
//! A function is copied, its relocations are written into the copied slots, and the slots are decoded. Calls
//! and function addresses stay open until every function has its place; [`Linker::resolve`] closes them.
//!
//! The order is libbpf's, depth first: a function that is met for the first time comes next, and what it reaches
//! comes before what its caller refers to later. So the program has the tag that it has in the kernel. What exceptions
//! end in comes last ([`crate::exceptions`]).
//!
//! Where the numbers are in a relocation (LLVM, "eBPF relocations"): the linker computes symbol + addend,
//! and the addend stands in the instruction. For 64-bit loads that is a byte distance in the two immediates;
//! for calls it is a slot distance less one, for a call counts from the next instruction.

use std::collections::HashMap;

use skep_abi::{Extern, Function, MISSING_FUNCTION};
use skep_isa::{CallTarget, Imm64, Insn, Slot};

use crate::elf::{Content, Place, Relocation, Symbol};
use crate::error::{Error, RelocationType};
use crate::externs::Declared;
use crate::functions::CodeRange;
use crate::maps;
use crate::object::{Parsed, Role};
use crate::symbols::{Address, Symbols, Use};

/// `R_BPF_64_64`: a 64-bit immediate load.
const LOAD: u32 = 1;
/// `R_BPF_64_32`: a call.
const CALL: u32 = 10;

/// Opcode of 64-bit immediate loads.
const OP_LOAD: u8 = 0x18;
/// Opcode of calls.
const OP_CALL: u8 = 0x85;

/// Source register fields, which say what an immediate is.
const CALL_HELPER: u8 = 0;
const CALL_LOCAL: u8 = 1;
const CALL_KFUNC: u8 = 2;
const LOAD_VARIABLE: u8 = 3;
const LOAD_FUNCTION: u8 = 4;
const LOAD_MAP: u8 = 5;
const LOAD_MAP_VALUE: u8 = 6;

/// A linked program.
pub(crate) struct Linked {
    pub(crate) insns: Vec<Insn>,
    pub(crate) functions: Vec<Function>,
    /// Which function each of `functions` is.
    pub(crate) origins: Vec<CodeRange>,
    /// What it refers to outside the object.
    pub(crate) externs: Vec<Extern>,
}

/// Links the function of that number with all it reaches. `name` is the program's, for errors.
pub(crate) fn link(object: &Parsed, name: &str, entry: usize, symbols: Symbols<'_>) -> Result<Linked, Error> {
    let mut linker = Linker {
        object,
        symbols,
        placed: HashMap::new(),
        order: Vec::new(),
        open: Vec::new(),
        insns: Vec::new(),
        functions: Vec::new(),
    };
    let callbacks = object.exception_callbacks.get(&entry).into_iter().flatten();
    let mut roots = std::iter::once(&entry).chain(callbacks);
    let mut pending = Vec::new();
    while let Some(function) = pending.pop().or_else(|| roots.next().copied()) {
        if !linker.placed.contains_key(&function) {
            let referred = linker.open.len();
            linker.place(function, name)?;
            pending.extend(linker.open[referred..].iter().rev().map(|&(_, target)| target));
        }
    }
    linker.resolve();
    let origins = linker.order.iter().map(|&index| object.functions.function(index)).collect();
    let externs = linker.symbols.used();
    Ok(Linked { insns: linker.insns, functions: linker.functions, origins, externs })
}

struct Linker<'a> {
    object: &'a Parsed,
    symbols: Symbols<'a>,
    /// The first slots in the program of the functions that are placed: those that it reaches, not all there are.
    placed: HashMap<usize, u32>,
    /// Functions in the order of the program.
    order: Vec<usize>,
    /// Slots that refer to functions, ascending.
    open: Vec<(usize, usize)>,
    insns: Vec<Insn>,
    functions: Vec<Function>,
}

impl Linker<'_> {
    /// Appends a function.
    fn place(&mut self, index: usize, program: &str) -> Result<(), Error> {
        let function = self.object.functions.function(index);
        let elf = &self.object.elf;
        let first = self.insns.len();
        let section = &elf.sections[function.section];
        let name = elf.symbol_name(&elf.symbols[function.symbol])?;
        let code = &elf.data(function.section)[function.start as usize..function.end as usize];
        let mut slots: Vec<Slot> =
            code.as_chunks::<{ Slot::BYTES }>().0.iter().map(|&bytes| Slot::from_bytes(bytes)).collect();
        let start = match u32::try_from(first) {
            Ok(start) if first + slots.len() <= i32::MAX as usize => start,
            _ => return Err(Error::ProgramTooLarge { program: program.into() }),
        };
        self.placed.insert(index, start);
        self.order.push(index);
        self.functions.push(Function::new(name, start, function.global));

        let mut relocations = {
            let all = &section.relocations;
            let from = all.partition_point(|relocation| relocation.offset < function.start);
            let to = all.partition_point(|relocation| relocation.offset < function.end);
            all[from..to].iter().peekable()
        };
        let mut at = 0;
        while at < slots.len() {
            let length = if slots[at].opcode == OP_LOAD { 2 } else { 1 };
            let here = Here { function, slot: at };
            match relocations.peek() {
                Some(relocation) if relocation.offset < here.end(length) => {
                    let target = self.relocate(&here, relocation, &mut slots)?;
                    self.refer(first + at, target);
                    relocations.next();
                    if let Some(next) = relocations.peek().filter(|next| next.offset < here.end(length)) {
                        return Err(self.unsupported(&here, next, "is the second at one instruction"));
                    }
                }
                _ => {
                    let target = self.unrelocated(&here, slots[at])?;
                    self.refer(first + at, target);
                }
            }
            at += length;
        }
        let insns = skep_isa::decode(&slots).map_err(|error| Error::BadInstruction {
            function: name.into(),
            section: section.name.to_string(),
            error,
        })?;
        self.insns.extend(insns);
        Ok(())
    }

    /// Notes that a slot refers to a function, if it does.
    fn refer(&mut self, slot: usize, target: Option<usize>) {
        self.open.extend(target.map(|target| (slot, target)));
    }

    /// Writes the distance to its function into every slot that refers to one.
    fn resolve(&mut self) {
        for &(slot, target) in &self.open {
            let start = self.placed.get(&target).copied().unwrap_or(0);
            // Both are slots of a program that `place` keeps below 2^31 slots.
            let distance = start as i32 - (slot as i32 + 1);
            match &mut self.insns[slot] {
                Insn::Call { target } => *target = CallTarget::Local(distance),
                Insn::LoadImm64 { value, .. } => *value = Imm64::Function(distance),
                _ => {}
            }
        }
    }

    /// What an instruction without a relocation refers to. Calls inside a section need none.
    fn unrelocated(&self, here: &Here, slot: Slot) -> Result<Option<usize>, Error> {
        match (slot.opcode, slot.src) {
            (OP_CALL, CALL_LOCAL) | (OP_LOAD, LOAD_FUNCTION) => {
                let section = here.function.section;
                let address = (here.offset() as i64) + 8 * (i64::from(slot.imm) + 1);
                self.function_at(here, section, address).map(Some)
            }
            (OP_LOAD, 1..) => Err(Error::UnrelocatedLoad {
                section: self.section_name(here.function.section),
                offset: here.offset(),
                src: slot.src,
            }),
            _ => Ok(None),
        }
    }

    /// Applies a relocation. Says which function the instruction refers to, if any.
    fn relocate(
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

    /// Writes what a declaration stands for: a place in `.kconfig`, or something of the kernel's.
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
                let map = u64::try_from(address).ok().and_then(|at| maps::at(&self.object.map_ranges, at));
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
            Role::Data(map) => match u32::try_from(address) {
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

    fn function_at(&self, here: &Here, section: usize, address: i64) -> Result<usize, Error> {
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

    fn unsupported(&self, here: &Here, relocation: &Relocation, reason: &'static str) -> Error {
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

    fn section_name(&self, section: usize) -> String {
        self.object.elf.sections[section].name.to_string()
    }

    fn symbol_name(&self, symbol: &Symbol) -> Result<String, Error> {
        self.object.elf.symbol_name(symbol).map(str::to_owned)
    }
}

/// An instruction being looked at.
struct Here {
    function: CodeRange,
    /// Counted from the function's start.
    slot: usize,
}

impl Here {
    /// Its first byte in the section.
    fn offset(&self) -> u64 {
        self.function.start + (self.slot * Slot::BYTES) as u64
    }

    /// One past its last byte, if it has that many slots.
    fn end(&self, slots: usize) -> u64 {
        self.offset() + (slots * Slot::BYTES) as u64
    }
}
