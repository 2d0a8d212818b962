//! A BPF interpreter: the oracle for every BPF compiler.
//!
//! It executes what the verifier accepted ([`Verified`]) exactly as RFC 9669 defines it, and is written for
//! readability: the arithmetic is one match, a load is a load. It has three ways to run a program:
//!
//! * [`Interpreter::run`] trusts the verifier, as compiled code does;
//! * [`Interpreter::run_observed`] trusts it too, and tells an [`Observer`] each step;
//! * [`Interpreter::run_checked`] trusts nothing. It checks every register, every memory access, every jump and
//!   every helper's arguments, and stops with a [`Violation`] if the program does something that the verifier
//!   should not have accepted, or that contradicts the facts that the verifier left for compilers.
//!
//! ```text
//!   Verified + Linkage --Interpreter::new--> Interpreter --run---------> r0
//!                                                 |
//!                                                 +-------run_checked--> r0 or Violation
//!                                                            Regions ----^
//! ```

mod arena;
mod code;
mod counting;
mod exec;
mod maps;
mod memory;
mod observe;
mod own;
mod regions;
mod registers;
/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
mod violation;
mod watch;

pub use exec::AccessKind;
pub use observe::{Callee, Observer, Step};
pub use regions::{FindObject, Regions, Rights};
pub use violation::{MemoryAccess, Reason, Violation};

use skep_abi::{Linkage, RunEnv};
use skep_text::Loads;
use skep_verifier::Verified;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use thiserror::Error;

use code::{Code, Parts};

/// Why a program cannot be interpreted. Slots count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The program uses something that this version does not interpret.
    #[error("instruction {slot} is {what}, which the interpreter does not support")]
    Unsupported {
        /// Slot of the instruction.
        slot: u32,
        /// What it uses.
        what: &'static str,
    },
    /// The linkage has no such helper.
    #[error("instruction {slot} calls helper {id}, which the host did not link: register it before loading")]
    UnknownHelper {
        /// Slot of the call.
        slot: u32,
        /// The helper's number.
        id: u32,
    },
    /// The linkage has no such map.
    #[error("instruction {slot} names map {map}, which the host did not link")]
    UnknownMap {
        /// Slot of the instruction.
        slot: u32,
        /// The map's index.
        map: u32,
    },
    /// The map's values have no fixed address.
    #[error("instruction {slot} takes the address of map {map}'s value, but only arrays have fixed values")]
    NoDirectValue {
        /// Slot of the instruction.
        slot: u32,
        /// The map's index.
        map: u32,
    },
    /// The program may read freed objects, and no probe loads were given.
    #[error(
        "instruction {slot} reads an object of the host that may be gone: give the interpreter probe loads \
         (Interpreter::probing), which need the host's fault handler"
    )]
    NoProbes {
        /// The first such instruction.
        slot: u32,
    },
    /// The instructions do not form a program. The verifier accepts no such program.
    #[error("instruction {slot} is malformed: {what}")]
    Malformed {
        /// Slot of the instruction.
        slot: u32,
        /// What is wrong.
        what: &'static str,
    },
}

/// A program ready to be interpreted, any number of times and by any number of threads at the same time.
#[derive(Clone, Debug)]
#[repr(transparent)]
pub struct Interpreter {
    code: Code,
}

/// Finds the target of a tail call by the handle of the map, the index, and the environment of the run. `None` if
/// there is none.
///
/// # Safety
///
/// Callers guarantee that the handle is that of a program array of the linkage, or was found in one of its maps,
/// and that the environment is that of the run in progress. The target lives until that run has ended.
pub type FindProgram = unsafe fn(map: u64, index: u32, env: *mut RunEnv) -> Option<NonNull<Interpreter>>;

/// Asked at the beginning of each function, with what [`Interpreter::enter_functions`] was given, the function's index
/// and its arguments. `None` to run the function as it is; otherwise its result. `body` runs the function itself, at
/// most once.
///
/// # Safety
///
/// Callers guarantee that `of` is what the program's interpreter was given with this function, and that the environment
/// is that of the run in progress.
pub type EnterFunction = unsafe fn(
    of: u64,
    function: usize,
    args: &[u64; 5],
    env: *mut RunEnv,
    body: &mut dyn FnMut() -> u64,
) -> Option<u64>;

impl Interpreter {
    /// Prepares a verified program: maps and helpers are looked up once.
    ///
    /// # Errors
    ///
    /// If a map or a helper is not linked, or the program uses something that the interpreter does not support;
    /// [`Error::NoProbes`] for programs that need [`Interpreter::probing`].
    pub fn new(program: &Verified, linkage: &Linkage) -> Result<Self, Error> {
        Ok(Self { code: Code::with(Parts::from(program), linkage, None)? })
    }

    /// Prepares a verified program that may read freed objects of the host ([`skep_verifier::Fact::probe`]); a load
    /// that faults gives 0. Other programs are prepared as by [`Interpreter::new`], which refuses these.
    ///
    /// A thread that runs it must not block SIGSEGV or SIGBUS.
    ///
    /// # Errors
    ///
    /// As [`Interpreter::new`].
    pub fn probing(program: &Verified, linkage: &Linkage, loads: Arc<Loads>) -> Result<Self, Error> {
        Ok(Self { code: Code::with(Parts::from(program), linkage, Some(loads))? })
    }

    /// Sets how tail calls find their targets. Without it they fall through, as if every program array were empty.
    #[must_use]
    pub fn find_programs(mut self, find: FindProgram) -> Self {
        self.code.find = Some(find);
        self
    }

