//! x86-64, System V calling convention.
//!
//! Compiled functions keep these promises, which helpers and hosts rely on: `rsp` is a multiple of 16 at every
//! call, `rbx rbp r12 r13 r14 r15` are what they were when a function returns, the direction flag is never
//! touched, and no more than the 128 bytes below `rsp` that the convention sets aside are used without being
//! reserved. No flag is live between two BPF instructions.

mod alu;
mod arena;
mod atomic;
mod blind;
mod branch;
mod bulk;
mod call;
mod divide;
mod encode;
mod entry;
mod frame;
mod guard;
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod hardening_tests;
mod memory;
mod regs;
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod shape_tests;

use skep_abi::RunEnv;
use skep_isa::{AluOp, Reg, RegSet, Size, Width};

use crate::blind::Keys;
use crate::error::Error;
use crate::layout::{Assembly, Encoding};
use crate::options::Options;
use crate::port::Home;
use crate::port::operand::Address;
use crate::port::operand::Modifier;
use crate::port::{self, Arch};
use crate::watch::Watch;
pub(crate) use branch::Jump;
use encode::{Bytes, Cc, Group1};
use frame::Frame;
use regs::{ENV, Gpr};

/// The architecture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct X86_64;

/// Instructions beyond the first x86-64 that the code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// BMI2: shifts by any register, and three-operand rotates and multiplications.
    pub(crate) bmi2: bool,
}

impl Encoding for X86_64 {
    type Jump = Jump;

    const STEP: usize = 1;
    const SITE: u32 = 5;

    fn jump_start(jump: Jump) -> u32 {
        branch::jump_start(jump)
    }

    fn jump_len(jump: Jump, distance: i64, forward: bool, len: u32) -> u32 {
        branch::jump_len(jump, distance, forward, len)
    }

    fn jump_longest(jump: Jump) -> u32 {
        branch::jump_longest(jump)
    }

    fn jump_count(len: u32) -> u32 {
        branch::jump_count(len)
    }

    fn write_jump(jump: Jump, distance: i64, out: &mut [u8]) -> Option<()> {
        branch::write_jump(jump, distance, out)
    }

    fn write_distance(place: u64, target: u64, out: &mut [u8]) -> Option<()> {
        branch::write_distance(place, target, out)
    }

    fn alignment_padding(start: u32, size: u32) -> u32 {
        branch::alignment_padding(start, size)
    }

    fn site_padding(start: u32) -> u32 {
        branch::site_padding(start)
    }

    fn write_padding(out: &mut [u8]) {
        branch::write_padding(out);
    }
}

impl Arch for X86_64 {
    type Emitter<'a> = Emitter<'a>;
    type Features = Features;

    const NAME: &'static str = "x86_64";
    const NEWEST: Features = Features { bmi2: true };
    const THREE_OPERANDS: bool = false;
    const EXTENDS_INDEX: bool = false;

    fn takes_memory(op: AluOp) -> bool {
        matches!(op, AluOp::Add | AluOp::Sub | AluOp::Or | AluOp::And | AluOp::Xor | AluOp::Mul)
    }

    fn is_addressable(_: Address, _: Size) -> bool {
        true
    }

    fn is_long(address: Address) -> bool {
        i8::try_from(address.disp).is_err()
    }

    fn takes_modifier(_: AluOp, _: Width, _: Modifier) -> bool {
        false
    }

    fn watch(watch: &Watch) -> Vec<u8> {
        entry::watch(watch)
    }

    fn adapter(environment: bool, length: Option<u32>) -> Vec<u8> {
        let mut code = Vec::new();
        let mut put = |bytes: Bytes| code.extend_from_slice(&bytes.padded()[..bytes.len()]);
        if environment {
            put(encode::mov_rr(Width::W64, Gpr::RDX, ENV));
            put(encode::alu_ri(Group1::And, Width::W64, Gpr::RDX, -(RunEnv::ALIGN as i32)));
        }
        if let Some(length) = length {
            put(encode::mov_ri(gpr(Reg::R2), length.into()));
        }
        code
    }
}

/// Turns operations on BPF registers into machine code.
pub(crate) struct Emitter<'a> {
    code: Assembly<X86_64>,
    features: Features,
    options: Options,
    home: &'a Home,
    frame: Frame,
    /// Whether [`regs::ENV`] holds a count as well.
    counts: bool,
    /// The register and width that the zero flag describes. Labels and all instructions end this, except those of
    /// [`Emitter::put_plain`] and [`Emitter::put_result`].
    zero: Option<(Gpr, Width)>,
    keys: Keys,
}

impl<'a> port::Emitter<'a, X86_64> for Emitter<'a> {
    fn new(code: Assembly<X86_64>, features: Features, options: Options, home: &'a Home) -> Self {
        let (frame, keys) = (Frame::default(), Keys::new());
        Self { code, features, options, home, frame, counts: false, zero: None, keys }
    }

    fn code(&mut self) -> &mut Assembly<X86_64> {
        &mut self.code
    }

    fn count_tail_calls(&mut self) {
        self.counts = true;
    }

    fn finish(self) -> Result<Assembly<X86_64>, Error> {
        if self.keys.failed() { Err(Error::NoRandomness) } else { Ok(self.code) }
    }

    fn next(&mut self, _: RegSet, _: bool) {}

    fn join(&mut self) {
        self.zero = None;
    }

    fn trap(&mut self) {
        self.put(encode::trap());
    }
}

impl Emitter<'_> {
    /// Whether a distance of four bytes suffices from every place in the code's range.
    fn reaches(&self, address: u64) -> bool {
        self.home.farthest(address) <= i32::MAX as u64 - 64
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

    /// `dst` = the address of the environment.
    fn environment(&mut self, dst: Gpr) {
        self.copy(dst, ENV);
        if self.counts {
            self.put(encode::alu_ri(Group1::And, Width::W64, dst, -(RunEnv::ALIGN as i32)));
        }
    }

    /// `mov` between machine registers, or nothing.
    fn copy(&mut self, dst: Gpr, src: Gpr) {
        if dst != src {
            self.put(encode::mov_rr(Width::W64, dst, src));
        }
    }

    /// A short forward jump over what is emitted before [`Emitter::land`]; no fragment may lie between.
    #[must_use]
    fn skip(&mut self, condition: Option<Cc>) -> Hole {
        match condition {
            Some(cc) => self.put(encode::jcc8(cc.number(), 0)),
            None => self.put(encode::jmp8(0)),
        }
        Hole(self.code.here())
    }

    /// Binds the target of a short jump here.
    fn land(&mut self, hole: Hole) {
        self.land_behind(hole, 0);
    }

    /// A short jump over this number of bytes that are not emitted yet.
    fn land_behind(&mut self, hole: Hole, bytes: u32) {
        let distance = self.code.here() + bytes as usize - hole.0;
        debug_assert!(distance < 128);
        *self.code.byte_mut(hole.0 - 1) = distance as u8;
        self.zero = None;
    }
}

/// A short jump without its distance.
struct Hole(usize);

fn gpr(reg: Reg) -> Gpr {
    regs::gpr(reg)
}
