//! Loads and stores of every size, with every kind of base and displacement.

use skep_isa::{AluOp, Insn, Operand, Reg, Size, Width};

use super::{Program, run};

/// Displacements around every change of their encoding.
const OFFSETS: [i16; 13] = [0, 1, -1, 8, 127, 128, -128, -129, 255, 4096, -4096, i16::MAX, i16::MIN];

const MIDDLE: usize = 40_000;

fn buffer() -> Vec<u8> {
    (0..2 * MIDDLE).map(|i| (i * 7 + (i >> 8) * 13 + 0x80) as u8).collect()
}

fn mov(dst: Reg, src: Reg) -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Reg(src) }
}

fn movable() -> impl Iterator<Item = Reg> {
    Reg::ALL.into_iter().filter(|&reg| reg != Reg::R10)
}

/// The number of that size at an offset from the buffer's middle.
fn number(bytes: &[u8], size: Size, offset: i16) -> u64 {
    let start = MIDDLE.wrapping_add_signed(offset.into());
    let mut number = [0; 8];
    number[..size.bytes() as usize].copy_from_slice(&bytes[start..start + size.bytes() as usize]);
    u64::from_le_bytes(number)
}

#[test]
fn loads_of_every_size_extend_as_encoded() {
    let bytes = buffer();
    let address = bytes[MIDDLE..].as_ptr() as u64;
    for base in movable() {
        for dst in movable() {
            for size in Size::ALL {
                for signed in [false, true] {
                    if signed && size == Size::B8 {
                        continue;
                    }
                    for offset in OFFSETS {
                        let load = Insn::Load { size, signed, dst, base, offset };
                        let program =
                            Program::of(vec![mov(base, Reg::R1), load, mov(Reg::R0, dst), Insn::Exit]);
                        let bits = 64 - size.bits();
                        let plain = number(&bytes, size, offset);
                        let extended = ((plain << bits) as i64 >> bits) as u64;
                        // SAFETY: the program reads the buffer.
                        let got = unsafe { program.compile().entry().call(address, 0, std::ptr::null_mut()) };
                        assert_eq!(got, if signed { extended } else { plain }, "{load}");
                    }
                }
            }
        }
    }
}

#[test]
fn stores_of_every_size_write_their_bytes_and_no_others() {
    let original = buffer();
    let value = 0x1122_3344_5566_7788u64;
    for base in movable() {
        for src in movable() {
            for size in Size::ALL {
                for offset in OFFSETS {
                    let mut bytes = original.clone();
                    let address = bytes[MIDDLE..].as_mut_ptr() as u64;
                    let store = Insn::Store { size, base, offset, src: Operand::Reg(src) };
                    let keep = [Reg::R7, Reg::R8, Reg::R9].into_iter().find(|&reg| reg != base && reg != src);
                    let keep = keep.expect("one of three");
                    let program = Program::of(vec![
                        mov(keep, Reg::R1),
                        mov(src, Reg::R2),
                        mov(base, keep),
                        store,
                        mov(Reg::R0, src),
                        Insn::Exit,
                    ]);
                    // One register cannot hold both.
                    let source = if base == src { address } else { value };
                    // SAFETY: the program writes the buffer.
                    unsafe { program.compile().entry().call(address, value, std::ptr::null_mut()) };
                    expect_stored(&original, &bytes, size, offset, source, &store);
                }
            }
        }
    }
}

#[test]
fn stores_of_constants_are_truncated_or_sign_extended() {
    let original = buffer();
    for base in movable() {
        for imm in [0, 1, -1, 0x7f, 0x80, 0x1234_5678, i32::MIN, -2] {
            for size in Size::ALL {
                for offset in OFFSETS {
                    let mut bytes = original.clone();
                    let address = bytes[MIDDLE..].as_mut_ptr() as u64;
                    let store = Insn::Store { size, base, offset, src: Operand::Imm(imm) };
                    let program =
                        Program::of(vec![mov(base, Reg::R1), store, mov(Reg::R0, base), Insn::Exit]);
                    // SAFETY: the program writes the buffer.
                    unsafe { program.compile().entry().call(address, 0, std::ptr::null_mut()) };
                    expect_stored(&original, &bytes, size, offset, i64::from(imm) as u64, &store);
                }
            }
        }
    }
}

