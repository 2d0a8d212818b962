//! What the walk records for compilers: which slots and branches are reached, how context accesses are to be rewritten,
//! what is constant at calls, how much stack each function uses, and whether it must be zeroed.
//!
//! Speculation may have to take records back: a [`Mark`] and the journal of changes since then roll them back.

use crate::domain::ordered_set::OrderedSet;
use crate::program::cfg::{Cfg, target};
use crate::program::roots::{Root, RootKind, first_roots};
use crate::program::violation::{Checked, Code, Violation};
use crate::program::{CallFact, ElementUse, Fact, FunctionFacts};
use skep_abi::{ContextField, Function, Printed};
use skep_isa::{CallTarget, Insn, Size};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The records so far.
pub(crate) struct Record {
    /// By slot: bits of [`seen`].
    slots: Vec<u8>,
    /// By slot; empty until the first access.
    places: Vec<Place>,
    /// By slot; empty until the first call.
    calls: Vec<Calls>,
    /// By function: the deepest byte below `r10` that was touched.
    deepest: Vec<u32>,
    /// By function: whether bytes of its stack are read that may not have been written.
    unwritten: Vec<bool>,
    /// By slot of a call that prints: what is proved about the values.
    printed: BTreeMap<u32, Printed>,
    /// The types of the objects that some path allocates, and whether per CPU.
    allocated: BTreeSet<(u32, bool)>,
    /// Slots of calls to which some path passes a socket that is not one of a structure `bpf_sock` or `bpf_tcp_sock`.
    foreign_sockets: BTreeSet<u32>,
    /// What is used of an element that an iterator shows.
    element: ElementUse,
    /// The end of what is read of a context that is plain bytes.
    context_bytes: u32,
    /// Where walks begin: the program itself, and what the host calls by itself.
    roots: OrderedSet<Root>,
    /// Which functions helpers call back, by the slot of the call.
    calls_back: OrderedSet<(u32, u32)>,
    /// The old value for each change since the first open speculation.
    journal: Option<Vec<Before>>,
}

/// A point to roll back to.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    changes: usize,
    roots: usize,
    calls_back: usize,
}

/// An old value.
#[derive(Clone, Copy)]
enum Before {
    Bits(u32, u8),
    Place(u32, Place),
    Call(u32, Calls),
}

mod seen {
    /// Some path reaches it.
    pub(super) const REACHED: u8 = 1;
    /// A conditional jump there is taken on some path.
    pub(super) const TAKEN: u8 = 2;
    /// A conditional jump there is not taken on some path.
    pub(super) const NOT_TAKEN: u8 = 4;
    /// The call there ends the program.
    pub(super) const THROWS: u8 = 8;
    /// The load there finds in the stack what the path knows to be there.
    pub(super) const RELOADS: u8 = 16;
}

/// What kind of memory an instruction accesses, the same on every path if it is to be rewritten.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Place {
    #[default]
    Unseen,
    /// Memory at the address that the instruction names.
    Memory,
    /// An object of the host at an address that may be invalid.
    Probe,
    /// The program's arena, in which addresses are counted from its start.
    Arena,
    /// A field of the context: the access becomes one of this size at this offset from the same register.
    Field { size: Size, offset: i16 },
    /// A field of the context that skep's own contexts lack: no access could be put in its place.
    Foreign { field: &'static ContextField },
}

/// Whether a value is the same on every path.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Always {
    #[default]
    Unseen,
    This(u32),
    Varies,
}

/// What calls at one slot had in common.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Calls {
    map: Always,
    key: Always,
    /// Whether the key of some call may be out of range for its array.
    outside: bool,
}

impl Always {
    fn see(&mut self, value: Option<u32>) {
        *self = match (*self, value) {
            (Self::Unseen, Some(value)) => Self::This(value),
            (Self::This(before), Some(value)) if before == value => return,
            _ => Self::Varies,
        };
    }

    fn value(self) -> Option<u32> {
        if let Self::This(value) = self { Some(value) } else { None }
    }
}

impl Record {
    pub(crate) fn new(slots: usize, cfg: &Cfg) -> Self {
        let functions = cfg.functions.len();
        Self {
            roots: first_roots(cfg),
            calls_back: OrderedSet::default(),
            slots: vec![0; slots],
            places: Vec::new(),
            calls: Vec::new(),
            deepest: vec![0; functions],
            unwritten: vec![false; functions],
            printed: BTreeMap::new(),
            allocated: BTreeSet::new(),
            foreign_sockets: BTreeSet::new(),
            element: ElementUse::default(),
            context_bytes: 0,
            journal: None,
        }
    }

