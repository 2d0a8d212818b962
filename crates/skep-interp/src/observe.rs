//! Runs that somebody looks at: what debuggers and recorders are told.
//!
//! An [`Observer`] sees the machine before each instruction, and each access and call. It changes nothing and stops
//! nothing: a program that stops in the middle would keep its references and locks. A debugger therefore records a run
//! to its end, and then moves in the record, backwards as easily as forwards.
//!
//! ```text
//!   step  slot 4          registers and frames, as the instruction finds them
//!   access 8 bytes        what that instruction is about to do
//!   step  slot 5
//!   call  helper 1 ...    and what functions of the program do meanwhile, if the helper calls them
//!   returned
//!   step  slot 6
//! ```
//!
//! The frames are those of the functions in progress. They follow [`Watch::enter`], [`Watch::leave`] and their kin; a
//! function that is forgotten there would show the wrong frame for the rest of the run.

use std::convert::Infallible;
use std::{fmt, ptr};

use skep_isa::{Insn, Size};

use crate::code::Code;
use crate::exec::{AccessKind, FRAME_BYTES, Registers, Watch};

/// Looks at a run ([`Interpreter::run_observed`](crate::Interpreter::run_observed)). The default methods do nothing.
///
/// If a method panics while a helper calls a function of the program, the process ends.
pub trait Observer {
    /// An instruction is about to be executed.
    fn step(&mut self, _step: &Step<'_>) {}
    /// The instruction of the last step is about to access memory at the address `at`. Probe loads and accesses to an
    /// arena are not told.
    fn access(&mut self, _at: u64, _size: Size, _kind: AccessKind) {}
    /// The instruction of the last step is about to call something with `r1` to `r5`.
    fn call(&mut self, _callee: Callee, _args: [u64; 5]) {}
    /// It returned. A tail call that succeeds does not return.
    fn returned(&mut self, _callee: Callee, _result: u64) {}
}

/// What a program calls outside of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// The helper with this number. Tail calls are helper 12.
    Helper(u32),
    /// The kernel function with this number of the linkage.
    Kfunc(u32),
}

/// The machine before an instruction.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// The slot of the instruction, from 0.
    pub slot: u32,
    /// The instruction.
    pub insn: &'a Insn,
    /// `r0` to `r10`. Those that the program has not written yet are 0, or what a call left in them.
    pub registers: &'a [u64; 11],
    code: &'a Code,
    frames: &'a [Frame],
}

impl Step<'_> {
    /// The number of functions in progress, at least 1. The first is the program's own.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The index of the function in a frame, as in [`Verified::functions`](skep_verifier::Verified::functions).
    ///
    /// # Panics
    ///
    /// If `frame` is not less than [`Step::depth`].
    #[must_use]
    pub fn function(&self, frame: usize) -> usize {
        self.code.function_index(self.frames[frame].start)
    }

    /// The slot at which a frame is: in the innermost [`Step::slot`], in others that of the call in progress.
    ///
    /// # Panics
    ///
    /// If `frame` is not less than [`Step::depth`].
    #[must_use]
    pub fn slot_of(&self, frame: usize) -> u32 {
        self.frames[frame].slot
    }

    /// The value of `r10` in a frame, the address behind its stack.
    ///
    /// # Panics
    ///
    /// If `frame` is not less than [`Step::depth`].
    #[must_use]
    pub fn top(&self, frame: usize) -> u64 {
        self.frames[frame].top
    }

    /// A copy of a frame's stack. Its last byte is at `r10 - 1`.
    ///
    /// # Panics
    ///
    /// If `frame` is not less than [`Step::depth`].
    #[must_use]
    pub fn stack(&self, frame: usize) -> [u8; FRAME_BYTES] {
        let bottom = self.frames[frame].top as usize - FRAME_BYTES;
        // SAFETY: the interpreter opened this frame: it exposed the memory and wrote all of it. The frame lives as
        // long as the run, which waits for the observer, and a `Step` lives no longer than the observer's call.
        unsafe { ptr::with_exposed_provenance::<[u8; FRAME_BYTES]>(bottom).read() }
    }
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, insn, registers, code: _, frames } = self;
        f.debug_struct("Step")
            .field("slot", slot)
            .field("insn", insn)
            .field("registers", registers)
            .field("frames", frames)
            .finish_non_exhaustive()
    }
}

/// A function in progress.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// The slot of its first instruction.
    start: usize,
    /// The slot of its current instruction.
    slot: u32,
    /// Its `r10`.
    top: u64,
}

/// Tells an observer what the interpreter's loop tells a [`Watch`].
pub(crate) struct Observed<'a, O: ?Sized> {
    code: &'a Code,
    observer: &'a mut O,
    frames: Vec<Frame>,
}

impl<'a, O: Observer + ?Sized> Observed<'a, O> {
    pub(crate) fn new(code: &'a Code, observer: &'a mut O) -> Self {
        Self { code, observer, frames: Vec::new() }
    }
}

impl<O: Observer + ?Sized> Watch for Observed<'_, O> {
    type Stop = Infallible;

    fn enter(&mut self, slot: usize, top: u64) {
        self.frames.push(Frame { start: slot, slot: slot as u32, top });
    }

    fn leave(&mut self) {
        self.frames.pop();
    }

    fn step(&mut self, slot: usize, insn: &Insn, registers: &mut Registers) -> Result<(), Infallible> {
        let slot = slot as u32;
        if let Some(innermost) = self.frames.last_mut() {
            innermost.slot = slot;
        }
        self.observer.step(&Step { slot, insn, registers, code: self.code, frames: &self.frames });
        Ok(())
    }

    fn access(&mut self, _: usize, at: u64, size: Size, kind: AccessKind) -> Result<(), Infallible> {
        self.observer.access(at, size, kind);
        Ok(())
    }

    fn call(&mut self, _: usize, helper: u32, args: [u64; 5]) -> Result<(), Infallible> {
        self.observer.call(Callee::Helper(helper), args);
        Ok(())
    }

    fn returned(&mut self, helper: u32, _: [u64; 5], result: u64) {
        self.observer.returned(Callee::Helper(helper), result);
    }

    fn call_kfunc(&mut self, _: usize, number: u32, args: [u64; 5]) -> Result<(), Infallible> {
        self.observer.call(Callee::Kfunc(number), args);
        Ok(())
    }

    fn kfunc_returned(&mut self, number: u32, _: [u64; 5], result: u64) {
        self.observer.returned(Callee::Kfunc(number), result);
    }

    fn call_back(&mut self, slot: usize, top: u64, _: &[u64; 5]) {
        self.enter(slot, top);
    }

    fn thrown(&mut self, slot: usize, top: u64) {
        self.frames.clear();
        self.enter(slot, top);
    }
}
