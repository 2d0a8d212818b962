//! What a run does besides its result: where the packet goes next, copies of it.
//!
//! A packet carries its effects. A run clears them, helpers write them through [`RunEnv::run`], and the host reads them
//! after the run ([`crate::Program::outcome`]). So does a
//! [`crate::Context`]. Helpers of programs that run on something else find none.

use super::Packet;
use crate::socket::NativeSocket;
use skep_abi::RunEnv;
use skep_world::Socket;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The effects of the last run on a packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effects {
    /// The last redirection, whether or not the result asks for it.
    pub(crate) redirect: Option<Redirect>,
    /// In the order in which they were made.
    pub(crate) clones: Vec<Copied>,
    /// The targets of [`Redirect::Devices`].
    pub(crate) devices: Vec<DeviceTarget>,
    /// The number of the program of the last redirection's target in a map, 0 for none.
    pub(crate) program: u32,
    /// Copies of the samples that were output, if somebody wants them.
    pub(crate) events: Option<Vec<Event>>,
    pub(crate) told: Told,
    /// Address and length of a context without addresses, which programs may read by its address.
    readable: (usize, usize),
    /// What was done with sockets; most runs do nothing.
    pub(crate) sockets: Option<Box<OfSockets>>,
    /// The socket that the context itself is, for programs whose context is a socket.
    pub(crate) own: Option<Arc<NativeSocket>>,
    /// The bytes of a context's message.
    pub(crate) data: Vec<u8>,
    /// The bytes that are left for options of a TCP header.
    pub(crate) option_room: u32,
    /// What a program of type `iter` writes.
    pub(crate) seq: Option<Box<SeqOutput>>,
}

/// What a program of type `iter` wrote about one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeqOutput {
    pub(crate) bytes: Vec<u8>,
    /// Whether it wanted to write more than [`Self::MOST`].
    pub(crate) overflown: bool,
    /// Addresses and lengths of what it is shown: it may print strings from there.
    pub(crate) shown: Vec<(u64, usize)>,
}

impl SeqOutput {
    /// The most bytes about one object: the buffer of an iterator in Linux, of eight pages.
    pub(crate) const MOST: usize = 8 * 4096;
}

/// What a run did with sockets.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfSockets {
    /// What it has looked up, each socket once. They stay until the next run, so a release has nothing to do.
    pub(crate) held: Vec<Arc<NativeSocket>>,
    /// The socket that it chose for the packet, connection or message. `Some(None)`: none, in place of one.
    pub(crate) chosen: Option<Option<Arc<NativeSocket>>>,
    /// Whether the socket that it chose is meant, and no other with the same address.
    pub(crate) alone: bool,
    /// Where it bound the context's socket.
    pub(crate) bound: Option<SocketAddr>,
    /// The bytes of the message that the verdict is for, and those to wait for.
    pub(crate) apply: Option<u32>,
    pub(crate) cork: Option<u32>,
}

impl OfSockets {
    /// The address of the socket for programs.
    pub(crate) fn hold(&mut self, socket: &Arc<Socket>) -> &Arc<NativeSocket> {
        let known = self.held.iter().position(|held| Arc::ptr_eq(held.socket(), socket));
        let at = known.unwrap_or_else(|| {
            self.held.push(NativeSocket::new(Arc::clone(socket)));
            self.held.len() - 1
        });
        &self.held[at]
    }
}

/// What the place where a program is attached tells it, and what the program answers. It stays from run to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The result so far of the operation that asks.
    pub(crate) retval: i32,
    /// The cookie of the attachment.
    pub(crate) cookie: u64,
    /// The control group of the attachment, by number.
    pub(crate) cgroup: u64,
    /// The address of the function that is traced.
    pub(crate) func_ip: u64,
    pub(crate) sysctl: Option<Box<Sysctl>>,
}

/// A system setting that is being read or written, for programs of type `cgroup_sysctl`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sysctl {
    /// Its name below `/proc/sys`, like `net/ipv4/tcp_mem`.
    pub name: String,
    /// Its value as somebody who reads it gets it, usually with a line feed at its end; `None` if it cannot be read.
    pub current: Option<Vec<u8>>,
    /// What is being written; `None` while it is being read. A program may replace it (`bpf_sysctl_set_new_value`).
    pub new: Option<Vec<u8>>,
}

/// A sample that a program output to an array of perf events (`bpf_perf_event_output`), or a record that it gave to a
/// ring buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The name of the map.
    pub map: String,
    /// The virtual CPU of the run.
    pub cpu: u32,
    /// The program's bytes; of a sample, then those of the packet.
    pub bytes: Vec<u8>,
}

impl Event {
    /// An event that somebody else has seen, to compare it with those of runs.
    pub fn new(map: &str, cpu: u32, bytes: &[u8]) -> Self {
        Self { map: map.to_owned(), cpu, bytes: bytes.to_vec() }
    }
}

/// A device in a map of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceTarget {
    pub(crate) index: u32,
    /// The number of its program, 0 for none.
    pub(crate) program: u32,
}

