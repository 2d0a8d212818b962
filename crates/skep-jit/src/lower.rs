//! Lowering: turns each instruction, or a few fused ones, into machine code.
//!
//! This module is independent of the machine: every operation on registers is one of the backend's `Emitter`.
//! Instructions are fused only if control cannot enter between them ([`Plan::continues`]), and the fused code has the
//! same effect on every live register as the instructions one by one.

use skep_abi::InlineArray;
use skep_isa::{AluOp, ByteOrder, CallTarget, Cond, Insn, Operand, PacketBase, Reg, RegSet, Size, Width};

use crate::Error;
use crate::Options;
use crate::address::{Address, Alias, Home};
use crate::arch::port::{Arch, Arithmetic, Branches, Calls, Emitter, Frames, Memory};
use crate::known::Known;
use crate::layout::{Assembly, Fragment, Label, Layout};
use crate::live::Live;
use crate::packet;
use crate::plan::{HelperCall, Loaded, Parts, Plan, TailCall};
use crate::reduce::{Reduced, reduce};
use crate::site::{Site, TailCalls};

/// Compiles a program except for its address. Labels below the number of instructions are their slots, the next one is
/// the end.
///
/// `home` is the range in which the code will be placed. Returns the layout and the program's tail calls.
pub(crate) fn lower<A: Arch>(
    parts: Parts<'_>,
    features: A::Features,
    options: Options,
    home: &Home,
) -> Result<(Layout<A>, TailCalls), Error> {
    let plan = Plan::new(parts)?;
    let live = Live::new(&plan);
    let labels =
        Labels { slots: parts.insns.len(), functions: plan.functions.len(), callbacks: plan.callbacks.len() };
    let code = Assembly::new(labels.count(), labels.slots);
    let mut lowering = Lowering::<A> {
        parts,
        plan: &plan,
        live: &live,
        labels,
        emit: A::Emitter::new(code, features, options, home),
        known: Known::NOTHING,
        alias: None,
        function: 0,
        trap_used: false,
        sites: Vec::new(),
    };
    if plan.tail_calls {
        lowering.emit.count_tail_calls();
        lowering.emit.enter_run(labels.entry(0));
    }
    for index in 0..plan.functions.len() {
        lowering.function(index)?;
    }
    let Lowering { mut emit, trap_used, mut sites, .. } = lowering;
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
    let layout = emit.finish().relax();
    for (site, offset) in sites.iter_mut().zip(layout.sites()) {
        site.offset = offset;
    }
    let tail_calls = TailCalls {
        sites: sites.into(),
        entry: layout.offset(labels.entry(0)),
        environment: plan.environment && !plan.tail_calls,
        length: parts.buffer_len.filter(|_| !plan.tail_calls && live.before(0).contains(Reg::R2)),
    };
    Ok((layout, tail_calls))
}

/// What labels mean.
#[derive(Clone, Copy)]
struct Labels {
    slots: usize,
    functions: usize,
    callbacks: usize,
}

impl Labels {
    fn slot(self, slot: usize) -> Label {
        slot as Label
    }

    /// After the last function.
    fn end(self) -> Label {
        self.slots as Label
    }

    /// The target of calls of a function. Jumps to its first slot skip the prologue.
    fn entry(self, function: usize) -> Label {
        (self.slots + 1 + function) as Label
    }

    /// The exit of a function.
    fn exit(self, function: usize) -> Label {
        (self.slots + 1 + self.functions + function) as Label
    }

    /// The target of jumps that are never taken.
    fn trap(self) -> Label {
        (self.slots + 1 + 2 * self.functions) as Label
    }

    /// Where helpers enter a function whose address is taken, by its number among those.
    fn callback(self, number: usize) -> Label {
        self.trap() + 1 + number as Label
    }

    fn count(self) -> usize {
        self.callback(self.callbacks) as usize
    }
}

/// A program during lowering. [`crate::fuse`] finds instructions that become one.
pub(crate) struct Lowering<'a, A: Arch> {
    pub(crate) parts: Parts<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) live: &'a Live,
    labels: Labels,
    pub(crate) emit: A::Emitter<'a>,
    /// Known bits before the current instruction.
    pub(crate) known: Known,
    /// The address that its users compute by themselves.
    pub(crate) alias: Option<Alias>,
    /// Index of the current function.
    function: usize,
    trap_used: bool,
    /// Tail calls by branches that are replaced while the code runs, in the order of the branches.
    sites: Vec<Site>,
}

/// How many slots were compiled together, and whether control can reach the next one.
pub(crate) struct Done {
    slots: usize,
    falls_through: bool,
}

impl Done {
    pub(crate) const fn through(slots: usize) -> Self {
        Self { slots, falls_through: true }
    }

