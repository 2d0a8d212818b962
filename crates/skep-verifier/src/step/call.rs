//! Calls of helpers by their prototypes, and their results.

use crate::domain::resources::Referent;
use crate::domain::scalar::Scalar;
use crate::domain::stack::{Found, STACK_BYTES};
use crate::domain::state::{ARGS, State};
use crate::domain::value::{Hold, Kind, Value};
use crate::program::assumed::INNER;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::args::Arguments;
use crate::step::frames::clobber_arguments;
use crate::step::notes::Note;
use skep_abi::{
    ArgKind, DynptrKind, HelperFlags, HelperProto, MISSING_FUNCTION, RetKind, UNRELOCATED, linux_helper,
};
use skep_isa::{Reg, Size};

impl<'a> Transfer<'a> {
    /// A call of the helper of that number.
    pub(crate) fn call_helper(&mut self, state: &mut State, id: u32) -> Checked<()> {
        let proto = self.callable(id)?;
        // Helpers that take or release a lock check it themselves.
        if !proto.is_of_lock() {
            self.check_no_lock(state, &proto.name)?;
        }
        if proto.sleeps {
            self.check_may_sleep(state, &proto.name)?;
        }
        if proto.ret == RetKind::TailCall {
            self.check_nothing_held(state, "where the program may leave by a tail call")
                .map_err(|violation| violation.also_in_linux("tail_call would lead to reference leak"))?;
        }
        let arguments = self.arguments(state, proto)?;
        // A map found at run time is not always the same.
        let map = arguments.map.map(|(map, _)| map).filter(|map| map & INNER == 0);
        let mut key = match proto.ret {
            RetKind::TailCall => self.check_tail_call(state, proto, &arguments)?,
            _ => None,
        };
        let mut in_bounds = false;
        if let Some(map) = map
            && let Some((frame, start, index)) = self.array_index(state, proto, map)
        {
            key = index.as_constant().map(|index| index as u32);
            in_bounds = index.num.umax < u64::from(self.map(map)?.at_least());
            if key.is_some() || in_bounds {
                self.notes.add(Note::ReliesOn { frame, start, end: start + Size::B4.bytes() });
            }
        }
        self.record.call(self.slot, map, map.and(key), in_bounds);
        if let Some(callback) = proto.callback() {
            return self.call_back(state, proto, callback, &arguments);
        }
        self.finish_helper(state, proto, &arguments)?;
        if proto.ret == RetKind::TailCall {
            self.return_by_tail_call(state);
        }
        Ok(())
    }

    /// The key argument of a call, if it is the index of an array and a number in the stack: the frame, the first byte,
    /// and the number.
    fn array_index(&self, state: &State, proto: &HelperProto, map: u32) -> Option<(u8, u32, Value)> {
        let at = proto.args.iter().position(|arg| *arg == ArgKind::MapKey)?;
        let key = state.reg(ARGS[at]);
        let (Kind::Stack { frame }, Ok(def)) = (key.kind, self.map(map)) else { return None };
        if !def.kind().is_array() || def.key_size() != 4 || !key.is_fixed() {
            return None;
        }
        let start = u32::try_from(key.offset + STACK_BYTES as i32).ok()?;
        match state.frames()[usize::from(frame)].stack.read(start, Size::B4) {
            Found::Value(value) if value.is_scalar() => Some((frame, start, value)),
            Found::Value(_) | Found::Unwritten | Found::Remains | Found::PartOfPointer => None,
        }
    }

    /// Clobbers the argument registers and sets the result.
    pub(crate) fn finish_helper(
        &mut self,
        state: &mut State,
        proto: &HelperProto,
        arguments: &Arguments,
    ) -> Checked<()> {
        let slot = self.slot as u32;
        if let Some(reference) = arguments.released {
            match arguments.kptr {
                Some(Kind::Own { per_cpu: true, .. }) if self.in_read_section(state) => {
                    // To the end of the section, it is as if it had been found in the map.
                    self.change_hold(state, &proto.name, reference, Hold::Found)?;
                }
                _ => self.release(state, &proto.name, reference)?,
            }
        }
        let to_packet = arguments.dynptr.is_some_and(|dynptr| dynptr.kind == DynptrKind::Skb);
        if proto.moves_packet || (to_packet && proto.flags.has(HelperFlags::WRITES_DYNPTR)) {
            self.lose_packet(state);
        }
        clobber_arguments(state, slot);
        let result = self.result(state, proto, arguments)?;
        *state.reg_mut(Reg::R0) = result;
        Ok(())
    }

