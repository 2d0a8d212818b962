//! Packets as programs see them: bytes with room to grow on both sides, and metadata.
//!
//! ```text
//!   buffer  |<--- headroom --->|<- program's metadata ->|<--- bytes --->|<--- tailroom --->|
//!           room                meta                     start           end          capacity
//! ```
//!
//! A run works on a native context, which describes the buffer by addresses. Helpers that need more room than there is
//! find the packet by [`SkbContext::packet`] or [`XdpContext::packet`] and move it to a larger buffer; they also change
//! the addresses in the context. The program has lost its own pointers into the packet by then.
//!
//! What a run leaves beside the bytes, the next run finds: socket buffers keep their protocol, network header and tag.
//! A packet that an XDP program has seen is a new socket buffer, as when it goes up from a driver.

mod effects;
mod info;
mod room;
mod tunnel;

pub use effects::{Copied, Event, Outcome, Redirect, Sysctl};
pub(crate) use effects::{DeviceTarget, Effects, SeqOutput};
pub use info::{Checksum, PacketInfo, Vlan};
pub use tunnel::Tunnel;

use crate::socket::NativeSocket;
use skep_abi::{SkbContext, XdpContext};
use skep_world::Socket;
use std::sync::Arc;

/// Headroom in bytes, as Linux gives XDP programs.
const HEADROOM: usize = 256;
/// Tailroom in bytes.
const TAILROOM: usize = 320;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A packet in its own buffer, which can be reused for any number of packets.
#[derive(Clone, Debug)]
pub struct Packet {
    buffer: Vec<u8>,
    /// Where the room for XDP programs begins.
    room: usize,
    /// Where the metadata begins that XDP programs put before the packet.
    meta: usize,
    start: usize,
    end: usize,
    /// Bytes before the ones that programs over socket buffers see first: 0, unless a socket's filter runs.
    pub(crate) pulled: usize,
    /// What a socket buffer says of its headers, if a helper has changed that.
    headers: Option<Headers>,
    tunnel: Option<Box<Tunnel>>,
    /// The socket that it belongs to.
    socket: Option<Arc<NativeSocket>>,
    /// Whether that socket sends it.
    sent: bool,
    /// What the last run did besides its result.
    pub(crate) effects: Effects,
    /// The metadata; programs may change part of it.
    pub info: PacketInfo,
}

/// What a socket buffer says of its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Headers {
    /// In network order, as programs read it.
    protocol: u32,
    /// Bytes from the packet's start to the network header.
    network: u32,
    encapsulated: u8,
}

impl Packet {
    /// A packet of these bytes, with 256 bytes of headroom and 320 of tailroom.
    pub fn new(bytes: &[u8]) -> Self {
        let mut packet = Self {
            buffer: Vec::new(),
            room: 0,
            meta: 0,
            start: 0,
            end: 0,
            pulled: 0,
            headers: None,
            tunnel: None,
            socket: None,
            sent: false,
            effects: Effects::default(),
            info: PacketInfo::default(),
        };
        packet.set(bytes);
        packet
    }

    /// Replaces the bytes and restores the room on both sides. What [`Packet::info`] says stays; tunnel, metadata
    /// before the packet, and what helpers have changed of the headers do not.
    pub fn set(&mut self, bytes: &[u8]) {
        let needed = HEADROOM + bytes.len() + TAILROOM;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        self.room = 0;
        self.start = HEADROOM;
        self.meta = HEADROOM;
        self.end = HEADROOM + bytes.len();
        self.headers = None;
        self.tunnel = None;
        self.buffer[self.start..self.end].copy_from_slice(bytes);
    }

