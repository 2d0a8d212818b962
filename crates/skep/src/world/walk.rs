//! The way of one packet, from station to station.

use super::attach::{At, Layout};
use super::stack;
use super::trace::{Fate, Hops, Place};
use crate::error::Error;
use crate::hook::Hook;
use crate::packet::{Packet, Redirect};
use crate::program::Program;
use crate::targets;
use skep_world::NetkitPolicy;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// Copies of one packet that go on: copies of copies grow without bounds.
const MAX_COPIES: usize = 1024;
/// Bytes of an Ethernet header, and of a VLAN tag that does not count for the MTU.
const ETHERNET: usize = 14;
const TAG: usize = 4;
/// Results of XDP programs.
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;
/// Results of tc programs.
const TC_OK: u32 = 0;
const TC_RECLASSIFY: u32 = 1;
const TC_SHOT: u32 = 2;
const TC_STOLEN: u32 = 4;
const TC_QUEUED: u32 = 5;
const TC_REDIRECT: u32 = 7;
const TC_TRAP: u32 = 8;
/// The result by which a netkit program leaves it to the next one.
const NETKIT_NEXT: u32 = u32::MAX;

/// Where a packet is next, and which device it is about. Small enough for a register: a packet takes many steps, and
/// its end only once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    station: Station,
    device: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Station {
    /// It comes in.
    Xdp,
    Ingress,
    /// The machine's own network stack has it.
    Stack,
    Egress,
    /// It leaves, and programs do not see it any more.
    Leave,
    /// It needs the Ethernet header of [`Walk::next_hop`].
    Neighbour,
    /// It goes to the other end of the device's pair.
    Peer,
    /// The program [`Walk::target`].
    Target,
    /// [`Walk::fate`] says where it ended, or [`Walk::error`] why it cannot go on.
    Done,
}

/// The program of a target in a map.
pub(super) struct TargetProgram {
    /// `None` if the host has dropped it.
    pub(super) program: Option<Program>,
    pub(super) place: Place,
}

/// Where a copy begins.
pub(super) struct Start {
    pub(super) next: Next,
    pub(super) next_hop: Option<IpAddr>,
    pub(super) target: Option<TargetProgram>,
}

impl Next {
    pub(super) const fn new(station: Station, device: u32) -> Self {
        Self { station, device }
    }
}

impl Start {
    pub(super) const fn at(next: Next) -> Self {
        Self { next, next_hop: None, target: None }
    }
}

/// Copies that have not ended yet.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) waiting: VecDeque<(Start, Packet)>,
    made: usize,
}

impl Copies {
    fn add(&mut self, start: Start, packet: Packet) {
        if self.made < MAX_COPIES {
            self.made += 1;
            self.waiting.push_back((start, packet));
        }
    }
}

/// The way of one packet.
pub(super) struct Walk<'a, 'h> {
    pub(super) layout: &'a Layout,
    pub(super) packet: &'a mut Packet,
    copy: u32,
    hops: &'a mut Hops<'h>,
    copies: &'a mut Copies,
    pub(super) next_hop: Option<IpAddr>,
    pub(super) target: Option<TargetProgram>,
    pub(super) fate: &'a mut Fate,
    error: Option<Box<Error>>,
    /// The device of the last step: most steps stay on it.
    at: Option<&'a At>,
}

impl<'a, 'h> Walk<'a, 'h> {
    #[inline]
    pub(super) fn new(
        layout: &'a Layout,
        packet: &'a mut Packet,
        copy: u32,
        hops: &'a mut Hops<'h>,
        copies: &'a mut Copies,
        fate: &'a mut Fate,
    ) -> Self {
        Self { layout, packet, copy, hops, copies, next_hop: None, target: None, fate, error: None, at: None }
    }

    /// Takes over where a packet begins.
    pub(super) fn begin(&mut self, start: Start) -> Next {
        (self.next_hop, self.target) = (start.next_hop, start.target);
        start.next
    }

