//! Packets to begin with, and their mutation.

use crate::repair::repair;
use fastrand::Rng;
use skep::isa::{Imm64, Insn, Operand};
use skep::{Module, Verified};

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

/// The most words that are taken of a map: those of a large one would hide the others.
const MOST_WORDS: usize = 256;

/// Packets of most kinds, to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    TEXTS.iter().filter_map(|text| skep_frames::build(text).ok()).collect()
}

/// What random bytes hardly ever are: numbers that a program compares with, and pieces of its constants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) numbers: Vec<u64>,
    /// For fields as long as addresses of IPv6.
    long: Vec<[u8; 16]>,
}

impl Words {
    /// Those of a program, and of the maps that nobody writes.
    pub(crate) fn of(program: &Verified, module: &Module) -> Self {
        let compared = program.insns().iter().filter_map(|insn| match *insn {
            Insn::JumpIf { src: Operand::Imm(imm), .. } => Some(u64::from(imm.cast_unsigned())),
            Insn::LoadImm64 { value: Imm64::Value(value), .. } => Some(value),
            _ => None,
        });
        let mut words = Self { numbers: compared.collect(), long: Vec::new() };
        for map in module.maps().iter().filter(|map| map.name().starts_with('.')) {
            if let Ok(Some(bytes)) = map.lookup(&0u32.to_ne_bytes()) {
                words.add(&bytes);
            }
        }
        words
    }

    /// Also pieces of these bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for (at, four) in bytes.as_chunks::<4>().0.iter().enumerate().take(MOST_WORDS) {
            let [a, b, c, d] = *four;
            self.numbers.extend(
                [
                    u32::from_ne_bytes(*four),
                    u16::from_ne_bytes([a, b]).into(),
                    u16::from_ne_bytes([c, d]).into(),
                ]
                .map(u64::from),
            );
            if let Some(long) = bytes[4 * at..].first_chunk() {
                self.long.push(*long);
            }
        }
        self.numbers.sort_unstable();
        self.numbers.dedup();
        self.long.dedup();
    }
}

/// An input of the corpus.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    pub(crate) bytes: Vec<u8>,
    /// The fields of its headers that are whole bytes: the first, and how many.
    fields: Vec<(usize, usize)>,
}

impl Seed {
    pub(crate) fn new(bytes: Vec<u8>, buffer: bool) -> Self {
        let fields = if buffer { Vec::new() } else { skep_frames::fields(&bytes) };
        let fields =
            fields.iter().filter(|field| field.bit % 8 == 0 && field.bits % 8 == 0 && field.bits <= 128);
        let fields = fields.map(|field| (field.bit / 8, field.bits / 8)).collect();
        Self { bytes, fields }
    }
}

/// Changes packets.
pub(crate) struct Mutator {
    pub(crate) rng: Rng,
    pub(crate) words: Words,
    /// The most bytes of a packet.
    pub(crate) longest: usize,
    /// Whether the length is fixed, and the bytes are no packet.
    pub(crate) buffer: bool,
}

impl Mutator {
    /// Makes `packet` a changed copy of one of the corpus.
    pub(crate) fn next(&mut self, corpus: &[Seed], packet: &mut Vec<u8>) {
        let base = &corpus[self.rng.usize(0..corpus.len())];
        packet.clear();
        packet.extend_from_slice(&base.bytes);
        for _ in 0..=self.rng.u8(0..4) {
            // Fields are where they were as long as nothing was put in or taken out before them.
            match self.rng.usize(0..3) {
                0 if !base.fields.is_empty() => self.set_field(&base.fields, packet),
                _ => self.change(corpus, packet),
            }
        }
        // Three in four are as a sender would send them.
        if !self.buffer && self.rng.u8(0..4) != 0 {
            repair(packet);
        }
    }

    /// Gives a field a number that the program compares with, or one at an edge.
    fn set_field(&mut self, fields: &[(usize, usize)], packet: &mut [u8]) {
        let (at, len) = fields[self.rng.usize(0..fields.len())];
        let Some(field) = packet.get_mut(at..at + len) else { return };
        match self.rng.u8(0..8) {
            0 => field.fill(0),
            1 => field.fill(0xff),
            2 => self.rng.fill(field),
            _ if len > 8 && !self.words.long.is_empty() => {
                let long = self.words.long[self.rng.usize(0..self.words.long.len())];
                let used = len.min(16);
                field[..used].copy_from_slice(&long[..used]);
            }
            _ => {
                let number = self.number().to_le_bytes();
                let used = len.min(8);
                field[..used].copy_from_slice(&number[..used]);
            }
        }
    }

    /// A number of the program as it is or one beside it, in either order of bytes.
    fn number(&mut self) -> u64 {
        let Some(last) = self.words.numbers.len().checked_sub(1) else { return self.rng.u64(..) };
        let number = self.words.numbers[self.rng.usize(0..=last)];
        match self.rng.u8(0..8) {
            0 => number.wrapping_add(1),
            1 => number.wrapping_sub(1),
            2 => u64::from((number as u16).swap_bytes()),
            3 => u64::from((number as u32).swap_bytes()),
            _ => number,
        }
    }

    fn change(&mut self, corpus: &[Seed], packet: &mut Vec<u8>) {
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
            3..=4 if !self.words.numbers.is_empty() => {
                let number = self.number();
                let width = 1 << self.rng.u8(0..3);
                let end = (at + width).min(len);
                packet[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            3..=5 => {
                let other = &corpus[self.rng.usize(0..corpus.len())].bytes;
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
