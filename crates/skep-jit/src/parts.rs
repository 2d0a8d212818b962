//! A verified program with its linkage: what each load of a constant and each call becomes.
//!
//! The verifier's facts decide between several forms: a tail call whose map and index are the same on every path
//! becomes a branch that the host replaces, a look-up in a known array needs no call.

use skep_abi::{ArenaLink, Entry, InlineArray, Linkage, Printed, TAIL_CALL};
use skep_isa::{Imm64, Insn};
use skep_verifier::{Fact, FunctionFacts, Verified};

use crate::error::Error;
use crate::options::Options;
use crate::port::Target;
use crate::port::bulk::Bulk;

/// The parts of a verified program that become code. Tests make them up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) insns: &'a [Insn],
    pub(crate) facts: &'a [Fact],
    pub(crate) functions: &'a [FunctionFacts],
    /// What is proved of the values that calls print, by slot. It must not move or be freed before the code.
    pub(crate) printed: &'a [(u32, Printed)],
    /// The function that exceptions end in, if there is one.
    pub(crate) exception_callback: Option<usize>,
    pub(crate) linkage: &'a Linkage,
    /// Whether the context is a [`skep_abi::SkbContext`].
    pub(crate) socket_buffer: bool,
    /// The length of the buffer that programs of this type take, which is their second argument.
    pub(crate) buffer_len: Option<u32>,
    /// Whether branches may be replaced while the code runs.
    pub(crate) patched: bool,
    /// Whether each function begins with a branch that may be replaced.
    pub(crate) entries: bool,
    /// Whether functions of other programs are replaced by this one: its first function gets any arguments, and the
    /// environment with the count in its register.
    pub(crate) extension: bool,
    /// The program's arena, found once.
    pub(crate) arena: Option<ArenaLink>,
    /// Where the instructions come from, if passes have rewritten them.
    pub(crate) rewriting: Option<Rewriting<'a>>,
}

/// Instructions that passes have rewritten: what each one was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewriting<'a> {
    /// The slot that each instruction is a copy of, or belongs to.
    pub(crate) origins: &'a [Origin],
    /// Loops that are done in bulk before they are done one by one, by slot in ascending order.
    pub(crate) bulk: &'a [(u32, Bulk)],
    /// The program as it was verified.
    pub(crate) insns: &'a [Insn],
    pub(crate) facts: &'a [Fact],
    pub(crate) functions: &'a [FunctionFacts],
}

/// Where an instruction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    const ADDED: u32 = 1 << 31;

    /// A copy of the instruction in this slot.
    pub(crate) fn copy(slot: usize) -> Self {
        Self(slot as u32)
    }

    /// One that was added beside the instruction in this slot.
    pub(crate) fn added(slot: usize) -> Self {
        Self(slot as u32 | Self::ADDED)
    }

    /// The slot in the verified program.
    pub(crate) fn slot(self) -> usize {
        (self.0 & !Self::ADDED) as usize
    }

    /// Whether no instruction of the verified program is behind it.
    pub(crate) fn is_added(self) -> bool {
        self.0 & Self::ADDED != 0
    }
}

/// What a 64-bit immediate load loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// A number.
    Number(u64),
    /// An address of this process.
    Address(u64),
    /// The address at which helpers call the function with this index.
    Callback(usize),
}

/// How a call of a helper is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HelperCall {
    /// A call of the function at this address.
    Call(u64),
    /// The number of the CPU, read from the environment.
    CpuNumber,
    /// A look-up in an array; a known index is in range.
    Lookup(InlineArray, Option<u32>),
    /// A tail call.
    TailCall(TailCall),
}

/// How a tail call is compiled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TailCall {
    /// A branch that the host replaces when it changes this element of this map.
    Site { map: u32, index: u32 },
    /// A jump through the map's table.
    To(Target),
    /// No code: there is no such element.
    Never,
}

impl<'a> Parts<'a> {
    /// The parts of a verified program.
    pub(crate) fn of(program: &'a Verified, linkage: &'a Linkage, options: Options) -> Self {
        Self {
            insns: program.insns(),
            facts: program.facts(),
            functions: program.functions(),
            printed: program.printed(),
            exception_callback: program.exception_callback(),
            linkage,
            socket_buffer: program.program_type().is_socket_buffer(),
            buffer_len: match program.entry() {
                Entry::Buffer { len } if !program.is_extension() => Some(len),
                Entry::Buffer { .. } | Entry::Context => None,
            },
            patched: !options.fixed_code,
            entries: options.patchable && !options.fixed_code,
            extension: program.is_extension(),
            arena: linkage.arena(program.insns()),
            rewriting: None,
        }
    }

    /// The slot in the verified program.
    pub(crate) fn origin(&self, slot: usize) -> usize {
        self.rewriting.and_then(|made| made.origins.get(slot)).map_or(slot, |origin| origin.slot())
    }

