//! AArch64, AAPCS64 calling convention.
//!
//! Compiled functions keep these promises, which helpers and hosts rely on: `sp` is a multiple of 16 always,
//! `x19` to `x29` are what they were when a function returns, functions that call others link a frame record
//! (`x29`, `x30`), `x18` is never touched, and nothing below `sp` is used. No flag is live between two BPF
//! instructions.
//!
//! Functions return their result in `x0`, but `r0` is another register ([`regs`]). After a call the result stays in
//! `x0` until something else needs `x0` or control may jump, and is then moved if it is live. A value that will be
//! returned is computed in `x0`:
//!
//! ```text
//!                          mov x5, x23                                       mov x5, x23
//!   call 7                 bl  helper                call 7                  bl  helper
//!   r6 = r0                mov x19, x0               r1 = 5                  mov x7, x0
//!   if r0 == 0 goto out    cbz x0, out               r0 += r1                mov w0, #5
//!   ...                                              exit                    add x0, x7, x0
//! ```

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
use crate::port::operand::Modifier;
use crate::port::operand::{Address, Index};
use crate::port::{self, Arch};
use crate::watch::Watch;
use encode::{Bitmask, Extend, Imm12, Logic, Mem, Sum, Word};
use frame::Frame;
use regs::{ENV, Gpr, RESULT, SCRATCH3};

pub(crate) use branch::Jump;

/// The architecture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aarch64;

/// Instructions beyond Armv8.0-A that the code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// FEAT_LSE: atomic operations in one instruction.
    pub(crate) lse: bool,
}

impl Encoding for Aarch64 {
    type Jump = Jump;

    const STEP: usize = 4;
    const SITE: u32 = 4;

    /// A jump to the next instruction needs no code.
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
        len / 4
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

    fn site_padding(_: u32) -> u32 {
        0
    }

    fn write_padding(out: &mut [u8]) {
        branch::write_padding(out);
    }
}

impl Arch for Aarch64 {
    type Emitter<'a> = Emitter<'a>;
    type Features = Features;

    const NAME: &'static str = "aarch64";
    const NEWEST: Features = Features { lse: true };
    const THREE_OPERANDS: bool = true;
    const EXTENDS_INDEX: bool = true;

    fn takes_memory(_: AluOp) -> bool {
        false
    }

    /// There is an offset or an index, not both, and an index is scaled by the size or not at all. The greatest offset
    /// from the frame is not known here: aligned ones fit, others take one more instruction.
    fn is_addressable(address: Address, size: Size) -> bool {
        match address {
            Address { index: Some(Index { shift, .. }), disp: 0, base } => {
                base != Reg::R10 && (shift == 0 || 1 << shift == size.bytes())
            }
            Address { index: Some(_), .. } => false,
            Address { base: Reg::R10, .. } => true,
            Address { disp, .. } => Mem::At(Gpr::X0, disp).fits(size),
        }
    }

    fn is_long(_: Address) -> bool {
        false
    }

    fn takes_modifier(op: AluOp, width: Width, modifier: Modifier) -> bool {
        match (op, modifier) {
            (AluOp::Add | AluOp::Sub, Modifier::Extend { from, .. }) => from.bits() < width.bits(),
            (AluOp::And | AluOp::Or | AluOp::Xor, Modifier::Rotate(_)) => true,
            (AluOp::Add | AluOp::Sub | AluOp::And | AluOp::Or | AluOp::Xor, Modifier::Shift(..)) => true,
            _ => false,
        }
    }

    fn watch(watch: &Watch) -> Vec<u8> {
        entry::watch(watch)
    }

    fn adapter(environment: bool, length: Option<u32>) -> Vec<u8> {
        let mut code: Vec<Word> = Vec::new();
        if environment {
            code.extend(address_of_environment(Gpr::X2));
        }
        if let Some(length) = length {
            code.extend_from_slice(encode::constant(regs::gpr(Reg::R2), length.into()).as_slice());
        }
        code.into_iter().flat_map(|word| word.0.to_le_bytes()).collect()
    }
}

/// Turns operations on BPF registers into machine code.
///
/// Every operation gets its operands ([`Emitter::read`]) before the register of its result ([`Emitter::write`]), and
/// writes that last.
pub(crate) struct Emitter<'a> {
    code: Assembly<Aarch64>,
    features: Features,
    options: Options,
    home: &'a Home,
    frame: Frame,
    /// Whether [`regs::ENV`] holds a count as well.
    counts: bool,
    /// Whether `r0` is in [`RESULT`], and not in its own register.
    result: bool,
    /// The live-out registers of the current operation.
    live_out: RegSet,
    /// Whether the function ends after the current operation.
    exits: bool,
    keys: Keys,
}

