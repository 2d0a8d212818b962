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
//! A helper may call functions of the program ([`RunEnv::callback`]). Such a function runs in the next frame, in
//! a loop of its own that ends with it; the helper knows it by the slot that it starts at.
//!
//! ```text
//!   run -> execute(main) -> helper -> call_back -> execute(function) -> helper -> ...
//! ```
//!
//! A tail call is the other program's run, in a machine of its own, whose result is the function's that made it.
//!
//! An exception leaves all frames of the run at once; its callback, if there is one, runs in the outermost frame anew.
//!
//! A [`Watch`] sees every step before it happens and may stop the run; [`Unwatched`] sees nothing and costs
//! nothing. A run that is stopped in a callback goes back to the helper, which is told to stop (1), and ends
//! behind it.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use skep_abi::{Entry, MAX_LOOPS, RunEnv, SkbContext};
use skep_isa::{AtomicOp, CallTarget, Imm64, Insn, Operand, PacketBase, Reg, Size};

use crate::alu;
use crate::code::{Code, MAX_FRAMES, starts_function};
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
    /// The helper, a tail call, led to another program, whose result the current function returns.
    fn tail_called(&mut self) {}
    /// All functions are left by an exception; the function that starts at `slot` begins, in a frame whose `r10` is
    /// `top`, with the cookie as its argument.
    fn thrown(&mut self, _slot: usize, _top: u64) {}
    /// The helper returned.
    fn returned(&mut self, _helper: u32, _args: [u64; 5], _result: u64) {}
    /// A kernel function is about to be called.
    fn call_kfunc(&mut self, _slot: usize, _number: u32, _args: [u64; 5]) -> Result<(), Self::Stop> {
        Ok(())
    }
    /// The kernel function returned.
    fn kfunc_returned(&mut self, _number: u32, _args: [u64; 5], _result: u64) {}
    /// The helper in progress calls the function that starts at `slot`, in a frame whose `r10` is `top`.
    fn call_back(&mut self, _slot: usize, _top: u64, _args: &[u64; 5]) {}
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

impl Caller {
    /// Gives its registers back; the slot it goes on at.
    fn resume(&self, regs: &mut Registers) -> usize {
        regs[6..].copy_from_slice(&self.kept);
        self.slot
    }
}

/// A run in progress. It is reached by its address alone: a helper may come back to it ([`call_back`]).
struct Machine<'a, W: Watch> {
    code: &'a Code,
    env: *mut RunEnv,
    watch: &'a mut W,
    frames: *mut Frame,
    /// Index of the innermost frame while a helper runs.
    depth: usize,
    /// Why a callback was stopped.
    stop: Option<W::Stop>,
}

/// Runs a program to its end and returns its `r0`.
///
/// # Safety
///
/// Every access that the program makes and `watch` lets pass must be to valid memory: proved by the verifier for
/// programs started as they were verified to be, with a linkage to live maps and helpers that keep their prototypes.
/// `env` must be exclusive to this run. Where the program has loads that may fault, this thread blocks neither
/// SIGSEGV nor SIGBUS.
pub(crate) unsafe fn run<W: Watch>(
    code: &Code,
    r1: u64,
    r2: u64,
    env: *mut RunEnv,
    watch: &mut W,
) -> Result<u64, W::Stop> {
    let mut frames = MaybeUninit::<[Frame; MAX_FRAMES]>::uninit();
    let frames = frames.as_mut_ptr().cast::<Frame>();
    let mut machine = Machine { code, env, watch, frames, depth: 0, stop: None };
    let machine: *mut Machine<'_, W> = &raw mut machine;
    // SAFETY: `env` is exclusive to this run by the caller's promise.
    let before = unsafe { ((*env).callback, (*env).engine) };
    // SAFETY: as above. The machine outlives every helper that can ask for it.
    unsafe {
        (*env).callback = Some(call_back::<W>);
        (*env).engine = machine.expose_provenance() as u64;
    }
    let mut regs: Registers = [0; 11];
    regs[1] = r1;
    regs[2] = r2;
    // SAFETY: this function's contract; the machine is alive and nobody else knows it.
    let result = unsafe {
        regs[10] = open_frame(frames, 0);
        (*machine).watch.enter(0, regs[10]);
        execute(machine, 0, 0, regs)
    };
    // SAFETY: as above.
    unsafe { ((*env).callback, (*env).engine) = before };
    result
}

