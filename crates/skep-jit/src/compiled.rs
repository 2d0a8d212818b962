//! A program as machine code, and its entries: for hosts ([`Entry`]) and for tail calls of other programs
//! ([`TailEntry`]).

use skep_abi::{Printed, RunEnv};
use skep_text::{Arena, BRANCH_BYTES, Text};
use std::sync::Arc;
use std::time::Duration;

use crate::arch::Native;
use crate::kept::Kept;
use crate::port::Arch;
use crate::site::{Site, TailCalls};
use crate::watch::Watch;

/// A program as machine code. Dropping it gives its memory back: it must not be running then.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) text: Text,
    pub(crate) code_bytes: u32,
    /// Where the code of each slot is.
    pub(crate) kept: Kept,
    pub(crate) functions: Box<[u32]>,
    pub(crate) tail_calls: TailCalls,
    pub(crate) instructions: u32,
    pub(crate) install: Duration,
    /// The code holds addresses of these.
    pub(crate) _printed: Arc<[(u32, Printed)]>,
}

/// The entry of a compiled program: arguments in `r1` and `r2`, and the environment of the run.
///
/// Valid as long as the [`Compiled`] it was taken from.
#[derive(Clone, Copy, Debug)]
pub struct Entry(unsafe extern "C" fn(u64, u64, *mut RunEnv) -> u64);

/// Where tail calls enter a program. Valid as long as it and the [`Compiled`] that it was made from are kept.
#[derive(Debug)]
pub struct TailEntry {
    address: usize,
    /// The adapter that passes the program its arguments, if there is one.
    _adapter: Option<Text>,
}

impl TailEntry {
    /// Its address. Only sites, stubs and table entries of programs with the same arguments may lead to it.
    pub fn address(&self) -> usize {
        self.address
    }
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

    /// Keeps a value until the code's memory is free ([`Text::keep_until_free`]).
    pub fn keep_until_free(&mut self, kept: impl Send + Sync + 'static) {
        self.text.keep_until_free(kept);
    }

    /// Length of the code in bytes.
    pub fn code_bytes(&self) -> usize {
        self.code_bytes as usize
    }

    /// How many machine instructions the code has, padding not counted.
    pub fn instructions(&self) -> u32 {
        self.instructions
    }

    /// The part of the compilation time that installation took: reserving a place in the arena, writing the code for
    /// it, copying it there and making it runnable.
    pub fn install_time(&self) -> Duration {
        self.install
    }

    /// Where the code of each slot begins, in bytes from the start of the text; the last entry is the length of the
    /// code. A slot without code has the offset of the next one, and one with several [`pieces`](Self::pieces) that of
    /// the first. Offsets ascend unless there are pieces: a pass may put blocks in another order. Unpacked by each
    /// call.
    pub fn offsets(&self) -> Vec<u32> {
        self.kept.offsets()
    }

    /// The pieces of code in their order, if a pass moved or copied instructions: where each begins, in bytes from the
    /// start of the text, and the slot that it belongs to. Empty if [`offsets`](Self::offsets) says it all.
    /// Unpacked by each call.
    pub fn pieces(&self) -> Vec<(u32, u32)> {
        self.kept.pieces()
    }

    /// Where the code of each function begins, in bytes from the start of the text, prologues included: in ascending
    /// order, the first at 0. Code that all functions share belongs to the last one.
    pub fn functions(&self) -> &[u32] {
        &self.functions
    }

    /// Its tail calls through branches that are replaced while it runs.
    pub fn sites(&self) -> &[Site] {
        &self.tail_calls.sites
    }

    /// The stub through which one of its sites enters another program, with the same arguments, at its [tail
    /// entry](TailEntry::address). Only the site's branch may lead to it, and it must be kept until a grace period has
    /// passed since the branch was replaced. `None` if the branch leads to the entry itself.
    ///
    /// # Errors
    ///
    /// As [`Arena::stub`]: if there is no room, or the entry is out of reach.
    pub fn stub(&self, site: &Site, arena: &Arena, entry: usize) -> Result<Option<Text>, skep_text::Error> {
        let Some(code) = &site.code else { return Ok(None) };
        let behind = self.text.address() + site.offset() + BRANCH_BYTES;
        arena.stub(code, &[entry, behind]).map(Some)
    }

    /// Makes the entry for tail calls. A program that makes no tail calls, and needs arguments that only hosts pass,
    /// gets an adapter: a small text that sets them and jumps to the program.
    ///
    /// # Errors
    ///
    /// As [`Arena::stub`].
    pub fn tail_entry(&self, arena: &Arena) -> Result<TailEntry, skep_text::Error> {
        let TailCalls { entry, environment, length, .. } = self.tail_calls;
        let address = self.text.address() + entry as usize;
        let code = Native::adapter(environment, length);
        if code.is_empty() {
            return Ok(TailEntry { address, _adapter: None });
        }
        let adapter = arena.stub(&code, &[address])?;
        Ok(TailEntry { address: adapter.address(), _adapter: Some(adapter) })
    }
}

impl Compiled {
    /// Where the branch at the entry of a function is, in bytes from the start of the text. It does nothing at first.
    /// It may lead to the [start](Self::start) of a program that is verified for the function's arguments, or to the
    /// stub of [`watch`](Self::watch). `None` without [`Options::patchable`](crate::Options::patchable), and for
    /// functions without code.
    pub fn entry_of(&self, function: usize) -> Option<usize> {
        self.tail_calls.entries.get(function).copied().flatten().map(|offset| offset as usize)
    }

    /// Where calls of a function enter this program, which takes the function's place: at the branch of its own first
    /// function, if that has one. `None` if the program is no extension.
    pub fn start(&self) -> Option<usize> {
        let direct = !self.tail_calls.environment && self.tail_calls.length.is_none();
        let offset = self.entry_of(0).unwrap_or(self.tail_calls.entry as usize);
        direct.then(|| self.text.address() + offset)
    }

    /// The stub to which the branch at a function's entry leads while the function is watched. It runs the function
    /// itself. It is used as [`stub`](Self::stub) says.
    ///
    /// # Errors
    ///
    /// As [`Arena::stub`]; [`skep_text::Error::OutOfText`] if the function has no such branch.
    pub fn watch(&self, function: usize, arena: &Arena, watch: &Watch) -> Result<Text, skep_text::Error> {
        let missing = skep_text::Error::OutOfText { offset: 0, len: 0, text: self.text.len() };
        let behind = self.text.address() + self.entry_of(function).ok_or(missing)? + BRANCH_BYTES;
        arena.stub(&Native::watch(watch), &[behind])
    }
}

impl Entry {
    /// Runs the program and returns its `r0`.
    ///
    /// # Safety
    ///
    /// The [`Compiled`] and all maps of its linkage must live until this returns. `r1` and `r2` must be what the
    /// program was verified to be given ([`skep_abi::Entry`]), and no one else may access what they point to
    /// meanwhile. `env` must be the environment of this run, with a CPU number below that of the
    /// per-CPU maps, and all that the helpers require of it; it may be null if the program calls nothing but its own
    /// functions, its runs do not end early, and none of its functions may be replaced.
    #[inline]
    pub unsafe fn call(self, r1: u64, r2: u64, env: *mut RunEnv) -> u64 {
        // SAFETY: the caller's promises are all that verified code requires.
        unsafe { (self.0)(r1, r2, env) }
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.0 as usize
    }
}
