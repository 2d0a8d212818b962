//! What compiled code, the interpreter and helpers share while a program runs.
//!
//! A run has one [`RunEnv`]. Compiled code keeps its address in a callee-saved register and passes it to
//! every helper as a hidden sixth argument. Nothing is looked up in thread-local storage.
//!
//! # Callbacks
//!
//! A program may pass one of its own functions to a helper. The helper receives a number that only the engine
//! running the program can interpret, and calls the function through [`RunEnv::callback`]:
//!
//! ```text
//!   program --call bpf_loop(f)--> helper --callback(f, args, env)--> function f --r0--> helper --r0--> program
//! ```
//!
//! Compiled code passes the address of an entry with the signature of [`HelperFn`]. Without a [`RunEnv::callback`],
//! helpers call that address directly.

use std::any::Any;
use std::sync::Arc;

use skep_isa::{Imm64, Insn};

use crate::{CountsLink, EndsLink};

/// The environment block of one run. Compiled code knows the offsets of `cpu`, `printed`, `thrown` and
/// `units`.
///
/// ```text
///   0  tail_calls_left u32 | 4  cpu u32 | 8  context u64 | 16  host u64 | 24  program u64 | 32  callback | 40  engine
///  48  sleepable u32 | 52  sections u32 | 56  printed u64 | 64  thrown u32 | 72  run u64
///  80  units i32 | 88  ending u64 | 96  state u64
/// ```
/// Its address is a multiple of [`RunEnv::ALIGN`], so compiled code can count tail calls in the lowest bits of the
/// register that holds the address: one count for all frames, which no frame can reset.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct RunEnv {
    /// Tail calls that this run may still make, over all frames and programs; starts at [`MAX_TAIL_CALLS`]. Only
    /// the interpreter uses it, not compiled code.
    pub tail_calls_left: u32,
    /// The virtual CPU number of this run. No two runs have the same number at the same time.
    pub cpu: u32,
    /// Address of the native context ([`crate::XdpContext`], [`crate::SkbContext`]), 0 for raw programs.
    pub context: u64,
    /// Address of private data of the helpers' owner.
    pub host: u64,
    /// Address that identifies the running program to the helpers' owner.
    pub program: u64,
    /// How helpers call functions of the program. If `None`, the numbers that they receive are addresses of
    /// [`HelperFn`]s.
    pub callback: Option<CallbackFn>,
    /// Address of `callback`'s own data. It belongs to the engine.
    pub engine: u64,
    /// Not 0 in a run that may sleep. Such a run is in a normal read-side critical section only if it entered one
    /// itself.
    pub sleepable: u32,
    /// Number of normal read-side critical sections that the run entered by functions of its own and has not left
    /// yet.
    pub sections: u32,
    /// Address of the [`crate::Printed`] of the call in progress, or 0. Engines set it before each helper call for
    /// which the verifier recorded one; the helper takes it and clears the field. Before a call of a function that
    /// [allocates](crate::OwnKfunc::allocates) they set it to [`Linkage::types`] instead, and before a call of a helper
    /// with state to that state's address ([`Linkage::state`]).
    pub printed: u64,
    /// Not 0 while an exception unwinds functions, whose results are then its cookie. The function that the run
    /// entered, or that a tail call reached, resets it to 0. The interpreter does not use it for exceptions.
    ///
    /// [`RunEnv::ENDED`] in a run that is over: every function returns at once, in both engines.
    pub thrown: u32,
    /// Address of what the helpers' owner keeps for this run, or 0.
    pub run: u64,
    /// Units of work that are left until the engine asks whether to go on ([`crate::EndsLink::charge`]).
    pub units: i32,
    /// Address of what the helpers' owner knows of this run's end, or 0.
    pub ending: u64,
    /// Address of what the helpers' owner knows of the state that the run's caller lends to helpers, or 0.
    pub state: u64,
}

impl RunEnv {
    /// Alignment of its address, in bytes.
    pub const ALIGN: usize = align_of::<Self>();
    /// Offset of `cpu` in bytes.
    pub const CPU: i32 = 4;
    /// Offset of `printed` in bytes.
    pub const PRINTED: i32 = 56;
    /// Offset of `thrown` in bytes.
    pub const THROWN: i32 = 64;
    /// Offset of `units` in bytes.
    pub const UNITS: i32 = 80;
    /// The value of `thrown` in a run that is over.
    pub const ENDED: u32 = 2;
}