    pub(crate) fn reached(&mut self, slot: usize) {
        if self.slots[slot] & seen::REACHED == 0 {
            self.see(slot, seen::REACHED);
        }
    }

    fn see(&mut self, slot: usize, bit: u8) {
        if let Some(journal) = &mut self.journal {
            journal.push(Before::Bits(slot as u32, self.slots[slot]));
        }
        self.slots[slot] |= bit;
    }

    /// Journals all changes from here on; returns the point to roll back to.
    pub(crate) fn checkpoint(&mut self) -> Mark {
        Mark {
            changes: self.journal.get_or_insert_default().len(),
            roots: self.roots.items().len(),
            calls_back: self.calls_back.items().len(),
        }
    }

    pub(crate) fn drop_journal(&mut self) {
        self.journal = None;
    }

    /// Rolls back the changes since `mark`. Stack depths, zeroed stacks, printed values and the use of elements stay:
    /// more stack, more use and less known values are sound.
    pub(crate) fn roll_back(&mut self, mark: Mark) {
        self.roots.truncate(mark.roots);
        self.calls_back.truncate(mark.calls_back);
        let Some(journal) = &mut self.journal else { return };
        for before in journal.drain(mark.changes..).rev() {
            match before {
                Before::Bits(slot, bits) => self.slots[slot as usize] = bits,
                Before::Place(slot, place) => self.places[slot as usize] = place,
                Before::Call(slot, call) => self.calls[slot as usize] = call,
            }
        }
    }

    /// Adds a function that the host calls later, to be walked by itself.
    pub(crate) fn add_root(&mut self, root: Root) {
        self.roots.add(root);
    }

    /// Where walks begin, the program itself first.
    pub(crate) fn roots(&self) -> &[Root] {
        self.roots.items()
    }

    /// A helper that is called there calls that function.
    pub(crate) fn call_back(&mut self, slot: usize, function: u32) {
        self.calls_back.add((slot as u32, function));
    }

    /// Which functions helpers call back, by the slot of the call.
    pub(crate) fn calls_back(&self) -> &[(u32, u32)] {
        self.calls_back.items()
    }

    /// Some path ends the program there by an exception.
    pub(crate) fn throws(&mut self, slot: usize) {
        if self.slots[slot] & seen::THROWS == 0 {
            self.see(slot, seen::THROWS);
        }
    }

    /// Some path loads there from the stack what it knows to be there.
    pub(crate) fn reloads(&mut self, slot: usize) {
        if self.slots[slot] & seen::RELOADS == 0 {
            self.see(slot, seen::RELOADS);
        }
    }

    /// Some path takes this way of a conditional jump.
    pub(crate) fn branch(&mut self, slot: usize, taken: bool) {
        let bit = if taken { seen::TAKEN } else { seen::NOT_TAKEN };
        if self.slots[slot] & bit == 0 {
            self.see(slot, bit);
        }
    }

    /// Some path accesses plain memory there: the fast path of [`Self::place`].
    #[inline]
    pub(crate) fn memory(&mut self, slot: usize) -> Checked<()> {
        match self.places.get_mut(slot) {
            Some(before) if *before == Place::Memory => Ok(()),
            Some(before) if *before == Place::Unseen && self.journal.is_none() => {
                *before = Place::Memory;
                Ok(())
            }
            _ => self.place(slot, Place::Memory),
        }
    }

    /// Some path accesses such a place there.
    pub(crate) fn place(&mut self, slot: usize, place: Place) -> Checked<()> {
        if self.places.is_empty() {
            self.places.resize(self.slots.len(), Place::Unseen);
        }
        let before = &mut self.places[slot];
        if *before == Place::Unseen {
            if let Some(journal) = &mut self.journal {
                journal.push(Before::Place(slot as u32, *before));
            }
            *before = place;
        } else if *before != place {
            let text = match (*before, place) {
                (Place::Arena, _) | (_, Place::Arena) => {
                    "the same instruction accesses an arena on one path and other memory on another, which takes \
                     different code"
                }
                _ => {
                    "the same instruction accesses different context fields, or the context on one path and \
                     other memory on another, so that it cannot be rewritten"
                }
            };
            return Err(Violation::new(Code::Context, text)
                .suggest(
                    "read the field before the paths meet, or keep the compiler from merging the accesses",
                )
                .in_linux("same insn cannot be used with different pointers"));
        }
        Ok(())
    }

