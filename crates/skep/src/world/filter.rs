//! The packet filter: a packet's way through the stack of a namespace that has programs of it, and what sockets send.
//!
//! Without such programs packets that come in take [`stack::receive`], which decides all at once.

use super::attach::At;
use super::point::Family;
use super::stack::{self, Way};
use super::trace::{Fate, Place};
use super::walk::{Next, Station, Walk};
use skep_world::{Departure, Socket};
use std::sync::Arc;

/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;

impl Walk<'_, '_> {
    /// A packet that came in on a device.
    pub(super) fn through_filters(&mut self, at: &At) -> Next {
        let layout = self.layout;
        let (device, namespace) = (&at.device, at.device.namespace);
        let index = device.index;
        let family = match stack::enter(device, self.packet) {
            Ok(Some(family)) => family,
            Ok(None) => return self.end(Fate::Delivered { device: index }),
            Err(fate) => return self.end(fate),
        };
        if let Some(next) = self.filter(namespace, family, Place::PreRouting, index) {
            return next;
        }
        match stack::way(&layout.machine, device, self.packet) {
            Ok(Way::Own) => {
                self.filter(namespace, family, Place::LocalIn, index).unwrap_or_else(|| self.deliver(at))
            }
            Ok(Way::Out(out, next_hop)) => {
                self.packet.info.ifindex = out;
                self.filter(namespace, family, Place::Forward, index)
                    .or_else(|| self.filter(namespace, family, Place::PostRouting, out))
                    .unwrap_or_else(|| match (next_hop, layout.at(out)) {
                        (Ok(to), Some(out)) => {
                            stack::put_macs(self.packet.bytes_mut(), to, out.device.mac);
                            Next::new(Station::Egress, out.device.index)
                        }
                        (Ok(_), None) => self.end(Fate::NoDevice { device: out }),
                        (Err(fate), _) => self.end(fate),
                    })
            }
            Err(fate) => self.end(fate),
        }
    }

    /// A packet that a socket sends.
    pub(super) fn output(&mut self, socket: &Arc<Socket>) -> Next {
        let layout = self.layout;
        self.packet.set_sender(socket);
        let (family, departure) = match stack::departure(&layout.machine, socket, self.packet.bytes()) {
            Ok(found) => found,
            Err(fate) => return self.end(fate),
        };
        let (Departure::Own { device } | Departure::Sent { device, .. }) = departure else {
            return self.end(Fate::NoRoute { device: 0 });
        };
        let index = device.index;
        self.packet.info.ifindex = index;
        let stopped = self
            .filter(socket.namespace, family, Place::LocalOut, index)
            .or_else(|| self.filter(socket.namespace, family, Place::PostRouting, index))
            // Linux asks cgroups last.
            .or_else(|| self.cgroup(socket.cgroup, index, Place::CgroupEgress));
        if let Some(next) = stopped {
            return next;
        }
        match departure {
            Departure::Sent { destination: Some(to), .. } => {
                stack::put_macs(self.packet.bytes_mut(), to, device.mac);
                Next::new(Station::Egress, index)
            }
            Departure::Sent { next_hop, .. } => {
                self.end(Fate::NoNeighbour { device: index, address: next_hop })
            }
            _ => {
                stack::put_macs(self.packet.bytes_mut(), device.mac, device.mac);
                self.packet.info.ingress_ifindex = index;
                Next::new(Station::Stack, index)
            }
        }
    }

    /// Runs the programs of a hook. `None`: they accept the packet.
    fn filter(&mut self, namespace: u32, family: Family, hook: Place, device: u32) -> Option<Next> {
        let layout = self.layout;
        self.packet.info.netfilter_hook = hook.netfilter()?;
        layout.filters(namespace, family, hook).iter().find_map(|programs| {
            self.run(programs, device, hook, |walk, program, result, _| {
                (result != ACCEPT).then(|| walk.dropped(program, result))
            })
        })
    }
}
