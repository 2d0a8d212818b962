//! The programs of the load test, and their tags as the test computes them.
//!
//! Two shapes, those of the kernel's own test: loads of random immediates into random registers and an exit,
//! and the same with one load of a map's reference among them. A load of a map takes two slots and counts as one
//! instruction. The first instruction sets `r0`: no verifier lets a program return without it.
//!
//! The tag is computed from the bytes, not from the loader's instructions: the first eight bytes of SHA-256 over the
//! program with its map reference zeroed (Linux since 6.18). So the loader's decoder, encoder and hash are all compared
//! with code that shares nothing with them but the hash function.

use sha2::{Digest, Sha256};

use crate::programs::split_mix;

const SLOT: usize = 8;
/// `dst = imm`, 64 bits (RFC 9669 section 4.1).
const MOV64_IMM: u8 = 0xb7;
/// The 64-bit immediate load (section 5.4), and its source field for a map by index and by descriptor.
const LOAD_IMM64: u8 = 0x18;
const MAP_BY_INDEX: u8 = 5 << 4;
const MAP_BY_DESCRIPTOR: u8 = 1 << 4;
const EXIT: u8 = 0x95;

/// One program at a time, in memory that is used again for the next.
pub(crate) struct Generator {
    random: u64,
    bytes: Vec<u8>,
    /// The slot of the map's load.
    map_at: Option<usize>,
    instructions: usize,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: seed, bytes: Vec::new(), map_at: None, instructions: 0 }
    }

    /// Makes the next program, of at least 2 instructions, or 3 with a map.
    pub(crate) fn next(&mut self, instructions: usize, with_map: bool) {
        self.bytes.clear();
        self.instructions = instructions;
        let loads = instructions - 1;
        let map = with_map.then(|| 1 + split_mix(&mut self.random) as usize % (loads - 1));
        self.map_at = None;
        for at in 0..loads {
            let random = split_mix(&mut self.random);
            let dst = if at == 0 { 0 } else { ((random >> 32) % 10) as u8 };
            if map == Some(at) {
                // Never into r0: a program must not return an address.
                self.map_at = Some(self.bytes.len());
                let dst = dst.max(1);
                self.bytes.extend([LOAD_IMM64, dst | MAP_BY_INDEX]);
                self.bytes.extend([0; 2 * SLOT - 2]);
            } else {
                self.bytes.extend([MOV64_IMM, dst, 0, 0]);
                self.bytes.extend((random as u32).to_le_bytes());
            }
        }
        self.bytes.extend([EXIT, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// The program, as a loader is given it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn instructions(&self) -> usize {
        self.instructions
    }

    /// The tag that the loader must come to.
    pub(crate) fn tag(&self) -> [u8; 8] {
        let mut hash = Sha256::new();
        match self.map_at {
            None => hash.update(&self.bytes),
            Some(at) => {
                // The reference is zero in both slots already; a loader for Linux names maps by descriptor.
                let (before, from) = self.bytes.split_at(at);
                hash.update(before);
                hash.update([from[0], from[1] & 0xf | MAP_BY_DESCRIPTOR]);
                hash.update(&from[2..]);
            }
        }
        let mut tag = [0; 8];
        tag.copy_from_slice(&hash.finalize()[..8]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep::isa::{Imm64, Insn, Reg};

    #[test]
    fn programs_are_loads_and_an_exit_of_the_number_that_was_asked_for() {
        let mut generator = Generator::new(7);
        for (instructions, with_map) in [(2, false), (3, true), (100, false), (100, true)] {
            generator.next(instructions, with_map);
            let insns = skep::isa::decode_bytes(generator.bytes()).unwrap();
            assert_eq!(insns.len(), instructions + usize::from(with_map), "slots");
            assert_eq!(insns.last(), Some(&Insn::Exit));
            assert!(insns[0].writes().contains(Reg::R0));
            let maps = insns
                .iter()
                .filter(|insn| matches!(insn, Insn::LoadImm64 { value: Imm64::Map(0), .. }))
                .count();
            assert_eq!(maps, usize::from(with_map));
        }
    }

    #[test]
    fn the_tag_depends_on_every_immediate_and_not_on_the_map() {
        let mut generator = Generator::new(7);
        generator.next(50, true);
        let tag = generator.tag();
        let map = generator.map_at.unwrap();
        for at in (4..generator.bytes.len()).step_by(SLOT) {
            if (map..map + 2 * SLOT).contains(&at) {
                continue;
            }
            generator.bytes[at] ^= 1;
            assert_ne!(generator.tag(), tag, "byte {at}");
            generator.bytes[at] ^= 1;
        }
        assert_eq!(generator.tag(), tag);
    }
}
