//! Packets to begin with, and their mutation.

use crate::repair::repair;
use fastrand::Rng;
use skep::Verified;
use skep::isa::{Insn, Operand};

/// Texts of packets of most kinds ([`skep_frames`]).
const TEXTS: [&str; 18] = [
    "eth()",
    "eth()/arp()",
    "eth()/ip4()/tcp(flags=S)",
    "eth()/ip4()/tcp(flags=A)/\"payload\"",
    "eth()/ip4()/tcp(options=[mss(1460),nop,wscale(7)])",
    "eth()/ip4()/udp()/\"payload\"",
    "eth()/ip4()/icmp()",
    "eth()/ip4(options=[nop])/udp()",
    "eth()/ip4(flags=M)/udp()/zeros(32)",
    "eth()/ip4(frag=4)/zeros(32)",
    "eth()/ip4()/ip4()/tcp()",
    "eth()/ip4()/gre()/ip4()/udp()",
    "eth()/vlan()/ip4()/tcp()",
    "eth()/qinq()/vlan()/ip6()/udp()",
    "eth()/ip6()/tcp()",
    "eth()/ip6()/udp()/\"payload\"",
    "eth()/ip6()/icmp6()",
    "eth()/ip6()/hopopts(data=hex(010400000000))/fragment()/udp()",
];

/// Packets of most kinds, to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    TEXTS.iter().filter_map(|text| skep_frames::build(text).ok()).collect()
}

/// Numbers that a program compares with or computes with, in both byte orders: what random bytes hardly ever are.
pub(crate) fn numbers(program: &Verified) -> Vec<u64> {
    let mut numbers = Vec::new();
    for insn in program.insns() {
        let imm = match *insn {
            Insn::JumpIf { src: Operand::Imm(imm), .. } | Insn::Alu { src: Operand::Imm(imm), .. } => imm,
            _ => continue,
        };
        let number = u64::from(imm.cast_unsigned());
        numbers.extend([number, number.wrapping_add(1), number.wrapping_sub(1)]);
        numbers.push(u64::from((number as u16).swap_bytes()));
        numbers.push(u64::from((number as u32).swap_bytes()));
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Changes packets.
pub(crate) struct Mutator {
    pub(crate) rng: Rng,
    pub(crate) numbers: Vec<u64>,
    /// The most bytes of a packet.
    pub(crate) longest: usize,
    /// Whether the length is fixed, and the bytes are no packet.
    pub(crate) buffer: bool,
}

impl Mutator {
    /// Makes `packet` a changed copy of one of the corpus.
    pub(crate) fn next(&mut self, corpus: &[Vec<u8>], packet: &mut Vec<u8>) {
        let base = &corpus[self.rng.usize(0..corpus.len())];
        packet.clear();
        packet.extend_from_slice(base);
        for _ in 0..=self.rng.u8(0..4) {
            self.change(corpus, packet);
        }
        // Three in four are as a sender would send them.
        if !self.buffer && self.rng.u8(0..4) != 0 {
            repair(packet);
        }
    }

    fn change(&mut self, corpus: &[Vec<u8>], packet: &mut Vec<u8>) {
        let len = packet.len();
        if len == 0 {
            if !self.buffer {
                packet.resize(self.rng.usize(1..64), 0);
            }
            return;
        }
        // Headers matter more than payload.
        let near = if self.rng.bool() { len.min(64) } else { len };
        let at = self.rng.usize(0..near);
        match self.rng.u8(0..if self.buffer { 6 } else { 10 }) {
            0 => packet[at] ^= 1 << self.rng.u8(0..8),
            1 => packet[at] = self.rng.u8(..),
            2 => packet[at] = packet[at].wrapping_add(self.rng.u8(0..9)).wrapping_sub(4),
            3..=4 if !self.numbers.is_empty() => {
                let number = self.numbers[self.rng.usize(0..self.numbers.len())];
                let width = 1 << self.rng.u8(0..3);
                let end = (at + width).min(len);
                packet[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            3..=5 => {
                let other = &corpus[self.rng.usize(0..corpus.len())];
                let end = (at + self.rng.usize(1..=32)).min(len).min(other.len());
                if at < end {
                    packet[at..end].copy_from_slice(&other[at..end]);
                }
            }
            6 => packet.truncate(at),
            7 => {
                let more = self.rng.usize(1..=64).min(self.longest.saturating_sub(len));
                packet.resize(len + more, self.rng.u8(..));
            }
            8 => {
                // A header more, as VLAN tags and options are.
                let count = (4 * self.rng.usize(1..=5)).min(self.longest.saturating_sub(len));
                let from = at.saturating_sub(count);
                let piece: [u8; 20] = std::array::from_fn(|index| *packet.get(from + index).unwrap_or(&0));
                packet.splice(at..at, piece[..count].iter().copied());
            }
            _ => {
                let end = (at + 4 * self.rng.usize(1..=5)).min(len);
                packet.drain(at..end);
            }
        }
    }
}