    /// What the call returns.
    fn result(&mut self, state: &mut State, proto: &HelperProto, arguments: &Arguments) -> Checked<Value> {
        let contradiction = |what: &str| {
            let text = format!("{} returns {what} but no argument says which", proto.name);
            Violation::new(Code::Unsupported, text)
        };
        let mut acquires = proto.acquires;
        let mut result = match proto.ret {
            RetKind::Scalar => return Ok(Value::UNKNOWN),
            RetKind::Range { min, max } => return Ok(Value::scalar(Scalar::signed_range(min, max))),
            RetKind::SizeOrError => {
                let most = arguments.size.ok_or_else(|| contradiction("a size"))?;
                return Ok(Value::scalar(Scalar::signed_range(-4095, most.into())));
            }
            // After a failed tail call `r0` holds nothing either.
            RetKind::Void | RetKind::TailCall => {
                return Ok(Value::pointer(Kind::Clobbered { slot: self.slot as u32 }, 0));
            }
            RetKind::MapValueOrNull | RetKind::MapValue => {
                let (map, found_in) = arguments.map.ok_or_else(|| contradiction("a map's value"))?;
                let maybe_null = proto.ret == RetKind::MapValueOrNull;
                let (value, acquired) = self.looked_up(map, &found_in, maybe_null)?;
                acquires |= acquired;
                value
            }
            RetKind::MemoryOrNull => {
                let bytes = arguments.allocation.ok_or_else(|| contradiction("memory"))?;
                self.named(Kind::Memory { bytes, read_only: false, maybe_null: true })
            }
            RetKind::DynptrDataOrNull => {
                let bytes = arguments.allocation.ok_or_else(|| contradiction("memory"))?;
                let dynptr = arguments.dynptr.ok_or_else(|| contradiction("a dynptr's memory"))?;
                self.slice(&dynptr, bytes, dynptr.read_only, None)
            }
            RetKind::Struct { kind, maybe_null } => self.named(Kind::Struct { of: kind, maybe_null }),
            RetKind::KptrOrNull => {
                let kept = arguments.kptr.ok_or_else(|| contradiction("an object of the host"))?;
                acquires = true;
                self.named(kept.maybe_null())
            }
            RetKind::Object { of, maybe_null } => self.object_result(proto, of, maybe_null)?,
            RetKind::PerCpuVariable { maybe_null } => {
                let ty = arguments.variable.ok_or_else(|| contradiction("a variable"))?;
                self.per_cpu_result(ty, maybe_null)?
            }
            _ => {
                let text = format!("{} returns something that is not supported yet", proto.name);
                return Err(Violation::new(Code::Unsupported, text));
            }
        };
        if proto.flags.has(HelperFlags::CAST) {
            result.reference = arguments.carried;
        }
        if acquires {
            let what = match result.kind {
                Kind::Memory { .. } => Referent::Record,
                Kind::Own { .. } => Referent::Allocated,
                _ => Referent::Object,
            };
            result.reference = self.acquire(state, what)?;
            if result.is_maybe_null() {
                result.id = result.reference;
            }
        }
        Ok(result)
    }

    /// The helper's prototype, if this program may call it.
    fn callable(&self, id: u32) -> Checked<&'a HelperProto> {
        let Some(proto) = (self.env.config.helpers)(id) else {
            let text = match linux_helper(id) {
                None if id == UNRELOCATED => {
                    let unresolved = &self.env.program.source.unresolved;
                    let text = match unresolved.iter().find(|(slot, _)| *slot as usize == self.slot) {
                        Some((_, what)) => {
                            format!("this instruction needs {what} (CO-RE), which the host's types do not have")
                        }
                        None => "this instruction replaces a CO-RE relocation that the host's types do not resolve"
                            .to_owned(),
                    };
                    let remedy =
                        "check that the field, type or value exists (bpf_core_*_exists) before using it";
                    return Err(Violation::new(Code::Types, text).suggest(remedy));
                }
                None if id == MISSING_FUNCTION => {
                    let text = "this instruction calls a __weak function that the host does not have";
                    return Err(
                        Violation::new(Code::Types, text).suggest("compare its address with NULL first")
                    );
                }
                Some(proto) => format!("the helper {} ({id}) is not provided by this host", proto.name),
                None => {
                    let text = format!("there is no helper {id}");
                    let remedy =
                        "declare it if it is a host's own: RuntimeBuilder::function, or skep --host FILE";
                    return Err(Violation::new(Code::Helper, text).suggest(remedy));
                }
            };
            return Err(Violation::new(Code::Helper, text));
        };
        // Program types restrict Linux's helpers; a host's own are open to all.
        let kind = self.env.program_type();
        let linux = linux_helper(id).filter(|linux| linux.name == proto.name);
        let target = self.env.target();
        if linux.is_some() && !kind.may_call(id, target) {
            let attached = match target {
                Some(target) if kind.helpers.contains(id) => format!(" on {target}"),
                _ => String::new(),
            };
            let text = format!("programs of type {}{attached} may not call {} ({id})", kind.name, proto.name);
            return Err(Violation::new(Code::Helper, text));
        }
        if let Some(types) = proto.only_for.as_ref().filter(|types| !types.contains(&kind.name)) {
            let text = format!(
                "programs of type {} may not call {} ({id}): this host has it for {}",
                kind.name,
                proto.name,
                types.join(", ")
            );
            return Err(Violation::new(Code::Helper, text));
        }
        if let Some(only) = proto.only.filter(|only| !std::ptr::eq(*only, kind)) {
            let text = format!(
                "{} works on the context of programs of type {}, and this one is of type {}",
                proto.name, only.name, kind.name
            );
            return Err(Violation::new(Code::Helper, text));
        }
        // A host's own helper under Linux's name keeps the host's prototype.
        let variant = kind.variants.iter().find(|variant| variant.id == id);
        let proto = variant.filter(|_| linux == Some(proto)).unwrap_or(proto);
        if proto.gpl_only {
            self.check_licence(format_args!("{} ({id})", proto.name))?;
        }
        Ok(proto)
    }

    /// Checks that the program's licence allows `what`.
    pub(crate) fn check_licence(&self, what: impl std::fmt::Display) -> Checked<()> {
        if self.env.gpl_compatible() {
            return Ok(());
        }
        Err(Violation::new(Code::Helper, format!("{what} is for programs under a GPL-compatible licence"))
            .suggest("declare one: char LICENSE[] SEC(\"license\") = \"Dual MIT/GPL\""))
    }
}
