//! A foreign disassembler's reading.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::Word;

pub(super) fn read(word: Word) -> String {
    let bytes = word.0.to_le_bytes();
    let insn = InstDecoder::default().decode(&mut U8Reader::new(&bytes));
    let insn = insn.unwrap_or_else(|error| panic!("{:08x}: {error}", word.0));
    format!("{:?} {:?}", insn.opcode, insn.operands)
}

pub(super) fn canonical(text: &str) -> String {
    text.into()
}
