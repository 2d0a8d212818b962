//! Comparisons with at least one pointer: null checks and packet ranges.
//!
//! With `p = data + variable + offset`, what a comparison with `data_end` says:
//!
//! ```text
//!   p <= end   the bytes before p are there      range >= offset
//!   p <  end   the byte at p is there as well    range >= offset + 1
//! ```

use crate::domain::comparison::{mirrored, negated};
use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::domain::value::{Hold, Kind, MAX_OFFSET, Trust, Value};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::stale::may_compare_stale;
use skep_isa::{Cond, Operand, Reg, Width};

/// No range is found for a packet pointer that may be further from the start than the longest packet.
pub(crate) const MAX_PACKET_OFFSET: u64 = 0xffff;

/// Nothing is ever mapped below this address (Linux's default for `vm.mmap_min_addr`).
const LOWEST_ADDRESS: i32 = 0x10000;

/// Which ways a comparison can go: taken, not taken.
pub(crate) type Ways = (bool, bool);

/// What one way says about the pointers.
#[derive(Clone, Copy)]
pub(crate) enum Lesson {
    Nothing,
    /// All pointers of that id are null, or none is.
    Null {
        id: u32,
        null: bool,
        /// Whether those that are not null keep the id.
        keep: bool,
    },
    /// The pointers of that kind and id have this range.
    Range {
        kind: Kind,
        id: u32,
        range: u32,
    },
}

/// What a comparison with a pointer says if it holds, and if it does not.
pub(crate) struct PointerTest {
    pub(crate) ways: Ways,
    pub(crate) taken: Lesson,
    pub(crate) not_taken: Lesson,
}

impl Transfer<'_> {
    /// Checks a comparison with at least one pointer, and finds what follows from it.
    pub(crate) fn compare_pointers(
        &self,
        width: Width,
        cond: Cond,
        dst: Reg,
        src: Operand,
        a: &Value,
        b: &Value,
    ) -> Checked<PointerTest> {
        let nothing = PointerTest { ways: (true, true), taken: Lesson::Nothing, not_taken: Lesson::Nothing };
        let refused = |expected: &str| {
            let other = match src {
                Operand::Reg(src) => format!(" with {src}, which is {b}"),
                Operand::Imm(imm) => format!(" with {imm}"),
            };
            let text = format!("{expected}, found a comparison of {dst}, which is {a},{other}");
            Err(Violation::new(Code::PointerLeak, text))
        };
        let (a, b) = (&a.outside_of_arena(), &b.outside_of_arena());
        if a.is_scalar() && b.is_scalar() {
            return Ok(nothing);
        }
        if a.is_stale() || b.is_stale() {
            let (reg, stale) = match src {
                Operand::Reg(src) if !a.is_stale() => (src, b),
                _ => (dst, a),
            };
            return match may_compare_stale(width, cond, a, b) {
                true => Ok(nothing),
                false => Err(self.unreadable(reg, stale)),
            };
        }
        if width == Width::W32 && (self.may_leak() || as_fields(cond, a, b)) {
            return Ok(nothing);
        }
        if width == Width::W32 {
            return refused("pointers may only be compared with all their 64 bits");
        }
        if a.is_scalar() || b.is_scalar() {
            let (pointer, number) = if a.is_scalar() { (b, a) } else { (a, b) };
            let null = number.as_constant() == Some(0) && matches!(cond, Cond::Eq | Cond::Ne);
            if !null && self.may_leak() {
                return Ok(nothing);
            }
            if !null {
                return refused("a pointer may only be compared with null or a pointer of its kind");
            }
            let is_plain = matches!(src, Operand::Imm(_))
                && !matches!(
                    pointer.kind,
                    Kind::Context | Kind::Stack { .. } | Kind::Packet | Kind::PacketMeta
                );
            if !self.env.config.abilities.lenient && !is_plain {
                return Ok(nothing);
            }
            return Ok(null_test(cond, pointer, self.keeps_identity(pointer.kind)));
        }
        if cond == Cond::Set && self.may_leak() {
            return Ok(nothing);
        }
        if cond == Cond::Set {
            return refused("a pointer's bits may not be tested");
        }
        let orders = self.env.config.abilities.lenient || !matches!(cond, Cond::Eq | Cond::Ne);
        if let Some((pointer, cond)) = against_end(a, b, cond).filter(|_| orders) {
            return Ok(PointerTest {
                ways: decided(pointer, cond),
                taken: found_range(pointer, cond),
                not_taken: negated(cond).map_or(Lesson::Nothing, |cond| found_range(pointer, cond)),
            });
        }
        if self.env.config.abilities.equal_objects
            && let Some(test) = with_an_object(cond, a, b, |kind| self.keeps_identity(kind))
        {
            return Ok(test);
        }
        // Pointers to different objects may be compared: compilers compare a pointer into a
        // copy of a header with the packet's end.
        let alike = a.kind.not_null() == b.kind.not_null();
        let whole = a.kind != Kind::PacketHalf && b.kind != Kind::PacketHalf;
        let packet = |value: &Value| matches!(value.kind, Kind::Packet | Kind::PacketMeta | Kind::PacketEnd);
        let told = matches!(cond, Cond::Eq | Cond::Ne)
            || packet(a)
            || packet(b)
            || (a.slice().is_some() && a.slice() == b.slice());
        if alike || (whole && told) || self.may_leak() {
            Ok(nothing)
        } else {
            refused("pointers of different kinds may not be compared")
        }
    }
}

