//! The shape of code: all of it decodes, and it is as short as intended.

use skep_abi::{HelperFn, Linkage, MapLink, RunEnv};

use super::Aarch64;
use super::encode::tests::foreign;
use super::encode::{self, Word};
use crate::Options;
use crate::arch::tests::{MIXED, Program};
use crate::port::Home;

const ADDRESS: u64 = 0x7000_0000_0040;

fn code(program: &Program) -> Vec<u8> {
    program.code::<Aarch64>(&Home::anywhere(), ADDRESS).0
}

fn listing(text: &str) -> Vec<String> {
    disassemble(&code(&Program::new(text)))
}

fn words(code: &[u8]) -> Vec<Word> {
    code.chunks(4).map(|word| Word(u32::from_le_bytes(word.try_into().expect("whole words")))).collect()
}

fn disassemble(code: &[u8]) -> Vec<String> {
    words(code).into_iter().map(foreign::read).collect()
}

/// Assembly as the disassembler writes it.
fn canonical(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| foreign::canonical(line)).collect()
}

/// Expects that code of a program whose last result is needed. Of `r0` that is where functions return it.
#[track_caller]
fn expect(text: &str, lines: &[&str]) {
    let (result, _) = text.lines().last().and_then(|line| line.split_once(' ')).expect("an assignment");
    let result = result.replace('w', "r");
    let keep = if result == "r0" { String::new() } else { format!("*(u64 *)(r9 + 0) = {result}\n") };
    let mut got = listing(&format!("{text}\n{keep}exit"));
    assert_eq!(got.pop().as_deref(), Some("ret x30"));
    if result != "r0" {
        assert_eq!(got.pop(), Some(foreign::canonical("mov x0, x7")));
        let store = got.pop().expect("a store");
        assert!(store.starts_with("str ") && store.ends_with("[x22, #0]"), "{store}");
    }
    assert_eq!(got, canonical(lines), "{text}");
}

/// Expects that code of a whole program.
#[track_caller]
fn expect_all(text: &str, lines: &[&str]) {
    assert_eq!(listing(text), canonical(lines), "{text}");
}

#[test]
fn constants_take_the_fewest_instructions() {
    expect("r1 = 0", &["mov w0, #0"]);
    expect("r1 = 5", &["mov w0, #5"]);
    expect("r5 = -1", &["movn x4, #0, lsl #48"]);
    expect("r5 = 4294967295 ll", &["movn w4, #0, lsl #0"]);
    expect("r1 = 0xff00ff00ff00ff00 ll", &["orr x0, xzr, #18374966859414961920"]);
    expect(
        "r1 = 0x123456789a ll",
        &["movz x0, #30874, lsl #0", "movk x0, #13398, lsl #16", "movk x0, #18, lsl #32"],
    );
    assert_eq!(code(&Program::new("r0 = -1\nexit")).len(), 8);
}

#[test]
fn small_steps_take_the_shortest_form() {
    expect("r1 += 1", &["add x0, x0, #1"]);
    expect("w1 -= 1", &["sub w0, w0, #1"]);
    expect("r1 += -4096", &["sub x0, x0, #4096"]);
    expect("r1 -= -4095", &["add x0, x0, #4095"]);
    expect("r1 += 4097", &["add x0, x0, #4096", "add x0, x0, #1"]);
    expect("r0 += 1000", &["add x0, x7, #1000"]);
    expect("r1 ^= -1", &["mvn x0, x0"]);
    expect("r1 *= 8", &["lsl x0, x0, #3"]);
    expect("r1 *= 5", &["add x0, x0, x0, lsl #2"]);
    expect("r1 *= 7", &["lsl x16, x0, #3", "sub x0, x16, x0"]);
    expect("r1 *= 100", &["mov w16, #100", "mul x0, x0, x16"]);
    expect("r1 /= 16", &["lsr x0, x0, #4"]);
    expect("r1 %= 16", &["and w0, w0, #15"]);
    expect("r1 &= 255", &["uxtb w0, w0"]);
}

