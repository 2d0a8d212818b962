//! LLVM reads a sample of the other tests' encodings: with the same lengths and text as the disassembler that checks
//! all of them.

use std::cell::RefCell;
use std::collections::HashMap;

use iced_x86::{FormatMnemonicOptions, Formatter, IntelFormatter, MemorySizeOptions, NumberBase};

use super::*;
use crate::arch::llvm;

/// Instructions that the tests of one thread encode.
#[derive(Default)]
struct Sample {
    seen: HashMap<Code, u64>,
    kept: Vec<(Instruction, Vec<u8>)>,
    random: u64,
}

thread_local! {
    /// Empty unless a sample is requested.
    static SAMPLE: RefCell<Option<Sample>> = const { RefCell::new(None) };
}

/// Keeps the first of each kind, and one in 256 of the others.
pub(super) fn record(insn: &Instruction, code: &[u8]) {
    SAMPLE.with_borrow_mut(|sample| {
        let Some(sample) = sample else { return };
        let seen = sample.seen.entry(insn.code()).or_default();
        *seen += 1;
        sample.random = sample.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        if *seen <= 16 || sample.random >> 56 == 0 {
            sample.kept.push((*insn, code.to_vec()));
        }
    });
}

/// The disassembler's text, in LLVM's style.
fn text(insn: &Instruction) -> String {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_space_between_memory_add_operators(true);
    options.set_memory_size_options(MemorySizeOptions::Always);
    options.set_number_base(NumberBase::Decimal);
    options.set_scale_before_index(true);
    options.set_use_pseudo_ops(false);
    let mut text = String::new();
    if insn.op0_kind() == OpKind::NearBranch64 {
        // LLVM does not know the address.
        formatter.format_mnemonic_options(insn, &mut text, FormatMnemonicOptions::NO_PREFIXES);
        return format!("{text} {}", insn.near_branch_target().wrapping_sub(insn.next_ip()) as i64);
    }
    formatter.format(insn, &mut text);
    text
}

/// Text in a common form.
fn normal(text: &str, insn: &Instruction) -> String {
    // Two names for one instruction.
    let text = text.replace("movabs ", "mov ").replace("xchg ax, ax", "nop");
    // Immediates are signed or unsigned, and a shift count of one is omitted.
    let Some((rest, last)) = text.rsplit_once(", ") else { return text };
    let Ok(value) = last.parse::<i128>() else { return text };
    let size = match insn.op0_register() {
        Register::None => insn.memory_size().size(),
        register => register.size(),
    };
    let value = value as u64 & u64::MAX >> (64 - 8 * size);
    let shifts = matches!(insn.mnemonic(), Mnemonic::Rol | Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar);
    if shifts && value == 1 { rest.into() } else { format!("{rest}, {value}") }
}

#[test]
fn llvm_reads_the_same_instructions_in_a_sample() {
    SAMPLE.set(Some(Sample::default()));
    moves_between_registers();
    moves_of_constants_are_the_shortest();
    arithmetic_between_registers();
    arithmetic_with_constants();
    tests_with_constants_test_the_intended_bits();
    arithmetic_with_one_operand();
    shifts_and_rotates();
    three_operand_shifts_rotates_and_multiplications();
    addresses();
    loads();
    arithmetic_with_memory();
    stores();
    atomic_instructions();
    pushes_pops_and_calls();
    jumps();
    padding_is_one_instruction_of_its_length();
    let Sample { kept, seen, .. } = SAMPLE.take().expect("set above");
    assert!(seen.len() > 150 && kept.len() > 5000, "{} of {} kinds", kept.len(), seen.len());
    // A trap after each: an instruction of another length would include it, or leave bytes before it.
    let hex = |code: &[u8]| code.iter().map(|byte| format!("{byte:#04x} ")).collect::<String>() + "0xcc\n";
    let input = kept.iter().map(|(_, code)| hex(code)).collect();
    let flags = ["-disassemble", "-triple=x86_64", "-output-asm-variant=1"];
    let Some(lines) = llvm::lines("the x86-64 encoders", &flags, input) else { return };
    let mut theirs = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    for (insn, code) in &kept {
        let mut line = theirs.next().expect("a line for each");
        if line == "lock" {
            line = format!("lock {}", theirs.next().expect("what is locked"));
        }
        assert_eq!(normal(&line, insn), normal(&text(insn), insn), "{code:x?}");
        assert_eq!(theirs.next().as_deref(), Some("int3"), "the end of {line}");
    }
    assert_eq!(theirs.next(), None);
}