/// Runs the program that a tail call leads to; `None` where there is none, or no tail call left.
///
/// # Safety
///
/// As for [`run`]; the arguments are those of a tail call that the verifier accepted.
unsafe fn tail_call(code: &Code, args: &[u64; 5], env: *mut RunEnv) -> Option<u64> {
    let &[context, map, index, ..] = args;
    let find = code.find?;
    // SAFETY: the caller's promise.
    let found = unsafe { find(map, index as u32, env) }?;
    // SAFETY: `env` is exclusive to this run; what was found lives until the run ends.
    let (left, target) = unsafe { (&mut (*env).tail_calls_left, &found.as_ref().code) };
    *left = left.checked_sub(1)?;
    let length = match target.parts.entry {
        Entry::Buffer { len } => len.into(),
        Entry::Context => 0,
    };
    // SAFETY: maps hold programs that are given what the program at hand was given.
    let Ok(result) = unsafe { run(target, context, length, env, &mut Unwatched) };
    Some(result)
}

/// Calls the function that starts at slot `function`, for the helper in progress.
///
/// # Safety
///
/// As [`skep_abi::CallbackFn`] demands; `env` is that of a run watched by a `W`.
unsafe extern "C" fn call_back<W: Watch>(function: u64, args: &[u64; 5], env: *mut RunEnv) -> u64 {
    // SAFETY: `run` put the machine's address there, and no reference to it is alive while a helper runs.
    unsafe {
        let machine = ptr::with_exposed_provenance_mut::<Machine<'_, W>>((*env).engine as usize);
        if (*machine).stop.is_some() {
            return 1;
        }
        let (below, slot) = ((*machine).depth, function as usize);
        let starts = starts_function(&(*machine).code.parts, slot as i64);
        // What a verifier proves of every program. Where it was wrong, the process ends here.
        assert!(starts && below + 1 < MAX_FRAMES, "a callback of no function, or in too deep a frame");
        let mut regs: Registers = [0; 11];
        regs[1..6].copy_from_slice(args);
        regs[10] = open_frame((*machine).frames, below + 1);
        (*machine).watch.call_back(slot, regs[10], args);
        let result = execute(machine, below + 1, slot, regs);
        (*machine).depth = below;
        match result {
            Ok(result) => {
                (*machine).watch.leave();
                result
            }
            Err(stop) => {
                (*machine).stop = Some(stop);
                1
            }
        }
    }
}

/// Clears a frame; its `r10`.
///
/// # Safety
///
/// `frames` is an array of [`MAX_FRAMES`], and `depth` below that.
unsafe fn open_frame(frames: *mut Frame, depth: usize) -> u64 {
    // SAFETY: the caller's promise.
    let frame = unsafe {
        let frame = frames.add(depth);
        frame.write(Frame([0; (FRAME_BYTES + GAP_BYTES) / 8]));
        frame
    };
    frame.expose_provenance() as u64 + FRAME_BYTES as u64
}

