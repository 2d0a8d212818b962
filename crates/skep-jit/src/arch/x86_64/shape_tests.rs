//! The shape of code: all of it decodes, and it is as short as intended.

use super::X86_64;
use crate::Options;
use crate::arch::tests::{MIXED, Program};
use crate::port::Home;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, IntelFormatter, Mnemonic};

const ADDRESS: u64 = 0x7000_0000_0040;

fn code(program: &Program) -> Vec<u8> {
    program.code::<X86_64>(&Home::anywhere(), ADDRESS).0
}

fn listing(text: &str) -> Vec<String> {
    disassemble(&code(&Program::new(text)))
}

fn disassemble(code: &[u8]) -> Vec<String> {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_branch_leading_zeros(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_space_after_operand_separator(true);
    Decoder::with_ip(64, code, 0, DecoderOptions::NONE)
        .iter()
        .map(|insn| {
            let mut line = String::new();
            formatter.format(&insn, &mut line);
            line
        })
        .collect()
}

/// Expects that code of a program whose last result is needed.
#[track_caller]
fn expect(text: &str, lines: &[&str]) {
    let (result, _) = text.lines().last().and_then(|line| line.split_once(' ')).expect("an assignment");
    let result = result.replace('w', "r");
    let keep = if result == "r0" { String::new() } else { format!("*(u64 *)(r9 + 0) = {result}\n") };
    let mut got = listing(&format!("{text}\n{keep}exit"));
    assert_eq!(got.pop().as_deref(), Some("ret"));
    if result != "r0" {
        assert!(got.pop().expect("a store").starts_with("mov [r15], "), "{got:?}");
    }
    assert_eq!(got, lines, "{text}");
}

#[test]
fn constants_take_the_shortest_form() {
    expect("r1 = 0", &["xor edi, edi"]);
    expect("r1 = 5", &["mov edi, 5"]);
    expect("r5 = -1", &["mov r8, 0xFFFFFFFFFFFFFFFF"]);
    expect("r5 = 4294967295 ll", &["mov r8d, 0xFFFFFFFF"]);
    expect("r1 = 0x123456789a ll", &["mov rdi, 0x123456789A"]);
    assert_eq!(code(&Program::new("r0 = -1\nexit")).len(), 8);
}

#[test]
fn small_steps_take_the_shortest_form() {
    expect("r1 += 1", &["inc rdi"]);
    expect("w1 -= 1", &["dec edi"]);
    expect("r1 += 128", &["sub rdi, 0xFFFFFFFFFFFFFF80"]);
    expect("r0 += 1000", &["add rax, 0x3E8"]);
    assert_eq!(code(&Program::new("w0 += 1000\nexit")).len(), 6);
    expect("r1 ^= -1", &["not rdi"]);
    expect("r1 *= 8", &["shl rdi, 3"]);
    expect("r1 *= 5", &["lea rdi, [rdi+rdi*4]"]);
    expect("r1 /= 16", &["shr rdi, 4"]);
    expect("r1 %= 16", &["and edi, 0xF"]);
    expect("r1 &= 255", &["movzx edi, dil"]);
}

#[test]
fn moves_and_additions_are_folded() {
    expect("r1 = r2\nr1 += 4", &["lea rdi, [rsi+4]"]);
    expect("r1 = r2\nr1 += r3", &["lea rdi, [rsi+rdx]"]);
    expect("r1 = r7\nr1 += r3", &["lea rdi, [rdx+r13]"]);
    expect("w1 = w2\nw1 += -1", &["lea edi, [rsi-1]"]);
    expect("r1 = r2\nr1 &= 255", &["movzx edi, sil"]);
}

#[test]
fn addresses_rotations_and_operands_in_memory_take_one_instruction() {
    expect("r4 = r1\nr4 += r3\nr5 = *(u8 *)(r4 + 0)", &["movzx r8d, byte ptr [rdi+rdx]"]);
    expect("r3 = r6\nr3 <<= 2\nr1 = r9\nr1 += r3", &["lea rdi, [r15+rbx*4]"]);
    expect("r4 = *(u32 *)(r2 + 4)\nw3 += w4", &["add edx, [rsi+4]"]);
    expect("r5 = r3\nr5 >>= 51\nr3 <<= 13\nr3 |= r5", &["rol rdx, 0xD"]);
    expect("r1 <<= 56\nr1 >>= 56", &["movzx edi, dil"]);
    expect("r1 <<= 56\nr1 s>>= 56", &["movsx rdi, dil"]);
    let lines = listing("r0 = 1\nr1 &= 8\nif r1 == 0 goto out\nr0 = 2\nout: exit");
    assert_eq!(lines[1..3], ["test dil, 8", "je short 0x10"]);
}

#[test]
fn nothing_is_extended_twice() {
    expect("r0 = *(u32 *)(r1 + 0)\nw0 = w0", &["mov eax, [rdi]"]);
    expect("w0 = 5\nw0 += w1\nw0 = w0\nr0 <<= 32\nr0 >>= 32", &["mov eax, 5", "add eax, edi"]);
    expect("r0 = *(u8 *)(r1 + 0)\nr0 &= 255", &["movzx eax, byte ptr [rdi]"]);
    expect("r0 = *(u16 *)(r1 + 0)\nr0 = be16 r0", &["movzx eax, word ptr [rdi]", "rol ax, 8"]);
    expect("r0 = be16 r0", &["bswap eax", "shr eax, 0x10"]);
    expect("r0 = r1\nw0 = w0", &["mov rax, rdi", "mov eax, eax"]);
}

#[test]
fn operations_on_short_numbers_are_short() {
    expect("r0 = *(u16 *)(r1 + 0)\nr2 = r0\nr2 += r0", &["movzx eax, word ptr [rdi]", "lea rsi, [rax+rax]"]);
    expect("r0 = *(u16 *)(r1 + 0)\nr0 += 4", &["movzx eax, word ptr [rdi]", "add eax, 4"]);
    expect("r0 = *(u16 *)(r1 + 0)\nr2 = r0", &["movzx eax, word ptr [rdi]", "mov esi, eax"]);
}

#[test]
fn comparisons_take_the_shortest_form() {
    let condition = |text: &str| {
        let lines = listing(&format!("{text} goto out\nr0 = 1\nout: exit"));
        lines[..2].join("; ").replace("short ", "")
    };
    assert_eq!(condition("if r1 == 0"), "test rdi, rdi; je 0xA");
    assert_eq!(condition("if w1 s< 0"), "test edi, edi; jl 9");
    assert_eq!(condition("if r1 > 5"), "cmp rdi, 5; ja 0xB");
    assert_eq!(condition("if r1 & 128"), "test dil, 0x80; jne 0xB");
    assert_eq!(condition("if r1 & 256"), "test edi, 0x100; jne 0xD");
    assert_eq!(condition("if r1 & -256"), "test rdi, 0xFFFFFFFFFFFFFF00; jne 0xE");
}

#[test]
fn functions_save_only_what_they_use() {
    expect("r0 = 1", &["mov eax, 1"]);
    expect("r6 = 1\nr0 = r6", &["push rbx", "mov ebx, 1", "mov eax, ebx", "pop rbx"]);
    let leaf = Program::new("*(u64 *)(r10 - 8) = 1\nr0 = 0\nexit").stack(128);
    assert_eq!(
        disassemble(&code(&leaf)),
        ["push rbp", "mov rbp, rsp", "mov qword ptr [rbp-8], 1", "xor eax, eax", "pop rbp", "ret"]
    );
}

#[test]
fn leaves_reserve_what_does_not_fit_the_red_zone() {
    let leaf = |bytes| {
        let program = Program::new("*(u64 *)(r10 - 8) = 1\nr0 = 0\nexit").stack(bytes);
        disassemble(&code(&program)).into_iter().any(|line| line.starts_with("sub rsp"))
    };
    assert!(!leaf(128));
    assert!(leaf(136));
}

#[test]
fn exits_that_restore_nothing_are_not_jumped_to() {
    let lines = listing("r0 = 0\nif r1 == 1 goto a\nexit\na: r0 = 1\nexit");
    assert_eq!(lines.iter().filter(|line| *line == "ret").count(), 2, "{lines:?}");
}

#[test]
fn innermost_loops_begin_with_a_line_or_its_half() {
    let body = "r2 = *(u64 *)(r1 + 1000)\n".repeat(12);
    let mut moved = 0;
    for before in 0..64 {
        let start = "w0 += 1000\n".repeat(before);
        let text = format!(
            "w0 = 0\n{start}outer: w3 = 5\ninner: w3 += -1\n{body}if w3 != 0 goto inner\nw0 += -1\nif w0 != 0 goto outer\nexit"
        );
        let program = Program::new(&text);
        let (_, offsets) = program.code::<X86_64>(&Home::anywhere(), ADDRESS);
        let head = offsets[before + 2];
        // Straight after `mov r3, 5`, or moved to a place that is worth it.
        let fragment = head - offsets[before + 1] - 5;
        assert!(fragment <= 21 && (fragment == 0 || head.is_multiple_of(32)), "{head:#x} {fragment}");
        moved += u32::from(fragment > 0);
    }
    assert!(moved > 20);
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
    assert_eq!(lines.iter().filter(|line| *line == "ret").count(), 1, "{lines:?}");
}

#[test]
fn all_code_decodes_and_instructions_begin_where_the_table_says() {
    for home in [Home::anywhere(), Home::within(ADDRESS..ADDRESS + 4096)] {
        let program = Program::new(MIXED);
        let (code, offsets) = program.code::<X86_64>(&home, ADDRESS);
        let mut starts = Vec::new();
        for insn in &mut Decoder::with_ip(64, &code, ADDRESS, DecoderOptions::NONE) {
            assert_ne!(insn.mnemonic(), Mnemonic::INVALID);
            starts.push((insn.ip() - ADDRESS) as u32);
            if matches!(
                insn.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            ) {
                let target = insn.near_branch_target().wrapping_sub(ADDRESS);
                assert!(target < code.len() as u64);
            }
        }
        starts.push(code.len() as u32);
        for (slot, offset) in offsets.iter().enumerate() {
            assert!(starts.contains(offset), "slot {slot} is in the middle of an instruction");
        }
        assert!(offsets.is_sorted());
        assert_eq!(offsets.last(), Some(&(code.len() as u32)));
    }
}

#[test]
fn instructions_are_counted_as_they_are_decoded() {
    let far = format!("if r1 == 1 goto out\n{}out: exit", "r3 %= 7\n".repeat(40));
    let inner = |before| {
        let start = "r3 += 1000\n".repeat(before);
        let body = "r2 = *(u64 *)(r1 + 1000)\n".repeat(12);
        format!("w0 = 5\n{start}next: w0 += -1\n{body}r3 += r2\nif w0 != 0 goto next\nr0 = r3\nexit")
    };
    let texts = [MIXED.to_owned(), far, "goto +0\nr0 = 1\nexit".to_owned()];
    let mut padded = false;
    for text in texts.into_iter().chain((0..16).map(inner)) {
        let emitted = Program::new(&text)
            .emit::<X86_64>(Options::default(), &Home::anywhere(), ADDRESS)
            .expect("compiles");
        let decoded = Decoder::with_ip(64, &emitted.bytes, ADDRESS, DecoderOptions::NONE);
        let (nops, others): (Vec<_>, Vec<_>) =
            decoded.into_iter().partition(|insn| insn.mnemonic() == Mnemonic::Nop);
        assert_eq!(emitted.instructions as usize, others.len(), "{text}");
        padded |= !nops.is_empty();
    }
    assert!(padded, "no program had padding");
}

/// Of a program with a tail call, behind the entry for hosts.
fn tail_call(text: &str, key: Option<u32>, fixed: bool) -> Vec<String> {
    let program = Program::new(text).with_tail_calls(key);
    let lines = disassemble(&code(&if fixed { program.fixed() } else { program }));
    assert_eq!(lines[..2], ["push r12", "lea r12, [rdx+0x1F]"]);
    assert_eq!(lines[3..5], ["pop r12", "ret"]);
    lines[5..].to_vec()
}

#[test]
fn a_direct_tail_call_is_a_branch_that_does_nothing_yet() {
    let text = "r2 = map[0] ll\nr3 = 5\ncall 12\nr0 = 7\nexit";
    let nothing_to_undo = tail_call(text, Some(5), false);
    let lines = ["test r12b, 0x40", "jne short 0x24", "add r12, 1", "nop [rax+rax]", "sub r12, 1"];
    let without_padding: Vec<_> = nothing_to_undo.iter().filter(|line| *line != "nop [rax]").collect();
    assert_eq!(without_padding[..5], lines.each_ref(), "{nothing_to_undo:?}");

    let framed = tail_call("r6 = r1\nr2 = map[0] ll\nr3 = 5\ncall 12\nr0 = r6\nexit", Some(5), false);
    assert_eq!(framed[..2], ["push rbx", "mov rbx, rdi"], "{framed:?}");
    let site = framed.iter().position(|line| line == "nop [rax+rax]").expect("a site");
    assert_eq!(framed[site + 1..], ["mov rax, rbx", "pop rbx", "ret"]);
}

#[test]
fn tail_calls_through_the_table_test_count_and_leave() {
    let text = "r2 = map[0] ll\nr3 = 5\ncall 12\nr0 = 7\nexit";
    let count = ["test r12b, 0x40", "jne short", "add r12, 1", "jmp r11", "mov eax, 7", "ret"];
    let known = tail_call(text, Some(5), true);
    let lines = ["mov r11, 0x600000000028", "mov r11, [r11]", "test r11, r11", "je short"];
    let starts = |lines: &[String], with: &[&str]| {
        lines.len() == with.len() && lines.iter().zip(with).all(|(line, with)| line.starts_with(with))
    };
    assert!(starts(&known, &[&lines[..], &count[..]].concat()), "{known:?}");

    let found = tail_call("r2 = map[0] ll\nw3 = w4\ncall 12\nr0 = 7\nexit", None, false);
    let lines =
        ["mov edx, ecx", "cmp edx, 8", "jae short", "mov r10, 0x600000000000", "mov r11, [r10+rdx*8]"];
    let lines = [&lines[..], &["test r11, r11", "je short"], &count[..]].concat();
    assert!(starts(&found, &lines), "{found:?}");
}
