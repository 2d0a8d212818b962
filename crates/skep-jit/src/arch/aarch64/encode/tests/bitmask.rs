//! Compares the immediates of logical instructions with a full enumeration.

use std::collections::HashMap;

use super::*;

/// All values that are expressible, each with its `N:immr:imms`: from the definition, element by element.
pub(super) fn all(width: Width) -> HashMap<u64, u32> {
    let mut all = HashMap::new();
    for log in 1..=width.bits().ilog2() {
        let size = 1u32 << log;
        for ones in 1..size {
            for right in 0..size {
                // Bit by bit: a run of ones at the bottom, rotated, repeated.
                let bit = |i: u32| u64::from((i + right) % size < ones);
                let value = (0..width.bits()).map(|i| bit(i) << i).sum();
                let lead = match size {
                    64 => 0b1_000000,
                    32 => 0b0_000000,
                    16 => 0b0_100000,
                    8 => 0b0_110000,
                    4 => 0b0_111000,
                    _ => 0b0_111100,
                };
                let fields = (lead >> 6) << 12 | right << 6 | (lead & 63) | (ones - 1);
                assert_eq!(all.insert(value, fields), None, "two encodings of {value:#x}");
            }
        }
    }
    all
}

fn fields(width: Width, value: u64) -> Option<u32> {
    Bitmask::new(width, value).map(|mask| mask.put(Word(0)).0 >> 10)
}

#[test]
fn exactly_the_bitmasks_are_encodable() {
    for (width, count) in [(Width::W64, 5334), (Width::W32, 1302)] {
        let all = all(width);
        assert_eq!(all.len(), count);
        for (&value, &expected) in &all {
            assert_eq!(fields(width, value), Some(expected), "{value:#x}");
            // Its neighbours, and the values with one bit flipped.
            let near = (0..width.bits()).map(|bit| value ^ 1 << bit);
            for other in near.chain([value.wrapping_add(1), value.wrapping_sub(1)]) {
                let other = if width == Width::W32 { other & 0xffff_ffff } else { other };
                assert_eq!(fields(width, other), all.get(&other).copied(), "{other:#x}");
            }
        }
        assert_eq!(fields(width, 0), None);
        assert_eq!(fields(width, u64::MAX), None);
    }
}

#[test]
fn all_16_bit_values_are_judged_correctly() {
    let (wide, narrow) = (all(Width::W64), all(Width::W32));
    for low in 0..=0xffffu64 {
        for value in [low, low * 0x1_0001, low * 0x1_0000_0001, low * 0x1_0001_0001_0001, !low, low << 24] {
            assert_eq!(fields(Width::W64, value), wide.get(&value).copied(), "{value:#x}");
            let half = value & 0xffff_ffff;
            assert_eq!(fields(Width::W32, half), narrow.get(&half).copied(), "{half:#x}");
            // The upper half is ignored.
            assert_eq!(fields(Width::W32, value), fields(Width::W32, half), "{value:#x}");
        }
    }
}

#[test]
fn an_instruction_has_the_intended_bitmask() {
    for width in [Width::W32, Width::W64] {
        for value in all(width).into_keys() {
            let mask = Bitmask::new(width, value).expect("it is one");
            let word = logic_imm(Logic::And, width, Gpr::X1, Gpr::X2, mask);
            let name = if width == Width::W64 { 'x' } else { 'w' };
            let meant = format!("and {name}1, {name}2, #{value}");
            assert_eq!(foreign::read(word), foreign::canonical(&meant));
        }
    }
}
