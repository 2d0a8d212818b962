//! Functions of the program that helpers call.
//!
//! A helper that calls back is walked like a loop whose head is the call itself:
//!
//! ```text
//!        .----> call helper ----> the helper is done: r0 is its result
//!        |           |
//!        |           '----------> callback: a frame of its own, arguments by [`Callback`]
//!        '--- exit <--------------------'
//! ```
//!
//! The caller keeps its argument registers until the helper is done, so that a path that comes back to the call can
//! call again. Each call is an iteration ([`crate::domain::loops`]), so a callback that changes nothing is walked once.
//!
//! A callback that runs later, when a timer expires, is not on the path: it is another root of the walk.

use crate::domain::loops::Construct;
use crate::domain::scalar::Scalar;
use crate::domain::stack::STACK_BYTES;
use crate::domain::state::ARGS;
use crate::domain::state::State;
use crate::domain::value::{Kind, Opaque, Trust, Value, lent};
use crate::program::cfg::target;
use crate::program::roots::{Root, RootKind};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::args::{Arguments, expected};
use crate::step::ends::check_range;
use crate::step::frames::check_depth;
use skep_abi::{ArgKind, Callback, DynptrKind, HelperProto};
use skep_isa::Reg;

/// The most iterations of `bpf_loop`; for more it calls nothing.
const MAX_LOOPS: u64 = 1 << 23;

/// The arguments of a timer's callback.
pub(crate) fn enter_timer(state: &mut State, map: u32) {
    *state.reg_mut(Reg::R1) = Value::pointer(Kind::Map { map }, 0);
    *state.reg_mut(Reg::R2) = Value::pointer(Kind::MapKey { map }, 0);
    *state.reg_mut(Reg::R3) = Value::pointer(Kind::MapValue { map, maybe_null: false }, 0);
}

