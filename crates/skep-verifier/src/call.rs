//! Calls of helpers by their prototypes, calls of the program's own functions, and returns.

use crate::Code;
use crate::access::{Intent, Region};
use crate::alu::CHECK_NULL;
use crate::cfg::target;
use crate::fault::{Fault, Step};
use crate::scalar::Scalar;
use crate::stack::Found;
use crate::state::{MAX_FRAMES, State};
use crate::value::{Kind, MAX_OFFSET, Value};
use crate::walk::Walker;
use skep_abi::{Access, ArgKind, Context, HelperProto, MapDef, MapFlags, MapKind, RetKind, linux_helper};
use skep_isa::{Reg, Size};

const ARGS: [Reg; 5] = [Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5];

/// The helpers that change a map's elements.
const WRITERS: [&str; 2] = ["map_update_elem", "map_delete_elem"];

impl<'a> Walker<'a> {
    /// A call of the helper of that number.
    pub(crate) fn call_helper(&mut self, state: &mut State, id: u32) -> Step<()> {
        let proto = self.callable(id)?;
        let mut map = None;
        let mut key = None;
        for (at, arg) in proto.args.iter().enumerate() {
            let reg = ARGS[at];
            match *arg {
                ArgKind::None | ArgKind::Printed => continue,
                _ => {}
            }
            let value = self.read(state, reg)?;
            match *arg {
                ArgKind::None | ArgKind::Printed => {}
                ArgKind::Anything => {
                    if value.is_pointer() && !matches!(self.program_type().context, Context::Buffer) {
                        return Err(expected(proto, reg, "a number", &value));
                    }
                }
                ArgKind::Scalar => {
                    if !value.is_scalar() {
                        return Err(expected(proto, reg, "a number", &value));
                    }
                }
                ArgKind::Context => {
                    if value != Value::pointer(Kind::Context, 0) {
                        return Err(expected(proto, reg, "the context, unchanged", &value));
                    }
                }
                ArgKind::Map => {
                    let Kind::Map { map: index } = value.kind else {
                        return Err(expected(proto, reg, "a map", &value));
                    };
                    self.check_map_call(proto, self.map(index)?)?;
                    map = Some(index);
                }
                ArgKind::MapKey => {
                    let def = self.argument_map(proto, map)?;
                    self.memory(state, proto, reg, &value, (def.key_size, def.key_size), Access::Read)?;
                    key = self.constant_key(state, def, &value);
                }
                ArgKind::MapValue(access) => {
                    let size = self.argument_map(proto, map)?.value_size;
                    self.memory(state, proto, reg, &value, (size, size), access)?;
                }
                ArgKind::FixedMemory { access, bytes } => {
                    self.memory(state, proto, reg, &value, (bytes, bytes), access)?;
                }
                ArgKind::Memory { access, nullable } => {
                    let sizes = self.size_argument(state, proto, at + 1)?;
                    if nullable && value.as_constant() == Some(0) {
                        if sizes.1 != 0 {
                            let text =
                                format!("{} is given null in {reg} with a size that is not 0", proto.name);
                            return Err(Fault::new(Code::Argument, text));
                        }
                        continue;
                    }
                    self.memory(state, proto, reg, &value, sizes, access)?;
                }
                ArgKind::Size { .. } => {} // checked with its memory
                ArgKind::ConstString => {
                    let text = format!("{} takes a constant string, which is not supported yet", proto.name);
                    return Err(Fault::new(Code::Unsupported, text));
                }
                _ => {
                    let text = format!("{} takes a kind of argument that is not supported yet", proto.name);
                    return Err(Fault::new(Code::Unsupported, text));
                }
            }
        }
        self.record.call(self.slot, map, key);
        self.finish_helper(state, proto, map)
    }

