//! What programs of type `iter` see of the objects that a runtime shows them.
//!
//! A program finds members by the types of the kernel that it was compiled for, or is relocated to. A runtime keeps few
//! of them. A load of any other is refused when the program is loaded, so no program takes a zero for an answer.

/// A structure of a kernel, and the members that a runtime keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownStruct {
    /// Its name.
    pub name: &'static str,
    /// Its members, as C writes the way to them. Those that a kernel's types lack are not there.
    pub members: &'static [&'static str],
}

/// The targets of iterators that a runtime has.
pub const SHOWN_TARGETS: &[&str] = &["bpf_link", "bpf_map", "bpf_map_elem", "bpf_prog", "tcp", "udp"];

/// The structures that it shows.
pub const SHOWN_STRUCTS: &[ShownStruct] = &[
    ShownStruct { name: "bpf_iter_meta", members: &["seq", "session_id", "seq_num"] },
    ShownStruct {
        name: "bpf_map",
        members: &[
            "id",
            "name",
            "map_type",
            "key_size",
            "value_size",
            "max_entries",
            "map_flags",
            "map_extra",
            "refcnt.counter",
            "usercnt.counter",
        ],
    },
    ShownStruct { name: "bpf_prog", members: &["aux", "type", "expected_attach_type", "tag"] },
    ShownStruct { name: "bpf_prog_aux", members: &["id", "name", "attach_btf_id"] },
    ShownStruct { name: "bpf_link", members: &["id", "type", "prog"] },
    ShownStruct {
        name: "sock_common",
        members: &[
            "skc_addrpair",
            "skc_portpair",
            "skc_family",
            "skc_state",
            "skc_bound_dev_if",
            "skc_v6_daddr",
            "skc_v6_rcv_saddr",
        ],
    },
    ShownStruct {
        name: "udp_sock",
        members: &[
            "inet.sk.__sk_common.skc_addrpair",
            "inet.sk.__sk_common.skc_portpair",
            "inet.sk.__sk_common.skc_family",
            "inet.sk.__sk_common.skc_state",
            "inet.sk.__sk_common.skc_bound_dev_if",
            "inet.sk.__sk_common.skc_v6_daddr",
            "inet.sk.__sk_common.skc_v6_rcv_saddr",
        ],
    },
    // Helpers take its address; there is nothing in it.
    ShownStruct { name: "seq_file", members: &[] },
];

impl ShownStruct {
    /// The structure of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SHOWN_STRUCTS.iter().find(|shown| shown.name == name)
    }

    /// Whether a place is a member, or in a member.
    pub fn has(&self, place: &str) -> bool {
        self.members.iter().any(|member| {
            place.strip_prefix(member).is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_member_or_in_one() {
        let map = ShownStruct::named("bpf_map").unwrap();
        assert!(map.has("id") && map.has("name") && map.has("name[3]") && map.has("refcnt.counter"));
        assert!(!map.has("refcnt") && !map.has("i") && !map.has("id2") && !map.has("ops"));
        let socket = ShownStruct::named("sock_common").unwrap();
        assert!(socket.has("skc_v6_daddr.in6_u.u6_addr8[0]") && !socket.has("skc_v6_daddr2"));
        assert_eq!(ShownStruct::named("task_struct"), None);
    }
}