impl Lesson {
    /// Applies it to every copy, in all frames.
    pub(crate) fn apply(self, state: &mut State) {
        match self {
            Self::Nothing => {}
            Self::Null { id, null, keep } => {
                if null {
                    state.resources.was_null(id);
                }
                state.change_values(
                    |value| value.id == id && value.is_maybe_null(),
                    |value| {
                        if null {
                            *value = Value::constant(0);
                        } else {
                            value.kind = value.kind.not_null();
                            if !keep {
                                value.id = 0;
                            }
                        }
                    },
                );
            }
            Self::Range { kind, id, range } => state.change_values(
                |value| value.kind == kind && value.id == id,
                |value| value.range = value.range.max(range),
            ),
        }
    }
}

/// Whether a comparison in 32 bits is one of the context's fields as the compiler sees them: numbers of 32 bits, the
/// upper half of which it need not compare. What it tells of an address is at most whether its lower half is zero or
/// wraps around inside of the packet, since pointers that were moved are left out.
fn as_fields(cond: Cond, a: &Value, b: &Value) -> bool {
    let unmoved = |value: &Value| {
        matches!(value.kind, Kind::Packet | Kind::PacketMeta | Kind::PacketEnd)
            && value.offset == 0
            && value.num == Scalar::constant(0)
    };
    let null = |value: &Value| value.as_constant() == Some(0) && matches!(cond, Cond::Eq | Cond::Ne);
    match (unmoved(a), unmoved(b)) {
        (true, true) => cond != Cond::Set,
        (true, false) => null(b),
        (false, true) => null(a),
        (false, false) => false,
    }
}

fn null_test(cond: Cond, pointer: &Value, keep: bool) -> PointerTest {
    let equal = cond == Cond::Eq;
    if pointer.is_maybe_null() {
        return PointerTest {
            ways: (true, true),
            taken: Lesson::Null { id: pointer.id, null: equal, keep },
            not_taken: Lesson::Null { id: pointer.id, null: !equal, keep },
        };
    }
    let known = is_never_null(pointer);
    PointerTest {
        ways: if known { (!equal, equal) } else { (true, true) },
        taken: Lesson::Nothing,
        not_taken: Lesson::Nothing,
    }
}

