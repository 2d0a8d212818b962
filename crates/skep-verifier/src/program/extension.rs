//! Extensions: programs that take the place of a function of another program.
//!
//! ```text
//!   target       int prog0(struct xdp_md *ctx)      its callers know the prototype, nothing else
//!   extension    int allow(struct xdp_md *ctx)      function 0 is verified as a global function of that prototype
//! ```
//!
//! Both prototypes must describe the same arguments, each in the types of its own object: what callers have checked of
//! the arguments is all that the extension may assume of them. The result is any number, as that of each global
//! function.

use crate::program::Subject;
use crate::program::config::Config;
use crate::program::global::{Global, Param, global};
use crate::program::violation::{Checked, Code, Violation};
use skep_abi::{Function, Prototype, TargetFunction};
use skep_btf::{Btf, Kind};

/// Checks that the program's first function, which is verified as `own`, may take the place of its target.
pub(crate) fn check_extension(
    program: &Subject,
    config: &Config<'_>,
    own: Option<&Global>,
    target: &TargetFunction,
) -> Checked<()> {
    let refused = |text: String| Err(Violation::at(Code::Types, 0, text));
    let (name, of) = (&program.source.name, &target.name);
    if !target.global && !target.main {
        return refused(format!("the function {of} is static, and callers rely on more than its prototype"));
    }
    let first = program.source.functions.first();
    let types = first.and_then(|first| first.prototype.as_ref()).zip(program.source.btf.as_deref());
    let Some((prototype, btf)) = types else {
        return refused(format!("{name} takes the place of {of}, but has no prototype in its types"));
    };
    same_types(name, (btf, prototype), target).or_else(refused)?;
    let function = Function {
        prototype: Some(target.prototype.clone()),
        ..Function::new(of.clone(), 0, true)
    };
    let theirs = global(program.source.program_type, config, &target.btf, &function);
    let (Some(own), Some(theirs)) = (own, theirs) else {
        return refused(format!("{of} takes or returns what is not supported in global functions"));
    };
    for (at, (own, theirs)) in own.params.iter().zip(&theirs.params).enumerate() {
        if !own.takes(theirs) {
            let text = format!("argument {} of {name} promises more than that of {of}", at + 1);
            return Err(Violation::at(Code::Types, 0, text)
                .suggest("declare the argument in both programs alike, `const` and tags included"));
        }
    }
    if own.effects.moves_packet && !target.moves_packet && !target.main {
        return refused(format!("{name} may move the packet, and callers of {of} do not expect that"));
    }
    if own.effects.leaves && target.in_callback {
        let text = format!("{name} may make a tail call, but {of} is called by a callback");
        return Err(Violation::at(Code::Helper, 0, text));
    }
    Ok(())
}

/// Whether two prototypes have the same types, each in its own object.
fn same_types(
    name: &str,
    (btf, own): (&Btf, &Prototype),
    target: &TargetFunction,
) -> Result<(), String> {
    let of = &target.name;
    let (ours, theirs) = (own.params.len(), target.prototype.params.len());
    if ours != theirs {
        return Err(format!("{name} has {ours} arguments, but {of} has {theirs}"));
    }
    let (result, wanted) = (shape(btf, own.result), shape(&target.btf, target.prototype.result));
    if result.map(|result| result.0) != wanted.map(|wanted| wanted.0) {
        return Err(format!("{name} and {of} return different types"));
    }
    for (at, (own, wanted)) in own.params.iter().zip(&target.prototype.params).enumerate() {
        if shape(btf, own.ty) != shape(&target.btf, wanted.ty) {
            return Err(format!("argument {} of {name} has another type than that of {of}", at + 1));
        }
    }
    Ok(())
}

/// The kind of a type, its size, and for pointers what they lead to. `None` if the type is damaged.
fn shape(btf: &Btf, ty: u32) -> Option<(Kind, u32, Option<(Kind, &str)>)> {
    let resolved = btf.resolve(ty).ok()?;
    match resolved.kind {
        Kind::Void => Some((Kind::Void, 0, None)),
        Kind::Ptr => {
            let to = btf.resolve(btf.pointer(ty).ok()??.to).ok()?;
            Some((Kind::Ptr, 8, Some((to.kind, to.name().ok()?))))
        }
        kind => Some((kind, btf.size(ty).ok()?, None)),
    }
}

impl Param {
    /// Whether a function with this parameter may be given what `other` takes.
    fn takes(&self, other: &Self) -> bool {
        match (*self, *other) {
            (
                Self::Memory { bytes, nullable, read_only },
                Self::Memory { bytes: given, nullable: may_be_null, read_only: only_read },
            ) => bytes == given && (nullable || !may_be_null) && (read_only || !only_read),
            (Self::Object { ty, nullable }, Self::Object { ty: given, nullable: may_be_null }) => {
                ty == given && (nullable || !may_be_null)
            }
            (own, other) => own == other,
        }
    }
}
