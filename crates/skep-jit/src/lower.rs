//! Lowering: turns each instruction, or a few fused ones, into machine code.
//!
//! This module is independent of the machine: every operation on registers is one of the backend's `Emitter`.
//! Instructions are fused only if control cannot enter between them ([`Plan::continues`]), and the fused code has the
//! same effect on every live register as the instructions one by one.

mod arena;
mod call;
mod ends;
mod exception;
mod fuse;
mod guard;
mod jump;
mod known;
mod labels;
mod operands;
mod packet;

use skep_abi::CountsLink;
use skep_isa::{AluOp, ByteOrder, CallTarget, Insn, Operand, Reg, Size, Width};

use std::sync::atomic::AtomicU64;

use crate::ends::After;
use crate::error::Error;
use crate::layout::{Assembly, Fragment, Label, Layout};
use crate::live::Live;
use crate::options::Options;
use crate::parts::{HelperCall, Loaded, Parts};
use crate::passes::{self, Places};
use crate::plan::Plan;
use crate::port::operand::Address;
use crate::port::{
    Arch, Arenas, Arithmetic, Branches, Bulks, Calls, Emitter, Frames, Home, Memory, receiver,
};
use crate::reduce::{Reduced, reduce};
use crate::site::{Site, TailCalls};

use fuse::Alias;
use guard::Guarded;
use known::Known;
use labels::Labels;

/// A program's layout, where each function begins, its tail calls, and where its slots are.
pub(crate) type Lowered<A> = (Layout<A>, Box<[u32]>, TailCalls, Places);

/// The same without the places of slots.
type Unplaced<A> = (Layout<A>, Box<[u32]>, TailCalls);

/// Compiles a program except for its address, with what passes make of it.
///
/// `home` is the range in which the code will be placed.
pub(crate) fn lower<A: Arch>(
    parts: Parts<'_>,
    features: A::Features,
    options: Options,
    home: &Home,
) -> Result<Lowered<A>, Error> {
    if let Some(rewritten) = passes::rewrite(parts, options)
        && let Ok((layout, functions, tail_calls)) = lower_parts(rewritten.parts(), features, options, home)
    {
        return Ok((layout, functions, tail_calls, rewritten.places()));
    }
    let (layout, functions, tail_calls) = lower_parts(parts, features, options, home)?;
    Ok((layout, functions, tail_calls, Places::unchanged(parts.insns.len())))
}

/// Labels below the number of instructions are their slots, the next one is the end.
fn lower_parts<A: Arch>(
    parts: Parts<'_>,
    features: A::Features,
    options: Options,
    home: &Home,
) -> Result<Unplaced<A>, Error> {
    let plan = Plan::new(parts)?;
    let live = Live::new(&plan);
    let labels = Labels {
        slots: parts.insns.len(),
        functions: plan.functions.len(),
        callbacks: plan.callbacks.len(),
        asides: plan.ends.asides(),
    };
    let code = Assembly::new(labels.count(), labels.slots);
    let mut lowering = Lowering::<A> {
        parts,
        plan: &plan,
        live: &live,
        labels,
        emit: A::Emitter::new(code, features, options, home),
        options,
        known: Known::NOTHING,
        guarded: Guarded::new(options),
        alias: None,
        function: 0,
        trap_used: false,
        sites: Vec::new(),
        patched: Vec::new(),
        asides: 0,
        polls: Vec::new(),
    };
    if plan.tail_calls {
        lowering.emit.count_tail_calls();
        lowering.emit.enter_run(if parts.entries { labels.start() } else { labels.entry(0) });
    }
    for index in 0..plan.functions.len() {
        lowering.function(index)?;
    }
    let Lowering { mut emit, trap_used, mut sites, patched, .. } = lowering;
    let trap_used =
        trap_used || plan.callbacks.iter().any(|&at| !plan.reached(plan.functions[at].start as usize));
    emit.code().bind(labels.end());
    emit.code().bind(labels.trap());
    if trap_used {
        emit.trap();
    }
    for (number, &function) in plan.callbacks.iter().enumerate() {
        emit.code().bind(labels.callback(number));
        let start = plan.functions[function].start as usize;
        let entry = if plan.reached(start) { labels.entry(function) } else { labels.trap() };
        emit.enter_callback(entry);
    }
    let layout = emit.finish()?.relax();
    let mut entries = vec![None; plan.functions.len()].into_boxed_slice();
    let mut branches = sites.iter_mut();
    for (patched, offset) in patched.into_iter().zip(layout.sites()) {
        match patched {
            Some(function) => entries[function] = Some(offset),
            None => branches.by_ref().take(1).for_each(|site| site.offset = offset),
        }
    }
    let tail_calls = TailCalls {
        sites: sites.into(),
        entry: layout.offset(labels.entry(0)),
        environment: plan.environment && !plan.tail_calls,
        entries,
        length: parts.buffer_len.filter(|_| !plan.tail_calls && live.before(0).contains(Reg::R2)),
    };
    // What precedes the first function belongs to it.
    let functions =
        (0..plan.functions.len()).map(|at| if at == 0 { 0 } else { layout.offset(labels.entry(at)) });
    let functions = functions.collect();
    Ok((layout, functions, tail_calls))
}

