//! What a structure's objects look like, as text: two files whose programs share objects must agree on it.
//!
//! Type numbers belong to one file, so structures are numbered in the order in which the text first leads to them:
//!
//! ```text
//!   0: 96 bytes; struct bpf_list_node of 24 at 8; __kptr pointer of 8 at 72 to 1+0
//!   1: 24 bytes; __kptr pointer of 8 at 8 to 1+0
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write;

use crate::btf::Btf;
use crate::error::Error;
use crate::special::{SpecialField, SpecialKind, many};
use crate::types::Kind;

/// The most structures that one may lead to.
const MOST: usize = 64;

/// The layouts of structures of one file. Each structure is searched once.
pub struct ObjectLayouts<'a> {
    btf: &'a Btf,
    known: HashMap<u32, Vec<SpecialField>>,
}

impl<'a> ObjectLayouts<'a> {
    /// Those of that file.
    pub fn new(btf: &'a Btf) -> Self {
        Self { btf, known: HashMap::new() }
    }

    /// The sizes and special fields of a structure and of all that its fields lead to. Equal texts mean that programs
    /// of both files take the same bytes for the same.
    ///
    /// # Errors
    ///
    /// As [`Btf::special_fields`], and [`Error::Special`] if it leads to more than 64 structures.
    pub fn text(&mut self, ty: u32) -> Result<String, Error> {
        if let Some(many) = many(ty) {
            return Ok(format!("0: {many}\n"));
        }
        let btf = self.btf;
        let (mut text, mut met) = (String::new(), vec![btf.resolve(ty)?.id]);
        let mut next = 0;
        while let Some(&ty) = met.get(next) {
            // Writing to a string does not fail.
            let _ = write!(text, "{next}: {} bytes", btf.size(ty)?);
            next += 1;
            for field in self.fields(ty)? {
                let SpecialField { kind, offset, size } = *field;
                let _ = write!(text, "; {} of {size} at {offset}", kind.name());
                let Some((to, node)) = leads_to(kind) else { continue };
                // Whatever this file takes them for, the runtime has them.
                if let Some(many) = btf.of_runtime(to).and_then(many) {
                    let _ = write!(text, " to {many}");
                    continue;
                }
                let to = match btf.resolve(to) {
                    Ok(to) if to.kind == Kind::Struct => to.id,
                    _ => continue,
                };
                let number = met.iter().position(|known| *known == to).unwrap_or(met.len());
                if number == MOST {
                    let ty = btf.type_name(met[0]).unwrap_or_default();
                    return Err(Error::Special { ty, reason: "leads to more than 64 structures" });
                }
                if number == met.len() {
                    met.push(to);
                }
                let _ = write!(text, " to {number}+{node}");
            }
            text.push('\n');
        }
        Ok(text)
    }

    fn fields(&mut self, ty: u32) -> Result<&[SpecialField], Error> {
        Ok(match self.known.entry(ty) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(self.btf.special_fields(ty)?),
        })
    }
}

/// The type that a field leads to, and where its node is.
fn leads_to(kind: SpecialKind) -> Option<(u32, u32)> {
    match kind {
        SpecialKind::ListHead { holds, node } | SpecialKind::RbRoot { holds, node } => Some((holds, node)),
        SpecialKind::Kptr { to }
        | SpecialKind::KptrUntrusted { to }
        | SpecialKind::KptrPercpu { to }
        | SpecialKind::Uptr { to } => Some((to, 0)),
        _ => None,
    }
}
