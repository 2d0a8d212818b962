//! A program over the frames of ports, and what becomes of each frame by the program's verdict.

mod counts;
mod decide;
mod outlet;

pub use counts::{Counts, Lost, Passage};

use crate::arrival::{Arrival, Offload};
use crate::error::{Error, TYPES};
use crate::packets::Taken;
use crate::port::Port;
use crate::waker::Waker;
use decide::{Decision, decide};
use outlet::{Outlet, Sent};
use skep::{Checksum, Copied, Engine, Packet, PacketInfo, Program};
use std::time::Duration;

/// Most frames of a port in a turn before the next port has its turn.
const BATCH: u64 = 64;
/// Longest wait while a port would not wake it when its interface is gone.
const ASKED: Duration = Duration::from_secs(1);

/// One program that runs over the frames of all its ports.
pub struct Live {
    program: Program,
    engine: Engine,
    outlet: Outlet,
    /// Where the frames of each port go if the program passes them.
    onward: Vec<Option<usize>>,
    arrival: Arrival,
    packet: Packet,
    waker: Waker,
}

/// Limits of a turn.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Turn {
    /// Most frames that are run; `None`: what the ports have, but some 64 of each.
    pub frames: Option<u64>,
    /// How long to wait if no port has any; `None`: until one has. With a port that is an AF_XDP socket a wait is over
    /// after a second at most: such a socket must be asked whether its interface is still there.
    pub wait: Option<Duration>,
}

impl Turn {
    /// At most so many frames.
    pub fn frames(mut self, frames: u64) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Waits at most so long; see [`Turn::wait`](field@Turn::wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }
}

impl Live {
    /// Runs the program over the frames of these ports, compiled.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`] for programs that do not run on frames; [`Error::Twice`]; [`Error::Wait`] if the process
    /// has no descriptors left.
    pub fn new(program: &Program, ports: Vec<Port>) -> Result<Self, Error> {
        let program_type = program.program_type().name;
        if !TYPES.contains(&program_type) {
            return Err(Error::WrongType { program: program.name().to_owned(), program_type });
        }
        for (at, port) in ports.iter().enumerate() {
            let index = port.interface().index;
            if ports[..at].iter().any(|other| other.interface().index == index) {
                return Err(Error::Twice { name: port.interface().name.clone() });
            }
        }
        let passages = ports.iter().map(|port| Passage::new(&port.interface().name)).collect();
        Ok(Self {
            program: program.clone(),
            engine: Engine::Jit,
            onward: vec![None; ports.len()],
            outlet: Outlet { ports, counts: Counts { ports: passages, ..Counts::default() } },
            arrival: Arrival::new(),
            packet: Packet::new(&[]),
            waker: Waker::new()?,
        })
    }