#[test]
fn logical_immediates_take_one_instruction_where_there_is_one() {
    expect("r1 &= -16", &["and x0, x0, #18446744073709551600"]);
    expect("w1 |= 0xf0", &["orr w0, w0, #240"]);
    expect("w1 ^= 0x55555555", &["eor w0, w0, #1431655765"]);
    expect("r1 ^= 0x55555555", &["orr w16, wzr, #1431655765", "eor x0, x0, x16"]);
    expect("r1 &= 0x12345", &["movz w16, #9029, lsl #0", "movk w16, #1, lsl #16", "and w0, w0, w16"]);
}

#[test]
fn moves_and_additions_are_folded() {
    expect("r1 = r2\nr1 += 4", &["add x0, x1, #4"]);
    expect("r1 = r2\nr1 += r3", &["add x0, x1, x2"]);
    expect("w1 = w2\nw1 += -1", &["sub w0, w1, #1"]);
    expect("r1 = r2\nr1 &= 255", &["uxtb w0, w1"]);
}

#[test]
fn moves_are_folded_into_every_operation() {
    for (operation, instruction) in [
        ("r1 &= r3", "and x0, x1, x2"),
        ("r1 |= r3", "orr x0, x1, x2"),
        ("r1 ^= r3", "eor x0, x1, x2"),
        ("r1 -= r3", "sub x0, x1, x2"),
        ("r1 *= r3", "mul x0, x1, x2"),
        ("r1 /= r3", "udiv x0, x1, x2"),
        ("r1 s/= r3", "sdiv x0, x1, x2"),
        ("r1 <<= r3", "lslv x0, x1, x2"),
        ("r1 >>= 7", "lsr x0, x1, #7"),
        ("r1 s>>= 7", "asr x0, x1, #7"),
        ("r1 |= 8", "orr x0, x1, #8"),
        ("r1 ^= -1", "mvn x0, x1"),
    ] {
        expect(&format!("r1 = r2\n{operation}"), &[instruction]);
    }
}

#[test]
fn shifts_and_extensions_fuse_into_their_operation() {
    expect("r4 = r6\nr4 >>= 7\nr1 ^= r4", &["eor x0, x0, x19, lsr #7"]);
    expect("r4 = r6\nr4 <<= 20\nr1 |= r4", &["orr x0, x0, x19, lsl #20"]);
    expect("r4 s>>= 3\nr1 -= r4", &["sub x0, x0, x3, asr #3"]);
    expect("w4 = w6\nr1 += r4", &["add x0, x0, w19, uxtw #0"]);
    // A rotation is an operand of logic, but not of a sum.
    let rotated = "r4 = r3\nr4 >>= 51\nr3 <<= 13\nr3 |= r4";
    expect(&format!("{rotated}\nr1 ^= r3"), &["eor x0, x0, x2, ror #51"]);
    expect(&format!("{rotated}\nr3 ^= r1"), &["eor x2, x0, x2, ror #51"]);
    expect(&format!("{rotated}\nr1 += r3"), &["ror x2, x2, #51", "add x0, x0, x2"]);
}

#[test]
fn fields_of_bits_take_one_instruction() {
    expect("r3 >>= 12\nr3 &= 63", &["ubfx x2, x2, #12, #6"]);
    expect("r3 = r1\nr3 >>= 52\nr3 &= 4095", &["ubfx x2, x0, #52, #12"]);
    expect("w3 >>= 8\nw3 &= 255", &["ubfx w2, w2, #8, #8"]);
    expect("r3 <<= 32\nr3 >>= 32", &["mov w2, w2"]);
    expect("r3 <<= 48\nr3 s>>= 48", &["sxth x2, w2"]);
    expect("r5 = r3\nr5 >>= 51\nr3 <<= 13\nr3 |= r5", &["ror x2, x2, #51"]);
}

#[test]
fn products_are_added_in_one_instruction() {
    expect("r3 *= r4\nr1 += r3", &["madd x0, x2, x3, x0"]);
    expect("w3 *= w4\nw1 += w3", &["madd w0, w2, w3, w0"]);
    expect("r3 *= r4\nr1 -= r3", &["msub x0, x2, x3, x0"]);
    expect("r3 *= r4\nr3 += r1", &["madd x2, x2, x3, x0"]);
}