impl Transfer<'_> {
    /// The address of the function that starts `offset` slots after the next one.
    pub(crate) fn function_address(&self, offset: i32) -> Checked<Value> {
        match target(self.slot, offset).and_then(|to| self.env.cfg.function_at(to)) {
            Some(function) => Ok(Value::pointer(Kind::Function { function: function as u32 }, 0)),
            None => Err(Violation::new(Code::Structure, "the address is not the start of a function")),
        }
    }

    pub(crate) fn check_callback(&self, proto: &HelperProto, reg: Reg, value: &Value) -> Checked<()> {
        match value.kind {
            // The program itself takes other arguments.
            Kind::Function { function } if function != 0 => Ok(()),
            _ => Err(expected(proto, reg, "the address of a function of the program", value)),
        }
    }

    pub(crate) fn check_callback_context(&self, proto: &HelperProto, reg: Reg, value: &Value) -> Checked<()> {
        if matches!(value.kind, Kind::Stack { .. }) || value.as_constant() == Some(0) {
            return Ok(());
        }
        Err(expected(proto, reg, "an address in the stack, or 0", value))
    }

    /// A path reaches a call that calls back: for the first time, or from the callback.
    pub(crate) fn enter_call(&mut self, state: &mut State) {
        let of = Construct::Callback { frame: state.top_index() };
        if state.loops.count(of).is_none() {
            let id = self.new_id();
            state.loops.enter(of, id);
        }
    }

    /// A call of a helper that calls back, after its arguments were checked. The path goes on after
    /// the call, a fork in the callback.
    pub(crate) fn call_back(
        &mut self,
        state: &mut State,
        proto: &HelperProto,
        callback: Callback,
        arguments: &Arguments,
    ) -> Checked<()> {
        let at = |wanted: fn(&ArgKind) -> bool| proto.args.iter().position(wanted).map(|at| ARGS[at]);
        let function = at(|arg| matches!(arg, ArgKind::Callback(_))).map(|reg| state.reg(reg).kind);
        let Some(Kind::Function { function }) = function else {
            return Err(Violation::new(Code::Unsupported, format!("{} takes no callback", proto.name)));
        };
        let context = at(|arg| matches!(arg, ArgKind::CallbackContext)).map(|reg| *state.reg(reg));
        let context = context.unwrap_or(Value::UNINIT);
        if callback == Callback::Timer {
            let map = match state.reg(Reg::R1).kind {
                Kind::MapValue { map, .. } => map,
                _ => return Err(expected(proto, Reg::R1, "a timer in a map's value", state.reg(Reg::R1))),
            };
            self.record.add_root(Root { function, of: RootKind::Timer { map } });
            self.finish_helper(state, proto, arguments)?;
            return Ok(());
        }
        let of = Construct::Callback { frame: state.top_index() };
        let calls = state.loops.count(of).unwrap_or(0);
        let given = self.callback_arguments(state, proto, callback, arguments, context, calls)?;
        let Some(given) = given else {
            state.loops.leave(of);
            self.finish_helper(state, proto, arguments)?;
            return Ok(());
        };
        let mut called = self.forks.copy(state);
        let start = self.enter_callback(&mut called, function, callback, given)?;
        // The end of the loop is walked first: what it needs is known when the callback returns.
        self.forks.put_aside(called, start);
        self.forks.stay(true);
        state.loops.leave(of);
        self.finish_helper(state, proto, arguments)
    }

    /// Enters a callback of the call that is being walked; returns where it starts.
    pub(crate) fn enter_callback(
        &mut self,
        state: &mut State,
        function: u32,
        callback: Callback,
        given: [Value; 5],
    ) -> Checked<usize> {
        check_depth(state)?;
        self.record.call_back(self.slot, function);
        let id = self.new_id();
        state.loops.advance(Construct::Callback { frame: state.top_index() }, id);
        state.push(function, self.slot as u32);
        state.top_mut().callback = Some(callback);
        self.enter_function(state);
        for (reg, value) in ARGS.into_iter().zip(given) {
            *state.reg_mut(reg) = value;
        }
        Ok(self.env.cfg.functions[function as usize].start)
    }

    /// The arguments of the next call of the callback; `None` if there is no such call.
    fn callback_arguments(
        &mut self,
        state: &State,
        proto: &HelperProto,
        callback: Callback,
        arguments: &Arguments,
        context: Value,
        calls: u32,
    ) -> Checked<Option<[Value; 5]>> {
        const NO: Value = Value::UNINIT;
        // The callback will have the next frame.
        let frame = state.top_index() + 1;
        let lend = |value: Value| Value { reference: lent(frame), ..value };
        let more = match callback {
            Callback::Loop => {
                let lenient = self.env.config.abilities.lenient;
                // Verifiers that compare no two numbers look at the function in any case.
                let least = u64::from(!self.env.config.abilities.compared_numbers);
                let times = state.reg(Reg::R1).num.half().umax.clamp(least, MAX_LOOPS);
                if u64::from(calls) >= times {
                    return Ok(None);
                }
                let index = match lenient {
                    true => Value::scalar(Scalar::signed_range(0, times as i64 - 1)),
                    false => Value::UNKNOWN,
                };
                Some([index, context, NO, NO, NO])
            }
            Callback::ForEach => {
                let Some((map, given)) = arguments.map else {
                    return Err(expected(proto, Reg::R1, "a map", state.reg(Reg::R1)));
                };
                let def = self.map(map)?;
                if def.at_most().is_some_and(|most| calls >= most) {
                    return Ok(None);
                }
                let key = lend(Value::pointer(Kind::MapKey { map }, 0));
                let value = Value::pointer(Kind::MapValue { map, maybe_null: false }, 0);
                Some([given, key, value, context, NO])
            }
            Callback::FindArea => {
                let area =
                    self.env.config.btf.and_then(|btf| btf.find("vm_area_struct", skep_btf::Kind::Struct));
                let object = |ty| Kind::Object { ty, trust: Trust::Walked, maybe_null: false };
                let area = area.map_or(NO, |ty| lend(Value::pointer(object(ty), 0)));
                (calls == 0).then_some([*state.reg(Reg::R1), area, context, NO, NO])
            }
            Callback::Drain => {
                let of = Opaque::Dynptr { of: DynptrKind::Local, read_only: false };
                let mut sample = lend(Value::pointer(Kind::Opaque { of }, 0));
                sample.id = self.new_id();
                Some([sample, context, NO, NO, NO])
            }
            Callback::Host => Some([Value::UNKNOWN, context, NO, NO, NO]),
            Callback::Timer | Callback::Less => None,
        };
        Ok(more)
    }

    /// Ends the innermost frame, which a helper called; returns where control goes on: at the call.
    pub(crate) fn end_callback(&mut self, state: &mut State, callback: Callback) -> Checked<usize> {
        let result = self.final_result(state, "callback")?;
        check_range(&result, callback.results(), "callback", Reg::R0)?;
        self.check_callback_end(state)?;
        self.end_copies(state, state.top_index(), 0, STACK_BYTES);
        self.end_lent(state, callback);
        let call = state.top().call_slot as usize;
        state.pop();
        Ok(call)
    }

    /// What the helper lent for this one call of the innermost frame ends: the copy of a key, the sample of a ring
    /// buffer, the area of memory. So does what was made from it, wherever that was kept.
    fn end_lent(&mut self, state: &mut State, callback: Callback) {
        if !matches!(callback, Callback::ForEach | Callback::Drain | Callback::FindArea) {
            return;
        }
        self.forks.charge(state);
        let lent = lent(state.top_index());
        self.distrust(state, lent);
        self.end_values(state, |value| value.reference == lent);
    }
}
