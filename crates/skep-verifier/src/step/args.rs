//! Arguments of helpers: what their prototypes demand of each.

use crate::domain::resources::{Holder, Referent};
use crate::domain::state::ARGS;
use crate::domain::state::State;
use crate::domain::value::{Kind, MAX_OFFSET, Value};
use crate::domain::words;
use crate::program::assumed::MapView;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::alu::CHECK_NULL;
use crate::step::dynptr::Dynptr;
use crate::step::maps::is_of_sockets;
use crate::step::memory::Filled;
use skep_abi::{
    Access, ArgKind, Context, DynptrArg, DynptrKind, Entry, HelperProto, RetKind, SpecialKind, StructKind,
};
use skep_isa::Reg;

/// What the arguments of a call say about its result, and what is recorded about them.
#[derive(Default)]
pub(crate) struct Arguments {
    /// The number of the map argument, and its value.
    pub(crate) map: Option<(u32, Value)>,
    /// The greatest size of the last memory argument.
    pub(crate) size: Option<u32>,
    /// How much memory the call returns.
    pub(crate) allocation: Option<u32>,
    /// The reference that the call takes back.
    pub(crate) released: Option<u32>,
    /// The dynptr that it takes or makes.
    pub(crate) dynptr: Option<Dynptr>,
    /// The bytes of the program's stack that it may write.
    pub(crate) filled: Vec<Filled>,
    /// The reference of its object argument.
    pub(crate) carried: u32,
    /// The object that its kptr argument keeps, as one that this path owns.
    pub(crate) kptr: Option<Kind>,
    /// The type of its per-CPU variable argument.
    pub(crate) variable: Option<u32>,
}

/// The argument of a helper that makes a dynptr over other memory.
const LOCAL: ArgKind = ArgKind::Dynptr(DynptrArg::Make(DynptrKind::Local));

impl<'a> Transfer<'a> {
    /// Checks all arguments of a call.
    pub(crate) fn arguments(&mut self, state: &mut State, proto: &HelperProto) -> Checked<Arguments> {
        let mut known = Arguments::default();
        for (at, arg) in proto.args.iter().enumerate() {
            if matches!(arg, ArgKind::None | ArgKind::Printed) {
                continue;
            }
            let reg = ARGS[at];
            let mut value = self.read(state, reg)?;
            if matches!(arg, ArgKind::Anything | ArgKind::Scalar) {
                value = value.outside_of_arena();
            }
            self.argument(state, proto, at, &value, &mut known)?;
        }
        self.print_registers(state, proto);
        for filled in &known.filled {
            self.notes.add(filled.note());
            filled.apply(state);
        }
        Ok(known)
    }

