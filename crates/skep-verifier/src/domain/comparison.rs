//! How a comparison narrows its operands, on both ways out of it.

use crate::domain::num::Num;
use crate::domain::scalar::{Half, Scalar, Word};
use crate::domain::tnum::Tnum;
use skep_isa::semantics::holds;
use skep_isa::{Cond, Width};

/// The operands where the comparison holds; `None` if it never does.
pub(crate) fn assume(cond: Cond, width: Width, a: &Scalar, b: &Scalar) -> Option<(Scalar, Scalar)> {
    if let (Some(x), Some(y)) = (a.as_constant(), b.as_constant()) {
        return holds(width, cond, x, y).then_some((*a, *b));
    }
    if let (Cond::Eq, Width::W64, Some(number)) = (cond, width, b.as_constant()) {
        // Fast path: it can only be that number.
        return a.contains(number).then_some((*b, *b));
    }
    let (mut a_word, mut a_half) = (a.word(), a.half());
    let (mut b_word, mut b_half) = (b.word(), b.half());
    let possible = match width {
        Width::W64 => {
            let possible = narrow(cond, &mut a_word, &mut b_word);
            if possible && cond == Cond::Eq {
                a_half.meet(&b_half) && {
                    b_half = a_half;
                    true
                }
            } else {
                possible
            }
        }
        Width::W32 => narrow(cond, &mut a_half, &mut b_half),
    };
    if !possible {
        return None;
    }
    views(a, a_word, a_half, b, b_word, b_half)
}

/// The views of the compared width, narrowed by the comparison, or by its opposite with `negation`; `None` if what it
/// is about rules it out.
///
/// [`assume`] may find it impossible besides, because what is left of different ranges contradicts itself.
fn narrowed<const W: u32>(
    cond: Cond,
    negation: bool,
    mut a: Num<W>,
    mut b: Num<W>,
) -> Option<(Num<W>, Num<W>)> {
    let possible = match (negation, negated(cond)) {
        (false, _) => narrow(cond, &mut a, &mut b),
        (true, Some(cond)) => narrow(cond, &mut a, &mut b),
        (true, None) => clear_common(&mut a, &mut b),
    };
    possible.then_some((a, b))
}

/// Whether the ranges and bits that the comparison is about rule out that it holds, or with `negation` that it does
/// not.
pub(crate) fn rules_out(cond: Cond, negation: bool, width: Width, a: &Scalar, b: &Scalar) -> bool {
    match width {
        Width::W64 => narrowed(cond, negation, a.word(), b.word()).is_none(),
        Width::W32 => narrowed(cond, negation, a.half(), b.half()).is_none(),
    }
}

/// Takes back what was learned from a signed and an unsigned range that both cross the sign: that only one half of the
/// numbers is in both. `found` is what [`assume`] found.
pub(crate) fn without_halves(
    cond: Cond,
    negation: bool,
    width: Width,
    (a, b): (&Scalar, &Scalar),
    found: &mut (Scalar, Scalar),
) {
    fn crosses<const W: u32>(number: &Num<W>) -> bool {
        Num::<W>::signed(number.umin) > Num::<W>::signed(number.umax) && number.smin < 0 && number.smax >= 0
    }
    match width {
        Width::W64 => {
            let Some((a, b)) = narrowed(cond, negation, a.word(), b.word()) else { return };
            for (number, found) in [(a, &mut found.0), (b, &mut found.1)] {
                if crosses(&number) && !found.is_constant() {
                    (found.umin, found.umax) = (number.umin, number.umax);
                    (found.smin, found.smax) = (number.smin, number.smax);
                }
            }
        }
        Width::W32 => {
            let Some((a, b)) = narrowed(cond, negation, a.half(), b.half()) else { return };
            for (number, found) in [(a, &mut found.0), (b, &mut found.1)] {
                if crosses(&number) && !found.is_constant() {
                    (found.umin32, found.umax32) = (number.umin as u32, number.umax as u32);
                    (found.smin32, found.smax32) = (number.smin as i32, number.smax as i32);
                }
            }
        }
    }
}

/// Both operands after they were narrowed to these views.
fn views(
    a: &Scalar,
    a_word: Word,
    a_half: Half,
    b: &Scalar,
    b_word: Word,
    b_half: Half,
) -> Option<(Scalar, Scalar)> {
    let narrowed = |number: &Scalar, word: Word, half: Half| {
        // A constant, as most right sides are, cannot be narrowed.
        let same = number.is_constant() || word == number.word() && half == number.half();
        if same { Some(*number) } else { Scalar::from_views(word, half) }
    };
    Some((narrowed(a, a_word, a_half)?, narrowed(b, b_word, b_half)?))
}

/// The operands where the comparison does not hold; `None` if it always does.
pub(crate) fn assume_not(cond: Cond, width: Width, a: &Scalar, b: &Scalar) -> Option<(Scalar, Scalar)> {
    match negated(cond) {
        Some(negated) => assume(negated, width, a, b),
        None => {
            // a & b == 0
            if let (Some(x), Some(y)) = (a.as_constant(), b.as_constant()) {
                return (!holds(width, cond, x, y)).then_some((*a, *b));
            }
            let (mut a_word, mut a_half) = (a.word(), a.half());
            let (mut b_word, mut b_half) = (b.word(), b.half());
            let possible = match width {
                Width::W64 => clear_common(&mut a_word, &mut b_word),
                Width::W32 => clear_common(&mut a_half, &mut b_half),
            };
            if !possible {
                return None;
            }
            views(a, a_word, a_half, b, b_word, b_half)
        }
    }
}