    /// Clobbers what the call clobbers and makes the result.
    fn finish_helper(&mut self, state: &mut State, proto: &HelperProto, map: Option<u32>) -> Step<()> {
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
            RetKind::Void => Value::pointer(Kind::Lost { slot, packet: false }, 0),
            RetKind::TailCall => {
                let text = "tail calls are not supported yet";
                return Err(Fault::new(Code::Unsupported, text));
            }
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

    fn argument_map(&self, proto: &HelperProto, map: Option<u32>) -> Step<&'a MapDef> {
        match map {
            Some(map) => self.map(map),
            None => {
                let text = format!("the prototype of {} names a key or value before a map", proto.name);
                Err(Fault::new(Code::Unsupported, text))
            }
        }
    }

    /// Whether a helper can work on that map.
    fn check_map_call(&self, proto: &HelperProto, def: &MapDef) -> Step<()> {
        use MapKind::{Array, Hash, LpmTrie, LruHash, LruPercpuHash, PercpuArray, PercpuHash, ProgArray};
        let elements =
            matches!(def.kind, Array | Hash | LpmTrie | LruHash | LruPercpuHash | PercpuArray | PercpuHash);
        if !elements && def.kind != ProgArray {
            let text = format!("maps of kind {} are not supported yet", def.kind);
            return Err(Fault::new(Code::Unsupported, text));
        }
        let takes_elements =
            proto.args.iter().any(|arg| matches!(arg, ArgKind::MapKey | ArgKind::MapValue(_)));
        if takes_elements && !elements {
            let text =
                format!("{} does not work on the map {}, which is a {}", proto.name, def.name, def.kind);
            return Err(Fault::new(Code::Argument, text));
        }
        let writes = WRITERS.contains(&&*proto.name);
        let reads = proto.ret == RetKind::MapValueOrNull;
        let denied = (writes && def.flags.contains(MapFlags::RDONLY_PROG))
            || (reads && def.flags.contains(MapFlags::WRONLY_PROG));
        if denied {
            let text = format!("{} is not allowed on the map {} by its flags", proto.name, def.name);
            return Err(Fault::new(Code::ReadOnly, text));
        }
        Ok(())
    }

    /// The least and greatest size in argument `at`.
    fn size_argument(&self, state: &State, proto: &HelperProto, at: usize) -> Step<(u32, u32)> {
        let (Some(reg), Some(ArgKind::Size { zero })) = (ARGS.get(at).copied(), proto.args.get(at).copied())
        else {
            let text = format!("the prototype of {} names memory without its size", proto.name);
            return Err(Fault::new(Code::Unsupported, text));
        };
        let value = self.read(state, reg)?;
        if !value.is_scalar() {
            return Err(expected(proto, reg, "a size", &value));
        }
        let num = &value.num;
        if num.umax >= MAX_OFFSET as u64 {
            return Err(expected(proto, reg, "a bounded size", &value)
                .suggest("bound the size with a comparison or a mask first"));
        }
        if !zero && num.umin == 0 {
            return Err(expected(proto, reg, "a size that is not 0", &value)
                .suggest("make sure that the size is at least 1"));
        }
        Ok((num.umin as u32, num.umax as u32))
    }

    /// Checks memory that is passed to a helper, of at least and at most so many bytes.
    fn memory(
        &mut self,
        state: &mut State,
        proto: &HelperProto,
        reg: Reg,
        value: &Value,
        (least, most): (u32, u32),
        access: Access,
    ) -> Step<()> {
        if value.is_maybe_null() {
            let text = format!("{} is given {reg}, which may be null: {value}", proto.name);
            return Err(Fault::new(Code::MaybeNull, text).suggest(CHECK_NULL));
        }
        let memory = matches!(
            value.kind,
            Kind::Stack { .. }
                | Kind::Packet
                | Kind::PacketMeta
                | Kind::MapValue { .. }
                | Kind::Buffer { .. }
        );
        if !memory {
            return Err(expected(proto, reg, "memory", value));
        }
        if value.is_packet() && proto.moves_packet {
            let text = format!("{} may move the packet, so {reg} may not point into it", proto.name);
            return Err(Fault::new(Code::Argument, text));
        }
        if access != Access::Write {
            self.region(state, reg, value, 0, most, Intent::Read)?;
        }
        let intent = if access == Access::Read { Intent::Read } else { Intent::Write };
        let Region::Stack { frame, first, last } = self.region(state, reg, value, 0, most, intent)? else {
            return Ok(());
        };
        let end = last + most;
        if access != Access::Write {
            self.check_initialised(state, frame, first, end)?;
        }
        if access != Access::Read {
            let stack = &mut state.frames_mut()[usize::from(frame)].stack;
            if first == last {
                stack.smear(first, end, false);
                stack.fill(first, first + least);
            } else {
                stack.smear(first, end, false);
            }
        }
        Ok(())
    }

