//! Programs before and after verification.

pub(crate) mod addresses;
pub(crate) mod assumed;
pub(crate) mod cfg;
pub(crate) mod config;
pub(crate) mod env;
pub(crate) mod exception;
pub(crate) mod extension;
pub(crate) mod facts;
pub(crate) mod global;
pub(crate) mod halves;
pub(crate) mod kept;
pub(crate) mod liveness;
pub(crate) mod prototype;
pub(crate) mod roots;
pub(crate) mod violation;

use crate::domain::recorded::Recorded;
use crate::program::assumed::{Assumption, Maps, Read, assumptions};
use crate::program::config::Config;
use crate::program::extension::Extension;
use crate::program::kept::Kept;
use skep_abi::{
    ContextField, Entry, Function, LineInfo, MapDef, Printed, ProgramSource, ProgramType, Prototype,
    TargetFunction,
};
use skep_btf::Kind;
use skep_isa::Insn;
use std::sync::Arc;

/// A program before verification. Nothing about it is trusted.
#[derive(Clone, Debug)]
pub struct Unverified {
    /// The program as the loader assembled it.
    pub source: ProgramSource,
    /// The maps it may name, by index.
    pub maps: Arc<[MapDef]>,
    /// What its runs are given.
    pub entry: Entry,
}

/// A program during verification. Its maps are read through [`Maps`] alone.
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

/// A program proved safe, rewritten for the host's native structures, with the facts of the proof.
///
/// Made by [`crate::verify`] alone.
#[derive(Clone, Debug)]
pub struct Verified {
    pub(crate) name: String,
    pub(crate) program_type: &'static ProgramType,
    pub(crate) target: Option<String>,
    pub(crate) sleepable: bool,
    pub(crate) of: Option<Arc<TargetFunction>>,
    pub(crate) extension: Option<Box<Extension>>,
    pub(crate) entry: Entry,
    pub(crate) kept: Kept,
    pub(crate) functions: Vec<FunctionFacts>,
    pub(crate) exception_callback: Option<usize>,
    pub(crate) printed: Arc<[(u32, Printed)]>,
    pub(crate) allocated: Box<[(u32, bool)]>,
    pub(crate) foreign_sockets: Box<[u32]>,
    pub(crate) element: ElementUse,
    pub(crate) context_bytes: u32,
    pub(crate) maps: Arc<[MapDef]>,
    pub(crate) read: Box<[Read]>,
    pub(crate) tag: [u8; 8],
    pub(crate) stats: Stats,
    pub(crate) recorded: Option<Arc<Recorded>>,
}

/// The facts about one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// Whether any path reaches it; the others need no code.
    pub reached: bool,
    /// Whether a jump that is reached leads to it.
    pub jump_target: bool,
    /// Whether it heads a loop: the target of a reached backward jump.
    pub loop_head: bool,
    /// For loads: the address is that of an object of the host that may not exist. A load that faults must give 0, and
    /// the program goes on. The instruction accesses nothing else on any path.
    pub probe: bool,
    /// For loads, stores and atomics: the lower half of the address counts from the start of the program's arena, and
    /// the instruction accesses nothing else on any path. A load from a page that is not there must give 0, a store
    /// to it must do nothing.
    pub arena: bool,
    /// For calls of helpers, what is constant on every path.
    pub call: Option<CallFact>,
    /// The field that it accesses, if skep's native structures lack it: the instruction is not rewritten and must not
    /// run.
    pub foreign: Option<&'static ContextField>,
    /// Whether the call ends the program: it is `bpf_throw`, and `r1` is the cookie.
    pub throws: bool,
    /// Whether some path loads here from the stack what it knows to be there: a pointer, or a number of which not
    /// every value is possible. What was there before must not be found in its place, even for a moment (Spectre's
    /// variant 4).
    pub reload: bool,
}

/// What is the same on every path that reaches a helper call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFact {
    /// The map argument's index.
    pub map: Option<u32>,
    /// The constant key, for array maps whose 4-byte key is known.
    pub key: Option<u32>,
    /// Whether the key of an array is always below the number of elements in the map's definition.
    pub in_bounds: bool,
}

/// The facts about one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Its name.
    pub name: String,
    /// Its first slot.
    pub start: u32,
    /// One past its last slot.
    pub end: u32,
    /// Bytes of stack below `r10` that it uses, a multiple of 8, at most 512.
    pub stack_bytes: u32,
    /// Whether some path may read bytes of this stack that it has not written: an engine must zero the stack on entry.
    pub zeroed: bool,
    /// Whether it, or a function that it calls, may end the program by `bpf_throw`.
    pub may_throw: bool,
    /// Its prototype, if the program's types have one.
    pub prototype: Option<Prototype>,
    /// Whether it is verified by itself, by its prototype alone.
    pub global: bool,
    /// Whether its callers expect that it may move the packet.
    pub moves_packet: bool,
    /// Whether a helper calls it, or a function that helpers call.
    pub in_callback: bool,
}

/// What a program uses of an element that an iterator shows, over all paths: the proof assumes that both are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElementUse {
    /// Bytes of the key, from its start.
    pub key: u32,
    /// Bytes of the value, from its start.
    pub value: u32,
    /// Whether it writes to the value.
    pub writes: bool,
}

