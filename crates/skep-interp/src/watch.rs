//! Checking mode: checks every claim of the verifier about a program again while it runs.
//!
//! The checks, and the mistakes that would otherwise go unnoticed:
//!
//! | check | mistake of a verifier that it finds |
//! |---|---|
//! | accesses stay inside regions, with their rights | wrong ranges, missing null checks, stale packet ranges |
//! | registers are written before they are read, and so are stack bytes, except in zeroed frames | wrong liveness, wrong merges of states |
//! | helper arguments are the memory that the prototype requires | wrong sizes of arguments |
//! | arguments of kernel functions and bytes of iterators are what the table says | wrong states of iterators |
//! | executed slots are marked as reached, taken jumps as jump targets | wrong dead code, which compilers drop |
//! | branches that the verifier decided go the decided way | ranges that miss values |
//! | constant maps and keys of calls have their constant value, keys are in bounds | wrong facts for inlining in compilers |
//! | upper halves that must not be read are overwritten | wrong facts for omitted extensions in compilers |
//! | registers and stacks match some state of the walk | any mistake, before it has an effect |
//! | the run ends | wrong bounds of loops |
//!
//! The states of the walk are available if verification was asked to record them ([`Verified::recorded`]).
//!
//! [`Verified::recorded`]: skep_verifier::Verified::recorded

use std::sync::atomic::Ordering;
use std::{ptr, slice};

use skep_abi::{
    Access, ArenaLink, ArgKind, Callback, HelperFlags, HelperProto, MapDef, ProgramType, RetKind,
    machine_type, own_kfunc,
};
use skep_isa::{CallTarget, Insn, Reg, Size, semantics};
use skep_verifier::{Machine, MachineFrame, Object};

use crate::arena;
use crate::code::{Code, MAX_FRAMES, starts_function};
use crate::exec::{self, AccessKind, FRAME_BYTES, Registers, Watch};
use crate::maps::Maps;
use crate::memory;
use crate::own::Live;
use crate::regions::{Found, Memory, Region, Regions, Rights};
use crate::registers::{self, RegSet};
use crate::violation::{MemoryAccess, Reason, Violation};

/// The watch of a run in checking mode.
pub(crate) struct Checking<'a, 'r> {
    code: &'a Code,
    pub(crate) regions: &'a Regions<'r>,
    pub(crate) memory: Memory,
    frames: Vec<StackFrame>,
    /// Initialised registers of the current function.
    pub(crate) written: RegSet,
    pub(crate) context: u64,
    /// The buffer's address.
    buffer: u64,
    executed: u64,
    /// By slot: whether the upper half of its result is never read.
    unread_half: Vec<bool>,
    /// The register whose upper half is overwritten before the next instruction.
    to_overwrite: Option<Reg>,
    /// The helper calls in progress; all but the last one have called back.
    calling: Vec<Calling>,
    /// The live iterators.
    pub(crate) iterators: Vec<Live>,
    /// The previous slot.
    slot: u32,
    pub(crate) maps: Maps<'a>,
    /// The value that represents each map, and each function.
    handles: (Vec<u64>, Vec<u64>),
}

/// Overwrites upper halves that must not be read.
const SPOIL: u64 = 0xdead_beef << 32;

/// One function's stack.
struct StackFrame {
    top: u64,
    /// Index of the function.
    function: u32,
    /// Slot of the call.
    call_slot: u32,
    /// Its registers before its last instruction.
    regs: Registers,
    /// Bytes below `top` that the function uses according to the verifier.
    bytes: usize,
    /// Readable bytes, by distance from `top - 512`.
    written: [bool; FRAME_BYTES],
    /// The initialised registers of the caller.
    caller_written: RegSet,
    /// Whether a helper called it, which uses its result.
    callback: bool,
    /// Memory lent for this call only: the key of an element, for each map number that the map has.
    lent: Vec<(Object, Region)>,
}

/// A call of a helper in progress.
#[derive(Clone, Copy)]
struct Calling {
    slot: u32,
    helper: u32,
    args: [u64; 5],
}

impl<'a, 'r> Checking<'a, 'r> {
    pub(crate) fn new(code: &'a Code, r1: u64, context: u64, regions: &'a Regions<'r>) -> Self {
        let written = match code.context() {
            Some(_) => RegSet::of(&[Reg::R1]),
            None => RegSet::of(&[Reg::R1, Reg::R2]),
        };
        let memory = Memory::new(code, r1, context, regions);
        let maps = code.linkage.maps.iter().map(|link| link.handle).collect();
        let functions = code.parts.functions.iter().map(|function| function.start.into()).collect();
        // An overwritten register would not match the states of the walk.
        let unread_half = match code.parts.recorded.is_some() {
            true => vec![false; code.parts.insns.len()],
            false => skep_verifier::without_extension(&code.parts.insns),
        };
        Self {
            code,
            regions,
            memory,
            frames: Vec::new(),
            written,
            context,
            buffer: r1,
            executed: 0,
            calling: Vec::new(),
            iterators: Vec::new(),
            slot: 0,
            maps: Maps::new(code),
            handles: (maps, functions),
            unread_half,
            to_overwrite: None,
        }
    }

