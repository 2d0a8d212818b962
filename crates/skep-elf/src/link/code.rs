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
//! and function addresses stay open until every function has its place; [`Linker::resolve`] fills them in.
//!
//! The order is libbpf's, depth first: a function that is met for the first time comes next, and what it reaches
//! comes before what its caller refers to later. So the program has the tag that it has in the kernel. Exception
//! callbacks come last ([`crate::functions`]).

use std::collections::HashMap;

use skep_abi::{Extern, Function};
use skep_isa::{CallTarget, Imm64, Insn, Slot};

use crate::error::Error;
use crate::functions::CodeRange;
use crate::parsed::Parsed;

use super::symbols::Symbols;

/// Opcode of 64-bit immediate loads.
pub(super) const OP_LOAD: u8 = 0x18;
/// Opcode of calls.
pub(super) const OP_CALL: u8 = 0x85;

/// Source register fields, which say what an immediate is.
pub(super) const CALL_HELPER: u8 = 0;
pub(super) const CALL_LOCAL: u8 = 1;
pub(super) const CALL_KFUNC: u8 = 2;
pub(super) const LOAD_VARIABLE: u8 = 3;
pub(super) const LOAD_FUNCTION: u8 = 4;
pub(super) const LOAD_MAP: u8 = 5;
pub(super) const LOAD_MAP_VALUE: u8 = 6;

/// The code of a program.
pub(super) struct Code {
    pub(super) insns: Vec<Insn>,
    pub(super) functions: Vec<Function>,
    /// Which function each of `functions` is.
    pub(super) origins: Vec<CodeRange>,
    /// What it refers to outside the object.
    pub(super) externs: Vec<Extern>,
}

/// Joins the function of that number with all it reaches. `name` is the program's, for errors.
pub(super) fn assemble(
    object: &Parsed,
    name: &str,
    entry: usize,
    symbols: Symbols<'_>,
) -> Result<Code, Error> {
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
    Ok(Code { insns: linker.insns, functions: linker.functions, origins, externs })
}

pub(super) struct Linker<'a> {
    pub(super) object: &'a Parsed,
    pub(super) symbols: Symbols<'a>,
    /// The first slots of the functions that are placed so far.
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

    /// Notes the function that a slot refers to, if any.
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

    /// The function that an instruction without a relocation refers to: calls inside a section need none.
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
}

/// The instruction that is being linked.
pub(super) struct Here {
    pub(super) function: CodeRange,
    /// Counted from the function's start.
    pub(super) slot: usize,
}

impl Here {
    /// Its first byte in the section.
    pub(super) fn offset(&self) -> u64 {
        self.function.start + (self.slot * Slot::BYTES) as u64
    }

    /// One past its last byte, if it has that many slots.
    pub(super) fn end(&self, slots: usize) -> u64 {
        self.offset() + (slots * Slot::BYTES) as u64
    }
}
