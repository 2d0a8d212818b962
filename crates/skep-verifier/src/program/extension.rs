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
use skep_abi::{Function, ProgramType, Prototype, TargetFunction};
use skep_btf::{Btf, Kind};
use std::sync::Arc;

/// What an extension may take the place of.
#[derive(Clone, Debug)]
pub(crate) struct Extension {
    name: String,
    program_type: &'static ProgramType,
    /// Its first function, as it is verified.
    own: Global,
    prototype: Prototype,
    btf: Arc<Btf>,
}

/// The program as an extension, if it is one: it may take the place of its target.
pub(crate) fn extension(
    program: &Subject,
    config: &Config<'_>,
    own: Option<&Global>,
) -> Checked<Option<Extension>> {
    let Some(target) = program.source.replaces() else { return Ok(None) };
    let (name, of) = (&program.source.name, &target.name);
    let refused = |text: String| Violation::at(Code::Types, 0, text);
    let first = program.source.functions.first();
    let types = first.and_then(|first| first.prototype.clone()).zip(program.source.btf.clone());
    let Some((prototype, btf)) = types else {
        return Err(refused(format!("{name} takes the place of {of}, but has no prototype in its types")));
    };
    let program_type = program.source.program_type;
    // Types say more to people than what is made of them.
    same_types(name, (&btf, &prototype), target).map_err(refused)?;
    let Some(own) = own.cloned() else {
        return Err(refused(format!("{name} takes or returns what is not supported in global functions")));
    };
    let extension = Extension { name: name.clone(), program_type, own, prototype, btf };
    extension.fits(target, config).map_err(refused)?;
    Ok(Some(extension))
}

impl Extension {
    /// Checks that it may take the place of a function.
    pub(crate) fn fits(&self, target: &TargetFunction, config: &Config<'_>) -> Result<(), String> {
        let (name, of) = (&self.name, &target.name);
        if !std::ptr::eq(self.program_type, target.program_type) {
            let (own, theirs) = (self.program_type.name, target.program_type.name);
            return Err(format!(
                "{name} is for programs of type {own}, and {} is of type {theirs}",
                target.program
            ));
        }
        if !target.global && !target.main {
            return Err(format!(
                "the function {of} is static, and its callers rely on more than its prototype"
            ));
        }
        same_types(name, (&self.btf, &self.prototype), target)?;
        let function =
            Function { prototype: Some(target.prototype.clone()), ..Function::new(of.clone(), 0, true) };
        let Some(theirs) = global(target.program_type, config, &target.btf, &function) else {
            return Err(format!("{of} takes or returns what is not supported in global functions"));
        };
        let differs = |(own, theirs): (&Param, &Param)| !own.takes(theirs);
        if let Some(at) = self.own.params.iter().zip(&theirs.params).position(differs) {
            return Err(format!(
                "argument {} of {name} promises more than that of {of}: declare it alike, `const` and tags included",
                at + 1
            ));
        }
        // In a callback nothing counts tail calls.
        if self.own.effects.leaves && target.in_callback {
            return Err(format!("{name} may make a tail call, but {of} is called by a callback"));
        }
        // So may whatever a tail call leads to.
        let moves = self.own.effects.moves_packet || self.own.effects.leaves;
        if moves && !target.moves_packet && !target.main {
            return Err(format!("{name} may move the packet, and callers of {of} do not expect that"));
        }
        Ok(())
    }
}

/// Whether two prototypes have the same types, each in its own object.
fn same_types(name: &str, (btf, own): (&Btf, &Prototype), target: &TargetFunction) -> Result<(), String> {
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

/// What two types must have in common: the kind, the size, and for pointers kind and name of what they lead to.
type Shape<'a> = (Kind, u32, Option<(Kind, &'a str)>);

/// That of a type; `None` if it is damaged.
fn shape(btf: &Btf, ty: u32) -> Option<Shape<'_>> {
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