/// The cost of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions walked over all paths.
    pub walked: u64,
    /// The most states at once: explored ones, and those of pending paths.
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
    #[inline]
    pub fn program_type(&self) -> &'static ProgramType {
        self.program_type
    }

    /// What it is attached to, if its section names that.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// Whether it runs where sleeping is allowed.
    #[inline]
    pub fn is_sleepable(&self) -> bool {
        self.sleepable
    }

    /// The function of another program that it takes the place of, or that it watches.
    pub fn of(&self) -> Option<&Arc<TargetFunction>> {
        self.of.as_ref()
    }

    /// Whether it takes the place of a function: its arguments are those of the function, and the host cannot run it.
    pub fn is_extension(&self) -> bool {
        self.extension.is_some()
    }

    /// Whether it watches a function of another program.
    pub fn is_watcher(&self) -> bool {
        self.of.is_some() && self.extension.is_none()
    }

    /// Checks that it may take the place of this function, or watch it.
    ///
    /// # Errors
    ///
    /// Why not, as a text.
    pub fn fits(&self, target: &TargetFunction) -> Result<(), String> {
        let name = &self.name;
        match (&self.extension, &self.of) {
            (Some(extension), _) => extension.fits(target, &Config::default()),
            (None, Some(of)) => {
                let known = |of: &TargetFunction| {
                    let returns = of.btf.resolve(of.prototype.result).is_ok_and(|ty| ty.kind != Kind::Void);
                    (of.prototype.params.len(), returns)
                };
                if known(of) == known(target) {
                    return Ok(());
                }
                Err(format!("{name} watches a function with other arguments than {}", target.name))
            }
            (None, None) => Err(format!("{name} was not loaded to replace or to watch a function")),
        }
    }

    /// What its runs are given.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Its instructions, one entry a slot, rewritten: context accesses go to the native structures, and a conditional
    /// jump that only ever goes one way is unconditional. So no reached instruction jumps to or falls into an unreached
    /// one, but for a call of a function that never returns.
    pub fn insns(&self) -> &[Insn] {
        &self.kept.slots().insns
    }

    /// Packs instructions, facts and source lines, for a program that is kept for long after it was compiled. The
    /// first question about one of them unpacks all again, and they stay so.
    pub fn pack(&mut self) {
        self.kept.pack();
    }

    /// Bytes of heap that the [packed](Self::pack) instructions, facts and lines take; `None` before.
    pub fn packed_bytes(&self) -> Option<usize> {
        self.kept.packed_bytes()
    }

    /// [`Verified::insns`] as in an object file, 8 bytes a slot. Empty if one of them cannot be written so. Does not
    /// unpack a [packed](Self::pack) program.
    pub fn encoded(&self) -> Vec<u8> {
        self.kept.encoded()
    }

    /// The facts about each slot; as long as [`Verified::insns`].
    pub fn facts(&self) -> &[Fact] {
        &self.kept.slots().facts
    }

    /// By slot: whether it is a 32-bit operation whose upper half nothing reads, so that a machine that does not clear
    /// it need not. Computed by each call.
    pub fn without_extension(&self) -> Vec<bool> {
        crate::program::halves::without_extension(self.insns())
    }

    /// Its functions in ascending order; the first is the program itself.
    pub fn functions(&self) -> &[FunctionFacts] {
        &self.functions
    }

    /// The index of the exception callback: it takes the cookie, and its result is the program's. Without one the
    /// cookie is the result.
    pub fn exception_callback(&self) -> Option<usize> {
        self.exception_callback
    }

    /// What is proved about the values that helpers print, by slot in ascending order. An engine puts the address of
    /// the second into [`skep_abi::RunEnv::printed`] before such a call.
    pub fn printed(&self) -> &Arc<[(u32, Printed)]> {
        &self.printed
    }

    /// The structures of the program's own BTF that it allocates objects of, ascending by number, and whether per CPU.
    pub fn allocated(&self) -> &[(u32, bool)] {
        &self.allocated
    }

    /// The slots of calls of Linux's helpers to which the program may pass, as a socket, an object of the host by its C
    /// type or what a look-up in an `xskmap` found. A runtime whose helpers take only sockets that it made refuses
    /// them. Ascending.
    pub fn foreign_sockets(&self) -> &[u32] {
        &self.foreign_sockets
    }

    /// What it uses of an element that an iterator shows. Whoever runs it over a map's elements must compare this
    /// with the map: the sizes are not among [`Verified::assumptions`].
    pub fn element_use(&self) -> ElementUse {
        self.element
    }

    /// Up to which byte it reads a context that is plain bytes, like a tracepoint's record; 0 for other contexts.
    /// An attachment must compare this with what there is: the size is not among [`Verified::assumptions`].
    pub fn context_bytes(&self) -> u32 {
        self.context_bytes
    }

    /// The maps that its instructions name by index.
    pub fn maps(&self) -> &[MapDef] {
        &self.maps
    }

    /// Everything that the proof assumes about the maps that the program names. It may run with real maps that satisfy
    /// all of this for as long as a run can reach them.
    pub fn assumptions(&self) -> impl Iterator<Item = Assumption<'_>> {
        assumptions(self, &self.read)
    }

    /// Source lines in ascending order of slots.
    pub fn lines(&self) -> &[LineInfo] {
        &self.kept.slots().lines
    }

    /// The tag of the original instructions: what Linux 6.18 and later show if libbpf loads the same object.
    pub fn tag(&self) -> [u8; 8] {
        self.tag
    }

    /// Every state of the walk, if [`crate::Config::max_recorded`] asked for them.
    pub fn recorded(&self) -> Option<&Arc<Recorded>> {
        self.recorded.as_ref()
    }

    /// The cost of the verification.
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