impl Default for RunEnv {
    #[inline]
    fn default() -> Self {
        Self {
            tail_calls_left: MAX_TAIL_CALLS,
            cpu: 0,
            context: 0,
            host: 0,
            program: 0,
            callback: None,
            engine: 0,
            sleepable: 0,
            sections: 0,
            printed: 0,
            thrown: 0,
            run: 0,
            units: 0,
            ending: 0,
            state: 0,
        }
    }
}

/// Most tail calls of one run (Linux's `MAX_TAIL_CALL_CNT`). The next one falls through.
pub const MAX_TAIL_CALLS: u32 = 33;

/// The implementation of a helper. It takes the five arguments that the program passed, then the run's environment.
///
/// # Safety
///
/// Callers guarantee that the arguments satisfy the helper's [`crate::HelperProto`], which the verifier has proved
/// for programs, and that `env` is the environment of the run in progress.
pub type HelperFn = unsafe extern "C" fn(u64, u64, u64, u64, u64, *mut RunEnv) -> u64;

/// Calls a function of the running program. It takes the function's number as the helper received it, the
/// function's arguments, and the run's environment.
///
/// # Safety
///
/// Callers guarantee that the program passed the function as an [`crate::ArgKind::Callback`] to the helper in
/// progress, that the arguments match that callback's signature, and that `env` is the environment of the run in
/// progress, to which no reference exists.
pub type CallbackFn = unsafe extern "C" fn(u64, &[u64; 5], *mut RunEnv) -> u64;

/// The `may_goto` budget of one call of a function: the number of iterations after which `may_goto` leaves the
/// loop. Linux's `BPF_MAX_LOOPS`, and also the most iterations of `bpf_loop`.
pub const MAX_LOOPS: u32 = 8 << 20;

/// What compiled code knows of a program array. The handle of such a map is the address of this structure.
///
/// ```text
///   0  entries u64 | 8  len u32
/// ```
///
/// Entries are addresses at which tail calls enter programs, or 0 for empty elements. They are read by single loads
/// and change while programs run.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTable {
    /// Address of the first entry. Each entry has eight bytes.
    pub entries: u64,
    /// Number of entries.
    pub len: u32,
}

impl ProgramTable {
    /// Offset of `entries` in bytes.
    pub const ENTRIES: i32 = 0;
    /// Offset of `len` in bytes.
    pub const LEN: i32 = 8;
}

/// How compiled code reaches one map.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapLink {
    /// The value of the map's pointer in the program, which helpers receive for the map.
    pub handle: u64,
    /// Address of element 0's value, if programs may address values directly (arrays).
    pub value_base: Option<u64>,
    /// How a look-up can be inlined.
    pub inline: Option<InlineArray>,
    /// The entries of a program array.
    pub programs: Option<ProgramTable>,
    /// Where the memory of an arena is.
    pub arena: Option<ArenaLink>,
}

/// How engines reach the memory of an arena.
///
/// Only the lower half of an address counts: with an instruction's offset it says how far from `base` the access is.
/// All of that, and [`ArenaLink::GUARD`] bytes before and after it, may be read. A byte may be written if its page is
/// there: if the byte at `base + table + page` is not 0, where `page` is the distance from `base` divided by the size
/// of a page.
///
/// ```text
///   base + table - 16          base + table                  base - GUARD  base        base + 4 GiB
///   | pages of the guard (0s) | page 0 | page 1 | ... | 0s |  ...  | guard |  the arena  | guard |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaLink {
    /// Address of what programs know as the offset 0.
    pub base: u64,
    /// Distance from there to the byte that says whether page 0 is there; a multiple of 4096.
    pub table: i32,
    /// The upper half of the addresses that the host uses; the lower half is 0.
    pub user: u64,
    /// The host's addresses with a lower half below this one are in the next 4 GiB; 0 if none is.
    pub turn: u32,
}

