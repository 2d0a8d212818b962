//! The interpreter's loop.
//!
//! Each function of a call chain has a frame of 512 bytes of its own, below its `r10`. Frames lie apart, so
//! that an overrun of one is not an access to another:
//!
//! ```text
//!   frame 0: | 512 bytes | 64 unused |  frame 1: | 512 bytes | 64 unused |  ...
//!                        ^ r10                               ^ r10
//! ```
//!
//! A [`Watch`] sees every step before it happens and may stop the run; [`Unwatched`] sees nothing and costs
//! nothing.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use skep_abi::RunEnv;
use skep_isa::{AtomicOp, CallTarget, Imm64, Insn, Operand, Reg, Size};

use crate::alu;
use crate::code::{Code, MAX_FRAMES};
use crate::memory;

/// Bytes of stack that a function may use at most.
pub(crate) const FRAME_BYTES: usize = 512;
const GAP_BYTES: usize = 64;

/// A frame, aligned as the greatest access.
#[repr(C)]
struct Frame([u64; (FRAME_BYTES + GAP_BYTES) / 8]);

/// The eleven registers.
pub(crate) type Registers = [u64; 11];

/// What may happen to memory in one access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// It is read and written in one atomic operation.
    Modify,
}

/// Looks on. The defaults are blind.
pub(crate) trait Watch {
    /// Why a run was stopped.
    type Stop;

    /// The function that starts at `slot` begins, in a frame whose `r10` is `top`.
    fn enter(&mut self, _slot: usize, _top: u64) {}
    /// A function returns to the one below.
    fn leave(&mut self) {}
    /// An instruction is about to be executed. What it changes in registers, the instruction finds there.
    fn step(&mut self, _slot: usize, _insn: &Insn, _regs: &mut Registers) -> Result<(), Self::Stop> {
        Ok(())
    }
    /// A jump is about to be taken.
    fn jump(&mut self, _from: usize, _to: usize) -> Result<(), Self::Stop> {
        Ok(())
    }
    /// Memory is about to be accessed.
    fn access(&mut self, _slot: usize, _at: u64, _size: Size, _kind: AccessKind) -> Result<(), Self::Stop> {
        Ok(())
    }
    /// A helper is about to be called.
    fn call(&mut self, _slot: usize, _helper: u32, _args: [u64; 5]) -> Result<(), Self::Stop> {
        Ok(())
    }
    /// The helper returned.
    fn returned(&mut self, _helper: u32, _args: [u64; 5], _result: u64) {}
}

/// Looks away.
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    type Stop = std::convert::Infallible;
}

/// Where a function returns to, and what it must find there.
#[derive(Clone, Copy, Default)]
struct Caller {
    slot: usize,
    /// `r6` to `r10`.
    kept: [u64; 5],
}