/// A program during lowering. `fuse` and `operands` find instructions that become one.
struct Lowering<'a, A: Arch> {
    parts: Parts<'a>,
    plan: &'a Plan,
    live: &'a Live,
    labels: Labels,
    emit: A::Emitter<'a>,
    options: Options,
    /// Known bits before the current instruction.
    known: Known,
    /// What needs no mask and no barrier before the current instruction.
    guarded: Guarded,
    /// The address that its users compute by themselves.
    alias: Option<Alias>,
    /// Index of the current function.
    function: usize,
    trap_used: bool,
    /// Tail calls by branches that are replaced while the code runs, in the order of the branches.
    sites: Vec<Site>,
    /// What each branch is that is replaced, in their order: the entry of a function, or a tail call.
    patched: Vec<Option<usize>>,
    /// How many places beside the slots have labels.
    asides: usize,
    /// What is still to be emitted behind the current function.
    polls: Vec<ends::Poll>,
}

/// How many slots were compiled together, and whether control can reach the next one.
struct Done {
    slots: usize,
    falls_through: bool,
}

impl Done {
    const fn through(slots: usize) -> Self {
        Self { slots, falls_through: true }
    }

    const fn end(slots: usize) -> Self {
        Self { slots, falls_through: false }
    }
}

impl<A: Arch> Lowering<'_, A> {
    fn function(&mut self, index: usize) -> Result<(), Error> {
        let function = self.plan.functions[index];
        let mut slot = function.start as usize;
        let end = function.end as usize;
        self.function = index;
        self.known = Known::NOTHING;
        self.guarded.join();
        if index > 0 {
            self.emit.code().fragment(Fragment::Pad { end: self.labels.slot(end) });
        }
        let patched = self.parts.entries && self.plan.reached(slot);
        if index > 0 || !patched {
            self.emit.code().bind(self.labels.entry(index));
        } else {
            self.emit.code().bind(self.labels.start());
        }
        if patched {
            self.emit.code().fragment(Fragment::Site);
            self.patched.push(Some(index));
        }
        if index == 0 && patched {
            self.emit.code().bind(self.labels.entry(0));
        }
        if self.plan.reached(slot) {
            self.emit.enter(&function.frame, index == 0, self.plan.environment && !self.plan.tail_calls);
            if let Some(length) = self.length_for_tail_calls(index) {
                self.emit.mov_imm(Reg::R2, length.into());
            }
        }
        while slot < end {
            let what = &self.plan.slots()[slot];
            if what.is_target() {
                self.known = Known::NOTHING;
                self.guarded.join();
                self.emit.join();
                if let Some(end) = self.plan.loop_end(slot) {
                    self.emit.code().fragment(Fragment::Pad { end: self.labels.slot(end) });
                }
            }
            self.emit.code().bind(self.labels.slot(slot));
            if !what.is_reached() {
                slot += 1;
                continue;
            }
            self.charge(self.plan.ends.weight(slot));
            self.count(self.counts().and_then(|counts| counts.head(slot)).map(std::ptr::from_ref));
            let done = if self.live.is_dead(slot, what) {
                // No code. The known bits still describe what the register holds, and no one reads it.
                Done::through(if matches!(self.parts.insns[slot], Insn::LoadImm64 { .. }) { 2 } else { 1 })
            } else {
                let done = self.step(slot)?;
                // The last emitted code may have jumped: its live-out registers include those of the target.
                self.emit.next(self.live_out(slot + done.slots - 1), false);
                for insn in &self.parts.insns[slot..slot + done.slots] {
                    self.known.step(insn);
                    self.guarded.step(insn);
                }
                if self.parts.bulk(slot).is_some() {
                    self.known = Known::NOTHING;
                }
                done
            };
            for passed in slot + 1..slot + done.slots {
                self.emit.code().bind(self.labels.slot(passed));
            }
            slot += done.slots;
            self.count(self.counts().and_then(|counts| counts.passed(slot - 1)).map(std::ptr::from_ref));
            if done.falls_through && (slot >= end || !self.plan.reached(slot)) {
                self.emit.trap();
            }
        }
        self.emit_polls();
        Ok(())
    }

    /// Where executions are counted, if they are.
    fn counts(&self) -> Option<&CountsLink> {
        self.parts.linkage.counts.as_ref()
    }

    /// Adds one to a counter, which lives as long as the linkage, and so longer than the code.
    fn count(&mut self, counter: Option<*const AtomicU64>) {
        if let Some(counter) = counter {
            self.emit.add_one(counter.expose_provenance() as u64);
        }
    }

    /// A tail call into a program that counts tail calls passes the buffer, and not its length.
    fn length_for_tail_calls(&self, function: usize) -> Option<u32> {
        let wanted = self.plan.tail_calls && function == 0 && self.live.before(0).contains(Reg::R2);
        self.parts.buffer_len.filter(|_| wanted)
    }

    /// Compiles the instruction in a slot, and those after it that are fused with it.
    fn step(&mut self, slot: usize) -> Result<Done, Error> {
        if let Some(bulk) = self.parts.bulk(slot) {
            // No hints for a sequence of operations.
            self.emit.next(Reg::ALL.into_iter().collect(), false);
            self.emit.bulk(bulk);
            return Ok(Done::through(1));
        }
        let insn = self.parts.insns[slot];
        if let Some(done) = self.fused(slot) {
            return Ok(done);
        }
        let slots = if matches!(insn, Insn::LoadImm64 { .. }) { 2 } else { 1 };
        self.announce(slot, slot + slots - 1);
        match insn {
            Insn::Alu { width, op: AluOp::Mov, dst, src: Operand::Reg(src) } => self.mov(width, dst, src),
            Insn::Alu { width, op, dst, src } => self.alu(slot, op, width, dst, src),
            Insn::Neg { width, dst } => self.emit.neg(width, dst),
            Insn::MovSx { width, from, dst, src } => self.emit.sign_extend(width, from, dst, src),
            Insn::AddrSpaceCast { dst, src, to: 0, .. } => self.mov(Width::W32, dst, src),
            Insn::AddrSpaceCast { dst, src, .. } => {
                let arena = self.parts.arena(slot)?;
                self.emit.cast_to_user(arena, dst, src);
            }
            _ if self.plan.slots()[slot].is_arena() => self.arena(slot)?,
            Insn::Endian { order, size, dst } => self.endian(order, size, dst),
            Insn::LoadImm64 { dst, value } => match self.parts.imm64(slot, value)? {
                Loaded::Number(value) => self.emit.mov_imm(dst, value),
                Loaded::Address(address) => self.emit.mov_address(dst, address),
                Loaded::Callback(function) => {
                    let number = self.plan.callbacks.partition_point(|&at| at < function);
                    self.emit.mov_label(dst, self.labels.callback(number));
                }
            },
            Insn::LoadImm64Tail => {
                return Err(Error::Malformed { slot, what: "the second slot of a load without the first" });
            }
            Insn::Load { size, signed, dst, base, offset } => {
                self.load(slot, size, signed, dst, (base, offset));
            }
            Insn::Store { size, base, offset, src } => {
                let address = self.address(slot, base, offset);
                self.mask_address(address);
                self.emit.store(size, address, src);
            }
            Insn::Atomic { op, size, base, offset, src } => {
                let width = match size {
                    Size::B4 => Width::W32,
                    Size::B8 => Width::W64,
                    _ => return Err(Error::Unsupported { slot, what: "an atomic operation of this size" }),
                };
                let live_out = self.live_out(slot);
                let address = Address::at(base, offset.into());
                self.mask_address(address);
                self.emit.atomic(op, width, (base, offset), src, live_out);
                if let Some(receiver) = receiver(op, src).filter(|reg| live_out.contains(*reg)) {
                    self.mask_loaded(address, receiver);
                }
            }
            Insn::LoadAcquire { size, dst, base, offset } => {
                let address = Address::at(base, offset.into());
                self.order_reload(slot..=slot);
                self.mask_address(address);
                self.emit.load_acquire(size, dst, address);
                self.mask_loaded(address, dst);
            }
            Insn::StoreRelease { size, base, offset, src } => {
                let address = Address::at(base, offset.into());
                self.mask_address(address);
                self.emit.store_release(size, address, src);
            }
            Insn::Jump { offset, .. } => {
                match self.target_slot(slot, offset) {
                    target if self.is_exit(target) => self.emit.exit(self.labels.exit(self.function)),
                    target => {
                        let target = self.label(target);
                        self.emit.jump(target);
                    }
                }
                return Ok(Done::end(1));
            }
            Insn::JumpIf { width, cond, dst, src, offset } => {
                return Ok(self.jump_if(slot, width, (dst, cond, src), offset.into()));
            }
            Insn::Call { target: CallTarget::Local(_) } => {
                let callee = self.parts.callee(slot)?;
                self.charge(self.plan.ends.weight_of_call(self.parts.verified_function(callee)));
                let after = self.plan.ends.after_function(callee, &self.parts.functions[callee]);
                if after != After::GoesOn {
                    return Ok(self.call_that_may_not_return(slot, callee, after));
                }
                self.call_function(callee);
            }
            Insn::Call { target: CallTarget::Helper(id) } => {
                match self.parts.helper_call(slot, id)? {
                    HelperCall::Call(address) => {
                        let printed = self.parts.printed(slot);
                        if let Some(noted) = printed.or_else(|| self.parts.linkage.state(id)) {
                            self.emit.note_printed(noted);
                        }
                        if self.plan.ends.is_after_helper(id) {
                            return Ok(self.helper_that_may_end(slot, address));
                        }
                        self.emit.call_helper(address);
                    }
                    HelperCall::CpuNumber => self.emit.cpu_number(),
                    HelperCall::Lookup(array, key) => return Ok(self.lookup(slot, &array, key)),
                    HelperCall::TailCall(call) => self.tail_call(slot, call),
                };
            }
            Insn::Exit => {
                self.emit.exit(self.labels.exit(self.function));
                return Ok(Done::end(1));
            }
            Insn::MayGoto { offset } => {
                let target = self.target(slot, offset.into());
                if let Some(budget) = self.plan.functions[self.function].frame.budget {
                    self.emit.may_goto(budget, target);
                }
            }
            Insn::LoadPacket { size, base, imm } => self.load_packet(slot, size, base, imm),
            Insn::Call { target: CallTarget::Kfunc { .. } } if self.parts.facts[slot].throws => {
                self.throw();
                return Ok(Done::end(1));
            }
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
                let address = self.parts.function(slot, id)?;
                if skep_abi::own_kfunc(id.cast_unsigned()).is_some_and(skep_abi::OwnKfunc::allocates) {
                    self.emit.note_printed(self.parts.linkage.types);
                }
                if self.plan.ends.is_after_kfunc(id) {
                    return Ok(self.helper_that_may_end(slot, address));
                }
                self.emit.call_helper(address);
            }
            Insn::CallReg { .. } => {
                return Err(Error::Unsupported { slot, what: "an instruction that the plan refuses" });
            }
        }
        Ok(Done::through(slots))
    }

    /// Whether the current function is the program itself.
    fn in_program(&self) -> bool {
        self.function == 0
    }

    /// The label of the current function's exit.
    fn exit_label(&self) -> Label {
        self.labels.exit(self.function)
    }

    /// Tells the emitter the live-out registers of the slots that are emitted next.
    fn announce(&mut self, first: usize, last: usize) {
        let mut live_out = self.live_out(last);
        if first < last {
            // A register that one of them still reads must stay in its place until then.
            live_out = live_out.union(self.live.before(first));
        }
        if let Some(target) = self.plan.slots()[last].target() {
            live_out = live_out.union(self.live.before(target));
        }
        let exits = self.exits(last + 1);
        self.emit.next(live_out, exits);
    }

    /// Whether a slot ends the function and can only be reached from the previous one.
    fn exits(&self, slot: usize) -> bool {
        match self.follower(slot) {
            Some(Insn::Exit) => true,
            Some(Insn::Jump { offset, .. }) => self.is_exit(self.target_slot(slot, offset)),
            _ => false,
        }
    }

    /// Whether a jump to this slot leaves the function. An exit that is counted must be reached.
    fn is_exit(&self, slot: usize) -> bool {
        self.counts().is_none() && self.plan.reached(slot) && self.parts.insns[slot] == Insn::Exit
    }

    /// The instruction in this slot, if it can only be reached from the previous one. Accesses to an arena are not
    /// fused with others.
    fn follower(&self, slot: usize) -> Option<Insn> {
        (self.continues(slot) && !self.plan.slots()[slot].is_arena()).then(|| self.parts.insns[slot])
    }

    /// Whether the slot can only be reached from the previous one.
    fn continues(&self, slot: usize) -> bool {
        let end = self.plan.functions[self.function].end as usize;
        slot < end && self.plan.continues(slot)
    }

    /// A load. One that may fault is never fused ([`Lowering::fused`]).
    fn load(&mut self, slot: usize, size: Size, signed: bool, dst: Reg, place: (Reg, i16)) {
        let address = self.address(slot, place.0, place.1);
        self.order_reload(slot..=slot);
        self.mask_address(address);
        match self.plan.slots()[slot].is_probe() {
            true => self.emit.probe(slot, size, signed, dst, address),
            false => self.emit.load(size, signed, dst, address),
        }
        self.mask_loaded(address, dst);
    }

    fn mov(&mut self, width: Width, dst: Reg, src: Reg) {
        let width = self.known.narrow(AluOp::Mov, width, dst, Operand::Reg(src));
        if dst != src || !self.known.is_extended(Size::B4, src) && width == Width::W32 {
            self.emit.mov_reg(width, dst, src);
        }
    }

    fn alu(&mut self, slot: usize, op: AluOp, width: Width, dst: Reg, src: Operand) {
        let (op, width, src) = match src {
            Operand::Reg(_) => (op, width, src),
            Operand::Imm(imm) => match reduce(op, width, imm) {
                Reduced::Keep(Width::W64) => return,
                Reduced::Keep(Width::W32) => return self.extend(Size::B4, dst),
                Reduced::Constant(value) => return self.emit.mov_imm(dst, value),
                Reduced::ZeroExtend(size) => return self.extend(size, dst),
                Reduced::Neg(width) => return self.emit.neg(width, dst),
                Reduced::Op(op, width, imm) => (op, width, Operand::Imm(imm)),
            },
        };
        let width = self.known.narrow(op, width, dst, src);
        let live_out = self.live_out(slot);
        self.emit.alu(op, width, dst, src, live_out);
    }

    /// Clears the bits above the lowest bytes, unless they are known to be zero.
    fn extend(&mut self, from: Size, dst: Reg) {
        if !self.known.is_extended(from, dst) {
            self.emit.zero_extend(from, dst, dst);
        }
    }

    fn endian(&mut self, order: ByteOrder, size: Size, dst: Reg) {
        // Every machine with a backend is little-endian.
        match order {
            ByteOrder::ToLittle => self.extend(size, dst),
            ByteOrder::ToBig | ByteOrder::Swap => {
                let clean = self.known.is_extended(size, dst);
                self.emit.swap_bytes(size, dst, clean);
            }
        }
    }
}
