//! The promise for untrusted types: they are refused, or every query on them is answered or refused, without a panic.

use std::sync::Arc;

use skep_btf::{Btf, Error, Ext};

/// Reads `bytes` as types and runs every query. Returns whether they were valid types.
///
/// # Panics
///
/// If the promise is broken.
#[allow(unreachable_pub)] // the fuzzer and the tests include this file, each its own way
pub fn check(bytes: &[u8]) -> bool {
    let btf = match Btf::parse(bytes) {
        Ok(btf) => btf,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    match btf.check() {
        Ok(()) => every_member_has_a_size(&btf),
        Err(malformed) => assert!(!malformed.to_string().is_empty()),
    }
    // As the types of a module of themselves, twice.
    let len = btf.len();
    let base = Arc::new(btf);
    if let Ok(module) = Btf::parse_split(bytes, Arc::clone(&base)) {
        let own = module.len() - len;
        let _ = module.check();
        let twin = Btf::parse_split(bytes, Arc::clone(&base)).expect("the same bytes");
        if let Ok(joined) = base.join(&[module, twin]) {
            assert_eq!(joined.len(), len + 2 * own);
        }
    }
    let btf = base;
    // A few suffice: there may be many, and each may be large.
    for ty in btf.own_types().take(100) {
        let id = ty.id;
        assert_eq!(btf.ty(id).map(|ty| ty.id), Ok(id));
        if let Ok(resolved) = btf.resolve(id) {
            assert!(!resolved.kind.is_modifier());
        }
        if let Ok(name) = ty.name() {
            assert!(name.len() <= skep_btf::MAX_NAME);
            let found = btf.find(name, ty.kind);
            assert!(name.is_empty() || found.is_some_and(|found| found <= id), "{name}");
        }
        if let (Ok(size), Ok(members)) = (btf.size(id), btf.members(id)) {
            assert!(members.len() <= 0xffff);
            for offset in [0, 1, 4, 8, size.saturating_sub(4), size] {
                for bytes in [1, 4, 8, 16] {
                    if let Ok(found) = btf.walk(id, offset, bytes) {
                        assert!(found.path.len() <= 80 && found.inner <= offset);
                    }
                }
                let _ = btf.contains(id, offset, 1);
                let _ = btf.member_bytes(id, "a.b");
            }
        }
        let _ = (btf.type_name(id), btf.prototype(id), btf.pointer(id), ty.linkage(), format!("{ty:?}"));
        if let Ok(fields) = btf.special_fields(id) {
            assert!(fields.len() <= skep_btf::MAX_SPECIAL && fields.is_sorted_by_key(|field| field.offset));
        }
        let _ = (ty.params().count(), ty.enumerators().count(), ty.variables().count());
        assert!(btf.decl_tags(id).all(|tag| tag.name.len() <= skep_btf::MAX_NAME));
    }
    if let Ok(ext) = Ext::parse(bytes, &btf, |_| Some(0)) {
        for block in ext.functions.iter().chain(&ext.lines).chain(&ext.core) {
            assert!(ext.records(block).count() <= bytes.len());
        }
    }
    true
}

/// Of well-formed types; only chains longer than others follow them have no end.
fn every_member_has_a_size(btf: &Btf) {
    for ty in btf.own_types().take(100) {
        for member in ty.members().take(100) {
            let size = btf.size(member.ty);
            assert!(matches!(size, Ok(_) | Err(Error::Endless { .. })), "{ty:?} {member:?}: {size:?}");
        }
    }
}
