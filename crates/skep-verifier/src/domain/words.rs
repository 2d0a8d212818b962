//! What Linux's verifier says of a violation.
//!
//! Tools and suites search the log of a refused load for these words, so that they are part of the interface, beside
//! the reason in skep's own words. They are facts about Linux 6.12, as its log shows them; the names of values are
//! those of its states.
//!
//! ```text
//!   expected an access inside of the 8-byte value of the map flows, found bytes 8..16 in r0     the reason
//!   invalid access to map value, value_size=8 off=8 size=8                                      the words
//!   R0 min value is outside of the allowed memory range
//! ```

use crate::domain::tnum::Tnum;
use crate::domain::value::{Kind, MAX_OFFSET, Trust, Value, is_lent};
use skep_isa::{AluOp, Reg};

/// What bounds an access.
#[derive(Clone, Copy)]
pub(crate) enum Bounded {
    MapValue(u32),
    MapKey(u32),
    Memory(u32),
}

/// A value's kind, as the log names it. Objects are named without their types.
pub(crate) fn kind(value: &Value) -> String {
    let or_null = if value.is_maybe_null() { "_or_null" } else { "" };
    let name = match value.kind {
        Kind::Uninit | Kind::Clobbered { .. } => "?",
        Kind::Scalar | Kind::Stale { .. } | Kind::PacketHalf => "scalar",
        Kind::Stack { .. } | Kind::Opaque { .. } => "fp",
        Kind::Context => "ctx",
        Kind::Packet => "pkt",
        Kind::PacketMeta => "pkt_meta",
        Kind::PacketEnd => "pkt_end",
        Kind::Slice { .. } => "slice",
        Kind::SliceEnd { .. } => "slice_end",
        Kind::Map { .. } | Kind::InnerMap { .. } => "map_ptr",
        Kind::MapValue { .. } => "map_value",
        Kind::MapKey { .. } => "map_key",
        Kind::Buffer { .. } => "mem",
        Kind::Memory { read_only: true, .. } => "rdonly_mem",
        Kind::Memory { .. } if value.reference != 0 && !is_lent(value.reference) => "ringbuf_mem",
        Kind::Memory { .. } => "mem",
        Kind::Function { .. } => "func",
        Kind::Struct { of, .. } => of.name(),
        Kind::Arena => "arena",
        Kind::Own { held, .. } => return format!("{}ptr{or_null}_", held.prefix()),
        Kind::Object { trust, .. } => {
            let trust = match trust {
                Trust::Untrusted => "untrusted_",
                Trust::Walked => "",
                Trust::PerCpu => "percpu_",
                Trust::ReadSection => "rcu_",
                Trust::Trusted => "trusted_",
            };
            return format!("{trust}ptr{or_null}_");
        }
    };
    format!("{name}{or_null}")
}

/// What is known of a number's bits.
pub(crate) fn bits(bits: Tnum) -> String {
    format!("({:#x}; {:#x})", bits.value, bits.mask)
}

/// A register that cannot be the address of an access.
pub(crate) fn no_memory(reg: Reg, value: &Value) -> String {
    format!("R{} invalid mem access '{}'", reg.number(), kind(value))
}

/// Memory that may only be read.
pub(crate) fn read_only(reg: Reg, value: &Value) -> String {
    format!("R{} cannot write into {}", reg.number(), kind(value))
}

/// An access of `size` bytes at `fixed` plus the variable part of `pointer`, outside of its object.
pub(crate) fn outside(reg: Reg, pointer: &Value, fixed: i64, size: i64, of: Bounded) -> String {
    let reg = reg.number();
    let access = |off: i64| match of {
        Bounded::MapValue(bytes) => {
            format!("invalid access to map value, value_size={bytes} off={off} size={size}")
        }
        Bounded::MapKey(bytes) => {
            format!("invalid access to map key, key_size={bytes} off={off} size={size}")
        }
        Bounded::Memory(bytes) => format!("invalid access to memory, mem_size={bytes} off={off} size={size}"),
    };
    let (Bounded::MapValue(bytes) | Bounded::MapKey(bytes) | Bounded::Memory(bytes)) = of;
    let inside = |off: i64| off >= 0 && off + size <= i64::from(bytes);
    let num = &pointer.num;
    let low = fixed.saturating_add(num.smin);
    if num.smin < 0 && (num.smin < -MAX_OFFSET || low < 0) {
        return negative(reg);
    }
    if !inside(low) {
        return format!("{}\nR{reg} min value is outside of the allowed memory range", access(low));
    }
    if num.umax >= MAX_OFFSET as u64 {
        return format!("R{reg} unbounded memory access, make sure to bounds check any such access");
    }
    format!(
        "{}\nR{reg} max value is outside of the allowed memory range",
        access(fixed.saturating_add(num.umax as i64))
    )
}

fn negative(reg: u8) -> String {
    format!("R{reg} min value is negative, either use unsigned index or do a if (index >=0) check.")
}

/// The same in a packet.
pub(crate) fn outside_of_packet(reg: Reg, pointer: &Value, fixed: i64, size: i64) -> String {
    let reg = reg.number();
    if pointer.num.smin < 0 {
        return negative(reg);
    }
    format!(
        "invalid access to packet, off={fixed} size={size}, R{reg}(id={},off={},r={})\n\
         R{reg} offset is outside of the packet",
        pointer.id, pointer.offset, pointer.range
    )
}

