//! The code that [`Options`] add, and its place.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use super::X86_64;
use crate::Options;
use crate::arch::tests::{HARDENED, Program};
use crate::port::Home;

/// A function that calls a leaf function.
const CALLS: &str = "r6 = r1\ncall f\nr0 += r6\nexit\nf: r0 = r1\nexit";
const LEAF: &str = "r0 = r1\nexit";

fn mnemonics(text: &str, options: Options) -> Vec<Mnemonic> {
    let code = Program::new(text).emit::<X86_64>(options, &Home::anywhere(), 0x1000).expect("compiles");
    let decoder = Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE);
    decoder.into_iter().map(|insn| insn.mnemonic()).collect()
}

#[test]
fn landing_pads_are_at_the_programs_entry_and_nowhere_else() {
    let options = Options { landing_pads: true, ..Options::default() };
    for text in [CALLS, LEAF] {
        let (plain, padded) = (mnemonics(text, Options::default()), mnemonics(text, options));
        assert_eq!(padded[0], Mnemonic::Endbr64);
        assert_eq!(padded[1..], plain);
        assert!(!plain.contains(&Mnemonic::Endbr64));
    }
}

#[test]
fn nothing_signs_returns_here() {
    let options = Options { signed_returns: true, ..Options::default() };
    for text in [CALLS, LEAF] {
        assert_eq!(mnemonics(text, options), mnemonics(text, Options::default()));
        let pads = Options { landing_pads: true, ..Options::default() };
        assert_eq!(mnemonics(text, HARDENED), mnemonics(text, pads));
    }
}