    /// Runs the program on that engine.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Sends the frames of each of two ports, by their places in the list, out of the other one if the program passes
    /// them: a bump in the wire. Frames of a packet socket are copies, so the interface behind it should have no
    /// addresses.
    ///
    /// # Panics
    ///
    /// If there is no such port.
    pub fn connect(mut self, one: usize, other: usize) -> Self {
        (self.onward[one], self.onward[other]) = (Some(other), Some(one));
        self
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The ports.
    pub fn ports(&self) -> &[Port] {
        &self.outlet.ports
    }

    /// Ends a wait from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// What was done so far.
    pub fn counts(&self) -> &Counts {
        &self.outlet.counts
    }

    /// Waits until a port has frames, and runs the program on them. Returns how many frames were run: 0 if the time was
    /// over, or [`Waker::wake`] was called.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if an interface went down or was removed, [`Error::System`], and [`Error::Program`] if a run
    /// failed. The counts have what was done before.
    pub fn turn(&mut self, turn: &Turn) -> Result<u64, Error> {
        let at_once = self.outlet.ports.iter().any(Port::has_more).then_some(Duration::ZERO);
        let fds = self.outlet.ports.iter().map(Port::fd);
        let silent = self.outlet.ports.iter().any(Port::ends_silently);
        let wait = if silent { Some(turn.wait.map_or(ASKED, |wait| wait.min(ASKED))) } else { turn.wait };
        let woken = self.waker.wait(fds, at_once.or(wait))?;
        if woken {
            return Ok(0);
        }
        let mut left = turn.frames.unwrap_or(u64::MAX);
        let before = self.outlet.counts.frames;
        for at in 0..self.outlet.ports.len() {
            let most = left.min(BATCH);
            let ran = self.drain(at, most)?;
            left -= ran;
        }
        Ok(self.outlet.counts.frames - before)
    }

    /// Runs what one port has.
    fn drain(&mut self, at: usize, most: u64) -> Result<u64, Error> {
        let dropped = self.outlet.ports[at].dropped();
        self.outlet.counts.ports[at].dropped += dropped;
        let (mut ran, mut unreadable) = (0, 0);
        // A port that has nothing readable for ever must not keep the others from their turns.
        while ran < most && unreadable < BATCH {
            match self.outlet.ports[at].receive(&mut self.arrival)? {
                Taken::Nothing => break,
                Taken::Unreadable => unreadable += 1,
                Taken::Frame => {
                    ran += 1;
                    self.run(at)?;
                }
            }
        }
        self.outlet.counts.ports[at].unreadable += unreadable;
        Ok(ran)
    }

    /// Runs the program on the frame that has arrived, and does what it says.
    fn run(&mut self, at: usize) -> Result<(), Error> {
        let is_xdp = self.program.program_type().name == "xdp";
        if is_xdp {
            self.arrival.insert_tag();
        }
        let len = self.arrival.bytes().len();
        self.packet.set(self.arrival.bytes());
        self.packet.info = self.info(at, is_xdp);
        self.outlet.counts.frames += 1;
        self.outlet.counts.ports[at].received += 1;
        self.outlet.counts.ports[at].received_bytes += len as u64;
        let outcome = self.program.outcome_with(self.engine, &mut self.packet)?;
        *self.outlet.counts.verdicts.entry(outcome.result & 0xffff_ffff).or_default() += 1;
        let offload = self.arrival.offload;
        for Copied { to, packet, .. } in &outcome.clones {
            // A copy may have been made at any length: the positions of segments may be wrong.
            self.outlet.redirect(*to, &[], Sent { packet, offload: Offload::default() })?;
        }
        // Of a packet of segments that has kept its length, the positions are still right.
        let same = offload.segments.is_some() && len == self.packet.bytes().len();
        let sent = Sent { packet: &self.packet, offload: if same { offload } else { Offload::default() } };
        match decide(&self.program, &outcome) {
            Decision::Nothing => {}
            Decision::Pass => {
                if let Some(to) = self.onward[at] {
                    self.outlet.send(to, sent)?;
                }
            }
            Decision::Back => self.outlet.send(at, sent)?,
            Decision::Redirect(to) => self.outlet.redirect(to, &outcome.devices, sent)?,
            Decision::Nowhere => self.outlet.counts.lose(Lost::Nowhere),
        }
        Ok(())
    }

    /// What the program sees besides the bytes. A frame that this machine sends is at the device that it leaves by.
    fn info(&self, at: usize, is_xdp: bool) -> PacketInfo {
        let index = self.outlet.ports[at].interface().index;
        let leaving = self.onward[at].filter(|_| self.outlet.ports[at].faces_the_machine() && !is_xdp);
        let (ingress_ifindex, ifindex) = match leaving {
            Some(to) => (0, self.outlet.ports[to].interface().index),
            None => (index, index),
        };
        let offload = &self.arrival.offload;
        let (gso_size, gso_segs) = match offload.segments {
            Some((_, size, headers)) => {
                let payload = self.arrival.bytes().len().saturating_sub(headers.into());
                (size.into(), payload.div_ceil(size.max(1).into()) as u32)
            }
            None => (0, 0),
        };
        PacketInfo {
            ingress_ifindex,
            ifindex: if is_xdp { 0 } else { ifindex },
            pkt_type: self.arrival.addressed,
            vlan: self.arrival.vlan,
            gso_size,
            gso_segs,
            gso_type: offload.gso_type(),
            checksum: match (offload.partial, offload.correct) {
                (Some(_), _) => Checksum::Partial,
                (None, true) => Checksum::Correct { level: 0 },
                (None, false) => Checksum::None,
            },
            ..PacketInfo::default()
        }
    }
}
