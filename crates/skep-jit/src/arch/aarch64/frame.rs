//! Entry and exit of functions.
//!
//! A function saves only what it uses, and its BPF stack needs no pointer: `r10` is `sp` plus a constant.
//!
//! ```text
//!     sp on entry = r10 = sp + top
//!     BPF stack
//!     x23 x19 x20 x21 x22 of the caller, as used, in pairs
//!     x29 x30 of the caller, in functions that call     <- sp = x29, a multiple of 16
//! ```
//!
//! The entry function of a program that needs its environment takes it from its third argument into `x23`; the
//! functions it calls find it there. Functions that helpers call have one more entry, which takes it from the
//! sixth argument. The budget of `may_goto` is in 8 extra bytes at the lower end of the BPF stack. If the program may
//! read bytes that it never wrote, the rest of the BPF stack is zeroed.
//!
//! A program that makes tail calls has an entry for hosts in front of its own (`enter_run`), which saves `x23`, sets it
//! to the environment and the count, and restores it. Functions of the program leave it alone.

use skep_abi::MAX_LOOPS;
use skep_isa::{Size, Width};

use super::Emitter;
use super::encode::{self, Cc, Imm12, Mem, Pair, Shifted, Sum};
use super::regs::{self, ENV, FP, Gpr, LR, PRESERVED, RESULT, SCRATCH, SCRATCH2, SIXTH};
use crate::layout::Label;
use crate::port::{Branches, Calls, FrameSpec, Frames, LEFT};

/// The most bytes by which a load of a pair, or of one register, can raise `sp`.
const MOST_PAIR: u32 = 504;
const MOST_SINGLE: u32 = 255;
/// The most bytes that are zeroed without a loop.
const MOST_STORES: u32 = 128;

/// How the current function saves what it must preserve.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    /// The saved registers in pairs, from the lowest address on.
    saved: [Option<(Gpr, Option<Gpr>)>; 4],
    calls: bool,
    /// Bytes from `sp` to `r10`.
    top: u32,
    /// Whether the return address is signed.
    signed: bool,
    /// Where the first exit was emitted.
    exit: Option<Label>,
}

impl Frame {
    fn new(spec: &FrameSpec, environment: bool, sign: bool) -> Self {
        let record = if spec.calls { [Some(FP), Some(LR)] } else { [None; 2] };
        let preserved = PRESERVED.map(|reg| spec.written.contains(reg).then_some(regs::gpr(reg)));
        let all = record.into_iter().chain([environment.then_some(ENV)]).chain(preserved);
        let mut all = all.flatten();
        let saved = std::array::from_fn(|_| all.next().map(|first| (first, all.next())));
        let bytes: u32 =
            saved.iter().flatten().map(|(_, second)| if second.is_some() { 16 } else { 8 }).sum();
        let stack = if spec.uses_stack { spec.stack_bytes } else { 0 };
        Self {
            saved,
            calls: spec.calls,
            top: (bytes + stack).next_multiple_of(16),
            signed: sign && spec.calls,
            exit: None,
        }
    }

    /// Whether an exit has nothing to undo.
    pub(super) fn is_empty(&self) -> bool {
        self.top == 0 && !self.signed
    }

    /// Bytes from `sp` to `r10`.
    pub(super) fn top(&self) -> u32 {
        self.top
    }

    /// Whether the first store also allocates the whole frame, and the last load frees it.
    fn in_one(&self) -> bool {
        match self.saved[0] {
            Some((_, Some(_))) => self.top <= MOST_PAIR,
            Some((_, None)) => self.top <= MOST_SINGLE,
            None => false,
        }
    }
}

