//! Packets as capture files: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng), in both byte orders
//! and with timestamps in microseconds or nanoseconds.
//!
//! ```text
//!   pcap     header(24) { stamp:8 captured:4 length:4 bytes }*
//!   pcapng   section { interface }* { packet | other }*     each block: kind:4 size:4 ... size:4, padded to 4 bytes
//! ```

/// One captured packet.
#[derive(Clone)]
pub(crate) struct Packet {
    /// Nanoseconds since 1970.
    pub(crate) stamp_ns: u64,
    /// The captured bytes.
    pub(crate) bytes: Vec<u8>,
    /// Its length on the wire: more than that of `bytes` if the capture truncated it.
    pub(crate) wire_bytes: usize,
}

/// The byte order of a file's numbers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Order {
    Little,
    Big,
}

/// The unit of a file's timestamps.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    Microseconds,
    Nanoseconds,
}

impl Unit {
    fn per_second(self) -> u64 {
        match self {
            Unit::Microseconds => 1_000_000,
            Unit::Nanoseconds => 1_000_000_000,
        }
    }

    fn stamp(self, stamp_ns: u64) -> u64 {
        match self {
            Unit::Microseconds => stamp_ns / 1000,
            Unit::Nanoseconds => stamp_ns,
        }
    }
}

const ETHERNET: u16 = 1;
const LONGEST: u32 = 0x0004_0000;

/// A pcap file.
pub(crate) fn pcap(packets: &[Packet], order: Order, unit: Unit) -> Vec<u8> {
    let mut out = Bytes { order, bytes: Vec::new() };
    out.u32(match unit {
        Unit::Microseconds => 0xa1b2_c3d4,
        Unit::Nanoseconds => 0xa1b2_3c4d,
    });
    out.u16(2);
    out.u16(4);
    out.u32(0);
    out.u32(0);
    out.u32(LONGEST);
    out.u32(u32::from(ETHERNET));
    for packet in packets {
        let stamp = unit.stamp(packet.stamp_ns);
        out.u32((stamp / unit.per_second()) as u32);
        out.u32((stamp % unit.per_second()) as u32);
        out.u32(packet.bytes.len() as u32);
        out.u32(packet.wire_bytes as u32);
        out.bytes.extend_from_slice(&packet.bytes);
    }
    out.bytes
}

/// A pcapng file. Packets alternate between two interfaces, the second with `second_unit`, so that a reader must use
/// each packet's own interface. Blocks of unknown kinds are between the packets.
pub(crate) fn pcapng(packets: &[Packet], order: Order, second_unit: Unit) -> Vec<u8> {
    const SECTION: u32 = 0x0a0d_0d0a;
    const INTERFACE: u32 = 1;
    const INTERFACE_STATISTICS: u32 = 5;
    const ENHANCED_PACKET: u32 = 6;
    const CUSTOM: u32 = 0xbad;
    const UNASSIGNED: u32 = 0x0000_7777;

    let mut out = Bytes { order, bytes: Vec::new() };
    out.block(SECTION, |body| {
        body.u32(0x1a2b_3c4d);
        body.u16(1);
        body.u16(0);
        body.u64(u64::MAX); // the section's length is unspecified
        body.option(4, b"skep xtask"); // the application's name
        body.end_of_options();
    });
    for unit in [Unit::Microseconds, second_unit] {
        out.block(INTERFACE, |body| {
            body.u16(ETHERNET);
            body.u16(0);
            body.u32(LONGEST);
            // Microseconds are the default.
            if unit == Unit::Nanoseconds {
                body.option(9, &[9]);
                body.end_of_options();
            }
        });
    }
    for (index, packet) in packets.iter().enumerate() {
        let unit = [Unit::Microseconds, second_unit][index % 2];
        let stamp = unit.stamp(packet.stamp_ns);
        out.block(ENHANCED_PACKET, |body| {
            body.u32((index % 2) as u32);
            body.u32((stamp >> 32) as u32);
            body.u32(stamp as u32);
            body.u32(packet.bytes.len() as u32);
            body.u32(packet.wire_bytes as u32);
            body.padded(&packet.bytes);
            if index % 3 == 0 {
                body.option(1, b"a comment");
                body.end_of_options();
            }
        });
        match index {
            4 => out.block(CUSTOM, |body| body.u32(32473)), // the enterprise number kept for documentation
            7 => out.block(UNASSIGNED, |body| body.u64(0x0123_4567_89ab_cdef)),
            _ => {}
        }
    }
    out.block(INTERFACE_STATISTICS, |body| {
        body.u32(0);
        body.u64(0);
    });
    out.bytes
}

/// A file being written.
struct Bytes {
    order: Order,
    bytes: Vec<u8>,
}

impl Bytes {
    fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&match self.order {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        });
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    fn end_of_options(&mut self) {
        self.u32(0);
    }

    fn block(&mut self, kind: u32, fill: impl FnOnce(&mut Bytes)) {
        let mut body = Bytes { order: self.order, bytes: Vec::new() };
        fill(&mut body);
        let size = 12 + body.bytes.len() as u32;
        self.u32(kind);
        self.u32(size);
        self.bytes.append(&mut body.bytes);
        self.u32(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Packet {
        Packet { stamp_ns: 5_000_001_234, bytes: vec![1, 2, 3, 4, 5], wire_bytes: 9 }
    }

    #[test]
    fn pcap_records_have_timestamp_lengths_and_bytes() {
        let little = pcap(&[packet()], Order::Little, Unit::Nanoseconds);
        assert_eq!(little[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
        assert_eq!(little[24..], [5, 0, 0, 0, 0xd2, 4, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3, 4, 5]);
        let big = pcap(&[packet()], Order::Big, Unit::Microseconds);
        assert_eq!(big[..4], [0xa1, 0xb2, 0xc3, 0xd4]);
        assert_eq!(big[24..], [0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn pcapng_blocks_are_padded_with_size_at_both_ends() {
        for order in [Order::Little, Order::Big] {
            let file = pcapng(&vec![packet(); 9], order, Unit::Nanoseconds);
            let number = |at: usize| {
                let bytes = file[at..at + 4].try_into().unwrap();
                if order == Order::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
            };
            let (mut at, mut blocks) = (0, 0);
            while at < file.len() {
                let size = number(at + 4) as usize;
                assert_eq!(size % 4, 0);
                assert_eq!(number(at + size - 4) as usize, size);
                at += size;
                blocks += 1;
            }
            // A section, two interfaces, nine packets, two blocks to be skipped, statistics.
            assert_eq!((at, blocks), (file.len(), 1 + 2 + 9 + 2 + 1));
        }
    }
}