#[test]
fn leaves_and_callers_can_use_their_whole_stack() {
    let mut text = String::new();
    for offset in (-512..0).step_by(8) {
        text += &format!("*(u64 *)(r10 {offset:+}) = {}\n", offset * 3);
    }
    text += "CALL\nr0 = 0\n";
    for offset in (-512..0).step_by(8) {
        text += &format!("r1 = *(u64 *)(r10 {offset:+})\nr0 += r1\n");
    }
    text += "exit\n";
    let expected = (-512..0i64).step_by(8).map(|offset| offset * 3).sum::<i64>() as u64;
    assert_eq!(Program::new(&text.replace("CALL", "")).run(0, 0), expected);
    let calling =
        text.replace("CALL", "call other") + "other:\n*(u64 *)(r10 - 512) = 0\n*(u64 *)(r10 - 8) = 0\nexit";
    assert_eq!(Program::new(&calling).run(0, 0), expected);
}

#[test]
fn acquiring_loads_and_releasing_stores_are_loads_and_stores() {
    let mut number = 0xfedc_ba98_7654_3210u64;
    for (bits, expected) in [(8, 0x10), (16, 0x3210), (32, 0x7654_3210), (64, number)] {
        let text = format!("r0 = load_acquire((u{bits} *)(r1 + 0))\nexit");
        let text = if bits < 64 { text.replace("r0", "w0") } else { text };
        assert_eq!(Program::new(&text).run(&raw const number as u64, 0), expected);
    }
    for (bits, expected) in
        [(8, 0xfedc_ba98_7654_3288u64), (16, 0xfedc_ba98_7654_7788), (64, 0x1122_3344_5566_7788)]
    {
        let reg = if bits < 64 { 'w' } else { 'r' };
        let text = format!("store_release((u{bits} *)(r1 + 0), {reg}2)\nr0 = 0\nexit");
        Program::new(&text).run(&raw mut number as u64, 0x1122_3344_5566_7788);
        assert_eq!(number, expected);
    }
}

fn expect_stored(original: &[u8], bytes: &[u8], size: Size, offset: i16, value: u64, insn: &Insn) {
    let start = MIDDLE.wrapping_add_signed(offset.into());
    let end = start + size.bytes() as usize;
    assert_eq!(bytes[start..end], value.to_le_bytes()[..size.bytes() as usize], "{insn}");
    assert_eq!(bytes[..start], original[..start], "{insn}");
    assert_eq!(bytes[end..], original[end..], "{insn}");
}

#[test]
fn fused_scaled_addresses_equal_those_of_single_instructions() {
    let numbers: [u64; 8] = [11, 22, 33, 44, 55, 66, 77, 88];
    let address = numbers.as_ptr() as u64;
    // r1 is an eighth of the address or an index, r2 the address.
    for (text, r1, expected) in [
        ("r3 = r1\nr3 <<= 3\nr0 = *(u64 *)(r3 + 0)\nr0 += r3", address / 8, address.wrapping_add(11)),
        ("r3 = r1\nr3 <<= 3\nr1 = *(u64 *)(r2 + 8)\nr1 += r3\nr0 = r1", 2, 22 + 16),
        ("r3 = r1\nr3 <<= 3\nr4 = *(u64 *)(r2 + 8)\nr4 += r3\nr0 = r3\nr0 += r4", 2, 22 + 32),
        ("r1 <<= 3\nr4 = *(u64 *)(r2 + 8)\nr4 += r1\nr0 = r4", 2, 22 + 16),
        // The load's destination is the result register, but only after the other part was read.
        ("r3 = r1\nr3 <<= 3\nr0 = *(u64 *)(r2 + 8)\nr0 += r3", 2, 22 + 16),
        ("r1 <<= 3\nr0 = *(u64 *)(r2 + 8)\nr0 += r1", 2, 22 + 16),
        ("r3 = r1\nr3 <<= 3\nr4 = r2\nr4 += r3\nr0 = *(u64 *)(r4 + 8)", 2, 44),
        ("r1 <<= 3\nr1 += r2\nr0 = *(u64 *)(r1 + 8)\nr4 = *(u64 *)(r1 + 16)\nr0 += r4", 2, 44 + 55),
        ("r3 = r2\nr3 += 8\nr0 = *(u64 *)(r3 + 8)\nr2 = 5\nr4 = *(u64 *)(r3 + 16)\nr0 += r4", 0, 33 + 44),
    ] {
        let program = Program::new(&format!("{text}\nexit"));
        assert_eq!(program.run(r1, address), expected, "{text}");
    }
}

