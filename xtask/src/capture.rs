//! The example captures: deterministic mixed traffic, generated and not recorded, so that the committed files can be
//! rebuilt byte for byte.
//!
//! | file | contents |
//! |---|---|
//! | `traffic.pcap` | 6,000 packets, for the examples |
//! | `captures/tiny*.{pcap,pcapng}` | the same 20 packets in every format that the reader supports |

mod file;
mod flows;
mod oddities;

use crate::random::Random;
use file::{Order, Packet, Unit};
use flows::Flow;

/// Number of packets in `traffic.pcap`.
pub(crate) const PACKETS: usize = 6000;
const TINY_PACKETS: usize = 20;

/// Conversations in `traffic.pcap`.
const FLOWS: usize = 640;

/// Midnight of the first of January 2025, UTC.
const START_NS: u64 = 1_735_689_600_000_000_000;

/// Every capture file: its path below `examples/` and its bytes.
pub(crate) fn files() -> Vec<(&'static str, Vec<u8>)> {
    let traffic = traffic(PACKETS, FLOWS, 0x736b_6570);
    let tiny = traffic_sample(TINY_PACKETS);
    vec![
        ("traffic.pcap", file::pcap(&traffic, Order::Little, Unit::Microseconds)),
        ("captures/tiny.pcap", file::pcap(&tiny, Order::Little, Unit::Microseconds)),
        ("captures/tiny-ns.pcap", file::pcap(&tiny, Order::Little, Unit::Nanoseconds)),
        ("captures/tiny-be.pcap", file::pcap(&tiny, Order::Big, Unit::Microseconds)),
        ("captures/tiny-be-ns.pcap", file::pcap(&tiny, Order::Big, Unit::Nanoseconds)),
        ("captures/tiny.pcapng", file::pcapng(&tiny, Order::Little, Unit::Microseconds)),
        ("captures/tiny-ns.pcapng", file::pcapng(&tiny, Order::Little, Unit::Nanoseconds)),
        ("captures/tiny-be.pcapng", file::pcapng(&tiny, Order::Big, Unit::Microseconds)),
    ]
}

/// `count` whole frames of ordinary conversations.
pub(crate) fn sample_frames(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(9);
    (0..count).map(|_| Flow::new(&mut random).next_frame(&mut random)).collect()
}

/// `count` packets, most of them from `flow_count` conversations; a few conversations have most of the packets.
fn traffic(count: usize, flow_count: usize, seed: u64) -> Vec<Packet> {
    let mut random = Random::new(seed);
    let mut flows: Vec<Flow> = (0..flow_count).map(|_| Flow::new(&mut random)).collect();
    let mut packets = Vec::with_capacity(count + 2);
    let mut stamp_ns = START_NS;
    while packets.len() < count {
        let mut push = |bytes: Vec<u8>, wire_bytes: usize, random: &mut Random| {
            stamp_ns += random.between(900, 240_000) as u64;
            packets.push(Packet { stamp_ns, bytes, wire_bytes });
        };
        let frame = match random.below(1000) {
            0..905 => {
                // The product of two numbers favours the first flows.
                let talker = random.below(flows.len()) * random.below(flows.len()) / flows.len();
                flows[talker].next_frame(&mut random)
            }
            905..925 => oddities::arp(&mut random),
            925..935 => oddities::discovery(&mut random),
            935..945 => oddities::other_protocol(&mut random),
            945..958 => {
                for frame in oddities::fragments(&mut random) {
                    let wire_bytes = frame.len();
                    push(frame, wire_bytes, &mut random);
                }
                continue;
            }
            958..976 => {
                let (frame, wire_bytes) = oddities::truncated(&mut random);
                push(frame, wire_bytes, &mut random);
                continue;
            }
            _ => oddities::malformed(&mut random),
        };
        let wire_bytes = frame.len();
        push(frame, wire_bytes, &mut random);
    }
    packets.truncate(count);
    packets
}

/// A few packets of every kind, with timestamps that distinguish microseconds from nanoseconds.
fn traffic_sample(count: usize) -> Vec<Packet> {
    let mut packets = traffic(count, count / 2, 20);
    // The capture truncates one packet, so that its two lengths differ in every file.
    let cut = packets
        .iter_mut()
        .find(|packet| packet.bytes.len() > 80)
        .expect("some packet is longer than 80 bytes");
    cut.bytes.truncate(61);
    packets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traffic_is_in_order_and_small_enough_to_commit() {
        let packets = traffic(PACKETS, FLOWS, 1);
        assert_eq!(packets.len(), PACKETS);
        assert!(packets.windows(2).all(|pair| pair[0].stamp_ns < pair[1].stamp_ns));
        assert!(
            packets.iter().all(|packet| !packet.bytes.is_empty() && packet.bytes.len() <= packet.wire_bytes)
        );
        assert!(packets.iter().any(|packet| packet.bytes.len() < packet.wire_bytes));
        assert!(files()[0].1.len() < 1_500_000);
    }

    #[test]
    fn stamps_of_the_small_captures_need_nanoseconds() {
        let packets = traffic_sample(TINY_PACKETS);
        assert_eq!(packets.len(), TINY_PACKETS);
        assert!(packets.iter().any(|packet| packet.stamp_ns % 1000 != 0));
        assert!(packets.iter().any(|packet| packet.bytes.len() < packet.wire_bytes));
    }
}
