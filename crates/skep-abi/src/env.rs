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

/// The environment block of one run. Compiled code knows the first two offsets.
///
/// ```text
///   0  tail_calls u32 | 4  cpu u32 | 8  context u64 | 16  host u64 | 24  program u64 | 32  callback | 40  engine
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RunEnv {
    /// Tail calls taken so far in this run, over all frames.
    pub tail_calls: u32,
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
}

impl RunEnv {
    /// Offset of `tail_calls` in bytes.
    pub const TAIL_CALLS: i32 = 0;
    /// Offset of `cpu` in bytes.
    pub const CPU: i32 = 4;
}

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

/// How compiled code reaches one map.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapLink {
    /// The value of a map pointer in the program: what helpers receive for the map.
    pub handle: u64,
    /// Address of element 0's value where programs may address values directly (arrays).
    pub value_base: Option<u64>,
    /// How a look-up may be inlined.
    pub inline: Option<InlineArray>,
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
    /// be inlined ([`MapLink::inline`], [`RunEnv::cpu`]).
    pub inline_linux_helpers: bool,
}

impl Linkage {
    /// The implementation of that helper.
    pub fn helper(&self, id: u32) -> Option<HelperFn> {
        let at = self.helpers.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.helpers[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::RunEnv;
    use std::mem::offset_of;

    #[test]
    fn offsets_that_compiled_code_knows() {
        assert_eq!(offset_of!(RunEnv, tail_calls) as i32, RunEnv::TAIL_CALLS);
        assert_eq!(offset_of!(RunEnv, cpu) as i32, RunEnv::CPU);
    }
}
