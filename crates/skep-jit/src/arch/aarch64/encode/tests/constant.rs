//! Constants: their instructions compute the value, and fewer cannot.

use std::collections::HashSet;

use super::cases::Random;
use super::*;

/// The register's value after the instructions, by the manual's definitions.
fn computed(words: &[Word]) -> u64 {
    let mut register = 0xdead_beef_dead_beef_u64;
    for word in words {
        let Word(bits) = *word;
        assert_eq!(bits & 31, 3, "another register");
        let wide = bits >> 31 == 1;
        let value = match bits >> 23 & 0x3f {
            0b100101 => {
                let shift = 16 * (bits >> 21 & 3);
                assert!(wide || shift < 32);
                let imm = u64::from(bits >> 5 & 0xffff) << shift;
                match bits >> 29 & 3 {
                    0 => !imm,
                    2 => imm,
                    3 => register & !(0xffff << shift) | imm,
                    _ => panic!("{bits:08x}"),
                }
            }
            0b100100 => {
                assert_eq!((bits >> 29 & 3, bits >> 5 & 31), (1, 31), "orr with the zero register");
                mask(bits >> 22 & 1, bits >> 16 & 63, bits >> 10 & 63)
            }
            _ => panic!("{bits:08x}"),
        };
        register = if wide { value } else { value & 0xffff_ffff };
    }
    register
}

/// The manual's DecodeBitMasks, for immediates.
fn mask(n: u32, immr: u32, imms: u32) -> u64 {
    let size = 1 << (n << 6 | (!imms & 63)).ilog2();
    let (ones, right) = ((imms & (size - 1)) + 1, immr & (size - 1));
    (0..64).map(|i| u64::from((i + right) % size < ones) << i).sum()
}

fn lanes(value: u64) -> [u64; 4] {
    std::array::from_fn(|at| value >> (16 * at) & 0xffff)
}

/// All values that one instruction can load.
fn singles() -> HashSet<u64> {
    let mut all = HashSet::new();
    for imm in 0..=0xffffu64 {
        for shift in [0, 16, 32, 48] {
            all.extend([imm << shift, !(imm << shift)]);
        }
        for shift in [0, 16] {
            all.insert(!(imm << shift) & 0xffff_ffff);
        }
    }
    for value in super::bitmask::all(Width::W64).into_keys() {
        all.insert(value);
    }
    for value in super::bitmask::all(Width::W32).into_keys() {
        all.insert(value);
    }
    all
}

/// For every set of lanes: the values of one instruction, restricted to the other lanes. A value needs one
/// instruction and a `movk` for each lane of the set exactly if its other lanes are among these.
struct Reachable {
    by_kept: Vec<HashSet<u64>>,
}

impl Reachable {
    fn new() -> Self {
        let singles = singles();
        let by_kept =
            (0..16).map(|kept| singles.iter().map(|value| value & Self::bits(kept)).collect()).collect();
        Self { by_kept }
    }

    fn bits(kept: usize) -> u64 {
        (0..4).filter(|at| kept >> at & 1 == 1).map(|at| 0xffff << (16 * at)).sum()
    }

    /// The minimum number of instructions: one, and a `movk` for every lane that it does not set.
    fn fewest(&self, value: u64) -> usize {
        (1..16usize)
            .filter(|&kept| self.by_kept[kept].contains(&(value & Self::bits(kept))))
            .map(|kept| 5 - kept.count_ones() as usize)
            .min()
            .expect("four moves make everything")
    }
}

/// Values of many kinds: all combinations of special lanes, bitmasks and their neighbours, edge values, and random
/// ones.
fn samples() -> Vec<u64> {
    let mut random = Random::new(7);
    let mut all = Vec::new();
    let lanes = [0, 0xffff, 1, 0x8000, 0x7fff, 0xfffe, 0xff00, 0x5555, 0x1234, 0xabcd];
    for a in lanes {
        for b in lanes {
            for c in lanes {
                all.extend(lanes.map(|d| a << 48 | b << 32 | c << 16 | d));
            }
        }
    }
    for bit in 0..64 {
        let power = 1u64 << bit;
        all.extend([power, power - 1, !power, power.wrapping_neg(), power | 1, power + 0x1234]);
    }
    for value in super::bitmask::all(Width::W64).into_keys() {
        let (one, two) = (random.below(4) * 16, random.below(4) * 16);
        let fill = |at: u64, random: &mut Random| (value & !(0xffff << at)) | random.below(0x1_0000) << at;
        let changed = fill(one, &mut random);
        let again = (changed & !(0xffff << two)) | random.below(0x1_0000) << two;
        all.extend([value, value & 0xffff_ffff, changed, again, changed & 0xffff_ffff_ffff]);
    }
    for _ in 0..20_000 {
        let value = random.next();
        all.extend([value, value >> 16, value >> 32, value | 0xffff << 48, value as i32 as u64]);
    }
    all
}

#[test]
fn constants_equal_their_instructions_results() {
    for value in samples() {
        let made = constant(Gpr::X3, value);
        assert_eq!(computed(made.as_slice()), value, "{value:#x}: {made:x?}");
    }
}

#[test]
fn no_fewer_instructions_make_a_constant() {
    let reachable = Reachable::new();
    let mut lengths = [0; 5];
    for value in samples() {
        let len = constant(Gpr::X3, value).as_slice().len();
        assert_eq!(len, reachable.fewest(value), "{value:#x}");
        lengths[len] += 1;
    }
    assert!(lengths[1..].iter().all(|count| *count > 100), "kinds that were not tried: {lengths:?}");
}

#[test]
fn values_without_an_upper_half_use_32_bit_instructions() {
    for value in samples().into_iter().map(|value| value & 0xffff_ffff) {
        let made = constant(Gpr::X3, value);
        assert!(made.as_slice().iter().all(|word| word.0 >> 31 == 0), "{value:#x}");
        assert!(made.as_slice().len() <= 2, "{value:#x}");
        assert_eq!(lanes(value)[2..], [0, 0]);
    }
}
