//! The interpreter's loop.
//!
//! Each function of a call chain has its own frame of 512 bytes, below its `r10`. Frames are 64 bytes apart, so an
//! overrun of one is not an access to another:
//!
//! ```text
//!   frame 0: | 512 bytes | 64 unused |  frame 1: | 512 bytes | 64 unused |  ...
//!                        ^ r10                               ^ r10
//! ```
//!
//! A helper may call functions of the program ([`RunEnv::callback`]). Such a function runs in the next frame, in
//! its own interpreter loop; the helper identifies it by its start slot.
//!
//! ```text
//!   run -> execute(main) -> helper -> call_back -> execute(function) -> helper -> ...
//! ```
//!
//! A tail call runs the other program in its own machine; the result becomes that of the function that made the
//! call.
//!
//! An exception leaves all frames of the run at once. Its callback, if there is one, runs in the outermost frame.
//!
//! A run that is over ([`skep_abi::EndsLink`]) leaves them too, and returns nothing of meaning.
//!
//! A [`Watch`] sees every step before it happens and may stop the run; [`Unwatched`] ignores all steps and costs
//! nothing. A run that is stopped in a callback returns to the helper with the result 1 (stop), and ends after the
//! helper.

mod ends;
mod entry;

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;

use skep_abi::{Entry, MAX_LOOPS, RunEnv, SkbContext};
use skep_isa::{AtomicOp, CallTarget, Imm64, Insn, Operand, PacketBase, Reg, Size, semantics};

use crate::arena;
use crate::code::{Code, MAX_FRAMES, starts_function};
use crate::memory;
use ends::{charged, charged_call, is_over};
use entry::{catch, entered, execute_function};

/// Maximum stack of a function in bytes.
pub(crate) const FRAME_BYTES: usize = 512;
const GAP_BYTES: usize = 64;

/// A frame, aligned for the largest access.
#[repr(C)]
struct Frame([u64; (FRAME_BYTES + GAP_BYTES) / 8]);

/// The eleven registers.
pub(crate) type Registers = [u64; 11];

/// Kinds of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// It is read and written in one atomic operation.
    Modify,
}

/// Observes a run. The default methods do nothing.
pub(crate) trait Watch {
    /// The reason for stopping a run.
    type Stop;

    /// The function that starts at `slot` begins; its `r10` is `top`.
    fn enter(&mut self, _slot: usize, _top: u64) {}
    /// A function returns to its caller.
    fn leave(&mut self) {}
    /// An instruction is about to be executed, and will see the registers as this method leaves them.
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
    /// The arena is about to be accessed.
    fn access_arena(&mut self, _slot: usize, _regs: &Registers) -> Result<(), Self::Stop> {
        Ok(())
    }
    /// A helper is about to be called.
    fn call(&mut self, _slot: usize, _helper: u32, _args: [u64; 5]) -> Result<(), Self::Stop> {
        Ok(())
    }
    /// The helper, a tail call, has run another program, whose result the current function returns.
    fn tail_called(&mut self) {}
    /// An exception has left all functions; the function that starts at `slot` begins with the cookie as its
    /// argument; its `r10` is `top`.
    fn thrown(&mut self, _slot: usize, _top: u64) {}
    /// The helper returned.
    fn returned(&mut self, _helper: u32, _args: [u64; 5], _result: u64) {}
    /// A kernel function is about to be called.
    fn call_kfunc(&mut self, _slot: usize, _number: u32, _args: [u64; 5]) -> Result<(), Self::Stop> {
        Ok(())
    }
    /// The kernel function returned.
    fn kfunc_returned(&mut self, _number: u32, _args: [u64; 5], _result: u64) {}
    /// The helper in progress calls the function that starts at `slot`; its `r10` is `top`.
    fn call_back(&mut self, _slot: usize, _top: u64, _args: &[u64; 5]) {}
}

/// Observes nothing.
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    type Stop = std::convert::Infallible;
}

/// The return slot of a call, and the caller's registers.
#[derive(Clone, Copy, Default)]
struct Caller {
    slot: usize,
    /// `r6` to `r10`.
    kept: [u64; 5],
}

impl Caller {
    /// Restores the registers; returns the slot to continue at.
    fn resume(&self, regs: &mut Registers) -> usize {
        regs[6..].copy_from_slice(&self.kept);
        self.slot
    }
}

/// A run in progress. It is accessed only through its address, since a helper may re-enter it ([`call_back`]).
///
/// The code is first, so that it is found whatever the watch ([`running`]).
#[repr(C)]
struct Machine<'a, W: Watch> {
    code: &'a Code,
    env: *mut RunEnv,
    watch: &'a mut W,
    frames: *mut Frame,
    /// Index of the innermost frame while a helper runs.
    depth: usize,
    /// Why a callback was stopped.
    stop: Option<W::Stop>,
    /// The cookie of an exception that leaves a function which [`entered`] runs, on its way to the outermost one.
    thrown: Option<u64>,
    /// How many functions [`entered`] runs.
    entered: usize,
}

