//! A packet's way through the machine.
//!
//! ```text
//!   comes in --> XDP --> tc ingress --> stack: for this machine, or a route --> tc egress --> leaves --> the peer's XDP
//!                 |          |                                                     |
//!                 +--tx------|-----------------------------------------------------+--> leaves
//!                 +--redirect+--> another device: leaves, comes in, or its tc egress
//!
//!   the stack:    prerouting --> route --> forward --> postrouting --> tc egress
//!                                  |
//!                                  '-----> input --> socket look-up --> cgroup ingress --> socket filter --> socket
//!   a socket:     route --> output --> postrouting --> cgroup egress --> tc egress
//! ```
//!
//! Each step is from one station to the next, so a loop is a packet that takes too many steps. Copies wait until the
//! packet itself has ended.

use super::attach::{DeviceId, Layout};
use super::trace::{Ended, Fate, Hops, Trace};
#[cfg(feature = "sys")]
use super::walk;
use super::walk::{Copies, Next, Station, Walk};
use super::{World, stack};
use crate::error::Error;
use crate::packet::Packet;
use skep_world::Socket;
use std::sync::Arc;

/// Steps of one packet, unless [`Injector::max_steps`] says otherwise.
const MAX_STEPS: u32 = 256;

/// Sends packets into a world: holds what does not change from packet to packet. Each thread has its own.
#[derive(Debug)]
pub struct Injector {
    world: World,
    layout: Arc<Layout>,
    version: u64,
    max_steps: u32,
}

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

    /// As [`World::inject`], with this program in place of the device's XDP programs.
    #[cfg(feature = "sys")]
    pub(crate) fn inject_through(
        &self,
        program: &crate::program::Program,
        device: u32,
        packet: &mut Packet,
    ) -> Result<(), Error> {
        let mut injector = self.injector();
        injector.layout.machine.device(device)?;
        packet.info.ingress_ifindex = device;
        let mut trace = Trace::default();
        let target = walk::TargetProgram { program: Some(program.clone()), place: super::Place::Xdp };
        let start =
            walk::Start { target: Some(target), ..walk::Start::at(Next::new(Station::Target, device)) };
        injector.walk(packet, &mut trace, |walk| walk.begin(start))
    }

    /// Sends a packet from a socket of the machine, and tells its whole way, as [`World::inject`] does. The packet is
    /// an Ethernet frame whose addresses are not written yet: the route says by which device it leaves and where to.
    /// The socket gives it its mark and priority. What is for an address of the machine itself comes in at the network
    /// stack of the device with that address.
    ///
    /// # Errors
    ///
    /// [`Error::World`] if there is no socket with this cookie; those of [`crate::Program::run`].
    pub fn send(&self, socket: u64, packet: &mut Packet) -> Result<Trace, Error> {
        let mut trace = Trace::default();
        self.injector().send(socket, packet, &mut trace)?;
        Ok(trace)
    }

    /// The socket that receives a packet which has ended at the machine: after [`Fate::Received`] that one, otherwise
    /// the one that a program has assigned it to, or the best for its addresses and ports. `None` if there is none,
    /// and the machine would answer that the port is closed.
    ///
    /// # Errors
    ///
    /// [`Error::World`] if there is no such device.
    pub fn receiver(&self, device: impl DeviceId, packet: &Packet) -> Result<Option<Arc<Socket>>, Error> {
        let machine = self.machine();
        let index = device.index_in(&machine)?;
        let namespace = machine.device(index)?.namespace;
        if let Some(assigned) = packet.assigned().filter(|socket| socket.namespace == namespace) {
            return Ok(Some(Arc::clone(assigned)));
        }
        let Some(ends) = stack::ends(packet.bytes()) else { return Ok(None) };
        Ok(machine.find_socket(namespace, ends.protocol, ends.local, ends.remote, Some(index)).cloned())
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
        self.walk(packet, trace, |_| Next::new(Station::Xdp, device))
    }

    /// As [`World::send`], with a trace that is cleared and filled.
    ///
    /// # Errors
    ///
    /// Those of [`World::send`].
    pub fn send(&mut self, socket: u64, packet: &mut Packet, trace: &mut Trace) -> Result<(), Error> {
        self.renew();
        let socket = Arc::clone(self.layout.machine.socket(socket)?);
        self.walk(packet, trace, |walk| walk.output(&socket))
    }

    /// Takes the world as it is now.
    #[inline]
    fn renew(&mut self) {
        if self.world.version() != self.version {
            (self.layout, self.version) = self.world.layout();
        }
    }

    #[inline]
    fn walk(
        &mut self,
        packet: &mut Packet,
        trace: &mut Trace,
        begin: impl FnOnce(&mut Walk<'_, '_>) -> Next,
    ) -> Result<(), Error> {
        self.renew();
        trace.fate = Fate::Waiting;
        trace.copies.clear();
        let mut hops = Hops::over(&mut trace.hops);
        let mut copies = Copies::default();
        let mut walk = Walk::new(&self.layout, packet, 0, &mut hops, &mut copies, &mut trace.fate);
        let first = begin(&mut walk);
        walk.go(first, self.max_steps)?;
        let mut number = 0;
        while let Some((start, mut copy)) = copies.waiting.pop_front() {
            number += 1;
            let mut fate = Fate::Waiting;
            let mut walk = Walk::new(&self.layout, &mut copy, number, &mut hops, &mut copies, &mut fate);
            let next = walk.begin(start);
            walk.go(next, self.max_steps)?;
            trace.copies.push(Ended { fate, packet: copy });
        }
        Ok(())
    }
}
