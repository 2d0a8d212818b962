//! Types by number: an object file's own and the host's.
//!
//! A pointer to a host's object in a map's value is declared with a type of the object file; everywhere else types of
//! host's objects are numbered as in the host's BTF. The same structure has the same name in both.

use skep_abi::{MapDef, SpecialKind};
use skep_btf::Btf;

/// Stands for a structure that the host does not have.
const NOTHING: u32 = 0;

/// The maps' definitions, with kept pointers to the host's types.
pub(crate) fn maps(maps: &[MapDef], own: &Btf, host: &Btf) -> Vec<MapDef> {
    maps.iter().map(|def| map(def, own, host)).collect()
}

fn map(def: &MapDef, own: &Btf, host: &Btf) -> MapDef {
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

/// The host's type of the same name and kind.
fn same(ty: u32, own: &Btf, host: &Btf) -> u32 {
    let named = own.resolve(ty).ok().filter(|ty| !ty.is_anonymous());
    let found = named.and_then(|ty| host.find(ty.name().ok()?, ty.kind));
    found.unwrap_or(NOTHING)
}

/// Whether any of them keeps a pointer to an object of the host.
pub(crate) fn keep_objects(maps: &[MapDef]) -> bool {
    maps.iter().any(|def| {
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