    /// Whether the program may access that memory. Writes make stack bytes readable.
    pub(crate) fn check(&mut self, access: MemoryAccess) -> Result<(), Reason> {
        let MemoryAccess { address, bytes, kind } = access;
        let (reads, writes) = (kind != AccessKind::Write, kind != AccessKind::Read);
        if let Some(checked) = self.check_iterators(access) {
            return checked;
        }
        if let Some(cells) = self.stack(address, bytes) {
            if reads && !cells.iter().all(|written| *written) {
                return Err(Reason::UninitialisedStack(access));
            }
            if writes {
                cells.fill(true);
            }
            return Ok(());
        }
        // SAFETY: the context is valid by the contract of `Interpreter::run_checked`.
        match unsafe { self.memory.find(address, bytes) } {
            Found::Region(rights) if reads && !rights.read => Err(Reason::NotReadable(access)),
            Found::Region(rights) if writes && !rights.write => Err(Reason::NotWritable(access)),
            Found::Region(_) => Ok(()),
            Found::NoField => Err(Reason::NoField(access)),
            Found::Null => Err(Reason::Null(access)),
            Found::Unknown => match self.regions.objects.and_then(|objects| objects(address, bytes)) {
                Some(rights) if writes && !rights.write => Err(Reason::NotWritable(access)),
                Some(_) => Ok(()),
                None => Err(Reason::Unknown(access)),
            },
        }
    }

    /// If another instruction has replaced a conditional jump: returns which way the jump would go, if that differs
    /// from what the instruction does.
    fn decided_wrongly(&self, slot: usize, insn: &Insn, regs: &Registers) -> Option<bool> {
        let Insn::JumpIf { width, cond, dst, src, offset } = *self.regions.source?.get(slot)? else {
            return None;
        };
        let taken = semantics::holds(width, cond, regs[dst.index()], exec::value(regs, src));
        let right = if taken { exec::target(slot, offset.into()) } else { slot + 1 };
        let found = match *insn {
            Insn::Jump { offset, .. } => exec::target(slot, offset),
            Insn::JumpIf { .. } => right,
            _ => return Some(taken),
        };
        (found != right).then_some(taken)
    }

    /// The written bytes of a live function's stack, for an access that is entirely inside it.
    pub(crate) fn stack(&mut self, address: u64, bytes: u64) -> Option<&mut [bool]> {
        self.frames.iter_mut().find_map(|frame| {
            let below = frame.top.wrapping_sub(address);
            let inside = bytes <= below && below <= frame.bytes as u64;
            let start = (FRAME_BYTES as u64).wrapping_sub(below) as usize;
            inside.then(|| &mut frame.written[start..start + bytes as usize])
        })
    }

    /// The bounds of the current function's stack.
    pub(crate) fn current_stack(&self) -> Option<(u64, u64)> {
        self.frames.last().map(|frame| (frame.top - FRAME_BYTES as u64, frame.top))
    }

    /// Whether some state of the verifier's walk contains the machine's state.
    fn check_states(&mut self, slot: usize, regs: &Registers) -> Result<(), Reason> {
        self.slot = slot as u32;
        let Some(recorded) = &self.code.parts.recorded else { return Ok(()) };
        if let Some(frame) = self.frames.last_mut() {
            frame.regs = *regs;
        }
        let mut frames = [MachineFrame { regs, stack: &[], function: 0, call_slot: 0 }; MAX_FRAMES];
        for (shown, frame) in frames.iter_mut().zip(&self.frames) {
            let bottom = ptr::with_exposed_provenance::<u8>(frame.top as usize - FRAME_BYTES);
            // SAFETY: the interpreter's frames have that many bytes below their `r10`, all written when they were
            // opened, and nothing writes to them before this function returns.
            let stack = unsafe { slice::from_raw_parts(bottom, FRAME_BYTES) };
            *shown = MachineFrame {
                regs: &frame.regs,
                stack,
                function: frame.function,
                call_slot: frame.call_slot,
            };
        }
        let machine = Machine {
            slot: slot as u32,
            frames: &frames[..self.frames.len().min(MAX_FRAMES)],
            context: self.context,
            // SAFETY: the context is valid by the contract of `Interpreter::run_checked`.
            packet: unsafe { self.memory.packet() },
            slices: &self.memory.slices,
            buffer: self.buffer,
            maps: &self.handles.0,
            objects: self.memory.objects(),
            functions: &self.handles.1,
        };
        recorded.check(&machine).map_err(|mismatch| Reason::OutsideOfStates(Box::new(mismatch)))
    }