    /// Checks one argument.
    fn argument(
        &mut self,
        state: &mut State,
        proto: &HelperProto,
        at: usize,
        value: &Value,
        known: &mut Arguments,
    ) -> Checked<()> {
        let reg = ARGS[at];
        match proto.args[at] {
            // Sizes are checked with their memory.
            ArgKind::None | ArgKind::Printed | ArgKind::Size { .. } => {}
            ArgKind::Zero => {
                if value.as_constant() != Some(0) {
                    let violation = expected(proto, reg, "0, since there are no flags", value);
                    return Err(match &*proto.name == "get_local_storage" {
                        true => violation.in_linux("get_local_storage() doesn't support non-zero flags"),
                        false => violation,
                    });
                }
            }
            ArgKind::Anything => {
                let buffer = matches!(self.env.program_type().context, Context::Buffer);
                if value.is_pointer() && !buffer && !self.may_leak() {
                    return Err(expected(proto, reg, "a number", value));
                }
            }
            ArgKind::Scalar => {
                if !value.is_scalar() {
                    return Err(expected(proto, reg, "a number", value));
                }
            }
            ArgKind::Context => {
                // Programs over a buffer have no context. Tail calls alone take their `r1` in its place.
                let context = match self.env.program.entry {
                    Entry::Buffer { len } if proto.ret == RetKind::TailCall => Kind::Buffer { bytes: len },
                    _ => Kind::Context,
                };
                if *value != Value::pointer(context, 0) {
                    return Err(expected(proto, reg, "the context, unchanged", value));
                }
            }
            ArgKind::HostContext => {
                // `callable` has compared the types.
                if proto.only.is_none() || *value != Value::pointer(Kind::Context, 0) {
                    return Err(expected(proto, reg, "the context, unchanged", value));
                }
            }
            ArgKind::ContextOrNull => {
                let null = value.as_constant() == Some(0);
                if !null && *value != Value::pointer(Kind::Context, 0) {
                    return Err(expected(proto, reg, "the context, unchanged, or null", value));
                }
            }
            ArgKind::Map => known.map = Some((self.map_argument(proto, reg, value)?, *value)),
            ArgKind::MapKey => {
                self.check_element(proto, reg, value)?;
                let size = self.argument_map(proto, known)?.key_size();
                known.filled.extend(self.memory(state, proto, reg, value, (size, size), Access::Read)?);
            }
            ArgKind::MapValue(Access::Read) if is_of_sockets(self.argument_map(proto, known)?.kind()) => {
                self.object_argument(proto, reg, value, &["sock_common"], false, true)?;
                self.foreign_socket(value);
            }
            ArgKind::MapValue(access) => {
                self.check_element(proto, reg, value)?;
                let map = self.argument_map(proto, known)?;
                let (size, access) = (map.value_size(), access.in_map(map.kind()));
                known.filled.extend(self.memory(state, proto, reg, value, (size, size), access)?);
            }
            ArgKind::MapValueOrNull(access) => {
                let size = self.argument_map(proto, known)?.value_size();
                if value.as_constant() != Some(0) {
                    known.filled.extend(self.memory(state, proto, reg, value, (size, size), access)?);
                }
            }
            ArgKind::ValueOf => self.value_of(proto, reg, value, known)?,
            ArgKind::FixedMemory { access, bytes } => {
                let moved = !value.offset.unsigned_abs().is_multiple_of(bytes.clamp(1, 8));
                if !self.env.config.abilities.lenient && bytes.is_power_of_two() && moved {
                    return Err(expected(proto, reg, "an address that is a multiple of the size", value));
                }
                known.filled.extend(self.memory(state, proto, reg, value, (bytes, bytes), access)?);
            }
            ArgKind::Memory { .. } if proto.args.contains(&LOCAL) && !value.is_maybe_null() => {
                // A dynptr over such memory would outlive it.
                if !matches!(value.kind, Kind::MapValue { .. }) {
                    return Err(expected(proto, reg, "a map's value", value));
                }
                let sizes = self.size_argument(state, proto, at + 1)?;
                known.filled.extend(self.memory(state, proto, reg, value, sizes, Access::ReadWrite)?);
            }
            ArgKind::Memory { access, nullable } => {
                let sizes = self.size_argument(state, proto, at + 1)?;
                known.size = Some(sizes.1);
                if nullable && value.as_constant() == Some(0) {
                    return null_of_no_bytes(proto, reg, sizes);
                }
                known.filled.extend(self.memory(state, proto, reg, value, sizes, access)?);
            }
            ArgKind::ConstString => self.constant_string(&proto.name, reg, value).map(|_| ())?,
            ArgKind::Format => self.format_argument(state, proto, at, value)?,
            ArgKind::Values => {
                let sizes = self.size_argument(state, proto, at + 1)?;
                match value.as_constant() {
                    Some(0) => null_of_no_bytes(proto, reg, sizes)?,
                    _ => self.values_argument(state, proto, reg, value, sizes)?,
                }
            }
            ArgKind::Callback(_) => self.check_callback(proto, reg, value)?,
            ArgKind::CallbackContext => self.check_callback_context(proto, reg, value)?,
            ArgKind::AllocationSize => {
                known.allocation = Some(self.allocation_size(proto, reg, value)?);
            }
            ArgKind::Record => {
                let null = value.is_maybe_null();
                if null || !matches!(value.kind, Kind::Memory { .. }) {
                    return Err(not_null(proto, reg, "a ring buffer's record", value));
                }
                known.released = Some(self.releasable(state, &proto.name, reg, value, Referent::Record)?);
            }
            ArgKind::SpinLock { takes: true } => self.take_lock(state, &proto.name, reg, value)?,
            ArgKind::SpinLock { takes: false } => self.give_lock(state, &proto.name, reg, value)?,
            ArgKind::Timer => {
                let timer = |kind| kind == SpecialKind::Timer;
                let (holder, _) = self.special_argument(&proto.name, reg, value, "bpf_timer", timer)?;
                if let Holder::Map(map) = holder
                    && proto.args.get(at + 1) == Some(&ArgKind::Map)
                {
                    self.same_map(state, proto, ARGS[at + 1], map, value)?;
                }
            }
            ArgKind::KptrField => {
                let kptr = |kind| matches!(kind, SpecialKind::Kptr { .. } | SpecialKind::KptrPercpu { .. });
                let (_, field) = self.special_argument(&proto.name, reg, value, "kptr", kptr)?;
                known.kptr = self.kept(field);
            }
            ArgKind::Dynptr(wanted) => {
                let dynptr = self.dynptr_argument(state, &proto.name, reg, value, wanted)?;
                if wanted == DynptrArg::Release {
                    known.released = Some(dynptr.reference);
                }
                known.dynptr = Some(dynptr);
            }
            ArgKind::StructOrObject { types, nullable, .. } if matches!(value.kind, Kind::Object { .. }) => {
                self.object_argument(proto, reg, value, types, nullable, true)?;
                self.foreign_socket(value);
                known.carried = value.reference;
            }
            ArgKind::Struct { kinds, nullable } | ArgKind::StructOrObject { kinds, nullable, .. } => {
                self.struct_argument(proto, reg, value, kinds, nullable)?;
                self.foreign_socket(value);
                known.carried = value.reference;
            }
            ArgKind::Object { types, nullable } => {
                self.object_argument(proto, reg, value, types, nullable, false)?;
                known.carried = value.reference;
            }
            ArgKind::PerCpuVariable => known.variable = Some(self.per_cpu_argument(proto, reg, value)?),
            ArgKind::Released { nullable } => {
                if nullable && value.as_constant() == Some(0) {
                    return Ok(());
                }
                let own = matches!(value.kind, Kind::Own { .. });
                let object = matches!(value.kind, Kind::Struct { .. } | Kind::Object { .. })
                    || own && known.kptr.is_some();
                if !object || value.is_maybe_null() {
                    return Err(not_null(proto, reg, "an object that this path holds", value));
                }
                if let Some(kept) = known.kptr
                    && !is_kept_as(kept, value.kind)
                {
                    let text = format!(
                        "{} expects an object like {}, as the field is declared, in {reg}, found {value}",
                        proto.name,
                        Value::pointer(kept, 0)
                    );
                    return Err(Violation::new(Code::Argument, text));
                }
                let what = if own { Referent::Allocated } else { Referent::Object };
                known.released = Some(self.releasable(state, &proto.name, reg, value, what)?);
            }
            _ => {
                let text = format!("{} takes a kind of argument that is not supported yet", proto.name);
                return Err(Violation::new(Code::Unsupported, text));
            }
        }
        Ok(())
    }

