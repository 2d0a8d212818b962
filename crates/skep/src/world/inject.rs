//! A packet's way through the machine.
//!
//! ```text
//!   comes in --> XDP --> tc ingress --> stack: for this machine, or a route --> tc egress --> leaves --> the peer's XDP
//!                 |          |                                                     |
//!                 +--tx------|-----------------------------------------------------+--> leaves
//!                 +--redirect+--> another device: leaves, comes in, or its tc egress
//! ```
//!
//! Each step is from one station to the next, so a loop is a packet that takes too many steps. Copies wait until the
//! packet itself has ended.

use super::attach::{DeviceId, Layout};
use super::trace::{Ended, Fate, Hop, Place, Trace};
use super::{World, stack};
use crate::error::Error;
use crate::hook::Hook;
use crate::packet::{Packet, Redirect};
use crate::program::Program;
use crate::targets;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Steps of one packet, unless [`Injector::max_steps`] says otherwise.
const MAX_STEPS: u32 = 256;
/// Copies of one packet that go on: copies of copies grow without bounds.
const MAX_COPIES: usize = 1024;
/// Bytes of an Ethernet header, and of a VLAN tag that does not count for the MTU.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// Sends packets into a world: holds what does not change from packet to packet. Each thread has its own.
#[derive(Debug)]
pub struct Injector {
    world: World,
    layout: Arc<Layout>,
    version: u64,
    max_steps: u32,
}

/// Where a packet is next. Numbers are indices of devices.
#[derive(Clone, Copy, Debug)]
enum Station {
    /// It comes in.
    Xdp(u32),
    Ingress(u32),
    /// The machine's own network stack has it.
    Stack(u32),
    Egress(u32),
    /// It leaves, and programs do not see it any more.
    Leave(u32),
    /// It needs the next hop's Ethernet header.
    Neighbour(u32, Option<std::net::IpAddr>),
    /// It goes to the other end of the device's pair.
    Peer(u32),
}

/// What a step leads to.
enum Next {
    Go(Station),
    End(Fate),
    /// The program of a target in a map.
    Target(Box<TargetProgram>),
}

struct TargetProgram {
    /// `None` if the host has dropped it.
    program: Option<Program>,
    place: Place,
    device: u32,
}

use Next::{End, Go, Target};

impl World {
    /// Sends a packet into a device, as if it had come in there, and tells its whole way: the programs that it met, and
    /// where it and its copies ended. The packet is left as it was at its end.
    ///
    /// ```
    /// use skep::world::{Device, Fate, Machine, Place, World};
    /// use skep::{Object, Packet, Runtime};
    ///
    /// let mut machine = Machine::new();
    /// machine.add_device(Device::new("eth0"))?;
    /// machine.add_device(Device::new("eth1"))?;
    /// let world = World::new(machine);
    /// let runtime = Runtime::builder().world(&world).build()?;
    ///
    /// // Sends everything to the second device.
    /// let insns = skep::isa::assemble("r1 = 2\nr2 = 0\ncall redirect#23\nexit").expect("the text is right");
    /// let xdp = skep::abi::ProgramType::from_name("xdp").expect("a type");
    /// let module = runtime.load(&Object::from_insns("cross", xdp, insns))?;
    /// let _link = world.attach(&module.programs()[0], "eth0", Place::Xdp)?;
    ///
    /// let trace = world.inject("eth0", &mut Packet::new(&[0; 60]))?;
    /// assert_eq!(trace.fate, Fate::Sent { device: 2 });
    /// assert_eq!(trace.show(&world.machine()).to_string(), "eth0 xdp: cross redirect to eth1\nsent by eth1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::World`] if there is no such device; those of [`crate::Program::run`].
    pub fn inject(&self, device: impl DeviceId, packet: &mut Packet) -> Result<Trace, Error> {
        let mut injector = self.injector();
        let index = device.index_in(&injector.layout.machine)?;
        let mut trace = Trace::default();
        injector.inject(index, packet, &mut trace)?;
        Ok(trace)
    }

