//! Whether a type of the object and one of the target can be the same.
//!
//! Three degrees, as libbpf documents them. **Fields** that are read may differ in size and sign, and pointers in
//! their targets. **Types** in existence and size checks must be of one kind, through pointers and prototypes; members
//! of structures do not count. **Matching** types have every member that the object's type has, under the same name.

use skep_btf::{Btf, Kind, Type, essential_name};

use super::{Budget, Fault};

/// The most types inside each other that are compared.
const MAX_DEPTH: u32 = 32;

/// A type in its file.
type Of<'a> = (&'a Btf, u32);

fn is_same_kind(a: Kind, b: Kind) -> bool {
    a == b || a.is_enum() && b.is_enum()
}

/// Names without flavours; a name that is missing is like any other.
fn are_named_alike(a: &Type<'_>, b: &Type<'_>) -> Result<bool, Fault> {
    let (a, b) = (a.name()?, b.name()?);
    Ok(a.is_empty() || b.is_empty() || essential_name(a) == essential_name(b))
}

/// Whether a member can be read as the other.
pub(super) fn fields(local: Of<'_>, target: Of<'_>, budget: &mut Budget) -> Result<bool, Fault> {
    let ((local, mut a), (target, mut b)) = (local, target);
    for _ in 0..MAX_DEPTH {
        budget.spend(1)?;
        let (x, y) = (local.resolve(a)?, target.resolve(b)?);
        if x.kind.is_composite() && y.kind.is_composite() {
            return Ok(true);
        }
        if !is_same_kind(x.kind, y.kind) {
            return Ok(false);
        }
        if let (Some(x), Some(y)) = (x.array(), y.array()) {
            (a, b) = (x.element, y.element);
            continue;
        }
        return match x.kind {
            Kind::Ptr | Kind::Float => Ok(true),
            Kind::Fwd | Kind::Enum | Kind::Enum64 => are_named_alike(&x, &y),
            // Old compilers described bit fields by integers that begin within a byte.
            Kind::Int => {
                Ok(x.int().is_some_and(|int| int.offset == 0) && y.int().is_some_and(|int| int.offset == 0))
            }
            _ => Ok(false),
        };
    }
    Ok(false)
}

/// Whether a type can be the other as far as its kind goes. The names of the outermost are the caller's affair.
pub(super) fn types(local: Of<'_>, target: Of<'_>, budget: &mut Budget) -> Result<bool, Fault> {
    types_at(local, target, false, 0, budget)
}

/// The same, where a structure that the object only declares can be the one that the target defines: code that only
/// passes pointers on need not know their targets.
pub(super) fn declarations(local: Of<'_>, target: Of<'_>, budget: &mut Budget) -> Result<bool, Fault> {
    types_at(local, target, true, 0, budget)
}

fn types_at(
    local: Of<'_>,
    target: Of<'_>,
    declared: bool,
    depth: u32,
    budget: &mut Budget,
) -> Result<bool, Fault> {
    let ((local, a), (target, b)) = (local, target);
    budget.spend(1)?;
    let (x, y) = (local.resolve(a)?, target.resolve(b)?);
    if declared && x.kind == Kind::Fwd && y.kind.is_composite() {
        return Ok(x.is_union_declaration() == (y.kind == Kind::Union));
    }
    if !is_same_kind(x.kind, y.kind) {
        return Ok(false);
    }
    if depth == MAX_DEPTH {
        return Err("is about a type that is too deep to compare".into());
    }
    let mut inner = |a, b| types_at((local, a), (target, b), declared, depth + 1, budget);
    if let (Some(x), Some(y)) = (x.array(), y.array()) {
        return inner(x.element, y.element);
    }
    match x.kind {
        Kind::Ptr | Kind::Func | Kind::Var => inner(x.target(), y.target()),
        Kind::FuncProto => {
            if x.params().len() != y.params().len() {
                return Ok(false);
            }
            for (a, b) in x.params().zip(y.params()) {
                if !inner(a.ty, b.ty)? {
                    return Ok(false);
                }
            }
            inner(x.target(), y.target())
        }
        Kind::Int => {
            Ok(x.int().is_some_and(|int| int.offset == 0) && y.int().is_some_and(|int| int.offset == 0))
        }
        _ => Ok(true),
    }
}

/// Whether the target's type has everything that the object's has.
pub(super) fn matches(local: Of<'_>, target: Of<'_>, budget: &mut Budget) -> Result<bool, Fault> {
    matches_at(local, target, false, 0, budget)
}

/// `behind` says that a pointer was followed: what it points to need not be the same in its depths.
fn matches_at(
    local: Of<'_>,
    target: Of<'_>,
    behind: bool,
    depth: u32,
    budget: &mut Budget,
) -> Result<bool, Fault> {
    let ((local, a), (target, b)) = (local, target);
    budget.spend(1)?;
    if depth == MAX_DEPTH {
        return Err("is about a type that is too deep to compare".into());
    }
    let (x, y) = (local.resolve(a)?, target.resolve(b)?);
    if !are_named_alike(&x, &y)? || x.is_anonymous() != y.is_anonymous() {
        return Ok(false);
    }
    let is_named = |kind: Kind| kind.is_composite() || kind == Kind::Fwd;
    if behind && is_named(x.kind) && is_named(y.kind) {
        let is_union = |ty: &Type<'_>| ty.kind == Kind::Union || ty.is_union_declaration();
        return Ok(is_union(&x) == is_union(&y));
    }
    if !is_same_kind(x.kind, y.kind) {
        return Ok(false);
    }
    if let (Some(x), Some(y)) = (x.array(), y.array()) {
        let inner = matches_at((local, x.element), (target, y.element), behind, depth + 1, budget)?;
        return Ok(x.count == y.count && inner);
    }
    match x.kind {
        Kind::Int => Ok(x.size() == y.size() && x.is_signed() == y.is_signed()),
        Kind::Float => Ok(x.size() == y.size()),
        Kind::Fwd => Ok(x.is_union_declaration() == y.is_union_declaration()),
        Kind::Enum | Kind::Enum64 => {
            if x.size() != y.size() {
                return Ok(false);
            }
            for value in x.enumerators() {
                let name = essential_name(value.name()?);
                let mut found = false;
                for other in y.enumerators() {
                    budget.spend(1)?;
                    found |= essential_name(other.name()?) == name;
                }
                if !found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Kind::Ptr => matches_at((local, x.target()), (target, y.target()), true, depth + 1, budget),
        Kind::FuncProto => {
            if x.params().len() != y.params().len() {
                return Ok(false);
            }
            for (a, b) in x.params().zip(y.params()) {
                if !matches_at((local, a.ty), (target, b.ty), behind, depth + 1, budget)? {
                    return Ok(false);
                }
            }
            matches_at((local, x.target()), (target, y.target()), behind, depth + 1, budget)
        }
        Kind::Struct | Kind::Union => {
            for member in x.members() {
                let name = member.name()?;
                let mut found = false;
                for other in y.members() {
                    budget.spend(1)?;
                    if other.name()? == name
                        && matches_at((local, member.ty), (target, other.ty), behind, depth + 1, budget)?
                    {
                        found = true;
                        break;
                    }
                }
                if !found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Kind::Void => Ok(true),
        _ => Ok(false),
    }
}