#[test]
fn division_tests_nothing() {
    expect("r1 /= r2", &["udiv x0, x0, x1"]);
    expect("w1 s/= w2", &["sdiv w0, w0, w1"]);
    expect("r1 %= r2", &["udiv x16, x0, x1", "msub x0, x16, x1, x0"]);
    expect("w1 s%= w2", &["sdiv w16, w0, w1", "msub w0, w16, w1, w0"]);
    // Unsigned by a constant: a multiplication.
    expect(
        "w1 /= 10",
        &["movz w17, #52429, lsl #0", "movk w17, #52428, lsl #16", "umull x16, w0, w17", "lsr x0, x16, #35"],
    );
}

#[test]
fn nothing_is_extended_twice() {
    expect("r0 = *(u32 *)(r1 + 0)\nr0 &= 255\nw0 = w0", &["ldr w7, [x0]", "uxtb w7, w7", "mov x0, x7"]);
    expect("r2 = *(u32 *)(r1 + 0)\nw2 = w2", &["ldr w1, [x0]"]);
    expect("r2 = *(u8 *)(r1 + 0)\nr2 &= 255", &["ldrb w1, [x0]"]);
    expect("r2 = *(u16 *)(r1 + 0)\nr2 = be16 r2", &["ldrh w1, [x0]", "rev16 w1, w1"]);
    expect("r2 = be16 r2", &["rev w1, w1", "lsr w1, w1, #16"]);
    expect("r2 = be32 r2", &["rev w1, w1"]);
    expect("r2 = be64 r2", &["rev x1, x1"]);
}

#[test]
fn loads_and_stores_compute_addresses_themselves() {
    expect("r2 = *(u64 *)(r1 + 32760)", &["ldr x1, [x0, #32760]"]);
    expect("r2 = *(u64 *)(r1 - 3)", &["ldur x1, [x0, #-3]"]);
    expect("r2 = *(u8 *)(r1 + 4095)", &["ldrb w1, [x0, #4095]"]);
    expect("r2 = *(s32 *)(r1 + 8)", &["ldrsw x1, [x0, #8]"]);
    expect("r2 = *(s8 *)(r1 + 8)", &["ldrsb x1, [x0, #8]"]);
    expect("r4 = r1\nr4 += r3\nr2 = *(u8 *)(r4 + 0)", &["ldrb w1, [x0, x2]"]);
    expect("r4 = r3\nr4 <<= 3\nr5 = r1\nr5 += r4\nr2 = *(u64 *)(r5 + 0)", &["ldr x1, [x0, x2, lsl #3]"]);
    expect("r4 = r1\nr4 += 16\nr2 = *(u16 *)(r4 + 2)", &["ldrh w1, [x0, #18]"]);
    expect("*(u32 *)(r1 + 4) = r2\nr2 = r3", &["str w1, [x0, #4]", "mov x1, x2"]);
}

#[test]
fn the_lower_half_of_a_register_is_an_index() {
    expect("w4 = w6\nr1 += r4\nr2 = *(u8 *)(r1 + 0)\nr1 = r2", &["ldrb w1, [x0, w19, uxtw]", "mov w0, w1"]);
    let scaled = "w4 = w6\nr4 <<= 3\nr1 += r4\nr2 = *(u64 *)(r1 + 0)\nr1 = r2";
    expect(scaled, &["ldr x1, [x0, w19, uxtw #3]", "mov x0, x1"]);
    let signed = "r4 = (s32)r6\nr4 <<= 2\nr1 += r4\n*(u32 *)(r1 + 0) = r2\nr1 = r2";
    expect(signed, &["str w1, [x0, w19, sxtw #2]", "mov x0, x1"]);
    // With an offset, or if the sum is live, it is computed.
    let offset = "w4 = w6\nr4 <<= 2\nr1 += r4\nr2 = *(u32 *)(r1 + 4)\nr1 = r2";
    expect(offset, &["add x0, x0, w19, uxtw #2", "ldr w1, [x0, #4]", "mov w0, w1"]);
    expect("w4 = w6\nr4 <<= 2\nr1 += r4", &["add x0, x0, w19, uxtw #2"]);
}