    /// The program's type.
    pub(crate) fn program_type(&self) -> &'static ProgramType {
        self.code.parts.program_type
    }

    /// Whether the value represents a function.
    pub(crate) fn is_function(&self, value: u64) -> bool {
        i64::try_from(value).is_ok_and(|value| starts_function(&self.code.parts, value))
    }

    /// The map that is passed to a helper.
    fn map_argument(&self, proto: &HelperProto, args: &[u64; 5]) -> Vec<(u32, &'a MapDef)> {
        let argument = proto.args.iter().position(|kind| *kind == ArgKind::Map);
        argument.map_or(Vec::new(), |argument| self.maps.of(args[argument]))
    }

    /// Checks the arguments of a helper against its prototype and the verifier's facts.
    fn check_call(&mut self, slot: usize, id: u32, args: [u64; 5]) -> Result<(), Reason> {
        let Some(proto) = (self.regions.helpers)(id) else { return Err(Reason::UnknownHelper { id }) };
        if let Some(reg) = registers::call_reads(proto).without(self.written).first() {
            return Err(Reason::UninitialisedRegister(reg));
        }
        let mut map = None;
        for (i, kind) in proto.args.iter().enumerate() {
            let value = args[i];
            let bad = Err(Reason::Argument { number: i as u8 + 1, value });
            let memory = match *kind {
                ArgKind::Map => {
                    let maps = self.maps.of(value);
                    let known = self.code.parts.facts[slot].call.and_then(|fact| fact.map);
                    let said = maps.iter().find(|(number, _)| Some(*number) == known);
                    map = said.or(maps.first()).copied();
                    if map.is_none() {
                        return bad;
                    }
                    None
                }
                // Tail calls of programs over a buffer pass on the buffer in place of a context.
                ArgKind::Context if proto.ret == RetKind::TailCall && value == self.buffer => None,
                ArgKind::Context | ArgKind::HostContext if value != self.context => return bad,
                // Other objects are those of a host's types.
                ArgKind::Object { types, nullable }
                    if proto.flags.has(HelperFlags::MACHINE)
                        && types.iter().any(|name| machine_type(name).is_some())
                        && !(nullable && value == 0)
                        && !self.is_opaque(value) =>
                {
                    return bad;
                }
                ArgKind::Callback(_) if !self.is_function(value) => return bad,
                ArgKind::Size { zero: false } if value == 0 => return bad,
                ArgKind::MapKey | ArgKind::MapValue(_) => {
                    let Some((_, def)) = map else { return bad };
                    match *kind {
                        ArgKind::MapValue(access) => Some((access.in_map(def.kind), def.value_size.into())),
                        _ => Some((Access::Read, def.key_size.into())),
                    }
                }
                ArgKind::Memory { nullable: true, .. } | ArgKind::Values
                    if value == 0 && args[i + 1] == 0 =>
                {
                    None
                }
                ArgKind::Values => Some((Access::Read, args[i + 1])),
                ArgKind::Memory { access, .. } => Some((access, args[i + 1])),
                ArgKind::FixedMemory { access, bytes } => Some((access, bytes.into())),
                _ => None,
            };
            if let Some((access, bytes)) = memory.filter(|(_, bytes)| *bytes > 0) {
                let kind = match access {
                    Access::Read => AccessKind::Read,
                    Access::Write => AccessKind::Write,
                    Access::ReadWrite => AccessKind::Modify,
                };
                self.check(MemoryAccess { address: value, bytes, kind })?;
            }
        }
        let Some(fact) = self.code.parts.facts[slot].call else { return Ok(()) };
        if let Some(expected) = fact.map
            && map.is_none_or(|(number, _)| number != expected)
        {
            return Err(Reason::WrongMapFact { map: expected });
        }
        let key = proto.args.iter().position(|kind| *kind == ArgKind::MapKey);
        if let Some(key) = key.filter(|_| fact.key.is_some() || fact.in_bounds) {
            // SAFETY: the key was checked to be readable memory; keys in facts have 4 bytes.
            let found = unsafe { memory::load(args[key], Size::B4, Ordering::Relaxed) } as u32;
            if let Some(fact) = fact.key.filter(|fact| *fact != found) {
                return Err(Reason::WrongKeyFact { fact, found });
            }
            if fact.in_bounds && map.is_none_or(|(_, def)| found >= def.max_entries) {
                return Err(Reason::WrongBoundsFact { found });
            }
        }
        Ok(())
    }
}

