//! What programs of type `iter` are given: the objects that an iterator shows, as structures of a kernel.
//!
//! ```text
//!   words of the context     r1
//!     [meta] ----> struct bpf_iter_meta { seq, session_id, seq_num }
//!     [map]  ----> struct bpf_map { id, name, ... }
//!     [key], [value] ----> of the element
//! ```
//!
//! The host's types decide where members are; without them those of `data/iterators.bpf.c` do. Only the members in
//! [`skep_abi::SHOWN_STRUCTS`] are filled in, and the verifier refuses loads of all others ([`SHOWN`]).
//!
//! Invariant, on which the verifier relies: every pointer in a structure leads to a structure as long as its type says.

use skep_abi::{Native, ProgramType, SHOWN_STRUCTS, SHOWN_TARGETS, ShownStruct};
use skep_btf::{Btf, Kind};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

static TYPES: LazyLock<Option<Arc<Btf>>> = LazyLock::new(|| {
    let object = skep_elf::Object::parse(include_bytes!("../data/iterators.bpf.o")).ok()?;
    object.btf().cloned()
});

/// The most bytes of a structure.
const MOST: u32 = 1 << 16;

/// The runtime's own types for that program type, if the host has none.
pub(crate) fn types(program_type: &ProgramType, host: Option<&Arc<Btf>>) -> Option<&'static Arc<Btf>> {
    if shown(program_type).is_some() && host.is_none() { TYPES.as_ref() } else { None }
}

/// The members that programs of that type may read.
pub(crate) fn shown(program_type: &ProgramType) -> Option<&'static [ShownStruct]> {
    (program_type.native == Some(Native::Iterator)).then_some(SHOWN_STRUCTS)
}

/// What an iterator shows, and where programs find it.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The name of its objects: `bpf_map_elem`.
    pub(crate) target: &'static str,
    /// The words of the context.
    pub(crate) arguments: Box<[Argument]>,
    structures: Box<[Places]>,
}

/// A word of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// The address of a structure of that name, or null.
    Structure(&'static str),
    /// The address of an element's key, or null.
    Key,
    /// The address of an element's value, or null.
    Value,
    /// The user that owns a socket.
    User,
    /// The number of a socket's bucket in the table of its protocol: there is one.
    Bucket,
}

/// Where the members of a structure are.
#[derive(Debug)]
pub(crate) struct Places {
    name: &'static str,
    bytes: usize,
    members: Vec<(&'static str, Range<usize>)>,
}

impl Layout {
    /// That of a target by these types; without types the runtime's own.
    pub(crate) fn of(target: Option<&str>, types: Option<&Btf>) -> Result<Self, String> {
        let types = types.or_else(|| TYPES.as_deref());
        let (Some(target), Some(btf)) = (target, types) else {
            return Err("the types of what it shows are not given".to_owned());
        };
        let target = SHOWN_TARGETS.iter().find(|known| **known == target).ok_or_else(|| {
            format!("there are iterators over {}, not over {target}", SHOWN_TARGETS.join(", "))
        })?;
        let damaged = |error: skep_btf::Error| error.to_string();
        let function = btf.find(&format!("bpf_iter_{target}"), Kind::Func);
        let function = function.ok_or_else(|| format!("the types lack the function bpf_iter_{target}"))?;
        let mut arguments = Vec::new();
        for param in btf.prototype(function).map_err(damaged)?.params() {
            let name = param.name().map_err(damaged)?;
            let to = btf.pointer(param.ty).map_err(damaged)?.map(|pointer| btf.ty(pointer.to));
            let to = to.transpose().map_err(damaged)?;
            let of = to.as_ref().and_then(|to| to.name().ok()).unwrap_or_default();
            arguments.push(match (name, to.map(|to| to.kind), ShownStruct::named(of)) {
                (_, Some(Kind::Struct), Some(shown)) => Argument::Structure(shown.name),
                ("uid", None, _) => Argument::User,
                ("bucket", None, _) => Argument::Bucket,
                ("key", Some(Kind::Void), _) => Argument::Key,
                ("value", Some(Kind::Void), _) => Argument::Value,
                _ => return Err(format!("the iterator over {target} gives `{name}`, which is not provided")),
            });
        }
        let structures = SHOWN_STRUCTS.iter().filter_map(|shown| Places::of(shown, btf).transpose());
        let structures = structures.collect::<Result<_, _>>()?;
        Ok(Self { target, arguments: arguments.into(), structures })
    }

