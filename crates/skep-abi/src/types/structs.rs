//! Structures that programs reach through pointers and whose layout Linux guarantees.

use super::fields::{double, layout, lower, number, placed, view, whole, word};
use crate::context::{ContextField, ContextLayout, Parts};
use skep_isa::Size;

/// `struct bpf_sock`, of which different programs see different parts. `dst_port` has two bytes and may also be
/// read together with the zeroes after it.
pub(super) const BPF_SOCK: &[ContextField] = placed!(
    BPF_SOCK_SIZE,
    &[
        whole("bound_dev_if", 0),
        lower("family", 4),
        lower("type", 8),
        lower("protocol", 12),
        whole("mark", 16),
        whole("priority", 20),
        word("src_ip4", 24),
        word("src_ip6[0]", 28),
        word("src_ip6[1]", 32),
        word("src_ip6[2]", 36),
        word("src_ip6[3]", 40),
        lower("src_port", 44),
        number("dst_port", 48, Size::B2, Parts::any(Size::B2)).wide(),
        word("dst_ip4", 52),
        word("dst_ip6[0]", 56),
        word("dst_ip6[1]", 60),
        word("dst_ip6[2]", 64),
        word("dst_ip6[3]", 68),
        lower("state", 72),
        lower("rx_queue_mapping", 76),
    ]
);

/// The size of `struct bpf_sock`.
pub(super) const BPF_SOCK_SIZE: u32 = 80;

/// A full socket.
pub(crate) static SOCK: ContextLayout = layout("bpf_sock", BPF_SOCK_SIZE, BPF_SOCK);

/// The fields of every socket, full or not.
pub(crate) static SOCK_COMMON: ContextLayout = layout(
    "bpf_sock",
    BPF_SOCK_SIZE,
    view!(
        BPF_SOCK,
        &[
            "bound_dev_if",
            "family",
            "src_ip4",
            "src_ip6",
            "src_port",
            "dst_port",
            "dst_ip4",
            "dst_ip6",
            "state",
            "rx_queue_mapping",
        ],
        &[]
    ),
);

/// `struct bpf_tcp_sock`.
pub(crate) static TCP_SOCK: ContextLayout = layout(
    "bpf_tcp_sock",
    112,
    placed!(
        112,
        &[
            whole("snd_cwnd", 0),
            whole("srtt_us", 4),
            whole("rtt_min", 8),
            whole("snd_ssthresh", 12),
            whole("rcv_nxt", 16),
            whole("snd_nxt", 20),
            whole("snd_una", 24),
            whole("mss_cache", 28),
            whole("ecn_flags", 32),
            whole("rate_delivered", 36),
            whole("rate_interval_us", 40),
            whole("packets_out", 44),
            whole("retrans_out", 48),
            whole("total_retrans", 52),
            whole("segs_in", 56),
            whole("data_segs_in", 60),
            whole("segs_out", 64),
            whole("data_segs_out", 68),
            whole("lost_out", 72),
            whole("sacked_out", 76),
            double("bytes_received", 80),
            double("bytes_acked", 88),
            whole("dsack_dups", 96),
            whole("delivered", 100),
            whole("delivered_ce", 104),
            whole("icsk_retransmits", 108),
        ]
    ),
);

/// `struct bpf_xdp_sock`.
pub(crate) static XDP_SOCK: ContextLayout = layout("bpf_xdp_sock", 4, placed!(4, &[whole("queue_id", 0)]));

/// `struct bpf_flow_keys`. It may be read and written at any aligned place, also across its fields, so it is
/// described as words of eight bytes, each named after its first field.
pub(crate) static FLOW_KEYS: ContextLayout = layout(
    "bpf_flow_keys",
    56,
    placed!(
        56,
        &[
            keys("nhoff", 0),
            keys("is_encap", 8),
            keys("ipv6_src[0]", 16),
            keys("ipv6_src[2]", 24),
            keys("ipv6_dst[0]", 32),
            keys("ipv6_dst[2]", 40),
            keys("flags", 48),
        ]
    ),
);

const fn keys(name: &'static str, offset: u32) -> ContextField {
    let reads = Parts::any(Size::B8);
    ContextField { writes: reads, ..number(name, offset, Size::B8, reads) }
}
