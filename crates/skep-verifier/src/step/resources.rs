//! What a path holds and must give back: references, a lock, sections.
//!
//! A call that acquires makes a *reference*; the values that it returns carry its number. Giving it back ends
//! every value with that number, in all frames. What could be null is given back by finding out that it is:
//! then there never was anything to hold. At the program's end nothing may be held.
//!
//! ```text
//!   acquired -> r0 (id = reference = 7, maybe null) -> null:     nothing is held
//!                                                   -> not null: reference 7 is held -> released: 7 ends
//! ```
//!
//! A value owns a reference if its `id` or its object is that of the reference; others were only made from it.

use crate::Code;
use crate::domain::state::{Frame, State};
use crate::domain::value::{Kind, Needs, Opaque, Trust, Value};
use crate::explore::walk::Walker;
use crate::program::fault::{Fault, Step};
use crate::step::callback::RootKind;
use skep_abi::Callback;
use skep_isa::Reg;

/// The most references that may be held at once.
const MAX_HELD: usize = 128;

/// What a reference is to, which decides what gives it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// A record of a ring buffer.
    Record,
    /// A `struct bpf_dynptr` over one.
    Dynptr,
    /// An object of the host.
    Object,
    /// An open-coded iterator.
    Iterator,
}

impl Held {
    fn name(self) -> &'static str {
        match self {
            Self::Record => "the ring buffer's record",
            Self::Dynptr => "the dynptr",
            Self::Object => "the object",
            Self::Iterator => "the iterator",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Record => "submit or discard the record on every path where it is not null",
            Self::Dynptr => {
                "submit or discard the dynptr on every path, also where the reservation of its record failed"
            }
            Self::Iterator => "destroy the iterator on every path",
            Self::Object => "release the object on every path where it is not null",
        }
    }
}

/// A reference that must be released exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    /// Its number: the `reference` of the values that hold it.
    pub(crate) id: u32,
    /// The slot of the call that acquired it.
    pub(crate) slot: u32,
    /// What it is to.
    pub(crate) what: Held,
    /// The frame that holds it: that of the call, or of the caller it was returned to.
    pub(crate) frame: u8,
}

/// A lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    /// The map in whose value it lies.
    pub(crate) map: u32,
    /// The identity of the value.
    pub(crate) id: u32,
    /// The slot of the call that took it.
    pub(crate) slot: u32,
}

/// A part of a path in which not everything is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    /// Objects that are protected by RCU stay alive.
    Read,
    /// The CPU is not given to anybody else.
    NoPreempt,
    /// Nor does an interrupt take it.
    NoInterrupts,
}

impl Section {
    const ALL: [Self; 3] = [Self::Read, Self::NoPreempt, Self::NoInterrupts];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "the RCU read section",
            Self::NoPreempt => "the section without preemption",
            Self::NoInterrupts => "the section without interrupts",
        }
    }

    /// How many may be inside of each other.
    fn depth(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::NoPreempt | Self::NoInterrupts => 64,
        }
    }
}

/// How many sections of each kind a path is in.
pub(crate) type Depths = [u8; 3];

/// What a path holds.
#[derive(Clone, Default)]
pub(crate) struct Resources {
    pub(crate) references: Vec<Reference>,
    pub(crate) lock: Option<Lock>,
    /// How many sections of each kind the path is in.
    sections: Depths,
    /// Slot of the call that entered the last one.
    entered: u32,
}

impl Resources {
    /// Becomes a copy of `source`, reusing its own allocation.
    pub(crate) fn copy_from(&mut self, source: &Self) {
        self.references.clone_from(&source.references);
        self.lock = source.lock;
        self.sections = source.sections;
        self.entered = source.entered;
    }

    pub(crate) fn clear(&mut self) {
        self.references.clear();
        self.lock = None;
        self.sections = [0; 3];
    }

