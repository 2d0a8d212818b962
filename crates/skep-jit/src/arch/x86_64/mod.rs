//! x86-64, System V calling convention.
//!
//! Compiled functions keep these promises, which helpers and hosts rely on: `rsp` is a multiple of 16 at every
//! call, `rbx rbp r12 r13 r14 r15` are what they were when a function returns, the direction flag is never
//! touched, and no more than the 128 bytes below `rsp` that the convention sets aside are used without being
//! reserved. No flag is live between two BPF instructions.

mod alu;
mod atomic;
mod branch;
mod call;
mod divide;
mod encode;
mod frame;
mod memory;
mod regs;

use skep_isa::{Reg, Width};

use crate::layout::Assembly;
use encode::{Bytes, Cc};
use frame::Frame;
use regs::Gpr;

pub(crate) use alu::takes_memory;
pub(crate) use branch::{
    head_padding, jump_len, jump_longest, jump_start, write_distance, write_jump, write_padding,
};

/// Instructions beyond the first x86-64 that the code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// BMI2: shifts by any register, and three-operand rotates and multiplications.
    pub(crate) bmi2: bool,
}

/// Turns operations on BPF registers into machine code.
pub(crate) struct Emitter<'a> {
    pub(crate) code: Assembly,
    features: Features,
    /// Whether a direct call from the code's final place, wherever that will be, reaches an address.
    reaches: &'a dyn Fn(u64) -> bool,
    frame: Frame,
    /// The register and width of which the zero flag says whether it is zero. Any instruction ends this but
    /// those of [`Emitter::put_plain`] and [`Emitter::put_result`]; so does a place that jumps lead to.
    zero: Option<(Gpr, Width)>,
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(code: Assembly, features: Features, reaches: &'a dyn Fn(u64) -> bool) -> Self {
        Self { code, features, reaches, frame: Frame::default(), zero: None }
    }

    /// Control comes here from elsewhere too: nothing is known of flags.
    pub(crate) fn join(&mut self) {
        self.zero = None;
    }

    /// An instruction that stops the process: control never comes here.
    pub(crate) fn trap(&mut self) {
        self.put(encode::trap());
    }

    #[inline]
    fn put(&mut self, bytes: Bytes) {
        self.zero = None;
        self.code.put(bytes.padded(), bytes.len());
    }

    /// An instruction that leaves the flags alone and writes at most this register.
    fn put_plain(&mut self, written: Option<Gpr>, bytes: Bytes) {
        let zero = self.zero.filter(|&(reg, _)| Some(reg) != written);
        self.put(bytes);
        self.zero = zero;
    }

    /// An instruction that sets the zero flag by its result in this register.
    fn put_result(&mut self, width: Width, result: Gpr, bytes: Bytes) {
        self.put(bytes);
        self.zero = Some((result, width));
    }

    /// `mov` between machine registers, or nothing.
    fn copy(&mut self, dst: Gpr, src: Gpr) {
        if dst != src {
            self.put(encode::mov_rr(Width::W64, dst, src));
        }
    }

    /// A short forward jump over what is emitted before [`Emitter::land`]; no gap may lie between.
    #[must_use]
    fn skip(&mut self, condition: Option<Cc>) -> Hole {
        match condition {
            Some(cc) => self.put(encode::jcc8(cc.number(), 0)),
            None => self.put(encode::jmp8(0)),
        }
        Hole(self.code.here())
    }

    /// Where a short jump leads.
    fn land(&mut self, hole: Hole) {
        let distance = self.code.here() - hole.0;
        debug_assert!(distance < 128);
        *self.code.byte_mut(hole.0 - 1) = distance as u8;
        self.join();
    }
}

/// A short jump without its distance.
struct Hole(usize);

fn gpr(reg: Reg) -> Gpr {
    regs::gpr(reg)
}
