//! Invalid programs are refused with the place and the reason.

use skep_isa::{
    AluOp, AssembleProblem, AtomicOp, ByteOrder, EncodeError, Imm64, Insn, Operand, PacketBase, Reg, Size,
    Slot, Width, assemble, decode, decode_bytes, encode,
};

/// `exit`, so that the slot under test is not slot 0.
const EXIT: Slot = Slot { opcode: 0x95, dst: 0, src: 0, offset: 0, imm: 0 };

const fn slot(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Slot {
    Slot { opcode, dst, src, offset, imm }
}

#[test]
fn the_decoder_names_slot_field_and_value() {
    let cases: &[(Slot, &str)] = &[
        // Opcodes that do not exist.
        (slot(0xff, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0xff"),
        (slot(0x00, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0x00"),
        (slot(0x8c, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0x8c"), // neg with a register
        (slot(0xdf, 0, 0, 0, 16), "slot 1: no instruction has the opcode 0xdf"), // bswap with a register
        (slot(0x0d, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0x0d"), // goto with a register
        (slot(0x86, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0x86"), // call, 32 bits
        (slot(0x9d, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0x9d"), // exit with a register
        (slot(0xed, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0xed"), // may_goto with a register
        (slot(0x38, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0x38"), // packet load, 8 bytes
        (slot(0x99, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0x99"), // sign-extending load, 8 bytes
        (slot(0xc2, 0, 0, 0, 0), "slot 1: no instruction has the opcode 0xc2"), // atomic with an immediate
        // Registers that do not exist.
        (
            slot(0xb7, 11, 0, 0, 0),
            "slot 1: the destination register field of opcode 0xb7 is 11, but registers end at r10",
        ),
        (
            slot(0xbf, 1, 15, 0, 0),
            "slot 1: the source register field of opcode 0xbf is 15, but registers end at r10",
        ),
        // Reserved fields.
        (
            slot(0xb7, 1, 2, 0, 0),
            "slot 1: the source register field of opcode 0xb7 is 2, but it is reserved and must be 0",
        ),
        (
            slot(0xb7, 1, 0, 8, 0),
            "slot 1: the offset field of opcode 0xb7 is 8, but it is reserved and must be 0",
        ),
        (
            slot(0x07, 1, 0, -1, 0),
            "slot 1: the offset field of opcode 0x07 is -1, but it is reserved and must be 0",
        ),
        (
            slot(0x0f, 1, 2, 0, 7),
            "slot 1: the immediate field of opcode 0x0f is 7, but it is reserved and must be 0",
        ),
        (
            slot(0x95, 1, 0, 0, 0),
            "slot 1: the destination register field of opcode 0x95 is 1, but it is reserved and must be 0",
        ),
        (
            slot(0x95, 0, 0, 0, 9),
            "slot 1: the immediate field of opcode 0x95 is 9, but it is reserved and must be 0",
        ),
        (
            slot(0x06, 0, 0, 3, 0),
            "slot 1: the offset field of opcode 0x06 is 3, but it is reserved and must be 0",
        ),
        (
            slot(0x05, 0, 0, 0, 3),
            "slot 1: the immediate field of opcode 0x05 is 3, but it is reserved and must be 0",
        ),
        (
            slot(0x61, 0, 0, 0, 3),
            "slot 1: the immediate field of opcode 0x61 is 3, but it is reserved and must be 0",
        ),
        // Fields with values that select nothing.
        (
            slot(0x3f, 1, 2, 2, 0),
            "slot 1: the offset field of opcode 0x3f is 0x2, but it must be 0 (unsigned) or 1 (signed)",
        ),
        (
            slot(0xbf, 1, 2, 2, 0),
            "slot 1: the offset field of opcode 0xbf is 0x2, but it must be 0, 1 (addr_space_cast), 8, 16 or 32",
        ),
        (
            slot(0xbc, 1, 2, 32, 0),
            "slot 1: the offset field of opcode 0xbc is 0x20, but it must be 0, 8 or 16",
        ),
        (
            slot(0xd4, 1, 0, 0, 8),
            "slot 1: the immediate field of opcode 0xd4 is 0x8, but it must be 16, 32 or 64",
        ),
        (
            slot(0x85, 0, 3, 0, 8),
            "slot 1: the source register field of opcode 0x85 is 0x3, but it must be 0, 1 or 2",
        ),
        (
            slot(0xdb, 1, 2, 0, 0xe0),
            "slot 1: the immediate field of opcode 0xdb is 0xe0, but it must be an atomic operation of RFC 9669 \
             section 5.3",
        ),
        (
            slot(0xd3, 1, 2, 0, 0),
            "slot 1: the immediate field of opcode 0xd3 is 0x0, but it must be 0x100 (load-acquire) or 0x110 \
             (store-release): other atomics have 4 or 8 bytes",
        ),
    ];
    for (slot, message) in cases {
        let error = decode(&[EXIT, *slot]).expect_err(message);
        assert_eq!(error.to_string(), *message);
    }
}

#[test]
fn the_decoder_looks_at_both_slots_of_wide_loads() {
    let load = |src| slot(0x18, 1, src, 0, 3);
    let cases: &[(&[Slot], &str)] = &[
        (&[load(0)], "slot 0: a 64-bit immediate load takes two slots, and the program ends after the first"),
        (
            &[load(7), Slot::default()],
            "slot 0: the source register field of opcode 0x18 is 0x7, but it must be 0 to 6",
        ),
        (
            &[load(0), EXIT],
            "slot 1: the opcode field of a 64-bit immediate load's second slot is 149, but it must be 0",
        ),
        (
            &[load(0), slot(0, 1, 0, 0, 0)],
            "slot 1: the destination register field of a 64-bit immediate load's second slot is 1, but it must be 0",
        ),
        (
            &[load(0), slot(0, 0, 1, 0, 0)],
            "slot 1: the source register field of a 64-bit immediate load's second slot is 1, but it must be 0",
        ),
        (
            &[load(0), slot(0, 0, 0, 1, 0)],
            "slot 1: the offset field of a 64-bit immediate load's second slot is 1, but it must be 0",
        ),
        (
            &[load(1), slot(0, 0, 0, 0, 1)],
            "slot 1: the immediate field of a 64-bit immediate load's second slot is 1, but it must be 0",
        ),
        (
            &[load(5), slot(0, 0, 0, 0, 1)],
            "slot 1: the immediate field of a 64-bit immediate load's second slot is 1, but it must be 0",
        ),
        (
            &[slot(0x18, 1, 0, 4, 0), Slot::default()],
            "slot 0: the offset field of opcode 0x18 is 4, but it is reserved and must be 0",
        ),
    ];
    for (slots, message) in cases {
        let error = decode(slots).expect_err(message);
        assert_eq!(error.to_string(), *message);
    }
}

#[test]
fn bytes_that_end_inside_a_slot_are_refused() {
    let error = decode_bytes(&[0x95; 12]).expect_err("12 bytes");
    let message = "the program has 12 bytes, which is not a multiple of 8: its last instruction is cut off";
    assert_eq!(error.to_string(), message);
    assert_eq!(decode_bytes(&[]), Ok(vec![]));
}

#[test]
fn instructions_without_an_encoding_are_refused() {
    let (dst, base, src, offset) = (Reg::R1, Reg::R1, Reg::R2, 0);
    let tail = Insn::LoadImm64Tail;
    let wide = Insn::LoadImm64 { dst, value: Imm64::Value(1) };
    let size = |what, size| EncodeError::SizeNotAvailable { index: 1, what, size };
    let cases = [
        (Insn::Jump { offset: 0x8000, long: false }, EncodeError::JumpTooFar { index: 1, offset: 0x8000 }),
        (Insn::Jump { offset: -0x8001, long: false }, EncodeError::JumpTooFar { index: 1, offset: -0x8001 }),
        (
            Insn::MovSx { width: Width::W32, from: Size::B4, dst, src },
            size("a sign-extending move to this width", Size::B4),
        ),
        (
            Insn::MovSx { width: Width::W64, from: Size::B8, dst, src },
            size("a sign-extending move to this width", Size::B8),
        ),
        (
            Insn::Endian { order: ByteOrder::Swap, size: Size::B1, dst },
            size("a byte-order conversion", Size::B1),
        ),
        (
            Insn::Load { size: Size::B8, signed: true, dst, base, offset },
            size("a sign-extending load", Size::B8),
        ),
        (
            Insn::Atomic { op: AtomicOp::Xchg, size: Size::B2, base, offset, src },
            size("an atomic read-modify-write", Size::B2),
        ),
        (
            Insn::LoadPacket { size: Size::B8, base: PacketBase::Absolute, imm: 0 },
            size("a legacy packet load", Size::B8),
        ),
        (tail, EncodeError::StrayTail { index: 1 }),
        (wide, EncodeError::MissingTail { index: 1 }),
    ];
    for (insn, error) in cases {
        assert_eq!(encode(&[Insn::Exit, insn]), Err(error), "{insn:?}");
    }
    assert_eq!(encode(&[wide, Insn::Exit]), Err(EncodeError::MissingTail { index: 0 }));
    assert_eq!(encode(&[wide, wide, tail]), Err(EncodeError::MissingTail { index: 0 }));
    assert_eq!(encode(&[wide, tail, tail]), Err(EncodeError::StrayTail { index: 2 }));
    assert_eq!(
        EncodeError::JumpTooFar { index: 3, offset: 40000 }.to_string(),
        "instruction 3: a goto over 40000 slots does not fit 16 bits; use the long form, gotol"
    );
}

#[test]
fn the_assembler_names_line_column_and_what_it_expected() {
    let cases = [
        ("exit\n  frobnicate", "line 2, column 3: expected an instruction, found `frobnicate`"),
        ("r11 = 0", "line 1, column 1: expected an instruction, found `r11`"),
        ("r1 = r11", "line 1, column 6: expected a value of the destination's width, found `r11`"),
        (
            "r1 + 2",
            "line 1, column 4: expected one of = += -= *= /= s/= |= &= <<= >>= s>>= %= s%= ^=, found `+`",
        ),
        ("r1 = w2", "line 1, column 6: expected a 64-bit register, r0 to r10, found `w2`"),
        ("w1 += r2", "line 1, column 7: expected a 32-bit register, w0 to w10, found `r2`"),
        ("r1 = -r2", "line 1, column 7: expected the destination, r1, once more, found `r2`"),
        ("r1 = be16 r2", "line 1, column 11: expected the destination, r1, once more, found `r2`"),
        ("exit now", "line 1, column 6: expected the end of the line, found `now`"),
        ("r1 =", "line 1, column 5: expected a value, found the end of the line"),
        ("if r1 = 0 goto +1", "line 1, column 7: expected one of == != > >= < <= s> s>= s< s<= &, found `=`"),
        ("if r1 == 0", "line 1, column 11: expected `goto`, found the end of the line"),
        (
            "goto 5",
            "line 1, column 6: expected a label, or a distance in slots with its sign, `+` or `-`, found `5`",
        ),
        ("r1 = *(u9 *)(r2 + 0)", "line 1, column 8: expected one of u8 u16 u32 u64 s8 s16 s32, found `u9`"),
        ("*(s8 *)(r2 + 0) = r1", "line 1, column 3: expected one of u8 u16 u32 u64, found `s8`"),
        ("r1 = *(u8 *)(w2 + 0)", "line 1, column 14: expected a 64-bit register, r0 to r10, found `w2`"),
        ("lock *(u8 *)(r1 + 0) += r2", "line 1, column 8: expected one of u32 u64, found `u8`"),
        ("lock *(u64 *)(r1 + 0) -= r2", "line 1, column 23: expected one of += |= &= ^=, found `-=`"),
        (
            "r1 = atomic_fetch_add((u64 *)(r2 + 0), r3)",
            "line 1, column 40: expected the destination, r1, once more, found `r3`",
        ),
        ("r1 = atomic_fetch_add((u32 *)(r2 + 0), r1)", "line 1, column 24: expected `u64`, found `u32`"),
        (
            "r1 = cmpxchg_64(r2 + 0, r1, r3)",
            "line 1, column 25: expected r0, which compare-exchange compares with and returns in, found `r1`",
        ),
        ("r1 = map{3} ll", "line 1, column 9: expected an instruction in C-like syntax, found `{`"),
        (
            "r1 = mop[3] ll",
            "line 1, column 6: expected one of map map_value map_fd map_fd_value var func, found `mop`",
        ),
        ("r1 = map[3]", "line 1, column 12: expected `ll`, found the end of the line"),
        (
            "w1 = 5 ll",
            "line 1, column 6: expected a 32-bit value for a w register (this one needs an r register), found `5`",
        ),
        (
            "r1 = 12ab",
            "line 1, column 6: expected a decimal number or a hexadecimal one after 0x, found `12ab`",
        ),
        ("r1 = 0x", "line 1, column 6: expected a decimal number or a hexadecimal one after 0x, found `0x`"),
        (
            "r1 = 0x80000000",
            "line 1, column 6: 0x80000000 is out of range: a sign-extended immediate goes from -2147483648 to \
             2147483647; append `ll` to load all 64 bits",
        ),
        (
            "w1 = -0x80000001",
            "line 1, column 6: -0x80000001 is out of range: a 32-bit immediate goes from -2147483648 to 4294967295",
        ),
        (
            "r1 = 18446744073709551616 ll",
            "line 1, column 6: 18446744073709551616 is out of range: a 64-bit number goes from -9223372036854775808 \
             to 18446744073709551615",
        ),
        (
            "r1 = *(u8 *)(r2 + 32768)",
            "line 1, column 19: 32768 is out of range: an offset goes from -32768 to 32767",
        ),
        (
            "goto +32768",
            "line 1, column 7: 32768 is out of range: a distance in slots goes from -32768 to 32767; `gotol` reaches \
             further",
        ),
        ("goto away", "line 1, column 6: no label away in this program"),
        ("a:\nexit\na: exit", "line 3, column 1: the label a is already defined in line 1"),
        ("0: exit\n2: exit", "line 2, column 1: the line says slot 2, but this is slot 1"),
        ("ä", "line 1, column 1: expected an instruction in C-like syntax, found `ä`"),
        ("r1 = ä", "line 1, column 6: expected an instruction in C-like syntax, found `ä`"),
    ];
    for (text, message) in cases {
        let error = assemble(text).expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn labels_beyond_short_jumps_need_long_jumps() {
    let filler = "r0 = 0\n".repeat(0x8000);
    let near = &filler[7..];
    for jump in ["goto end", "if r1 == 0 goto end", "may_goto end"] {
        let program = assemble(&format!("{jump}\n{near}end: exit")).expect("the last slot in reach");
        assert_eq!(program[0].jump_target(0), Some(0x8000));
        let error = assemble(&format!("{jump}\n{filler}end: exit")).expect_err("one too far");
        let problem = AssembleProblem::LabelTooFar { name: "end".to_owned(), distance: 0x8000 };
        assert_eq!((error.line, error.problem), (1, problem));
    }
    let program = assemble(&format!("gotol end\n{filler}end: exit")).expect("gotol reaches it");
    assert_eq!(program[0].jump_target(0), Some(0x8001));
}

#[test]
fn immediates_of_32_bit_operations_may_be_signed_or_unsigned() {
    let minus_one = Operand::Imm(-1);
    for text in ["w1 ^= 0xffffffff", "w1 ^= 4294967295", "w1 ^= -1"] {
        let expected = Insn::Alu { width: Width::W32, op: AluOp::Xor, dst: Reg::R1, src: minus_one };
        assert_eq!(assemble(text), Ok(vec![expected]), "{text}");
    }
    let store = Insn::Store { size: Size::B4, base: Reg::R10, offset: -4, src: minus_one };
    assert_eq!(assemble("*(u32 *)(r10 - 4) = 0xffffffff"), Ok(vec![store]));
    assert!(assemble("*(u64 *)(r10 - 8) = 0xffffffff").is_err(), "it would store 64 ones");
}