/// The condition that holds where `cond` does not; `None` for the bit test, which has none.
pub(crate) fn negated(cond: Cond) -> Option<Cond> {
    Some(match cond {
        Cond::Eq => Cond::Ne,
        Cond::Ne => Cond::Eq,
        Cond::Gt => Cond::Le,
        Cond::Ge => Cond::Lt,
        Cond::Lt => Cond::Ge,
        Cond::Le => Cond::Gt,
        Cond::Sgt => Cond::Sle,
        Cond::Sge => Cond::Slt,
        Cond::Slt => Cond::Sge,
        Cond::Sle => Cond::Sgt,
        Cond::Set => return None,
    })
}

/// The same condition with its operands exchanged.
pub(crate) fn mirrored(cond: Cond) -> Cond {
    match cond {
        Cond::Gt => Cond::Lt,
        Cond::Ge => Cond::Le,
        Cond::Lt => Cond::Gt,
        Cond::Le => Cond::Ge,
        Cond::Sgt => Cond::Slt,
        Cond::Sge => Cond::Sle,
        Cond::Slt => Cond::Sgt,
        Cond::Sle => Cond::Sge,
        Cond::Eq | Cond::Ne | Cond::Set => cond,
    }
}

/// Narrows `a` and `b` to where `a cond b`; false if nowhere.
pub(crate) fn narrow<const W: u32>(cond: Cond, a: &mut Num<W>, b: &mut Num<W>) -> bool {
    match cond {
        Cond::Eq => {
            if !a.meet(b) {
                return false;
            }
            *b = *a;
            true
        }
        Cond::Ne => exclude(a, b) && exclude(b, a),
        Cond::Gt => less(b, a),
        Cond::Lt => less(a, b),
        Cond::Ge => less_or_equal(b, a),
        Cond::Le => less_or_equal(a, b),
        Cond::Sgt => signed_less(b, a),
        Cond::Slt => signed_less(a, b),
        Cond::Sge => signed_less_or_equal(b, a),
        Cond::Sle => signed_less_or_equal(a, b),
        Cond::Set => set_common(a, b) && set_common(b, a),
    }
}

/// `a != b`: if `b` is known, it is no end of `a`'s ranges.
fn exclude<const W: u32>(a: &mut Num<W>, b: &Num<W>) -> bool {
    let Some(value) = b.as_constant() else { return true };
    let signed = Num::<W>::signed(value);
    if a.umin == a.umax || a.smin == a.smax {
        return a.umin != value || a.umax != value;
    }
    a.umin += u64::from(a.umin == value);
    a.umax -= u64::from(a.umax == value);
    a.smin += i64::from(a.smin == signed);
    a.smax -= i64::from(a.smax == signed);
    a.umin <= a.umax && a.smin <= a.smax
}

fn less<const W: u32>(a: &mut Num<W>, b: &mut Num<W>) -> bool {
    if b.umax == 0 || a.umin == Num::<W>::MASK {
        return false;
    }
    a.umax = a.umax.min(b.umax - 1);
    b.umin = b.umin.max(a.umin + 1);
    a.umin <= a.umax && b.umin <= b.umax
}

fn less_or_equal<const W: u32>(a: &mut Num<W>, b: &mut Num<W>) -> bool {
    a.umax = a.umax.min(b.umax);
    b.umin = b.umin.max(a.umin);
    a.umin <= a.umax && b.umin <= b.umax
}

fn signed_less<const W: u32>(a: &mut Num<W>, b: &mut Num<W>) -> bool {
    if b.smax == Num::<W>::SMIN || a.smin == Num::<W>::SMAX {
        return false;
    }
    a.smax = a.smax.min(b.smax - 1);
    b.smin = b.smin.max(a.smin + 1);
    a.smin <= a.smax && b.smin <= b.smax
}

fn signed_less_or_equal<const W: u32>(a: &mut Num<W>, b: &mut Num<W>) -> bool {
    a.smax = a.smax.min(b.smax);
    b.smin = b.smin.max(a.smin);
    a.smin <= a.smax && b.smin <= b.smax
}

/// `a & b != 0`: if `b` can have one bit only, `a` has it.
fn set_common<const W: u32>(a: &mut Num<W>, b: &Num<W>) -> bool {
    let possible = (b.bits.value | b.bits.mask) & (a.bits.value | a.bits.mask);
    if possible == 0 {
        return false;
    }
    if possible.is_power_of_two() {
        a.bits = Tnum { value: a.bits.value | possible, mask: a.bits.mask & !possible };
    }
    true
}

/// `a & b == 0`: what is set in one is clear in the other.
fn clear_common<const W: u32>(a: &mut Num<W>, b: &mut Num<W>) -> bool {
    if a.bits.value & b.bits.value != 0 {
        return false;
    }
    let (in_a, in_b) = (a.bits.value, b.bits.value);
    a.bits.mask &= !in_b;
    b.bits.mask &= !in_a;
    true
}
