//! Preparation of a program: resolves maps and helpers and checks the structure once, so that a run can neither
//! miss anything nor leave the program's instructions.

use skep_abi::{ArenaLink, Context, Entry, Linkage, MapDef, Printed, ProgramType, TAIL_CALL};
use skep_isa::{CallTarget, Imm64, Insn};
use skep_text::Loads;
use skep_verifier::{Fact, FunctionFacts, Recorded, Verified};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::place;
use crate::{EnterFunction, Error, FindProgram};

/// Maximum number of frames of a run at a time, including the program's own.
pub(crate) const MAX_FRAMES: usize = 8;

/// The parts of a verified program that the interpreter uses. Tests construct them directly.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) insns: Vec<Insn>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) functions: Vec<FunctionFacts>,
    pub(crate) exception_callback: Option<usize>,
    pub(crate) maps: Vec<MapDef>,
    pub(crate) program_type: &'static ProgramType,
    pub(crate) entry: Entry,
    pub(crate) recorded: Option<Arc<Recorded>>,
    /// Records of the values that calls print, by slot.
    pub(crate) printed: Arc<[(u32, Printed)]>,
}

/// A program ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    /// Its parts. Map addresses in its instructions are already numbers.
    pub(crate) parts: Parts,
    pub(crate) linkage: Linkage,
    pub(crate) find: Option<FindProgram>,
    /// What is asked at the beginning of each function, and its first argument.
    pub(crate) enter: Option<(u64, EnterFunction)>,
    /// Required for programs that may read freed objects.
    loads: Option<Arc<Loads>>,
    /// The program's arena. Required for programs that access one.
    pub(crate) arena: Option<ArenaLink>,
    /// What is charged when control reaches a slot ([`skep_abi::EndsLink`]); empty if nothing is.
    weights: Box<[u32]>,
}

impl From<&Verified> for Parts {
    fn from(program: &Verified) -> Self {
        Self {
            insns: program.insns().to_vec(),
            facts: program.facts().to_vec(),
            functions: program.functions().to_vec(),
            exception_callback: program.exception_callback(),
            maps: program.maps().to_vec(),
            program_type: program.program_type(),
            entry: program.entry(),
            recorded: program.recorded().cloned(),
            printed: Arc::clone(program.printed()),
        }
    }
}

impl Code {
    /// Resolves maps, and checks that helpers exist and that all instructions are supported. Slots that the
    /// verifier did not reach are ignored.
    #[cfg(test)]
    pub(crate) fn new(parts: Parts, linkage: &Linkage) -> Result<Self, Error> {
        Self::with(parts, linkage, None)
    }

    /// The same with probe loads, for programs that need them.
    pub(crate) fn with(
        mut parts: Parts,
        linkage: &Linkage,
        loads: Option<Arc<Loads>>,
    ) -> Result<Self, Error> {
        let functions = parts.functions.clone();
        let slots = parts.insns.len();
        let well_formed =
            |function: &FunctionFacts| function.start < function.end && function.end as usize <= slots;
        if functions.first().is_none_or(|main| main.start != 0) || !functions.iter().all(well_formed) {
            return Err(Error::Malformed { slot: 0, what: "the program has no functions" });
        }
        if parts.facts.len() != slots {
            return Err(Error::Malformed { slot: 0, what: "the facts do not match the program" });
        }
        if parts.exception_callback.is_some_and(|function| function >= functions.len()) {
            return Err(Error::Malformed { slot: 0, what: "the exception callback is not a function" });
        }
        let arena = linkage.arena(&parts.insns);
        for function in &functions {
            for slot in function.start..function.end {
                if check_fact(&parts, slot, loads.is_some(), arena)? {
                    resolve(&mut parts, linkage, function, slot)?;
                }
            }
        }
        let weights = match linkage.ends.as_ref().and_then(|ends| ends.charge) {
            Some(_) => skep_abi::round_weights(&parts.insns, |slot| parts.facts[slot].reached),
            None => Box::default(),
        };
        let code = Self { parts, linkage: linkage.clone(), find: None, enter: None, loads, arena, weights };
        code.check_depth()?;
        Ok(code)
    }

