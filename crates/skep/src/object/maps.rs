//! The maps of an object, with type numbers of the object and with those of the host.
//!
//! A pointer to a host's object in a map's value is declared with a type of the object file. Everywhere else, types of
//! a host's objects have the numbers of the host's BTF. A structure has the same name in both, so kept pointers are
//! renumbered by name: once for all programs, when the maps or the host's types change. A structure that the host does
//! not have is one that programs allocate objects of; it keeps its number, with a mark. CPU masks,
//! tasks and cgroups are a runtime's own, whatever types the host has.

use crate::steps::steps;
use skep_abi::{MapDef, OWN_TYPE, SpecialKind};
use skep_btf::Btf;
use std::sync::Arc;

/// Stands for a structure that the host does not have.
const NOTHING: u32 = 0;

/// All forms of the definitions. They are the same ones if no map keeps a host's object.
#[derive(Clone, Debug)]
pub(super) struct Maps {
    own: Arc<[MapDef]>,
    of_host: Arc<[MapDef]>,
    of_runtime: Arc<[MapDef]>,
}

/// The types to which kept pointers are renumbered.
#[derive(Clone, Copy)]
struct Host<'a> {
    types: Option<&'a Btf>,
    /// Whether it is a runtime with these types, not a kernel.
    runtime: bool,
}

impl Maps {
    /// Maps of an object without types.
    pub(super) fn new(own: Arc<[MapDef]>) -> Self {
        Self { of_host: Arc::clone(&own), of_runtime: Arc::clone(&own), own }
    }

    /// Maps for a host with these types, if it has some; those of the object are `types`.
    pub(super) fn for_host(own: Arc<[MapDef]>, types: &Btf, host: Option<&Btf>) -> Self {
        if !keep_objects(&own) {
            return Self::new(own);
        }
        let renumbered = |runtime| -> Arc<[MapDef]> {
            own.iter().map(|def| map(def, types, Host { types: host, runtime })).collect()
        };
        let of_runtime = renumbered(true);
        // Without types there is no kernel.
        let of_host = if host.is_some() { renumbered(false) } else { Arc::clone(&of_runtime) };
        Self { own, of_host, of_runtime }
    }

    /// The definitions as the object file has them.
    pub(super) fn own(&self) -> &Arc<[MapDef]> {
        &self.own
    }

    /// The same, with the host's types in fields that keep its objects.
    pub(super) fn of_host(&self) -> &Arc<[MapDef]> {
        &self.of_host
    }

    /// The same for a runtime, which has types of its own.
    pub(super) fn of_runtime(&self) -> &Arc<[MapDef]> {
        &self.of_runtime
    }
}

fn map(def: &MapDef, own: &Btf, host: Host<'_>) -> MapDef {
    steps(1);
    let mut def = def.clone();
    for field in &mut def.fields {
        match &mut field.kind {
            SpecialKind::Kptr { to } | SpecialKind::KptrUntrusted { to } | SpecialKind::KptrPercpu { to } => {
                *to = same(*to, own, host)
            }
            _ => {}
        }
    }
    def.inner = def.inner.map(|inner| Box::new(map(&inner, own, host)));
    def
}

/// The host's type of the same name and kind, or the object's own with [`OWN_TYPE`].
fn same(ty: u32, own: &Btf, host: Host<'_>) -> u32 {
    if let Some(of_runtime) = own.of_runtime(ty).filter(|_| host.runtime) {
        return of_runtime;
    }
    let named = own.resolve(ty).ok().filter(|ty| !ty.is_anonymous());
    let found = named.and_then(|ty| host.types?.find(ty.name().ok()?, ty.kind));
    // What the host does not have, programs allocate.
    let allocated = own.resolve(ty).is_ok_and(|ty| ty.kind == skep_btf::Kind::Struct);
    found.unwrap_or(if allocated { ty | OWN_TYPE } else { NOTHING })
}

/// Whether any of them keeps a pointer to an object of the host.
fn keep_objects(maps: &[MapDef]) -> bool {
    maps.iter().any(|def| {
        steps(1);
        let inner = def.inner.as_deref().map_or(&[][..], std::slice::from_ref);
        let kept = |kind| {
            matches!(
                kind,
                SpecialKind::Kptr { .. } | SpecialKind::KptrUntrusted { .. } | SpecialKind::KptrPercpu { .. }
            )
        };
        def.fields.iter().any(|field| kept(field.kind)) || keep_objects(inner)
    })
}
