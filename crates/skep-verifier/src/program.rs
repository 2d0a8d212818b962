//! Programs before and after verification.

pub(crate) mod addresses;
pub(crate) mod assumed;
pub(crate) mod cfg;
pub(crate) mod config;
pub(crate) mod env;
pub(crate) mod exception;
pub(crate) mod facts;
pub(crate) mod global;
pub(crate) mod halves;
pub(crate) mod liveness;
pub(crate) mod prototype;
pub(crate) mod roots;
pub(crate) mod violation;

use crate::domain::recorded::Recorded;
use crate::program::assumed::{Assumption, Maps, Read, assumptions};
use skep_abi::{ContextField, Entry, Function, LineInfo, MapDef, Printed, ProgramSource, ProgramType};
use skep_isa::Insn;
use std::sync::Arc;

/// A program that nothing is known of.
#[derive(Clone, Debug)]
pub struct Unverified {
    /// The program as the loader assembled it.
    pub source: ProgramSource,
    /// The maps it may name, by index.
    pub maps: Arc<[MapDef]>,
    /// What it will be given.
    pub entry: Entry,
}

/// A program while it is verified: what is known of its maps is read through [`Maps`] alone.
pub(crate) struct Subject {
    pub(crate) source: ProgramSource,
    pub(crate) maps: Maps,
    pub(crate) entry: Entry,
}

impl From<Unverified> for Subject {
    fn from(program: Unverified) -> Self {
        let Unverified { source, maps, entry } = program;
        Self { maps: Maps::new(maps, &source.insns), source, entry }
    }
}

/// A program that was proved safe, rewritten for the host's native structures, with what the proof learned.
///
/// Made by [`crate::verify`] alone.
#[derive(Clone, Debug)]
pub struct Verified {
    pub(crate) name: String,
    pub(crate) program_type: &'static ProgramType,
    pub(crate) sleepable: bool,
    pub(crate) entry: Entry,
    pub(crate) insns: Vec<Insn>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) functions: Vec<FunctionFacts>,
    pub(crate) exception_callback: Option<usize>,
    pub(crate) printed: Arc<[(u32, Printed)]>,
    pub(crate) maps: Arc<[MapDef]>,
    pub(crate) read: Box<[Read]>,
    pub(crate) lines: Vec<LineInfo>,
    pub(crate) tag: [u8; 8],
    pub(crate) stats: Stats,
    pub(crate) recorded: Option<Arc<Recorded>>,
}

/// What verification learned of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// Whether any path reaches it; the others need no code.
    pub reached: bool,
    /// Whether a jump that is reached leads to it.
    pub jump_target: bool,
    /// Whether it heads a loop: the target of a reached backward jump.
    pub loop_head: bool,
    /// For loads: the address is that of a host's object which nobody promises to be there. Where the load faults
    /// it must give 0, and the program goes on. On no path does the instruction access anything else.
    pub probe: bool,
    /// For calls of helpers, what is constant in every path.
    pub call: Option<CallFact>,
    /// The field that it accesses, where skep's native structures lack it: the instruction is as it was, and must not be
    /// run.
    pub foreign: Option<&'static ContextField>,
    /// Whether the call ends the program: it is `bpf_throw`, and `r1` is the cookie.
    pub throws: bool,
}

/// What is the same in every path that reaches a helper call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFact {
    /// The map argument's index.
    pub map: Option<u32>,
    /// The constant key, for array maps whose 4-byte key is known.
    pub key: Option<u32>,
    /// Whether the key of an array is always below the number of its elements, as the map's definition has it.
    pub in_bounds: bool,
}

/// What verification learned of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Its name.
    pub name: String,
    /// Its first slot.
    pub start: u32,
    /// One past its last slot.
    pub end: u32,
    /// Bytes of stack below `r10` that it uses, a multiple of 8, at most 512.
    pub stack_bytes: u32,
    /// Whether some path reads bytes of this stack that it may not have written: whoever runs the function zeroes
    /// its stack on entry.
    pub zeroed: bool,
    /// Whether it, or a function that it calls, may end the program by `bpf_throw`.
    pub may_throw: bool,
}

/// What a verification cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions walked over all paths.
    pub walked: u64,
    /// The most states at once: remembered, or of paths still to be walked.
    pub peak_states: u64,
    /// About how many bytes states took at most.
    pub peak_bytes: u64,
    /// Nanoseconds it took.
    pub nanoseconds: u64,
}

impl Verified {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub fn program_type(&self) -> &'static ProgramType {
        self.program_type
    }

    /// Whether it runs where sleeping is allowed.
    pub fn is_sleepable(&self) -> bool {
        self.sleepable
    }

    /// What it was verified to be given.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Its instructions, one entry a slot, rewritten: context accesses go to the native structures, and a
    /// conditional jump that only ever goes one way is an unconditional one. So nothing that is reached jumps
    /// to, or falls into, what is not; only a call of a function that never returns may stand before it.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// What is known of each slot; as long as [`Verified::insns`].
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// By slot: whether it is a 32-bit operation of whose result nobody reads the upper half, so that a machine
    /// that does not clear it by itself need not. Computed anew by each call.
    pub fn without_extension(&self) -> Vec<bool> {
        crate::program::halves::without_extension(&self.insns)
    }

    /// Its functions in ascending order; the first is the program itself.
    pub fn functions(&self) -> &[FunctionFacts] {
        &self.functions
    }

    /// Which of its functions exceptions end in: it is given the cookie, and its result is the program's. Without one
    /// the cookie is the result.
    pub fn exception_callback(&self) -> Option<usize> {
        self.exception_callback
    }

    /// What holds of the values that calls of helpers print, by slot in ascending order. An engine puts the address
    /// of the second into [`skep_abi::RunEnv::printed`] before such a call.
    pub fn printed(&self) -> &Arc<[(u32, Printed)]> {
        &self.printed
    }

    /// The maps that its instructions name by index.
    pub fn maps(&self) -> &[MapDef] {
        &self.maps
    }

    /// Everything that the proof takes for granted of the maps that the program names. It may run with real maps of
    /// which all of this holds, and goes on to hold for as long as a run can reach them.
    pub fn assumptions(&self) -> impl Iterator<Item = Assumption<'_>> {
        assumptions(self, &self.read)
    }

    /// Source lines in ascending order of slots.
    pub fn lines(&self) -> &[LineInfo] {
        &self.lines
    }

    /// The tag of the instructions as they were given, before any rewrite: what Linux 6.18 and later show where
    /// libbpf loads the same object.
    pub fn tag(&self) -> [u8; 8] {
        self.tag
    }

    /// Every state of the walk, where [`crate::Config::max_recorded`] asked for them.
    pub fn recorded(&self) -> Option<&Arc<Recorded>> {
        self.recorded.as_ref()
    }

    /// What the verification cost.
    pub fn stats(&self) -> Stats {
        self.stats
    }
}

impl Subject {
    /// The slots of the function of that index.
    pub(crate) fn function_range(&self, index: usize) -> Option<std::ops::Range<usize>> {
        let functions: &[Function] = &self.source.functions;
        let start = functions.get(index)?.start as usize;
        let end = functions.get(index + 1).map_or(self.source.insns.len(), |next| next.start as usize);
        Some(start..end)
    }
}

/// The source line of a slot.
pub(crate) fn line_at(source: &ProgramSource, slot: u32) -> Option<&LineInfo> {
    let after = source.lines.partition_point(|line| line.slot <= slot);
    source.lines[..after].last()
}
