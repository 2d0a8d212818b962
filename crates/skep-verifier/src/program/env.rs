//! What a walk reads and never changes.

use crate::program::Subject;
use crate::program::assumed::MapView;
use crate::program::cfg::{Cfg, next_slot};
use crate::program::config::Config;
use crate::program::liveness::{Live, Liveness};
use crate::program::violation::{Checked, Code, Violation};
use skep_abi::{Context, FieldKind, ProgramType};
use skep_isa::{Insn, Reg};
use std::cell::OnceCell;

/// A program, the results of its static analyses, and the host's configuration.
pub(crate) struct Env<'a> {
    pub(crate) program: &'a Subject,
    pub(crate) config: &'a Config<'a>,
    pub(crate) cfg: &'a Cfg,
    /// Liveness; empty in a program without joins.
    pub(crate) liveness: &'a Liveness,
    /// The liveness of a program without joins, computed on first use.
    straight: OnceCell<Liveness>,
}

impl<'a> Env<'a> {
    pub(crate) fn new(
        program: &'a Subject,
        config: &'a Config<'a>,
        cfg: &'a Cfg,
        liveness: &'a Liveness,
    ) -> Self {
        Self { program, config, cfg, liveness, straight: OnceCell::new() }
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

    /// The name of the field that ends a slice of the program's type.
    pub(crate) fn slice_end(&self, slice: u8) -> &'static str {
        let kind = self.program_type();
        let root = match kind.context {
            Context::Struct(layout) => Some(layout),
            _ => None,
        };
        let fields = root.into_iter().chain(kind.structs.iter().copied()).flat_map(|layout| layout.fields);
        fields
            .into_iter()
            .find(|field| field.kind == FieldKind::SliceEnd { slice })
            .map_or("its end", |f| f.name)
    }

    /// The attachment of the program, if known.
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
        let liveness = match self.liveness.is_empty() {
            true => self.straight.get_or_init(|| Liveness::of(self.program, self.cfg, self.config)),
            false => self.liveness,
        };
        of(liveness.before(behind)) & 1 << reg.number() != 0
    }

    /// The map of that index in the object.
    pub(crate) fn outer_map(&self, index: u32) -> Checked<MapView<'a>> {
        self.program.maps.get(index).ok_or_else(|| {
            Violation::new(Code::Structure, format!("there is no map of index {index} in the object"))
        })
    }
}