    /// Whether nothing is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.references.is_empty() && self.lock.is_none() && self.sections == [0; 3]
    }

    /// How many sections of each kind the path is in.
    pub(crate) fn depths(&self) -> Depths {
        self.sections
    }

    /// How many sections of that kind the path is in.
    pub(crate) fn depth(&self, section: Section) -> u32 {
        self.sections[section as usize].into()
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.references)
    }

    /// Whether `new` holds the same, with other numbers: `pair` says whether two numbers can stand for each
    /// other.
    pub(crate) fn covers(&self, new: &Self, mut pair: impl FnMut(u32, u32) -> bool) -> bool {
        let alike = |(old, new): (&Reference, &Reference)| {
            old.slot == new.slot && old.what == new.what && old.frame == new.frame && pair(old.id, new.id)
        };
        if self.sections != new.sections
            || self.references.len() != new.references.len()
            || !self.references.iter().zip(&new.references).all(alike)
        {
            return false;
        }
        match (&self.lock, &new.lock) {
            (None, None) => true,
            (Some(old), Some(new)) => {
                old.map == new.map && (old.id == 0) == (new.id == 0) && (old.id == 0 || pair(old.id, new.id))
            }
            _ => false,
        }
    }

    /// What was acquired in a frame that ends belongs to its caller.
    pub(crate) fn leave_frame(&mut self, caller: u8) {
        for reference in &mut self.references {
            reference.frame = reference.frame.min(caller);
        }
    }

    /// Forgets a reference of which it turned out that it never was: the pointer is null.
    pub(crate) fn was_null(&mut self, id: u32) {
        self.references.retain(|reference| reference.id != id);
    }

    fn get(&self, id: u32) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.id == id)
    }
}