    /// Some path calls a helper with that map and key; `in_bounds` says that the key is an index of the array.
    pub(crate) fn call(&mut self, slot: usize, map: Option<u32>, key: Option<u32>, in_bounds: bool) {
        if self.calls.is_empty() {
            self.calls.resize(self.slots.len(), Default::default());
        }
        let record = &mut self.calls[slot];
        let before = *record;
        record.map.see(map);
        record.key.see(key);
        record.outside |= !in_bounds;
        if let Some(journal) = &mut self.journal
            && before != *record
        {
            journal.push(Before::Call(slot as u32, before));
        }
    }

    /// Some path prints such values there.
    pub(crate) fn printed(&mut self, slot: usize, printed: Printed) {
        self.printed.entry(slot as u32).and_modify(|before| *before = before.or(&printed)).or_insert(printed);
    }

    /// What is proved about the values of calls that print, by slot.
    pub(crate) fn take_printed(&mut self) -> Arc<[(u32, Printed)]> {
        match std::mem::take(&mut self.printed) {
            // That takes no memory.
            none if none.is_empty() => Arc::default(),
            printed => printed.into_iter().collect(),
        }
    }

    /// Some path allocates objects of that type.
    pub(crate) fn allocated(&mut self, ty: u32, per_cpu: bool) {
        self.allocated.insert((ty, per_cpu));
    }

    /// The types of the objects that some path allocates.
    pub(crate) fn take_allocated(&mut self) -> Box<[(u32, bool)]> {
        std::mem::take(&mut self.allocated).into_iter().collect()
    }

    /// Some path passes a socket of another kind to the call at that slot.
    pub(crate) fn foreign_socket(&mut self, slot: usize) {
        self.foreign_sockets.insert(slot as u32);
    }

    /// The slots of such calls.
    pub(crate) fn take_foreign_sockets(&mut self) -> Box<[u32]> {
        std::mem::take(&mut self.foreign_sockets).into_iter().collect()
    }

    /// Some path uses that many bytes of the key (which may only be read) or of the value that an iterator shows.
    pub(crate) fn element(&mut self, key: bool, bytes: u32, writes: bool) {
        let used = if key { &mut self.element.key } else { &mut self.element.value };
        *used = (*used).max(bytes);
        self.element.writes |= writes;
    }

    /// Some path uses a context of plain bytes up to there.
    pub(crate) fn context_bytes(&mut self, end: u32) {
        self.context_bytes = self.context_bytes.max(end);
    }

    /// The end of what all paths use.
    pub(crate) fn context_use(&self) -> u32 {
        self.context_bytes
    }

    /// What all paths use of it.
    pub(crate) fn element_use(&self) -> ElementUse {
        self.element
    }

    /// Some path touches the byte at `-bytes` from `r10` in a frame of that function.
    pub(crate) fn stack(&mut self, function: u32, bytes: u32) {
        let deepest = &mut self.deepest[function as usize];
        *deepest = (*deepest).max(bytes);
    }

    /// Some path reads stack bytes of that function that may not have been written.
    pub(crate) fn unwritten(&mut self, function: u32) {
        self.unwritten[function as usize] = true;
    }

    /// How many bytes of stack each function uses.
    pub(crate) fn stacks(&self) -> &[u32] {
        &self.deepest
    }

    /// Whether some path gets there.
    pub(crate) fn is_reached(&self, slot: usize) -> bool {
        self.slots[slot] & seen::REACHED != 0
    }

