//! Objects that iterators show, as data of the host.

use crate::program::Program;
use crate::shown::{Layout, Structure};
use skep_maps::Map;
use skep_world::{Protocol, Socket};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `AF_INET` and `AF_INET6`.
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;

/// A map as programs of iterators see it: numbers are those of Linux's interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the members of struct bpf_map")]
pub struct ShownMap {
    pub id: u32,
    pub name: String,
    pub map_type: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub map_flags: u32,
    pub map_extra: u64,
    /// How many things hold it (`refcnt`).
    pub references: u64,
    /// How many of these are its users': descriptors and pins (`usercnt`).
    pub uses: u64,
}

/// A program as programs of iterators see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the members of struct bpf_prog and struct bpf_prog_aux")]
pub struct ShownProgram {
    pub id: u32,
    pub name: String,
    pub program_type: u32,
    pub expected_attach_type: u32,
    pub tag: [u8; 8],
    pub attach_btf_id: u32,
}

/// A link as programs of iterators see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the members of struct bpf_link")]
pub struct ShownLink {
    pub id: u32,
    /// In Linux's `enum bpf_link_type`.
    pub link_type: u32,
    pub program: ShownProgram,
}

/// A socket as programs of iterators see it.
pub(super) fn socket<'l>(socket: &Socket, layout: &'l Layout) -> Structure<'l> {
    let (name, prefix) = match socket.protocol {
        Protocol::Udp => ("udp_sock", "inet.sk.__sk_common."),
        _ => ("sock_common", ""),
    };
    let mut structure = layout.structure(name);
    let member = |name: &str| format!("{prefix}{name}");
    let unspecified = SocketAddr::new(
        match socket.local.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        },
        0,
    );
    let (local, remote) = (socket.local, socket.remote.unwrap_or(unspecified));
    match (remote.ip(), local.ip()) {
        (IpAddr::V4(remote), IpAddr::V4(local)) => {
            structure.set_bytes(&member("skc_addrpair"), &[remote.octets(), local.octets()].concat(), false);
            structure.set(&member("skc_family"), AF_INET);
        }
        (remote, local) => {
            let octets = |ip| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            structure.set_bytes(&member("skc_v6_daddr"), &octets(remote), false);
            structure.set_bytes(&member("skc_v6_rcv_saddr"), &octets(local), false);
            structure.set(&member("skc_family"), AF_INET6);
        }
    }
    // The other end's port in network order, the own in that of the machine.
    let ports = [remote.port().to_be_bytes(), local.port().to_ne_bytes()].concat();
    structure.set_bytes(&member("skc_portpair"), &ports, false);
    structure.set(&member("skc_state"), socket.state as u64);
    structure.set(&member("skc_bound_dev_if"), socket.device.unwrap_or(0).into());
    structure
}

/// A structure, and those that it leads to.
pub(super) struct Structures<'l> {
    first: Structure<'l>,
    others: Vec<Structure<'l>>,
}

impl Structures<'_> {
    /// The address of the first, and where all of them are.
    pub(super) fn spans(&mut self) -> (u64, Vec<(u64, usize)>) {
        let first = self.first.span();
        (first.0, [first].into_iter().chain(self.others.iter_mut().map(Structure::span)).collect())
    }
}

impl ShownMap {
    /// What there is to say of a map of the library, which has no number.
    pub fn of(map: &Map) -> Self {
        let def = map.def();
        Self {
            id: 0,
            name: def.name.clone(),
            map_type: def.kind.number(),
            key_size: def.key_size,
            value_size: def.value_size,
            max_entries: def.max_entries,
            map_flags: def.flags.0,
            map_extra: 0,
            references: 1,
            uses: 1,
        }
    }

    pub(super) fn structure<'l>(&self, layout: &'l Layout) -> Structure<'l> {
        let mut map = layout.structure("bpf_map");
        map.set_bytes("name", self.name.as_bytes(), true);
        map.set("id", self.id.into());
        map.set("map_type", self.map_type.into());
        map.set("key_size", self.key_size.into());
        map.set("value_size", self.value_size.into());
        map.set("max_entries", self.max_entries.into());
        map.set("map_flags", self.map_flags.into());
        map.set("map_extra", self.map_extra);
        map.set("refcnt.counter", self.references);
        map.set("usercnt.counter", self.uses);
        map
    }
}

impl ShownProgram {
    /// What there is to say of a program of the library, which has no number.
    pub fn of(program: &Program) -> Self {
        let kind = program.program_type();
        Self {
            name: program.name().to_owned(),
            program_type: kind.number.unwrap_or(0),
            expected_attach_type: kind.attach.unwrap_or(0),
            tag: program.verified().tag(),
            ..Self::default()
        }
    }

    pub(super) fn structures<'l>(&self, layout: &'l Layout) -> Structures<'l> {
        let mut aux = layout.structure("bpf_prog_aux");
        aux.set("id", self.id.into());
        aux.set_bytes("name", self.name.as_bytes(), true);
        aux.set("attach_btf_id", self.attach_btf_id.into());
        let mut program = layout.structure("bpf_prog");
        program.set("type", self.program_type.into());
        program.set("expected_attach_type", self.expected_attach_type.into());
        program.set_bytes("tag", &self.tag, false);
        program.set("aux", aux.address());
        Structures { first: program, others: vec![aux] }
    }
}

impl ShownLink {
    pub(super) fn structures<'l>(&self, layout: &'l Layout) -> Structures<'l> {
        let mut program = self.program.structures(layout);
        let mut link = layout.structure("bpf_link");
        link.set("id", self.id.into());
        link.set("type", self.link_type.into());
        link.set("prog", program.first.address());
        let Structures { first, mut others } = program;
        others.push(first);
        Structures { first: link, others }
    }
}
