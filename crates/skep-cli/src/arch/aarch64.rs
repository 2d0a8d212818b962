//! aarch64, in the syntax of the Arm Architecture Reference Manual.

use super::Insn;
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction, Opcode, Operand};

/// [`super::Disassembler`]. Invalid words and trailing bytes are printed as data.
pub(crate) fn disassemble(code: &[u8], address: u64) -> Vec<Insn> {
    let decoder = InstDecoder::default();
    let mut lines = Vec::with_capacity(code.len() / 4);
    for (index, bytes) in code.chunks(4).enumerate() {
        let at = 4 * index as u64;
        let text = match (decoder.decode(&mut U8Reader::new(bytes)), <[u8; 4]>::try_from(bytes)) {
            (Ok(insn), _) => read(&insn, address.wrapping_add(at)),
            (Err(_), Ok(word)) => format!(".inst {:#010x}", u32::from_le_bytes(word)),
            (Err(_), Err(_)) => {
                let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
                format!(".byte {}", bytes.join(", "))
            }
        };
        lines.push(Insn { at, text });
    }
    lines
}

/// The crate prints distances, `$+0x10`, and numbers in place of the names of landing-pad hints.
fn read(insn: &Instruction, address: u64) -> String {
    let text = insn.to_string();
    for (number, name) in [("0x20", "bti"), ("0x22", "bti c"), ("0x24", "bti j"), ("0x26", "bti jc")] {
        if text.strip_prefix("hint #") == Some(number) {
            return name.to_owned();
        }
    }
    let offset = insn.operands.iter().find_map(|operand| match operand {
        Operand::PCOffset(offset) => Some(*offset),
        _ => None,
    });
    let (Some(offset), Some((before, rest))) = (offset, text.split_once('$')) else { return text };
    let after = rest.split_once(',').map(|(_, after)| format!(",{after}")).unwrap_or_default();
    let base = if insn.opcode == Opcode::ADRP { address & !0xfff } else { address };
    format!("{before}{:#x}{after}", base.wrapping_add_signed(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = 0x7f00_0000_1ff8;

    /// Encodings from LLVM's assembler.
    const WORDS: [(u32, &str); 24] = [
        (0xd503_245f, "bti c"),
        (0xd503_249f, "bti j"),
        (0xd503_233f, "paciasp"),
        (0xa9be_7bfd, "stp x29, x30, [sp, #-0x20]!"),
        (0x9100_03fd, "mov x29, sp"),
        (0xd2a2_4681, "mov x1, #0x12340000"),
        (0xf28a_cf01, "movk x1, #0x5678"),
        (0x8b02_0c20, "add x0, x1, x2, lsl #3"),
        (0x9240_7c00, "and x0, x0, #0xffffffff"),
        (0x9ac2_0820, "udiv x0, x1, x2"),
        (0x1b02_8c20, "msub w0, w1, w2, w3"),
        (0x9a82_1020, "csel x0, x1, x2, ne"),
        (0xf85f_8020, "ldur x0, [x1, #-0x8]"),
        (0x3862_6820, "ldrb w0, [x1, x2]"),
        (0xf8e0_0041, "ldaddal x0, x1, [x2]"),
        (0xc85f_fc20, "ldaxr x0, [x1]"),
        (0xb400_0080, "cbz x0, 0x7f0000002008"),
        (0xb608_0040, "tbz x0, #0x21, 0x7f0000002000"),
        (0x17ff_fffc, "b 0x7f0000001fe8"),
        (0x54ff_ff81, "b.ne 0x7f0000001fe8"),
        (0x9400_0100, "bl 0x7f00000023f8"),
        (0x1000_0060, "adr x0, 0x7f0000002004"),
        (0xb000_0000, "adrp x0, 0x7f0000002000"),
        (0xd65f_03c0, "ret"),
    ];

    fn texts(code: &[u8]) -> Vec<(u64, String)> {
        disassemble(code, ADDRESS).into_iter().map(|insn| (insn.at, insn.text)).collect()
    }

    #[test]
    fn instructions_decode_and_branches_name_addresses() {
        for (word, meant) in WORDS {
            assert_eq!(texts(&word.to_le_bytes()), [(0, meant.to_owned())], "{word:#010x}");
        }
    }

    #[test]
    fn addresses_are_relative_to_each_instruction() {
        let branch = 0x1400_0002_u32.to_le_bytes();
        let expected = [(0, "b 0x7f0000002000"), (4, "b 0x7f0000002004")];
        assert_eq!(texts(&[branch, branch].concat()), expected.map(|(at, text)| (at, text.to_owned())));
    }

    #[test]
    fn invalid_words_are_printed_as_data() {
        let code = [&0xffff_ffff_u32.to_le_bytes()[..], &[0x1f, 0x20]].concat();
        let expected = [(0, ".inst 0xffffffff"), (4, ".byte 0x1f, 0x20")];
        assert_eq!(texts(&code), expected.map(|(at, text)| (at, text.to_owned())));
        assert_eq!(texts(&[]), []);
    }
}