/// Executes a function in an open frame, and all that it calls, until it returns.
///
/// # Safety
///
/// As for [`run`]; the machine is alive and no reference to it is in use.
unsafe fn execute<W: Watch>(
    machine: *mut Machine<'_, W>,
    base: usize,
    mut slot: usize,
    mut regs: Registers,
) -> Result<u64, W::Stop> {
    // SAFETY: the caller's promise. The code is shared, and outlives the machine.
    let (code, env, frames) = unsafe { ((*machine).code, (*machine).env, (*machine).frames) };
    // What is left to each frame of `may_goto`.
    let mut rounds = [MAX_LOOPS; MAX_FRAMES];
    let mut callers = [Caller::default(); MAX_FRAMES];
    let mut depth = base;
    loop {
        let insn = &code.parts.insns[slot];
        // SAFETY: the caller's promise; this reference is gone before a helper runs.
        let watch = unsafe { &mut *(*machine).watch };
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
                let value = match code.probe(slot) {
                    // Wherever it leads: no watch has a say.
                    // SAFETY: an object of the host or what is in its place, which is ordinary memory or none; that the
                    // signals of faults are not blocked is this function's contract.
                    Some(loads) => unsafe { loads.load(at, size.bytes()) },
                    None => {
                        watch.access(slot, at, size, AccessKind::Read)?;
                        // SAFETY: this function's contract.
                        unsafe { memory::load(at, size, Ordering::Relaxed) }
                    }
                };
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
            Insn::Call { target: CallTarget::Helper(id) } if code.is_tail_call(id) => {
                let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
                watch.call(slot, id, args)?;
                // SAFETY: this function's contract; the arguments are a context and a map of programs, which the
                // verifier proved.
                match unsafe { tail_call(code, &args, env) } {
                    None => watch.returned(id, args, 0),
                    Some(result) => {
                        watch.tail_called();
                        regs[0] = result;
                        if depth == base {
                            return Ok(result);
                        }
                        depth -= 1;
                        next = callers[depth].resume(&mut regs);
                        watch.leave();
                    }
                }
            }
            Insn::Call { target: CallTarget::Helper(id) } => {
                let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
                watch.call(slot, id, args)?;
                let Some(helper) = code.linkage.helper(id) else { unreachable!("Code::with found it") };
                // SAFETY: the linkage's helpers are what they say, and the verifier proved the arguments. The machine
                // is the helper's as long as it runs, and this function's again behind it.
                unsafe {
                    (*machine).depth = depth;
                    if let Some(printed) = code.printed(slot) {
                        (*env).printed = printed;
                    }
                    regs[0] = helper(args[0], args[1], args[2], args[3], args[4], env);
                    if let Some(stop) = (*machine).stop.take() {
                        return Err(stop);
                    }
                    (*machine).watch.returned(id, args, regs[0]);
                }
            }
            Insn::Call { target: CallTarget::Local(offset) } => {
                callers[depth] = Caller { slot: next, kept: [regs[6], regs[7], regs[8], regs[9], regs[10]] };
                depth += 1;
                assert!(depth < MAX_FRAMES, "calls nest too deep");
                rounds[depth] = MAX_LOOPS;
                // SAFETY: `depth` was just looked at.
                regs[10] = unsafe { open_frame(frames, depth) };
                next = target(slot, offset);
                watch.enter(next, regs[10]);
            }
            Insn::MayGoto { offset } => match rounds[depth] {
                0 => {
                    next = target(slot, offset.into());
                    watch.jump(slot, next)?;
                }
                left => rounds[depth] = left - 1,
            },
            Insn::LoadPacket { size, base: from, imm } => {
                let start = match from {
                    PacketBase::Absolute => 0,
                    PacketBase::Indirect(reg) => regs[reg.index()] as i32,
                };
                // SAFETY: the verifier proved `r6` the context, which is native and alive; `Code::with` saw that
                // this type's is a socket buffer.
                let skb = unsafe { *ptr::with_exposed_provenance::<SkbContext>(regs[6] as usize) };
                match skb.legacy_load(start.wrapping_add(imm), size) {
                    Some(at) => {
                        // SAFETY: inside of the packet.
                        let value = unsafe { memory::load(at, size, Ordering::Relaxed) };
                        regs[0] = value.swap_bytes() >> (64 - size.bits());
                    }
                    None => {
                        regs[0] = 0;
                        if depth == base {
                            return Ok(0);
                        }
                        depth -= 1;
                        next = callers[depth].resume(&mut regs);
                        watch.leave();
                    }
                }
            }
            Insn::Exit if depth == base => return Ok(regs[0]),
            Insn::Exit => {
                depth -= 1;
                next = callers[depth].resume(&mut regs);
                watch.leave();
            }
            Insn::Call { target: CallTarget::Kfunc { .. } } if code.parts.facts[slot].throws => {
                // What a verifier proves of every program. Where it was wrong, the process ends here.
                assert!(base == 0, "an exception in a function that a helper called");
                let cookie = regs[1];
                let Some(callback) = code.parts.exception_callback else { return Ok(cookie) };
                (depth, regs) = (0, [0; 11]);
                rounds[0] = MAX_LOOPS;
                regs[1] = cookie;
                // SAFETY: there is a first frame.
                regs[10] = unsafe { open_frame(frames, 0) };
                next = code.parts.functions[callback].start as usize;
                watch.thrown(next, regs[10]);
            }
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
                let number = id.cast_unsigned();
                let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
                watch.call_kfunc(slot, number, args)?;
                let Some(function) = code.linkage.function(number) else {
                    unreachable!("Code::with found it")
                };
                // SAFETY: the linkage's functions are what they say, and the verifier proved the arguments that they
                // look at.
                regs[0] = unsafe { function(args[0], args[1], args[2], args[3], args[4], env) };
                watch.kfunc_returned(number, args, regs[0]);
            }
            Insn::LoadImm64 { .. } | Insn::LoadImm64Tail | Insn::CallReg { .. } => {
                unreachable!("refused by Code::with")
            }
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
