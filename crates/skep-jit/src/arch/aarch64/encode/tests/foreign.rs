//! The output of an independent disassembler as assembly without aliases, and the conversion of any assembly to that
//! form.
//!
//! Many instructions have two names, such as `lsl x0, x1, #3` for `ubfm x0, x1, #61, #60`. This module converts both
//! sides of a comparison to the second form. LLVM, which assembles the first form, checks that both names mean the
//! same.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand, ShiftStyle, SizeCode};

use super::Word;
use super::cases::CONDITIONS;

/// The word as the disassembler's assembly text.
pub(in crate::arch::aarch64) fn read(word: Word) -> String {
    let bytes = word.0.to_le_bytes();
    let insn = InstDecoder::default().decode(&mut U8Reader::new(&bytes));
    let insn = insn.unwrap_or_else(|error| panic!("{:08x}: {error}", word.0));
    let operands = insn.operands.iter().filter(|operand| **operand != Operand::Nothing);
    let operands: Vec<String> = operands.map(|operand| read_operand(&insn, operand)).collect();
    let (name, hidden) = read_name(&insn);
    if hidden { name } else { format!("{name} {}", operands.join(", ")).trim_end().into() }
}

/// The name, and whether it has no operands.
fn read_name(insn: &Instruction) -> (String, bool) {
    let ordered = |name: &str, order: u8| format!("{name}{}", ["", "?", "?", "al"][usize::from(order)]);
    let name = match insn.opcode {
        Opcode::Bcc(number) => format!("b.{}", condition(number)),
        Opcode::LDADD(order) => ordered("ldadd", order),
        Opcode::LDCLR(order) => ordered("ldclr", order),
        Opcode::LDEOR(order) => ordered("ldeor", order),
        Opcode::LDSET(order) => ordered("ldset", order),
        Opcode::SWP(order) => ordered("swp", order),
        Opcode::CAS(order) => ordered("cas", order),
        Opcode::DMB(0b1011) => return ("dmb ish".into(), true),
        Opcode::HINT => {
            let [Operand::ControlReg(high), Operand::Immediate(low), ..] = insn.operands else {
                panic!("{:?}", insn.operands)
            };
            let name = match high << 3 | low as u16 {
                0 => "nop",
                34 => "bti c",
                number => panic!("hint {number}"),
            };
            return (name.into(), true);
        }
        opcode => format!("{opcode:?}").to_lowercase(),
    };
    (name, false)
}

fn read_operand(insn: &Instruction, operand: &Operand) -> String {
    let base = |number: u16| Operand::RegisterOrSP(SizeCode::X, number);
    // Only additions of extended registers may use the stack pointer.
    let extends = matches!(insn.operands[0], Operand::RegisterOrSP(..));
    let moves = matches!(insn.opcode, Opcode::MOVZ | Opcode::MOVN | Opcode::MOVK);
    match *operand {
        Operand::Immediate(value) => format!("#{value}"),
        Operand::Imm16(value) => format!("#{value}"),
        Operand::Imm64(value) => format!("#{value}"),
        Operand::PCOffset(distance) => format!("#{distance}"),
        Operand::ImmShift(value, count) if moves => format!("#{value}, lsl #{count}"),
        Operand::ImmShift(value, count) => format!("#{}", u64::from(value) << count),
        Operand::RegShift(ShiftStyle::LSL, count, SizeCode::W, number) if extends => {
            format!("{}, uxtw #{count}", Operand::Register(SizeCode::W, number))
        }
        Operand::RegShift(ShiftStyle::LSL, 0, size, number) => Operand::Register(size, number).to_string(),
        Operand::RegShift(style, count, size, number) => {
            format!("{}, {style} #{count}", Operand::Register(size, number))
        }
        Operand::RegPreIndex(number, offset, written) => {
            format!("[{}, #{offset}]{}", base(number), if written { "!" } else { "" })
        }
        Operand::RegPostIndex(number, offset) => format!("[{}], #{offset}", base(number)),
        Operand::RegRegOffset(number, index, size, style, count) => {
            format!("[{}, {}, {style} #{count}]", base(number), Operand::Register(size, index))
        }
        ref other => other.to_string(),
    }
}

fn condition(number: u8) -> &'static str {
    CONDITIONS[usize::from(number)].1
}

/// Assembly without aliases.
pub(in crate::arch::aarch64) fn canonical(text: &str) -> String {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let ops: Vec<&str> = rest.split(", ").collect();
    let first = ops[0];
    // Properties of the other operands that follow from the first one's width.
    let wide = first.starts_with('x');
    let (width, zero) = if wide { (64, "xzr") } else { (32, "wzr") };
    let number = |at: usize| ops[at].trim_start_matches('#').parse::<u32>().expect("a number");
    let field = |name: &str, low: u32, high: u32| {
        let source = format!("{}{}", if wide { 'x' } else { 'w' }, &ops[1][1..]);
        format!("{name} {first}, {source}, #{low}, #{high}")
    };
    let up = |by: u32| (width - by) % width;
    match name {
        "lsl" => field("ubfm", up(number(2)), width - 1 - number(2)),
        "lsr" => field("ubfm", number(2), width - 1),
        "asr" => field("sbfm", number(2), width - 1),
        "ror" => format!("extr {first}, {}, {}, {}", ops[1], ops[1], ops[2]),
        "ubfx" => field("ubfm", number(2), number(2) + number(3) - 1),
        "sbfx" => field("sbfm", number(2), number(2) + number(3) - 1),
        "ubfiz" => field("ubfm", up(number(2)), number(3) - 1),
        "uxtb" => field("ubfm", 0, 7),
        "uxth" => field("ubfm", 0, 15),
        "sxtb" => field("sbfm", 0, 7),
        "sxth" => field("sbfm", 0, 15),
        "sxtw" => field("sbfm", 0, 31),
        "mvn" => format!("orn {first}, {zero}, {}", ops[1..].join(", ")),
        "neg" => format!("sub {first}, {zero}, {}", ops[1..].join(", ")),
        "tst" => format!("ands {zero}, {rest}"),
        "cmp" => format!("subs {zero}, {rest}"),
        "cmn" => format!("adds {zero}, {rest}"),
        "mov" if ops[1].starts_with('#') => format!("movz {rest}, lsl #0"),
        "mov" if ops.contains(&"sp") => format!("add {rest}, #0"),
        "mov" => format!("orr {first}, {zero}, {}", ops[1]),
        "mul" => format!("madd {rest}, {zero}"),
        "umull" => format!("umaddl {rest}, xzr"),
        "stadd" | "stclr" | "steor" | "stset" => {
            canonical(&format!("ld{} {first}, {zero}, {}", &name[2..], ops[1]))
        }
        "ret" => "ret x30".into(),
        _ => match rest.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            // Omitted offsets and shifts are zero.
            Some((_, place)) if !place.contains(',') => format!("{}, #0]", &text[..text.len() - 1]),
            Some((_, place)) if place.ends_with("xtw") => format!("{} #0]", &text[..text.len() - 1]),
            Some((_, place)) if !place.contains('#') => format!("{}, lsl #0]", &text[..text.len() - 1]),
            _ => text.into(),
        },
    }
}
