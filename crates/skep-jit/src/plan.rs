//! The facts that emission needs: jump targets, loops, and what each function saves.
//!
//! The verifier has proved the whole program. This pass checks its structure once more, cheaply, because a mistake
//! there would become a wild jump. Emission can rely on everything that this pass accepts.

use skep_isa::{CallTarget, Insn, Reg, RegSet};
use skep_verifier::{Fact, FunctionFacts};

use crate::ends::{After, Ends};
use crate::error::Error;
use crate::parts::{HelperCall, Loaded, Parts, TailCall};
use crate::port::{FrameSpec, Target};

/// What is known of a program before emission.
#[derive(Debug)]
pub(crate) struct Plan {
    slots: Vec<Slot>,
    pub(crate) functions: Vec<FunctionPlan>,
    /// Innermost loops: head, and the slot after the last backward jump; ascending.
    loops: Vec<(u32, u32)>,
    /// Whether any function needs the environment.
    pub(crate) environment: bool,
    /// Whether any function makes tail calls.
    pub(crate) tail_calls: bool,
    /// The functions whose addresses are taken, ascending.
    pub(crate) callbacks: Vec<usize>,
    /// Where runs end early.
    pub(crate) ends: Ends,
}

/// What is known of a slot before emission.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// Bits of [`flag`].
    flags: u8,
    /// The registers that its code reads.
    pub(crate) reads: RegSet,
    /// The registers that it clobbers.
    pub(crate) writes: RegSet,
    /// Its jump target; its own slot without [`flag::JUMPS`].
    target: u32,
}

/// What is known of a function before emission.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FunctionPlan {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) frame: FrameSpec,
}

mod flag {
    /// A jump leads here.
    pub(super) const TARGET: u8 = 1;
    /// A backward jump leads here.
    pub(super) const LOOP: u8 = 2;
    /// The slot is reachable.
    pub(super) const REACHED: u8 = 4;
    /// Control may jump within the function.
    pub(super) const JUMPS: u8 = 8;
    /// Control may continue with the next slot.
    pub(super) const FALLS: u8 = 16;
    /// The only effect is a computed value.
    pub(super) const PURE: u8 = 32;
    /// The load may fault, and then gives 0.
    pub(super) const PROBE: u8 = 64;
    /// The access is to the program's arena.
    pub(super) const ARENA: u8 = 128;
}

impl Slot {
    /// The flags of a slot from its facts. Each fact is used here or in the named place, or the program is refused: a
    /// new fact does not compile until it is handled.
    fn new(slot: usize, fact: &Fact, insn: &Insn) -> Result<Self, Error> {
        let Fact {
            reached,
            // `Plan::jump` computes it.
            jump_target: _,
            loop_head: _,
            probe,
            // Used by `Parts::tail_call` and `Parts::lookup`.
            call: _,
            foreign,
            arena,
            throws,
            // `Lowering::order_reload` uses it.
            reload: _,
        } = *fact;
        // `Plan::check` and `Lowering::throw` handle it.
        if throws && !matches!(insn, Insn::Call { target: CallTarget::Kfunc { .. } }) {
            return Err(Error::Unsupported {
                slot,
                what: "an exception that is no call of a function by name",
            });
        }
        if foreign.is_some() {
            return Err(Error::Unsupported { slot, what: "an access to a field that the context lacks" });
        }
        if arena && base(insn).is_none_or(|base| base == Reg::R10) {
            return Err(Error::Malformed { slot, what: "an access to an arena through something else" });
        }
        if probe && !matches!(insn, Insn::Load { .. }) {
            return Err(Error::Unsupported { slot, what: "an access that may fault and is no plain load" });
        }
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        Ok(Self {
            flags: flag(reached, flag::REACHED) | flag(probe, flag::PROBE) | flag(arena, flag::ARENA),
            ..Self::default()
        })
    }

    /// Its jump target, if it is a jump.
    pub(crate) fn target(&self) -> Option<usize> {
        self.is(flag::JUMPS).then_some(self.target as usize)
    }

    /// Whether control may continue with the next slot.
    pub(crate) fn falls_through(&self) -> bool {
        self.is(flag::FALLS)
    }

    /// Whether its only effect is a computed value.
    pub(crate) fn is_pure(&self) -> bool {
        self.is(flag::PURE)
    }

    /// Whether a backward jump leads here.
    pub(crate) fn is_loop(&self) -> bool {
        self.is(flag::LOOP)
    }

    /// Whether the slot is reachable.
    pub(crate) fn is_reached(&self) -> bool {
        self.is(flag::REACHED)
    }