    /// Makes the first bytes metadata before the packet.
    #[cfg(feature = "sys")]
    pub(crate) fn begin_after(&mut self, metadata: usize) {
        self.meta = self.start;
        self.start += metadata;
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Its bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Crosses a pair of devices: what belonged to the queues of the sending one is gone, and in another network
    /// namespace the mark as well. It comes in as a new socket buffer, with its tag beside it and in as many segments.
    #[inline]
    pub(crate) fn cross(&mut self, other_namespace: bool) {
        let old = self.info;
        self.info = PacketInfo {
            mark: if other_namespace { 0 } else { old.mark },
            tstamp: old.tstamp,
            hash: old.hash,
            vlan: old.vlan,
            gso_segs: old.gso_segs,
            gso_size: old.gso_size,
            gso_type: old.gso_type,
            checksum: old.checksum,
            ..PacketInfo::default()
        };
        self.headers = None;
        self.tunnel = None;
        self.meta = self.start;
    }

    /// What an XDP program has put before the packet by `bpf_xdp_adjust_meta`, for programs that see it later.
    pub fn metadata(&self) -> &[u8] {
        &self.buffer[self.meta..self.start]
    }

    /// The tunnel that it came from, or that a program sends it to.
    pub fn tunnel(&self) -> Option<&Tunnel> {
        self.tunnel.as_deref()
    }

    /// Sets or removes the tunnel, which programs read by `bpf_skb_get_tunnel_key`.
    pub fn set_tunnel(&mut self, tunnel: Option<Tunnel>) {
        self.tunnel = tunnel.map(Box::new);
    }

    pub(crate) fn tunnel_mut(&mut self) -> Option<&mut Tunnel> {
        self.tunnel.as_deref_mut()
    }

    /// The socket that it belongs to, which programs read as `skb->sk`.
    pub fn socket(&self) -> Option<&Arc<Socket>> {
        self.socket.as_ref().map(|native| native.socket())
    }

    /// Sets the number of the control group that programs of type `cgroup_skb` are attached to, for
    /// `bpf_get_local_storage`. At first it is 0.
    pub fn set_attach_cgroup(&mut self, cgroup: u64) {
        self.effects.told.cgroup = cgroup;
    }

    /// Sets or removes its socket. The packet keeps the socket alive.
    pub fn set_socket(&mut self, socket: Option<Arc<Socket>>) {
        self.socket = socket.map(NativeSocket::new);
        self.sent = false;
    }

    /// The same, for a packet that the socket sends: it has come in nowhere, and has the socket's mark and priority.
    pub(crate) fn set_sender(&mut self, socket: &Arc<Socket>) {
        self.set_socket(Some(Arc::clone(socket)));
        self.sent = true;
        let info = &mut self.info;
        (info.mark, info.priority) = (socket.mark, socket.priority);
        (info.ingress_ifindex, info.ifindex) = (0, 0);
    }

    /// The socket that receives it, if that has been said already.
    pub(crate) fn assigned(&self) -> Option<&Arc<Socket>> {
        self.socket().filter(|_| !self.sent)
    }

    /// Makes it end at this place, if it is longer.
    pub(crate) fn shorten(&mut self, bytes: usize) {
        self.end = self.end.min(self.start + bytes);
    }

    #[inline]
    pub(crate) fn xdp(&mut self) -> XdpContext {
        let base = self.buffer.as_mut_ptr() as u64;
        XdpContext {
            data: base + self.start as u64,
            data_end: base + self.end as u64,
            data_meta: base + self.meta as u64,
            buffer_start: base + self.room as u64,
            buffer_end: base + (self.end + TAILROOM).min(self.buffer.len()) as u64,
            ingress_ifindex: self.info.ingress_ifindex,
            rx_queue_index: self.info.rx_queue_index,
            egress_ifindex: self.info.ifindex,
            reserved: 0,
            packet: 0,
        }
    }

    /// Adopts the packet's ends as the program left them.
    #[inline]
    pub(crate) fn take_xdp(&mut self, context: &XdpContext) {
        let base = self.buffer.as_ptr() as u64;
        self.meta = (context.data_meta - base) as usize;
        self.start = (context.data - base) as usize;
        self.end = (context.data_end - base) as usize;
        self.headers = None;
    }

    /// The context for classifiers and the like, or for programs that see packets from their network header on.
    pub(crate) fn skb(&mut self, from_network: bool) -> SkbContext {
        let base = self.buffer.as_mut_ptr() as u64;
        let whole = self.end - self.start;
        let link = if from_network { ETHERNET.min(whole) } else { self.pulled.min(whole) };
        let headers = self.headers.unwrap_or_else(|| self.first_headers());
        let info = &self.info;
        let len = (whole - link) as u32;
        let vlan = info.vlan.unwrap_or(Vlan { protocol: 0, tci: 0 });
        let (summed, sum_level, sum) = info.checksum.parts();
        let mut context = SkbContext {
            data: base + (self.start + link) as u64,
            data_end: base + self.end as u64,
            // Only classifiers see the metadata.
            data_meta: base + if link > 0 { self.start + link } else { self.meta } as u64,
            buffer_start: base,
            buffer_end: base + self.buffer.len() as u64,
            tstamp: info.tstamp,
            hwtstamp: info.hwtstamp,
            len,
            wire_len: if info.wire_len == 0 { len } else { info.wire_len },
            pkt_type: info.pkt_type,
            protocol: headers.protocol,
            link: link as u32,
            // Before the data, for programs that see the transport header first.
            network: match self.pulled {
                0 => headers.network.saturating_sub(link as u32),
                _ => headers.network.wrapping_sub(link as u32),
            },
            encapsulated: headers.encapsulated,
            vlan_present: info.vlan.is_some().into(),
            vlan_tci: vlan.tci.into(),
            vlan_proto: vlan.protocol.to_be().into(),
            ingress_ifindex: info.ingress_ifindex,
            ifindex: if info.ifindex == 0 { info.ingress_ifindex } else { info.ifindex },
            mark: info.mark,
            priority: info.priority,
            queue_mapping: info.queue_mapping & 0xffff,
            tc_index: info.tc_index & 0xffff,
            tc_classid: info.tc_classid & 0xffff,
            napi_id: info.napi_id,
            hash: info.hash,
            gso_segs: info.gso_segs,
            gso_size: info.gso_size,
            gso_type: info.gso_type,
            tstamp_type: info.tstamp_type,
            summed,
            sum_level,
            sum,
            cb: info.cb,
            ..SkbContext::default()
        };
        if let Some(socket) = &self.socket {
            socket.describe(&mut context);
        }
        context
    }

    /// Adopts the fields that the program may have set, and the packet's ends.
    pub(crate) fn take_skb(&mut self, context: &SkbContext) {
        let base = self.buffer.as_ptr() as u64;
        self.start = (context.data - base) as usize - context.link as usize;
        self.meta = ((context.data_meta - base) as usize).min(self.start);
        self.end = (context.data_end - base) as usize;
        self.take_info(context);
        if self.effects.sockets.is_some() {
            self.take_socket(context);
        }
    }

    /// Adopts the socket that the program assigned.
    #[cold]
    fn take_socket(&mut self, context: &SkbContext) {
        let assigned = self.effects.chosen().filter(|chosen| chosen.address() == context.sk);
        if let Some(assigned) = assigned {
            self.socket = Some(Arc::clone(assigned));
            self.sent = false;
        }
    }

    /// Adopts the fields that the program and its helpers may have set, for a packet of the bytes that the context has.
    pub(crate) fn take_info(&mut self, context: &SkbContext) {
        let info = &mut self.info;
        info.tstamp = context.tstamp;
        info.tstamp_type = context.tstamp_type;
        info.pkt_type = context.pkt_type;
        info.mark = context.mark;
        info.priority = context.priority;
        info.queue_mapping = context.queue_mapping;
        info.tc_index = context.tc_index;
        info.tc_classid = context.tc_classid;
        info.hash = context.hash;
        info.cb = context.cb;
        info.vlan = (context.vlan_present != 0).then_some(Vlan {
            protocol: u16::from_be(context.vlan_proto as u16),
            tci: context.vlan_tci as u16,
        });
        (info.gso_segs, info.gso_size, info.gso_type) =
            (context.gso_segs, context.gso_size, context.gso_type);
        info.checksum = Checksum::of(context);
        let headers = Headers {
            protocol: context.protocol,
            network: context.network.wrapping_add(context.link),
            encapsulated: context.encapsulated,
        };
        // What the Ethernet header says is found anew in each run: a host or an XDP program may change it.
        self.headers = (headers != self.first_headers()).then_some(headers);
    }

    /// What the Ethernet header says.
    fn first_headers(&self) -> Headers {
        let network = ETHERNET as u32;
        Headers { protocol: u32::from(protocol(self.bytes())), network, encapsulated: 0 }
    }
}

/// The protocol of an Ethernet frame, in network order, as `sk_buff::protocol` has it: below 1536 the header's field is
/// a length, and the protocol is `ETH_P_802_3` or `ETH_P_802_2`. 0 where the frame is shorter than its header.
pub(crate) fn protocol(frame: &[u8]) -> u16 {
    match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, a, b, rest @ ..] => match u16::from_be_bytes([*a, *b]) {
            1536.. => u16::from_ne_bytes([*a, *b]),
            _ if rest.starts_with(&[0xff, 0xff]) => 1u16.to_be(),
            _ => 4u16.to_be(),
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_describe_the_buffer() {
        let mut packet = Packet::new(&[7; 60]);
        let xdp = packet.xdp();
        assert_eq!(xdp.data_end - xdp.data, 60);
        assert_eq!(xdp.data - xdp.buffer_start, 256);
        assert_eq!(xdp.buffer_end - xdp.data_end, 320);
        packet.set(&[1; 14]);
        let xdp = packet.xdp();
        assert_eq!((xdp.data_end - xdp.data, xdp.buffer_end - xdp.data_end), (14, 320));
        assert_eq!(packet.bytes(), [1; 14]);
    }

    #[test]
    fn a_moved_head_is_taken_over() {
        let mut packet = Packet::new(b"0123456789abcdefghij");
        let mut xdp = packet.xdp();
        xdp.data += 4;
        xdp.data_end -= 1;
        xdp.data_meta += 2;
        packet.take_xdp(&xdp);
        assert_eq!(packet.bytes(), b"456789abcdefghi");
        assert_eq!(packet.metadata(), b"23");
        let skb = packet.skb(false);
        assert_eq!(skb.data - skb.data_meta, 2, "classifiers see the metadata");
        packet.set(b"0123");
        assert!(packet.metadata().is_empty());
    }

    #[test]
    fn the_protocol_is_what_the_ethernet_header_says() {
        let mut bytes = [0; 20];
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(Packet::new(&bytes).skb(false).protocol.to_ne_bytes()[..2], [0x86, 0xdd]);
        assert_eq!(Packet::new(&bytes[..13]).skb(false).protocol, 0);
        bytes[12..16].copy_from_slice(&[0, 46, 0xff, 0xff]);
        assert_eq!(Packet::new(&bytes).skb(false).protocol.to_ne_bytes()[..2], [0, 1]);
        assert_eq!(Packet::new(&bytes[..14]).skb(false).protocol.to_ne_bytes()[..2], [0, 4]);
    }

    #[test]
    fn what_a_run_says_of_the_headers_stays_until_the_bytes_are_replaced() {
        let mut packet = Packet::new(&[0; 60]);
        let mut skb = packet.skb(false);
        assert_eq!((skb.protocol, skb.network), (u32::from(4u16.to_be()), 14));
        (skb.protocol, skb.network, skb.vlan_present, skb.vlan_tci) = (8, 34, 1, 5);
        (skb.summed, skb.sum_level, skb.pkt_type) = (SkbContext::CORRECT, 2, 3);
        packet.take_skb(&skb);
        let next = packet.skb(false);
        assert_eq!((next.protocol, next.network, next.vlan_present, next.vlan_tci), (8, 34, 1, 5));
        assert_eq!((next.summed, next.sum_level, next.pkt_type), (SkbContext::CORRECT, 2, 3));
        packet.set(&[0; 60]);
        assert_eq!((packet.skb(false).protocol, packet.skb(false).network), (u32::from(4u16.to_be()), 14));
    }
}
