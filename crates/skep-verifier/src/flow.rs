//! What each instruction's future may read, computed backwards over the program before the walk.
//!
//! Two states that differ only in what nobody reads are the same state, and so are two that differ only in a
//! number that no check depends on. For every slot this pass finds
//!
//! - what is *live*: registers and stack bytes that some path from there may read before writing them;
//! - what *matters*: those whose number may reach an address, a comparison, a size, or a key that is taken
//!   down as a fact. A live number that does not matter may be any number.
//!
//! Both are over-approximations from the instructions alone, so pruning by them is sound whatever the walk
//! finds. To know which stack bytes an access touches, a forward pass first follows addresses made from `r10`
//! ([`Abs`]); where it loses track, all bytes count as read and none as written.
//!
//! The stack is counted in 128 units of 4 bytes, a set of which is a `u128`.

use crate::Config;
use crate::cfg::{Shape, next_slot, target};
use crate::stack::STACK_BYTES;
use skep_abi::{Access, ArgKind, HelperProto, MapDef};
use skep_isa::{AluOp, AtomicOp, CallTarget, Imm64, Insn, Operand, PacketBase, Reg, Width};
use std::ops::Range;

/// What the future may read, before one instruction.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Live {
    /// Registers that are live, one bit each.
    pub(crate) regs: u16,
    /// Those of them that matter.
    pub(crate) matter: u16,
    /// Stack units that are live.
    pub(crate) stack: u128,
    /// Those of them that matter.
    pub(crate) stack_matters: u128,
}

/// The result, by slot.
#[derive(Default)]
pub(crate) struct Flow {
    before: Vec<Live>,
}

/// The most passes over one function, which bounds the work on hostile tangles of jumps. Nested loops need one
/// pass for each depth.
const MAX_PASSES: u32 = 40;

const ARGUMENTS: u16 = 0b11_1110;
const CLOBBERED: u16 = 0b11_1111;

