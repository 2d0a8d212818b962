//! A frame as a port received it, and the work on it that the kernel left to the device.
//!
//! Linux does not finish a frame that it expects a device to finish. A VLAN tag may be beside the frame, a checksum
//! may have only its first part, and a packet may be one that the device is to cut into segments. A packet socket
//! tells about the last two in a header before each frame, `struct virtio_net_hdr`:
//!
//! ```text
//!   flags | kind of segments | length of the headers | size of a segment | start of the sum | its field, from there
//!   1       1                  2                       2                   2                  2   bytes
//! ```
//!
//! A program should see what would be on the wire: checksums of single frames are completed here, and XDP programs
//! find the tag in the frame. A packet of segments stays whole, as XDP's generic mode and tc programs of Linux see
//! it. It can be sent with the header that it came with while its length is the same; otherwise the header's
//! positions would be wrong.

use crate::sys::HEADER;
use skep::Vlan;

/// The longest frame: 64 KiB of payload and its headers, with room.
const MOST: usize = 128 << 10;
/// Where a tag is, after the two addresses.
const TAG_AT: usize = 12;
const TAG: usize = 4;

const NEEDS_SUM: u8 = 1;
const SUM_IS_RIGHT: u8 = 2;

/// What the kernel left to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Where the sum of a checksum begins that has only its first part, and where its field is, in bytes from the
    /// frame's start.
    pub partial: Option<(u16, u16)>,
    /// Whether the checksum was found to be right.
    pub correct: bool,
    /// Kind of segments (`VIRTIO_NET_HDR_GSO_...`), payload of each and length of the headers, in bytes.
    pub segments: Option<(u8, u16, u16)>,
}

impl Offload {
    /// Reads the header before a frame.
    pub(crate) fn parse(header: &[u8; HEADER]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        Self {
            partial: (header[0] & NEEDS_SUM != 0).then(|| (word(6), word(6).saturating_add(word(8)))),
            correct: header[0] & SUM_IS_RIGHT != 0,
            segments: (header[1] != 0 && word(4) != 0).then(|| (header[1], word(4), word(2))),
        }
    }

    /// The header for a frame that is sent.
    pub(crate) fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        if let Some((start, field)) = self.partial {
            header[0] = NEEDS_SUM;
            header[6..8].copy_from_slice(&start.to_ne_bytes());
            header[8..10].copy_from_slice(&field.saturating_sub(start).to_ne_bytes());
        }
        if let Some((kind, size, headers)) = self.segments {
            header[1] = kind;
            header[2..4].copy_from_slice(&headers.to_ne_bytes());
            header[4..6].copy_from_slice(&size.to_ne_bytes());
        }
        header
    }

    /// The same behind a tag that was put into the frame.
    pub(crate) fn behind_a_tag(self) -> Self {
        let moved = |at: u16| at.saturating_add(TAG as u16);
        Self {
            partial: self.partial.map(|(start, field)| (moved(start), moved(field))),
            segments: self.segments.map(|(kind, size, headers)| (kind, size, moved(headers))),
            ..self
        }
    }

    /// The kind of segments as `skb_shared_info` has it (`SKB_GSO_...`).
    pub(crate) fn gso_type(&self) -> u32 {
        const WITH_CONGESTION: u8 = 0x80;
        let Some((kind, ..)) = self.segments else { return 0 };
        let congestion = if kind & WITH_CONGESTION != 0 { 1 << 2 } else { 0 };
        congestion
            | match kind & !WITH_CONGESTION {
                1 => 1,
                3 => 1 << 1,
                4 => 1 << 4,
                5 => 1 << 17,
                _ => 0,
            }
    }
}

/// A frame in a buffer that is used for one after the other.
pub(crate) struct Arrival {
    buffer: Box<[u8]>,
    len: usize,
    /// To whom it was addressed: 0 this host, 1 all, 2 a group, 3 another host.
    pub(crate) addressed: u32,
    /// The tag beside the frame.
    pub(crate) vlan: Option<Vlan>,
    pub(crate) offload: Offload,
}

impl Arrival {
    pub(crate) fn new() -> Self {
        let buffer = vec![0; MOST + TAG].into();
        Self { buffer, len: 0, addressed: 0, vlan: None, offload: Offload::default() }
    }

