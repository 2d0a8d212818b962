//! Linux's helpers, numbered and named as in its `enum bpf_func_id`, and those of the public conformance suite.
//!
//! Their prototypes are in one table for each family. Some helpers have other prototypes for some program types;
//! see [`crate::ProgramType::helper`].

mod general;
mod kinds;
mod maps;
mod packet;
mod set;
pub(crate) mod sets;
mod socket;
mod trace;
pub(crate) mod variants;

use crate::helper::{Access, HelperProto};
use kinds::{Anything, Number, SIZE0, STRING, Scalar, f};
pub(crate) use maps::PACKET_MEMORY;
pub use maps::map_helpers;
pub use set::HelperSet;

/// The greatest number of a helper.
const LAST: usize = 211;

/// Prototypes of Linux's helpers, ascending by number, from 1 and without gaps.
pub static LINUX: &[&HelperProto] = &ALL;

static ALL: [&HelperProto; LAST] =
    by_number([general::HELPERS, packet::HELPERS, socket::HELPERS, trace::HELPERS]);

/// Prototypes of the helpers that the public `bpf_conformance` suite calls, by their numbers there.
pub static CONFORMANCE: &[HelperProto] = &[
    f(0, "gather_bytes", [Anything; 5], Number),
    f(1, "memfrob", [crate::ArgKind::Memory { access: Access::ReadWrite, nullable: false }, SIZE0], Number),
    f(2, "trash_registers", [], Number),
    f(3, "sqrti", [Scalar], Number),
    f(4, "strcmp_ext", [STRING, STRING], Number),
    f(5, "unwind", [Scalar], Number),
];

/// The prototype of Linux's helper of that number.
pub fn linux_helper(id: u32) -> Option<&'static HelperProto> {
    ALL.get((id as usize).checked_sub(1)?).copied()
}

/// Joins the tables of all families. A gap in the numbers fails the assertion at compile time.
const fn by_number(families: [&'static [HelperProto]; 4]) -> [&'static HelperProto; LAST] {
    let mut all = [&families[0][0]; LAST];
    let mut family = 0;
    while family < families.len() {
        let mut at = 0;
        while at < families[family].len() {
            let proto = &families[family][at];
            all[proto.id as usize - 1] = proto;
            at += 1;
        }
        family += 1;
    }
    let mut at = 0;
    while at < LAST {
        assert!(all[at].id as usize == at + 1, "a helper number has no prototype");
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::ArgKind;

    #[test]
    fn exactly_the_numbers_of_linux_have_prototypes() {
        for (at, proto) in LINUX.iter().enumerate() {
            assert_eq!(proto.id as usize, at + 1);
            assert!(std::ptr::eq(*proto, linux_helper(proto.id).unwrap()));
        }
        assert_eq!(linux_helper(28).map(|p| &*p.name), Some("csum_diff"));
        assert!(linux_helper(0).is_none() && linux_helper(212).is_none() && linux_helper(u32::MAX).is_none());
        assert!(CONFORMANCE.is_sorted_by_key(|proto| proto.id));
    }

    #[test]
    fn no_helper_is_in_two_tables() {
        let families = [general::HELPERS, packet::HELPERS, socket::HELPERS, trace::HELPERS];
        assert_eq!(families.iter().map(|family| family.len()).sum::<usize>(), LAST);
        let names: std::collections::HashSet<_> = LINUX.iter().map(|proto| &proto.name).collect();
        assert_eq!(names.len(), LAST);
    }

    #[test]
    fn every_size_follows_its_memory_and_every_key_its_map() {
        for proto in LINUX.iter().copied().chain(CONFORMANCE).chain(variants::all()) {
            for (i, arg) in proto.args.iter().enumerate() {
                match arg {
                    ArgKind::Size { .. } => {
                        assert!(
                            matches!(proto.args[i - 1], ArgKind::Memory { .. } | ArgKind::Values),
                            "{}",
                            proto.name
                        )
                    }
                    ArgKind::Memory { .. } | ArgKind::Values => {
                        assert!(matches!(proto.args[i + 1], ArgKind::Size { .. }), "{}", proto.name)
                    }
                    ArgKind::MapKey | ArgKind::MapValue(_) | ArgKind::MapValueOrNull(_) => {
                        assert!(proto.args[..i].contains(&ArgKind::Map), "{}", proto.name)
                    }
                    ArgKind::Callback(_) => {
                        let follows = proto.args.get(i + 1);
                        assert!(
                            follows == Some(&ArgKind::CallbackContext) || proto.id == 170,
                            "{}",
                            proto.name
                        )
                    }
                    ArgKind::None => {
                        assert!(proto.args[i..].iter().all(|arg| *arg == ArgKind::None), "{}", proto.name)
                    }
                    _ => {}
                }
            }
        }
    }
}