    pub(crate) const fn end(slots: usize) -> Self {
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
        if index > 0 {
            self.emit.code().fragment(Fragment::Pad { end: self.labels.slot(end) });
        }
        self.emit.code().bind(self.labels.entry(index));
        if self.plan.reached(slot) {
            self.emit.enter(&function, index == 0, self.plan.environment && !self.plan.tail_calls);
            if let Some(length) = self.length_for_tail_calls(index) {
                self.emit.mov_imm(Reg::R2, length.into());
            }
        }
        while slot < end {
            let what = &self.plan.slots()[slot];
            if what.is_target() {
                self.known = Known::NOTHING;
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
            let done = if self.live.is_dead(slot, what) {
                // No code. The known bits still describe what the register holds, and no one reads it.
                Done::through(if matches!(self.parts.insns[slot], Insn::LoadImm64 { .. }) { 2 } else { 1 })
            } else {
                let done = self.step(slot)?;
                // The last emitted code may have jumped: its live-out registers include those of the target.
                self.emit.next(self.live_out(slot + done.slots - 1), false);
                for insn in &self.parts.insns[slot..slot + done.slots] {
                    self.known.step(insn);
                }
                done
            };
            for passed in slot + 1..slot + done.slots {
                self.emit.code().bind(self.labels.slot(passed));
            }
            slot += done.slots;
            if done.falls_through && (slot >= end || !self.plan.reached(slot)) {
                self.emit.trap();
            }
        }
        Ok(())
    }

    /// A tail call into a program that counts tail calls passes the buffer, and not its length.
    fn length_for_tail_calls(&self, function: usize) -> Option<u32> {
        let wanted = self.plan.tail_calls && function == 0 && self.live.before(0).contains(Reg::R2);
        self.parts.buffer_len.filter(|_| wanted)
    }

    /// Compiles the instruction in a slot, and those after it that are fused with it.
    fn step(&mut self, slot: usize) -> Result<Done, Error> {
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
                self.emit.store(size, address, src);
            }
            Insn::Atomic { op, size, base, offset, src } => {
                let width = match size {
                    Size::B4 => Width::W32,
                    Size::B8 => Width::W64,
                    _ => return Err(Error::Unsupported { slot, what: "an atomic operation of this size" }),
                };
                let live_out = self.live_out(slot);
                self.emit.atomic(op, width, (base, offset), src, live_out);
            }
            Insn::LoadAcquire { size, dst, base, offset } => {
                self.emit.load_acquire(size, dst, Address::at(base, offset.into()));
            }
            Insn::StoreRelease { size, base, offset, src } => {
                self.emit.store_release(size, Address::at(base, offset.into()), src);
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
                if self.parts.functions[callee].may_throw {
                    return Ok(self.call_that_may_throw(slot, callee));
                }
                self.call_function(callee);
            }
            Insn::Call { target: CallTarget::Helper(id) } => {
                match self.parts.helper_call(slot, id)? {
                    HelperCall::Call(address) => {
                        if let Some(printed) = self.parts.printed(slot) {
                            self.emit.note_printed(printed);
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
                if let Some(budget) = self.plan.functions[self.function].budget {
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
                self.emit.call_helper(address);
            }
            Insn::CallReg { .. } => {
                return Err(Error::Unsupported { slot, what: "an instruction that the plan refuses" });
            }
        }
        Ok(Done::through(slots))
    }

    /// A call of a function of the program.
    pub(crate) fn call_function(&mut self, callee: usize) {
        let entry = match self.plan.reached(self.plan.functions[callee].start as usize) {
            true => self.labels.entry(callee),
            false => self.trap(),
        };
        self.emit.call_local(entry);
    }

    /// Whether the current function is the program itself.
    pub(crate) fn in_program(&self) -> bool {
        self.function == 0
    }

    /// The label of the current function's exit.
    pub(crate) fn exit_label(&self) -> Label {
        self.labels.exit(self.function)
    }

    /// Tells the emitter the live-out registers of the slots that are emitted next.
    pub(crate) fn announce(&mut self, first: usize, last: usize) {
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

    fn is_exit(&self, slot: usize) -> bool {
        self.plan.reached(slot) && self.parts.insns[slot] == Insn::Exit
    }

    /// The instruction in this slot, if it can only be reached from the previous one.
    pub(crate) fn follower(&self, slot: usize) -> Option<Insn> {
        self.continues(slot).then(|| self.parts.insns[slot])
    }

    /// Whether the slot can only be reached from the previous one.
    pub(crate) fn continues(&self, slot: usize) -> bool {
        let end = self.plan.functions[self.function].end as usize;
        slot < end && self.plan.continues(slot)
    }

    /// The label of the jump target in this slot.
    fn target(&mut self, slot: usize, offset: i32) -> Label {
        let target = self.target_slot(slot, offset);
        self.label(target)
    }

    /// The slot of the jump target in this slot.
    pub(crate) fn target_slot(&self, slot: usize, offset: i32) -> usize {
        // The plan has checked that targets are inside the function.
        let target = |slot: usize, offset: i32| (slot as i64 + 1 + i64::from(offset)) as usize;
        let mut slot = target(slot, offset);
        // A jump to a jump takes the latter's target. The number of steps is bounded, since jumps may form a cycle.
        for _ in 0..4 {
            match self.parts.insns.get(slot) {
                Some(&Insn::Jump { offset, .. }) if self.plan.reached(slot) => slot = target(slot, offset),
                _ => break,
            }
        }
        slot
    }

    pub(crate) fn label(&mut self, slot: usize) -> Label {
        let end = self.plan.functions[self.function].end as usize;
        if slot < end && self.plan.reached(slot) { self.labels.slot(slot) } else { self.trap() }
    }

    fn trap(&mut self) -> Label {
        self.trap_used = true;
        self.labels.trap()
    }

    /// Whether `if a goto +1; goto b`, which is `if not a goto b`, begins in that slot.
    pub(crate) fn is_over_a_jump(&self, slot: usize, offset: i32) -> bool {
        offset == 1 && matches!(self.follower(slot + 1), Some(Insn::Jump { .. }))
    }

    fn jump_if(&mut self, slot: usize, width: Width, what: (Reg, Cond, Operand), offset: i32) -> Done {
        let (dst, cond, src) = what;
        let width = self.known.narrow_cond(cond, width, dst, src);
        let target = self.target(slot, offset);
        if self.is_over_a_jump(slot, offset)
            && let Some(Insn::Jump { offset: over, .. }) = self.follower(slot + 1)
        {
            let far = self.target(slot + 1, over);
            self.emit.jump_if(width, what, true, far);
            return Done::through(2);
        }
        if offset != 0 {
            self.emit.jump_if(width, what, false, target);
        }
        Done::through(1)
    }

    /// A load. One that may fault is never fused ([`Lowering::fused`]).
    pub(crate) fn load(&mut self, slot: usize, size: Size, signed: bool, dst: Reg, place: (Reg, i16)) {
        let address = self.address(slot, place.0, place.1);
        match self.plan.slots()[slot].is_probe() {
            true => self.emit.probe(slot, size, signed, dst, address),
            false => self.emit.load(size, signed, dst, address),
        }
    }

    /// An inlined look-up, fused with the test for null that usually follows.
    fn lookup(&mut self, slot: usize, array: &InlineArray, key: Option<u32>) -> Done {
        let test = match self.follower(slot + 1) {
            Some(Insn::JumpIf { width: Width::W64, cond, dst: Reg::R0, src: Operand::Imm(0), offset }) => {
                let target = self.target_slot(slot + 1, offset.into());
                match cond {
                    Cond::Eq => Some((target, slot + 2)),
                    Cond::Ne => Some((slot + 2, target)),
                    _ => None,
                }
            }
            _ => None,
        };
        match (test, key) {
            (Some((null, _)), None) => {
                let wanted = self.live.before(null).contains(Reg::R0);
                let missing = (self.label(null), wanted);
                self.emit.lookup(array, Some(missing));
            }
            (None, None) => self.emit.lookup(array, None),
            (_, Some(key)) => self.emit.lookup_known(array, key),
        }
        match test {
            None => Done::through(1),
            Some((_, found)) if found == slot + 2 => Done::through(2),
            Some((_, found)) => {
                let found = self.label(found);
                self.emit.jump(found);
                // If nothing was found, control continues after it.
                Done { slots: 2, falls_through: key.is_none() }
            }
        }
    }

    /// A tail call. If it is not made, control continues after it.
    fn tail_call(&mut self, slot: usize, call: TailCall) {
        match call {
            TailCall::Never => {}
            TailCall::To(target) => {
                let extended = self.known.is_extended(Size::B4, Reg::R3);
                self.emit.tail_call(target, extended);
            }
            TailCall::Site { map, index } => {
                let code = self.emit.tail_call_site(self.labels.slot(slot + 1));
                self.sites.push(Site { map, index, offset: 0, code: code.map(Into::into) });
            }
        }
    }

    /// A legacy packet load: a call. If the packet has no such bytes, the function exits.
    fn load_packet(&mut self, slot: usize, size: Size, base: PacketBase, imm: i32) {
        // No hints for a sequence of operations.
        self.emit.next(Reg::ALL.into_iter().collect(), false);
        match base {
            PacketBase::Absolute => self.emit.mov_imm(Reg::R2, i64::from(imm) as u64),
            PacketBase::Indirect(reg) => {
                self.emit.mov_reg(Width::W64, Reg::R2, reg);
                self.emit.mov_imm(Reg::R3, i64::from(imm) as u64);
                let live_out = RegSet::EMPTY.with(Reg::R2).with(Reg::R6);
                self.emit.alu(AluOp::Add, Width::W32, Reg::R2, Operand::Reg(Reg::R3), live_out);
            }
        }
        self.emit.mov_reg(Width::W64, Reg::R1, Reg::R6);
        self.emit.mov_imm(Reg::R3, size.bytes().into());
        self.emit.call_helper(packet::load as *const () as usize as u64);
        let behind = self.labels.slot(slot + 1);
        let missing = Operand::Imm(packet::MISSING as i32);
        self.emit.jump_if(Width::W64, (Reg::R0, Cond::Ne, missing), false, behind);
        self.emit.mov_imm(Reg::R0, 0);
        self.emit.exit(self.labels.exit(self.function));
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
    pub(crate) fn extend(&mut self, from: Size, dst: Reg) {
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
