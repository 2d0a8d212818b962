//! Instructions, values and states in the syntax of the log of Linux's verifier.
//!
//! ```text
//!   (79) r6 = *(u64 *)(r1 +8)             R6_w=scalar(id=1,smin=0,smax=umax=255,var_off=(0x0; 0xff))
//!   (15) if r0 == 0x0 goto pc+3           R0=map_value_or_null(id=2,map=flows,ks=4,vs=8) R10=fp0 fp-8=mmmm????
//! ```
//!
//! Tools for logs of Linux can parse these lines; the content is skep's own.

use crate::domain::scalar::Scalar;
use crate::domain::stack::{STACK_BYTES, Stack};
use crate::domain::state::{Frame, State};
use crate::domain::value::{Kind, Opaque, Trust, Value, is_lent};
use crate::program::assumed::Maps;
use skep_abi::{HelperProto, linux_helper, own_kfunc};
use skep_btf::Btf;
use skep_isa::{AtomicOp, ByteOrder, CallTarget, Imm64, Insn, Operand, PacketBase, Reg, Width};
use std::fmt::Write;

/// The names that texts need.
pub(crate) struct Names<'a> {
    pub(crate) maps: &'a Maps,
    /// The host's types.
    pub(crate) btf: Option<&'a Btf>,
    pub(crate) helpers: &'a dyn Fn(u32) -> Option<&'a HelperProto>,
}

