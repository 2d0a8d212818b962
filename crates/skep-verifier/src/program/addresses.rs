//! Which bytes of its function's stack each instruction touches: a forward pass over the instructions alone.
//!
//! It follows addresses derived from `r10` ([`Abs`]). Where it loses track, all bytes count as read and none as
//! written.
//!
//! Stacks are counted in 128 units of 4 bytes; a set of units is a `u128`.

use crate::domain::stack::STACK_BYTES;
use crate::program::assumed::Maps;
use crate::program::cfg::{Arrival, target};
use crate::program::config::Config;
use crate::program::liveness::MAX_PASSES;
use skep_abi::{Access, ArgKind, HelperProto};
use skep_isa::{AluOp, AtomicOp, CallTarget, Imm64, Insn, Operand, Width};
use std::ops::Range;

/// What one instruction does to its function's own stack.
#[derive(Clone, Copy)]
pub(crate) struct Effect {
    /// Units that it may read.
    pub(crate) reads: u128,
    /// Those of them that hold the key of an array, which is recorded as a fact.
    pub(crate) key: u128,
    /// Units that it may write.
    pub(crate) may_write: u128,
    /// Units that it certainly overwrites.
    pub(crate) kills: u128,
    /// Whether it may write anywhere else.
    pub(crate) elsewhere: bool,
    /// Registers that a function of the host takes, one bit each.
    pub(crate) arguments: u16,
}

impl Effect {
    pub(crate) const NONE: Self =
        Self { reads: 0, key: 0, may_write: 0, kills: 0, elsewhere: false, arguments: 0 };
    /// The effect of any instruction.
    const ANY: Self = Self {
        reads: u128::MAX,
        key: u128::MAX,
        may_write: u128::MAX,
        kills: 0,
        elsewhere: true,
        arguments: u16::MAX,
    };
}

/// The units that `start..end` (offsets from `r10`) touches.
fn touched(start: i64, end: i64) -> u128 {
    let clamp = |n: i64| (n + i64::from(STACK_BYTES)).clamp(0, STACK_BYTES.into());
    units(clamp(start) / 4, (clamp(end) + 3) / 4)
}

/// The units that are inside of `start..end`.
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

    /// The bytes that an access of `size` bytes at `offset` from it touches; `None` if not in this function's stack.
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

    /// The units that a call certainly overwrites which fills so many bytes from it on.
    fn overwritten(self, size: Option<u32>) -> u128 {
        match (self, size) {
            (Self::Stack(start), Some(size)) => covered(start.into(), i64::from(start) + i64::from(size)),
            _ => 0,
        }
    }
}

/// The forward pass.
pub(crate) struct Addresses<'a> {
    insns: &'a [Insn],
    maps: &'a Maps,
    config: &'a Config<'a>,
    /// What is known at the targets of jumps, with their slots.
    entries: Vec<Known>,
    /// By slot of the function: 1 + index into `entries`, 0 for none.
    index: Vec<u32>,
}

impl<'a> Addresses<'a> {
    pub(crate) fn new(insns: &'a [Insn], maps: &'a Maps, config: &'a Config<'a>) -> Self {
        Self { insns, maps, config, entries: Vec::new(), index: Vec::new() }
    }

    /// Finds the effects of one function's instructions; `arrivals` says where backward jumps lead.
    pub(crate) fn follow(&mut self, range: Range<usize>, arrivals: &[Arrival], effects: &mut [Effect]) {
        self.entries.clear();
        self.index.clear();
        self.index.resize(range.len(), 0);
        let mut entry = [Abs::Other; 11];
        entry[10] = Abs::Stack(0);
        // Whether an address in this stack may have been written to memory: any load may return it then.
        let mut escaped = false;
        let mut from = range.start;
        for _ in 0..MAX_PASSES {
            // The first slot before which more became known behind it: nothing changes before that.
            let mut again = range.end;
            let mut known = (from == range.start).then_some(entry);
            for slot in from..range.end {
                let at = self.index[slot - range.start];
                if at != 0 {
                    let entry = &mut self.entries[at as usize - 1];
                    if let Some(known) = &known {
                        join(entry, known);
                    }
                    known = Some(*entry);
                } else if arrivals[slot].backward
                    && let Some(known) = &known
                {
                    self.entries.push(*known);
                    self.index[slot - range.start] = self.entries.len() as u32;
                }
                let Some(now) = &mut known else { continue };
                let insn = &self.insns[slot];
                let escapes = self.step(insn, now, &mut effects[slot], escaped);
                if escapes && !escaped {
                    escaped = true;
                    again = range.start;
                }
                if let Some(to) = insn.jump_offset().and_then(|offset| target(slot, offset)) {
                    let at = &mut self.index[to - range.start];
                    let changed = if *at == 0 {
                        self.entries.push(*now);
                        *at = self.entries.len() as u32;
                        true
                    } else {
                        join(&mut self.entries[*at as usize - 1], now)
                    };
                    if changed && to <= slot {
                        again = again.min(to);
                    }
                }
                if !insn.falls_through() {
                    known = None;
                }
            }
            if again == range.end {
                return;
            }
            from = again;
        }
        effects[range].fill(Effect::ANY);
    }

