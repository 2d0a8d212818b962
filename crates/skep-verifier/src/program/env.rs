//! What a walk reads and never changes.

use crate::program::Subject;
use crate::program::assumed::MapView;
use crate::program::cfg::{Shape, next_slot};
use crate::program::config::Config;
use crate::program::fault::{Code, Fault, Step};
use crate::program::flow::{Flow, Live};
use skep_abi::ProgramType;
use skep_isa::{Insn, Reg};
use std::cell::OnceCell;

/// A program, what was found out about it before the walk, and the host's configuration.
pub(crate) struct Env<'a> {
    pub(crate) program: &'a Subject,
    pub(crate) config: &'a Config<'a>,
    pub(crate) shape: &'a Shape,
    /// What the future reads; empty in a program in which no paths meet.
    pub(crate) flow: &'a Flow,
    /// The same of such a program, computed on first use.
    straight: OnceCell<Flow>,
}

impl<'a> Env<'a> {
    pub(crate) fn new(
        program: &'a Subject,
        config: &'a Config<'a>,
        shape: &'a Shape,
        flow: &'a Flow,
    ) -> Self {
        Self { program, config, shape, flow, straight: OnceCell::new() }
    }

    pub(crate) fn insn(&self, slot: usize) -> Insn {
        self.program.source.insns[slot]
    }

    pub(crate) fn function_name(&self, function: usize) -> &str {
        self.program.source.functions.get(function).map_or("?", |function| &function.name)
    }

    pub(crate) fn program_type(&self) -> &'static ProgramType {
        self.program.source.program_type
    }

    /// What the program is attached to, where that is known.
    pub(crate) fn target(&self) -> Option<&'a str> {
        self.program.source.target.as_deref()
    }

    pub(crate) fn gpl_compatible(&self) -> bool {
        self.program.source.gpl_compatible
    }

    pub(crate) fn is_sleepable(&self) -> bool {
        self.program.source.sleepable
    }

    /// Whether `reg` is in the set that `of` picks from what is live after the instruction at `slot`.
    pub(crate) fn after(&self, slot: usize, of: impl Fn(&Live) -> u16, reg: Reg) -> bool {
        let behind = next_slot(&self.program.source.insns, slot);
        let flow = match self.flow.is_empty() {
            true => self.straight.get_or_init(|| Flow::of(self.program, self.shape, self.config)),
            false => self.flow,
        };
        of(flow.before(behind)) & 1 << reg.number() != 0
    }

    /// The map of that index in the object.
    pub(crate) fn outer_map(&self, index: u32) -> Step<MapView<'a>> {
        self.program.maps.get(index).ok_or_else(|| {
            Fault::new(Code::Structure, format!("there is no map of index {index} in the object"))
        })
    }
}
