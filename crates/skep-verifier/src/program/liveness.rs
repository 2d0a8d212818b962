//! Liveness: what the future of each instruction may read. A backward dataflow analysis before the walk, to a fixpoint.
//!
//! Two states are the same if they differ only in dead values, or in numbers that no check depends on. For every slot
//! this pass finds
//!
//! - the *live* registers and stack bytes: some path from there may read them before writing them;
//! - the *precise* ones: their number may reach an address, a comparison, a size, or a key recorded as a fact. A live
//!   number that is not precise may be any number.
//!
//! Both are over-approximations from the instructions alone, so pruning by them is sound whatever the walk finds. A
//! forward pass ([`crate::program::addresses`]) finds first which stack bytes each access touches.
//!
//! Stacks are counted in 128 units of 4 bytes; a set of units is a `u128`.

use crate::program::Subject;
use crate::program::addresses::{Addresses, Effect};
use crate::program::cfg::{Arrival, Cfg, target};
use crate::program::config::Config;
use skep_abi::{ArgKind, Results, RetKind};
use skep_isa::{AluOp, AtomicOp, CallTarget, Insn, Operand, PacketBase, Reg, Width};

/// What the future may read, before one instruction.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Live {
    /// Registers that are live, one bit each.
    pub(crate) regs: u16,
    /// Those of them that are precise.
    pub(crate) precise: u16,
    /// Stack units that are live.
    pub(crate) stack: u128,
    /// Those of them that are precise.
    pub(crate) stack_precise: u128,
}

/// The result, by slot.
#[derive(Default)]
pub(crate) struct Liveness {
    before: Vec<Live>,
    /// Whether the host accepts only some results of the program.
    result_precise: bool,
    /// Calls of helpers that call back, ascending.
    callers: Vec<u32>,
}

/// The most passes over one function before everything counts as live. Nested loops need one pass for each depth to
/// reach the fixpoint; hostile tangles of jumps need more.
pub(crate) const MAX_PASSES: u32 = 40;

const ARGUMENTS: u16 = 0b11_1110;
const CLOBBERED: u16 = 0b11_1111;

