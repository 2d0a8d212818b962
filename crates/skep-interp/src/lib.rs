//! A BPF interpreter: the oracle that every compiler of BPF is compared with.
//!
//! It executes what the verifier accepted ([`Verified`]) exactly as RFC 9669 words it, and is written to be
//! read: the arithmetic is one match, a load is a load. It has two ways to run a program:
//!
//! * [`Interpreter::run`] trusts the verifier, as compiled code does;
//! * [`Interpreter::run_checked`] trusts nobody. It watches every register, every access to memory, every
//!   jump and every helper's arguments, and stops with a [`Violation`] where the program does what the
//!   verifier should not have accepted, or what contradicts the facts that the verifier left for compilers.
//!
//! ```text
//!   Verified + Linkage --Interpreter::new--> Interpreter --run---------> r0
//!                                                 |
//!                                                 +-------run_checked--> r0 or Violation
//!                                                            Regions ----^
//! ```

mod alu;
mod code;
mod exec;
mod maps;
mod memory;
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
pub use regions::{Regions, Rights};
pub use violation::{MemoryAccess, Reason, Violation};

use skep_abi::{Linkage, RunEnv};
use skep_text::Loads;
use skep_verifier::Verified;
use std::ptr::NonNull;
use std::sync::Arc;
use thiserror::Error;

use code::{Code, Parts};

/// Why a program cannot be interpreted. Slots count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The program uses what this version does not interpret.
    #[error("instruction {slot} is {what}, which the interpreter does not support")]
    Unsupported {
        /// Where.
        slot: u32,
        /// What it is.
        what: &'static str,
    },
    /// The linkage has no such helper.
    #[error("instruction {slot} calls helper {id}, which the host did not link: register it before loading")]
    UnknownHelper {
        /// Where.
        slot: u32,
        /// The helper's number.
        id: u32,
    },
    /// The linkage has no such map.
    #[error("instruction {slot} names map {map}, which the host did not link")]
    UnknownMap {
        /// Where.
        slot: u32,
        /// The map's index.
        map: u32,
    },
    /// The map's values have no fixed place.
    #[error("instruction {slot} takes the address of map {map}'s value, but only arrays have fixed values")]
    NoDirectValue {
        /// Where.
        slot: u32,
        /// The map's index.
        map: u32,
    },
    /// The program reads objects that may be gone, and no loads that may fault were given.
    #[error(
        "instruction {slot} reads an object of the host that may be gone, and must give 0 where it faults: give the \
         interpreter loads that may fault (Interpreter::probing), which need the host's fault handler"
    )]
    NoProbes {
        /// The first such instruction.
        slot: u32,
    },
    /// The instructions do not form a program. The verifier lets no such program pass.
    #[error("instruction {slot} is malformed: {what}")]
    Malformed {
        /// Where.
        slot: u32,
        /// What is wrong.
        what: &'static str,
    },
}

/// A program ready to be interpreted, any number of times and by any number of threads at once.
#[derive(Clone, Debug)]
pub struct Interpreter {
    code: Code,
}

/// Finds the program that a tail call leads to: the handle of the map, the index, and the environment of the run.
/// `None` where there is none.
///
/// # Safety
///
/// Callers guarantee that the handle is that of a map of programs of the linkage, or was found in one of its maps, and
/// that the environment is that of the run in progress. What is returned lives until that run has ended.
pub type FindProgram = unsafe fn(map: u64, index: u32, env: *mut RunEnv) -> Option<NonNull<Interpreter>>;

impl Interpreter {
    /// Prepares a verified program: maps and helpers are looked up once.
    ///
    /// # Errors
    ///
    /// Where a map or a helper is not linked, or the program uses what the interpreter does not support;
    /// [`Error::NoProbes`] for programs that need [`Interpreter::probing`].
    pub fn new(program: &Verified, linkage: &Linkage) -> Result<Self, Error> {
        Ok(Self { code: Code::with(Parts::from(program), linkage, None)? })
    }

    /// Prepares a verified program that may read objects of the host which are gone ([`skep_verifier::Fact::probe`]):
    /// such a load gives 0 where it faults. Others are prepared as by [`Interpreter::new`], which refuses these.
    ///
    /// A thread that runs it must not block SIGSEGV or SIGBUS.
    ///
    /// # Errors
    ///
    /// As [`Interpreter::new`].
    pub fn probing(program: &Verified, linkage: &Linkage, loads: Arc<Loads>) -> Result<Self, Error> {
        Ok(Self { code: Code::with(Parts::from(program), linkage, Some(loads))? })
    }

    /// Says where tail calls lead. Without it they lead nowhere, as where every map of programs is empty.
    #[must_use]
    pub fn find_programs(mut self, find: FindProgram) -> Self {
        self.code.find = Some(find);
        self
    }

    /// Runs the program and returns its result, `r0`. It takes as long as the program does.
    ///
    /// Accesses that are not aligned to their size are allowed; a misaligned *atomic* operation is not atomic.
    ///
    /// # Safety
    ///
    /// * The maps and helpers of the linkage must live, and the helpers must keep to their prototypes.
    /// * `r1` and `r2` must be what the program was verified to be given ([`Verified::entry`]): the address of
    ///   a native context, which `env.context` holds too and whose packet addresses are valid, or the address
    ///   and the length of a buffer.
    /// * Nothing may access that memory meanwhile, other than atomically.
    /// * A program made by [`Interpreter::probing`] must not run on a thread that blocks SIGSEGV or SIGBUS.
    pub unsafe fn run(&self, r1: u64, r2: u64, env: &mut RunEnv) -> u64 {
        // SAFETY: this function's contract, and `Verified`, which says that the program keeps to it.
        let Ok(result) = unsafe { exec::run(&self.code, r1, r2, env, &mut exec::Unwatched) };
        result
    }

    /// Runs the program and watches it. If its verification kept its states ([`Verified::recorded`]), the machine is
    /// compared with them before every instruction. Programs that it goes over to by tail calls are not watched. Slow:
    /// for tests, and for hunting down a verifier's mistake.
    ///
    /// # Errors
    ///
    /// The first thing that the program does and may not. Nothing has been read or written outside of the
    /// program's memory by then, but for objects of the host that probe loads read; what it wrote before stays written.
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
        // SAFETY: this function's contract; what the verifier should have proved is checked step by step.
        unsafe { exec::run(&self.code, r1, r2, env, &mut watch) }
    }
}
