//! x86-64, in the syntax of Intel's and AMD's manuals.

use super::Insn;
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

/// [`super::Disassembler`]. Bytes that do not begin an instruction are printed as `(bad)`.
pub(crate) fn disassemble(code: &[u8], address: u64) -> Vec<Insn> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let insn = decoder.decode();
        let mut text = String::new();
        formatter.format(&insn, &mut text);
        lines.push(Insn { at: insn.ip() - address, text });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &[u8]) -> Vec<(u64, String)> {
        disassemble(code, 0x7f00_0000_0000).into_iter().map(|insn| (insn.at, insn.text)).collect()
    }

    #[test]
    fn instructions_decode_and_branches_name_addresses() {
        // endbr64; push rbp; mov rax, [rdi+8]; jne -8; ret
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x8b, 0x47, 0x08, 0x75, 0xf8, 0xc3];
        let expected = [
            (0, "endbr64"),
            (4, "push rbp"),
            (5, "mov rax, [rdi+8]"),
            (9, "jne short 00007F0000000003h"),
            (11, "ret"),
        ];
        assert_eq!(texts(&code), expected.map(|(at, text)| (at, text.to_owned())));
    }

    #[test]
    fn invalid_bytes_are_printed_as_bad() {
        // The second one is truncated.
        assert_eq!(texts(&[0xcc, 0x06, 0x48, 0x8b]).last().unwrap().1, "(bad)");
        assert_eq!(texts(&[]), []);
    }
}
