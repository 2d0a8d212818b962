//! Compiles verified BPF programs to machine code.
//!
//! [`compile`] takes a [`Verified`] program, which only the verifier can make, and the addresses of its maps
//! and helpers, and returns [`Compiled`] code, finalized in the host's [`Arena`]. There is one machine register
//! for each BPF register, so compilation is one pass over the instructions:
//!
//! ```text
//!   plan    where jumps lead, which loops there are, what each function saves; refuses what has no code
//!   live    which registers are still needed; what computes for nobody gets no code
//!   lower   instructions to bytes, a few taken together (fuse) where that is shorter; branches left open
//!   layout  gives each branch its length, and loops of several cache lines a good place
//!   write   to a draft, at the address where the code will run
//! ```
//!
//! No program makes a pass go over it more than a fixed number of times.
//!
//! Where [`Linkage::inline_linux_helpers`] says that the helpers are Linux's, the CPU number and look-ups in
//! arrays ([`MapLink::inline`](skep_abi::MapLink::inline)) need no call.
//!
//! # Safety
//!
//! Compiled code checks nothing that the verifier has proved. It relies on: the [`Linkage`] (helpers that keep
//! to their prototypes, maps that outlive the code), the caller of [`Entry::call`], and the verifier.
//!
//! Constants of a program appear in its code as they are. A program of an attacker's choice can so place bytes
//! of its choice in executable memory, where another bug might jump into the middle of them. Constant blinding
//! is not implemented.

mod address;
mod arch;
mod error;
mod fuse;
mod known;
mod layout;
mod live;
mod lower;
mod magic;
#[cfg(test)]
mod model;
mod plan;
mod reduce;

use skep_abi::{Linkage, RunEnv};
use skep_text::{Arena, Text};
use skep_verifier::Verified;
use std::time::{Duration, Instant};

pub use error::Error;

use plan::Parts;

/// Whether programs can be compiled on this architecture. Where they cannot, they can be interpreted.
pub const SUPPORTED: bool = arch::SUPPORTED;

/// A program as machine code. Dropping it gives its memory back: it must not be running then.
#[derive(Debug)]
pub struct Compiled {
    text: Text,
    offsets: Box<[u32]>,
    install: Duration,
}

/// The entry of a compiled program: arguments in `r1` and `r2`, and the environment of the run.
///
/// Valid as long as the [`Compiled`] it was taken from.
#[derive(Clone, Copy, Debug)]
pub struct Entry(unsafe extern "C" fn(u64, u64, *mut RunEnv) -> u64);

/// Compiles a program for the processor at hand and places it in the arena.
///
/// Calls are shortest where the arena was made near the helpers.
///
/// # Errors
///
/// Where the machine has no backend, the program has an instruction without code or names a map or helper that
/// the linkage has not, or the arena is full.
pub fn compile(program: &Verified, linkage: &Linkage, arena: &Arena) -> Result<Compiled, Error> {
    let parts =
        Parts { insns: program.insns(), facts: program.facts(), functions: program.functions(), linkage };
    compile_parts(parts, arch::detect(), arena, || {
        format!("skep_prog_{}_{}", skep_isa::Tag(program.tag()), program.name())
    })
}

impl Compiled {
    /// Its entry.
    #[inline]
    pub fn entry(&self) -> Entry {
        // SAFETY: the text begins with the code of the program's first function, which `lower` made a function
        // of this signature, and is finalized.
        Entry(unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(u64, u64, *mut RunEnv) -> u64>(
                self.text.address(),
            )
        })
    }

    /// Where the code lies.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// Length of the code in bytes.
    pub fn code_bytes(&self) -> usize {
        self.offsets[self.offsets.len() - 1] as usize
    }

    /// How long installation took, of all that compilation took: a place in the arena, the code written for that
    /// place, copied there and made runnable.
    pub fn install_time(&self) -> Duration {
        self.install
    }

    /// Where the code of each slot begins, in bytes from the start of the text; the last entry is the length of
    /// the code. Slots without code of their own have that of what follows.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }
}

impl Entry {
    /// Runs the program and returns its `r0`.
    ///
    /// # Safety
    ///
    /// The [`Compiled`] and all maps of its linkage must live until this returns. `r1` and `r2` must be what the
    /// program was verified to be given ([`skep_abi::Entry`]), and what they point to must not be accessed by
    /// others meanwhile. `env` must be the environment of this run, with a CPU number below that of the
    /// per-CPU maps, and whatever the helpers demand of it.
    #[inline]
    pub unsafe fn call(self, r1: u64, r2: u64, env: *mut RunEnv) -> u64 {
        // SAFETY: the caller's promises are all that verified code needs.
        unsafe { (self.0)(r1, r2, env) }
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.0 as usize
    }
}

fn compile_parts(
    parts: Parts<'_>,
    features: arch::backend::Features,
    arena: &Arena,
    name: impl FnOnce() -> String,
) -> Result<Compiled, Error> {
    if !arch::SUPPORTED {
        return Err(Error::Architecture(std::env::consts::ARCH));
    }
    let layout = lower::lower(parts, features, &|address| arena.reaches(address as usize))?;
    let len = layout.len();
    let started = Instant::now();
    let mut draft = arena.draft_aligned(len, layout.align())?;
    if arena.is_seen() {
        draft.set_name(name());
    }
    let address = draft.address() as u64;
    layout.write(address, draft.bytes_mut()).ok_or(Error::OutOfReach)?;
    let text = draft.finalize()?;
    let install = started.elapsed();
    let offsets = (0..parts.insns.len() as u32).map(|slot| layout.offset(slot)).chain([len as u32]).collect();
    Ok(Compiled { text, offsets, install })
}
