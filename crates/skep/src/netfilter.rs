//! What programs of type `netfilter` are given: the state of a hook, and the packet as a socket buffer.
//!
//! ```text
//!   struct bpf_nf_ctx { state, skb }        r1
//!                         |      '------->  SkbContext, whose bytes begin with the network header
//!                         '-------------->  struct nf_hook_state { hook, pf, in, out } ---> struct net_device
//! ```
//!
//! Their types are those of `data/netfilter.bpf.c`, whatever types the host has: programs that were compiled with a
//! kernel's types find the members that there are by CO-RE. Programs only read, by loads that fault safely, and
//! hand the
//! buffer to `bpf_dynptr_from_skb`.

use crate::packet::Packet;
use skep_abi::{ProgramType, SkbContext};
use skep_btf::Btf;
use std::sync::{Arc, LazyLock};

static TYPES: LazyLock<Option<Arc<Btf>>> = LazyLock::new(|| {
    let object = skep_elf::Object::parse(include_bytes!("../data/netfilter.bpf.o")).ok()?;
    object.btf().cloned()
});

/// The types of what programs of that type are given, where they are the runtime's own.
pub(crate) fn types(program_type: &ProgramType) -> Option<&'static Arc<Btf>> {
    if program_type.native == Some(skep_abi::Native::Netfilter) { TYPES.as_ref() } else { None }
}

/// `NFPROTO_IPV4` and `NFPROTO_IPV6`, and the Ethernet type of the latter.
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// The first hook for packets that leave, and the one for those that came in nowhere: `NF_INET_FORWARD`,
/// `NF_INET_LOCAL_OUT`.
const FORWARD: u8 = 2;
const LOCAL_OUT: u8 = 3;

/// What a run reads. Its addresses are valid as long as it is not moved.
pub(crate) struct NativeHook {
    words: [u64; 2],
    state: State,
    devices: [i32; 2],
    pub(crate) skb: SkbContext,
}

#[repr(C)]
struct State {
    hook: u8,
    pf: u8,
    /// Addresses in `devices`, or 0.
    devices: [u64; 2],
}

impl NativeHook {
    pub(crate) fn new(packet: &mut Packet) -> Self {
        let pf = if packet.bytes().get(12..14) == Some(&ETHERTYPE_IPV6[..]) { IPV6 } else { IPV4 };
        let info = &packet.info;
        let (sent, leaves) = (info.netfilter_hook == LOCAL_OUT, info.netfilter_hook >= FORWARD);
        // After routing, a packet that is forwarded still has the device that it came in on.
        let inward = if sent { 0 } else { info.ingress_ifindex };
        let devices = [inward, if leaves { info.ifindex } else { 0 }].map(u32::cast_signed);
        let state = State { hook: info.netfilter_hook, pf, devices: [0; 2] };
        Self { words: [0; 2], state, devices, skb: packet.skb(true) }
    }

    /// The address of the context, after all others are set.
    pub(crate) fn words(&mut self) -> u64 {
        for (at, device) in self.devices.iter().enumerate().filter(|(_, device)| **device != 0) {
            self.state.devices[at] = std::ptr::from_ref(device).expose_provenance() as u64;
        }
        let state = (&raw mut self.state).expose_provenance() as u64;
        self.words = [state, (&raw mut self.skb).expose_provenance() as u64];
        self.words.as_mut_ptr().expose_provenance() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_types_have_the_places_of_the_native_structures() {
        let btf = TYPES.as_ref().expect("types");
        let members = |name: &str| -> Vec<(String, usize)> {
            let id = btf.find(name, skep_btf::Kind::Struct).expect(name);
            let members = btf.members(id).expect("members");
            members.map(|m| (m.name().expect("a name").to_owned(), m.bit_offset as usize / 8)).collect()
        };
        let places = |name: &str, wanted: &[(&str, usize)]| {
            let members = members(name);
            for (member, at) in wanted {
                assert!(
                    members.contains(&((*member).to_owned(), *at)),
                    "{name}.{member} at {at}: {members:?}"
                );
            }
        };
        let (mark, priority) = (offset_of!(SkbContext, mark), offset_of!(SkbContext, priority));
        let (len, hash) = (offset_of!(SkbContext, len), offset_of!(SkbContext, hash));
        // Its lower half, in network order.
        let protocol = offset_of!(SkbContext, protocol);
        places("sk_buff", &[("len", len), ("mark", mark), ("priority", priority), ("hash", hash)]);
        places("sk_buff", &[("protocol", protocol)]);
        let devices = offset_of!(State, devices);
        places("nf_hook_state", &[("hook", 0), ("pf", 1), ("in", devices), ("out", devices + 8)]);
        places("bpf_nf_ctx", &[("state", 0), ("skb", 8)]);
        places("net_device", &[("ifindex", 0)]);
    }
}