    /// Whether it is a load that may fault and then gives 0.
    pub(crate) fn is_probe(&self) -> bool {
        self.is(flag::PROBE)
    }

    /// Whether it accesses the program's arena.
    pub(crate) fn is_arena(&self) -> bool {
        self.is(flag::ARENA)
    }

    /// Whether a jump leads here.
    pub(crate) fn is_target(&self) -> bool {
        self.is(flag::TARGET)
    }

    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl Plan {
    /// Examines the whole program once.
    pub(crate) fn new(parts: Parts<'_>) -> Result<Self, Error> {
        let Parts { insns, facts, functions, .. } = parts;
        if facts.len() != insns.len() {
            return Err(Error::Malformed {
                slot: insns.len(),
                what: "facts and instructions differ in number",
            });
        }
        let slots = facts.iter().enumerate().map(|(slot, fact)| Slot::new(slot, fact, &insns[slot]));
        let slots = slots.collect::<Result<_, _>>()?;
        let mut plan = Self {
            slots,
            functions: Vec::with_capacity(functions.len()),
            loops: Vec::new(),
            environment: false,
            // What replaces a function finds the count of the run in its register.
            tail_calls: parts.entries || parts.extension,
            callbacks: Vec::new(),
            ends: Ends::new(parts),
        };
        let mut end = 0;
        for function in functions {
            let in_order = function.start == end && function.start < function.end;
            if !in_order || function.end as usize > insns.len() || function.stack_bytes % 8 != 0 {
                let slot = function.start as usize;
                return Err(Error::Malformed { slot, what: "functions do not follow each other" });
            }
            end = function.end;
            let function = plan.function(parts, function)?;
            plan.functions.push(function);
        }
        if end as usize != insns.len() || insns.is_empty() {
            let slot = end as usize;
            return Err(Error::Malformed { slot, what: "instructions outside of all functions" });
        }
        if parts.exception_callback.is_some_and(|function| function >= functions.len()) {
            return Err(Error::Malformed { slot: 0, what: "exceptions end in no function" });
        }
        plan.keep_innermost();
        plan.callbacks.sort_unstable();
        plan.callbacks.dedup();
        Ok(plan)
    }

    /// Whether the slot is reachable.
    pub(crate) fn reached(&self, slot: usize) -> bool {
        self.slots[slot].is_reached()
    }

    /// Whether the slot continues a basic block: it can be reached from the previous slot only.
    pub(crate) fn continues(&self, slot: usize) -> bool {
        let both = flag::TARGET | flag::REACHED;
        self.slots.get(slot).is_some_and(|slot| slot.flags & both == flag::REACHED)
    }

    /// All slots.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The slot after the innermost loop that starts here.
    pub(crate) fn loop_end(&self, slot: usize) -> Option<usize> {
        if !self.slots[slot].is_loop() {
            return None;
        }
        let at = self.loops.binary_search_by_key(&(slot as u32), |&(head, _)| head).ok()?;
        Some(self.loops[at].1 as usize)
    }

    fn function(&mut self, parts: Parts<'_>, facts: &FunctionFacts) -> Result<FunctionPlan, Error> {
        let mut plan = FunctionPlan { start: facts.start, end: facts.end, frame: FrameSpec::default() };
        plan.frame.stack_bytes = facts.stack_bytes;
        plan.frame.zeroed = if facts.zeroed { facts.stack_bytes } else { 0 };
        for slot in facts.start as usize..facts.end as usize {
            if !self.reached(slot) {
                continue;
            }
            if let Some(bulk) = parts.bulk(slot) {
                let (reads, writes) = (bulk.reads(), bulk.writes());
                plan.frame.written = plan.frame.written.union(writes);
                plan.frame.uses_stack |= reads.contains(Reg::R10);
                let entry = &mut self.slots[slot];
                (entry.reads, entry.writes) = (reads, writes);
                // Not taken together with what is before it.
                entry.flags |= flag::FALLS | flag::TARGET;
                continue;
            }
            let insn = &parts.insns[slot];
            let (reads, writes) = (insn.reads(), insn.writes());
            plan.frame.written = plan.frame.written.union(writes);
            plan.frame.uses_stack |= reads.union(writes).contains(Reg::R10);
            if self.ends.weight(slot) > 0 {
                plan.frame.calls = true;
                self.environment = true;
                // Not taken together with what is before it, also where only that leads to a copy of a loop's head.
                self.slots[slot].flags |= flag::TARGET;
            }
            if parts.linkage.counts.as_ref().is_some_and(|counts| counts.begins(slot)) {
                self.slots[slot].flags |= flag::TARGET;
            }
            let entry = &mut self.slots[slot];
            (entry.reads, entry.writes) = (reads, writes);
            if let Insn::Alu { .. } = insn {
                entry.flags |= flag::FALLS | flag::PURE;
                continue; // most of most programs, and nothing about it can fail
            }
            if insn.falls_through() && !parts.facts[slot].throws {
                entry.flags |= flag::FALLS;
            }
            if insn.is_jump() {
                self.jump(parts, &plan, slot)?;
            }
            self.check(parts, &mut plan, slot)?;
        }
        Ok(plan)
    }

    /// Records a jump.
    fn jump(&mut self, parts: Parts<'_>, plan: &FunctionPlan, slot: usize) -> Result<(), Error> {
        let inside = plan.start as usize..plan.end as usize;
        let Some(target) = parts.insns[slot].jump_target(slot).filter(|target| inside.contains(target))
        else {
            return Err(Error::Malformed { slot, what: "a jump leaves its function" });
        };
        if parts.insns[target] == Insn::LoadImm64Tail {
            return Err(Error::Malformed { slot, what: "a jump into the middle of a 64-bit immediate load" });
        }
        self.slots[slot].flags |= flag::JUMPS;
        self.slots[slot].target = target as u32;
        self.slots[target].flags |= flag::TARGET;
        if target <= slot {
            self.slots[target].flags |= flag::LOOP;
            self.loops.push((target as u32, slot as u32 + 1));
        }
        Ok(())
    }

    /// Checks everything that could make emission fail.
    fn check(&mut self, parts: Parts<'_>, plan: &mut FunctionPlan, slot: usize) -> Result<(), Error> {
        match parts.insns[slot] {
            Insn::LoadImm64 { value, .. } => {
                if parts.insns.get(slot + 1) != Some(&Insn::LoadImm64Tail) || slot + 2 > plan.end as usize {
                    return Err(Error::Malformed {
                        slot,
                        what: "a 64-bit immediate load without its second slot",
                    });
                }
                if let Loaded::Callback(function) = parts.imm64(slot, value)? {
                    self.callbacks.push(function);
                }
                self.slots[slot].flags |= flag::PURE;
                // Control skips the second slot, whatever its facts are.
                self.slots[slot + 1].flags |= flag::FALLS;
            }
            Insn::AddrSpaceCast { to, from, .. } => {
                parts.arena(slot)?;
                if !matches!((to, from), (0, 1) | (1, 0)) {
                    return Err(Error::Unsupported {
                        slot,
                        what: "a cast between other address spaces than 0 and 1",
                    });
                }
                self.slots[slot].flags |= flag::PURE;
            }
            _ if parts.facts[slot].arena => {
                parts.arena(slot)?;
            }
            Insn::Alu { .. } | Insn::Neg { .. } | Insn::MovSx { .. } | Insn::Endian { .. } => {
                self.slots[slot].flags |= flag::PURE;
            }
            Insn::Call { target: CallTarget::Local(_) } => {
                let callee = parts.callee(slot)?;
                plan.frame.calls = true;
                self.environment |= self.ends.charges();
                if self.ends.after_function(callee, &parts.functions[callee]) != After::GoesOn {
                    self.environment = true;
                    self.jumps_behind(slot, plan);
                }
            }
            Insn::Call { target: CallTarget::Helper(id) } => match parts.helper_call(slot, id)? {
                HelperCall::Call(_) => {
                    plan.frame.calls = true;
                    self.environment = true;
                    if self.ends.is_after_helper(id) {
                        self.jumps_behind(slot, plan);
                    }
                }
                HelperCall::CpuNumber => {
                    self.environment = true;
                    self.slots[slot].reads = RegSet::EMPTY;
                }
                HelperCall::TailCall(call) => {
                    let (table, index) = (RegSet::from(Reg::R2), RegSet::from(Reg::R3));
                    self.slots[slot].reads = match call {
                        TailCall::Never => RegSet::EMPTY,
                        TailCall::Site { .. } | TailCall::To(Target::At(_)) => Reg::R1.into(),
                        TailCall::To(Target::Table(_)) => index.with(Reg::R1),
                        TailCall::To(Target::Found) => table.union(index).with(Reg::R1),
                    };
                    self.tail_calls |= !matches!(call, TailCall::Never);
                    if let TailCall::Site { .. } = call
                        && slot + 1 < plan.end as usize
                    {
                        // The emitted code jumps there.
                        self.slots[slot + 1].flags |= flag::TARGET;
                    }
                }
                HelperCall::Lookup(array, key) => {
                    self.environment |= array.cpu_stride > 0;
                    self.slots[slot].reads = if key.is_some() { RegSet::EMPTY } else { Reg::R2.into() };
                }
            },
            Insn::Call { target: CallTarget::Kfunc { id, .. } } if parts.facts[slot].throws => {
                parts.function(slot, id)?;
                // The callback is called, or the caller checks `thrown`.
                plan.frame.calls |= parts.exception_callback.is_some();
                self.environment |= plan.start > 0;
                self.slots[slot].reads = Reg::R1.into();
            }
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
                parts.function(slot, id)?;
                plan.frame.calls = true;
                self.environment = true;
                if self.ends.is_after_kfunc(id) {
                    self.jumps_behind(slot, plan);
                }
                // Of others all of `Insn::reads` counts.
                if let Some(own) = skep_abi::own_kfunc(id.cast_unsigned()) {
                    self.slots[slot].reads = Reg::ALL.into_iter().skip(1).take(own.params.len()).collect();
                }
            }
            Insn::CallReg { .. } => {
                return Err(Error::Unsupported { slot, what: "a call of the function in a register" });
            }
            Insn::LoadPacket { .. } if !parts.socket_buffer => {
                return Err(Error::Unsupported {
                    slot,
                    what: "a legacy packet load without a socket buffer",
                });
            }
            Insn::LoadPacket { .. } => {
                if slot + 1 >= plan.end as usize {
                    return Err(Error::Malformed { slot, what: "control runs out of the function" });
                }
                plan.frame.calls = true;
                // The emitted code jumps over the end of the function.
                self.slots[slot + 1].flags |= flag::TARGET;
            }
            Insn::MayGoto { .. } if plan.frame.budget.is_none() => {
                plan.frame.stack_bytes += 8;
                plan.frame.uses_stack = true;
                plan.frame.budget = Some(-(plan.frame.stack_bytes as i32));
            }
            _ => {}
        }
        Ok(())
    }

