//! Conversions between bytes, instructions and text lose nothing.

use crate::oracle::{check, check_text};
use proptest::prelude::*;
use skep_isa::{Slot, decode};

/// Values that matter to at least one field of one instruction.
const REGS: [u8; 6] = [0, 1, 2, 9, 10, 11];
const OFFSETS: [i16; 11] = [0, 1, 2, -1, 7, 8, 16, 32, 64, i16::MIN, i16::MAX];
const IMMS: [i32; 24] = [
    0,
    1,
    2,
    -1,
    16,
    32,
    64,
    0x40,
    0x41,
    0x50,
    0x51,
    0xa0,
    0xa1,
    0xe0,
    0xe1,
    0xf0,
    0xf1,
    0x100,
    0x110,
    0x101,
    0x7f,
    0x1234_5678,
    i32::MIN,
    i32::MAX,
];

#[test]
fn every_opcode_with_every_notable_field_survives_encoding_and_assembling() {
    let mut accepted = std::collections::BTreeMap::<u8, u32>::new();
    // Miri takes hours for all of them. The first of each list are enough for every opcode.
    let (regs, offsets, imms) = if cfg!(miri) {
        (&REGS[..2], &OFFSETS[..2], &IMMS[..6])
    } else {
        (&REGS[..], &OFFSETS[..], &IMMS[..])
    };
    for opcode in 0..=255 {
        for &dst in regs {
            for &src in regs {
                for &offset in offsets {
                    for &imm in imms {
                        let slot = Slot { opcode, dst, src, offset, imm };
                        let mut bytes = slot.to_bytes().to_vec();
                        if opcode == 0x18 {
                            bytes.extend(Slot { imm: !imm, ..Slot::default() }.to_bytes());
                        }
                        // The decoder first: only instructions that it accepts become text.
                        *accepted.entry(opcode).or_default() += u32::from(check(&bytes));
                    }
                }
            }
        }
    }
    accepted.retain(|_, count| *count > 0);
    // 24 for each arithmetic class (12 operations of two operands, each with a register and an immediate)
    // with negation and byte order (2 and 1 forms); 22 for each jump class with goto, and in the 64-bit class
    // call, callx, exit, may_goto; 4 loads, 3 sign-extending ones, 8 stores, 4 atomic sizes, 6 packet loads,
    // the 64-bit immediate load.
    let expected = (24 + 3) + (24 + 2) + (22 + 5) + (22 + 1) + 4 + 3 + 8 + 4 + 6 + 1;
    assert_eq!(accepted.len(), expected, "{:02x?}", accepted.keys());
}

/// Slots that are mostly instructions: any opcode, fields small and mostly zero.
fn slots() -> impl Strategy<Value = Vec<Slot>> {
    let small = |values: &'static [i32]| prop_oneof![4 => Just(0), 1 => prop::sample::select(values)];
    let slot = (any::<u8>(), 0..12u8, 0..12u8, small(&[1, 8, 16, 32, -5, 77]), small(&IMMS), any::<i32>());
    let pair = slot.prop_map(|(opcode, dst, src, offset, imm, tail)| {
        let first = Slot { opcode, dst, src, offset: offset as i16, imm };
        let second = (opcode == 0x18).then_some(Slot { imm: tail, ..Slot::default() });
        std::iter::once(first).chain(second)
    });
    prop::collection::vec(pair, 0..12).prop_map(|pairs| pairs.into_iter().flatten().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 16 } else { 4096 }, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        check(&bytes);
    }

    #[test]
    fn random_programs_survive(slots in slots()) {
        // Only slots that decode on their own or with their second slot, so that most cases are useful.
        let mut kept = Vec::new();
        let mut rest = &slots[..];
        while let Some(first) = rest.first() {
            let length = if first.opcode == 0x18 { 2.min(rest.len()) } else { 1 };
            if decode(&rest[..length]).is_ok() {
                kept.extend(rest[..length].iter().flat_map(|slot| slot.to_bytes()));
            }
            rest = &rest[length..];
        }
        prop_assert!(check(&kept));
    }

    #[test]
    fn random_text_never_panics(text in "\\PC{0,80}") {
        check_text(&text);
    }

    #[test]
    fn random_words_of_the_syntax_never_panic(words in prop::collection::vec(prop::sample::select(WORDS), 0..12)) {
        check_text(&words.join(""));
        check_text(&words.join(" "));
    }
}

/// Tokens of assembler text.
const WORDS: &[&str] = &[
    "r0",
    "r1",
    "r10",
    "r11",
    "w0",
    "w1",
    "s",
    "=",
    "+=",
    "-",
    "+",
    "s/=",
    "0",
    "1",
    "0x7fffffff",
    "0x80000000",
    "0xffffffffffffffff",
    "18446744073709551616",
    "ll",
    "*",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    "#",
    "#1",
    "addr_space_cast",
    "u8",
    "u32",
    "u64",
    "s16",
    "if",
    "goto",
    "gotol",
    "may_goto",
    "call",
    "callx",
    "exit",
    "lock",
    "store_release",
    "load_acquire",
    "xchg_64",
    "cmpxchg32_32",
    "atomic_fetch_or",
    "map",
    "map_value",
    "func",
    "var",
    "kfunc",
    "pc",
    "skb",
    "name",
    "name:",
    "bswap16",
    "be64",
    "\n",
    "//",
    ";",
    "<",
    ">",
    "ä",
    "1x",
];