impl Walker<'_> {
    /// A new reference, made by the call that is being walked.
    pub(crate) fn acquire(&mut self, state: &mut State, what: Held) -> Step<u32> {
        if state.resources.references.len() >= MAX_HELD {
            let text = format!("more than {MAX_HELD} references are held at once");
            return Err(Fault::new(Code::Limit, text));
        }
        let id = self.new_id();
        let reference = Reference { id, slot: self.slot as u32, what, frame: state.top_index() };
        state.resources.references.push(reference);
        Ok(id)
    }

    /// The reference that a call which takes `what` back is given by `value`; `who` is the call.
    pub(crate) fn releasable(
        &self,
        state: &State,
        who: &str,
        reg: Reg,
        value: &Value,
        what: Held,
    ) -> Step<u32> {
        let expected = |found: String| {
            let text = format!("{who} expects {} that this path holds in {reg}, {found}", what.name());
            Fault::new(Code::Resource, text)
        };
        let Some(reference) = state.resources.get(value.reference) else {
            return Err(expected(format!("found {value}, which holds no reference")));
        };
        if reference.what != what {
            let text = format!(
                "found {value}, made from {} of the call in {}",
                reference.what.name(),
                reference.slot
            );
            return Err(expected(text));
        }
        if value.offset != 0 || !value.is_fixed() {
            return Err(expected(format!("found {value}, which does not point to its start")));
        }
        Ok(value.reference)
    }

    /// Gives a reference back: every value with its number ends.
    ///
    /// A callback gives back what it acquired itself: it may be called again, or not at all.
    pub(crate) fn release(&mut self, state: &mut State, who: &str, id: u32) -> Step<()> {
        self.charge(state);
        let called_back = state.frames().iter().rposition(|frame| frame.callback.is_some());
        if let (Some(called_back), Some(reference)) = (called_back, state.resources.get(id))
            && usize::from(reference.frame) < called_back
        {
            let text = format!(
                "{who} gives back {} acquired by the call in {}, outside of the callback that it is called in",
                reference.what.name(),
                reference.slot
            );
            return Err(
                Fault::new(Code::Resource, text).suggest("give it back behind the call that calls back")
            );
        }
        state.resources.was_null(id);
        self.end_values(state, |value| value.reference == id);
        Ok(())
    }

    /// Nothing may be held where the program goes away; `place` says where that is.
    #[inline]
    pub(crate) fn check_nothing_held(&self, state: &State, place: &str) -> Step<()> {
        if state.resources.is_empty() { Ok(()) } else { self.still_held(state, (0, [0; 3]), place) }
    }

    /// At the end of a callback, nothing that it acquired may be held, and it is in the sections that it was called in.
    pub(crate) fn check_callback_end(&self, state: &State) -> Step<()> {
        let (resources, before) = (&state.resources, state.top().sections);
        let left = Section::ALL
            .into_iter()
            .find(|section| resources.depth(*section) < u32::from(before[*section as usize]));
        if let Some(section) = left {
            let text =
                format!("the callback has left {} that it was called in where it returns", section.name());
            return Err(Fault::new(Code::Resource, text).suggest("leave the section behind the call"));
        }
        if resources.is_empty() {
            return Ok(());
        }
        self.still_held(state, (state.top_index(), before), "where the callback returns")
    }

    #[cold]
    fn still_held(&self, state: &State, (frame, before): (u8, Depths), place: &str) -> Step<()> {
        let resources = &state.resources;
        if let Some(lock) = resources.lock {
            let text = format!("the lock that was taken by the call in {} is still held {place}", lock.slot);
            return Err(
                Fault::new(Code::Resource, text).suggest("call bpf_spin_unlock on every path to here")
            );
        }
        for section in Section::ALL {
            if resources.depth(section) > u32::from(before[section as usize]) {
                let text = format!(
                    "{} entered by the call in {} is not left {place}",
                    section.name(),
                    resources.entered
                );
                return Err(
                    Fault::new(Code::Resource, text).suggest("leave the section on every path to here")
                );
            }
        }
        match resources.references.iter().find(|reference| reference.frame >= frame) {
            None => Ok(()),
            Some(reference) => {
                let text = format!(
                    "{} acquired by the call in {} is still held {place}",
                    reference.what.name(),
                    reference.slot
                );
                Err(Fault::new(Code::Resource, text).suggest(reference.what.advice()))
            }
        }
    }

    /// Enters a section.
    pub(crate) fn enter_section(&self, state: &mut State, section: Section) -> Step<()> {
        let resources = &mut state.resources;
        let depth = &mut resources.sections[section as usize];
        if *depth >= section.depth() {
            let text = format!(
                "{} is entered, but the path is in {} of them since the call in {}",
                section.name(),
                *depth,
                resources.entered
            );
            return Err(Fault::new(Code::Resource, text).suggest("leave the section first"));
        }
        *depth += 1;
        resources.entered = self.slot as u32;
        Ok(())
    }

    /// Leaves a section. What only a read section kept alive can be looked at, but not relied on.
    pub(crate) fn leave_section(&mut self, state: &mut State, section: Section) -> Step<()> {
        let depth = &mut state.resources.sections[section as usize];
        if *depth == 0 {
            let text = format!("{} is left, but this path is not in one", section.name());
            return Err(Fault::new(Code::Resource, text).suggest("enter the section first"));
        }
        *depth -= 1;
        if *depth == 0 && section == Section::Read {
            self.charge(state);
            state.change_values(
                |value| {
                    matches!(
                        value.kind,
                        Kind::Object { trust: Trust::ReadSection, .. }
                            | Kind::Opaque { of: Opaque::Iterator { needs: Needs::ReadSection, .. } }
                    )
                },
                |value| match &mut value.kind {
                    Kind::Object { trust, maybe_null, .. } => {
                        // A probe load gives 0 for null as well.
                        (*trust, *maybe_null) = (Trust::Untrusted, false);
                    }
                    Kind::Opaque { of: Opaque::Iterator { needs, .. } } => *needs = Needs::LeftSection,
                    _ => {}
                },
            );
        }
        Ok(())
    }

    /// A call that may sleep is for programs that may, outside of everything that must be left soon.
    pub(crate) fn check_may_sleep(&self, state: &State, who: &str) -> Step<()> {
        if !self.is_sleepable() {
            let text = format!("{who} may sleep, but the program may not");
            return Err(Fault::new(Code::Helper, text)
                .suggest("make the program sleepable, with `.s` in its section's name"));
        }
        // The host holds something while it calls back.
        let timer = matches!(self.root_kind(), RootKind::Timer { .. });
        let held = |frame: &Frame| matches!(frame.callback, Some(Callback::ForEach | Callback::FindArea));
        if timer || state.frames().iter().any(held) {
            let text = format!("{who} may sleep, but is called in a callback in which nothing may");
            return Err(Fault::new(Code::Resource, text));
        }
        if let Some(section) = Section::ALL.into_iter().find(|section| state.resources.depth(*section) > 0) {
            let text = format!(
                "{who} may sleep, but is called in {} entered by the call in {}",
                section.name(),
                state.resources.entered
            );
            return Err(Fault::new(Code::Resource, text).suggest("leave the section first"));
        }
        Ok(())
    }

    /// While a lock is held nothing else is called; `what` is the call.
    #[inline]
    pub(crate) fn check_no_lock(&self, state: &State, what: &str) -> Step<()> {
        match state.resources.lock {
            None => Ok(()),
            Some(lock) => {
                let text = format!(
                    "{what} is called while the lock that was taken by the call in {} is held",
                    lock.slot
                );
                Err(Fault::new(Code::Resource, text).suggest("call bpf_spin_unlock first"))
            }
        }
    }
}
