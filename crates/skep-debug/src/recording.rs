//! A run, step by step.

use skep::interp::{self, Callee, Observer};
use skep::{Error, Packet, Program, Verified};
use std::sync::Arc;

/// The most steps that are recorded. What a longer run does after them is not shown.
pub const MOST_STEPS: usize = 400_000;

/// A recorded run of a program.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Recording {
    /// The program.
    pub program: Program,
    /// At least one.
    pub steps: Vec<Step>,
    /// Whether the run has more steps than were recorded.
    pub is_cut: bool,
    /// The packet before the run.
    pub before: Vec<u8>,
    /// The packet after it.
    pub after: Vec<u8>,
    /// The program's result, or why the run failed.
    pub result: Result<u64, String>,
}

/// The machine before an instruction, and what that instruction calls.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The instruction's slot.
    pub slot: u32,
    /// `r0` to `r10`.
    pub registers: [u64; 11],
    /// The functions in progress, the program's own first. Shared by steps that have the same.
    pub frames: Arc<[Frame]>,
    /// The stack of the innermost function: 512 bytes, of which the last is at `r10 - 1`. Shared likewise.
    pub stack: Arc<[u8]>,
    /// The call that it makes to a helper or kernel function.
    pub called: Option<Called>,
}

/// A function in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// Its index in [`Verified::functions`].
    pub function: usize,
    /// Where it is: in the innermost the step's own slot, in others the call in progress.
    pub slot: u32,
}

/// A call of a helper or kernel function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Called {
    /// What is called.
    pub callee: Callee,
    /// `r1` to `r5`.
    pub args: [u64; 5],
    /// Its result; `None` if it did not return, as a tail call that succeeds.
    pub result: Option<u64>,
}

impl Recording {
    /// Runs a program on a packet, and records it. A run that might not end needs a runtime with a
    /// [budget](skep::RuntimeBuilder::budget).
    ///
    /// # Errors
    ///
    /// [`Error`] if the program does not run on packets, before its first step. What ends a run later is in
    /// [`Recording::result`].
    pub fn of(program: &Program, packet: &mut Packet) -> Result<Self, Error> {
        let before = packet.bytes().to_vec();
        let mut recorder = Recorder::default();
        let result = program.run_observed(packet, &mut recorder);
        let Recorder { steps, is_cut, .. } = recorder;
        let result = match result {
            Err(error) if steps.is_empty() => return Err(error),
            result => result.map_err(|error| error.to_string()),
        };
        Ok(Self { program: program.clone(), steps, is_cut, before, after: packet.bytes().to_vec(), result })
    }

    /// The program's instructions, functions and lines.
    pub fn verified(&self) -> &Verified {
        self.program.verified()
    }
}

/// Writes steps down.
#[derive(Default)]
struct Recorder {
    steps: Vec<Step>,
    is_cut: bool,
    /// Steps whose calls have not returned: helpers call functions of the program, which call helpers. A tail call that
    /// succeeds stays here, below those that return.
    calling: Vec<usize>,
    /// Calls in progress that were not recorded any more.
    unrecorded: usize,
}

impl Observer for Recorder {
    fn step(&mut self, step: &interp::Step<'_>) {
        if self.steps.len() == MOST_STEPS {
            self.is_cut = true;
            return;
        }
        let depth = step.depth();
        let frame = |index| Frame { function: step.function(index), slot: step.slot_of(index) };
        let frames: Vec<Frame> = (0..depth).map(frame).collect();
        let stack = step.stack(depth - 1);
        let last = self.steps.last();
        let frames = match last.filter(|last| *last.frames == *frames) {
            Some(last) => Arc::clone(&last.frames),
            None => frames.into(),
        };
        let stack = match last.filter(|last| *last.stack == stack) {
            Some(last) => Arc::clone(&last.stack),
            None => stack.as_slice().into(),
        };
        self.steps.push(Step { slot: step.slot, registers: *step.registers, frames, stack, called: None });
    }

    fn call(&mut self, callee: Callee, args: [u64; 5]) {
        let Some(step) = self.steps.last_mut().filter(|_| !self.is_cut) else {
            self.unrecorded += 1;
            return;
        };
        step.called = Some(Called { callee, args, result: None });
        self.calling.push(self.steps.len() - 1);
    }

    fn returned(&mut self, _: Callee, result: u64) {
        if self.unrecorded > 0 {
            self.unrecorded -= 1;
            return;
        }
        let step = self.calling.pop().and_then(|at| self.steps.get_mut(at));
        if let Some(called) = step.and_then(|step| step.called.as_mut()) {
            called.result = Some(result);
        }
    }
}