    /// Something that sends many packets into this world.
    pub fn injector(&self) -> Injector {
        let (layout, version) = self.layout();
        Injector { world: self.clone(), layout, version, max_steps: MAX_STEPS }
    }
}

impl Injector {
    /// Cuts packets off after this many steps from place to place. Default: 256.
    #[must_use]
    pub const fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = steps;
        self
    }

    /// As [`World::inject`], into the device with that index, and with a trace that is cleared and filled.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Program::run`].
    pub fn inject(&mut self, device: u32, packet: &mut Packet, trace: &mut Trace) -> Result<(), Error> {
        if self.world.version() != self.version {
            (self.layout, self.version) = self.world.layout();
        }
        trace.clear();
        let mut copies = Copies::default();
        trace.fate = self.walk(Go(Station::Xdp(device)), packet, 0, &mut trace.hops, &mut copies)?;
        let mut number = 0;
        while let Some((start, mut copy)) = copies.waiting.pop_front() {
            number += 1;
            let fate = self.walk(start, &mut copy, number, &mut trace.hops, &mut copies)?;
            trace.copies.push(Ended { fate, packet: copy });
        }
        Ok(())
    }

    fn walk(
        &self,
        start: Next,
        packet: &mut Packet,
        copy: u32,
        hops: &mut Vec<Hop>,
        copies: &mut Copies,
    ) -> Result<Fate, Error> {
        let mut walk = Walk { layout: &self.layout, packet, copy, hops, copies };
        let (mut next, mut steps) = (start, 0);
        loop {
            next = match next {
                End(fate) => return Ok(fate),
                _ if steps == self.max_steps => return Ok(Fate::Loop { steps }),
                Go(station) => walk.step(station)?,
                Target(target) => walk.target(&target)?,
            };
            steps += 1;
        }
    }
}

/// Copies that have not ended yet.
#[derive(Default)]
struct Copies {
    waiting: std::collections::VecDeque<(Next, Packet)>,
    made: usize,
}

/// The way of one packet.
struct Walk<'a> {
    layout: &'a Layout,
    packet: &'a mut Packet,
    copy: u32,
    hops: &'a mut Vec<Hop>,
    copies: &'a mut Copies,
}

