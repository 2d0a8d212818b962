//! Checks every encoding over all registers and all kinds of immediates.
//!
//! [`cases`] has the intended assembly text of each word. Two independent tools check that: a disassembler reads the
//! words ([`foreign`]), and LLVM assembles the texts. Immediates of logical instructions are compared with a full
//! enumeration, and constants with the results of their instructions.

mod bitmask;
mod cases;
mod constant;
pub(in crate::arch::aarch64) mod foreign;
mod vector;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::arch::llvm;
use crate::port::operand::Part;
use cases::cases;

#[test]
fn a_disassembler_reads_the_intended_instructions() {
    for (word, meant) in cases() {
        assert_eq!(foreign::read(word), foreign::canonical(&meant), "{:08x}: {meant}", word.0);
    }
}

#[test]
fn llvm_assembles_the_intended_text_to_the_same_words() {
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
fn every_instruction_is_tested_with_every_register_in_every_operand() {
    // The tested registers, by name, width and operand.
    let mut seen = BTreeMap::<(String, char, usize), BTreeSet<String>>::new();
    for (_, meant) in cases() {
        let (name, operands) = meant.split_once(' ').unwrap_or((&meant, ""));
        for (place, operand) in operands.split([',', '[', ']']).map(str::trim).enumerate() {
            let width = match operand.as_bytes() {
                [b'w', b'0'..=b'9' | b'z' | b's', ..] => 'w',
                [b'x', b'0'..=b'9' | b'z', ..] | [b's', b'p'] => 'x',
                _ => continue,
            };
            seen.entry((name.into(), width, place)).or_default().insert(operand.into());
        }
    }
    for (place, registers) in &seen {
        assert!(registers.len() >= 32, "{place:?}: only {registers:?}");
    }
    assert!(seen.len() > 200, "{}", seen.len());
}

#[test]
#[cfg(debug_assertions)]
fn operands_out_of_range_are_refused() {
    type Refused = (&'static str, fn() -> Word);
    const X0: Gpr = Gpr::X0;
    const X1: Gpr = Gpr::X1;
    const SHIFT: Shifted = Shifted::by(X1, ShiftKind::Lsl, 32);
    const ROTATION: Shifted = Shifted::by(X1, ShiftKind::Ror, 1);
    let all: [Refused; 24] = [
        ("a lane too high", || mov_half(Half::Z, Width::W32, X0, 1, 2)),
        ("a shift too far", || sum_reg(Sum::Add, Width::W32, X0, X0, SHIFT)),
        ("an addition that rotates", || sum_reg(Sum::Add, Width::W64, X0, X0, ROTATION)),
        ("an extension shifted too far", || sum_ext(Sum::Add, Width::W64, X0, X0, X1, Extend::Uxtb, 5)),
        ("a field too high", || ubfm(Width::W32, X0, X1, 0, 32)),
        ("a field too long", || ubfiz(Width::W64, X0, X1, 60, 5)),
        ("a field without bits", || ubfx(Width::W64, X0, X1, 3, 0)),
        ("a shift by the width", || lsl_imm(Width::W64, X0, X1, 64)),
        ("a rotation by the width", || ror_imm(Width::W32, X0, X1, 32)),
        ("an offset too far", || load(Size::B8, None, X0, Mem::At(X1, 8 * 4096))),
        ("an offset too low", || store(Size::B1, X0, Mem::At(X1, -257))),
        ("an odd offset", || load(Size::B2, None, X0, Mem::At(X1, 257))),
        ("a pair too far", || load_pair(Width::W64, X0, X1, Gpr::SP, 512, Pair::Offset)),
        ("a pair at an odd place", || store_pair(Width::W64, X0, X1, Gpr::SP, 4, Pair::Pre)),
        ("a pair of one register", || load_pair(Width::W64, X0, X0, Gpr::SP, 0, Pair::Offset)),
        ("a pair that is its own base", || store_pair(Width::W64, X0, X1, X1, 16, Pair::Post)),
        ("an index too far", || store_indexed(X0, Gpr::SP, 256, Pair::Pre)),
        ("a register that is its own base", || load_indexed(X0, X0, 16, Pair::Post)),
        ("an index that stays", || load_indexed(X0, Gpr::SP, 16, Pair::Offset)),
        ("a status over a value", || store_exclusive(Width::W64, false, X0, X0, X1)),
        ("a branch too far", || b(1 << 27)),
        ("a branch between instructions", || cbz(true, Width::W64, X0, 6)),
        ("a bit too high", || tbz(false, X0, 64, 0)),
        ("an address too far", || adr(X0, 1 << 20)),
    ];
    for (what, encode) in all {
        assert!(std::panic::catch_unwind(encode).is_err(), "{what}");
    }
}

#[test]
fn offsets_fit_if_some_form_reaches_them() {
    for size in Size::ALL {
        let bytes = size.bytes() as i32;
        let fits = |offset| Mem::At(Gpr::X1, offset).fits(size);
        for offset in -70_000..70_000 {
            let reached = (-256..256).contains(&offset)
                || (offset % bytes == 0 && (0..=4095).contains(&(offset / bytes)));
            assert_eq!(fits(offset), reached, "{size:?} {offset}");
        }
        assert!(!fits(i32::MIN) && !fits(i32::MAX));
        assert!(Mem::Index { base: Gpr::SP, index: Gpr::ZR, part: Part::Whole, scaled: true }.fits(size));
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