impl Flow {
    pub(crate) fn of<'a>(
        insns: &'a [Insn],
        shape: &Shape,
        maps: &'a [MapDef],
        config: &'a Config<'a>,
    ) -> Self {
        let mut effects = vec![Effect::NONE; insns.len()];
        let mut flow = Self { before: vec![Live::default(); insns.len()] };
        let mut addresses = Addresses { insns, maps, config, entries: Vec::new(), index: Vec::new() };
        for &function in &shape.callees_first {
            let range = shape.functions[function].clone();
            addresses.follow(range.clone(), &mut effects);
            flow.solve(insns, shape, config, function, &effects);
        }
        flow
    }

    /// What is live before the instruction at `slot`.
    pub(crate) fn before(&self, slot: usize) -> &Live {
        &self.before[slot]
    }

    /// What is live in a caller while the function that it called at `slot` runs.
    pub(crate) fn during_call(&self, slot: usize) -> Live {
        let (call, after) = (&self.before[slot], &self.before[slot + 1]);
        Live {
            regs: after.regs & !CLOBBERED,
            matter: after.matter & !CLOBBERED,
            stack: call.stack | after.stack,
            stack_matters: call.stack_matters | after.stack_matters,
        }
    }

    fn solve(
        &mut self,
        insns: &[Insn],
        shape: &Shape,
        config: &Config<'_>,
        function: usize,
        effects: &[Effect],
    ) {
        let range = &shape.functions[function];
        // The end of what a pass goes over: nothing behind the last backward jump changes in a second one.
        let mut end = range.end;
        for _ in 1..MAX_PASSES {
            // Whether a backward jump has read what was changed after it.
            let mut again = false;
            let mut last_backward = range.start;
            for slot in (range.start..end).rev() {
                let insn = &insns[slot];
                if matches!(insn, Insn::LoadImm64Tail) {
                    continue;
                }
                let mut live = Live::default();
                if insn.falls_through() {
                    live.join(&self.before[next_slot(insns, slot)]);
                }
                if let Some(to) = insn.jump_offset().and_then(|offset| target(slot, offset)) {
                    live.join(&self.before[to]);
                    if to <= slot {
                        last_backward = last_backward.max(slot + 1);
                    }
                }
                self.step_back(&mut live, insn, slot, shape, config, function, &effects[slot]);
                if live != self.before[slot] {
                    self.before[slot] = live;
                    again |= shape.arrivals[slot].backward;
                }
            }
            if !again {
                return;
            }
            end = last_backward;
        }
        // No compiler makes such loops. That everything is read and matters is always true enough.
        self.before[range.clone()].fill(Live::ALL);
    }

    #[allow(clippy::too_many_arguments)] // one instruction and all that is known of it
    fn step_back(
        &self,
        live: &mut Live,
        insn: &Insn,
        slot: usize,
        shape: &Shape,
        config: &Config<'_>,
        function: usize,
        effect: &Effect,
    ) {
        match *insn {
            Insn::Alu { op, dst, src, .. } => {
                let matters = live.matters(dst);
                if op == AluOp::Mov {
                    live.kill(dst);
                } else {
                    live.read(dst, matters);
                }
                if let Operand::Reg(src) = src {
                    live.read(src, matters);
                }
            }
            Insn::Neg { dst, .. } | Insn::Endian { dst, .. } => live.read(dst, live.matters(dst)),
            Insn::MovSx { dst, src, .. } => {
                let matters = live.matters(dst);
                live.kill(dst);
                live.read(src, matters);
            }
            Insn::LoadImm64 { dst, .. } => live.kill(dst),
            Insn::LoadImm64Tail | Insn::Jump { .. } | Insn::MayGoto { .. } => {}
            Insn::Load { dst, base, .. } | Insn::LoadAcquire { dst, base, .. } => {
                let matters = live.matters(dst);
                live.kill(dst);
                live.read(base, true);
                live.stack |= effect.reads;
                if matters {
                    live.stack_matters |= effect.reads;
                }
            }
            Insn::Store { base, src, .. } => {
                let matters = live.store_matters(effect, function);
                live.stack &= !effect.kills;
                live.stack_matters &= !effect.kills;
                live.read(base, true);
                if let Operand::Reg(src) = src {
                    live.read(src, matters);
                }
            }
            Insn::StoreRelease { base, src, .. } => {
                let matters = live.store_matters(effect, function);
                live.stack &= !effect.kills;
                live.stack_matters &= !effect.kills;
                live.read(base, true);
                live.read(src, matters);
            }
            Insn::Atomic { op, base, src, .. } => {
                let matters = live.store_matters(effect, function) || effect.reads != 0;
                live.read(base, true);
                live.read(src, matters);
                if op == AtomicOp::CmpXchg {
                    live.read(Reg::R0, matters);
                }
                live.stack |= effect.reads;
                live.stack_matters |= effect.reads;
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
                for (at, reg) in Reg::ALL[1..6].iter().enumerate() {
                    match (config.helpers)(id).map(|proto| proto.args[at]) {
                        Some(ArgKind::None | ArgKind::Printed) => {}
                        Some(ArgKind::Anything | ArgKind::Scalar) => live.read(*reg, false),
                        Some(_) | None => live.read(*reg, true),
                    }
                }
                live.stack |= effect.reads;
                live.stack_matters |= effect.key;
            }
            Insn::Call { target: CallTarget::Local(offset) } => {
                live.clobber();
                if let Some(callee) = target(slot, offset).and_then(|to| shape.function_at(to)) {
                    let entry = &self.before[shape.functions[callee].start];
                    live.regs |= entry.regs & ARGUMENTS;
                    live.matter |= entry.matter & ARGUMENTS;
                }
                live.stack |= effect.reads;
                live.stack_matters |= effect.reads;
            }
            Insn::Call { target: CallTarget::Kfunc { .. } } | Insn::CallReg { .. } => {
                live.clobber();
                live.regs |= ARGUMENTS;
                live.matter |= ARGUMENTS;
            }
            Insn::Exit => {
                *live = Live::default();
                // A caller may do anything with a result; the host takes any number.
                live.read(Reg::R0, function != 0);
            }
        }
    }
}