    /// Sets what is asked at the beginning of each function, with this first argument.
    #[must_use]
    pub fn enter_functions(mut self, of: u64, enter: EnterFunction) -> Self {
        self.code.enter = Some((of, enter));
        self
    }

    /// Runs an extension in place of the function that it replaces, with the function's arguments.
    ///
    /// # Safety
    ///
    /// As for [`Interpreter::run`], but for the arguments: they are those of a call of the function
    /// ([`Verified::of`]).
    pub unsafe fn run_extension(&self, args: [u64; 5], env: *mut RunEnv) -> u64 {
        // SAFETY: this function's contract; a program begins at slot 0.
        let Ok(result) = unsafe { exec::run_function(&self.code, 0, args, env, &mut exec::Unwatched, true) };
        result
    }

    /// Runs the program and returns its result, `r0`. There is no time limit.
    ///
    /// Accesses that are not aligned to their size are allowed; a misaligned *atomic* operation is not atomic.
    ///
    /// # Safety
    ///
    /// * The maps and helpers of the linkage must live, and the helpers must keep to their prototypes.
    /// * `r1` and `r2` must match the program's verified entry ([`Verified::entry`]): the address of a native
    ///   context, which `env.context` also holds and whose packet addresses are valid, or the address and the
    ///   length of a buffer.
    /// * Nothing may access that memory meanwhile, except atomically.
    /// * A program made by [`Interpreter::probing`] must not run on a thread that blocks SIGSEGV or SIGBUS.
    pub unsafe fn run(&self, r1: u64, r2: u64, env: &mut RunEnv) -> u64 {
        // SAFETY: this function's contract, and `Verified`, which guarantees that the program obeys it.
        let Ok(result) = unsafe { exec::run(&self.code, r1, r2, env, &mut exec::Unwatched) };
        result
    }

    /// Runs the program as [`Interpreter::run`] does, and tells `observer` each step. Targets of tail calls are not
    /// observed.
    ///
    /// Runs without an observer do not pay for it: the interpreter's loop is compiled for each kind of run.
    ///
    /// # Safety
    ///
    /// As for [`Interpreter::run`].
    pub unsafe fn run_observed<O: Observer + ?Sized>(
        &self,
        r1: u64,
        r2: u64,
        env: &mut RunEnv,
        observer: &mut O,
    ) -> u64 {
        let mut watch = observe::Observed::new(&self.code, observer);
        // SAFETY: this function's contract; an observer changes neither registers nor memory of the program.
        let Ok(result) = unsafe { exec::run(&self.code, r1, r2, env, &mut watch) };
        result
    }

    /// The program that is being interpreted: after a tail call not the one that the host runs. `None` in a run of
    /// another engine.
    ///
    /// # Safety
    ///
    /// A helper is in progress, and `env` is the environment of its run. The result is not used after it.
    pub unsafe fn of_run<'a>(env: *mut RunEnv) -> Option<&'a Self> {
        // SAFETY: the caller's promise; only the interpreter sets a callback. An interpreter is nothing but its code.
        unsafe {
            (*env).callback?;
            Some(&*ptr::from_ref(exec::running(env)).cast::<Self>())
        }
    }

    /// Runs a function of the program that its verifier walked for later calls, the callback of a timer, by the number
    /// that the helper received for it. Returns the result; `None` if no function has that number.
    ///
    /// # Safety
    ///
    /// As for [`Interpreter::run`], but for the arguments: they are those of the kind of callback.
    pub unsafe fn run_function(&self, function: u64, args: [u64; 5], env: &mut RunEnv) -> Option<u64> {
        let slot =
            i64::try_from(function).ok().filter(|slot| code::starts_function(&self.code.parts, *slot))?;
        // SAFETY: this function's contract.
        let Ok(result) =
            unsafe { exec::run_function(&self.code, slot as usize, args, env, &mut exec::Unwatched, true) };
        Some(result)
    }

    /// Runs the program as [`Interpreter::run`] does, and adds one to an element of `executions` for each instruction
    /// that is executed, by slot. Targets of tail calls are not counted. For tests of what counts by other means.
    ///
    /// # Panics
    ///
    /// If `executions` has fewer elements than the program has slots.
    ///
    /// # Safety
    ///
    /// As for [`Interpreter::run`].
    pub unsafe fn run_counted(&self, r1: u64, r2: u64, env: &mut RunEnv, executions: &mut [u64]) -> u64 {
        let mut watch = counting::Counting { executions };
        // SAFETY: this function's contract.
        let Ok(result) = unsafe { exec::run(&self.code, r1, r2, env, &mut watch) };
        result
    }

    /// Runs the program and checks every step. If its verification recorded its states ([`Verified::recorded`]),
    /// the machine is compared with them before every instruction. Targets of tail calls are not checked. Slow: for
    /// tests, and for finding mistakes of the verifier.
    ///
    /// # Errors
    ///
    /// The first violation. Up to then the program has read and written only its own memory, except for objects of
    /// the host that probe loads read; what it wrote stays written.
    ///
    /// # Safety
    ///
    /// As for [`Interpreter::run`], and every region that `regions` allows must be valid memory.
    pub unsafe fn run_checked(
        &self,
        r1: u64,
        r2: u64,
        env: &mut RunEnv,
        regions: &Regions<'_>,
    ) -> Result<u64, Violation> {
        let mut watch = watch::Checking::new(&self.code, r1, env.context, regions);
        // SAFETY: this function's contract; every step is checked for what the verifier should have proved.
        unsafe { exec::run(&self.code, r1, r2, env, &mut watch) }
    }
}