/// Where a program sends a packet instead of letting it pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redirect {
    /// Out of this device, or into it as if it had come in there.
    Device {
        /// The device's index.
        index: u32,
        /// Whether it comes in (`BPF_F_INGRESS`).
        ingress: bool,
    },
    /// Into the other end of this device's pair (`bpf_redirect_peer`).
    Peer {
        /// The index of the device whose peer receives the packet.
        index: u32,
    },
    /// Out of this device, with the Ethernet header of the next hop (`bpf_redirect_neigh`).
    Neighbour {
        /// The device's index.
        index: u32,
        /// The next hop; `None` if the routes should say.
        next_hop: Option<IpAddr>,
    },
    /// Out of all devices of a map (`BPF_F_BROADCAST`): [`Outcome::devices`] lists them.
    Devices,
    /// To another CPU, which goes on with it (`cpumap`).
    Cpu {
        /// The CPU: the key in the map.
        cpu: u32,
    },
    /// To a connected socket (`bpf_sk_redirect_map`, `bpf_msg_redirect_map` and the like): [`Outcome::socket`].
    Stream {
        /// The socket's cookie.
        cookie: u64,
        /// Whether it comes in at the socket, as if that had received it; otherwise the socket sends it.
        ingress: bool,
    },
    /// To an AF_XDP socket (`xskmap`).
    Socket {
        /// The socket's number, as the host wrote it into the map.
        socket: u32,
    },
}

/// A copy of a packet that a program sent elsewhere (`bpf_clone_redirect`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copied {
    /// Where it was sent.
    pub to: Redirect,
    /// The packet as it was then.
    pub packet: Packet,
}

/// What a run did: its result, and what it did besides ([`crate::Program::outcome`]). The packet has the changed
/// bytes and metadata.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The program's result; the lower 32 bits are significant.
    pub result: u64,
    /// The name of the result, if its program type gives it one.
    pub verdict: Option<&'static str>,
    /// Where the packet goes, if the result says that it is redirected and a helper said where.
    pub redirect: Option<Redirect>,
    /// Copies that were sent elsewhere, in order.
    pub clones: Vec<Copied>,
    /// The devices that it leaves by, if it is redirected to several.
    pub devices: Vec<u32>,
    /// Samples and records that were output, in order. An array of perf events without a [`crate::PerfReader`] takes
    /// none. Records of ring buffers in maps of maps are not here; a [`crate::RingBuffer`] reads them.
    pub events: Vec<Event>,
    /// The socket that the program chose for the packet: `bpf_sk_assign`, `bpf_sk_redirect_map` and the like.
    pub socket: Option<Arc<Socket>>,
    /// Whether the bytes of the packet changed, or their number.
    pub changed: bool,
}

impl Effects {
    /// Those of a program of type `iter`.
    pub(crate) fn with_output() -> Self {
        Self { seq: Some(Box::default()), ..Self::default() }
    }

    /// Those of the run in progress; `None` if it does not run on a packet.
    ///
    /// # Safety
    ///
    /// `env` is the environment of the run in progress, and no other reference to its effects exists.
    #[inline]
    pub(crate) unsafe fn of_run<'a>(env: *mut RunEnv) -> Option<&'a mut Self> {
        // SAFETY: the caller's promise; `Program::run_with` set the field to the effects of the packet that it borrows,
        // or
        // `Program::run_context_with` to those of the context, or left it 0.
        unsafe { ((*env).run as *mut Self).as_mut() }
    }

    /// Lets the run read a context by its address.
    ///
    /// # Safety
    ///
    /// The words stay there, and only the run changes them, until [`hide`](Self::hide).
    pub(crate) unsafe fn let_read(&mut self, words: &mut [u64]) {
        self.readable = (words.as_mut_ptr().expose_provenance(), size_of_val(words));
    }

    /// Ends [`let_read`](Self::let_read).
    pub(crate) fn hide(&mut self) {
        self.readable = (0, 0);
    }

    /// The context that the run may read by its address.
    ///
    /// # Safety
    ///
    /// The run is in progress, and does not write to its context while the result is used.
    pub(crate) unsafe fn readable<'a>(&self) -> &'a [u8] {
        match self.readable {
            (_, 0) => &[],
            // SAFETY: the promises of the caller and of `let_read`.
            (at, len) => unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(at), len) },
        }
    }

    /// What the run has done with sockets.
    pub(crate) fn sockets(&mut self) -> &mut OfSockets {
        self.sockets.get_or_insert_default()
    }

    /// The socket that the run chose, if it chose one.
    pub(crate) fn chosen(&self) -> Option<&Arc<NativeSocket>> {
        self.sockets.as_ref()?.chosen.as_ref()?.as_ref()
    }

    /// Forgets those of the run before.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.redirect = None;
        if !self.clones.is_empty() {
            self.clones.clear();
        }
        if !self.devices.is_empty() {
            self.devices.clear();
        }
        if self.sockets.is_some() {
            self.sockets = None;
        }
    }
}
