//! Local delivery: which socket receives a packet, and who may refuse it.
//!
//! ```text
//!   a connected socket, or else one that an sk_lookup program chooses, or else one that waits at the address
//!     --> sk_reuseport: another one of its group --> cgroup ingress --> the socket's filter --> received
//! ```
//!
//! What a program chooses counts only if the machine still has that socket: maps may hold others.

use super::attach::At;
use super::point::Group;
use super::stack::{self, Ends};
use super::trace::{Fate, Place};
use super::walk::{Next, Station, Walk};
use crate::context::Context;
use crate::error::Error;
use crate::hook::Hook;
use crate::program::Program;
use skep_world::{Protocol, Socket};
use std::net::SocketAddr;
use std::sync::Arc;

/// Results of programs that choose sockets.
const SK_PASS: u32 = 1;
/// Bytes of a UDP header, and of the shortest TCP header.
const UDP: usize = 8;
const TCP: usize = 20;

/// A socket that may receive the packet, and whether it stands for its group.
type Found = (Arc<Socket>, bool);

impl Walk<'_, '_> {
    /// A packet that the stack keeps, as [`Walk::fate`] says, or that has ended.
    #[cold]
    pub(super) fn stopped(&mut self, at: &At) -> Next {
        let kept = matches!(self.fate, Fate::Delivered { .. });
        if kept { self.deliver(at) } else { Next::new(Station::Done, 0) }
    }

    /// A packet for the machine itself, which came in on this device.
    pub(super) fn deliver(&mut self, at: &At) -> Next {
        let (index, namespace) = (at.device.index, at.device.namespace);
        match self.receiver(at) {
            Ok(Some((socket, ends))) => {
                self.packet.set_socket(Some(Arc::clone(&socket)));
                // What a short frame was filled up with is not the packet.
                self.packet.shorten(ends.transport.end);
                let refused = self
                    .cgroup(socket.cgroup, index, Place::CgroupIngress)
                    .or_else(|| self.socket_filter(&socket, &ends, index));
                refused.unwrap_or_else(|| self.end(Fate::Received { device: index, socket: socket.cookie }))
            }
            Ok(None) => {
                if self.packet.assigned().is_none_or(|socket| socket.namespace != namespace) {
                    self.packet.set_socket(None);
                }
                self.end(Fate::Delivered { device: index })
            }
            Err(next) => next,
        }
    }

    /// The socket that receives the packet. An error: where it ended instead.
    fn receiver(&mut self, at: &At) -> Result<Option<(Arc<Socket>, Ends)>, Next> {
        let layout = self.layout;
        let namespace = at.device.namespace;
        let nobody = layout.machine.sockets().is_empty() && layout.lookup(namespace).is_none();
        let bytes = self.packet.bytes();
        if (nobody && self.packet.assigned().is_none()) || stack::is_for_many(bytes) {
            return Ok(None);
        }
        let Some(ends) = stack::ends(bytes) else { return Ok(None) };
        let assigned = self.packet.assigned().filter(|socket| socket.namespace == namespace);
        let found = match assigned {
            Some(assigned) => Some((Arc::clone(assigned), true)),
            None => self.find(at, &ends)?,
        };
        Ok(match found {
            Some((socket, true)) => Some((self.one_of_group(socket, &ends, at.device.index)?, ends)),
            Some((socket, false)) => Some((socket, ends)),
            None => None,
        })
    }

    fn find(&mut self, at: &At, ends: &Ends) -> Result<Option<Found>, Next> {
        let layout = self.layout;
        let (index, namespace) = (at.device.index, at.device.namespace);
        let of = |remote: Option<SocketAddr>| {
            layout.machine.find_socket_of(namespace, ends.protocol, ends.local, remote, Some(index)).cloned()
        };
        if let Some(connected) = of(Some(ends.remote)) {
            return Ok(Some((connected, false)));
        }
        let chosen = match layout.lookup(namespace) {
            Some(hook) => self.look_up(hook, ends, index)?,
            None => None,
        };
        Ok(chosen.or_else(|| Some((of(None)?, true))))
    }

    /// Asks all programs that look up sockets. Each sees the choice so far. If none chooses one, and one drops the
    /// packet, it is dropped.
    fn look_up(&mut self, hook: &Hook, ends: &Ends, device: u32) -> Result<Option<Found>, Next> {
        let mut chosen: Option<Found> = None;
        let mut refused = None;
        let mut failed = None;
        let ran = hook.until(|program| {
            let so_far = chosen.as_ref().map(|(socket, _)| Arc::clone(socket));
            match look_up_by(program, ends, device, so_far) {
                Ok((result, context)) => {
                    self.note(program, device, Place::Lookup, result);
                    let socket = context.socket("sk").filter(|socket| self.has(socket));
                    match socket {
                        Some(socket) if result == SK_PASS => {
                            let before = chosen.as_ref().is_none_or(|(_, group)| *group);
                            let group = context.chosen_alone().map_or(before, |alone| !alone);
                            chosen = Some((Arc::clone(socket), group));
                        }
                        _ if result != SK_PASS => drop(refused.get_or_insert_with(|| program.clone())),
                        _ => {}
                    }
                    false
                }
                Err(error) => {
                    failed = Some(self.fail(error));
                    true
                }
            }
        });
        if let Err(error) = ran {
            return Err(self.fail(error));
        }
        match (failed, refused) {
            (Some(next), _) => Err(next),
            (None, Some(program)) if chosen.is_none() => Err(self.refused(&program)),
            _ => Ok(chosen),
        }
    }

