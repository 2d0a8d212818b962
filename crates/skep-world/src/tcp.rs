//! The numbers of a TCP connection.

macro_rules! numbers {
    ($($field:ident: $width:ty, $what:literal;)*) => {
        /// The numbers of a TCP connection that programs read: `struct bpf_tcp_sock`, with the names and meanings of
        /// Linux. The host sets them, nothing computes them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(C)]
        pub struct Tcp {
            $(#[doc = $what] pub $field: $width,)*
        }

        impl Tcp {
            /// The numbers of a socket that has sent nothing: a window of 10 segments (RFC 6928, section 2), no limit
            /// to slow start (RFC 5681, section 3.1), segments of 536 bytes (RFC 9293, section 3.7.1), no round-trip
            /// time (`u32::MAX`); the others are 0.
            pub const fn new() -> Self {
                Self {
                    snd_cwnd: 10,
                    snd_ssthresh: i32::MAX as u32,
                    mss_cache: 536,
                    rtt_min: u32::MAX,
                    ..Self { $($field: 0,)* }
                }
            }
        }

        impl Default for Tcp {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

numbers! {
    snd_cwnd: u32, "Congestion window, in segments.";
    srtt_us: u32, "Smoothed round-trip time, in eighths of microseconds.";
    rtt_min: u32, "The smallest round-trip time, in microseconds.";
    snd_ssthresh: u32, "Slow-start threshold, in segments.";
    rcv_nxt: u32, "The next sequence number to receive.";
    snd_nxt: u32, "The next sequence number to send.";
    snd_una: u32, "The first byte without an acknowledgment.";
    mss_cache: u32, "Size of segments, in bytes.";
    ecn_flags: u32, "State of explicit congestion notification.";
    rate_delivered: u32, "Segments of the rate sample.";
    rate_interval_us: u32, "Time of the rate sample, in microseconds.";
    packets_out: u32, "Segments in flight.";
    retrans_out: u32, "Retransmitted segments in flight.";
    total_retrans: u32, "All retransmissions.";
    segs_in: u32, "Segments received.";
    data_segs_in: u32, "Segments received with data.";
    segs_out: u32, "Segments sent.";
    data_segs_out: u32, "Segments sent with data.";
    lost_out: u32, "Segments taken for lost.";
    sacked_out: u32, "Segments acknowledged selectively.";
    bytes_received: u64, "Bytes received.";
    bytes_acked: u64, "Bytes acknowledged.";
    dsack_dups: u32, "Duplicate selective acknowledgments.";
    delivered: u32, "Segments delivered.";
    delivered_ce: u32, "Those of them with a congestion mark.";
    icsk_retransmits: u32, "Retransmissions that timed out without an answer.";
}