impl Names<'_> {
    /// An instruction without its opcode.
    pub(crate) fn insn(&self, insn: &Insn) -> String {
        match *insn {
            Insn::Alu { width, op, dst, src } => {
                format!("{} {}= {}", reg(width, dst), op.symbol(), operand(width, src))
            }
            Insn::Neg { width, dst } => format!("{0} = -{0}", reg(width, dst)),
            Insn::MovSx { width, from, dst, src } => {
                format!("{} = (s{}){}", reg(width, dst), from.bits(), reg(width, src))
            }
            Insn::AddrSpaceCast { dst, src, to, from } => {
                format!("{dst} = addr_space_cast({src}, {to}, {from})")
            }
            Insn::Endian { order, size, dst } => {
                let name = match order {
                    ByteOrder::ToLittle => "le",
                    ByteOrder::ToBig => "be",
                    ByteOrder::Swap => "bswap",
                };
                format!("{dst} = {name}{} {dst}", size.bits())
            }
            // Addresses of maps and functions are not shown, only their values.
            Insn::LoadImm64 { dst, value } => match value {
                Imm64::Value(value) => format!("{dst} = {value:#x}"),
                _ => format!("{dst} = 0x0"),
            },
            Insn::LoadImm64Tail => "second slot of the immediate".to_owned(),
            Insn::Load { size, signed, dst, base, offset } => {
                let sign = if signed { 's' } else { 'u' };
                format!("{dst} = *({sign}{} *)({base} {offset:+})", size.bits())
            }
            Insn::Store { size, base, offset, src } => {
                format!("*(u{} *)({base} {offset:+}) = {}", size.bits(), operand(Width::W64, src))
            }
            Insn::Atomic { .. } | Insn::LoadAcquire { .. } | Insn::StoreRelease { .. } => atomic(insn),
            Insn::LoadPacket { size, base, imm } => match base {
                PacketBase::Absolute => format!("r0 = *(u{} *)skb[{imm}]", size.bits()),
                PacketBase::Indirect(index) => format!("r0 = *(u{} *)skb[{index} + {imm}]", size.bits()),
            },
            Insn::Jump { offset, long } => {
                format!("{} pc{offset:+}", if long { "gotol" } else { "goto" })
            }
            Insn::JumpIf { width, cond, dst, src, offset } => {
                let src = match src {
                    Operand::Reg(src) => reg(width, src),
                    Operand::Imm(imm) => format!("{imm:#x}"),
                };
                format!("if {} {} {src} goto pc{offset:+}", reg(width, dst), cond.symbol())
            }
            Insn::MayGoto { offset } => format!("may_goto pc{offset:+}"),
            Insn::Call { target: CallTarget::Helper(id) } => format!("call {}#{id}", self.helper(id)),
            Insn::Call { target: CallTarget::Local(offset) } => format!("call pc{offset:+}"),
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => format!("call kfunc#{id}"),
            Insn::CallReg { reg } => format!("callx {reg}"),
            Insn::Exit => "exit".to_owned(),
        }
    }

    /// A helper's name, with Linux's prefix for Linux's helpers.
    fn helper(&self, id: u32) -> String {
        match (self.helpers)(id) {
            Some(proto) if proto.id == id && proto.is_of_linux() => {
                format!("bpf_{}", proto.name)
            }
            Some(proto) => proto.name.to_string(),
            None => linux_helper(id).map_or("unknown".to_owned(), |proto| format!("bpf_{}", proto.name)),
        }
    }

    /// An instruction in assembler, with the name of the helper or of the host's function that it calls.
    pub(crate) fn assembler(&self, insn: &Insn) -> String {
        match self.called(insn) {
            Some(name) => format!("call {name}"),
            None => insn.to_string(),
        }
    }

    /// The name of the function that an instruction calls, if it has one.
    fn called(&self, insn: &Insn) -> Option<String> {
        let Insn::Call { target } = *insn else { return None };
        match target {
            CallTarget::Helper(id) => (self.helpers)(id).or(linux_helper(id)).map(|_| self.helper(id)),
            CallTarget::Kfunc { id, .. } => match own_kfunc(id as u32) {
                Some(own) => Some(own.name.to_owned()),
                None => self.btf?.name(id as u32).ok().filter(|name| !name.is_empty()).map(str::to_owned),
            },
            CallTarget::Local(_) => None,
        }
    }

    /// A reason with names for the calls that it names by slot: `the call of bpf_sk_release in 12`.
    pub(crate) fn with_calls(&self, insns: &[Insn], text: &str) -> String {
        const CALL: &str = "the call in ";
        let mut named = String::with_capacity(text.len() + 32);
        let mut parts = text.split(CALL);
        named.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let insn = part[..digits].parse().ok().and_then(|slot: usize| insns.get(slot));
            named.push_str(&match insn {
                Some(insn @ (Insn::Call { .. } | Insn::CallReg { .. })) => match self.called(insn) {
                    Some(name) => format!("the call of {name} in "),
                    None => CALL.to_owned(),
                },
                _ => "the instruction in ".to_owned(),
            });
            named.push_str(part);
        }
        named
    }

    /// A map's name and sizes.
    fn map(&self, index: u32) -> String {
        match self.maps.get(index) {
            Some(map) => map.shown(),
            None => format!("map={index}"),
        }
    }

    /// A value in a register or stack slot of frame `frame`.
    pub(crate) fn value(&self, value: &Value, frame: u8) -> String {
        let or_null = |maybe_null: bool| if maybe_null { "_or_null" } else { "" };
        let (name, of) = match value.kind {
            Kind::Uninit | Kind::Clobbered { .. } => return "?".to_owned(),
            Kind::Scalar => return scalar(&value.num, value.id, value.offset),
            Kind::Stack { frame: owner } => {
                let owner = if owner == frame { String::new() } else { format!("[{owner}]") };
                if value.is_fixed() {
                    return match value.offset {
                        0 => format!("fp{owner}0"),
                        offset => format!("fp{owner}{offset}"),
                    };
                }
                (format!("fp{owner}"), String::new())
            }
            Kind::Context => ("ctx".to_owned(), String::new()),
            Kind::Packet => ("pkt".to_owned(), String::new()),
            Kind::PacketMeta => ("pkt_meta".to_owned(), String::new()),
            Kind::PacketEnd => return "pkt_end()".to_owned(),
            Kind::Slice { slice, .. } => ("slice".to_owned(), format!("slice={slice}")),
            Kind::SliceEnd { slice } => return format!("slice_end({slice})"),
            // Linux shows these as numbers: it lets root see addresses.
            Kind::PacketHalf | Kind::Stale { .. } => return "scalar()".to_owned(),
            Kind::Map { map } => return format!("map_ptr({})", self.map(map)),
            Kind::MapValue { map, maybe_null } => {
                (format!("map_value{}", or_null(maybe_null)), self.map(map))
            }
            Kind::Buffer { bytes } => ("mem".to_owned(), format!("sz={bytes}")),
            Kind::MapKey { map } => ("map_key".to_owned(), self.map(map)),
            Kind::Memory { bytes, read_only, maybe_null } => {
                let read_only = if read_only { "rdonly_" } else { "" };
                (format!("{read_only}mem{}", or_null(maybe_null)), format!("sz={bytes}"))
            }
            Kind::InnerMap { map, maybe_null } => (format!("map_ptr{}", or_null(maybe_null)), self.map(map)),
            Kind::Function { .. } => return "func()".to_owned(),
            Kind::Struct { of, maybe_null } => {
                (format!("{}{}", of.name(), or_null(maybe_null)), String::new())
            }
            Kind::Object { ty, trust, maybe_null } => {
                let trust = match trust {
                    Trust::Untrusted => "untrusted_",
                    Trust::Walked => "",
                    Trust::PerCpu => "percpu_",
                    Trust::ReadSection => "rcu_",
                    Trust::Trusted => "trusted_",
                };
                (format!("{trust}ptr{}", or_null(maybe_null)), format!("type={ty}"))
            }
            Kind::Arena => return "arena".to_owned(),
            Kind::Own { ty, held, per_cpu, maybe_null } => {
                let per_cpu = if per_cpu { "percpu_" } else { "" };
                (format!("{}{per_cpu}ptr{}", held.prefix(), or_null(maybe_null)), format!("own_type={ty}"))
            }
            Kind::Opaque { of: Opaque::Dynptr { .. } } => return format!("dynptr(id={})", value.id),
            Kind::Opaque { of: Opaque::Iterator { .. } } => return format!("iter(id={})", value.id),
        };
        let mut items = Vec::new();
        let mut named = |name: &str, number: i64| items.push(format!("{name}={number}"));
        if value.id != 0 {
            named("id", value.id.into());
        }
        if value.reference != 0 && !is_lent(value.reference) {
            named("ref_obj_id", value.reference.into());
        }
        if !of.is_empty() {
            items.push(of);
        }
        let mut named = |name: &str, number: i64| items.push(format!("{name}={number}"));
        if value.offset != 0 {
            named("off", value.offset.into());
        }
        if value.has_range() {
            named("r", value.range.into());
        }
        if !value.is_fixed() {
            items.extend(limits(&value.num));
        }
        format!("{name}({})", items.join(","))
    }

    /// The registers and the stack of the innermost frame.
    pub(crate) fn state(&self, state: &State) -> String {
        let mut text = frame_prefix(state.top_index());
        let frame = state.top();
        for reg in Reg::ALL {
            let value = &frame.regs[reg];
            if value.is_made() {
                let _ = write!(text, "R{}={} ", reg.number(), self.value(value, state.top_index()));
            }
        }
        for start in (0..STACK_BYTES).step_by(8).rev() {
            if let Some(slot) = self.slot(frame, start, state.top_index()) {
                let _ = write!(text, "fp{}={slot} ", stack_offset(start));
            }
        }
        for reference in &state.resources.references {
            let _ = write!(text, "refs={} ", reference.id);
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Eight bytes of a stack; `None` if none was written.
    pub(crate) fn slot(&self, frame: &Frame, start: u32, at: u8) -> Option<String> {
        let stack: &Stack = &frame.stack;
        let end = start + 8;
        if !stack.init.has_any(start, end) {
            let mut cells = stack.cells.iter().filter(|cell| u32::from(cell.start) == start);
            return cells.next().map(|cell| self.value(&cell.value, at));
        }
        let whole = stack.cells.iter().find(|cell| u32::from(cell.start) == start && cell.size == 8);
        if let Some(cell) = whole {
            return Some(self.value(&cell.value, at));
        }
        let byte = |at: u32| match (stack.init.has_all(at, at + 1), stack.zero.has_all(at, at + 1)) {
            (false, _) => '?',
            (true, true) => '0',
            (true, false) => 'm',
        };
        Some((start..end).rev().map(byte).collect())
    }
}

/// `frame1: ` in a function that was called.
pub(crate) fn frame_prefix(frame: u8) -> String {
    if frame == 0 { String::new() } else { format!("frame{frame}: ") }
}

/// The offset from `r10` of a byte that is counted from the bottom of the stack.
pub(crate) fn stack_offset(start: u32) -> i32 {
    start as i32 - STACK_BYTES as i32
}

/// A number: its value, or what is known of it.
fn scalar(num: &Scalar, id: u32, offset: i32) -> String {
    if let Some(value) = num.as_constant() {
        return signed(value as i64);
    }
    let mut items = Vec::new();
    if id != 0 {
        items.push(match offset {
            0 => format!("id={id}"),
            _ => format!("id={id}{offset:+}"),
        });
    }
    items.extend(limits(num));
    format!("scalar({})", items.join(","))
}

/// The limits that are not trivial; equal ones share one value: `smin=0,smax=umax=255`.
fn limits(num: &Scalar) -> Vec<String> {
    // Name, value, and whether it is trivial.
    let all = [
        ("smin", signed(num.smin), num.smin == i64::MIN),
        ("smax", signed(num.smax), num.smax == i64::MAX),
        ("umin", unsigned(num.umin), num.umin == 0),
        ("umax", unsigned(num.umax), num.umax == u64::MAX),
        ("smin32", signed(num.smin32.into()), num.smin32 == i32::MIN),
        ("smax32", signed(num.smax32.into()), num.smax32 == i32::MAX),
        ("umin32", unsigned(num.umin32.into()), num.umin32 == 0),
        ("umax32", unsigned(num.umax32.into()), num.umax32 == u32::MAX),
    ];
    let mut items: Vec<String> = Vec::new();
    for (at, (_, value, nothing)) in all.iter().enumerate() {
        if *nothing || all[..at].iter().any(|(_, before, nothing)| !nothing && before == value) {
            continue;
        }
        let names: Vec<&str> = all[at..]
            .iter()
            .filter(|(_, other, nothing)| !nothing && other == value)
            .map(|(name, ..)| *name)
            .collect();
        items.push(format!("{}={value}", names.join("=")));
    }
    if num.bits.mask != u64::MAX {
        items.push(format!("var_off=({:#x}; {:#x})", num.bits.value, num.bits.mask));
    }
    items
}

/// Small numbers are decimal, large ones hexadecimal.
fn unsigned(number: u64) -> String {
    if number <= u64::from(u16::MAX) { number.to_string() } else { format!("{number:#x}") }
}

fn signed(number: i64) -> String {
    match i16::try_from(number) {
        Ok(small) => small.to_string(),
        Err(_) => format!("{number:#x}"),
    }
}

fn reg(width: Width, reg: Reg) -> String {
    format!("{}{}", if width == Width::W32 { 'w' } else { 'r' }, reg.number())
}

fn operand(width: Width, operand: Operand) -> String {
    match operand {
        Operand::Reg(src) => reg(width, src),
        Operand::Imm(imm) => imm.to_string(),
    }
}

fn atomic(insn: &Insn) -> String {
    match *insn {
        Insn::Atomic { op, size, base, offset, src } => {
            let bits = size.bits();
            let place = format!("(u{bits} *)({base} {offset:+})");
            let wide = if bits == 64 { "64" } else { "" };
            let (symbol, name) = match op {
                AtomicOp::Add { .. } => ("+", "add"),
                AtomicOp::Or { .. } => ("|", "or"),
                AtomicOp::And { .. } => ("&", "and"),
                AtomicOp::Xor { .. } => ("^", "xor"),
                AtomicOp::Xchg => return format!("{src} = atomic{wide}_xchg({place}, {src})"),
                AtomicOp::CmpXchg => return format!("r0 = atomic{wide}_cmpxchg({place}, r0, {src})"),
            };
            if op.fetches() {
                format!("{src} = atomic{wide}_fetch_{name}({place}, {src})")
            } else {
                format!("lock *{place} {symbol}= {src}")
            }
        }
        Insn::LoadAcquire { size, dst, base, offset } => {
            format!("{dst} = load_acquire((u{} *)({base} {offset:+}))", size.bits())
        }
        Insn::StoreRelease { size, base, offset, src } => {
            format!("store_release((u{} *)({base} {offset:+}), {src})", size.bits())
        }
        _ => String::new(),
    }
}