/// A pointer that equals an object is not null.
fn with_an_object(cond: Cond, a: &Value, b: &Value, keep: impl Fn(Kind) -> bool) -> Option<PointerTest> {
    let (pointer, object) = if a.is_maybe_null() { (a, b) } else { (b, a) };
    if !pointer.is_maybe_null() || pointer.id == 0 || !is_never_null(object) {
        return None;
    }
    let lesson = Lesson::Null { id: pointer.id, null: false, keep: keep(pointer.kind) };
    match cond {
        Cond::Eq => Some(PointerTest { ways: (true, true), taken: lesson, not_taken: Lesson::Nothing }),
        Cond::Ne => Some(PointerTest { ways: (true, true), taken: Lesson::Nothing, not_taken: lesson }),
        _ => None,
    }
}

/// No object is in the lowest pages, so an address close to one is not null. A pointer that was moved far, or by
/// an unknown number, may be.
fn is_never_null(pointer: &Value) -> bool {
    !pointer.is_maybe_null()
        && pointer.is_fixed()
        && pointer.offset.abs() < LOWEST_ADDRESS
        && matches!(
            pointer.kind,
            Kind::Stack { .. }
                | Kind::Context
                | Kind::Map { .. }
                | Kind::MapValue { .. }
                | Kind::MapKey { .. }
                | Kind::Memory { .. }
                | Kind::InnerMap { .. }
                | Kind::Struct { .. }
                | Kind::Function { .. }
                | Kind::Object { trust: Trust::Trusted, .. }
                | Kind::Own { held: Hold::Owned | Hold::Borrowed, .. }
        )
}

/// A comparison of a packet pointer, on the left, with the end of its region.
fn against_end<'a>(a: &'a Value, b: &'a Value, cond: Cond) -> Option<(&'a Value, Cond)> {
    let ends = |pointer: &Value, end: &Value| match pointer.kind {
        Kind::Packet => end.kind == Kind::PacketEnd,
        Kind::Slice { slice, .. } => end.kind == Kind::SliceEnd { slice },
        // Metadata ends where the packet starts.
        Kind::PacketMeta => {
            end.kind == Kind::Packet && end.id == 0 && end.offset == 0 && end.num == Scalar::constant(0)
        }
        _ => false,
    };
    if ends(a, b) {
        Some((a, cond))
    } else if ends(b, a) {
        Some((b, mirrored(cond)))
    } else {
        None
    }
}

/// Which ways of `pointer cond end` are possible, by earlier comparisons.
fn decided(pointer: &Value, cond: Cond) -> (bool, bool) {
    let (range, offset) = (i64::from(pointer.range), i64::from(pointer.offset));
    // Nothing is known where the range is 0.
    let within = range > 0 && (0..=range).contains(&offset);
    let before = within && offset < range;
    match cond {
        Cond::Gt => (!within, true),
        Cond::Le => (true, !within),
        Cond::Ge | Cond::Eq => (!before, true),
        Cond::Lt | Cond::Ne => (true, !before),
        _ => (true, true),
    }
}

/// What follows from `pointer cond end`.
fn found_range(pointer: &Value, cond: Cond) -> Lesson {
    let more = match cond {
        Cond::Lt => 1,
        Cond::Le | Cond::Eq => 0,
        _ => return Lesson::Nothing,
    };
    // Only if the sum cannot wrap around and is not before the start.
    let offset = i64::from(pointer.offset);
    let range = offset + more;
    let furthest = i64::try_from(pointer.num.umax).ok().and_then(|variable| variable.checked_add(offset));
    let most = if pointer.is_packet() { MAX_PACKET_OFFSET } else { MAX_OFFSET as u64 };
    if range <= 0 || furthest.is_none_or(|furthest| furthest as u64 > most) {
        return Lesson::Nothing;
    }
    Lesson::Range { kind: pointer.kind, id: pointer.id, range: range as u32 }
}