    /// Where a frame is received.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[..MOST]
    }

    /// Takes over the frame that was written to the room.
    pub(crate) fn take(&mut self, len: usize, addressed: u32, vlan: Option<Vlan>, header: &[u8; HEADER]) {
        (self.len, self.addressed, self.vlan) = (len.min(MOST), addressed, vlan);
        self.offload = Offload::parse(header);
        self.complete();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// Puts the tag from beside the frame into it, where it was on the wire.
    pub(crate) fn insert_tag(&mut self) {
        let Some(vlan) = self.vlan else { return };
        if self.len >= TAG_AT {
            insert(&mut self.buffer, self.len, vlan);
            self.len += TAG;
            self.offload = self.offload.behind_a_tag();
        }
        self.vlan = None;
    }

    /// Completes the checksum of a frame that is not cut into segments.
    fn complete(&mut self) {
        let Some((start, field)) = self.offload.partial else { return };
        let (start, field) = (usize::from(start), usize::from(field));
        if self.offload.segments.is_some() || field + 2 > self.len || start > field {
            return;
        }
        let sum = match !folded(&self.buffer[start..self.len]) {
            0 => 0xffff, // to UDP, 0 means that there is none
            sum => sum,
        };
        self.buffer[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        (self.offload.partial, self.offload.correct) = (None, true);
    }
}

/// The bytes of a frame with that tag.
pub(crate) fn tagged(bytes: &[u8], vlan: Vlan) -> Option<Vec<u8>> {
    if bytes.len() < TAG_AT {
        return None;
    }
    let mut buffer = bytes.to_vec();
    buffer.resize(bytes.len() + TAG, 0);
    insert(&mut buffer, bytes.len(), vlan);
    Some(buffer)
}

fn insert(buffer: &mut [u8], len: usize, vlan: Vlan) {
    buffer.copy_within(TAG_AT..len, TAG_AT + TAG);
    buffer[TAG_AT..TAG_AT + 2].copy_from_slice(&vlan.protocol.to_be_bytes());
    buffer[TAG_AT + 2..TAG_AT + TAG].copy_from_slice(&vlan.tci.to_be_bytes());
}

/// The one's-complement sum of words in network order.
fn folded(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(bytes: &[u8], vlan: Option<Vlan>, header: [u8; HEADER]) -> Arrival {
        let mut arrival = Arrival::new();
        arrival.room()[..bytes.len()].copy_from_slice(bytes);
        arrival.take(bytes.len(), 0, vlan, &header);
        arrival
    }

    fn header(flags: u8, kind: u8, rest: [u16; 4]) -> [u8; HEADER] {
        let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, word) in rest.iter().enumerate() {
            header[2 + 2 * at..4 + 2 * at].copy_from_slice(&word.to_ne_bytes());
        }
        header
    }

    #[test]
    fn checksums_of_single_frames_are_completed() {
        // From byte 20 on: 0x0001, the field with the sum of a pseudo header, and an odd byte.
        let mut bytes = vec![0xee; 20];
        bytes.extend([0x00, 0x01, 0x12, 0x34, 0x05]);
        let frame = arrival(&bytes, None, header(NEEDS_SUM, 0, [0, 0, 20, 2]));
        // 0x0001 + 0x1234 + 0x0500 = 0x1735
        assert_eq!(frame.bytes()[22..24], (!0x1735_u16).to_be_bytes());
        assert_eq!(frame.bytes()[..20], bytes[..20]);
        assert!(frame.offload.correct && frame.offload.partial.is_none());
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_all_ones() {
        let mut bytes = vec![0; 24];
        bytes[20..22].copy_from_slice(&[0xff, 0xff]);
        let frame = arrival(&bytes, None, header(NEEDS_SUM, 0, [0, 0, 20, 2]));
        assert_eq!(frame.bytes()[22..24], [0xff, 0xff]);
    }

    #[test]
    fn positions_beyond_the_frame_change_nothing() {
        for (start, offset) in [(20, 3), (20, 4), (200, 2), (0xffff, 0xffff)] {
            let frame = arrival(&[7; 24], None, header(NEEDS_SUM, 0, [0, 0, start, offset]));
            let changed = frame.bytes() != [7; 24];
            assert!(!changed, "{start} {offset}");
            assert!(frame.offload.partial.is_some());
        }
    }

    #[test]
    fn packets_of_segments_keep_their_header_and_move_it_behind_a_tag() {
        let bytes: Vec<u8> = (0..100).collect();
        let vlan = Vlan { protocol: 0x8100, tci: 0x2005 };
        let sent = header(NEEDS_SUM, 1, [54, 1448, 34, 16]);
        let mut frame = arrival(&bytes, Some(vlan), sent);
        assert_eq!(frame.bytes(), bytes);
        assert_eq!((frame.offload.header(), frame.offload.gso_type()), (sent, 1));
        frame.insert_tag();
        assert_eq!(frame.offload.header(), header(NEEDS_SUM, 1, [58, 1448, 38, 16]));
        assert_eq!(frame.bytes()[..18], [&bytes[..12], &[0x81, 0, 0x20, 0x05], &bytes[12..14]].concat());
        assert_eq!(frame.bytes().len(), 104);
        assert_eq!(frame.bytes(), tagged(&bytes, vlan).unwrap());
        frame.insert_tag();
        assert_eq!(frame.bytes().len(), 104, "only once");
    }

    #[test]
    fn frames_without_two_addresses_get_no_tag() {
        let vlan = Vlan { protocol: 0x8100, tci: 1 };
        assert_eq!(tagged(&[0; 11], vlan), None);
        let mut frame = arrival(&[1; 11], Some(vlan), [0; HEADER]);
        frame.insert_tag();
        assert_eq!(frame.bytes(), [1; 11]);
    }
}