impl<'a> port::Emitter<'a, Aarch64> for Emitter<'a> {
    fn new(code: Assembly<Aarch64>, features: Features, options: Options, home: &'a Home) -> Self {
        let frame = Frame::default();
        let live_out = RegSet::EMPTY;
        let (counts, result, exits, keys) = (false, false, false, Keys::new());
        Self { code, features, options, home, frame, counts, result, live_out, exits, keys }
    }

    fn code(&mut self) -> &mut Assembly<Aarch64> {
        &mut self.code
    }

    fn count_tail_calls(&mut self) {
        self.counts = true;
    }

    fn finish(self) -> Result<Assembly<Aarch64>, Error> {
        if self.keys.failed() { Err(Error::NoRandomness) } else { Ok(self.code) }
    }

    fn next(&mut self, live_out: RegSet, exits: bool) {
        self.live_out = live_out;
        self.exits = exits;
    }

    fn join(&mut self) {
        self.settle();
    }

    fn trap(&mut self) {
        self.put(encode::brk(0));
        self.result = false;
    }
}

/// `dst` = [`ENV`] without its count.
fn address_of_environment(dst: Gpr) -> Option<Word> {
    let mask = Bitmask::new(Width::W64, (RunEnv::ALIGN as u64).wrapping_neg())?;
    Some(encode::logic_imm(Logic::And, Width::W64, dst, ENV, mask))
}

impl Emitter<'_> {
    #[inline]
    fn put(&mut self, word: Word) {
        self.code.put(u128::from(word.0).to_le_bytes(), 4);
    }

    /// The machine register that holds a BPF register.
    fn read(&mut self, reg: Reg) -> Gpr {
        match reg {
            Reg::R0 if self.result => RESULT,
            Reg::R10 => {
                self.stack_address(SCRATCH3, 0);
                SCRATCH3
            }
            reg => regs::gpr(reg),
        }
    }

    /// The machine register for the new value of a BPF register.
    fn write(&mut self, reg: Reg) -> Gpr {
        match reg {
            Reg::R0 => {
                self.result = self.exits;
                if self.exits { RESULT } else { regs::gpr(reg) }
            }
            reg => {
                let to = regs::gpr(reg);
                if to == RESULT {
                    self.settle();
                }
                to
            }
        }
    }

    /// As [`Emitter::write`], for an operation that contains jumps.
    fn stay(&mut self, reg: Reg) -> Gpr {
        self.exits = false;
        self.write(reg)
    }

    /// `r0` in its own register, where any later instruction needs it.
    fn settle(&mut self) {
        if std::mem::take(&mut self.result) && self.live_out.contains(Reg::R0) {
            self.copy(regs::gpr(Reg::R0), RESULT);
        }
    }

    /// `dst` = the address of the environment.
    fn environment(&mut self, dst: Gpr) {
        match address_of_environment(dst) {
            Some(word) if self.counts => self.put(word),
            _ => self.copy(dst, ENV),
        }
    }

    /// `mov` between machine registers, or nothing.
    fn copy(&mut self, dst: Gpr, src: Gpr) {
        if dst != src {
            self.put(encode::mov(Width::W64, dst, src));
        }
    }

    /// `dst = r10 + disp`
    fn stack_address(&mut self, dst: Gpr, disp: i32) {
        self.add_imm(Width::W64, dst, Gpr::SP, i64::from(self.frame.top()) + i64::from(disp));
    }

    /// `dst = src + value`; the source may be [`Gpr::SP`], and neither may be [`Gpr::ZR`].
    fn add_imm(&mut self, width: Width, dst: Gpr, src: Gpr, value: i64) {
        let (op, size) = if value < 0 { (Sum::Sub, value.unsigned_abs()) } else { (Sum::Add, value as u64) };
        let hidden = src != Gpr::SP && self.hides(size);
        if let Some(imm) = Imm12::new(size)
            && !hidden
        {
            return self.put(encode::sum_imm(op, width, dst, src, imm));
        }
        if let (Some(high), Some(low)) = (Imm12::new(size & 0xff_f000), Imm12::new(size & 0xfff))
            && size < 1 << 24
            && !hidden
        {
            self.put(encode::sum_imm(op, width, dst, src, high));
            return self.put(encode::sum_imm(op, width, dst, dst, low));
        }
        if src == Gpr::SP {
            // Programs may compute addresses far beyond the stack. An addition takes `sp` only with an extended
            // register.
            debug_assert!(size >> 32 == 0);
            self.constant(regs::SCRATCH, size);
            return self.put(encode::sum_ext(op, width, dst, src, regs::SCRATCH, Extend::Uxtw, 0));
        }
        let value = match width {
            Width::W32 => u64::from(value as u32),
            Width::W64 => value as u64,
        };
        self.constant(regs::SCRATCH, value);
        self.put(encode::sum_reg(Sum::Add, width, dst, src, encode::Shifted::plain(regs::SCRATCH)));
    }
}
