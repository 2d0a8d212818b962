//! Calls of global functions, which are verified once each, by their prototypes.
//!
//! ```text
//!   call of f(int, struct pair *):  arguments fit the prototype?  ->  r0: any number, goes on behind the call
//!   f itself, once:                 r1: any number, r2: 16 bytes of memory or null, ...
//! ```
//!
//! So a large function with many callers costs its own length once. In exchange, it knows nothing about its arguments
//! but their types, and its callers nothing about its result. A function without a prototype, or with an unsupported
//! one, is walked in place like a static function.

use crate::domain::resources::Section;
use crate::domain::state::ARGS;
use crate::domain::state::State;
use crate::domain::value::{Kind, Trust, Value};
use crate::program::global::{Effects, Global, Param};
use crate::program::roots::{Root, RootKind};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::args::expected;
use crate::step::frames::{check_depth, clobber_arguments};
use skep_abi::{Access, ArgKind, HelperProto, RetKind};
use skep_isa::Reg;

impl Transfer<'_> {
    /// A call of a function that is verified by itself.
    pub(crate) fn call_global(&mut self, state: &mut State, function: usize, global: &Global) -> Checked<()> {
        check_depth(state)?;
        self.check_no_lock(state, "a function")?;
        let name = self.env.function_name(function).to_owned();
        // Nothing bounds how long it takes.
        if state.resources.depth(Section::NoPreempt) > 0 {
            let text = format!(
                "{name} is verified on its own, and may not be called in a section with preemption disabled"
            );
            return Err(Violation::new(Code::Resource, text)
                .suggest("make the function static, or leave the section first")
                .in_linux(
                    "global function calls are not allowed with preemption disabled,\nuse static function instead",
                ));
        }
        if global.effects.sleeps {
            self.check_may_sleep(state, &name)?;
        }
        // What a static function may not do in a callback, a global one may not do either.
        let Effects { throws, leaves, .. } = global.effects;
        if (throws || leaves) && self.may_not_throw(state) {
            let what = if leaves { "make a tail call" } else { "end the program" };
            let text = format!("a callback may not call {name}, which may {what}");
            return Err(Violation::new(Code::Helper, text));
        }
        if leaves {
            self.check_nothing_held(state, &format!("where {name} is called, which may make a tail call"))?;
        }
        if throws {
            self.check_nothing_held(state, &format!("where {name} is called, which may end the program"))?;
        }
        let proto = HelperProto {
            name: name.into(),
            moves_packet: global.effects.moves_packet,
            ..HelperProto::new(0, "", [ArgKind::None; 5], RetKind::Scalar)
        };
        let mut filled = Vec::new();
        for (reg, param) in ARGS.into_iter().zip(&global.params) {
            let mut value = self.read(state, reg)?;
            match *param {
                Param::Number if value.outside_of_arena().is_scalar() => {}
                Param::Number => return Err(expected(&proto, reg, "a number", &value)),
                Param::Context if value == Value::pointer(Kind::Context, 0) => {}
                Param::Context => return Err(expected(&proto, reg, "the context, unchanged", &value)),
                Param::Memory { nullable: true, .. } if value.as_constant() == Some(0) => {}
                Param::Object { nullable: true, .. } if value.as_constant() == Some(0) => {}
                Param::Object { ty, nullable } => {
                    self.trusted_argument(&proto, reg, &value, (ty, nullable))?
                }
                Param::Memory { bytes, nullable, read_only } => {
                    if nullable {
                        value.kind = value.kind.not_null();
                    }
                    let access = if read_only { Access::Read } else { Access::ReadWrite };
                    filled.extend(self.memory(state, &proto, reg, &value, (bytes, bytes), access)?);
                }
            }
        }
        for filled in &filled {
            self.notes.add(filled.note());
            filled.apply(state);
        }
        let slot = self.slot as u32;
        if global.effects.moves_packet {
            self.lose_packet(state);
        }
        clobber_arguments(state, slot);
        *state.reg_mut(Reg::R0) =
            if global.returns { Value::UNKNOWN } else { Value::pointer(Kind::Clobbered { slot }, 0) };
        self.record.add_root(Root { function: function as u32, of: RootKind::Global });
        Ok(())
    }

    /// An argument of a global function that says it is trusted.
    fn trusted_argument(
        &self,
        proto: &HelperProto,
        reg: Reg,
        value: &Value,
        (ty, nullable): (u32, bool),
    ) -> Checked<()> {
        if let Kind::Object { trust: Trust::Trusted, maybe_null, .. } = value.kind
            && (nullable || !maybe_null)
            && self.object_is(value, ty)?
        {
            return Ok(());
        }
        Err(expected(proto, reg, &format!("a trusted {}", self.type_name(ty)), value))
    }

    /// The registers at a global function's start.
    pub(crate) fn enter_global(&mut self, state: &mut State, function: usize) {
        let Some(global) = &self.env.cfg.globals[function] else { return };
        for (reg, param) in ARGS.into_iter().zip(&global.params) {
            *state.reg_mut(reg) = match *param {
                Param::Number => Value::UNKNOWN,
                Param::Context => Value::pointer(Kind::Context, 0),
                Param::Object { ty, nullable } => {
                    self.named(Kind::Object { ty, trust: Trust::Trusted, maybe_null: nullable })
                }
                Param::Memory { bytes, nullable, read_only } => {
                    self.named(Kind::Memory { bytes, read_only, maybe_null: nullable })
                }
            };
        }
    }

    /// A global function ends.
    pub(crate) fn end_global(&self, state: &State) -> Checked<()> {
        let function = state.top().function as usize;
        if let Some(Global { returns: true, .. }) = &self.env.cfg.globals[function] {
            self.final_result(state, "function")?;
        }
        self.check_nothing_held(state, "where a global function ends")
    }
}
