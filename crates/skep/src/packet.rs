//! Packets as programs see them: bytes with room to grow on both sides, and metadata.
//!
//! ```text
//!   buffer  |<--- headroom --->|<--- bytes --->|<--- tailroom --->|
//!           0                start            end              capacity
//! ```

mod effects;

pub use effects::{Copied, Outcome, Redirect};
pub(crate) use effects::{DeviceTarget, Effects};
use skep_abi::{SkbContext, XdpContext};

/// Headroom in bytes, as Linux gives XDP programs.
const HEADROOM: usize = 256;
/// Tailroom in bytes.
const TAILROOM: usize = 320;

/// A packet in its own buffer, which can be reused for any number of packets.
#[derive(Clone, Debug)]
pub struct Packet {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// What the last run did besides its result.
    pub(crate) effects: Effects,
    /// The metadata; programs may change part of it.
    pub info: PacketInfo,
}

/// Metadata of a packet: fields of `struct xdp_md` and `struct __sk_buff`.
///
/// `protocol` of socket-buffer programs is always that of the Ethernet header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInfo {
    /// Index of the interface that the packet came in on.
    pub ingress_ifindex: u32,
    /// Index of the interface that the packet is at; 0: the one that it came in on. For XDP programs of an interface
    /// that sends, that interface.
    pub ifindex: u32,
    /// Index of its receive queue.
    pub rx_queue_index: u32,
    /// Time stamp in nanoseconds; classifiers may set it.
    pub tstamp: u64,
    /// Mark; classifiers may set it.
    pub mark: u32,
    /// Priority; classifiers may set it.
    pub priority: u32,
    /// Transmit queue; classifiers may set it.
    pub queue_mapping: u32,
    /// Index of traffic control; classifiers may set it.
    pub tc_index: u32,
    /// Class of traffic control; classifiers may set it.
    pub tc_classid: u32,
    /// Flow hash.
    pub hash: u32,
    /// Scratch words that one program leaves for the next.
    pub cb: [u32; 5],
}

impl Packet {
    /// A packet of these bytes, with 256 bytes of headroom and 320 of tailroom.
    pub fn new(bytes: &[u8]) -> Self {
        let mut packet = Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            effects: Effects::default(),
            info: PacketInfo::default(),
        };
        packet.set(bytes);
        packet
    }

    /// Replaces the bytes and restores the room on both sides. The metadata stays.
    pub fn set(&mut self, bytes: &[u8]) {
        let needed = HEADROOM + bytes.len() + TAILROOM;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        self.start = HEADROOM;
        self.end = HEADROOM + bytes.len();
        self.buffer[self.start..self.end].copy_from_slice(bytes);
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
    /// namespace the mark as well.
    pub(crate) fn cross(&mut self, other_namespace: bool) {
        let info = &mut self.info;
        let mark = if other_namespace { 0 } else { info.mark };
        *info = PacketInfo { mark, tstamp: info.tstamp, hash: info.hash, ..PacketInfo::default() };
    }

    pub(crate) fn xdp(&mut self) -> XdpContext {
        let base = self.buffer.as_mut_ptr() as u64;
        XdpContext {
            data: base + self.start as u64,
            data_end: base + self.end as u64,
            data_meta: base + self.start as u64,
            buffer_start: base,
            buffer_end: base + (self.end + TAILROOM).min(self.buffer.len()) as u64,
            ingress_ifindex: self.info.ingress_ifindex,
            rx_queue_index: self.info.rx_queue_index,
            egress_ifindex: self.info.ifindex,
            reserved: 0,
        }
    }

    /// Adopts the packet's ends as the program left them.
    pub(crate) fn take_xdp(&mut self, context: &XdpContext) {
        let base = self.buffer.as_ptr() as u64;
        self.start = (context.data - base) as usize;
        self.end = (context.data_end - base) as usize;
    }

    pub(crate) fn skb(&mut self) -> SkbContext {
        let base = self.buffer.as_mut_ptr() as u64;
        let protocol = match self.bytes() {
            [_, _, _, _, _, _, _, _, _, _, _, _, a, b, ..] => u16::from_ne_bytes([*a, *b]).into(),
            _ => 0,
        };
        let info = &self.info;
        let len = (self.end - self.start) as u32;
        SkbContext {
            data: base + self.start as u64,
            data_end: base + self.end as u64,
            data_meta: base + self.start as u64,
            buffer_start: base,
            buffer_end: base + self.buffer.len() as u64,
            tstamp: info.tstamp,
            len,
            wire_len: len,
            protocol,
            ingress_ifindex: info.ingress_ifindex,
            ifindex: if info.ifindex == 0 { info.ingress_ifindex } else { info.ifindex },
            mark: info.mark,
            priority: info.priority,
            queue_mapping: info.queue_mapping,
            tc_index: info.tc_index,
            tc_classid: info.tc_classid,
            hash: info.hash,
            cb: info.cb,
            ..SkbContext::default()
        }
    }

    /// Adopts the fields that the program may have set, and the packet's ends.
    pub(crate) fn take_skb(&mut self, context: &SkbContext) {
        self.take_info(context);
        let base = self.buffer.as_ptr() as u64;
        self.start = (context.data - base) as usize;
        self.end = (context.data_end - base) as usize;
    }

    /// Adopts the fields that the program may have set.
    pub(crate) fn take_info(&mut self, context: &SkbContext) {
        self.info.tstamp = context.tstamp;
        self.info.mark = context.mark;
        self.info.priority = context.priority;
        self.info.queue_mapping = context.queue_mapping;
        self.info.tc_index = context.tc_index;
        self.info.tc_classid = context.tc_classid;
        self.info.hash = context.hash;
        self.info.cb = context.cb;
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
        packet.take_xdp(&xdp);
        assert_eq!(packet.bytes(), b"456789abcdefghi");
    }

    #[test]
    fn the_protocol_is_what_the_ethernet_header_says() {
        let mut bytes = [0; 20];
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(Packet::new(&bytes).skb().protocol.to_ne_bytes()[..2], [0x86, 0xdd]);
        assert_eq!(Packet::new(&bytes[..13]).skb().protocol, 0);
    }
}
