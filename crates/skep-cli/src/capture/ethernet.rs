//! Frames of other link types as Ethernet frames, which is what programs of packet types see.
//!
//! Bare IP packets get a header without addresses. Captures of Linux on all devices ("cooked") have a header of their
//! own, with the source address and the protocol; it is replaced. Layouts: <https://www.tcpdump.org/linktypes.html>.

use pcap_parser::Linktype;
use std::borrow::Cow;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// The length of an address.
const ADDRESS: usize = 6;

/// Why a frame could not be turned into an Ethernet frame.
pub(super) enum Failure {
    /// The link type is not known.
    Link,
    /// The frame is not one of its link type.
    Frame(&'static str),
}

/// The frame as an Ethernet frame.
pub(super) fn frame(link: Linktype, bytes: &[u8]) -> Result<Cow<'_, [u8]>, Failure> {
    const SHORT: Failure = Failure::Frame("it is shorter than the header of its link type");
    Ok(match link {
        Linktype::ETHERNET => Cow::Borrowed(bytes),
        Linktype::IPV4 => with_header(&[], IPV4, bytes),
        Linktype::IPV6 => with_header(&[], IPV6, bytes),
        Linktype::RAW => match bytes.first().ok_or(SHORT)? >> 4 {
            4 => with_header(&[], IPV4, bytes),
            6 => with_header(&[], IPV6, bytes),
            _ => return Err(Failure::Frame("it is neither IPv4 nor IPv6")),
        },
        // Kind of packet, kind of device, length of the address, 8 bytes of it, protocol.
        Linktype::LINUX_SLL => {
            let (header, rest) = bytes.split_at_checked(16).ok_or(SHORT)?;
            let len = u16::from_be_bytes([header[4], header[5]]);
            with_header(
                &header[6..14][..usize::from(len).min(8)],
                u16::from_be_bytes([header[14], header[15]]),
                rest,
            )
        }
        // Protocol, 2 bytes, number of the device, its kind, kind of packet, length of the address, 8 bytes of it.
        Linktype::LINUX_SLL2 => {
            let (header, rest) = bytes.split_at_checked(20).ok_or(SHORT)?;
            with_header(
                &header[12..20][..usize::from(header[11]).min(8)],
                u16::from_be_bytes([header[0], header[1]]),
                rest,
            )
        }
        _ => return Err(Failure::Link),
    })
}

/// A frame from that source, if it is an Ethernet address.
fn with_header(source: &[u8], protocol: u16, rest: &[u8]) -> Cow<'static, [u8]> {
    let mut frame = vec![0; ADDRESS];
    frame.extend_from_slice(if source.len() == ADDRESS { source } else { &[0; ADDRESS] });
    frame.extend_from_slice(&protocol.to_be_bytes());
    frame.extend_from_slice(rest);
    Cow::Owned(frame)
}
