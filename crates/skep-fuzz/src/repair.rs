//! Lengths and checksums after a change: most packets should get past the first tests of a program.
//!
//! It works in place and without memory of its own, for Ethernet with VLAN tags, IPv4, IPv6, TCP, UDP and ICMP (RFC
//! 791, 8200, 9293, 768, 792, 4443; sums by RFC 1071). What it does not know it leaves alone.

/// Sets lengths and checksums as they should be for what the headers say.
pub(crate) fn repair(packet: &mut [u8]) {
    let Some((start, version)) = network(packet) else { return };
    match version {
        4 => ip4(packet, start),
        _ => ip6(packet, start),
    }
}

/// Where the IP header begins, and its version.
fn network(packet: &[u8]) -> Option<(usize, u8)> {
    let mut at = 12;
    loop {
        match u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]) {
            0x0800 => return Some((at + 2, 4)),
            0x86dd => return Some((at + 2, 6)),
            0x8100 | 0x88a8 => at += 4,
            _ => return None,
        }
    }
}

fn ip4(packet: &mut [u8], start: usize) {
    let Some(header) = packet.get(start..start + 20) else { return };
    let len = usize::from(header[0] & 15) * 4;
    let (fragment, protocol) = (u16::from_be_bytes([header[6], header[7]]) & 0x1fff, header[9]);
    let total = packet.len() - start;
    if len < 20 || total < len {
        return;
    }
    put(packet, start + 2, total.min(0xffff) as u16);
    put(packet, start + 10, 0);
    let sum = !folded(sum(&packet[start..start + len]));
    put(packet, start + 10, sum);
    if fragment == 0 {
        let pseudo = sum_of(&packet[start + 12..start + 20], protocol, total - len);
        transport(packet, start + len, protocol, pseudo);
    }
}

fn ip6(packet: &mut [u8], start: usize) {
    let Some(header) = packet.get(start..start + 40) else { return };
    let protocol = header[6];
    let len = packet.len() - start - 40;
    put(packet, start + 4, len.min(0xffff) as u16);
    let pseudo = sum_of(&packet[start + 8..start + 40], protocol, len);
    transport(packet, start + 40, protocol, pseudo);
}

/// The header behind IP, whose pseudo-header has that sum.
fn transport(packet: &mut [u8], start: usize, protocol: u8, pseudo: u64) {
    let len = packet.len().saturating_sub(start);
    let (at, least, pseudo) = match protocol {
        6 => (16, 20, pseudo),
        17 => (6, 8, pseudo),
        1 => (2, 8, 0),
        58 => (2, 8, pseudo),
        _ => return,
    };
    if len < least {
        return;
    }
    if protocol == 17 {
        put(packet, start + 4, len.min(0xffff) as u16);
    }
    put(packet, start + at, 0);
    let sum = match !folded(sum(&packet[start..]) + pseudo) {
        0 if protocol == 17 => 0xffff,
        sum => sum,
    };
    put(packet, start + at, sum);
}

fn sum_of(addresses: &[u8], protocol: u8, len: usize) -> u64 {
    sum(addresses) + u64::from(protocol) + len as u64
}

fn sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let pairs: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    pairs + rest.first().map_or(0, |byte| u64::from(*byte) << 8)
}

fn folded(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_sums_are_those_that_packets_as_text_have() {
        for text in [
            "eth()/ip4()/tcp()/\"hello\"",
            "eth()/vlan()/ip4(options=[nop])/udp()/hex(00)",
            "eth()/ip4()/icmp()",
            "eth()/ip6()/udp()/\"odd\"",
            "eth()/ip6()/icmp6()",
            "eth()/qinq()/vlan()/ip6()/tcp()",
        ] {
            let whole = skep_frames::build(text).expect("a packet");
            let fields = skep_frames::fields(&whole);
            let mut broken = whole.clone();
            for field in fields.iter().filter(|field| matches!(&*field.name, "sum" | "len")) {
                let at = field.bit / 8;
                broken[at..at + 2].copy_from_slice(&[0x5a, 0xa5]);
            }
            assert_ne!(broken, whole, "{text}");
            repair(&mut broken);
            assert_eq!(skep_frames::text(&broken), skep_frames::text(&whole));
        }
    }

    #[test]
    fn any_bytes_are_taken() {
        let mut rng = fastrand::Rng::with_seed(1);
        let whole = skep_frames::build("eth()/vlan()/ip4()/tcp()").expect("a packet");
        for _ in 0..20_000 {
            let mut packet = whole[..rng.usize(0..=whole.len())].to_vec();
            for _ in 0..3 {
                let at = rng.usize(0..packet.len().max(1));
                packet.get_mut(at).into_iter().for_each(|byte| *byte = rng.u8(..));
            }
            repair(&mut packet);
        }
    }
}
