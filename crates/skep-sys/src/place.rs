//! Types of attachment: which programs go where.

use crate::engine::Engine;
use crate::programs::ProgramObject;

/// Numbers of Linux's `enum bpf_attach_type` that this library names.
pub(crate) mod attach_type {
    pub(crate) const PARSER: u32 = 4;
    pub(crate) const VERDICT: u32 = 5;
    pub(crate) const MESSAGE: u32 = 7;
    pub(crate) const FLOW_DISSECTOR: u32 = 17;
    pub(crate) const ITERATOR: u32 = 28;
    pub(crate) const XDP_DEVMAP: u32 = 33;
    pub(crate) const XDP_CPUMAP: u32 = 35;
    pub(crate) const SK_LOOKUP: u32 = 36;
    pub(crate) const XDP: u32 = 37;
    pub(crate) const ANY_VERDICT: u32 = 38;
    pub(crate) const PERF_EVENT: u32 = 41;
    pub(crate) const KPROBE_MULTI: u32 = 42;
    pub(crate) const LSM_CGROUP: u32 = 43;
    pub(crate) const NETFILTER: u32 = 45;
    pub(crate) const TCX_INGRESS: u32 = 46;
    pub(crate) const TCX_EGRESS: u32 = 47;
    pub(crate) const UPROBE_MULTI: u32 = 48;
    pub(crate) const NETKIT_PRIMARY: u32 = 54;
    pub(crate) const NETKIT_PEER: u32 = 55;
    pub(crate) const KPROBE_SESSION: u32 = 56;
}

/// Numbers of types of programs.
mod program_type {
    pub(super) const SCHED_CLS: u32 = 3;
    pub(super) const XDP: u32 = 6;
    pub(super) const CGROUP_SKB: u32 = 8;
    pub(super) const CGROUP_SOCK: u32 = 9;
    pub(super) const SOCK_OPS: u32 = 13;
    pub(super) const SK_SKB: u32 = 14;
    pub(super) const CGROUP_DEVICE: u32 = 15;
    pub(super) const SK_MSG: u32 = 16;
    pub(super) const CGROUP_SOCK_ADDR: u32 = 18;
    pub(super) const FLOW_DISSECTOR: u32 = 22;
    pub(super) const CGROUP_SYSCTL: u32 = 23;
    pub(super) const CGROUP_SOCKOPT: u32 = 25;
    pub(super) const TRACING: u32 = 26;
    pub(super) const LSM: u32 = 29;
    pub(super) const SK_LOOKUP: u32 = 30;
    pub(super) const NETFILTER: u32 = 32;
}

/// A kind of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A control group.
    Group,
    /// A network namespace.
    Network,
    /// A map of sockets.
    Sockets,
    /// A device, with many programs in an order.
    Device,
    /// A device, with one program.
    Xdp,
    /// The packet filter.
    Netfilter,
    /// An iterator.
    Iterator,
}

/// What an attach type is for: a kind of place, and the type of programs that go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) kind: Kind,
    pub(crate) program_type: u32,
}

/// What a type of attachment is for; `None` for those that this library has no place for.
pub(crate) fn use_of(number: u32) -> Option<Use> {
    use attach_type as at;
    use program_type as of;
    let (kind, program_type) = match number {
        0 | 1 => (Kind::Group, of::CGROUP_SKB),
        2 | 12 | 13 | 34 => (Kind::Group, of::CGROUP_SOCK),
        3 => (Kind::Group, of::SOCK_OPS),
        6 => (Kind::Group, of::CGROUP_DEVICE),
        8..=11 | 14 | 15 | 19 | 20 | 29..=32 | 49..=53 => (Kind::Group, of::CGROUP_SOCK_ADDR),
        18 => (Kind::Group, of::CGROUP_SYSCTL),
        21 | 22 => (Kind::Group, of::CGROUP_SOCKOPT),
        at::LSM_CGROUP => (Kind::Group, of::LSM),
        at::PARSER | at::VERDICT | at::ANY_VERDICT => (Kind::Sockets, of::SK_SKB),
        at::MESSAGE => (Kind::Sockets, of::SK_MSG),
        at::FLOW_DISSECTOR => (Kind::Network, of::FLOW_DISSECTOR),
        at::SK_LOOKUP => (Kind::Network, of::SK_LOOKUP),
        at::XDP => (Kind::Xdp, of::XDP),
        at::ITERATOR => (Kind::Iterator, of::TRACING),
        at::NETFILTER => (Kind::Netfilter, of::NETFILTER),
        at::TCX_INGRESS | at::TCX_EGRESS | at::NETKIT_PRIMARY | at::NETKIT_PEER => {
            (Kind::Device, of::SCHED_CLS)
        }
        _ => return None,
    };
    Some(Use { kind, program_type })
}

/// Whether a program may be attached as this type of attachment, beside its own type.
pub(crate) fn expects<E: Engine>(engine: &E, program: &ProgramObject<E>, attach_type: u32) -> bool {
    let expected = program.expected_attach_type();
    match program.program_type() {
        program_type::CGROUP_SOCK => match expected {
            // What it means for programs that expect nothing.
            0 => attach_type == 2,
            expected => expected == attach_type,
        },
        program_type::CGROUP_SOCK_ADDR | program_type::CGROUP_SOCKOPT | program_type::TRACING => {
            expected == attach_type
        }
        // Only results beyond those of incoming packets make a difference.
        program_type::CGROUP_SKB => {
            expected == attach_type || !engine.needs_expected_place(program.program())
        }
        _ => true,
    }
}