#[test]
fn offsets_out_of_reach_take_one_instruction_more() {
    // A sum if that is one instruction, otherwise an index.
    expect("r2 = *(u8 *)(r1 + 4096)", &["add x16, x0, #4096", "ldrb w1, [x16]"]);
    expect("r2 = *(u64 *)(r1 - 4095)", &["sub x16, x0, #4095", "ldr x1, [x16]"]);
    expect("r2 = *(u64 *)(r1 + 32767)", &["mov w16, #32767", "ldr x1, [x0, x16]"]);
    expect("r2 = *(u8 *)(r1 - 32767)", &["movn x16, #32766, lsl #0", "ldrb w1, [x0, x16]"]);
}

#[test]
fn neighbours_are_loaded_and_stored_at_once() {
    expect(
        "r2 = *(u64 *)(r1 + 8)\nr3 = *(u64 *)(r1 + 16)\nr2 += r3",
        &["ldp x1, x2, [x0, #8]", "add x1, x1, x2"],
    );
    expect(
        "r2 = *(u32 *)(r1 + 4)\nr3 = *(u32 *)(r1 + 0)\nr2 += r3",
        &["ldp w2, w1, [x0, #0]", "add x1, x1, x2"],
    );
    expect_all(
        "*(u64 *)(r10 - 8) = r1\n*(u64 *)(r10 - 16) = r2\nr0 = 0\nexit",
        &["sub sp, sp, #512", "stp x1, x0, [sp, #496]", "mov w0, #0", "add sp, sp, #512", "ret"],
    );
    // Out of a pair's reach, and one whose base is loaded first.
    expect_all(
        "r2 = *(u64 *)(r1 + 512)\nr0 = *(u64 *)(r1 + 520)\nr0 += r2\nexit",
        &["ldr x1, [x0, #512]", "ldr x7, [x0, #520]", "add x0, x7, x1", "ret"],
    );
    expect_all(
        "r1 = *(u64 *)(r1 + 0)\nr0 = *(u64 *)(r1 + 8)\nexit",
        &["ldr x0, [x0]", "ldr x0, [x0, #8]", "ret"],
    );
}

#[test]
fn zeroes_are_stored_without_a_move() {
    expect_all("*(u64 *)(r1 + 0) = 0\nr0 = 1\nexit", &["str xzr, [x0, #0]", "mov w0, #1", "ret"]);
    expect_all(
        "*(u64 *)(r1 + 0) = 0\n*(u64 *)(r1 + 8) = 0\n*(u8 *)(r1 + 16) = 0\nr0 = 1\nexit",
        &["stp xzr, xzr, [x0, #0]", "strb wzr, [x0, #16]", "mov w0, #1", "ret"],
    );
}

#[test]
fn comparisons_take_the_shortest_form() {
    let condition = |text: &str| {
        let lines = listing(&format!("{text} goto out\nr0 = 1\nout: exit"));
        let branches = ["b.", "cb", "tb"];
        let end = lines.iter().position(|line| branches.iter().any(|name| line.starts_with(name)));
        lines[..=end.expect("a branch")].join("; ")
    };
    for (text, expected) in [
        ("if r1 == 0", "cbz x0, #8"),
        ("if w1 != 0", "cbnz w0, #8"),
        ("if r1 < 1", "cbz x0, #8"),
        ("if r1 >= 1", "cbnz x0, #8"),
        ("if r1 > 0", "cbnz x0, #8"),
        ("if r1 <= 0", "cbz x0, #8"),
        ("if r1 s< 0", "tbnz x0, #63, #8"),
        ("if w1 s< 0", "tbnz w0, #31, #8"),
        ("if r1 s>= 0", "tbz x0, #63, #8"),
        ("if r1 s> -1", "tbz x0, #63, #8"),
        ("if w1 s<= -1", "tbnz w0, #31, #8"),
        ("if r1 & 128", "tbnz w0, #7, #8"),
        ("if r1 & 0x6", "ands xzr, x0, #6; b.ne #8"),
        ("if r1 & 0x12345", "movz w16, #9029, lsl #0; movk w16, #1, lsl #16; ands xzr, x0, x16; b.ne #8"),
        ("if r1 > 5", "subs xzr, x0, #5; b.hi #8"),
        ("if r1 s< -5", "adds xzr, x0, #5; b.lt #8"),
        ("if w1 == -1", "adds wzr, w0, #1; b.eq #8"),
        ("if r1 == 4096", "subs xzr, x0, #4096; b.eq #8"),
        ("if r1 == 4097", "movz w16, #4097, lsl #0; subs xzr, x0, x16; b.eq #8"),
        ("if r1 < r2", "subs xzr, x0, x1; b.lo #8"),
    ] {
        assert_eq!(condition(text), expected, "{text}");
    }
}