    /// Applies `insn` to what is known, and to the stack. True if it may write a stack address to memory.
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
            Insn::Neg { dst, .. }
            | Insn::Endian { dst, .. }
            | Insn::MovSx { dst, .. }
            | Insn::AddrSpaceCast { dst, .. } => {
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
                    // The callback may read and write all of the stack that it is given an address in.
                    Some(proto) if proto.calls_back() => {
                        let given = known[1..6].iter().any(|abs| abs.may_be_stack());
                        effect.reads = if given { u128::MAX } else { 0 };
                        effect.key = effect.reads;
                        known[..6].fill(Abs::Other);
                        return given;
                    }
                    Some(proto) => self.helper_reads(proto, known, effect, escaped),
                    None => effect.reads = u128::MAX,
                }
                known[..6].fill(Abs::Other);
            }
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
                *effect = Effect::NONE;
                let number = id as u32;
                effect.arguments = crate::program::prototype::arguments(self.config.btf, number);
                for (at, memory) in
                    crate::program::prototype::memory_arguments(self.config.btf, number).enumerate()
                {
                    if let Some(size) = memory {
                        effect.reads |= known[at + 1].reach(0, size).unwrap_or(0);
                    }
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

    fn helper_reads(&self, proto: &HelperProto, known: &Known, effect: &mut Effect, escaped: bool) {
        *effect = Effect::NONE;
        let map = |before: usize| {
            let at = (0..before).find(|at| proto.args[*at] == ArgKind::Map)?;
            match known[at + 1] {
                Abs::Map(map) => self.maps.get(map),
                _ => None,
            }
        };
        for (at, arg) in proto.args.iter().enumerate() {
            let pointer = known[at + 1];
            let size = match *arg {
                ArgKind::None | ArgKind::Scalar | ArgKind::Zero | ArgKind::Size { .. } | ArgKind::Map => {
                    continue;
                }
                // The values may be addresses of strings.
                ArgKind::Values if escaped => {
                    effect.reads = u128::MAX;
                    continue;
                }
                ArgKind::MapKey => map(at).map(|map| map.key_size()),
                ArgKind::MapValue(access)
                    if map(at).is_some_and(|map| access.in_map(map.kind()) == Access::Write) =>
                {
                    effect.kills |= pointer.overwritten(map(at).map(|map| map.value_size()));
                    continue;
                }
                ArgKind::Memory { access: Access::Write, .. } => {
                    let size = match known.get(at + 2) {
                        Some(Abs::Constant(size)) => u32::try_from(*size).ok(),
                        _ => None,
                    };
                    effect.kills |= pointer.overwritten(size);
                    continue;
                }
                ArgKind::FixedMemory { access: Access::Write, bytes } => {
                    effect.kills |= pointer.overwritten(Some(bytes));
                    continue;
                }
                ArgKind::MapValue(_) => map(at).map(|map| map.value_size()),
                ArgKind::Memory { .. } | ArgKind::Values => match known.get(at + 2) {
                    Some(Abs::Constant(size)) => u32::try_from(*size).ok(),
                    _ => None,
                },
                ArgKind::FixedMemory { bytes, .. } => Some(bytes),
                _ => None,
            };
            let reads = pointer.reach(0, size).unwrap_or(0);
            effect.reads |= reads;
            if *arg == ArgKind::MapKey && map(at).is_none_or(|map| map.kind().is_array()) {
                effect.key |= reads;
            }
        }
    }
}

/// Joins `from` into `into`; true if that changed it.
fn join(into: &mut Known, from: &Known) -> bool {
    if into == from {
        return false;
    }
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