impl Walk<'_> {
    fn step(&mut self, station: Station) -> Result<Next, Error> {
        match station {
            Station::Xdp(index) => self.xdp(index),
            Station::Ingress(index) => self.tc(index, Place::Ingress),
            Station::Egress(index) => self.tc(index, Place::Egress),
            Station::Stack(index) => Ok(self.stack(index)),
            Station::Leave(index) => Ok(self.leave(index)),
            Station::Neighbour(index, hop) => Ok(self.neighbour(index, hop)),
            Station::Peer(index) => Ok(match self.layout.at(index) {
                None => End(Fate::NoDevice { device: index }),
                Some(at) => match at.device.peer {
                    Some(peer) => Go(Station::Ingress(peer)),
                    None => End(Fate::NoPeer { device: index }),
                },
            }),
        }
    }

    fn xdp(&mut self, index: u32) -> Result<Next, Error> {
        let Some(at) = self.layout.at(index) else { return Ok(End(Fate::NoDevice { device: index })) };
        if !at.device.up {
            return Ok(End(Fate::Down { device: index }));
        }
        self.packet.info.ingress_ifindex = index;
        self.packet.info.ifindex = 0;
        let pass = Go(Station::Ingress(index));
        let Some(hook) = &at.xdp else { return Ok(pass) };
        let next = self.run(hook, index, Place::Xdp, |program, verdict, packet, copies| {
            after_xdp(program, verdict, index, packet, copies)
        })?;
        Ok(next.unwrap_or(pass))
    }

    /// The program of a target that the packet was redirected to.
    fn target(&mut self, target: &TargetProgram) -> Result<Next, Error> {
        let device = target.device;
        let Some(program) = &target.program else { return Ok(End(Fate::NoProgram { device })) };
        self.packet.info.ifindex = if target.place == Place::Devmap { device } else { 0 };
        let result = program.run(self.packet)?;
        let verdict = program.program_type().verdict(result);
        self.hop(program, device, target.place, result, verdict);
        self.packet.info.ifindex = 0;
        Ok(match (target.place, verdict) {
            (Place::Devmap, Some("pass")) => Go(Station::Leave(device)),
            (Place::Cpumap, Some("pass")) => Go(Station::Ingress(device)),
            (Place::Cpumap, Some("redirect")) => {
                after_xdp(program, verdict, device, self.packet, self.copies)
                    .unwrap_or_else(|| dropped(program, verdict))
            }
            _ => dropped(program, verdict),
        })
    }

    fn tc(&mut self, index: u32, place: Place) -> Result<Next, Error> {
        let Some(at) = self.layout.at(index) else { return Ok(End(Fate::NoDevice { device: index })) };
        if !at.device.up {
            return Ok(End(Fate::Down { device: index }));
        }
        self.packet.info.ifindex = index;
        let (hook, pass) = match place {
            Place::Egress => (&at.egress, Station::Leave(index)),
            _ => {
                self.packet.info.ingress_ifindex = index;
                (&at.ingress, Station::Stack(index))
            }
        };
        let Some(hook) = hook else { return Ok(Go(pass)) };
        let next = self.run(hook, index, place, |program, verdict, packet, _| {
            let program = || Arc::clone(program.image().shared_name());
            match (verdict?, packet.effects.redirect) {
                ("ok" | "reclassify", _) => Some(Go(pass)),
                ("shot", _) => Some(End(Fate::Dropped { program: program(), verdict: "shot" })),
                (verdict @ ("stolen" | "queued" | "trap"), _) => {
                    Some(End(Fate::Consumed { program: program(), verdict }))
                }
                ("redirect", Some(redirect)) => Some(Go(station_of(redirect))),
                ("redirect", None) => Some(End(Fate::NoTarget { program: program() })),
                // The next program decides.
                _ => None,
            }
        })?;
        Ok(next.unwrap_or(Go(pass)))
    }

    /// Runs the programs of a hook until one of them decides.
    fn run(
        &mut self,
        hook: &Hook,
        device: u32,
        place: Place,
        decide: impl Fn(&Program, Option<&'static str>, &mut Packet, &mut Copies) -> Option<Next>,
    ) -> Result<Option<Next>, Error> {
        let mut next = None;
        hook.run_each(|program| {
            let result = program.run(self.packet)?;
            let verdict = program.program_type().verdict(result);
            self.hop(program, device, place, result, verdict);
            next = decide(program, verdict, self.packet, self.copies);
            Ok(if next.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(next)
    }

    /// Notes a program, and takes the copies that it sent.
    fn hop(
        &mut self,
        program: &Program,
        device: u32,
        place: Place,
        result: u64,
        verdict: Option<&'static str>,
    ) {
        let effects = &mut self.packet.effects;
        for copied in effects.clones.drain(..) {
            self.copies.add(Go(station_of(copied.to)), copied.packet);
        }
        let redirect = effects.redirect.filter(|_| verdict == Some("redirect"));
        let program = Arc::clone(program.image().shared_name());
        self.hops.push(Hop { copy: self.copy, device, place, program, result, verdict, redirect });
    }

    /// The machine's own network stack: it receives the packet, or forwards it.
    fn stack(&mut self, index: u32) -> Next {
        let Some(at) = self.layout.at(index) else { return End(Fate::NoDevice { device: index }) };
        match stack::receive(&self.layout.machine, &at.device, self.packet) {
            Ok(out) => Go(Station::Egress(out)),
            Err(fate) => End(fate),
        }
    }

    fn neighbour(&mut self, index: u32, hop: Option<std::net::IpAddr>) -> Next {
        let Some(at) = self.layout.at(index) else { return End(Fate::NoDevice { device: index }) };
        match stack::address(&self.layout.machine, &at.device, hop, self.packet) {
            Ok(()) => Go(Station::Egress(index)),
            Err(fate) => End(fate),
        }
    }

    fn leave(&mut self, index: u32) -> Next {
        let Some(at) = self.layout.at(index) else { return End(Fate::NoDevice { device: index }) };
        let device = &at.device;
        if !device.up {
            return End(Fate::Down { device: index });
        }
        if self.packet.bytes().len() > device.mtu as usize + ETHERNET + TAG {
            return End(Fate::TooLong { device: index, mtu: device.mtu });
        }
        let Some(peer) = device.peer else { return End(Fate::Sent { device: index }) };
        // What belongs to this machine's queues does not cross; in another namespace neither does the mark.
        let other = self.layout.at(peer).is_none_or(|at| at.device.namespace != device.namespace);
        self.packet.cross(other);
        Go(Station::Xdp(peer))
    }
}

impl Copies {
    fn add(&mut self, next: Next, packet: Packet) {
        if self.made < MAX_COPIES {
            self.made += 1;
            self.waiting.push_back((next, packet));
        }
    }
}

/// What the verdict of an XDP program on `device` leads to; `None` if the packet passes.
fn after_xdp(
    program: &Program,
    verdict: Option<&'static str>,
    device: u32,
    packet: &mut Packet,
    copies: &mut Copies,
) -> Option<Next> {
    let target = |number: u32, place, device| {
        let program = targets::program(program.shared(), number);
        Target(Box::new(TargetProgram { program, place, device }))
    };
    let out = |index: u32, number: u32| match number {
        0 => Go(Station::Leave(index)),
        number => target(number, Place::Devmap, index),
    };
    let effects = &mut packet.effects;
    Some(match (verdict, effects.redirect) {
        (Some("pass"), _) => return None,
        (Some("tx"), _) => Go(Station::Leave(device)),
        (Some("redirect"), Some(Redirect::Device { index, .. })) => out(index, effects.program),
        (Some("redirect"), Some(Redirect::Devices)) => {
            let devices = std::mem::take(&mut effects.devices);
            let Some((first, others)) = devices.split_first() else {
                return Some(End(Fate::NoTarget { program: Arc::clone(program.image().shared_name()) }));
            };
            for other in others {
                copies.add(out(other.index, other.program), packet.clone());
            }
            out(first.index, first.program)
        }
        (Some("redirect"), Some(Redirect::Cpu { .. })) => match effects.program {
            0 => Go(Station::Ingress(device)),
            number => target(number, Place::Cpumap, device),
        },
        (Some("redirect"), Some(Redirect::Socket { socket })) => End(Fate::Socket { socket }),
        (Some("redirect"), _) => End(Fate::NoTarget { program: Arc::clone(program.image().shared_name()) }),
        _ => dropped(program, verdict),
    })
}

fn dropped(program: &Program, verdict: Option<&'static str>) -> Next {
    let program = Arc::clone(program.image().shared_name());
    End(Fate::Dropped { program, verdict: verdict.unwrap_or("aborted") })
}

/// Where a redirection leads in tc.
fn station_of(redirect: Redirect) -> Station {
    match redirect {
        Redirect::Device { index, ingress: false } => Station::Egress(index),
        Redirect::Device { index, ingress: true } => Station::Ingress(index),
        Redirect::Peer { index } => Station::Peer(index),
        Redirect::Neighbour { index, next_hop } => Station::Neighbour(index, next_hop),
        // Only XDP programs have maps of targets.
        Redirect::Devices | Redirect::Cpu { .. } | Redirect::Socket { .. } => Station::Leave(0),
    }
}
