//! Calls of helpers by their prototypes.

use crate::Code;
use crate::args::Arguments;
use crate::callback::callback_of;
use crate::fault::{Fault, Step};
use crate::frames::lose_arguments;
use crate::scalar::Scalar;
use crate::state::State;
use crate::value::{Kind, Value};
use crate::walk::Walker;
use skep_abi::{HelperProto, RetKind, linux_helper};
use skep_isa::Reg;

impl<'a> Walker<'a> {
    /// A call of the helper of that number.
    ///
    /// Returns where control goes on, if not behind the call: in the callback.
    pub(crate) fn call_helper(&mut self, state: &mut State, id: u32) -> Step<Option<usize>> {
        let proto = self.callable(id)?;
        let arguments = self.arguments(state, proto)?;
        let Arguments { map, key } = arguments;
        self.record.call(self.slot, map, key);
        if let Some(callback) = callback_of(proto) {
            return self.call_back(state, proto, callback, &arguments);
        }
        self.finish_helper(state, proto, &arguments)?;
        Ok(None)
    }

    /// Clobbers what the call clobbers and makes the result.
    pub(crate) fn finish_helper(
        &mut self,
        state: &mut State,
        proto: &HelperProto,
        arguments: &Arguments,
    ) -> Step<()> {
        let map = arguments.map;
        let slot = self.slot as u32;
        if proto.moves_packet {
            self.charge(state);
            state.lose_packet(slot);
        }
        lose_arguments(state, slot);
        let result = match proto.ret {
            RetKind::Scalar => Value::UNKNOWN,
            RetKind::Range { min, max } => Value::scalar(Scalar::signed_range(min, max)),
            RetKind::MapValueOrNull => {
                let Some(map) = map else {
                    let text = format!("{} returns a map's value but takes no map", proto.name);
                    return Err(Fault::new(Code::Unsupported, text));
                };
                let mut value = Value::pointer(Kind::MapValue { map, maybe_null: true }, 0);
                value.id = self.new_id();
                value
            }
            // A tail call that does not happen leaves nothing behind either.
            RetKind::Void | RetKind::TailCall => Value::pointer(Kind::Lost { slot, packet: false }, 0),
            _ => {
                let text = format!("{} returns something that is not supported yet", proto.name);
                return Err(Fault::new(Code::Unsupported, text));
            }
        };
        *state.reg_mut(Reg::R0) = result;
        Ok(())
    }

    /// The helper's prototype, if this program may call it.
    fn callable(&self, id: u32) -> Step<&'a HelperProto> {
        let Some(proto) = (self.config.helpers)(id) else {
            let text = match linux_helper(id) {
                Some(proto) => format!("the helper {} ({id}) is not provided by this host", proto.name),
                None => format!("there is no helper {id}"),
            };
            return Err(Fault::new(Code::Helper, text));
        };
        // The types restrict Linux's own helpers; a host's are open to all.
        let kind = self.program_type();
        let of_linux = linux_helper(id).is_some_and(|linux| linux.name == proto.name);
        if of_linux && !kind.helpers.contains(&id) {
            let text = format!("programs of type {} may not call {} ({id})", kind.name, proto.name);
            return Err(Fault::new(Code::Helper, text));
        }
        if proto.gpl_only && !self.gpl_compatible() {
            let text = format!("{} ({id}) is for programs under a GPL-compatible licence", proto.name);
            return Err(Fault::new(Code::Helper, text)
                .suggest("declare one: char LICENSE[] SEC(\"license\") = \"Dual MIT/GPL\""));
        }
        Ok(proto)
    }
}