    /// Whether the program may leak addresses as numbers.
    pub(crate) fn may_leak(&self) -> bool {
        let config = self.env.config;
        !config.confined && (self.env.program_type().may_leak || config.privileged)
    }

    /// Checks what may be a map's key or value.
    fn check_element(&self, proto: &HelperProto, reg: Reg, value: &Value) -> Checked<()> {
        let other = matches!(value.kind, Kind::Memory { .. } | Kind::Object { .. } | Kind::Buffer { .. });
        match other && !self.env.config.abilities.memory_keys {
            true => Err(expected(proto, reg, "the stack, a packet or a map's value", value)),
            false => Ok(()),
        }
    }

    fn argument_map(&self, proto: &HelperProto, known: &Arguments) -> Checked<MapView<'a>> {
        match known.map {
            Some((map, _)) => self.map(map),
            None => {
                let text = format!("the prototype of {} names a key or value before a map", proto.name);
                Err(Violation::new(Code::Unsupported, text))
            }
        }
    }

    /// The value of the map argument's map itself.
    fn value_of(&self, proto: &HelperProto, reg: Reg, value: &Value, known: &Arguments) -> Checked<()> {
        let def = self.argument_map(proto, known)?;
        let map = known.map.map(|(map, _)| map);
        let fits =
            matches!(value.kind, Kind::MapValue { map: found, maybe_null: false } if Some(found) == map);
        if fits {
            return Ok(());
        }
        Err(not_null(proto, reg, &format!("a value of the map {}", def.name()), value))
    }

    /// Checks that a timer or work queue is initialised with the map that holds it.
    pub(crate) fn same_map(
        &self,
        state: &State,
        proto: &HelperProto,
        reg: Reg,
        map: u32,
        timer: &Value,
    ) -> Checked<()> {
        let given = self.read(state, reg)?;
        let number = self.map_argument(proto, reg, &given)?;
        let of_that_one =
            timer.reference == if number & crate::program::assumed::INNER == 0 { 0 } else { given.id };
        if number == map && of_that_one {
            return Ok(());
        }
        let text = format!(
            "{} expects the map that holds it, {}, in {reg}, found {}",
            proto.name,
            self.map(map)?.name(),
            if number == map { "another that looks like it" } else { self.map(number)?.name() }
        );
        Err(Violation::new(Code::Argument, text))
    }

    fn struct_argument(
        &self,
        proto: &HelperProto,
        reg: Reg,
        value: &Value,
        kinds: &[StructKind],
        nullable: bool,
    ) -> Checked<()> {
        if nullable && value.as_constant() == Some(0) {
            return Ok(());
        }
        let fits = match value.kind {
            Kind::Struct { of, maybe_null } => kinds.contains(&of) && (nullable || !maybe_null),
            _ => false,
        };
        if fits && value.offset == 0 && value.is_fixed() {
            return Ok(());
        }
        let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        let or_null = if nullable { " or null" } else { "" };
        Err(not_null(proto, reg, &format!("{}{or_null}", names.join(" or ")), value))
    }

    /// Records a socket that is not a structure which the runtime hands out for its own sockets.
    fn foreign_socket(&mut self, value: &Value) {
        let own = matches!(
            value.kind,
            Kind::Struct { of: StructKind::SockCommon | StructKind::Sock | StructKind::TcpSock, .. }
        );
        if !own && value.as_constant() != Some(0) {
            self.record.foreign_socket(self.slot);
        }
    }

    /// The size of the memory that the call returns.
    fn allocation_size(&self, proto: &HelperProto, reg: Reg, value: &Value) -> Checked<u32> {
        let Some(size) = value.as_constant() else {
            return Err(expected(proto, reg, "a constant size", value)
                .suggest("pass a constant size, or use a dynptr"));
        };
        match u32::try_from(size) {
            Ok(size) if i64::from(size) < MAX_OFFSET => Ok(size),
            _ => Err(expected(proto, reg, &format!("a size below {MAX_OFFSET}"), value)),
        }
    }

    /// The least and greatest size in argument `at`.
    fn size_argument(&self, state: &State, proto: &HelperProto, at: usize) -> Checked<(u32, u32)> {
        let (Some(reg), Some(ArgKind::Size { zero })) = (ARGS.get(at).copied(), proto.args.get(at).copied())
        else {
            let text = format!("the prototype of {} names memory without its size", proto.name);
            return Err(Violation::new(Code::Unsupported, text));
        };
        let value = self.read(state, reg)?;
        if !value.is_scalar() {
            return Err(expected(proto, reg, "a size", &value));
        }
        let num = &value.num;
        if num.umax >= MAX_OFFSET as u64 {
            let words = match num.smin < 0 {
                true => {
                    format!("R{} min value is negative, either use unsigned or 'var &= const'", reg.number())
                }
                false => format!(
                    "R{} unbounded memory access, use 'var &= const' or 'if (var < const)'",
                    reg.number()
                ),
            };
            return Err(expected(proto, reg, "a bounded size", &value)
                .suggest("bound the size with a comparison or a mask first")
                .in_linux(words));
        }
        if !zero && num.umin == 0 {
            let words = format!("R{} invalid zero-sized read: u64=[{},{}]", reg.number(), num.umin, num.umax);
            return Err(expected(proto, reg, "a size that is not 0", &value)
                .suggest("make sure that the size is at least 1")
                .in_linux(words));
        }
        Ok((num.umin as u32, num.umax as u32))
    }
}