    /// The loop that begins behind this slot, if it is done in bulk there.
    pub(crate) fn bulk(&self, slot: usize) -> Option<&'a Bulk> {
        let bulk = self.rewriting?.bulk;
        bulk.binary_search_by_key(&(slot as u32), |(at, _)| *at).ok().map(|at| &bulk[at].1)
    }

    /// The function with this index as it was verified.
    pub(crate) fn verified_function(&self, function: usize) -> &'a FunctionFacts {
        self.rewriting.map_or(&self.functions[function], |made| &made.functions[function])
    }

    /// The value of a 64-bit immediate load.
    pub(crate) fn imm64(&self, slot: usize, value: Imm64) -> Result<Loaded, Error> {
        let link = |map: u32| {
            let maps = self.linkage.maps.len();
            self.linkage.maps.get(map as usize).ok_or(Error::MissingMap { slot, map, maps })
        };
        match value {
            Imm64::Value(value) => Ok(Loaded::Number(value)),
            Imm64::Map(map) => Ok(Loaded::Address(link(map)?.handle)),
            Imm64::MapValue { map, offset } => match link(map)?.value_base {
                Some(base) => Ok(Loaded::Address(base.wrapping_add(offset.into()))),
                None => Err(Error::NoDirectValue { slot, map }),
            },
            Imm64::MapFd(_) | Imm64::MapFdValue { .. } => {
                Err(Error::Unsupported { slot, what: "a map named by file descriptor" })
            }
            Imm64::Variable { .. } => {
                Err(Error::Unsupported { slot, what: "the address of a kernel variable" })
            }
            Imm64::Function(_) => Ok(Loaded::Callback(self.callee(slot)?)),
        }
    }

    /// The program's arena.
    pub(crate) fn arena(&self, slot: usize) -> Result<ArenaLink, Error> {
        let what = "the instruction is about an arena, and no arena is linked";
        self.arena.ok_or(Error::Malformed { slot, what })
    }

    /// Index of the called function.
    pub(crate) fn callee(&self, slot: usize) -> Result<usize, Error> {
        self.insns[slot]
            .function_target(slot)
            .and_then(|at| self.functions.binary_search_by_key(&at, |function| function.start as usize).ok())
            .ok_or(Error::Malformed {
                slot,
                what: "a call or the address of something that is not a function",
            })
    }

    /// How this call of this helper is compiled.
    pub(crate) fn helper_call(&self, slot: usize, id: u32) -> Result<HelperCall, Error> {
        const MAP_LOOKUP_ELEM: u32 = 1;
        const GET_SMP_PROCESSOR_ID: u32 = 8;
        if self.linkage.inline_linux_helpers {
            match id {
                MAP_LOOKUP_ELEM => {
                    if let Some(lookup) = self.lookup(slot) {
                        return Ok(lookup);
                    }
                }
                GET_SMP_PROCESSOR_ID => return Ok(HelperCall::CpuNumber),
                TAIL_CALL => return self.tail_call(slot).map(HelperCall::TailCall),
                _ => {}
            }
        }
        let helper = self.linkage.helper(id).ok_or(Error::MissingHelper { slot, id })?;
        Ok(HelperCall::Call(helper as usize as u64))
    }

    /// The address of what is proved of the values that the call prints.
    pub(crate) fn printed(&self, slot: usize) -> Option<u64> {
        let slot = self.origin(slot) as u32;
        let at = self.printed.binary_search_by_key(&slot, |(slot, _)| *slot).ok()?;
        Some((&raw const self.printed[at].1).expose_provenance() as u64)
    }

    /// The address of the runtime's own function of that number, which takes nothing.
    pub(crate) fn function(&self, slot: usize, number: i32) -> Result<u64, Error> {
        let function = self.linkage.function(number.cast_unsigned());
        let function = function.ok_or(Error::Unsupported { slot, what: "a call of a kernel function" })?;
        Ok(function as usize as u64)
    }

    /// The tail call in this slot.
    fn tail_call(&self, slot: usize) -> Result<TailCall, Error> {
        let fact = self.facts[slot].call.unwrap_or_default();
        let Some(map) = fact.map else { return Ok(TailCall::To(Target::Found)) };
        let maps = self.linkage.maps.len();
        let link = self.linkage.maps.get(map as usize).ok_or(Error::MissingMap { slot, map, maps })?;
        let Some(table) = link.programs else {
            return Err(Error::Malformed { slot, what: "a tail call through a map that holds no programs" });
        };
        Ok(match fact.key {
            None => TailCall::To(Target::Table(table)),
            Some(index) if index >= table.len => TailCall::Never,
            Some(index) if self.patched => TailCall::Site { map, index },
            Some(index) => TailCall::To(Target::At(table.entries + u64::from(index) * 8)),
        })
    }

    /// The look-up in this slot, if it can be inlined.
    fn lookup(&self, slot: usize) -> Option<HelperCall> {
        let fact = self.facts[slot].call?;
        let array = self.linkage.maps.get(fact.map? as usize)?.inline?;
        Some(HelperCall::Lookup(array, fact.key.filter(|&key| key < array.max_entries)))
    }
}
