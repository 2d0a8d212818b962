//! A program made ready: its maps and helpers found, its structure looked at once, so that running it can
//! neither miss anything nor leave its instructions.

use skep_abi::{Context, Entry, Linkage, MapDef, Printed, ProgramType};
use skep_isa::{CallTarget, Imm64, Insn};
use skep_text::Loads;
use skep_verifier::{Fact, FunctionFacts, Recorded, Verified};
use std::sync::Arc;

use crate::{Error, FindProgram};

/// The most frames that a run may have at once, the program's own included.
pub(crate) const MAX_FRAMES: usize = 8;

/// The parts of a verified program that count here. Tests make them up.
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
    /// What holds of the values that calls print, by slot.
    pub(crate) printed: Arc<[(u32, Printed)]>,
}

/// A program ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    /// Its parts. Map addresses in its instructions are numbers by now.
    pub(crate) parts: Parts,
    pub(crate) linkage: Linkage,
    pub(crate) find: Option<FindProgram>,
    /// There for every program that reads objects which may be gone.
    loads: Option<Arc<Loads>>,
}

/// Linux's number of `tail_call`, which no linkage has: engines do it themselves.
const TAIL_CALL: u32 = 12;

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
    /// Resolves maps, looks for helpers and for what cannot be interpreted. Slots that the verifier did not
    /// reach are not looked at.
    #[cfg(test)]
    pub(crate) fn new(parts: Parts, linkage: &Linkage) -> Result<Self, Error> {
        Self::with(parts, linkage, None)
    }

    /// The same with loads that may fault, for programs that have such.
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
            return Err(Error::Malformed { slot: 0, what: "the program is not made of functions" });
        }
        if parts.facts.len() != slots {
            return Err(Error::Malformed { slot: 0, what: "the program's facts are not its own" });
        }
        if parts.exception_callback.is_some_and(|function| function >= functions.len()) {
            return Err(Error::Malformed { slot: 0, what: "exceptions end in no function" });
        }
        for function in &functions {
            for slot in function.start..function.end {
                if check_fact(&parts, slot, loads.is_some())? {
                    resolve(&mut parts, linkage, function, slot)?;
                }
            }
        }
        let code = Self { parts, linkage: linkage.clone(), find: None, loads };
        code.check_depth()?;
        Ok(code)
    }

    /// The function that a slot belongs to.
    pub(crate) fn function(&self, slot: usize) -> &FunctionFacts {
        &self.parts.functions[self.function_index(slot)]
    }

    /// The index of that function.
    pub(crate) fn function_index(&self, slot: usize) -> usize {
        self.parts.functions.partition_point(|function| function.start as usize <= slot) - 1
    }

    /// The loads that may fault, where the instruction in that slot is one.
    #[inline]
    pub(crate) fn probe(&self, slot: usize) -> Option<&Loads> {
        self.parts.facts[slot].probe.then(|| match &self.loads {
            Some(loads) => &**loads,
            None => unreachable!("refused by Code::with"),
        })
    }

    /// The address of what holds of the values that the call in that slot prints.
    pub(crate) fn printed(&self, slot: usize) -> Option<u64> {
        let printed = &self.parts.printed;
        let at = printed.binary_search_by_key(&(slot as u32), |(slot, _)| *slot).ok()?;
        Some((&raw const printed[at].1).expose_provenance() as u64)
    }

    /// Whether that helper is a tail call.
    pub(crate) fn is_tail_call(&self, helper: u32) -> bool {
        is_tail_call(&self.linkage, helper)
    }

    /// What the context looks like, for programs that are given one.
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

/// Whether a function starts at the slot. The verifier has functions ascend.
pub(crate) fn starts_function(parts: &Parts, slot: i64) -> bool {
    parts.functions.binary_search_by_key(&slot, |function| i64::from(function.start)).is_ok()
}

fn is_tail_call(linkage: &Linkage, helper: u32) -> bool {
    linkage.inline_linux_helpers && helper == TAIL_CALL
}

/// Whether the slot is reached. Each fact is used here or where it says, or the program is refused: a fact that this
/// crate does not know must not compile.
fn check_fact(parts: &Parts, slot: u32, probes: bool) -> Result<bool, Error> {
    let Fact {
        reached,
        // Looked at by checking mode alone: what is inlined or laid out by them elsewhere is called and jumped to here.
        jump_target: _,
        loop_head: _,
        call: _,
        probe,
        foreign,
        throws,
    } = parts.facts[slot as usize];
    if throws && !matches!(parts.insns[slot as usize], Insn::Call { target: CallTarget::Kfunc { .. } }) {
        return Err(Error::Unsupported { slot, what: "an exception that is no call of a function by name" });
    }
    if foreign.is_some() {
        return Err(Error::Unsupported { slot, what: "an access to a field that the context lacks" });
    }
    if probe && !matches!(parts.insns[slot as usize], Insn::Load { .. }) {
        return Err(Error::Unsupported { slot, what: "an access that may fault and is no plain load" });
    }
    if probe && !probes {
        return Err(Error::NoProbes { slot });
    }
    Ok(reached)
}

/// Makes one reached instruction runnable.
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
        return malformed("control runs out of the function");
    }
    match insn {
        Insn::LoadImm64 { dst, value } => {
            if slot + 2 >= function.end || parts.insns[slot as usize + 1] != Insn::LoadImm64Tail {
                return malformed("the 64-bit immediate load is cut off");
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
                // Helpers are given the slot that it starts at.
                Imm64::Function(offset) => {
                    let target = target(offset);
                    if !starts_function(parts, target) {
                        return malformed("the address is that of no function");
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
                return malformed("the call leads to no function");
            }
        }
        Insn::Call { target: CallTarget::Kfunc { id, .. } }
            if linkage.function(id.cast_unsigned()).is_none() =>
        {
            return unsupported("a call of a kernel function");
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
