//! Rules for the resources of a path: what acquires and releases them, and where none may be held.

use crate::domain::resources::{Depths, Guard, Reference, Referent, Section};
use crate::domain::state::{Frame, State};
use crate::domain::value::{Hold, Kind, Needs, Opaque, Trust, Value};
use crate::domain::words;
use crate::program::roots::RootKind;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_abi::Callback;
use skep_isa::Reg;

/// Linux's words for a call under a lock.
pub(crate) const CALL_UNDER_LOCK: &str = "function calls are not allowed while holding a lock";

/// The most references that may be held at once.
const MAX_HELD: usize = 128;

impl Transfer<'_> {
    /// A new reference, made by the call that is being walked.
    pub(crate) fn acquire(&mut self, state: &mut State, what: Referent) -> Checked<u32> {
        if state.resources.references.len() >= MAX_HELD {
            let text = format!("more than {MAX_HELD} references are held at once");
            return Err(Violation::new(Code::Limit, text));
        }
        let id = self.new_id();
        let reference = Reference { id, slot: self.slot as u32, what, frame: state.top_index() };
        state.resources.references.push(reference);
        Ok(id)
    }

    /// The reference of `value`, which the call `who` releases; it must refer to a `what`.
    pub(crate) fn releasable(
        &self,
        state: &State,
        who: &str,
        reg: Reg,
        value: &Value,
        what: Referent,
    ) -> Checked<u32> {
        let expected = |found: String| {
            let text = format!("{who} expects {} that this path holds in {reg}, {found}", what.name());
            Violation::new(Code::Resource, text)
        };
        let Some(reference) = state.resources.get(value.reference) else {
            let words = match value.is_maybe_null() || value.is_scalar() {
                true => words::argument(reg, value, &["sock_common", "sock", "tcp_sock", "xdp_sock", "ptr_"]),
                false => format!("R{} must be referenced when passed to release function", reg.number()),
            };
            return Err(expected(format!("found {value}, which holds no reference")).in_linux(words));
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
            let words = format!(
                "R{} must have zero offset when passed to release func or trusted arg to kfunc",
                reg.number()
            );
            return Err(expected(format!("found {value}, which does not point to its start")).in_linux(words));
        }
        Ok(value.reference)
    }

    /// Releases a reference, which invalidates every value with its number.
    ///
    /// A callback may release only what it acquired: it may be called again, or not at all.
    pub(crate) fn release(&mut self, state: &mut State, who: &str, id: u32) -> Checked<()> {
        self.give_up(state, who, id)?;
        self.end_values(state, |value| value.reference == id);
        Ok(())
    }

    /// The same, but what becomes of the values is left to the caller.
    pub(crate) fn give_up(&mut self, state: &mut State, who: &str, id: u32) -> Checked<()> {
        self.forks.charge(state);
        let called_back = state.frames().iter().rposition(|frame| frame.callback.is_some());
        if let (Some(called_back), Some(reference)) = (called_back, state.resources.get(id))
            && usize::from(reference.frame) < called_back
        {
            let text = format!(
                "{who} may not release {} acquired by the call in {}, outside of this callback",
                reference.what.name(),
                reference.slot
            );
            return Err(Violation::new(Code::Resource, text)
                .suggest("release it after the call that runs the callback"));
        }
        state.resources.was_null(id);
        Ok(())
    }

    /// Checks that nothing is held where the program ends; `place` says where that is.
    #[inline]
    pub(crate) fn check_nothing_held(&self, state: &State, place: &str) -> Checked<()> {
        if state.resources.is_empty() { Ok(()) } else { self.still_held(state, (0, [0; 3]), place) }
    }

    /// Checks that a callback holds nothing that it acquired, and is in the sections that it was called in.
    pub(crate) fn check_callback_end(&self, state: &State) -> Checked<()> {
        let (resources, before) = (&state.resources, state.top().sections);
        let left = Section::ALL
            .into_iter()
            .find(|section| resources.depth(*section) < u32::from(before[*section as usize]));
        if let Some(section) = left {
            let text = format!("the callback returns after leaving {} that it was called in", section.name());
            return Err(Violation::new(Code::Resource, text).suggest("leave the section after the call"));
        }
        if resources.is_empty() {
            return Ok(());
        }
        self.still_held(state, (state.top_index(), before), "where the callback returns")
    }

    #[cold]
    fn still_held(&self, state: &State, (frame, before): (u8, Depths), place: &str) -> Checked<()> {
        let resources = &state.resources;
        // A function that compares the nodes of a tree runs under its caller's lock.
        let lent = state.top().callback == Some(Callback::Less);
        if let Some(lock) = resources.lock.filter(|_| !lent) {
            let text = format!("the lock taken by the call in {} is still held {place}", lock.slot);
            return Err(Violation::new(Code::Resource, text)
                .suggest("call bpf_spin_unlock on every path to here")
                .in_linux("bpf_spin_unlock is missing"));
        }
        for section in Section::ALL {
            if resources.depth(section) > u32::from(before[section as usize]) {
                let text = format!(
                    "{} entered by the call in {} is not left {place}",
                    section.name(),
                    resources.entered
                );
                let missing = resources.depth(section) - u32::from(before[section as usize]);
                let words = match (section, missing) {
                    (Section::NoPreempt, 1) => "1 bpf_preempt_enable is missing".to_owned(),
                    (Section::NoPreempt, missing) => format!("{missing} bpf_preempt_enable(s) are missing"),
                    _ => "bpf_rcu_read_unlock is missing".to_owned(),
                };
                return Err(Violation::new(Code::Resource, text)
                    .suggest("leave the section on every path to here")
                    .in_linux(words));
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
                let words = format!("Unreleased reference id={} alloc_insn={}", reference.id, reference.slot);
                Err(Violation::new(Code::Resource, text).suggest(reference.what.advice()).in_linux(words))
            }
        }
    }

    /// Enters a section.
    pub(crate) fn enter_section(&self, state: &mut State, section: Section) -> Checked<()> {
        let resources = &mut state.resources;
        let depth = &mut resources.sections[section as usize];
        if *depth >= section.depth() {
            let text = format!(
                "{} is entered, but this path is already in {} of them, since the call in {}",
                section.name(),
                *depth,
                resources.entered
            );
            return Err(Violation::new(Code::Resource, text).suggest("leave the section first"));
        }
        *depth += 1;
        resources.entered = self.slot as u32;
        Ok(())
    }

    /// Leaves a section. Objects that only the read section kept alive become untrusted.
    pub(crate) fn leave_section(&mut self, state: &mut State, section: Section) -> Checked<()> {
        let depth = &mut state.resources.sections[section as usize];
        if *depth == 0 {
            let text = format!("{} is left, but this path is not in one", section.name());
            let words = match section {
                Section::Read => "unmatched rcu read unlock (kernel function bpf_rcu_read_unlock)",
                _ => "unmatched attempt to enable preemption (kernel function bpf_preempt_enable)",
            };
            return Err(Violation::new(Code::Resource, text)
                .in_linux(words)
                .suggest("enter the section first")
                .outside_of(Guard::Section(section)));
        }
        *depth -= 1;
        if *depth == 0 && section == Section::Read {
            self.forks.charge(state);
            state.change_values(
                |value| {
                    matches!(
                        value.kind,
                        Kind::Object { trust: Trust::ReadSection, .. }
                            | Kind::Own { held: Hold::Found | Hold::FoundNode, .. }
                            | Kind::Opaque { of: Opaque::Iterator { needs: Needs::ReadSection, .. } }
                    )
                },
                |value| match &mut value.kind {
                    Kind::Object { trust, maybe_null, .. } => {
                        // A probe load gives 0 for null as well.
                        (*trust, *maybe_null) = (Trust::Untrusted, false);
                    }
                    Kind::Own { held, maybe_null, .. } => (*held, *maybe_null) = (Hold::Untrusted, false),
                    Kind::Opaque { of: Opaque::Iterator { needs, .. } } => *needs = Needs::LeftSection,
                    _ => {}
                },
            );
        }
        Ok(())
    }

    /// Whether what is walked may sleep: the program, or a function that a work queue calls.
    pub(crate) fn sleeps(&self) -> bool {
        self.env.is_sleepable() || matches!(self.root, RootKind::Work { .. })
    }

    /// Checks that a call may sleep: in a sleepable program, outside of all sections and callbacks that forbid it.
    pub(crate) fn check_may_sleep(&self, state: &State, who: &str) -> Checked<()> {
        if !self.sleeps() {
            let text = format!("{who} may sleep, but the program may not");
            return Err(Violation::new(Code::Helper, text)
                .suggest("make the program sleepable: add `.s` to its section name"));
        }
        // The host holds something while it calls back.
        let timer = matches!(self.root, RootKind::Timer { .. });
        let held = |frame: &Frame| matches!(frame.callback, Some(Callback::ForEach | Callback::FindArea));
        if timer || state.frames().iter().any(held) {
            let text = format!("{who} may sleep, but is called in a callback that may not sleep");
            return Err(Violation::new(Code::Resource, text));
        }
        if let Some(section) = Section::ALL.into_iter().find(|section| state.resources.depth(*section) > 0) {
            let text = format!(
                "{who} may sleep, but is called in {} entered by the call in {}",
                section.name(),
                state.resources.entered
            );
            return Err(Violation::new(Code::Resource, text).suggest("leave the section first"));
        }
        Ok(())
    }

    /// Checks that no lock is held; `what` is the call.
    #[inline]
    pub(crate) fn check_no_lock(&self, state: &State, what: &str) -> Checked<()> {
        match state.resources.lock {
            None => Ok(()),
            Some(lock) => {
                let text =
                    format!("{what} is called while the lock taken by the call in {} is held", lock.slot);
                Err(Violation::new(Code::Resource, text)
                    .suggest("call bpf_spin_unlock first")
                    .in_linux(CALL_UNDER_LOCK))
            }
        }
    }
}