impl Live {
    const ALL: Self = Self { regs: 0x3ff, matter: 0x3ff, stack: u128::MAX, stack_matters: u128::MAX };

    fn join(&mut self, other: &Self) {
        self.regs |= other.regs;
        self.matter |= other.matter;
        self.stack |= other.stack;
        self.stack_matters |= other.stack_matters;
    }

    fn matters(&self, reg: Reg) -> bool {
        self.matter & 1 << reg.number() != 0
    }

    fn kill(&mut self, reg: Reg) {
        self.regs &= !(1 << reg.number());
        self.matter &= !(1 << reg.number());
    }

    fn clobber(&mut self) {
        self.regs &= !CLOBBERED;
        self.matter &= !CLOBBERED;
    }

    fn read(&mut self, reg: Reg, matters: bool) {
        self.regs |= 1 << reg.number();
        self.matter |= u16::from(matters) << reg.number();
    }

    /// Whether the stored number may matter later.
    fn store_matters(&self, effect: &Effect, function: usize) -> bool {
        // A store that does not go to this function's own stack may go to a caller's, and a caller's needs
        // are not known here; the program itself has no caller.
        self.stack_matters & effect.may_write != 0 || (effect.elsewhere && function != 0)
    }
}

/// What one instruction does to its function's own stack.
#[derive(Clone, Copy)]
struct Effect {
    /// Units that it may read.
    reads: u128,
    /// Those of them that hold the key of an array, which is taken down as a fact.
    key: u128,
    /// Units that it may write.
    may_write: u128,
    /// Units that it certainly overwrites.
    kills: u128,
    /// Whether it may write anywhere else.
    elsewhere: bool,
}

impl Effect {
    const NONE: Self = Self { reads: 0, key: 0, may_write: 0, kills: 0, elsewhere: false };
    /// What is true of every instruction.
    const ANY: Self =
        Self { reads: u128::MAX, key: u128::MAX, may_write: u128::MAX, kills: 0, elsewhere: true };
}

/// The units of which `start..end` (offsets from `r10`) touches a byte.
fn touched(start: i64, end: i64) -> u128 {
    let clamp = |n: i64| (n + i64::from(STACK_BYTES)).clamp(0, STACK_BYTES.into());
    units(clamp(start) / 4, (clamp(end) + 3) / 4)
}

/// The units that `start..end` covers.
fn covered(start: i64, end: i64) -> u128 {
    let clamp = |n: i64| (n + i64::from(STACK_BYTES)).clamp(0, STACK_BYTES.into());
    units((clamp(start) + 3) / 4, clamp(end) / 4)
}

fn units(start: i64, end: i64) -> u128 {
    if start >= end { 0 } else { u128::MAX >> (128 - (end - start)) << start }
}

/// What the forward pass knows of a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Abs {
    /// No address in this function's own stack.
    Other,
    /// This offset from `r10`.
    Stack(i32),
    /// Perhaps an address in this function's own stack.
    AnyStack,
    /// The map of this index.
    Map(u32),
    /// This number.
    Constant(i32),
}

type Known = [Abs; 11];

impl Abs {
    fn join(self, other: Self) -> Self {
        if self == other {
            self
        } else if self.may_be_stack() || other.may_be_stack() {
            Self::AnyStack
        } else {
            Self::Other
        }
    }

    fn may_be_stack(self) -> bool {
        matches!(self, Self::Stack(_) | Self::AnyStack)
    }

    /// What an access of `size` bytes at `offset` from it touches; `None` if not this function's stack.
    fn reach(self, offset: i64, size: Option<u32>) -> Option<u128> {
        match self {
            Self::Stack(base) => {
                let start = i64::from(base) + offset;
                Some(touched(start, size.map_or(0, |size| start + i64::from(size))))
            }
            Self::AnyStack => Some(u128::MAX),
            _ => None,
        }
    }
}

/// The forward pass.
struct Addresses<'a> {
    insns: &'a [Insn],
    maps: &'a [MapDef],
    config: &'a Config<'a>,
    /// What is known where jumps lead, with the slot they lead to.
    entries: Vec<Known>,
    /// By slot of the function: 1 + index into `entries`, 0 for none.
    index: Vec<u32>,
}