/// Whether a field that keeps objects like `kept` can keep one like `found`.
fn is_kept_as(kept: Kind, found: Kind) -> bool {
    match (kept, found) {
        (Kind::Object { ty, .. }, Kind::Object { ty: found, .. }) => ty == found,
        (Kind::Own { .. }, Kind::Own { .. }) => kept == found.not_null(),
        (Kind::Own { .. }, _) | (_, Kind::Own { .. }) => false,
        _ => true,
    }
}

#[cold]
pub(crate) fn expected(proto: &HelperProto, reg: Reg, what: &str, found: &Value) -> Box<Violation> {
    let violation =
        Violation::new(Code::Argument, format!("{} expects {what} in {reg}, found {found}", proto.name));
    if found.kind == Kind::Context && found.offset != 0 && what.starts_with("the context") {
        return violation.in_linux(words::moved_context(reg, found.offset));
    }
    let kind = usize::from(reg.number()).checked_sub(1).and_then(|at| proto.args.get(at));
    match kind.map(kinds_in_linux) {
        Some(kinds @ [_, ..]) => violation.in_linux(words::argument(reg, found, kinds)),
        _ => violation,
    }
}

/// The kinds of values that Linux's log lists for an argument, the first ones at least.
fn kinds_in_linux(kind: &ArgKind) -> &'static [&'static str] {
    const MEMORY: &[&str] =
        &["fp", "pkt", "pkt_meta", "map_key", "map_value", "mem", "ringbuf_mem", "buf", "trusted_ptr_"];
    match kind {
        ArgKind::Zero | ArgKind::Anything | ArgKind::Scalar | ArgKind::Size { .. } => &["scalar"],
        ArgKind::AllocationSize => &["scalar"],
        ArgKind::Context | ArgKind::HostContext | ArgKind::ContextOrNull => &["ctx"],
        ArgKind::Map => &["map_ptr"],
        ArgKind::MapKey
        | ArgKind::MapValue(_)
        | ArgKind::MapValueOrNull(_)
        | ArgKind::FixedMemory { .. }
        | ArgKind::Memory { .. }
        | ArgKind::Values => MEMORY,
        ArgKind::ConstString | ArgKind::Format | ArgKind::Timer | ArgKind::ValueOf => &["map_value"],
        ArgKind::SpinLock { .. } => &["map_value", "ptr_"],
        ArgKind::KptrField => &["map_value", "ptr_"],
        ArgKind::Callback(_) => &["func"],
        ArgKind::CallbackContext => &["fp"],
        ArgKind::Record => &["ringbuf_mem"],
        ArgKind::Released { .. } => &["sock_common", "sock", "tcp_sock", "xdp_sock", "ptr_"],
        ArgKind::Dynptr(_) => &["fp", "dynptr_ptr"],
        ArgKind::PerCpuVariable => &["percpu_ptr_", "percpu_rcu_ptr_", "percpu_trusted_ptr_"],
        ArgKind::Struct { kinds, .. } | ArgKind::StructOrObject { kinds, .. } => match kinds {
            [StructKind::Sock] => &["sock"],
            [StructKind::TcpSock] => &["tcp_sock"],
            _ => &["sock_common", "sock", "tcp_sock", "xdp_sock", "ptr_", "trusted_ptr_"],
        },
        _ => &[],
    }
}

/// Null is allowed only with size 0.
fn null_of_no_bytes(proto: &HelperProto, reg: Reg, (_, most): (u32, u32)) -> Checked<()> {
    if most == 0 {
        return Ok(());
    }
    let text = format!("{} is given null in {reg} with a size that is not 0", proto.name);
    let words = words::argument(reg, &Value::constant(0), kinds_in_linux(&ArgKind::MapKey));
    Err(Violation::new(Code::Argument, text).in_linux(words))
}

/// The same, with the class of missing null checks if that is all that is wrong.
#[cold]
fn not_null(proto: &HelperProto, reg: Reg, what: &str, found: &Value) -> Box<Violation> {
    let mut violation = expected(proto, reg, what, found);
    if found.is_maybe_null() {
        violation.code = Code::MaybeNull;
        violation = violation.suggest(CHECK_NULL);
    }
    violation
}