    /// The socket of the group of this one that receives the packet: the one that a program chooses, or this one.
    fn one_of_group(&mut self, socket: Arc<Socket>, ends: &Ends, device: u32) -> Result<Arc<Socket>, Next> {
        let layout = self.layout;
        let group = Group::of(&socket);
        let Some((group, hook)) = group.and_then(|group| Some((group, layout.of_group(&group)?))) else {
            return Ok(socket);
        };
        let mut answer = Ok(None);
        let ran = hook.until(|program| {
            answer = match choose_by(program, self.packet.bytes(), ends, &socket, self.packet.info.hash) {
                Ok((result, context)) => {
                    self.note(program, device, Place::ReusePort, result);
                    let chosen = context.chosen().filter(|chosen| {
                        // Maps may have sockets of other groups.
                        Group::of(chosen) == Some(group) && self.has(chosen)
                    });
                    if result == SK_PASS { Ok(chosen.cloned()) } else { Err(self.refused(program)) }
                }
                Err(error) => Err(self.fail(error)),
            };
            // A group has one program.
            true
        });
        match ran {
            Ok(()) => answer.map(|chosen| chosen.unwrap_or(socket)),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Runs all programs of a cgroup: also those behind one that refuses, as Linux does. `None`: the packet passes.
    pub(super) fn cgroup(&mut self, cgroup: u64, device: u32, hook: Place) -> Option<Next> {
        let layout = self.layout;
        let hooks = layout.of_cgroup(cgroup, hook);
        if hooks.is_empty() {
            return None;
        }
        let before = self.hide(0);
        let mut refused: Option<Program> = None;
        let mut failed = None;
        for (id, programs) in hooks {
            self.packet.effects.told.cgroup = id;
            failed = self.run(programs, device, hook, |_, program, result, _| {
                // The second bit of the result is about congestion.
                if result & 1 == 0 {
                    refused.get_or_insert_with(|| program.clone());
                }
                None
            });
            if failed.is_some() {
                break;
            }
        }
        self.show(before);
        failed.or_else(|| refused.map(|program| self.refused(&program)))
    }

    /// Runs the filter of a socket, which sees the packet from the transport header on. `None`: the packet passes, with
    /// as many bytes as the filter says.
    fn socket_filter(&mut self, socket: &Socket, ends: &Ends, device: u32) -> Option<Next> {
        let layout = self.layout;
        let hook = layout.of_socket(socket.cookie)?;
        let before = self.hide(ends.transport.start);
        let next = self.run(hook, device, Place::Filter, |walk, program, result, _| {
            if result == 0 {
                return Some(walk.refused(program));
            }
            let header = if ends.protocol == Protocol::Udp { UDP } else { TCP };
            let kept = (result as usize).max(header);
            walk.packet.shorten(ends.transport.start.saturating_add(kept));
            None
        });
        self.show(before);
        next
    }

    /// Hides from programs of sockets what others have left: their scratch words, and the bytes before `pulled`.
    /// Returns what they must not change.
    fn hide(&mut self, pulled: usize) -> ([u32; 5], u64) {
        self.packet.pulled = pulled;
        (std::mem::take(&mut self.packet.info.cb), self.packet.effects.told.cgroup)
    }

    fn show(&mut self, (cb, cgroup): ([u32; 5], u64)) {
        self.packet.pulled = 0;
        self.packet.info.cb = cb;
        self.packet.effects.told.cgroup = cgroup;
    }

    /// Whether the machine still has a socket.
    fn has(&self, socket: &Socket) -> bool {
        let own = self.layout.machine.socket(socket.cookie);
        own.is_ok_and(|own| own.namespace == socket.namespace)
    }

    #[cold]
    fn refused(&mut self, program: &Program) -> Next {
        self.end(Fate::Dropped { program: Arc::clone(program.image().shared_name()), verdict: "drop" })
    }
}

/// Asks a program for the socket that receives what is sent to an address. `so_far`: the one that others have chosen.
fn look_up_by(
    program: &Program,
    ends: &Ends,
    device: u32,
    so_far: Option<Arc<Socket>>,
) -> Result<(u32, Context), Error> {
    let mut context = Context::of(program)?;
    let (family, protocol) = numbers(ends);
    context.set("family", family)?;
    context.set("protocol", protocol)?;
    context.set("remote_port", ends.remote.port().to_be().into())?;
    context.set("local_port", ends.local.port().into())?;
    context.set_address("remote_ip", ends.remote.ip())?;
    context.set_address("local_ip", ends.local.ip())?;
    context.set("ingress_ifindex", device.into())?;
    context.set_socket("sk", so_far)?;
    let result = program.run_context(&mut context)?;
    Ok((result as u32, context))
}

/// Asks a program for a socket of the group of this one.
fn choose_by(
    program: &Program,
    bytes: &[u8],
    ends: &Ends,
    socket: &Arc<Socket>,
    hash: u32,
) -> Result<(u32, Context), Error> {
    let mut context = Context::of(program)?;
    let data = bytes.get(ends.transport.clone()).unwrap_or_default();
    context.set_data(data)?;
    context.set("len", data.len() as u64)?;
    let kind = bytes.get(12..14).map_or(0, |kind| u16::from_ne_bytes([kind[0], kind[1]]));
    context.set("eth_protocol", kind.into())?;
    context.set("ip_protocol", numbers(ends).1)?;
    context.set("bind_inany", socket.local.ip().is_unspecified().into())?;
    context.set("hash", hash.into())?;
    context.set_socket("sk", Some(Arc::clone(socket)))?;
    let result = program.run_context(&mut context)?;
    Ok((result as u32, context))
}

/// The numbers of family and protocol.
fn numbers(ends: &Ends) -> (u64, u64) {
    let family = if ends.local.is_ipv4() { 2 } else { 10 };
    (family, if ends.protocol == Protocol::Udp { 17 } else { 6 })
}
