//! Where legacy packet loads (`BPF_ABS`, `BPF_IND`) find their bytes in a socket buffer.

use crate::{Native, ProgramType, SkbContext};
use skep_isa::Size;

/// `SKF_NET_OFF` of `linux/filter.h`: offsets from here up are relative to the network header.
const NET_OFF: i64 = -0x10_0000;
/// `SKF_LL_OFF` of `linux/filter.h`: offsets from here to `SKF_NET_OFF` are relative to the link-layer header.
const LL_OFF: i64 = -0x20_0000;

impl SkbContext {
    /// The address of the network header.
    pub const fn network_header(&self) -> u64 {
        self.data.wrapping_add_signed(self.network.cast_signed() as i64)
    }

    /// The address of the `size` bytes that a legacy load at that offset reads, if all of them are in the packet.
    pub fn legacy_load(&self, offset: i32, size: Size) -> Option<u64> {
        let offset = i64::from(offset);
        let start = if offset >= 0 {
            self.data + offset as u64
        } else if offset >= NET_OFF {
            self.network_header() + (offset - NET_OFF) as u64
        } else if offset >= LL_OFF {
            self.data - u64::from(self.link) + (offset - LL_OFF) as u64
        } else {
            return None;
        };
        (start + u64::from(size.bytes()) <= self.data_end).then_some(start)
    }
}

impl ProgramType {
    /// Whether programs of this type run on a [`SkbContext`]: socket filters, classifiers and others.
    pub const fn is_socket_buffer(&self) -> bool {
        matches!(self.native, Some(Native::Skb))
    }

    /// Whether programs of this type may deal with objects of the host by their types. Programs over XDP's packets,
    /// over buffers or contexts of a host's own, and those that may be classic filters hardly do.
    pub const fn meets_host_types(&self) -> bool {
        !self.classic_loads && !matches!(self.native, Some(Native::Xdp | Native::Buffer | Native::Host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifiers_and_socket_filters_run_on_socket_buffers() {
        let of = |kind: &ProgramType| kind.is_socket_buffer();
        assert!(of(&crate::SCHED_CLS) && of(&crate::SOCKET_FILTER) && !of(&crate::XDP) && !of(&crate::RAW));
    }

    #[test]
    fn legacy_loads_stay_in_the_packet_for_each_kind_of_offset() {
        let skb = SkbContext { data: 1000, data_end: 1060, network: 14, ..SkbContext::default() };
        let at = |offset: i32, size| skb.legacy_load(offset, size);
        assert_eq!(at(0, Size::B1), Some(1000));
        assert_eq!(at(56, Size::B4), Some(1056));
        assert_eq!(at(57, Size::B4), None);
        assert_eq!(at(i32::MAX, Size::B4), None);
        assert_eq!(at(-1, Size::B1), None, "far after the network header");
        assert_eq!(at(-0x10_0000, Size::B2), Some(1014));
        assert_eq!(at(-0x10_0000 + 44, Size::B2), Some(1058));
        assert_eq!(at(-0x10_0000 + 45, Size::B2), None);
        assert_eq!(at(-0x20_0000, Size::B2), Some(1000));
        assert_eq!(at(-0x10_0001, Size::B1), None);
        assert_eq!(at(-0x20_0001, Size::B1), None);
        assert_eq!(at(i32::MIN, Size::B1), None);
        let inside = SkbContext { data: 1014, link: 14, network: 0, ..skb };
        assert_eq!(inside.legacy_load(0, Size::B1), Some(1014));
        assert_eq!(inside.legacy_load(-0x10_0000, Size::B1), Some(1014));
        assert_eq!(inside.legacy_load(-0x20_0000, Size::B1), Some(1000));
    }
}
