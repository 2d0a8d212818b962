//! The code that [`Options`] add, and its place.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use super::X86_64;
use crate::Options;
use crate::arch::tests::{HARDENED, Program, RELOADS, UNTRUSTED};
use crate::port::Home;

/// A function that calls a leaf function.
const CALLS: &str = "r6 = r1\ncall f\nr0 += r6\nexit\nf: r0 = r1\nexit";
const LEAF: &str = "r0 = r1\nexit";

fn mnemonics(text: &str, options: Options) -> Vec<Mnemonic> {
    mnemonics_of(&Program::new(text), options)
}

fn mnemonics_of(program: &Program, options: Options) -> Vec<Mnemonic> {
    let code = program.emit::<X86_64>(options, &Home::anywhere(), 0x1000).expect("compiles");
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

#[test]
fn reloads_wait_once_for_the_stores_before_them() {
    let options = Options { order_reloads: true, ..Options::default() };
    let (text, slots) = RELOADS;
    let plain = mnemonics(text, Options::default());
    let waits = |slots| mnemonics_of(&Program::new(text).reloading(slots), options);
    assert_eq!(waits(&[]), plain, "nothing is known of what is loaded");
    let waiting = waits(slots);
    let fences: Vec<usize> = (0..waiting.len()).filter(|&at| waiting[at] == Mnemonic::Lfence).collect();
    assert_eq!(fences.len(), 2, "{waiting:?}");
    for at in fences {
        assert_eq!(waiting[at + 1], Mnemonic::Mov, "{waiting:?}");
    }
    let rest: Vec<Mnemonic> = waiting.into_iter().filter(|mnemonic| *mnemonic != Mnemonic::Lfence).collect();
    assert_eq!(rest, plain);
}

#[test]
fn no_jump_or_call_goes_through_a_register_where_retpolines_are_asked_for() {
    let programs = [
        Program::new("call 7\nr0 = 1\nexit").helpers(&[(7, crate::arch::tests::far_helper)]),
        Program::new("r2 = map[0] ll\nr3 = 5\ncall 12\nr0 = 0\nexit").with_tail_calls(None),
        Program::new("r2 = map[0] ll\nr3 = 5\ncall 12\nr0 = 0\nexit").with_tail_calls(Some(3)).fixed(),
    ];
    for program in programs {
        let indirect = |options: Options| {
            // Nothing is in reach.
            let home = Home::within(0x7000_0000_0000_0000..0x7000_0000_0010_0000);
            let code = program.emit::<X86_64>(options, &home, 0x7000_0000_0000_0000).expect("compiles");
            let insns = Decoder::with_ip(64, &code.bytes, 0, DecoderOptions::NONE).into_iter();
            insns.filter(|insn| insn.is_call_near_indirect() || insn.is_jmp_near_indirect()).count()
        };
        assert_eq!((indirect(Options::default()), indirect(UNTRUSTED)), (1, 0));
    }
}