impl ArenaLink {
    /// Bytes in a page, whatever those of the system have.
    pub const PAGE: u32 = 4096;
    /// Bytes that an arena's addresses reach.
    pub const WINDOW: u64 = 1 << 32;
    /// Bytes before and behind them that an offset of 16 bits and the size of an access can reach, and more.
    pub const GUARD: u64 = 1 << 16;

    /// What `addr_space_cast` to the host's address space makes of an address.
    pub const fn user_address(self, address: u64) -> u64 {
        match address as u32 {
            0 => 0,
            low => self.user + self.turn as u64 + low.wrapping_sub(self.turn) as u64,
        }
    }
}

/// An array whose look-ups can be inlined. The value of index `i` is at `base + i * stride + cpu * cpu_stride`.
#[derive(Clone, Copy, Debug)]
pub struct InlineArray {
    /// Address of the first value.
    pub base: u64,
    /// Bytes from one element to the next.
    pub stride: u32,
    /// Bytes from one CPU's values to the next CPU's; 0 if all CPUs share them.
    pub cpu_stride: u32,
    /// Number of elements.
    pub max_entries: u32,
}

/// Where a program's maps and helpers are in this process.
#[derive(Clone, Debug, Default)]
pub struct Linkage {
    /// Maps by map index.
    pub maps: Vec<MapLink>,
    /// Implementations by helper number, sorted by number. Programs of a runtime share them.
    pub helpers: Arc<[(u32, HelperFn)]>,
    /// Whether helpers 1 and 8 are Linux's `map_lookup_elem` and `get_smp_processor_id`, so that they can be
    /// inlined ([`MapLink::inline`], [`RunEnv::cpu`]), and helper 12 is its `tail_call`, which is never called.
    pub inline_linux_helpers: bool,
    /// Implementations of the runtime's own functions by number ([`crate::own_kfunc`]), sorted by number.
    pub functions: Arc<[(u32, HelperFn)]>,
    /// Address of what functions that [allocate](crate::OwnKfunc::allocates) need to know of the program's types, or
    /// 0.
    pub types: u64,
    /// Keeps what `types` is the address of.
    pub kept: Option<Arc<dyn Any + Send + Sync>>,
    /// How runs end early, if they do.
    pub ends: Option<EndsLink>,
    /// Where what the program executes is counted, if it is. It is of one program, unlike the rest.
    pub counts: Option<CountsLink>,
    /// The state of helpers that have one, by number, sorted.
    pub states: Vec<(u32, Arc<dyn Any + Send + Sync>)>,
}

impl Linkage {
    /// The arena of a program with these instructions; a program has one at most.
    pub fn arena(&self, insns: &[Insn]) -> Option<ArenaLink> {
        insns.iter().find_map(|insn| match *insn {
            Insn::LoadImm64 { value: Imm64::Map(map) | Imm64::MapValue { map, .. }, .. } => {
                self.maps.get(map as usize)?.arena
            }
            _ => None,
        })
    }

    /// The implementation of the runtime's own function of that number.
    pub fn function(&self, number: u32) -> Option<HelperFn> {
        let at = self.functions.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        Some(self.functions[at].1)
    }

    /// The address of the state of the helper of that number, if it has one. It lives as long as this.
    pub fn state(&self, id: u32) -> Option<u64> {
        let at = self.states.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(Arc::as_ptr(&self.states[at].1).cast::<()>().expose_provenance() as u64)
    }

    /// The implementation of the helper of that number.
    pub fn helper(&self, id: u32) -> Option<HelperFn> {
        let at = self.helpers.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.helpers[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::{ProgramTable, RunEnv};
    use std::mem::offset_of;

    #[test]
    fn offsets_that_compiled_code_knows() {
        assert_eq!(RunEnv::ALIGN, 128);
        assert_eq!(offset_of!(RunEnv, cpu) as i32, RunEnv::CPU);
        assert_eq!(offset_of!(RunEnv, printed) as i32, RunEnv::PRINTED);
        assert_eq!(offset_of!(RunEnv, thrown) as i32, RunEnv::THROWN);
        assert_eq!(offset_of!(RunEnv, units) as i32, RunEnv::UNITS);
        assert_eq!(offset_of!(ProgramTable, entries) as i32, ProgramTable::ENTRIES);
        assert_eq!(offset_of!(ProgramTable, len) as i32, ProgramTable::LEN);
    }
}