    /// A structure of that name, all zeroes. Programs cannot reach a member of one that the types lack.
    pub(crate) fn structure(&self, name: &str) -> Structure<'_> {
        let places = self.structures.iter().find(|places| places.name == name);
        let words = places.map_or(0, |places| places.bytes).div_ceil(8).max(1);
        Structure { places, words: vec![0; words].into() }
    }
}

impl Places {
    fn of(shown: &ShownStruct, btf: &Btf) -> Result<Option<Self>, String> {
        let damaged = |error: skep_btf::Error| error.to_string();
        let Some(id) = btf.find(shown.name, Kind::Struct) else { return Ok(None) };
        let bytes = btf.size(id).map_err(damaged)?;
        if bytes > MOST {
            return Err(format!("struct {} has {bytes} bytes, more than {MOST}", shown.name));
        }
        let mut members = Vec::new();
        for member in shown.members {
            let place = btf.member_bytes(id, member).map_err(damaged)?;
            if let Some(place) = place.filter(|place| place.end <= bytes) {
                members.push((*member, place.start as usize..place.end as usize));
            }
        }
        Ok(Some(Self { name: shown.name, bytes: bytes as usize, members }))
    }
}

/// A structure that a program reads. Its address is valid as long as it lives, wherever it is moved.
pub(crate) struct Structure<'l> {
    places: Option<&'l Places>,
    words: Box<[u64]>,
}

impl Structure<'_> {
    /// Sets a number, of which the member takes the lower bytes.
    pub(crate) fn set(&mut self, member: &str, number: u64) {
        let bytes = number.to_ne_bytes();
        let Some(into) = self.member(member) else { return };
        let count = into.len().min(bytes.len());
        let start = if cfg!(target_endian = "big") { bytes.len() - count } else { 0 };
        into[..count].copy_from_slice(&bytes[start..start + count]);
    }

    /// Sets bytes, zeroes behind them. The last byte of a text stays 0.
    pub(crate) fn set_bytes(&mut self, member: &str, bytes: &[u8], text: bool) {
        let Some(into) = self.member(member) else { return };
        let count = bytes.len().min(into.len().saturating_sub(usize::from(text)));
        into.fill(0);
        into[..count].copy_from_slice(&bytes[..count]);
    }

    /// Its address for a program that only reads it.
    pub(crate) fn address(&mut self) -> u64 {
        self.words.as_mut_ptr().expose_provenance() as u64
    }

    /// Where it is, and how long.
    pub(crate) fn span(&mut self) -> (u64, usize) {
        (self.address(), size_of_val(&*self.words))
    }

    fn member(&mut self, name: &str) -> Option<&mut [u8]> {
        let (_, place) = self.places?.members.iter().find(|(member, _)| *member == name)?;
        let place = place.clone();
        // SAFETY: numbers have no padding and any bytes are numbers; the borrow is passed on.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), size_of_val(&*self.words))
        };
        bytes.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_own_types_have_all_that_is_shown() {
        let btf = TYPES.as_deref().expect("types");
        for shown in SHOWN_STRUCTS {
            let places = Places::of(shown, btf).unwrap().expect(shown.name);
            let found: Vec<_> = places.members.iter().map(|(member, _)| *member).collect();
            assert_eq!(found, shown.members, "{}", shown.name);
        }
        for target in SHOWN_TARGETS {
            let layout = Layout::of(Some(target), None).unwrap();
            assert_eq!(layout.arguments[0], Argument::Structure("bpf_iter_meta"));
        }
    }

    #[test]
    fn an_unknown_target_is_told_which_there_are() {
        let error = Layout::of(Some("ksym"), None).unwrap_err();
        assert!(error.contains("bpf_map_elem") && error.contains("ksym"), "{error}");
    }

    #[test]
    fn a_name_is_cut_before_its_end_and_a_number_to_its_size() {
        let layout = Layout::of(Some("bpf_map"), None).unwrap();
        let mut map = layout.structure("bpf_map");
        map.set_bytes("name", &[b'x'; 40], true);
        assert_eq!(map.member("name").unwrap(), [&[b'x'; 15][..], &[0]].concat());
        map.set_bytes("name", b"y", true);
        assert_eq!(map.member("name").unwrap()[..3], *b"y\0\0");
        map.set("id", 0x1_0000_0007);
        assert_eq!(map.member("id").unwrap(), 7u32.to_ne_bytes());
        map.set("no such member", 1);
    }
}