/// Runs a program to its end and returns its `r0`.
///
/// # Safety
///
/// Every access that the program makes and `watch` allows must be to valid memory. The verifier proves this for
/// programs started as they were verified, with a linkage to live maps and to helpers that match their prototypes.
/// `env` must be exclusive to this run. If the program has probe loads, this thread must not block SIGSEGV or
/// SIGBUS.
pub(crate) unsafe fn run<W: Watch>(
    code: &Code,
    r1: u64,
    r2: u64,
    env: *mut RunEnv,
    watch: &mut W,
) -> Result<u64, W::Stop> {
    // SAFETY: this function's contract; programs begin at slot 0.
    unsafe { run_function(code, 0, [r1, r2, 0, 0, 0], env, watch, true) }
}

/// The code that is being run.
///
/// # Safety
///
/// A helper that the interpreter called is in progress, and `env` is the environment of its run.
pub(crate) unsafe fn running<'a>(env: *mut RunEnv) -> &'a Code {
    // SAFETY: `run_function` stored the machine's address there, and a machine begins with this reference; no
    // reference to the machine exists while a helper runs.
    unsafe { *ptr::with_exposed_provenance::<&'a Code>((*env).engine as usize) }
}

/// As [`run`], from a function of the program. `asks`: whether something else may happen instead of that function.
///
/// # Safety
///
/// As for [`run`], but for the arguments: they are those for which the verifier walked the function.
pub(crate) unsafe fn run_function<W: Watch>(
    code: &Code,
    slot: usize,
    args: [u64; 5],
    env: *mut RunEnv,
    watch: &mut W,
    asks: bool,
) -> Result<u64, W::Stop> {
    let mut frames = MaybeUninit::<[Frame; MAX_FRAMES]>::uninit();
    let frames = frames.as_mut_ptr().cast::<Frame>();
    let mut machine = Machine { code, env, watch, frames, depth: 0, stop: None, thrown: None, entered: 0 };
    let machine: *mut Machine<'_, W> = &raw mut machine;
    // SAFETY: `env` is exclusive to this run by the caller's promise.
    let before = unsafe { ((*env).callback, (*env).engine) };
    // SAFETY: as above. The machine outlives every helper that can call it.
    unsafe {
        (*env).callback = Some(call_back::<W>);
        (*env).engine = machine.expose_provenance() as u64;
    }
    // SAFETY: this function's contract; the machine is alive and no reference to it exists.
    let result = unsafe {
        match asks.then(|| entered(machine, 0, slot, &args)).flatten() {
            Some(result) => (*machine).stop.take().map_or(Ok(result), Err),
            None => execute_function(machine, 0, slot, &args),
        }
    };
    // SAFETY: as above.
    unsafe { ((*env).callback, (*env).engine) = before };
    result
}

/// Runs the target of a tail call; `None` if there is none, or no tail call left.
///
/// # Safety
///
/// As for [`run`]; the arguments are those of a tail call that the verifier accepted.
unsafe fn tail_call(code: &Code, args: &[u64; 5], env: *mut RunEnv) -> Option<u64> {
    let &[context, map, index, ..] = args;
    let find = code.find?;
    // SAFETY: the caller's promise.
    let found = unsafe { find(map, index as u32, env) }?;
    // SAFETY: `env` is exclusive to this run; the target lives until the run ends.
    let (left, target) = unsafe { (&mut (*env).tail_calls_left, &found.as_ref().code) };
    *left = left.checked_sub(1)?;
    let length = match target.parts.entry {
        Entry::Buffer { len } => len.into(),
        Entry::Context => 0,
    };
    // They enter the program behind its beginning, as in compiled code.
    let args = [context, length, 0, 0, 0];
    // SAFETY: all programs of a program array share its entry contract with the running program.
    let Ok(result) = unsafe { run_function(target, 0, args, env, &mut Unwatched, false) };
    Some(result)
}

/// Calls the function that starts at slot `function`, for the helper in progress.
///
/// # Safety
///
/// As [`skep_abi::CallbackFn`] demands; `env` is that of a run watched by a `W`.
unsafe extern "C" fn call_back<W: Watch>(function: u64, args: &[u64; 5], env: *mut RunEnv) -> u64 {
    // SAFETY: `run` stored the machine's address there, and no reference to it exists while a helper runs.
    unsafe {
        let machine = ptr::with_exposed_provenance_mut::<Machine<'_, W>>((*env).engine as usize);
        if (*machine).stop.is_some() {
            return 1;
        }
        let (below, slot) = ((*machine).depth, function as usize);
        let starts = starts_function(&(*machine).code.parts, slot as i64);
        // The verifier proves this of every program. If it was wrong, the process ends here.
        assert!(starts && below + 1 < MAX_FRAMES, "a callback starts at no function or nests too deep");
        if let Some(result) = entered(machine, below + 1, slot, args) {
            (*machine).depth = below;
            return if (*machine).stop.is_some() { 1 } else { result };
        }
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

/// Clears a frame; returns its `r10`.
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

/// Executes a function in an open frame, and all its callees, until it returns.
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
    // SAFETY: the caller's promise. The code is shared and outlives the machine.
    let (code, env, frames) = unsafe { ((*machine).code, (*machine).env, (*machine).frames) };
    // The `may_goto` budget of each frame.
    let mut iterations_left = [MAX_LOOPS; MAX_FRAMES];
    let mut callers = [Caller::default(); MAX_FRAMES];
    let mut depth = base;
    loop {
        let insn = &code.parts.insns[slot];
        // SAFETY: the caller's promise.
        if unsafe { charged(code, env, code.weight(slot)) } {
            return Ok(0);
        }
        code.count(slot);
        // SAFETY: the caller's promise; this reference is dropped before a helper runs.
        let watch = unsafe { &mut *(*machine).watch };
        watch.step(slot, insn, &mut regs)?;
        let mut next = slot + 1;
        if let Some(arena) = code.arena.filter(|_| code.parts.facts[slot].arena) {
            watch.access_arena(slot, &regs)?;
            // SAFETY: the linkage's maps live by this function's contract; every address is in the arena.
            unsafe { arena::access(arena, insn, &mut regs) };
            slot = next;
            continue;
        }
        match *insn {
            Insn::Alu { width, op, dst, src } => {
                regs[dst.index()] = semantics::alu(width, op, regs[dst.index()], value(&regs, src));
            }
            Insn::Neg { width, dst } => regs[dst.index()] = semantics::neg(width, regs[dst.index()]),
            Insn::MovSx { width, from, dst, src } => {
                regs[dst.index()] = semantics::movsx(width, from, regs[src.index()]);
            }
            Insn::Endian { order, size, dst } => {
                regs[dst.index()] = semantics::endian(order, size, regs[dst.index()]);
            }
            Insn::LoadImm64 { dst, value: Imm64::Value(value) } => {
                regs[dst.index()] = value;
                next = slot + 2;
            }
            Insn::Load { size, signed, dst, base, offset } => {
                let at = address(&regs, base, offset);
                let value = match code.probe(slot) {
                    // A probe load may go anywhere, so no watch is asked.
                    // SAFETY: the address is an object of the host, other memory in its place, or unmapped; the
                    // signals of faults are not blocked by this function's contract.
                    Some(loads) => unsafe { loads.load(at, size.bytes()) },
                    None => {
                        watch.access(slot, at, size, AccessKind::Read)?;
                        // SAFETY: this function's contract.
                        unsafe { memory::load(at, size, Ordering::Relaxed) }
                    }
                };
                regs[dst.index()] = if signed { semantics::sign_extend(size, value) } else { value };
            }
            Insn::LoadAcquire { size, dst, base, offset } => {
                let at = address(&regs, base, offset);
                watch.access(slot, at, size, AccessKind::Read)?;
                // SAFETY: this function's contract. Pairs with store-releases to the same place.
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
                // SAFETY: this function's contract. Pairs with load-acquires of the same place.
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
                if semantics::holds(width, cond, regs[dst.index()], value(&regs, src)) {
                    next = target(slot, offset.into());
                    watch.jump(slot, next)?;
                } else {
                    code.count_passed(slot);
                }
            }
            Insn::Call { target: CallTarget::Helper(id) } if code.is_tail_call(id) => {
                let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
                watch.call(slot, id, args)?;
                // SAFETY: this function's contract; the arguments are a context and a program array, as the
                // verifier proved.
                match unsafe { tail_call(code, &args, env) } {
                    None => watch.returned(id, args, 0),
                    Some(result) => {
                        watch.tail_called();
                        regs[0] = result;
                        // SAFETY: the caller's promise.
                        if depth == base || unsafe { is_over(code, env) } {
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
                // SAFETY: the linkage's helpers match their prototypes, and the verifier proved the arguments. The
                // machine is the helper's while it runs, and this function's again afterwards.
                unsafe {
                    (*machine).depth = depth;
                    if let Some(noted) = code.printed(slot).or_else(|| code.linkage.state(id)) {
                        (*env).printed = noted;
                    }
                    regs[0] = helper(args[0], args[1], args[2], args[3], args[4], env);
                    if let Some(stop) = (*machine).stop.take() {
                        return Err(stop);
                    }
                    if is_over(code, env) {
                        return Ok(0);
                    }
                    (*machine).watch.returned(id, args, regs[0]);
                }
            }
            Insn::Call { target: CallTarget::Local(offset) } => {
                let to = target(slot, offset);
                // SAFETY: the caller's promise.
                if unsafe { charged_call(code, env, to) } {
                    return Ok(0);
                }
                if code.enter.is_some() {
                    let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
                    // SAFETY: this function's contract; no reference to the machine is in use.
                    let (result, stop, thrown) = unsafe {
                        let result = entered(machine, depth + 1, to, &args);
                        (result, (*machine).stop.take(), (*machine).thrown.take())
                    };
                    if let Some(stop) = stop {
                        return Err(stop);
                    }
                    // SAFETY: as above.
                    if unsafe { is_over(code, env) } {
                        return Ok(0);
                    }
                    if let Some(cookie) = thrown {
                        if base > 0 {
                            // SAFETY: as above.
                            unsafe { (*machine).thrown = Some(cookie) };
                            return Ok(cookie);
                        }
                        let Some(callback) = code.parts.exception_callback else { return Ok(cookie) };
                        depth = 0;
                        // SAFETY: this function's contract.
                        (regs, slot) = unsafe { catch(machine, callback, cookie) };
                        iterations_left[0] = MAX_LOOPS;
                        continue;
                    }
                    if let Some(result) = result {
                        regs[0] = result;
                        slot = next;
                        continue;
                    }
                }
                callers[depth] = Caller { slot: next, kept: [regs[6], regs[7], regs[8], regs[9], regs[10]] };
                depth += 1;
                assert!(depth < MAX_FRAMES, "calls nest too deep");
                iterations_left[depth] = MAX_LOOPS;
                next = to;
                // SAFETY: `depth` was checked above; no reference to the machine is in use.
                unsafe {
                    regs[10] = open_frame(frames, depth);
                    (*machine).watch.enter(next, regs[10]);
                }
            }
            Insn::MayGoto { offset } => match iterations_left[depth] {
                0 => {
                    next = target(slot, offset.into());
                    watch.jump(slot, next)?;
                }
                left => {
                    iterations_left[depth] = left - 1;
                    code.count_passed(slot);
                }
            },
            Insn::LoadPacket { size, base: from, imm } => {
                let start = match from {
                    PacketBase::Absolute => 0,
                    PacketBase::Indirect(reg) => regs[reg.index()] as i32,
                };
                // SAFETY: the verifier proved that `r6` is the context, which is native and alive; `Code::with`
                // checked that this type's context is a socket buffer.
                let skb = unsafe { *ptr::with_exposed_provenance::<SkbContext>(regs[6] as usize) };
                match skb.legacy_load(start.wrapping_add(imm), size) {
                    Some(at) => {
                        // SAFETY: within the packet.
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
                let cookie = regs[1];
                if base > 0 {
                    // SAFETY: this function's contract; no reference to the machine is in use.
                    unsafe {
                        // The verifier proves this of every program. If it was wrong, the process ends here.
                        assert!((*machine).entered > 0, "an exception in a function that a helper called");
                        (*machine).thrown = Some(cookie);
                    }
                    return Ok(cookie);
                }
                let Some(callback) = code.parts.exception_callback else { return Ok(cookie) };
                depth = 0;
                // SAFETY: this function's contract.
                (regs, next) = unsafe { catch(machine, callback, cookie) };
                iterations_left[0] = MAX_LOOPS;
            }
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
                let number = id.cast_unsigned();
                let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
                watch.call_kfunc(slot, number, args)?;
                let Some(function) = code.linkage.function(number) else {
                    unreachable!("Code::with found it")
                };
                // SAFETY: the linkage's functions match their prototypes, and the verifier proved their arguments. The
                // machine is the function's while it runs, and this function's again afterwards.
                unsafe {
                    (*machine).depth = depth;
                    if skep_abi::own_kfunc(number).is_some_and(skep_abi::OwnKfunc::allocates) {
                        (*env).printed = code.linkage.types;
                    }
                    regs[0] = function(args[0], args[1], args[2], args[3], args[4], env);
                    if let Some(stop) = (*machine).stop.take() {
                        return Err(stop);
                    }
                    if is_over(code, env) {
                        return Ok(0);
                    }
                    (*machine).watch.kfunc_returned(number, args, regs[0]);
                }
            }
            Insn::AddrSpaceCast { dst, src, to, .. } => {
                let Some(arena) = code.arena else { unreachable!("refused by Code::with") };
                let address = regs[src.index()];
                regs[dst.index()] =
                    if to == 0 { u64::from(address as u32) } else { arena.user_address(address) };
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

/// The value of the second operand. Immediates are sign-extended; 32-bit operations use the lower half.
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