#[test]
fn tests_of_a_bit_need_no_register_for_it() {
    let branch = |text: &str| listing(&format!("{text}\nr0 = 1\nout: exit"))[0].clone();
    assert_eq!(branch("r1 &= 8\nif r1 == 0 goto out"), "tbz w0, #3, #8");
    assert_eq!(branch("r2 = r1\nr2 &= 8\nif r2 != 0 goto out"), "tbnz w0, #3, #8");
    assert_eq!(branch("r2 = r1\nr2 &= 6\nif r2 != 0 goto out"), "ands xzr, x0, #6");
}

#[test]
fn functions_save_only_what_they_use() {
    expect("r0 = 1", &["mov w0, #1"]);
    expect("r6 = 1\nr0 = r6", &["str x19, [sp, #-16]!", "mov w19, #1", "mov w0, w19", "ldr x19, [sp], #16"]);
    expect_all(
        "r6 = r1\nr7 = r2\nr8 = r3\nr0 = r6\nr0 += r7\nr0 += r8\nexit",
        &[
            "stp x19, x20, [sp, #-32]!",
            "str x21, [sp, #16]",
            "mov x19, x0",
            "mov x20, x1",
            "mov x21, x2",
            "add x7, x19, x20",
            "add x0, x7, x21",
            "ldr x21, [sp, #16]",
            "ldp x19, x20, [sp], #32",
            "ret",
        ],
    );
    // Functions that call link a frame record; others have none.
    expect_all(
        "r1 = 5\ncall f\nr0 += 1\nexit\nf: r0 = r1\nexit",
        &[
            "stp x29, x30, [sp, #-16]!",
            "mov x29, sp",
            "mov w0, #5",
            "bl #16",
            "add x0, x0, #1",
            "ldp x29, x30, [sp], #16",
            "ret",
            "ret",
        ],
    );
}

#[test]
fn the_frame_pointer_of_programs_needs_no_register() {
    let leaf =
        Program::new("*(u64 *)(r10 - 8) = r1\nr2 = r10\nr2 += -8\nr0 = *(u64 *)(r2 + 0)\nexit").stack(16);
    let lines = ["sub sp, sp, #16", "str x0, [sp, #8]", "ldr x0, [sp, #8]", "add sp, sp, #16", "ret"];
    assert_eq!(disassemble(&code(&leaf)), canonical(&lines));
    let passed = Program::new("r6 = r10\nr6 += -8\n*(u64 *)(r1 + 8) = r6\nr0 = 0\nexit").stack(16);
    let lines = [
        "str x19, [sp, #-32]!",
        "add x19, sp, #24",
        "str x19, [x0, #8]",
        "mov w0, #0",
        "ldr x19, [sp], #32",
        "ret",
    ];
    assert_eq!(disassemble(&code(&passed)), canonical(&lines));
}

