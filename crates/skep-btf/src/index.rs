//! Types by name.
//!
//! A table of chains: `heads[hash]` is the first type whose name has that hash, `next[type]` the one after it,
//! ascending. It costs eight bytes a type and is made when the first name is looked up. Names are hashed
//! without their flavour (`task_struct___old` is filed under `task_struct`), so that one table serves CO-RE,
//! which looks for all flavours, and everybody else.

use crate::btf::Btf;
use crate::error::Error;
use crate::types::{Kind, Type};

/// The most bytes of a name that are hashed. Names that share one long string could otherwise cost its length
/// each.
const HASHED: usize = 64;

/// No type: the end of a chain.
const END: u32 = u32::MAX;

pub(crate) struct Names {
    /// A power of two of them.
    heads: Vec<u32>,
    /// By index of a type in its file.
    next: Vec<u32>,
}

/// A name without the flavour that tells apart several declarations of one type: `sock___v6` is `sock`.
pub fn essential_name(name: &str) -> &str {
    // The flavour is what follows the last three underscores that have a name before and something behind.
    let bytes = name.as_bytes();
    let is_separator = |at: usize| {
        bytes[at..at + 3] == *b"___" && bytes[at - 1] != b'_' && bytes.get(at + 3).is_some_and(|&b| b != b'_')
    };
    let at = (1..bytes.len().saturating_sub(3)).rev().find(|&at| is_separator(at));
    at.map_or(name, |at| &name[..at])
}

impl Btf {
    /// The first type of that name and kind.
    pub fn find(&self, name: &str, kind: Kind) -> Option<u32> {
        self.named(essential_name(name))
            .find(|ty| ty.kind == kind && ty.name().is_ok_and(|own| own == name))
            .map(|ty| ty.id)
    }

    /// The types of that name in all flavours, a base's first, ascending in each.
    pub fn flavours(&self, name: &str) -> impl Iterator<Item = Type<'_>> {
        let name = essential_name(name);
        self.named(name).filter(move |ty| ty.name().is_ok_and(|own| essential_name(own) == name))
    }

    /// The type of the variable of that name.
    pub fn variable(&self, name: &str) -> Option<u32> {
        Some(self.ty(self.find(name, Kind::Var)?).ok()?.target())
    }

    /// The variables of the section of that name.
    ///
    /// # Errors
    ///
    /// None that are not about the file's own damage.
    pub fn data_section(&self, name: &str) -> Result<Option<Type<'_>>, Error> {
        self.find(name, Kind::Datasec).map(|id| self.ty(id)).transpose()
    }

    /// The types that may have that name without a flavour.
    fn named(&self, name: &str) -> impl Iterator<Item = Type<'_>> {
        let hash = hash(name.as_bytes()); // the same for all flavours
        let base = self.base().map(|base| Chain::new(base, hash));
        let chains = base.into_iter().chain([Chain::new(self, hash)]);
        chains.flatten().filter_map(|id| self.ty(id).ok())
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let count = self.own_types().count();
            let mut names = Names { heads: vec![END; count.next_power_of_two()], next: vec![END; count] };
            let mask = names.heads.len() - 1;
            let first = self.first();
            for index in (0..count).rev() {
                let Ok(ty) = self.ty(first + index as u32) else { continue };
                if ty.is_anonymous() {
                    continue;
                }
                let Some(bytes) = self.bytes_of_string(ty.name_at) else { continue };
                let head = &mut names.heads[hash(bytes) as usize & mask];
                names.next[index] = std::mem::replace(head, index as u32);
            }
            names
        })
    }
}

/// The numbers in a chain.
struct Chain<'a> {
    names: &'a Names,
    /// The number of the file's first type.
    first: u32,
    at: u32,
}

impl<'a> Chain<'a> {
    fn new(btf: &'a Btf, hash: u32) -> Self {
        let names = btf.names();
        let at = names.heads[hash as usize & (names.heads.len() - 1)];
        Self { names, first: btf.first(), at }
    }
}

impl Iterator for Chain<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let at = self.at;
        self.at = *self.names.next.get(at as usize)?;
        Some(self.first + at)
    }
}

/// Hashes a name up to its end, its first three underscores, or [`HASHED`] bytes: whatever its flavour is, it is
/// behind these. (FNV-1a.)
fn hash(name: &[u8]) -> u32 {
    let mut hash = 0x811c_9dc5u32;
    for (at, &byte) in name.iter().enumerate().take(HASHED) {
        if byte == 0 || byte == b'_' && at > 0 && name[at..].starts_with(b"___") {
            break;
        }
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavour_is_what_follows_the_last_three_underscores() {
        let cases = [
            ("task_struct", "task_struct"),
            ("task_struct___old", "task_struct"),
            ("a___b___c", "a___b"),
            ("___slab_alloc", "___slab_alloc"),
            ("x___", "x___"),
            ("x____y", "x____y"),
            ("___", "___"),
            ("a___b", "a"),
            ("", ""),
        ];
        for (name, expected) in cases {
            assert_eq!(essential_name(name), expected, "{name}");
            assert_eq!(hash(name.as_bytes()), hash(expected.as_bytes()), "{name}");
        }
    }

    #[test]
    fn long_names_are_filed_with_their_flavours() {
        for length in 60..70 {
            let name = "n".repeat(length);
            assert_eq!(hash(name.as_bytes()), hash(format!("{name}___old").as_bytes()), "{length}");
        }
    }
}
