//! Compiles verified BPF programs to machine code.
//!
//! [`compile`] takes a [`Verified`] program, which only the verifier can make, and the addresses of its maps
//! and helpers, and returns [`Compiled`] code, finalized in the host's [`Arena`]. There is one machine register
//! for each BPF register, so code is made in one pass over the instructions:
//!
//! ```text
//!   passes  copies of small loops, loops in bulk; a program without loops is left alone
//!   plan    where jumps lead, which loops there are, what each function saves; refuses what has no code
//!   live    live registers; instructions whose results are dead get no code
//!   lower   instructions to bytes, a few fused where that is shorter; branches left open
//!   layout  gives each branch its length, and loops of several cache lines a good place
//!   write   to a draft, at the address where the code will run
//! ```
//!
//! Each pass goes over the program at most a fixed number of times.
//!
//! Where [`Linkage::inline_linux_helpers`] says that the helpers are Linux's, the CPU number and look-ups in
//! arrays ([`MapLink::inline`](skep_abi::MapLink::inline)) need no call.
//!
//! # Safety
//!
//! Compiled code checks nothing that the verifier has proved. It relies on: the [`Linkage`] (helpers that keep
//! to their prototypes, maps that outlive the code), the caller of [`Entry::call`], and the verifier.
//!
//! # Constants
//!
//! By default constants of a program appear in its code unchanged. So an attacker's program can place chosen bytes in
//! executable memory, and another bug might jump into the middle of them. With [`Options::blind_constants`] none does
//! but offsets of loads and stores, which have 16 bits, and those that no attack needs: on x86-64 the numbers 0 to 8,
//! 16, 32 and 64, on aarch64, where instructions are aligned and constants fill no whole one, those of 16 bits.

mod arch;
mod blind;
mod compiled;
mod ends;
mod error;
mod kept;
mod layout;
mod live;
mod lower;
/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod model;
mod options;
mod parts;
mod passes;
mod plan;
mod port;
mod reduce;
mod site;
mod watch;

use skep_abi::{Linkage, Printed};
use skep_text::{Arena, SystemCall};
use skep_verifier::Verified;
use std::sync::Arc;
use std::time::Instant;

pub use compiled::{Compiled, Entry, TailEntry};
pub use error::Error;
pub use options::{Options, Passes};
pub use site::Site;
pub use watch::{Watch, WatchFn};

use arch::aarch64::Aarch64;
use arch::x86_64::X86_64;
use kept::Kept;
use parts::Parts;
use passes::Places;
use port::{Arch, Home};

/// Whether programs can be compiled on this architecture. Elsewhere they can be interpreted.
pub const SUPPORTED: bool = arch::SUPPORTED;

/// Compiles a program for the running processor and places it in the arena.
///
/// Calls are shortest if the arena is near the helpers.
///
/// # Errors
///
/// If the machine has no backend, the program has an unsupported instruction or names a map or helper that the linkage
/// lacks, or the arena is full.
pub fn compile(
    program: &Verified,
    linkage: &Linkage,
    options: Options,
    arena: &Arena,
) -> Result<Compiled, Error> {
    let parts = Parts::of(program, linkage, options);
    let name = || format!("skep_prog_{}_{}", skep_isa::Tag(program.tag()), program.name());
    compile_parts(parts, Arc::clone(program.printed()), arch::detect(), options, arena, name)
}

/// A machine that programs can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// x86-64, System V calling convention.
    X86_64,
    /// AArch64 (Armv8-A in 64-bit state), AAPCS64 calling convention.
    Aarch64,
}

impl Target {
    /// Every one of them.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The machine that this runs on, if it is one of them.
    pub fn host() -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == std::env::consts::ARCH)
    }

    /// Its name: what `std::env::consts::ARCH` is on it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => X86_64::NAME,
            Self::Aarch64 => Aarch64::NAME,
        }
    }
}

