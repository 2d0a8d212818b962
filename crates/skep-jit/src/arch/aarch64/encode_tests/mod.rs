//! Every encoding, over all registers and all kinds of immediates, against what was meant.
//!
//! [`cases`] says of each word in assembly what it is meant to be. Two foreign readers judge that: a disassembler
//! reads the words ([`foreign`]), and LLVM assembles the texts. Immediates of logical instructions are compared
//! with an enumeration of all there are, and constants with what their instructions compute.

mod bitmask;
mod cases;
mod constant;
mod foreign;

use super::*;
use crate::arch::llvm;
use cases::cases;

#[test]
fn a_foreign_disassembler_reads_what_was_meant() {
    for (word, meant) in cases() {
        assert_eq!(foreign::read(word), foreign::canonical(&meant), "{:08x}: {meant}", word.0);
    }
}

#[test]
fn llvm_assembles_what_was_meant_to_the_same_words() {
    let cases = cases();
    let flags = ["-triple=aarch64", "-mattr=+lse,+bti,+pauth", "-show-encoding"];
    let texts: String = cases.iter().map(|(_, text)| format!("{text}\n")).collect();
    let Some(lines) = llvm::lines("the aarch64 encoders", &flags, texts) else { return };
    let theirs = llvm::encodings(&lines);
    assert_eq!(theirs.len(), cases.len());
    for ((word, meant), theirs) in cases.iter().zip(&theirs) {
        assert_eq!(theirs[..], word.0.to_le_bytes(), "{meant}");
    }
}

#[test]
fn every_instruction_is_tried_with_every_register() {
    let cases = cases();
    let mut all: Vec<u32> = cases.iter().map(|(word, _)| word.0).collect();
    all.sort_unstable();
    all.dedup();
    assert!(all.len() > 10_000, "{} different words", all.len());
    for shift in [0, 5, 16] {
        for number in 0..32 {
            assert!(all.iter().any(|word| word >> shift & 31 == number), "{number} at {shift}");
        }
    }
}

#[test]
fn places_fit_that_some_form_reaches() {
    for size in Size::ALL {
        let bytes = size.bytes() as i32;
        let fits = |offset| Mem::At(Gpr::X1, offset).fits(size);
        for offset in -70_000..70_000 {
            let reached = (-256..256).contains(&offset)
                || (offset % bytes == 0 && (0..=4095).contains(&(offset / bytes)));
            assert_eq!(fits(offset), reached, "{size:?} {offset}");
        }
        assert!(!fits(i32::MIN) && !fits(i32::MAX));
        assert!(Mem::Index { base: Gpr::SP, index: Gpr::ZR, scaled: true }.fits(size));
    }
    for width in [Width::W32, Width::W64] {
        let bytes = width.bits() as i32 / 8;
        for offset in -1000..1000 {
            let reached = offset % bytes == 0 && (-64..64).contains(&(offset / bytes));
            assert_eq!(pair_fits(width, offset), reached, "{width:?} {offset}");
        }
    }
}

#[test]
fn branches_reach_as_far_as_their_fields() {
    for (reaches, field) in [(reaches_26 as fn(i64) -> bool, 26), (reaches_19, 19), (reaches_14, 14)] {
        let far = 1i64 << (field + 1);
        assert!(reaches(0) && reaches(far - 4) && reaches(-far));
        assert!(!reaches(far) && !reaches(-far - 4) && !reaches(i64::MAX) && !reaches(i64::MIN));
    }
}

#[test]
fn immediates_of_additions_are_twelve_bits_low_or_high() {
    for value in (0..0x2000).chain((0..0x1002).map(|high| high << 12)).chain([u64::MAX, 0x1001, 0xfff001]) {
        let expressible = value < 0x1000 || (value % 0x1000 == 0 && value < 0x100_0000);
        assert_eq!(Imm12::new(value).is_some(), expressible, "{value:#x}");
    }
}

#[test]
fn flipping_the_lowest_bit_inverts_a_condition() {
    for cc in cases::CONDITIONS {
        assert_eq!(cc.0.number() ^ 1, cc.0.inverted().number());
    }
}