    /// The key of an array, if it is a known number on the stack.
    fn constant_key(&self, state: &State, def: &MapDef, key: &Value) -> Option<u32> {
        let Kind::Stack { frame } = key.kind else { return None };
        if !def.kind.is_array() || def.key_size != 4 || !key.is_fixed() {
            return None;
        }
        let start = u32::try_from(key.offset + crate::stack::STACK_BYTES as i32).ok()?;
        match state.frames()[usize::from(frame)].stack.read(start, Size::B4) {
            Found::Value(value) => value.as_constant().map(|key| key as u32),
            Found::Uninit | Found::PartOfPointer => None,
        }
    }

    /// A call of a function of the program; returns where it starts.
    pub(crate) fn call_local(&mut self, state: &mut State, offset: i32) -> Step<usize> {
        let callee =
            target(self.slot, offset).and_then(|to| Some((to, self.shape.function_at(to)?))).ok_or_else(
                || Fault::new(Code::Structure, "the call does not lead to the start of a function"),
            )?;
        if state.frames().len() == MAX_FRAMES {
            let text = format!("calls nest deeper than {MAX_FRAMES} frames");
            return Err(Fault::new(Code::Stack, text));
        }
        let arguments: [Value; 5] = std::array::from_fn(|at| *state.reg(ARGS[at]));
        let slot = self.slot as u32;
        lose_arguments(state, slot);
        state.push(callee.1 as u32, slot);
        for (reg, value) in ARGS.into_iter().zip(arguments) {
            *state.reg_mut(reg) = value;
        }
        Ok(callee.0)
    }

    /// Leaves the innermost function; returns where its caller goes on, or `None` at the program's end.
    pub(crate) fn exit(&mut self, state: &mut State) -> Step<Option<usize>> {
        if state.top_index() == 0 {
            let result = self.read(state, Reg::R0).map_err(|mut fault| {
                fault.reason = format!("the program ends without a result: {}", fault.reason);
                fault
            })?;
            if !result.is_scalar() {
                let text = format!("expected a number as the result in r0, found {result}");
                return Err(Fault::new(Code::PointerLeak, text));
            }
            return Ok(None);
        }
        let result = *state.reg(Reg::R0);
        if let Kind::Stack { frame } = result.kind
            && frame == state.top_index()
        {
            let text =
                format!("a function may not return the address of its own stack, found {result} in r0");
            return Err(Fault::new(Code::Return, text));
        }
        let back = state.top().call_slot as usize + 1;
        state.pop();
        *state.reg_mut(Reg::R0) = result;
        Ok(Some(back))
    }
}

/// A call does not preserve `r1` to `r5`.
fn lose_arguments(state: &mut State, slot: u32) {
    for reg in ARGS {
        *state.reg_mut(reg) = Value::pointer(Kind::Lost { slot, packet: false }, 0);
    }
}

#[cold]
fn expected(proto: &HelperProto, reg: Reg, what: &str, found: &Value) -> Box<Fault> {
    Fault::new(Code::Argument, format!("{} expects {what} in {reg}, found {found}", proto.name))
}