#[test]
fn small_frames_are_reserved_by_what_saves_first() {
    let frame = |bytes| {
        let program = Program::new("r6 = r1\nr7 = r2\n*(u64 *)(r10 - 8) = r6\nr0 = 0\nexit").stack(bytes);
        disassemble(&code(&program))
    };
    let small = frame(480);
    assert_eq!(small[0], "stp x19, x20, [sp, #-496]!");
    assert_eq!(small[small.len() - 2..], canonical(&["ldp x19, x20, [sp], #496", "ret"]));
    let large = frame(496);
    assert_eq!(large[..2], canonical(&["sub sp, sp, #512", "stp x19, x20, [sp, #0]"]));
    let end = canonical(&["ldp x19, x20, [sp, #0]", "add sp, sp, #512", "ret"]);
    assert_eq!(large[large.len() - 3..], end);
}

#[test]
fn exits_that_restore_nothing_are_not_jumped_to() {
    let lines = listing("r0 = 0\nif r1 == 1 goto a\nexit\na: r0 = 1\nexit");
    assert_eq!(lines.iter().filter(|line| *line == "ret x30").count(), 2, "{lines:?}");
}

#[test]
fn several_exits_share_what_is_restored() {
    let text = "r6 = r1\nr7 = r2\nr8 = r3
                r0 = 0
                if r1 == 1 goto a
                r0 = r6
                exit
             a: r0 = r7
                exit";
    let lines = listing(text);
    assert_eq!(lines.iter().filter(|line| *line == "ret x30").count(), 1, "{lines:?}");
    // Each has its result where it is returned; the second jumps to the first.
    let results = lines.iter().filter(|line| line.starts_with("orr x0, xzr, ")).count();
    assert_eq!(results, 2, "{lines:?}");
}

#[test]
fn innermost_loops_begin_with_a_fetch_where_that_saves_one() {
    let (mut moved, mut kept) = (0, 0);
    for before in 0..16 {
        for body in 0..16 {
            let (start, rest) = ("w0 += 1000\n".repeat(before), "r2 = *(u64 *)(r1 + 8)\n".repeat(body));
            let text = format!("w0 = 0\n{start}w3 = 5\ninner: w3 += -1\n{rest}if w3 != 0 goto inner\nexit");
            let (code, offsets) = Program::new(&text).code::<Aarch64>(&Home::anywhere(), ADDRESS);
            let head = offsets[before + 2];
            let fragment = head - offsets[before + 1] - 4;
            let size = offsets[before + 4 + body] - head;
            let fetches = |start: u32| (start % 32 + size).div_ceil(32);
            assert!(fragment <= 8 && (fragment == 0 || head.is_multiple_of(32)), "{head:#x} {fragment}");
            assert!(fragment == 0 || fetches(head) < fetches(head - fragment));
            let padding = &words(&code)[(head - fragment) as usize / 4..head as usize / 4];
            assert!(padding.iter().all(|word| *word == encode::nop()));
            *(if fragment > 0 { &mut moved } else { &mut kept }) += 1;
        }
    }
    assert!(moved > 10 && kept > 10, "{moved} {kept}");
}

/// A helper that is not called.
unsafe extern "C" fn helper(_: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    0
}

const HELPERS: [(u32, HelperFn); 1] = [(7, helper)];

/// The code of a program that calls [`helper`] over this distance in bytes, without entry and exit.
fn calling(text: &str, distance: u64) -> Vec<String> {
    let address = (helper as *const () as u64 & !0xfff) ^ distance;
    let program = Program::new(text).helpers(&HELPERS);
    let (code, _) = program.code::<Aarch64>(&Home::within(address..address + 4096), address);
    let lines = disassemble(&code);
    let enter = lines.iter().position(|line| *line == foreign::canonical("mov x29, sp")).expect("an entry");
    let leave = ["ldr x23", "ldp x23"].map(|name| lines.iter().position(|line| line.starts_with(name)));
    let leave = leave.into_iter().flatten().next().expect("an exit");
    // The environment is moved at the start, and to its place for the call.
    lines[enter + 2..leave].to_vec()
}

/// Without distances.
fn names(lines: &[String]) -> Vec<&str> {
    lines.iter().map(|line| line.split_once(' ').map_or(line.as_str(), |(name, _)| name)).collect()
}