impl Watch for Checking<'_, '_> {
    type Stop = Violation;

    fn enter(&mut self, slot: usize, top: u64) {
        let facts = self.code.function(slot);
        let bytes = (facts.stack_bytes as usize).min(FRAME_BYTES);
        let caller_written = self.written;
        self.frames.push(StackFrame {
            top,
            function: self.code.function_index(slot) as u32,
            call_slot: self.slot,
            regs: [0; 11],
            bytes,
            // Frames are cleared when they are opened.
            written: [facts.zeroed; FRAME_BYTES],
            caller_written,
            callback: false,
            lent: Vec::new(),
        });
        // A function receives its arguments, and no other registers of its caller.
        self.written = self.written.intersection(registers::arguments()).with(Reg::R10);
    }

    fn call_back(&mut self, slot: usize, top: u64, args: &[u64; 5]) {
        let Some(Calling { slot: call_slot, helper, args: passed }) = self.calling.last().copied() else {
            return;
        };
        self.slot = call_slot;
        self.enter(slot, top);
        let Some(proto) = (self.regions.helpers)(helper) else {
            // A function of the runtime that compares.
            self.written = RegSet::of(&[Reg::R1, Reg::R2, Reg::R10]);
            if let Some(frame) = self.frames.last_mut() {
                frame.callback = true;
            }
            return;
        };
        let kind = proto.args.iter().find_map(|kind| match kind {
            ArgKind::Callback(kind) => Some(*kind),
            _ => None,
        });
        let maps = match kind {
            // The map is that of the timer's value; no argument of the helper names it.
            Some(Callback::Timer) => self.maps.of(args[0]),
            _ => self.map_argument(proto, &passed),
        };
        let mut lent = Vec::new();
        let count = match kind {
            Some(Callback::ForEach | Callback::Timer) => {
                for (map, def) in maps {
                    let key = Region { start: args[1], bytes: def.key_size.into(), rights: Rights::READ };
                    lent.push((Object::Key(map), key));
                    self.memory.learn_value(map, def, args[2]);
                }
                if kind == Some(Callback::Timer) { 3 } else { 4 }
            }
            Some(Callback::FindArea) => 3,
            Some(Callback::Loop | Callback::Drain | Callback::Less | Callback::Host) => 2,
            None => 0,
        };
        self.written = RegSet::of(&Reg::ALL[1..1 + count]).with(Reg::R10);
        self.memory.lend(&lent);
        if let Some(frame) = self.frames.last_mut() {
            (frame.callback, frame.lent) = (true, lent);
        }
    }

    fn thrown(&mut self, slot: usize, top: u64) {
        for frame in std::mem::take(&mut self.frames) {
            self.end_iterators_in(frame.top - FRAME_BYTES as u64, frame.top);
            self.memory.take_back(&frame.lent);
        }
        self.written = RegSet::of(&[Reg::R1]);
        self.enter(slot, top);
    }

    fn leave(&mut self) {
        let result = self.written.contains(Reg::R0);
        if let Some((bottom, top)) = self.current_stack() {
            self.end_iterators_in(bottom, top);
        }
        if let Some(frame) = self.frames.pop() {
            self.memory.take_back(&frame.lent);
            let lost = registers::arguments().with(Reg::R0);
            self.written = frame.caller_written.without(lost);
        }
        if result {
            self.written = self.written.with(Reg::R0);
        }
    }

