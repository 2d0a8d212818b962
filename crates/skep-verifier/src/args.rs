//! Arguments of helpers: what their prototypes demand of each.

use crate::Code;
use crate::access::{Intent, Region};
use crate::alu::CHECK_NULL;
use crate::fault::{Fault, Step};
use crate::frames::ARGS;
use crate::stack::Found;
use crate::state::State;
use crate::value::{Kind, MAX_OFFSET, Value};
use crate::walk::Walker;
use skep_abi::{Access, ArgKind, Context, HelperProto, MapDef, MapFlags, MapKind, RetKind};
use skep_isa::{Reg, Size};

/// The helpers that change a map's elements.
const WRITERS: [&str; 2] = ["map_update_elem", "map_delete_elem"];

/// What a call's arguments say of its result, and what of them is taken down.
pub(crate) struct Arguments {
    /// The index of the map argument.
    pub(crate) map: Option<u32>,
    /// The key of an array, where it is known.
    pub(crate) key: Option<u32>,
}

impl<'a> Walker<'a> {
    /// Checks all arguments of a call.
    pub(crate) fn arguments(&mut self, state: &mut State, proto: &HelperProto) -> Step<Arguments> {
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
                ArgKind::Callback(_) => self.check_callback(proto, reg, &value)?,
                ArgKind::CallbackContext => self.check_callback_context(proto, reg, &value)?,
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
        Ok(Arguments { map, key })
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
}

#[cold]
pub(crate) fn expected(proto: &HelperProto, reg: Reg, what: &str, found: &Value) -> Box<Fault> {
    Fault::new(Code::Argument, format!("{} expects {what} in {reg}, found {found}", proto.name))
}