/// Machine code for inspection.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// The code.
    pub bytes: Vec<u8>,
    /// Where the code of each slot begins, as in [`Compiled::offsets`].
    pub offsets: Box<[u32]>,
    /// All pieces of code of slots that have several, as in [`Compiled::pieces`].
    pub pieces: Box<[(u32, u32)]>,
    /// How many instructions it has, padding not counted.
    pub instructions: u32,
}

/// The code of a program for the newest processors of any of the machines, as it would be at the beginning of a range
/// of addresses that holds all code, such as [`Arena::range`]. It is not run.
///
/// # Errors
///
/// As for [`compile`], but for the arena's.
pub fn emit(
    program: &Verified,
    linkage: &Linkage,
    options: Options,
    target: Target,
    home: std::ops::Range<usize>,
) -> Result<Emitted, Error> {
    let parts = Parts::of(program, linkage, options);
    match target {
        Target::X86_64 => emit_parts::<X86_64>(parts, options, home),
        Target::Aarch64 => emit_parts::<Aarch64>(parts, options, home),
    }
}

fn emit_parts<A: Arch>(
    parts: Parts<'_>,
    options: Options,
    home: std::ops::Range<usize>,
) -> Result<Emitted, Error> {
    let address = home.start as u64;
    let home = Home::within(address..home.end as u64);
    let (layout, _, _, places) = lower::lower::<A>(parts, A::NEWEST, options, &home)?;
    let mut bytes = vec![0; layout.len()];
    layout.write(address, &mut bytes).ok_or(Error::OutOfReach)?;
    let (offsets, pieces) = (offsets(&places, &layout).collect(), pieces(&places, &layout).collect());
    Ok(Emitted { bytes, offsets, pieces, instructions: layout.instructions() })
}

/// Where the code of each slot begins, and the end.
fn offsets<A: Arch>(places: &Places, layout: &layout::Layout<A>) -> impl Iterator<Item = u32> {
    places.first().iter().map(|slot| layout.offset(*slot)).chain([layout.len() as u32])
}

/// Where the code of slots begins that are elsewhere than [`offsets`] says, because passes have moved or copied them.
fn pieces<A: Arch>(places: &Places, layout: &layout::Layout<A>) -> impl Iterator<Item = (u32, u32)> {
    places.copies().map(|(at, slot)| (layout.offset(at), slot))
}

fn compile_parts(
    parts: Parts<'_>,
    printed: Arc<[(u32, Printed)]>,
    features: <arch::Native as Arch>::Features,
    options: Options,
    arena: &Arena,
    name: impl FnOnce() -> String,
) -> Result<Compiled, Error> {
    if !arch::SUPPORTED {
        return Err(Error::Architecture(std::env::consts::ARCH));
    }
    let range = arena.range();
    let home = Home::within(range.start as u64..range.end as u64);
    let (layout, functions, tail_calls, places) =
        lower::lower::<arch::Native>(parts, features, options, &home)?;
    let probes = || layout.probes().map(|(slot, probe)| (places.origin(slot), probe));
    let len = layout.len();
    let started = Instant::now();
    let mut draft = arena.draft_aligned(len, layout.align())?;
    if arena.is_seen() {
        draft.set_name(name());
    }
    let address = draft.address() as u64;
    layout.write(address, draft.bytes_mut()).ok_or(Error::OutOfReach)?;
    for (slot, probe) in probes() {
        draft.probe(probe).map_err(|source| Error::Probe { slot, source })?;
    }
    let text = draft.finalize().map_err(|source| match (probes().next(), &source) {
        (Some((slot, _)), skep_text::Error::System { call: SystemCall::InstallHandler, .. }) => {
            Error::Probe { slot, source }
        }
        _ => source.into(),
    })?;
    let install = started.elapsed();
    let kept = Kept::new(offsets(&places, &layout), pieces(&places, &layout));
    let (code_bytes, instructions) = (len as u32, layout.instructions());
    Ok(Compiled { text, code_bytes, kept, functions, tail_calls, instructions, install, _printed: printed })
}