impl Liveness {
    pub(crate) fn of<'a>(program: &'a Subject, cfg: &Cfg, config: &'a Config<'a>) -> Self {
        let (insns, maps) = (&program.source.insns[..], &program.maps);
        let result_precise = program.source.program_type.results != Results::Any;
        let calls = |(slot, arrival): (usize, &Arrival)| arrival.calls_back.then_some(slot as u32);
        let callers = cfg.arrivals.iter().enumerate().filter_map(calls).collect();
        let mut effects = vec![Effect::NONE; insns.len()];
        let mut liveness = Self { before: vec![Live::default(); insns.len()], result_precise, callers };
        let mut addresses = Addresses::new(insns, maps, config);
        for &function in &cfg.callees_first {
            let range = cfg.functions[function].clone();
            addresses.follow(range.clone(), &cfg.arrivals, &mut effects);
            liveness.solve(insns, cfg, config, function, &effects);
        }
        liveness
    }

    /// Whether it was not computed.
    pub(crate) fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// What is live before the instruction at `slot`.
    pub(crate) fn before(&self, slot: usize) -> &Live {
        &self.before[slot]
    }

    /// What is live in a caller while the function that it called at `slot` runs.
    pub(crate) fn during_call(&self, slot: usize) -> Live {
        let (call, after) = (&self.before[slot], &self.before[slot + 1]);
        // A helper that calls back reads its arguments until its last call.
        let kept = if self.callers.binary_search(&(slot as u32)).is_ok() { ARGUMENTS } else { 0 };
        Live {
            regs: call.regs & kept | after.regs & !CLOBBERED,
            precise: call.precise & kept | after.precise & !CLOBBERED,
            stack: call.stack | after.stack,
            stack_precise: call.stack_precise | after.stack_precise,
        }
    }

    fn solve(&mut self, insns: &[Insn], cfg: &Cfg, config: &Config<'_>, function: usize, effects: &[Effect]) {
        let range = &cfg.functions[function];
        // Later passes end at the last backward jump: nothing behind it changes again.
        let mut end = range.end;
        for _ in 1..MAX_PASSES {
            // Whether a backward jump has read what was changed after it.
            let mut again = false;
            let mut last_backward = range.start;
            // Behind the instruction.
            let mut live = self.before.get(end).copied().unwrap_or_default();
            for slot in (range.start..end).rev() {
                let insn = &insns[slot];
                if matches!(insn, Insn::LoadImm64Tail) {
                    continue;
                }
                if !insn.falls_through() {
                    live = Live::default();
                }
                if let Some(to) = insn.jump_offset().and_then(|offset| target(slot, offset)) {
                    live.join(&self.before[to]);
                    if to <= slot {
                        last_backward = last_backward.max(slot + 1);
                    }
                }
                self.step_back(&mut live, insn, slot, cfg, config, function, &effects[slot]);
                if live != self.before[slot] {
                    self.before[slot] = live;
                    again |= cfg.arrivals[slot].backward;
                }
            }
            if !again {
                return;
            }
            end = last_backward;
        }
        // No compiler makes such loops. It is sound to take everything as live and precise.
        self.before[range.clone()].fill(Live::ALL);
    }

    #[allow(clippy::too_many_arguments)] // one instruction and all that is known of it
    fn step_back(
        &self,
        live: &mut Live,
        insn: &Insn,
        slot: usize,
        cfg: &Cfg,
        config: &Config<'_>,
        function: usize,
        effect: &Effect,
    ) {
        match *insn {
            Insn::Alu { op, width, dst, src } => {
                // Without leniency sums must be possible even if they do not matter.
                let strict = !config.abilities.lenient && width == Width::W64;
                let precise = live.precise(dst) || strict && matches!(op, AluOp::Add | AluOp::Sub);
                if op == AluOp::Mov {
                    live.kill(dst);
                } else {
                    live.read(dst, precise);
                }
                if let Operand::Reg(src) = src {
                    live.read(src, precise);
                }
            }
            Insn::Neg { dst, .. } | Insn::Endian { dst, .. } => live.read(dst, live.precise(dst)),
            Insn::MovSx { dst, src, .. } => {
                let precise = live.precise(dst);
                live.kill(dst);
                live.read(src, precise);
            }
            Insn::AddrSpaceCast { dst, src, .. } => {
                live.kill(dst);
                live.read(src, false);
            }
            Insn::LoadImm64 { dst, .. } => live.kill(dst),
            Insn::LoadImm64Tail | Insn::Jump { .. } | Insn::MayGoto { .. } => {}
            Insn::Load { dst, base, .. } | Insn::LoadAcquire { dst, base, .. } => {
                let precise = live.precise(dst);
                live.kill(dst);
                live.read(base, true);
                live.stack |= effect.reads;
                if precise {
                    live.stack_precise |= effect.reads;
                }
            }
            Insn::Store { base, src, .. } => {
                let precise = live.store_precise(effect, function);
                live.stack &= !effect.kills;
                live.stack_precise &= !effect.kills;
                live.read(base, true);
                if let Operand::Reg(src) = src {
                    live.read(src, precise);
                }
            }
            Insn::StoreRelease { base, src, .. } => {
                let precise = live.store_precise(effect, function);
                live.stack &= !effect.kills;
                live.stack_precise &= !effect.kills;
                live.read(base, true);
                live.read(src, precise);
            }
            Insn::Atomic { op, base, src, .. } => {
                let precise = live.store_precise(effect, function) || effect.reads != 0;
                live.read(base, true);
                live.read(src, precise);
                if op == AtomicOp::CmpXchg {
                    live.read(Reg::R0, precise);
                }
                live.stack |= effect.reads;
                live.stack_precise |= effect.reads;
            }
            Insn::JumpIf { dst, src, .. } => {
                live.read(dst, true);
                if let Operand::Reg(src) = src {
                    live.read(src, true);
                }
            }
            Insn::LoadPacket { base, .. } => {
                live.clobber();
                live.read(Reg::R6, true);
                if let PacketBase::Indirect(index) = base {
                    live.read(index, false);
                }
            }
            Insn::Call { target: CallTarget::Helper(id) } => {
                live.clobber();
                let proto = (config.helpers)(id);
                // The number of calls, and the index of the next program.
                let decides = proto.is_some_and(|proto| proto.calls_back() || proto.ret == RetKind::TailCall);
                for (at, reg) in Reg::ALL[1..6].iter().enumerate() {
                    match proto.map(|proto| proto.args[at]) {
                        Some(ArgKind::None) => {}
                        Some(ArgKind::Anything | ArgKind::Scalar | ArgKind::Printed) => {
                            live.read(*reg, decides);
                        }
                        Some(_) | None => live.read(*reg, true),
                    }
                }
                live.stack = live.stack & !effect.kills | effect.reads;
                live.stack_precise = live.stack_precise & !effect.kills | effect.key;
            }
            Insn::Call { target: CallTarget::Local(offset) } => {
                live.clobber();
                let callee = target(slot, offset).and_then(|to| cfg.function_at(to));
                if let Some(global) = callee.and_then(|callee| cfg.globals[callee].as_ref()) {
                    // All that the prototype names is checked.
                    for reg in &Reg::ALL[1..=global.params.len()] {
                        live.read(*reg, true);
                    }
                } else if let Some(callee) = callee {
                    let entry = &self.before[cfg.functions[callee].start];
                    live.regs |= entry.regs & ARGUMENTS;
                    live.precise |= entry.precise & ARGUMENTS;
                }
                live.stack |= effect.reads;
                live.stack_precise |= effect.reads;
            }
            Insn::Call { target: CallTarget::Kfunc { .. } } | Insn::CallReg { .. } => {
                live.clobber();
                live.regs |= ARGUMENTS & effect.arguments;
                live.precise |= ARGUMENTS & effect.arguments;
                live.stack |= effect.reads;
                live.stack_precise |= effect.key;
            }
            Insn::Exit => {
                *live = Live::default();
                // A caller may do anything with a result; most hosts take any number.
                live.read(Reg::R0, function != 0 || self.result_precise);
            }
        }
    }
}

impl Live {
    const ALL: Self = Self { regs: 0x3ff, precise: 0x3ff, stack: u128::MAX, stack_precise: u128::MAX };

    fn join(&mut self, other: &Self) {
        self.regs |= other.regs;
        self.precise |= other.precise;
        self.stack |= other.stack;
        self.stack_precise |= other.stack_precise;
    }

    fn precise(&self, reg: Reg) -> bool {
        self.precise & 1 << reg.number() != 0
    }

    fn kill(&mut self, reg: Reg) {
        self.regs &= !(1 << reg.number());
        self.precise &= !(1 << reg.number());
    }

    fn clobber(&mut self) {
        self.regs &= !CLOBBERED;
        self.precise &= !CLOBBERED;
    }

    fn read(&mut self, reg: Reg, precise: bool) {
        self.regs |= 1 << reg.number();
        self.precise |= u16::from(precise) << reg.number();
    }

    /// Whether the stored number may be precise later.
    fn store_precise(&self, effect: &Effect, function: usize) -> bool {
        // A store elsewhere may go to a caller's stack, and what is precise there
        // is not known here; the program itself has no caller.
        self.stack_precise & effect.may_write != 0 || (effect.elsewhere && function != 0)
    }
}