    /// Goes from station to station until the packet ends, or has taken too many steps.
    pub(super) fn go(mut self, mut next: Next, max_steps: u32) -> Result<(), Error> {
        for _ in 0..max_steps {
            next = self.step(next);
            if matches!(next.station, Station::Done) {
                return self.error.take().map_or(Ok(()), |error| Err(*error));
            }
        }
        *self.fate = Fate::Loop { steps: max_steps };
        Ok(())
    }

    fn step(&mut self, next: Next) -> Next {
        let index = next.device;
        let layout = self.layout;
        let at = self.at.filter(|at| at.device.index == index).or_else(|| layout.at(index));
        self.at = at;
        let Some(at) = at else {
            return match next.station {
                Station::Done => next,
                _ => self.end(Fate::NoDevice { device: index }),
            };
        };
        match next.station {
            Station::Xdp => self.xdp(at),
            Station::Ingress => self.tc(at, Place::Ingress),
            Station::Egress => self.tc(at, Place::Egress),
            Station::Stack if at.filtered => self.through_filters(at),
            Station::Stack => match stack::receive(&layout.machine, &at.device, self.packet, self.fate) {
                Some(out) => Next::new(Station::Egress, out),
                None => self.stopped(at),
            },
            Station::Leave => self.leave(at),
            Station::Neighbour => {
                match stack::address(&layout.machine, &at.device, self.next_hop.take(), self.packet) {
                    Ok(()) => Next::new(Station::Egress, index),
                    Err(fate) => self.end(fate),
                }
            }
            Station::Peer => match at.device.peer {
                Some(peer) => Next::new(Station::Ingress, peer),
                None => self.end(Fate::NoPeer { device: index }),
            },
            Station::Target => self.target(index),
            Station::Done => next,
        }
    }

    #[cold]
    pub(super) fn end(&mut self, fate: Fate) -> Next {
        *self.fate = fate;
        Next::new(Station::Done, 0)
    }

    fn xdp(&mut self, at: &At) -> Next {
        let device = at.device.index;
        if !at.device.up {
            return self.end(Fate::Down { device });
        }
        self.packet.info.ingress_ifindex = device;
        self.packet.info.ifindex = 0;
        let next = at.xdp.as_ref().and_then(|hook| self.run(hook, device, Place::Xdp, Self::after_xdp));
        next.unwrap_or(Next::new(Station::Ingress, device))
    }

    fn tc(&mut self, at: &At, place: Place) -> Next {
        let device = at.device.index;
        if !at.device.up {
            return self.end(Fate::Down { device });
        }
        self.packet.info.ifindex = device;
        let (hook, pass) = if place == Place::Egress {
            (&at.egress, Next::new(Station::Leave, device))
        } else {
            self.packet.info.ingress_ifindex = device;
            (&at.ingress, Next::new(Station::Stack, device))
        };
        let after = |walk: &mut Self, program: &Program, result, _| walk.after_tc(program, result, pass);
        hook.as_ref().and_then(|hook| self.run(hook, device, place, after)).unwrap_or(pass)
    }

    /// The program of a target that the packet was redirected to.
    fn target(&mut self, device: u32) -> Next {
        let Some(TargetProgram { program, place }) = self.target.take() else {
            return self.end(Fate::NoDevice { device });
        };
        let Some(program) = program else { return self.end(Fate::NoProgram { device }) };
        self.packet.info.ifindex = if place == Place::Devmap { device } else { 0 };
        let result = match program.run(self.packet) {
            Ok(result) => result as u32,
            Err(error) => return self.fail(error),
        };
        self.hop(&program, device, place, result);
        self.packet.info.ifindex = 0;
        match (place, result) {
            (Place::Xdp, _) => {
                let next = self.after_xdp(&program, result, device);
                next.unwrap_or(Next::new(Station::Ingress, device))
            }
            (Place::Devmap, XDP_PASS) => Next::new(Station::Leave, device),
            (Place::Cpumap, XDP_PASS) => Next::new(Station::Ingress, device),
            (Place::Cpumap, XDP_REDIRECT) => {
                let next = self.after_xdp(&program, result, device);
                next.unwrap_or_else(|| self.dropped(&program, result))
            }
            _ => self.dropped(&program, result),
        }
    }