/// Runs a program to its end and returns its `r0`.
///
/// # Safety
///
/// Every access that the program makes and `watch` lets pass must be to valid memory: proved by the verifier
/// for programs started as they were verified to be, with a linkage to live maps and helpers that keep their
/// prototypes. `env` must be exclusive to this run.
pub(crate) unsafe fn run<W: Watch>(
    code: &Code,
    r1: u64,
    r2: u64,
    env: *mut RunEnv,
    watch: &mut W,
) -> Result<u64, W::Stop> {
    let mut frames = MaybeUninit::<[Frame; MAX_FRAMES]>::uninit();
    let frames = frames.as_mut_ptr().cast::<Frame>();
    let open_frame = |depth: usize| -> u64 {
        // SAFETY: chains are at most MAX_FRAMES deep (`Code::new`), so `depth` is inside the array.
        let frame = unsafe {
            let frame = frames.add(depth);
            frame.write(Frame([0; (FRAME_BYTES + GAP_BYTES) / 8]));
            frame
        };
        frame.expose_provenance() as u64 + FRAME_BYTES as u64
    };

    let mut callers = [Caller::default(); MAX_FRAMES];
    let mut depth = 0;
    let mut regs: Registers = [0; 11];
    regs[1] = r1;
    regs[2] = r2;
    regs[10] = open_frame(0);
    let mut slot = 0;
    watch.enter(slot, regs[10]);
    loop {
        let insn = &code.parts.insns[slot];
        watch.step(slot, insn, &mut regs)?;
        let mut next = slot + 1;
        match *insn {
            Insn::Alu { width, op, dst, src } => {
                regs[dst.index()] = alu::alu(width, op, regs[dst.index()], value(&regs, src));
            }
            Insn::Neg { width, dst } => regs[dst.index()] = alu::neg(width, regs[dst.index()]),
            Insn::MovSx { width, from, dst, src } => {
                regs[dst.index()] = alu::movsx(width, from, regs[src.index()]);
            }
            Insn::Endian { order, size, dst } => {
                regs[dst.index()] = alu::endian(order, size, regs[dst.index()]);
            }
            Insn::LoadImm64 { dst, value: Imm64::Value(value) } => {
                regs[dst.index()] = value;
                next = slot + 2;
            }
            Insn::Load { size, signed, dst, base, offset } => {
                let at = address(&regs, base, offset);
                watch.access(slot, at, size, AccessKind::Read)?;
                // SAFETY: this function's contract.
                let value = unsafe { memory::load(at, size, Ordering::Relaxed) };
                regs[dst.index()] = if signed { alu::sign_extend(size, value) } else { value };
            }
            Insn::LoadAcquire { size, dst, base, offset } => {
                let at = address(&regs, base, offset);
                watch.access(slot, at, size, AccessKind::Read)?;
                // SAFETY: this function's contract. Acquires what a store-release to the same place released.
                regs[dst.index()] = unsafe { memory::load(at, size, Ordering::Acquire) };
            }
            Insn::Store { size, base, offset, src } => {
                let at = address(&regs, base, offset);
                watch.access(slot, at, size, AccessKind::Write)?;
                // SAFETY: this function's contract.
                unsafe { memory::store(at, size, value(&regs, src), Ordering::Relaxed) };
            }
            Insn::StoreRelease { size, base, offset, src } => {
                let at = address(&regs, base, offset);
                watch.access(slot, at, size, AccessKind::Write)?;
                // SAFETY: this function's contract. Releases to load-acquires of the same place.
                unsafe { memory::store(at, size, regs[src.index()], Ordering::Release) };
            }
            Insn::Atomic { op, size, base, offset, src } => {
                let at = address(&regs, base, offset);
                watch.access(slot, at, size, AccessKind::Modify)?;
                // SAFETY: this function's contract.
                let old = unsafe { memory::modify(at, size, op, regs[src.index()], regs[0]) };
                if let Some(receiver) = receives_old(op, src) {
                    regs[receiver.index()] = old;
                }
            }
            Insn::Jump { offset, .. } => {
                next = target(slot, offset);
                watch.jump(slot, next)?;
            }
            Insn::JumpIf { width, cond, dst, src, offset } => {
                if alu::holds(width, cond, regs[dst.index()], value(&regs, src)) {
                    next = target(slot, offset.into());
                    watch.jump(slot, next)?;
                }
            }
            Insn::Call { target: CallTarget::Helper(id) } => {
                let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
                watch.call(slot, id, args)?;
                let Some(helper) = code.linkage.helper(id) else { unreachable!("Code::new found it") };
                // SAFETY: the linkage's helpers are what they say, and the verifier proved the arguments.
                regs[0] = unsafe { helper(args[0], args[1], args[2], args[3], args[4], env) };
                watch.returned(id, args, regs[0]);
            }
            Insn::Call { target: CallTarget::Local(offset) } => {
                callers[depth] = Caller { slot: next, kept: [regs[6], regs[7], regs[8], regs[9], regs[10]] };
                depth += 1;
                regs[10] = open_frame(depth);
                next = target(slot, offset);
                watch.enter(next, regs[10]);
            }
            Insn::Exit if depth == 0 => return Ok(regs[0]),
            Insn::Exit => {
                depth -= 1;
                next = callers[depth].slot;
                regs[6..].copy_from_slice(&callers[depth].kept);
                watch.leave();
            }
            Insn::LoadImm64 { .. }
            | Insn::LoadImm64Tail
            | Insn::LoadPacket { .. }
            | Insn::MayGoto { .. }
            | Insn::Call { target: CallTarget::Kfunc { .. } }
            | Insn::CallReg { .. } => unreachable!("refused by Code::new"),
        }
        slot = next;
    }
}

/// The register that receives what memory held before an atomic operation.
pub(crate) fn receives_old(op: AtomicOp, src: Reg) -> Option<Reg> {
    match op {
        AtomicOp::Add { fetch }
        | AtomicOp::Or { fetch }
        | AtomicOp::And { fetch }
        | AtomicOp::Xor { fetch } => fetch.then_some(src),
        AtomicOp::Xchg => Some(src),
        AtomicOp::CmpXchg => Some(Reg::R0),
    }
}

/// The value of a second operand. Immediates are sign-extended; 32-bit operations look at the lower half.
pub(crate) fn value(regs: &Registers, operand: Operand) -> u64 {
    match operand {
        Operand::Reg(reg) => regs[reg.index()],
        Operand::Imm(imm) => i64::from(imm) as u64,
    }
}

fn address(regs: &Registers, base: Reg, offset: i16) -> u64 {
    regs[base.index()].wrapping_add(i64::from(offset) as u64)
}

pub(crate) fn target(slot: usize, offset: i32) -> usize {
    (slot as i64 + 1 + i64::from(offset)) as usize
}
