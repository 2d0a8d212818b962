//! The state at the start of a root.

use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::program::roots::{Root, RootKind};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::callback::enter_timer;
use skep_abi::{Context, Entry};
use skep_isa::Reg;

impl Transfer<'_> {
    /// Begins a walk: sets the state to that at the start of a root.
    pub(crate) fn start(&mut self, state: &mut State, root: Root, number: u32) -> Checked<()> {
        self.root = root.of;
        self.slot = self.env.cfg.functions[root.function as usize].start;
        state.start(root.function, number);
        self.enter_function(state);
        match root.of {
            // An extension begins as the function whose place it takes.
            RootKind::Program if self.env.cfg.globals[0].is_some() => self.enter_global(state, 0),
            RootKind::Program => self.enter(state)?,
            RootKind::Timer { map } | RootKind::Work { map } => enter_timer(state, map),
            RootKind::Global | RootKind::Exception => self.enter_global(state, root.function as usize),
        }
        Ok(())
    }

    /// The registers at the program's start.
    fn enter(&mut self, state: &mut State) -> Checked<()> {
        match (self.env.program.entry, self.env.program_type().context) {
            (Entry::Context, Context::Struct(_) | Context::Bytes { .. } | Context::Arguments { .. }) => {
                if let Context::Arguments { of } = self.env.program_type().context {
                    match &self.env.program.source.of {
                        Some(function) => self.attach_to_program(of, function)?,
                        None => self.attach(of)?,
                    }
                }
                *state.reg_mut(Reg::R1) = Value::pointer(Kind::Context, 0)
            }
            (Entry::Buffer { len }, Context::Buffer) => {
                *state.reg_mut(Reg::R1) = Value::pointer(Kind::Buffer { bytes: len }, 0);
                *state.reg_mut(Reg::R2) = Value::constant(len.into());
            }
            (Entry::Context, Context::Buffer) => {
                let text = "programs of this type receive a buffer: give its length";
                return Err(Violation::new(Code::Context, text));
            }
            (Entry::Buffer { .. }, _) => {
                let text = "programs of this type receive a context, not a buffer";
                return Err(Violation::new(Code::Context, text));
            }
        }
        Ok(())
    }
}