    /// Runs the programs of a hook until one of them decides. `None`: they let the packet pass.
    pub(super) fn run(
        &mut self,
        hook: &Hook,
        device: u32,
        place: Place,
        mut decide: impl FnMut(&mut Self, &Program, u32, u32) -> Option<Next>,
    ) -> Option<Next> {
        let mut next = None;
        let ran = hook.until(|program| {
            next = match program.run(self.packet) {
                Ok(result) => {
                    let result = result as u32;
                    self.hop(program, device, place, result);
                    decide(self, program, result, device)
                }
                Err(error) => Some(self.fail(error)),
            };
            next.is_some()
        });
        match ran {
            Ok(()) => next,
            Err(error) => Some(self.fail(error)),
        }
    }

    #[cold]
    pub(super) fn fail(&mut self, error: Error) -> Next {
        self.error = Some(Box::new(error));
        Next::new(Station::Done, 0)
    }

    /// Notes a program, and takes the copies that it sent.
    fn hop(&mut self, program: &Program, device: u32, place: Place, result: u32) {
        let effects = &mut self.packet.effects;
        if !effects.clones.is_empty() {
            for copied in effects.clones.drain(..) {
                let (next, next_hop) = way_of(copied.to);
                self.copies.add(Start { next, next_hop, target: None }, copied.packet);
            }
        }
        let redirects = match place {
            Place::Ingress | Place::Egress | Place::NetkitPrimary | Place::NetkitPeer => TC_REDIRECT,
            _ => XDP_REDIRECT,
        };
        let hop = self.hops.add(program.image().shared_name(), program.program_type());
        (hop.copy, hop.device, hop.place, hop.result) = (self.copy, device, place, result);
        if effects.redirect.is_some() {
            // Copied whole and then forgotten: to copy what is in use only takes longer.
            hop.redirect = effects.redirect;
            if result == redirects {
                return;
            }
        }
        hop.redirect = None;
    }

    /// Notes a program that did not run on the packet itself.
    pub(super) fn note(&mut self, program: &Program, device: u32, place: Place, result: u32) {
        let hop = self.hops.add(program.image().shared_name(), program.program_type());
        (hop.copy, hop.device, hop.place, hop.result) = (self.copy, device, place, result);
        hop.redirect = None;
    }

    fn leave(&mut self, at: &At) -> Next {
        let device = &at.device;
        let index = device.index;
        if !device.up {
            return self.end(Fate::Down { device: index });
        }
        if self.packet.bytes().len() > device.mtu as usize + ETHERNET + TAG {
            return self.end(Fate::TooLong { device: index, mtu: device.mtu });
        }
        let Some(peer) = device.peer else {
            // Where most packets end: nothing else is written.
            *self.fate = Fate::Sent { device: index };
            return Next::new(Station::Done, 0);
        };
        // What belongs to this machine's queues does not cross; in another namespace neither does the mark.
        self.packet.cross(at.leads_out);
        if device.netkit.is_some() { self.netkit(at, peer) } else { Next::new(Station::Xdp, peer) }
    }

    /// The programs of an end of a pair that only programs connect decide. They see the packet at the other end, before
    /// it comes in there.
    #[cold]
    fn netkit(&mut self, at: &At, peer: u32) -> Next {
        let Some(netkit) = at.device.netkit else { return Next::new(Station::Xdp, peer) };
        let device = at.device.index;
        let place = if netkit.primary { Place::NetkitPrimary } else { Place::NetkitPeer };
        self.packet.info.ifindex = peer;
        let arrives = Next::new(Station::Xdp, peer);
        let decided = at.netkit.as_ref().and_then(|hook| {
            self.run(hook, device, place, |walk, program, result, _| match result {
                NETKIT_NEXT => None,
                TC_OK => Some(arrives),
                TC_REDIRECT => walk.after_tc(program, result, arrives),
                _ => Some(walk.dropped(program, TC_SHOT)),
            })
        });
        match (decided, netkit.policy) {
            (Some(next), _) => next,
            (None, NetkitPolicy::Pass) => arrives,
            (None, NetkitPolicy::Blackhole) => self.end(Fate::NotConnected { device }),
        }
    }