impl Frames for Emitter<'_> {
    fn enter(&mut self, spec: &FrameSpec, first: bool, environment: bool) {
        let environment = first && environment;
        let frame = Frame::new(spec, environment, self.options.signed_returns);
        self.frame = frame;
        self.result = false;
        if frame.signed {
            // A landing pad too (Arm ARM, PACIASP).
            self.put(encode::paciasp());
        } else if first && self.options.landing_pads {
            self.put(encode::bti_c());
        }
        let in_one = frame.in_one();
        if !in_one && frame.top > 0 {
            self.move_stack(Sum::Sub);
        }
        for (at, (a, b)) in frame.saved.into_iter().flatten().enumerate() {
            let down = -(frame.top as i32);
            self.put(match (at, b) {
                (0, Some(b)) if in_one => encode::store_pair(Width::W64, a, b, Gpr::SP, down, Pair::Pre),
                (0, None) if in_one => encode::store_indexed(a, Gpr::SP, down, Pair::Pre),
                (_, Some(b)) => encode::store_pair(Width::W64, a, b, Gpr::SP, 16 * at as i32, Pair::Offset),
                (_, None) => encode::store(Size::B8, a, encode::Mem::At(Gpr::SP, 16 * at as i32)),
            });
        }
        if frame.calls {
            self.put(encode::mov_sp(FP, Gpr::SP));
        }
        if environment {
            self.copy(ENV, Gpr::X2);
        }
        if spec.uses_stack {
            self.zero_stack(spec.zeroed);
        }
        // Who calls a function that may be watched has waited.
        if first || self.options.patchable {
            self.begin_path();
        }
        if let Some(budget) = spec.budget {
            self.constant(SCRATCH, MAX_LOOPS.into());
            let place = Mem::At(Gpr::SP, frame.top as i32 + budget);
            self.put(encode::store(Size::B8, SCRATCH, place));
        }
    }

    fn enter_run(&mut self, target: Label) {
        self.call_from_outside(target, |emit| {
            emit.add_imm(Width::W64, ENV, Gpr::X2, LEFT.into());
        });
    }

    fn enter_callback(&mut self, target: Label) {
        self.call_from_outside(target, |emit| {
            emit.copy(ENV, SIXTH);
            emit.begin_path();
        });
    }

    fn exit(&mut self, label: Label) {
        if !std::mem::take(&mut self.result) {
            self.copy(RESULT, regs::gpr(skep_isa::Reg::R0));
        }
        let frame = self.frame;
        if frame.top > 0 {
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
    /// A function that calls another one, for which `environment` sets [`ENV`].
    fn call_from_outside(&mut self, target: Label, environment: impl FnOnce(&mut Self)) {
        if self.options.signed_returns {
            self.put(encode::paciasp());
        } else if self.options.landing_pads {
            self.put(encode::bti_c());
        }
        self.put(encode::store_pair(Width::W64, FP, LR, Gpr::SP, -32, Pair::Pre));
        self.put(encode::store(Size::B8, ENV, Mem::At(Gpr::SP, 16)));
        self.put(encode::mov_sp(FP, Gpr::SP));
        environment(self);
        self.call_local(target);
        self.result = false;
        self.put(encode::load(Size::B8, None, ENV, Mem::At(Gpr::SP, 16)));
        self.put(encode::load_pair(Width::W64, FP, LR, Gpr::SP, 32, Pair::Post));
        if self.options.signed_returns {
            self.put(encode::autiasp());
        }
        self.put(encode::ret());
    }

    /// Undoes the function's entry. Only callee-saved registers change.
    pub(super) fn unwind(&mut self) {
        let frame = self.frame;
        let in_one = frame.in_one();
        for (at, (a, b)) in frame.saved.into_iter().enumerate().rev().filter_map(|(at, it)| Some((at, it?))) {
            let up = frame.top as i32;
            self.put(match (at, b) {
                (0, Some(b)) if in_one => encode::load_pair(Width::W64, a, b, Gpr::SP, up, Pair::Post),
                (0, None) if in_one => encode::load_indexed(a, Gpr::SP, up, Pair::Post),
                (_, Some(b)) => encode::load_pair(Width::W64, a, b, Gpr::SP, 16 * at as i32, Pair::Offset),
                (_, None) => encode::load(Size::B8, None, a, encode::Mem::At(Gpr::SP, 16 * at as i32)),
            });
        }
        if !in_one && frame.top > 0 {
            self.move_stack(Sum::Add);
        }
        if frame.signed {
            self.put(encode::autiasp());
        }
    }

    /// Zeroes this number of bytes below `r10`, a multiple of 8.
    ///
    /// ```text
    ///          add x16, sp, #top - bytes
    ///          add x17, sp, #top
    ///   again: stp xzr, xzr, [x16], #16
    ///          cmp x16, x17
    ///          b.ne again
    /// ```
    fn zero_stack(&mut self, bytes: u32) {
        let mut start = self.frame.top.saturating_sub(bytes);
        if !bytes.is_multiple_of(16) {
            self.put(encode::store(Size::B8, Gpr::ZR, Mem::At(Gpr::SP, start as i32)));
            start += 8;
        }
        if bytes <= MOST_STORES {
            for at in (start..self.frame.top).step_by(16) {
                self.put(encode::store_pair(Width::W64, Gpr::ZR, Gpr::ZR, Gpr::SP, at as i32, Pair::Offset));
            }
            return;
        }
        for (reg, at) in [(SCRATCH, start), (SCRATCH2, self.frame.top)] {
            if let Some(at) = Imm12::new(at.into()) {
                self.put(encode::sum_imm(Sum::Add, Width::W64, reg, Gpr::SP, at));
            }
        }
        self.put(encode::store_pair(Width::W64, Gpr::ZR, Gpr::ZR, SCRATCH, 16, Pair::Post));
        self.put(encode::sum_reg_flags(Sum::Sub, Width::W64, Gpr::ZR, SCRATCH, Shifted::plain(SCRATCH2)));
        self.put(encode::b_cond(Cc::Ne, -8));
    }

    /// `sp` down or up by the whole frame.
    fn move_stack(&mut self, op: Sum) {
        let parts = [self.frame.top & 0xfff, self.frame.top & !0xfff];
        for part in parts.into_iter().filter(|&part| part > 0) {
            if let Some(imm) = Imm12::new(part.into()) {
                self.put(encode::sum_imm(op, Width::W64, Gpr::SP, Gpr::SP, imm));
            }
        }
    }
}