#[test]
fn helpers_are_called_as_directly_as_they_are_near() {
    let called = |distance| calling("call 7\nexit", distance);
    assert_eq!(names(&called(1 << 20)), ["orr", "bl"]);
    assert_eq!(names(&called(1 << 31)), ["orr", "adrp", "add", "blr"]);
    let far = called(1 << 46);
    let constant = encode::constant(super::regs::SCRATCH, helper as *const () as u64);
    let moves: Vec<String> = constant.as_slice().iter().map(|word| foreign::read(*word)).collect();
    assert_eq!(far[1..far.len() - 1], moves);
    assert_eq!(far.last(), Some(&"blr x16".to_owned()));
}

#[test]
fn results_of_calls_are_moved_once() {
    // The two examples of this backend's description.
    let text = "call 7\nr6 = r0\nif r0 == 0 goto out\nr0 = r6\nexit\nout: r0 = 2\nexit";
    let lines = calling(text, 1 << 20);
    assert_eq!(lines[2..4], canonical(&["mov x19, x0", "cbz x0, #20"])[..], "{lines:?}");
    let text = "call 7\nr1 = 5\nr0 += r1\nexit";
    let lines = calling(text, 1 << 20);
    assert_eq!(lines[2..], canonical(&["mov x7, x0", "mov w0, #5", "add x0, x7, x0"]), "{lines:?}");
    // No code if the result is returned unchanged, or changed at once.
    assert_eq!(calling("call 7\nexit", 1 << 20).len(), 2);
    let lines = calling("call 7\nr0 &= 1\nexit", 1 << 20);
    assert_eq!(lines[2..], canonical(&["and w0, w0, #1"]));
}

#[test]
fn addresses_of_maps_take_the_shortest_form() {
    let address = |distance: u64| {
        let map = MapLink {
            handle: ADDRESS ^ distance,
            value_base: None,
            inline: None,
            programs: None,
            arena: None,
        };
        let linkage = Linkage { maps: vec![map], ..Linkage::default() };
        let program = Program::new("r0 = map[0] ll\nexit").linked(linkage);
        let (code, _) = program.code::<Aarch64>(&Home::within(ADDRESS..ADDRESS + 4096), ADDRESS);
        disassemble(&code)
    };
    assert_eq!(address(1 << 19), canonical(&["adr x0, #524288", "ret"]));
    assert_eq!(address(1 << 24 | 8), canonical(&["adrp x0, #16777216", "add x0, x0, #72", "ret"]));
    let far = canonical(&["movz x0, #64, lsl #0", "movk x0, #26624, lsl #32", "ret"]);
    assert_eq!(address(0x1800_0000_0000), far);
}

#[test]
fn out_of_reach_conditional_branches_skip_a_long_one() {
    let branches = |condition: &str, insns: usize| {
        let body = "r3 += 1000\n".repeat(insns);
        let lines = listing(&format!("if {condition} goto out\n{body}out: r0 = r3\nexit"));
        lines.into_iter().take_while(|line| !line.starts_with("add")).collect::<Vec<_>>()
    };
    // A bit: 32 KiB.
    assert_eq!(branches("r1 & 1", 8190), ["tbnz w0, #0, #32764"]);
    assert_eq!(branches("r1 & 1", 8191), ["tbz w0, #0, #8", "b #32768"]);
    // Flags and zero: a mebibyte, which takes long instructions.
    let far = |condition: &str| {
        let body = "r3 %= 7\n".repeat(32_000);
        let code = code(&Program::new(&format!("if {condition} goto out\n{body}out: r0 = r3\nexit")));
        assert!(code.len() > 1 << 20);
        disassemble(&code[..12])
    };
    let lines = far("r1 > 5");
    assert_eq!(lines[..2], canonical(&["cmp x0, #5", "b.ls #8"]));
    assert!(lines[2].starts_with("b #"));
    let lines = far("r1 == 0");
    assert_eq!(lines[0], "cbnz x0, #8");
    assert!(lines[1].starts_with("b #"));
}

