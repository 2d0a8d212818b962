//! Places where programs run: those of the world that a packet passes. Programs at other places are kept by the system
//! call alone.

use super::errno;
use crate::error::Error;
use crate::hook::Link;
use crate::program::Program;
use crate::world::{Family, Key, Place, World};
use skep_btf::Btf;
use skep_sys::Errno;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// `BPF_TCX_INGRESS`, `BPF_NETKIT_PRIMARY`, `BPF_NETKIT_PEER`, `BPF_CGROUP_INET_INGRESS`, `BPF_CGROUP_INET_EGRESS`,
/// `BPF_SK_LOOKUP`.
const TCX_INGRESS: u32 = 46;
const NETKIT_PRIMARY: u32 = 54;
const NETKIT_PEER: u32 = 55;
const INET_INGRESS: u32 = 0;
const INET_EGRESS: u32 = 1;
const SK_LOOKUP: u32 = 36;
/// `NFPROTO_IPV4`; the other family is that of IPv6.
const NFPROTO_IPV4: u32 = 2;
/// The hooks of the packet filter, by Linux's numbers.
const HOOKS: [Place; 5] =
    [Place::PreRouting, Place::LocalIn, Place::Forward, Place::LocalOut, Place::PostRouting];
/// Tracepoints of a system whose types nobody knows.
const TRACEPOINTS: [&str; 8] = [
    "sys_enter",
    "sys_exit",
    "sched_switch",
    "sched_wakeup",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_fork",
    "task_newtask",
];

/// What clients have attached to places of the world.
#[derive(Debug, Default)]
pub(super) struct Places {
    links: Mutex<BTreeMap<Key, Vec<Link>>>,
    /// The world's number of a network namespace.
    networks: Vec<(u64, u32)>,
}

impl Places {
    /// Says which of the world's namespaces clients mean by a number.
    pub(super) fn add_network(&mut self, id: u64, namespace: u32) {
        self.networks.push((id, namespace));
    }

    pub(super) fn set(
        &self,
        world: Option<&World>,
        to: &skep_sys::Place,
        programs: &[&Program],
    ) -> Result<(), Errno> {
        let Some(key) = self.key(to) else { return Ok(()) };
        let world = match (world, key) {
            (Some(world), _) => world,
            (None, Key::Device(..)) => return Err(Errno::ENODEV),
            // Packets have no way.
            (None, _) => return Ok(()),
        };
        let mut all = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let mut links = all.remove(&key).unwrap_or_default();
        if let Key::Device(index, Place::Xdp) = key {
            // A device has one XDP program, which somebody else may have attached.
            let first = links.is_empty() && !programs.is_empty();
            if first && !world.attached(index, Place::Xdp).map_err(|_| Errno::EINVAL)?.is_empty() {
                return Err(Errno::EBUSY);
            }
        }
        let done = world.replace_all(&mut links, programs, key);
        if !links.is_empty() {
            all.insert(key, links);
        }
        done.map_err(|error: Error| errno(&error))
    }

    /// What the world calls a place; `None` if it has no such place, and programs there run in test runs alone.
    fn key(&self, place: &skep_sys::Place) -> Option<Key> {
        Some(match *place {
            skep_sys::Place::Xdp { device, .. } => Key::Device(device, Place::Xdp),
            skep_sys::Place::Device { index, attach_type: TCX_INGRESS } => Key::Device(index, Place::Ingress),
            skep_sys::Place::Device { index, attach_type: NETKIT_PRIMARY } => {
                Key::Device(index, Place::NetkitPrimary)
            }
            skep_sys::Place::Device { index, attach_type: NETKIT_PEER } => {
                Key::Device(index, Place::NetkitPeer)
            }
            skep_sys::Place::Device { index, .. } => Key::Device(index, Place::Egress),
            skep_sys::Place::ControlGroup { id, attach_type: INET_INGRESS } => {
                Key::Effective(id, Place::CgroupIngress)
            }
            skep_sys::Place::ControlGroup { id, attach_type: INET_EGRESS } => {
                Key::Effective(id, Place::CgroupEgress)
            }
            skep_sys::Place::Network { id, attach_type: SK_LOOKUP } => Key::Lookup(self.namespace(id)?),
            skep_sys::Place::Netfilter { network, family, hook, priority } => {
                let family = if family == NFPROTO_IPV4 { Family::V4 } else { Family::V6 };
                let hook = HOOKS.get(hook as usize)?;
                Key::Netfilter(self.namespace(network)?, family, *hook, priority)
            }
            _ => return None,
        })
    }

    /// The world's number of a namespace. Those that nobody has named have the same number in both.
    fn namespace(&self, id: u64) -> Option<u32> {
        let named = self.networks.iter().find(|(known, _)| *known == id);
        named.map_or_else(|| u32::try_from(id).ok(), |(_, namespace)| Some(*namespace))
    }
}

/// Whether a system with these types has a tracepoint; each has a type of its own.
pub(super) fn has_tracepoint(types: Option<&Btf>, name: &str) -> bool {
    match types {
        Some(types) => types.find(&format!("btf_trace_{name}"), skep_btf::Kind::Typedef).is_some(),
        None => TRACEPOINTS.contains(&name),
    }
}