    /// What the result of an XDP program on `device` leads to; `None` if the packet passes.
    fn after_xdp(&mut self, program: &Program, result: u32, device: u32) -> Option<Next> {
        match result {
            XDP_PASS => None,
            XDP_TX => Some(Next::new(Station::Leave, device)),
            XDP_REDIRECT => Some(self.redirected(program, device)),
            _ => Some(self.dropped(program, result)),
        }
    }

    /// Where an XDP program on `device` has redirected the packet.
    fn redirected(&mut self, program: &Program, device: u32) -> Next {
        let effects = &mut self.packet.effects;
        let number = effects.program;
        match effects.redirect {
            Some(Redirect::Device { index, .. }) if number == 0 => Next::new(Station::Leave, index),
            Some(Redirect::Cpu { .. }) if number == 0 => Next::new(Station::Ingress, device),
            Some(Redirect::Device { index, .. }) => self.to(target(program, index, number, Place::Devmap)),
            Some(Redirect::Cpu { .. }) => self.to(target(program, device, number, Place::Cpumap)),
            Some(Redirect::Devices) => {
                let devices = std::mem::take(&mut effects.devices);
                let mut starts =
                    devices.iter().map(|to| target(program, to.index, to.program, Place::Devmap));
                let Some(first) = starts.next() else { return self.no_target(program) };
                starts.for_each(|start| self.copies.add(start, self.packet.clone()));
                self.to(first)
            }
            Some(Redirect::Socket { socket }) => self.end(Fate::Socket { socket }),
            _ => self.no_target(program),
        }
    }

    fn to(&mut self, start: Start) -> Next {
        self.target = start.target;
        start.next
    }

    /// What the result of a tc program leads to; `None` if the next one decides.
    fn after_tc(&mut self, program: &Program, result: u32, pass: Next) -> Option<Next> {
        let verdict = || program.program_type().verdict(result.into()).unwrap_or("unknown");
        match result {
            TC_OK | TC_RECLASSIFY => Some(pass),
            TC_SHOT => Some(self.dropped(program, result)),
            TC_STOLEN | TC_QUEUED | TC_TRAP => {
                let program = Arc::clone(program.image().shared_name());
                Some(self.end(Fate::Consumed { program, verdict: verdict() }))
            }
            TC_REDIRECT => Some(match self.packet.effects.redirect {
                Some(redirect) => {
                    let (next, next_hop) = way_of(redirect);
                    self.next_hop = next_hop;
                    next
                }
                None => self.no_target(program),
            }),
            _ => None,
        }
    }

    #[cold]
    fn no_target(&mut self, program: &Program) -> Next {
        self.end(Fate::NoTarget { program: Arc::clone(program.image().shared_name()) })
    }

    #[cold]
    pub(super) fn dropped(&mut self, program: &Program, result: u32) -> Next {
        // Linux takes every other number for this verdict.
        let verdict = program.program_type().verdict(result.into()).unwrap_or("aborted");
        self.end(Fate::Dropped { program: Arc::clone(program.image().shared_name()), verdict })
    }
}

/// The way to a device or CPU that `program` sends the packet to, through the program of that number, 0 for none.
fn target(program: &Program, device: u32, number: u32, place: Place) -> Start {
    if number == 0 {
        return Start::at(Next::new(Station::Leave, device));
    }
    let program = targets::program(program.shared(), number);
    Start { target: Some(TargetProgram { program, place }), ..Start::at(Next::new(Station::Target, device)) }
}

/// Where a redirection leads in tc, and the next hop.
fn way_of(redirect: Redirect) -> (Next, Option<IpAddr>) {
    match redirect {
        Redirect::Device { index, ingress: false } => (Next::new(Station::Egress, index), None),
        Redirect::Device { index, ingress: true } => (Next::new(Station::Ingress, index), None),
        Redirect::Peer { index } => (Next::new(Station::Peer, index), None),
        Redirect::Neighbour { index, next_hop } => (Next::new(Station::Neighbour, index), next_hop),
        // Only XDP programs have maps of targets.
        Redirect::Devices | Redirect::Cpu { .. } | Redirect::Socket { .. } | Redirect::Stream { .. } => {
            (Next::new(Station::Leave, 0), None)
        }
    }
}