#[test]
fn halves_of_registers_are_extended_before_they_are_added() {
    let numbers: [u64; 8] = [11, 22, 33, 44, 55, 66, 77, 88];
    let middle = &raw const numbers[4] as u64;
    for (half, lower, at) in
        [("w3 = w1", 2u32, 2i64), ("r3 = (s32)r1", 2, 2), ("r3 = (s32)r1", -3i32 as u32, -3)]
    {
        for upper in [0u64, 0xdead_beef, u64::from(u32::MAX)] {
            let r1 = upper << 32 | u64::from(lower);
            let expected = numbers[(4 + at) as usize];
            let next = numbers[(5 + at) as usize];
            for (text, expected) in [
                ("r3 <<= 3\nr2 += r3\nr0 = *(u64 *)(r2 + 0)", expected),
                ("r3 <<= 3\nr2 += r3\nr0 = *(u64 *)(r2 + 8)", next),
                ("r3 <<= 3\nr4 = r2\nr4 += r3\nr0 = *(u8 *)(r4 + 0)", expected),
                (
                    "r3 <<= 3\nr3 += r2\nr0 = *(u64 *)(r3 + 0)\nr4 = *(u64 *)(r3 + 8)\nr0 += r4",
                    expected + next,
                ),
                ("r3 <<= 3\nr4 = *(u64 *)(r2 + 0)\nr4 += r3\nr0 = r4", (8 * at).wrapping_add(55) as u64),
                ("r3 <<= 2\nr2 += r3\nr2 += r3\nr0 = *(u64 *)(r2 + 0)", expected),
                ("r2 += r3\nr2 -= r3\nr3 <<= 3\nr2 += r3\nr0 = *(u16 *)(r2 + 0)", expected),
            ] {
                let program = Program::new(&format!("{half}\n{text}\nexit"));
                assert_eq!(program.run(r1, middle), expected, "{half} {text} with {r1:#x}");
            }
        }
    }
    // The register itself may be the one that is extended, and the result's may be the index's.
    let program = Program::new("w1 = w1\nr1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit");
    assert_eq!(program.run(0xff_0000_0008, middle), 66);
}

#[test]
fn pointers_may_move_far_beyond_the_stack_and_back() {
    for distance in [0xfff, 0x1000, 0xff_ffff, 0x100_0001, 0x1234_5678, 0x1fff_ffff] {
        for distance in [distance, -distance] {
            let there = format!("r1 = r10\nr1 += {distance}\nr0 = r1\nr0 -= r10\nexit");
            assert_eq!(run(&there), i64::from(distance) as u64, "{there}");
            let back = format!(
                "r6 = 7\n*(u64 *)(r10 - 8) = r6\nr1 = r10\nr1 += {distance}\nr2 = r1\nr2 -= {}\nr0 = *(u64 *)(r2 + 0)\nexit",
                distance + 8
            );
            assert_eq!(run(&back), 7, "{back}");
        }
    }
}