impl Addresses<'_> {
    fn follow(&mut self, range: Range<usize>, effects: &mut [Effect]) {
        self.entries.clear();
        self.index.clear();
        self.index.resize(range.len(), 0);
        let mut entry = [Abs::Other; 11];
        entry[10] = Abs::Stack(0);
        // Whether an address in this stack may have been written to memory, from where any load may get it.
        let mut escaped = false;
        for _ in 0..MAX_PASSES {
            let mut again = false;
            let mut known = Some(entry);
            for slot in range.clone() {
                if let Some(&at) = self.index.get(slot - range.start)
                    && at != 0
                {
                    let entry = &mut self.entries[at as usize - 1];
                    if let Some(known) = known {
                        join(entry, &known);
                    }
                    known = Some(*entry);
                }
                let Some(now) = &mut known else { continue };
                let insn = self.insns[slot];
                let escapes = self.step(&insn, now, &mut effects[slot], escaped);
                if escapes && !escaped {
                    escaped = true;
                    again = true;
                }
                if let Some(to) = insn.jump_offset().and_then(|offset| target(slot, offset)) {
                    let at = &mut self.index[to - range.start];
                    if *at == 0 {
                        self.entries.push(*now);
                        *at = self.entries.len() as u32;
                        again |= to <= slot;
                    } else if join(&mut self.entries[*at as usize - 1], now) {
                        again |= to <= slot;
                    }
                }
                if !insn.falls_through() {
                    known = None;
                }
            }
            if !again {
                return;
            }
        }
        effects[range].fill(Effect::ANY);
    }

    /// What `insn` does to what is known, and to the stack. True if it may write a stack address to memory.
    fn step(&self, insn: &Insn, known: &mut Known, effect: &mut Effect, escaped: bool) -> bool {
        let loaded = if escaped { Abs::AnyStack } else { Abs::Other };
        match *insn {
            Insn::Alu { width, op, dst, src } => {
                let old = known[dst.index()];
                known[dst.index()] = match (op, src) {
                    (AluOp::Mov, Operand::Imm(imm)) => Abs::Constant(imm),
                    (AluOp::Mov, Operand::Reg(src)) if width == Width::W64 => known[src.index()],
                    (AluOp::Add, Operand::Imm(imm)) => moved(old, imm.into()),
                    (AluOp::Sub, Operand::Imm(imm)) => moved(old, -i64::from(imm)),
                    (AluOp::Add | AluOp::Sub, Operand::Reg(src)) => {
                        if old.may_be_stack() || known[src.index()].may_be_stack() {
                            Abs::AnyStack
                        } else {
                            Abs::Other
                        }
                    }
                    _ => Abs::Other,
                };
            }
            Insn::Neg { dst, .. } | Insn::Endian { dst, .. } | Insn::MovSx { dst, .. } => {
                known[dst.index()] = Abs::Other;
            }
            Insn::LoadImm64 { dst, value } => {
                known[dst.index()] = match value {
                    Imm64::Map(map) => Abs::Map(map),
                    _ => Abs::Other,
                };
            }
            Insn::Load { size, dst, base, offset, .. } | Insn::LoadAcquire { size, dst, base, offset } => {
                effect.reads = known[base.index()].reach(offset.into(), Some(size.bytes())).unwrap_or(0);
                known[dst.index()] = loaded;
            }
            Insn::Store { size, base, offset, src } => {
                *effect = store_effect(known[base.index()], offset, size.bytes());
                return matches!(src, Operand::Reg(src) if known[src.index()].may_be_stack());
            }
            Insn::StoreRelease { size, base, offset, src } => {
                *effect = store_effect(known[base.index()], offset, size.bytes());
                return known[src.index()].may_be_stack();
            }
            Insn::Atomic { size, base, offset, op, src } => {
                let touched = known[base.index()].reach(offset.into(), Some(size.bytes())).unwrap_or(0);
                effect.reads = touched;
                effect.may_write = touched;
                effect.elsewhere = !matches!(known[base.index()], Abs::Stack(_));
                match op {
                    AtomicOp::CmpXchg => known[0] = Abs::Other,
                    AtomicOp::Xchg
                    | AtomicOp::Add { fetch: true }
                    | AtomicOp::Or { fetch: true }
                    | AtomicOp::And { fetch: true }
                    | AtomicOp::Xor { fetch: true } => known[src.index()] = Abs::Other,
                    _ => {}
                }
            }
            Insn::Call { target: CallTarget::Helper(id) } => {
                match (self.config.helpers)(id) {
                    Some(proto) => self.helper_reads(proto, known, effect),
                    None => effect.reads = u128::MAX,
                }
                known[..6].fill(Abs::Other);
            }
            Insn::Call { .. } | Insn::CallReg { .. } => {
                // The callee may read all of the stack that it is given an address in, write further
                // addresses there, and return one.
                let given = known[1..6].iter().any(|abs| abs.may_be_stack());
                effect.reads = if given { u128::MAX } else { 0 };
                known[1..6].fill(Abs::Other);
                known[0] = if given { Abs::AnyStack } else { Abs::Other };
                return given;
            }
            Insn::LoadPacket { .. } => known[..6].fill(Abs::Other),
            Insn::LoadImm64Tail
            | Insn::Jump { .. }
            | Insn::JumpIf { .. }
            | Insn::MayGoto { .. }
            | Insn::Exit => {}
        }
        false
    }

    fn helper_reads(&self, proto: &HelperProto, known: &Known, effect: &mut Effect) {
        *effect = Effect::NONE;
        let map = |before: usize| {
            let at = (0..before).find(|at| proto.args[*at] == ArgKind::Map)?;
            match known[at + 1] {
                Abs::Map(map) => self.maps.get(map as usize),
                _ => None,
            }
        };
        for (at, arg) in proto.args.iter().enumerate() {
            let pointer = known[at + 1];
            let size = match *arg {
                ArgKind::None | ArgKind::Printed | ArgKind::Scalar | ArgKind::Size { .. } | ArgKind::Map => {
                    continue;
                }
                ArgKind::MapKey => map(at).map(|map| map.key_size),
                ArgKind::MapValue(Access::Write)
                | ArgKind::Memory { access: Access::Write, .. }
                | ArgKind::FixedMemory { access: Access::Write, .. } => continue,
                ArgKind::MapValue(_) => map(at).map(|map| map.value_size),
                ArgKind::Memory { .. } => match known.get(at + 2) {
                    Some(Abs::Constant(size)) => u32::try_from(*size).ok(),
                    _ => None,
                },
                ArgKind::FixedMemory { bytes, .. } => Some(bytes),
                _ => None,
            };
            let reads = pointer.reach(0, size).unwrap_or(0);
            effect.reads |= reads;
            if *arg == ArgKind::MapKey && map(at).is_none_or(|map| map.kind.is_array()) {
                effect.key |= reads;
            }
        }
    }
}

/// Joins `from` into `into`; true if that changed it.
fn join(into: &mut Known, from: &Known) -> bool {
    let mut changed = false;
    for (into, from) in into.iter_mut().zip(from) {
        let joined = into.join(*from);
        changed |= joined != *into;
        *into = joined;
    }
    changed
}

fn moved(old: Abs, by: i64) -> Abs {
    match old {
        Abs::Stack(offset) => match i32::try_from(i64::from(offset) + by) {
            Ok(offset) if offset.unsigned_abs() < 1 << 20 => Abs::Stack(offset),
            _ => Abs::AnyStack,
        },
        Abs::AnyStack => Abs::AnyStack,
        _ => Abs::Other,
    }
}

fn store_effect(base: Abs, offset: i16, size: u32) -> Effect {
    let mut effect = Effect::NONE;
    effect.may_write = base.reach(offset.into(), Some(size)).unwrap_or(0);
    if let Abs::Stack(base) = base {
        let start = i64::from(base) + i64::from(offset);
        effect.kills = covered(start, start + i64::from(size));
    } else {
        effect.elsewhere = true;
    }
    effect
}