    /// The code emitted for the call in that slot jumps over the handling of a run that does not go on there.
    fn jumps_behind(&mut self, slot: usize, function: &FunctionPlan) {
        if slot + 1 < function.end as usize {
            self.slots[slot + 1].flags |= flag::TARGET;
        }
    }

    /// Keeps innermost loops only.
    fn keep_innermost(&mut self) {
        if self.loops.is_empty() {
            return;
        }
        // Jumps are in ascending order: `head` is the last loop head before or at the end of each.
        let (mut head, mut slot) = (0, 0);
        let slots = &self.slots;
        self.loops.retain(|&(start, end)| {
            while slot < end {
                if slots[slot as usize].is_loop() {
                    head = slot;
                }
                slot += 1;
            }
            head == start
        });
        // The last of several jumps to one head ends the loop.
        self.loops.sort_unstable_by_key(|&(head, end)| (head, std::cmp::Reverse(end)));
        self.loops.dedup_by_key(|&mut (head, _)| head);
    }
}

/// The base of a load, store or atomic operation.
fn base(insn: &Insn) -> Option<Reg> {
    match *insn {
        Insn::Load { base, .. }
        | Insn::Store { base, .. }
        | Insn::Atomic { base, .. }
        | Insn::LoadAcquire { base, .. }
        | Insn::StoreRelease { base, .. } => Some(base),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_abi::Linkage;
    use skep_isa::assemble;

    #[test]
    fn only_innermost_loops_are_loops() {
        let text = "r0 = 0
             outer: r1 = 5
             inner: r1 += -1
                    if r1 == 3 goto inner
                    if r1 != 0 goto inner
             other: r0 += 1
                    if r0 == 7 goto other
                    if r0 != 9 goto outer
                    exit";
        let insns = assemble(text).expect("assembles");
        let facts = vec![Fact { reached: true, ..Fact::default() }; insns.len()];
        let name = String::from("main");
        let end = insns.len() as u32;
        let functions = [FunctionFacts { name, start: 0, end, ..FunctionFacts::default() }];
        let linkage = Linkage::default();
        let parts = Parts {
            insns: &insns,
            facts: &facts,
            functions: &functions,
            printed: &[],
            exception_callback: None,
            linkage: &linkage,
            socket_buffer: false,
            buffer_len: None,
            patched: false,
            entries: false,
            extension: false,
            arena: None,
            rewriting: None,
        };
        let plan = Plan::new(parts).expect("a plan");
        let loops: Vec<_> = (0..insns.len()).map(|slot| plan.loop_end(slot)).collect();
        assert_eq!(loops, [None, None, Some(5), None, None, Some(7), None, None, None]);
        assert!(plan.slots()[1].is_loop() && plan.slots()[1].is_target() && !plan.continues(1));
    }
}
