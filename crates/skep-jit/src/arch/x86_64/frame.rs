//! Entry and exit of functions.
//!
//! A function saves only what it uses. Its BPF stack lies below `rbp`, which is set up only where `r10` is
//! named:
//!
//! ```text
//!   with calls                              without calls
//!     return address                          return address
//!     rbp of the caller   <- rbp = r10        r12 rbx r13 r14 r15 of the caller, as used
//!     BPF stack                               rbp of the caller   <- rbp = r10 = rsp
//!     padding                                 BPF stack: up to 128 bytes lie in the red zone
//!     r12 rbx r13 r14 r15, as used  <- rsp, a multiple of 16
//! ```
//!
//! The entry function of a program that needs its environment takes it from its third argument into `r12`;
//! the functions it calls find it there. Functions that helpers call have one more entry, which takes it from the
//! sixth argument. The budget of `may_goto` is in 8 extra bytes at the lower end of the BPF
//! stack. If the program may read bytes that it never wrote, the rest of the BPF stack is zeroed.
//!
//! A program that makes tail calls has an entry for hosts in front of its own (`enter_run`), which saves `r12`, sets it
//! to the environment and the count, and restores it. Functions of the program leave it alone.

use skep_abi::MAX_LOOPS;
use skep_isa::{Size, Width};

use super::encode::{self, Cc, Group1, Mem, Scale};
use super::regs::{ENV, Gpr, PRESERVED, SCRATCH, SCRATCH2, SIXTH};
use super::{Emitter, gpr};
use crate::layout::Label;
use crate::port::{Branches, Calls, FrameSpec, Frames, LEFT};

/// Bytes below `rsp` that signal handlers do not write (the red zone, System V ABI, 3.2.2).
const RED_ZONE: u32 = 128;
/// The most bytes that are zeroed without a loop: the reach of short displacements.
const MOST_STORES: u32 = 128;

/// How the current function saves what it must preserve.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    saved: [Option<Gpr>; 5],
    /// Whether `rbp` is the BPF frame pointer.
    pointer: bool,
    calls: bool,
    /// Bytes between `rbp` (or the last saved register) and the next push.
    reserve: u32,
    /// Where the first exit was emitted.
    exit: Option<Label>,
}

impl Frame {
    fn new(spec: &FrameSpec, environment: bool) -> Self {
        let mut saved = [None; 5];
        saved[0] = environment.then_some(ENV);
        for (slot, reg) in saved[1..].iter_mut().zip(PRESERVED) {
            *slot = spec.written.contains(reg).then_some(gpr(reg));
        }
        let stack = if spec.uses_stack { spec.stack_bytes } else { 0 };
        let pushed = 8 * (saved.iter().flatten().count() as u32 + u32::from(spec.uses_stack));
        let reserve = if spec.calls {
            // The caller's call left `rsp` eight bytes off.
            stack + (8 + pushed + stack) % 16
        } else if stack > RED_ZONE {
            stack
        } else {
            0
        };
        Self { saved, pointer: spec.uses_stack, calls: spec.calls, reserve, exit: None }
    }

    /// Whether an exit has nothing to undo.
    pub(super) fn is_empty(&self) -> bool {
        self.exit_len() == 1
    }

    /// Bytes of an exit.
    fn exit_len(&self) -> usize {
        self.saved.iter().flatten().map(|reg| 1 + usize::from(reg.high())).sum::<usize>()
            + usize::from(self.pointer)
            + usize::from(self.reserve > 0 && !self.pointer)
            + 1
    }
}