    fn step(&mut self, slot: usize, insn: &Insn, regs: &mut Registers) -> Result<(), Violation> {
        if let Some(reg) = self.to_overwrite.take() {
            regs[reg.index()] |= SPOIL;
        }
        if self.unread_half[slot] {
            self.to_overwrite = insn.writes().iter().next();
        }
        let stop = |reason| Err(Violation { slot: slot as u32, reason });
        if self.executed == self.regions.fuel {
            return stop(Reason::OutOfFuel { executed: self.executed });
        }
        self.executed += 1;
        if !self.code.parts.facts[slot].reached {
            return stop(Reason::Unreached);
        }
        if let Err(reason) = self.check_states(slot, regs) {
            return stop(reason);
        }
        let looked_at = self.frames.last().is_none_or(|frame| frame.callback) || self.frames.len() == 1;
        let mut reads = registers::reads(insn);
        if self.code.parts.facts[slot].throws {
            reads = reads.with(Reg::R1);
        }
        if looked_at && *insn == Insn::Exit {
            reads = reads.with(Reg::R0);
        }
        if let Some(reg) = reads.without(self.written).first() {
            return stop(Reason::UninitialisedRegister(reg));
        }
        if matches!(insn, Insn::Exit | Insn::LoadPacket { .. })
            && let Some(address) = self.left_iterator()
        {
            return stop(Reason::IteratorLeft { address });
        }
        if let Some(taken) = self.decided_wrongly(slot, insn, regs) {
            return stop(Reason::WrongBranch { taken });
        }
        if let Insn::LoadPacket { .. } = insn {
            if regs[6] != self.context {
                return stop(Reason::NotTheContext { value: regs[6] });
            }
            self.written = self.written.without(registers::arguments());
        }
        if !matches!(insn, Insn::Call { target: CallTarget::Helper(_) }) {
            self.written = self.written.union(registers::writes(insn));
        }
        Ok(())
    }

    fn jump(&mut self, from: usize, to: usize) -> Result<(), Violation> {
        let fact = self.code.parts.facts[to];
        if fact.jump_target && (to > from || fact.loop_head) {
            return Ok(());
        }
        Err(Violation { slot: from as u32, reason: Reason::UnmarkedTarget { target: to as u32 } })
    }

    fn access(&mut self, slot: usize, at: u64, size: Size, kind: AccessKind) -> Result<(), Violation> {
        let access = MemoryAccess { address: at, bytes: size.bytes().into(), kind };
        let atomic = matches!(
            self.code.parts.insns[slot],
            Insn::Atomic { .. } | Insn::LoadAcquire { .. } | Insn::StoreRelease { .. }
        );
        let checked = match atomic && !at.is_multiple_of(access.bytes) {
            true => Err(Reason::MisalignedAtomic(access)),
            false => self.check(access),
        };
        checked.map_err(|reason| Violation { slot: slot as u32, reason })
    }

    fn access_arena(&mut self, slot: usize, regs: &Registers) -> Result<(), Violation> {
        let inside = |(distance, size): (i64, Size)| {
            let guard = ArenaLink::GUARD.cast_signed();
            let end = distance + i64::from(size.bytes());
            -guard <= distance && end <= ArenaLink::WINDOW.cast_signed() + guard
        };
        if arena::place(&self.code.parts.insns[slot], regs).is_some_and(inside) {
            return Ok(());
        }
        Err(Violation { slot: slot as u32, reason: Reason::OutsideOfArena })
    }

    fn call(&mut self, slot: usize, helper: u32, args: [u64; 5]) -> Result<(), Violation> {
        self.check_call(slot, helper, args).map_err(|reason| Violation { slot: slot as u32, reason })?;
        self.calling.push(Calling { slot: slot as u32, helper, args });
        Ok(())
    }

    fn call_kfunc(&mut self, slot: usize, number: u32, args: [u64; 5]) -> Result<(), Violation> {
        let Some(own) = own_kfunc(number) else { return Ok(()) };
        self.check_own_call(own, args).map_err(|reason| Violation { slot: slot as u32, reason })?;
        self.calling.push(Calling { slot: slot as u32, helper: number, args });
        Ok(())
    }

    fn kfunc_returned(&mut self, number: u32, args: [u64; 5], result: u64) {
        if let Some(own) = own_kfunc(number) {
            self.calling.pop();
            self.own_call_returned(own, args, result);
        }
    }

    fn tail_called(&mut self) {
        self.calling.pop();
        self.written = self.written.with(Reg::R0);
    }

    fn returned(&mut self, helper: u32, args: [u64; 5], result: u64) {
        self.calling.pop();
        self.written = self.written.without(registers::arguments().with(Reg::R0));
        let Some(proto) = (self.regions.helpers)(helper) else { return };
        if !matches!(proto.ret, RetKind::Void | RetKind::TailCall) {
            self.written = self.written.with(Reg::R0);
        }
        match proto.ret {
            RetKind::MapValueOrNull | RetKind::MapValue if result != 0 => {
                for (map, def) in self.map_argument(proto, &args) {
                    if !self.maps.find(map, def, result) {
                        self.memory.learn_value(map, def, result);
                    }
                }
            }
            RetKind::MemoryOrNull | RetKind::DynptrDataOrNull if result != 0 => {
                let size = proto.args.iter().position(|kind| *kind == ArgKind::AllocationSize);
                if let Some(size) = size {
                    self.memory.learn_memory(result, args[size]);
                }
            }
            _ => {}
        }
    }
}