    /// Rewrites the instructions and returns the facts of the rewritten program.
    ///
    /// A conditional jump that only ever goes one way becomes unconditional, so that no reached instruction leads to an
    /// unreached one.
    pub(crate) fn finish(
        self,
        mut insns: Vec<Insn>,
        functions: Vec<Function>,
        cfg: &Cfg,
    ) -> (Vec<Insn>, Vec<Fact>, Vec<FunctionFacts>) {
        let mut facts = vec![Fact::default(); insns.len()];
        for (slot, record) in self.slots.iter().copied().enumerate() {
            if record & seen::REACHED == 0 {
                continue;
            }
            facts[slot].reached = true;
            facts[slot].throws = record & seen::THROWS != 0;
            facts[slot].reload = record & seen::RELOADS != 0;
            match insns[slot] {
                Insn::Alu { .. } => continue, // takes no fact
                Insn::LoadImm64 { .. } => facts[slot + 1].reached = true,
                _ => {}
            }
            match self.places.get(slot) {
                Some(&Place::Field { size, offset }) => rewrite_access(&mut insns[slot], size, offset),
                Some(Place::Probe) => facts[slot].probe = true,
                Some(Place::Arena) => facts[slot].arena = true,
                Some(&Place::Foreign { field }) => facts[slot].foreign = Some(field),
                _ => {}
            }
            if let Insn::JumpIf { offset, .. } = insns[slot] {
                match (record & seen::TAKEN != 0, record & seen::NOT_TAKEN != 0) {
                    (true, true) => {}
                    (true, false) => insns[slot] = Insn::Jump { offset: offset.into(), long: false },
                    (false, true) => insns[slot] = Insn::Jump { offset: 0, long: false },
                    // No number satisfies what is known here: no run gets here.
                    (false, false) => insns[slot] = Insn::Exit,
                }
            }
            if matches!(insns[slot], Insn::Call { .. })
                && let Some(calls) = self.calls.get(slot)
                && calls.map != Always::Unseen
            {
                let map = calls.map.value();
                let in_bounds = map.is_some() && !calls.outside;
                facts[slot].call = Some(CallFact { map, key: calls.key.value(), in_bounds });
            }
            if let Some(to) = insns[slot].jump_offset().and_then(|offset| target(slot, offset)) {
                facts[to].jump_target = true;
                facts[to].loop_head |= to <= slot;
            }
        }
        let may_throw = may_throw(&insns, &facts, cfg);
        let in_callback = self.in_callback(&insns, cfg);
        let functions = functions
            .into_iter()
            .zip(&cfg.functions)
            .zip(self.deepest.iter().zip(&self.unwritten))
            .zip(may_throw.into_iter().zip(in_callback))
            .zip(&cfg.globals)
            .map(|((((function, range), (deepest, unwritten)), (may_throw, in_callback)), global)| {
                FunctionFacts {
                    name: function.name,
                    start: range.start as u32,
                    end: range.end as u32,
                    stack_bytes: deepest.next_multiple_of(8),
                    zeroed: *unwritten,
                    may_throw,
                    prototype: function.prototype,
                    global: global.is_some(),
                    moves_packet: global.as_ref().is_some_and(|global| global.effects.moves_packet),
                    in_callback,
                }
            })
            .collect();
        (insns, facts, functions)
    }
}

impl Record {
    /// By function: whether a helper calls it, or what calls it.
    fn in_callback(&self, insns: &[Insn], cfg: &Cfg) -> Vec<bool> {
        let mut found = vec![false; cfg.functions.len()];
        let by_helpers = self.calls_back().iter().map(|(_, function)| *function);
        let later = |root: &&Root| matches!(root.of, RootKind::Timer { .. } | RootKind::Work { .. });
        for function in by_helpers.chain(self.roots().iter().filter(later).map(|root| root.function)) {
            found[function as usize] = true;
        }
        // Callers come before what they call.
        for &function in cfg.callees_first.iter().rev() {
            if !found[function] {
                continue;
            }
            for slot in cfg.functions[function].clone().filter(|slot| self.is_reached(*slot)) {
                if let Insn::Call { target: CallTarget::Local(offset) } = insns[slot]
                    && let Some(callee) = target(slot, offset).and_then(|to| cfg.function_at(to))
                {
                    found[callee] = true;
                }
            }
        }
        found
    }
}

/// By function: whether it, or what it calls, throws on some path.
fn may_throw(insns: &[Insn], facts: &[Fact], cfg: &Cfg) -> Vec<bool> {
    let mut may_throw = vec![false; cfg.functions.len()];
    for &function in &cfg.callees_first {
        let mut slots = cfg.functions[function].clone().filter(|&slot| facts[slot].reached);
        may_throw[function] = slots.any(|slot| match insns[slot] {
            Insn::Call { target: CallTarget::Local(offset) } => {
                let callee = target(slot, offset).and_then(|to| cfg.function_at(to));
                callee.is_some_and(|callee| may_throw[callee])
            }
            _ => facts[slot].throws,
        });
    }
    may_throw
}

fn rewrite_access(insn: &mut Insn, native: Size, to: i16) {
    match insn {
        Insn::Load { size, offset, .. } | Insn::Store { size, offset, .. } => {
            *size = native;
            *offset = to;
        }
        _ => {}
    }
}
