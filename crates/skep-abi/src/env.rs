//! What compiled code, the interpreter and helpers share while a program runs.
//!
//! A run has one [`RunEnv`]. Compiled code keeps its address in a callee-saved register and passes it to
//! every helper as a hidden sixth argument; nothing is looked up in thread-local storage on the way.
//!
//! # Callbacks
//!
//! A program may hand a helper one of its own functions. What the helper receives is a number that means
//! something to the engine that runs the program alone, and it calls the function through [`RunEnv::callback`]:
//!
//! ```text
//!   program --call bpf_loop(f)--> helper --callback(f, args, env)--> function f --r0--> helper --r0--> program
//! ```
//!
//! Compiled code passes the address of an entry with the signature of [`HelperFn`]: where there is no
//! [`RunEnv::callback`], that is called directly.

/// The environment block of one run. Compiled code knows the offsets of `cpu`, `printed` and `thrown`.
///
/// ```text
///   0  tail_calls_left u32 | 4  cpu u32 | 8  context u64 | 16  host u64 | 24  program u64 | 32  callback | 40  engine
///  48  sleepable u32 | 52  sections u32 | 56  printed u64 | 64  thrown u32
/// ```
/// It begins at a multiple of [`RunEnv::ALIGN`], so that compiled code can count tail calls in the lowest bits of the
/// register that holds its address: one count for all frames, which none of them can reset.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct RunEnv {
    /// Tail calls that this run may still make, over all frames and programs: [`MAX_TAIL_CALLS`] at its beginning. The
    /// interpreter's; compiled code does not look at it.
    pub tail_calls_left: u32,
    /// The virtual CPU number of this run: no two runs have the same at the same time.
    pub cpu: u32,
    /// Address of the native context ([`crate::XdpContext`], [`crate::SkbContext`]), 0 for raw programs.
    pub context: u64,
    /// Address of whatever the helpers' owner keeps behind them.
    pub host: u64,
    /// Address of whatever identifies the running program to the helpers' owner.
    pub program: u64,
    /// How helpers call functions of the program; `None` where their numbers are addresses of [`HelperFn`]s.
    pub callback: Option<CallbackFn>,
    /// Address of whatever `callback` works on; the engine's own.
    pub engine: u64,
    /// Not 0 in a run that may sleep: it is in a normal read section only where it entered one itself.
    pub sleepable: u32,
    /// How many normal read sections the run has entered by functions of its own and not left yet.
    pub sections: u32,
    /// Address of the [`crate::Printed`] of the call in progress, or 0: engines write it before calls of helpers that
    /// the verifier took something down for, and the helper takes it away.
    pub printed: u64,
    /// Not 0 while an exception leaves functions, and their result is its cookie. The function that the run entered, or
    /// that a tail call led to, makes it 0 again. Compiled code's; the interpreter does not look at it.
    pub thrown: u32,
}

impl RunEnv {
    /// What its address is a multiple of.
    pub const ALIGN: usize = align_of::<Self>();
    /// Offset of `cpu` in bytes.
    pub const CPU: i32 = 4;
    /// Offset of `printed` in bytes.
    pub const PRINTED: i32 = 56;
    /// Offset of `thrown` in bytes.
    pub const THROWN: i32 = 64;
}

impl Default for RunEnv {
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
        }
    }
}

/// How many tail calls one run makes at most (Linux's `MAX_TAIL_CALL_CNT`). The one after that falls through.
pub const MAX_TAIL_CALLS: u32 = 33;

/// The implementation of a helper: five arguments as the program passed them, then the run's environment.
///
/// # Safety
///
/// Callers guarantee that the arguments satisfy the helper's [`crate::HelperProto`], which the verifier has
/// proved for programs, and that `env` is the environment of the run in progress.
pub type HelperFn = unsafe extern "C" fn(u64, u64, u64, u64, u64, *mut RunEnv) -> u64;

/// Calls a function of the running program: its number as the helper received it, its arguments, and the run's
/// environment.
///
/// # Safety
///
/// Callers guarantee that the function is one that the program passed to the helper in progress as an
/// [`crate::ArgKind::Callback`], that the arguments are what that says, and that `env` is the environment of
/// the run in progress, to which nobody holds a reference.
pub type CallbackFn = unsafe extern "C" fn(u64, &[u64; 5], *mut RunEnv) -> u64;

/// How many times `may_goto` lets a function go on in one call of it, before it leaves the loop: Linux's
/// `BPF_MAX_LOOPS`, and the most rounds that `bpf_loop` makes.
pub const MAX_LOOPS: u32 = 8 << 20;

/// What compiled code knows of an array of programs. The handle of such a map is the address of one.
///
/// ```text
///   0  entries u64 | 8  len u32
/// ```
///
/// Entries are addresses at which tail calls enter programs, or 0 where there is none. They are read by single loads,
/// and change while programs run.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTable {
    /// Address of the first entry, of eight bytes each.
    pub entries: u64,
    /// How many there are.
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
    /// The value of a map pointer in the program: what helpers receive for the map.
    pub handle: u64,
    /// Address of element 0's value where programs may address values directly (arrays).
    pub value_base: Option<u64>,
    /// How a look-up may be inlined.
    pub inline: Option<InlineArray>,
    /// The entries of an array of programs.
    pub programs: Option<ProgramTable>,
}

/// An array whose look-ups may be inlined: the value of index `i` lies at
/// `base + i * stride + cpu * cpu_stride`.
#[derive(Clone, Copy, Debug)]
pub struct InlineArray {
    /// Address of the first value.
    pub base: u64,
    /// Bytes from one element to the next.
    pub stride: u32,
    /// Bytes from one CPU's values to the next CPU's; 0 where all CPUs share them.
    pub cpu_stride: u32,
    /// Number of elements.
    pub max_entries: u32,
}

/// Where a program's maps and helpers are in this process.
#[derive(Clone, Debug, Default)]
pub struct Linkage {
    /// By map index.
    pub maps: Vec<MapLink>,
    /// Implementations by helper number, sorted by it.
    pub helpers: Vec<(u32, HelperFn)>,
    /// Whether helper 1 is Linux's `map_lookup_elem` and helper 8 its `get_smp_processor_id`, so that they may
    /// be inlined ([`MapLink::inline`], [`RunEnv::cpu`]), and helper 12 its `tail_call`, which is never called.
    pub inline_linux_helpers: bool,
    /// Implementations of the runtime's own functions by their number ([`crate::own_kfunc`]), sorted by it.
    pub functions: Vec<(u32, HelperFn)>,
}

impl Linkage {
    /// The implementation of that function of the runtime's own.
    pub fn function(&self, number: u32) -> Option<HelperFn> {
        let at = self.functions.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        Some(self.functions[at].1)
    }

    /// The implementation of that helper.
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
        assert_eq!(offset_of!(ProgramTable, entries) as i32, ProgramTable::ENTRIES);
        assert_eq!(offset_of!(ProgramTable, len) as i32, ProgramTable::LEN);
    }
}