impl Frames for Emitter<'_> {
    fn enter(&mut self, spec: &FrameSpec, first: bool, environment: bool) {
        let environment = first && environment;
        if first && self.options.landing_pads {
            self.put(encode::endbr64());
        }
        let frame = Frame::new(spec, environment);
        self.frame = frame;
        if frame.calls {
            self.enter_pointer();
            self.reserve();
            self.push_saved();
        } else {
            self.push_saved();
            self.enter_pointer();
            self.reserve();
        }
        if environment {
            self.copy(ENV, Gpr::RDX);
        }
        if frame.pointer {
            self.zero_stack(spec.zeroed);
        }
        // Who calls a function that may be watched has waited.
        if first || self.options.patchable {
            self.begin_path();
        }
        if let Some(budget) = spec.budget {
            self.put(encode::store_i(Size::B8, Mem::at(Gpr::RBP, budget), MAX_LOOPS as i32));
        }
    }

    fn enter_run(&mut self, target: Label) {
        if self.options.landing_pads {
            self.put(encode::endbr64());
        }
        // With the return address that makes 16 bytes.
        self.put(encode::push(ENV));
        self.put(encode::lea(Width::W64, ENV, Mem::at(Gpr::RDX, LEFT as i32)));
        self.call_local(target);
        self.put(encode::pop(ENV));
        self.put(encode::ret());
    }

    fn enter_callback(&mut self, target: Label) {
        if self.options.landing_pads {
            self.put(encode::endbr64());
        }
        // With the return address that makes 16 bytes.
        self.put(encode::push(ENV));
        self.copy(ENV, SIXTH);
        self.begin_path();
        self.call_local(target);
        self.put(encode::pop(ENV));
        self.put(encode::ret());
    }

    fn exit(&mut self, label: Label) {
        let frame = self.frame;
        // A short jump has two bytes.
        if frame.exit_len() > 3 {
            if let Some(first) = frame.exit {
                return self.jump(first);
            }
            self.code.bind(label);
            self.frame.exit = Some(label);
        }
        self.unwind();
        self.put(encode::ret());
    }
}

impl Emitter<'_> {
    /// Undoes the function's entry. Only callee-saved registers and `rcx` change.
    pub(super) fn unwind(&mut self) {
        if self.frame.calls {
            self.pop_saved();
            self.leave();
        } else {
            self.leave();
            self.pop_saved();
        }
    }

    fn enter_pointer(&mut self) {
        if self.frame.pointer {
            self.put(encode::push(Gpr::RBP));
            self.copy(Gpr::RBP, Gpr::RSP);
        }
    }

    /// Zeroes this number of bytes below `rbp`, a multiple of 8.
    ///
    /// ```text
    ///          xor r11d, r11d
    ///          mov r10, -bytes
    ///   again: mov [rbp + r10], r11
    ///          add r10, 8
    ///          jne again
    /// ```
    fn zero_stack(&mut self, bytes: u32) {
        if bytes == 0 {
            return;
        }
        self.put(encode::zero(SCRATCH));
        if bytes <= MOST_STORES {
            for down in (8..=bytes as i32).step_by(8) {
                self.put(encode::store_r(Size::B8, Mem::at(Gpr::RBP, -down), SCRATCH));
            }
            return;
        }
        self.put(encode::mov_ri(SCRATCH2, i64::from(bytes).wrapping_neg() as u64));
        let again = self.code.here();
        let place = Mem::indexed(Gpr::RBP, SCRATCH2, Scale::X1, 0);
        self.put(encode::store_r(Size::B8, place, SCRATCH));
        self.put(encode::alu_ri(Group1::Add, Width::W64, SCRATCH2, 8));
        let back = again as i64 - (self.code.here() as i64 + 2);
        self.put(encode::jcc8(Cc::NotEqual.number(), back as i8));
    }

    fn reserve(&mut self) {
        match self.frame.reserve {
            0 => {}
            // One byte instead of four; the pushed value does not matter.
            8 => self.put(encode::push(Gpr::RAX)),
            bytes => self.put(encode::alu_ri(Group1::Sub, Width::W64, Gpr::RSP, bytes as i32)),
        }
    }

    /// Undoes [`Emitter::enter_pointer`] and [`Emitter::reserve`].
    fn leave(&mut self) {
        match (self.frame.pointer, self.frame.reserve) {
            (true, 0) => self.put(encode::pop(Gpr::RBP)),
            (true, _) => self.put(encode::leave()),
            (false, 0) => {}
            // Without a pointer there is only padding, and at an exit `r4` is dead.
            (false, _) => self.put(encode::pop(Gpr::RCX)),
        }
    }

    fn push_saved(&mut self) {
        for reg in self.frame.saved.into_iter().flatten() {
            self.put(encode::push(reg));
        }
    }

    fn pop_saved(&mut self) {
        for reg in self.frame.saved.into_iter().rev().flatten() {
            self.put(encode::pop(reg));
        }
    }
}