#[test]
fn all_code_decodes_and_instructions_begin_where_the_table_says() {
    for home in [Home::anywhere(), Home::within(ADDRESS..ADDRESS + 4096)] {
        let (code, offsets) = Program::new(MIXED).code::<Aarch64>(&home, ADDRESS);
        for (at, line) in disassemble(&code).iter().enumerate() {
            let jumps =
                line.starts_with("b.") || ["b ", "cb", "tb"].iter().any(|name| line.starts_with(name));
            if jumps {
                let distance = line.rsplit_once('#').expect("a distance").1;
                let target = 4 * at as i64 + distance.parse::<i64>().expect("a number");
                assert!((0..code.len() as i64).contains(&target), "{line}");
            }
        }
        assert!(offsets.iter().all(|offset| offset.is_multiple_of(4)));
        assert!(offsets.is_sorted());
        assert_eq!(offsets.last(), Some(&(code.len() as u32)));
    }
}

#[test]
fn instructions_are_counted_as_they_are_decoded() {
    let far = format!("if r1 & 1 goto out\n{}out: exit", "r3 += 1\n".repeat(9000));
    let inner = |before| {
        let start = "r3 += 1000\n".repeat(before);
        let body = "r3 *= r4\n".repeat(6);
        format!("r0 = 5\n{start}next: r0 += -1\n{body}if r0 != 0 goto next\nr0 = r3\nexit")
    };
    let texts = [MIXED.to_owned(), far, "goto +0\nr0 = 1\nexit".to_owned()];
    let mut padded = false;
    for text in texts.into_iter().chain((0..8).map(inner)) {
        let emitted = Program::new(&text)
            .emit::<Aarch64>(Options::default(), &Home::anywhere(), ADDRESS)
            .expect("compiles");
        let (nops, others): (Vec<_>, Vec<_>) =
            words(&emitted.bytes).into_iter().partition(|word| *word == encode::nop());
        assert_eq!(emitted.instructions as usize, others.len(), "{text}");
        padded |= !nops.is_empty();
    }
    assert!(padded, "no program had padding");
}

/// Of a program with a tail call, behind the entry for hosts.
fn tail_call(text: &str, key: Option<u32>, fixed: bool) -> Vec<String> {
    let program = Program::new(text).with_tail_calls(key);
    let lines = disassemble(&code(&if fixed { program.fixed() } else { program }));
    let entry = ["stp x29, x30, [sp, #-32]!", "str x23, [sp, #16]", "mov x29, sp", "add x23, x2, #31"];
    assert_eq!(lines[..4], canonical(&entry), "{lines:?}");
    lines[8..].to_vec()
}

#[test]
fn a_direct_tail_call_is_a_branch_that_does_nothing_yet() {
    let text = "r2 = map[0] ll\nr3 = 5\ncall 12\nr0 = 7\nexit";
    let lines = ["tbnz w23, #6, #16", "add x23, x23, #1", "nop", "sub x23, x23, #1", "mov w0, #7", "ret"];
    assert_eq!(tail_call(text, Some(5), false), canonical(&lines));
    let text = "r6 = r1\nr2 = map[0] ll\nr3 = 5\ncall 12\nr0 = r6\nexit";
    let lines = ["str x19, [sp, #-16]!", "mov x19, x0", "nop", "mov x0, x19", "ldr x19, [sp], #16", "ret"];
    assert_eq!(tail_call(text, Some(5), false), canonical(&lines));
}

#[test]
fn tail_calls_through_the_table_test_count_and_leave() {
    let text = "r2 = map[0] ll\nr3 = 5\ncall 12\nr0 = 7\nexit";
    let known = tail_call(text, Some(5), true);
    let lines = ["ldr x16, [x16]", "cbz x16, #16", "tbnz w23, #6, #12", "add x23, x23, #1", "br x16"];
    assert_eq!(known[known.len() - 7..known.len() - 2], canonical(&lines), "{known:?}");
    let found = tail_call("r2 = map[0] ll\nr3 = r4\ncall 12\nr0 = 7\nexit", None, false);
    assert_eq!(found[1..2], canonical(&["cmp w2, #8"]), "{found:?}");
    assert!(found.iter().any(|line| *line == foreign::canonical("ldr x16, [x17, w2, uxtw #3]")), "{found:?}");
}