/// The same in a stack, where Linux looks first whether an access is aligned; `access` is ` read from`, ` write to` or
/// ` indirect access to`.
pub(crate) fn outside_of_stack(reg: Reg, pointer: &Value, fixed: i64, size: i64, access: &str) -> String {
    let reg = reg.number();
    if pointer.is_fixed() {
        let direct = !access.contains("indirect") && u32::try_from(size).is_ok_and(u32::is_power_of_two);
        if direct && fixed % size != 0 {
            let offset = fixed - i64::from(pointer.offset);
            return misaligned("stack ", Tnum::constant(0), pointer.offset.into(), offset, size as u32);
        }
        return format!("invalid{access} stack R{reg} off={fixed} size={size}");
    }
    if pointer.num.smin <= -MAX_OFFSET || pointer.num.smax >= MAX_OFFSET {
        return format!("invalid unbounded variable-offset{access} stack R{reg}");
    }
    let bits = bits(pointer.num.bits);
    format!("invalid variable-offset{access} stack R{reg} var_off={bits} off={fixed} size={size}")
}

/// An access of the context that its fields do not allow. Under strict alignment, Linux looks at that first.
pub(crate) fn context(reg: Reg, pointer: &Value, at: i64, size: u32, strict: bool) -> String {
    if pointer.offset != 0 {
        return moved_context(reg, pointer.offset);
    }
    if !pointer.is_fixed() {
        return format!("variable ctx access var_off={} disallowed", bits(pointer.num.bits));
    }
    if strict && size.is_power_of_two() && at % i64::from(size) != 0 {
        return misaligned("context ", Tnum::constant(0), 0, at, size);
    }
    format!("invalid bpf_context access off={at} size={size}")
}

/// The same of a structure of its own.
pub(crate) fn structure(reg: Reg, pointer: &Value, at: i64, size: u32) -> String {
    match pointer.kind {
        Kind::Struct { of: skep_abi::StructKind::FlowKeys, .. } => {
            format!("invalid access to flow keys off={at} size={size}")
        }
        _ => format!("R{} invalid {} access off={at} size={size}", reg.number(), kind(pointer)),
    }
}

/// An address that is not a multiple of `size`; `what` is the object with a space, or empty.
pub(crate) fn misaligned(what: &str, variable: Tnum, fixed: i64, offset: i64, size: u32) -> String {
    let variable = match variable.mask {
        0 => (variable.value as i64).to_string(),
        _ => bits(variable),
    };
    format!("misaligned {what}access off {variable}+{fixed}+{offset} size {size}")
}

/// Arithmetic that a pointer does not allow; `a` is in `dst`.
pub(crate) fn arithmetic(op: AluOp, dst: Reg, a: &Value, b: &Value, narrow: bool) -> String {
    let number = dst.number();
    let pointer = if a.is_pointer() { a } else { b };
    if a.is_pointer() && b.is_pointer() {
        return format!("R{number} pointer {}= pointer prohibited", op.symbol());
    }
    if narrow {
        return format!("R{number} 32-bit pointer arithmetic prohibited");
    }
    match op {
        _ if pointer.is_maybe_null() => {
            format!("R{number} pointer arithmetic on {} prohibited, null-check it first", kind(pointer))
        }
        AluOp::Sub if a.is_scalar() => format!("R{number} tried to subtract pointer from scalar"),
        AluOp::Add | AluOp::Sub => format!("R{number} pointer arithmetic on {} prohibited", kind(pointer)),
        AluOp::And | AluOp::Or | AluOp::Xor => {
            format!("R{number} bitwise operator {}= on pointer prohibited", op.symbol())
        }
        _ => format!("R{number} pointer arithmetic with {}= operator prohibited", op.symbol()),
    }
}

/// A number that moves the pointer in `reg` too far. Linux adds numbers that are only large, and refuses the access.
pub(crate) fn too_far(op: AluOp, reg: Reg, pointer: &Value, number: &Value) -> String {
    let name = kind(pointer);
    let limits = -MAX_OFFSET + 1..MAX_OFFSET;
    match number.as_constant() {
        Some(constant) if limits.contains(&(constant as i64)) => {
            let moved = if op == AluOp::Sub { -(constant as i64) } else { constant as i64 };
            format!("{name} pointer offset {} is not allowed", i64::from(pointer.offset) + moved)
        }
        Some(constant) => format!("math between {name} pointer and {} is not allowed", constant as i64),
        None if number.num.smin == i64::MIN => {
            format!("math between {name} pointer and register with unbounded min value is not allowed")
        }
        None if !limits.contains(&number.num.smin) => {
            format!("value {} makes {name} pointer be out of bounds", number.num.smin)
        }
        None => {
            format!("R{} unbounded memory access, make sure to bounds check any such access", reg.number())
        }
    }
}

/// A context that was moved, where it may not be.
pub(crate) fn moved_context(reg: Reg, offset: i32) -> String {
    match offset < 0 {
        true => format!("negative offset ctx ptr R{} off={offset} disallowed", reg.number()),
        false => format!("dereference of modified ctx ptr R{} off={offset} disallowed", reg.number()),
    }
}

/// A result that is not in a range, where `at` is `At program exit` and the like.
pub(crate) fn result(at: &str, reg: Reg, result: &Value, (min, max): (i32, i32)) -> String {
    let mut text = format!("{at} the register R{} has", reg.number());
    let num = &result.num;
    let (low, high) = (num.smin > i64::MIN, num.smax < i64::MAX);
    if low {
        text += &format!(" smin={}", num.smin);
    }
    if high {
        text += &format!(" smax={}", num.smax);
    }
    if !low && !high {
        text += " unknown scalar value";
    }
    text + &format!(" should have been in [{min}, {max}]")
}

/// An argument of another kind than those that a call takes.
pub(crate) fn argument(reg: Reg, found: &Value, expected: &[&str]) -> String {
    format!("R{} type={} expected={}", reg.number(), kind(found), expected.join(", "))
}