    /// Counts that control reaches a slot, if it is a head ([`skep_abi::CountsLink`]).
    #[inline]
    pub(crate) fn count(&self, slot: usize) {
        if let Some(head) = self.linkage.counts.as_ref().and_then(|counts| counts.head(slot)) {
            head.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts that the condition of a jump does not hold.
    #[inline]
    pub(crate) fn count_passed(&self, slot: usize) {
        if let Some(passed) = self.linkage.counts.as_ref().and_then(|counts| counts.passed(slot)) {
            passed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is charged when control reaches a slot.
    #[inline]
    pub(crate) fn weight(&self, slot: usize) -> u32 {
        self.weights.get(slot).copied().unwrap_or(0)
    }

    /// The function that a slot belongs to.
    pub(crate) fn function(&self, slot: usize) -> &FunctionFacts {
        &self.parts.functions[self.function_index(slot)]
    }

    /// The index of that function.
    pub(crate) fn function_index(&self, slot: usize) -> usize {
        self.parts.functions.partition_point(|function| function.start as usize <= slot) - 1
    }

    /// The probe loads, if the instruction in that slot needs them.
    #[inline]
    pub(crate) fn probe(&self, slot: usize) -> Option<&Loads> {
        self.parts.facts[slot].probe.then(|| match &self.loads {
            Some(loads) => &**loads,
            None => unreachable!("refused by Code::with"),
        })
    }

    /// The address of the record of the values that the call in that slot prints.
    pub(crate) fn printed(&self, slot: usize) -> Option<u64> {
        let printed = &self.parts.printed;
        let at = printed.binary_search_by_key(&(slot as u32), |(slot, _)| *slot).ok()?;
        Some((&raw const printed[at].1).expose_provenance() as u64)
    }

    /// Whether that helper is a tail call.
    pub(crate) fn is_tail_call(&self, helper: u32) -> bool {
        is_tail_call(&self.linkage, helper)
    }

    /// The layout of the context, for programs that receive one.
    pub(crate) fn context(&self) -> Option<&'static skep_abi::ContextLayout> {
        match (self.parts.entry, self.parts.program_type.context) {
            (Entry::Context, Context::Struct(layout)) => Some(layout),
            _ => None,
        }
    }

    /// Refuses recursion and call chains of more than [`MAX_FRAMES`].
    fn check_depth(&self) -> Result<(), Error> {
        let functions = &self.parts.functions;
        let mut height = vec![1; functions.len()];
        loop {
            let mut settled = true;
            for (at, function) in functions.iter().enumerate() {
                for slot in function.start..function.end {
                    let Some(target) = self.local_target(slot) else { continue };
                    let callee = functions.partition_point(|function| function.start < target);
                    if height[at] <= height[callee] {
                        height[at] = height[callee] + 1;
                        settled = false;
                    }
                    if height[at] > MAX_FRAMES {
                        return Err(Error::Malformed { slot, what: "the call needs more than 8 frames" });
                    }
                }
            }
            if settled {
                return Ok(());
            }
        }
    }

    fn local_target(&self, slot: u32) -> Option<u32> {
        match self.parts.insns[slot as usize] {
            Insn::Call { target: CallTarget::Local(offset) } if self.parts.facts[slot as usize].reached => {
                Some((slot as i32 + 1 + offset) as u32)
            }
            _ => None,
        }
    }
}

/// Whether a function starts at the slot. The verifier keeps functions in ascending order.
pub(crate) fn starts_function(parts: &Parts, slot: i64) -> bool {
    parts.functions.binary_search_by_key(&slot, |function| i64::from(function.start)).is_ok()
}

fn is_tail_call(linkage: &Linkage, helper: u32) -> bool {
    linkage.inline_linux_helpers && helper == TAIL_CALL
}

/// Whether the slot is reached. Each fact is used here or where the comment says, or the program is refused: a new
/// kind of fact that this crate does not know must not compile.
fn check_fact(parts: &Parts, slot: u32, probes: bool, linked: Option<ArenaLink>) -> Result<bool, Error> {
    let Fact {
        reached,
        // Only checking mode uses these: what other engines inline or lay out by them is a plain call or jump here.
        jump_target: _,
        loop_head: _,
        call: _,
        probe,
        foreign,
        arena,
        throws,
        // Engines that run ahead of stores use it.
        reload: _,
    } = parts.facts[slot as usize];
    if throws && !matches!(parts.insns[slot as usize], Insn::Call { target: CallTarget::Kfunc { .. } }) {
        return Err(Error::Unsupported { slot, what: "an exception that is not a kfunc call" });
    }
    if foreign.is_some() {
        return Err(Error::Unsupported { slot, what: "an access to a field that the context lacks" });
    }
    if arena && place(&parts.insns[slot as usize], &[0; 11]).is_none() {
        return Err(Error::Malformed {
            slot,
            what: "only loads, stores and atomic operations access an arena",
        });
    }
    let casts = reached && matches!(parts.insns[slot as usize], Insn::AddrSpaceCast { .. });
    if (arena || casts) && linked.is_none() {
        return Err(Error::Malformed {
            slot,
            what: "the instruction is about an arena, and no arena is linked",
        });
    }
    if probe && !matches!(parts.insns[slot as usize], Insn::Load { .. }) {
        return Err(Error::Unsupported { slot, what: "an access that may fault but is not a plain load" });
    }
    if probe && !probes {
        return Err(Error::NoProbes { slot });
    }
    Ok(reached)
}

/// Prepares one reached instruction.
fn resolve(parts: &mut Parts, linkage: &Linkage, function: &FunctionFacts, slot: u32) -> Result<(), Error> {
    let unsupported = |what| Err(Error::Unsupported { slot, what });
    let malformed = |what| Err(Error::Malformed { slot, what });
    let target = |offset: i32| i64::from(slot) + 1 + i64::from(offset);
    let inside = |slot: i64| i64::from(function.start) <= slot && slot < i64::from(function.end);

    let insn = parts.insns[slot as usize];
    if let Some(offset) = insn.jump_offset() {
        if !inside(target(offset)) {
            return malformed("the jump leaves its function");
        }
        if parts.insns[target(offset) as usize] == Insn::LoadImm64Tail {
            return malformed("the jump leads into a 64-bit immediate load");
        }
    }
    if insn.falls_through() && !inside(i64::from(slot) + 1) {
        return malformed("control falls off the end of the function");
    }
    match insn {
        Insn::LoadImm64 { dst, value } => {
            if slot + 2 >= function.end || parts.insns[slot as usize + 1] != Insn::LoadImm64Tail {
                return malformed("the 64-bit immediate load is truncated");
            }
            let value = match value {
                Imm64::Value(value) => value,
                Imm64::Map(map) => link(linkage, slot, map)?.handle,
                Imm64::MapValue { map, offset } => match link(linkage, slot, map)?.value_base {
                    Some(base) => base.wrapping_add(offset.into()),
                    None => return Err(Error::NoDirectValue { slot, map }),
                },
                Imm64::MapFd(_) | Imm64::MapFdValue { .. } => {
                    return unsupported("a map named by its file descriptor");
                }
                Imm64::Variable { .. } => return unsupported("the address of a variable"),
                // Helpers receive the number of the slot at which it starts.
                Imm64::Function(offset) => {
                    let target = target(offset);
                    if !starts_function(parts, target) {
                        return malformed("the address is not that of a function");
                    }
                    target as u64
                }
            };
            parts.insns[slot as usize] = Insn::LoadImm64 { dst, value: Imm64::Value(value) };
        }
        Insn::Call { target: CallTarget::Helper(id) } if is_tail_call(linkage, id) => {}
        Insn::Call { target: CallTarget::Helper(id) } if linkage.helper(id).is_none() => {
            return Err(Error::UnknownHelper { slot, id });
        }
        Insn::Call { target: CallTarget::Local(offset) } => {
            let target = target(offset);
            if !starts_function(parts, target) {
                return malformed("the call target is not a function");
            }
        }
        Insn::Call { target: CallTarget::Kfunc { id, .. } }
            if linkage.function(id.cast_unsigned()).is_none() =>
        {
            return unsupported("a call of a kernel function");
        }
        Insn::AddrSpaceCast { to, from, .. } if !matches!((to, from), (0, 1) | (1, 0)) => {
            return unsupported("a cast between other address spaces than 0 and 1");
        }
        Insn::CallReg { .. } => return unsupported("a call through a register"),
        Insn::LoadPacket { .. } if !parts.program_type.is_socket_buffer() => {
            return unsupported("a legacy packet load without a socket buffer");
        }
        Insn::LoadImm64Tail => {
            let before = parts.insns[function.start as usize..slot as usize].last();
            if !matches!(before, Some(Insn::LoadImm64 { .. })) {
                return malformed("the second half of a 64-bit immediate load has no first");
            }
        }
        _ => {}
    }
    Ok(())
}

fn link(linkage: &Linkage, slot: u32, map: u32) -> Result<skep_abi::MapLink, Error> {
    linkage.maps.get(map as usize).copied().ok_or(Error::UnknownMap { slot, map })
}
