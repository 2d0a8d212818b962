//! The code that [`Options`] add, its place, and that signatures are checked.

use super::Aarch64;
use super::encode::{self, Word};
use crate::Options;
use crate::arch::tests::{HARDENED, Program, RELOADS};
use crate::port::Home;

/// A function that calls a leaf function.
const CALLS: &str = "r6 = r1\ncall f\nr0 += r6\nexit\nf: r0 = r1\nexit";
const LEAF: &str = "r0 = r1\nexit";

const PADS: Options = Options { landing_pads: true, signed_returns: false, ..HARDENED };
const SIGNED: Options = Options { landing_pads: false, signed_returns: true, ..HARDENED };

fn words(text: &str, options: Options) -> Vec<Word> {
    let code = Program::new(text).emit::<Aarch64>(options, &Home::anywhere(), 0x1000).expect("compiles");
    code.bytes.chunks(4).map(|word| Word(u32::from_le_bytes(word.try_into().expect("whole words")))).collect()
}

/// Without calls and jumps: their distances differ.
fn without(words: &[Word], removed: &[Word]) -> Vec<Word> {
    let is_call = |word: &Word| word.0 >> 26 == encode::bl(0).0 >> 26;
    words.iter().copied().filter(|word| !removed.contains(word) && !is_call(word)).collect()
}

#[test]
fn landing_pads_are_at_the_programs_entry_and_nowhere_else() {
    for text in [CALLS, LEAF] {
        let (plain, padded) = (words(text, Options::default()), words(text, PADS));
        assert_eq!(padded[0], encode::bti_c());
        assert_eq!(padded[1..], plain);
        assert!(!plain.contains(&encode::bti_c()));
    }
}

#[test]
fn saved_return_addresses_are_signed_and_checked() {
    let (plain, signed) = (words(CALLS, Options::default()), words(CALLS, SIGNED));
    let (sign, check) = (encode::paciasp(), encode::autiasp());
    assert!(!plain.contains(&sign) && !plain.contains(&check));
    // Before it is stored, and after it was loaded: the last thing before the return.
    assert_eq!(signed[0], sign);
    let end = signed.iter().position(|word| *word == encode::ret()).expect("a return");
    assert_eq!(signed[end - 1], check);
    // Once each: a leaf function keeps its return address in its register only.
    assert_eq!(signed.iter().filter(|word| [sign, check].contains(word)).count(), 2);
    assert_eq!(without(&signed, &[sign, check]), without(&plain, &[]));
    assert_eq!(words(LEAF, SIGNED), words(LEAF, Options::default()));
}

#[test]
fn a_signature_is_a_landing_pad_too() {
    assert_eq!(words(CALLS, HARDENED), words(CALLS, SIGNED));
    assert_eq!(words(LEAF, HARDENED), words(LEAF, PADS));
}

#[test]
fn reloads_wait_once_for_the_stores_before_them() {
    let options = Options { order_reloads: true, ..Options::default() };
    let (text, slots) = RELOADS;
    let program = Program::new(text).reloading(slots);
    let code = program.emit::<Aarch64>(options, &Home::anywhere(), 0x1000).expect("compiles").bytes;
    let emitted: Vec<u32> =
        code.chunks(4).filter_map(|word| Some(u32::from_le_bytes(word.try_into().ok()?))).collect();
    let is_barrier = |word: &&u32| **word == encode::ssbb().0;
    assert_eq!(emitted.iter().filter(is_barrier).count(), 2);
    let rest: Vec<Word> = emitted.iter().filter(|word| !is_barrier(word)).map(|&word| Word(word)).collect();
    assert_eq!(rest, words(text, Options::default()));
}

#[cfg(target_arch = "aarch64")]
mod checked {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::Compiled;
    use crate::arch::tests::NEAR;
    use crate::arch::{detect, testing};

    /// Copies of a program.
    fn copies(program: &Program, options: Options) -> [Compiled; 4] {
        std::array::from_fn(|_| program.compile_with(detect(), options, &NEAR).expect("compiles"))
    }

    /// Runs a program in a child process. Returns the signal that killed it, if one did.
    fn dies_of(program: &Compiled) -> Option<i32> {
        let entry = program.entry();
        let run = || {
            // SAFETY: the program takes nothing. What its helper does to its return address ends this process.
            let result = unsafe { entry.call(0, 0, std::ptr::null_mut()) };
            (result != 1).into()
        };
        // SAFETY: the child calls nothing but compiled code and a function in assembly.
        let status = unsafe { skep_testkit::in_a_child(run) };
        assert!(status.success() || status.signal().is_some(), "{status}");
        status.signal()
    }

    #[test]
    fn a_return_address_that_was_changed_ends_the_process() {
        if !std::arch::is_aarch64_feature_detected!("paca") {
            return skep_testkit::skip("signed returns", "this processor has no pointer authentication");
        }
        let calling = |helper| Program::new("call 7\nr0 = 1\nexit").helpers(&[(7, helper)]);
        // An attacker can write addresses without signatures.
        let program = calling(testing::UNSIGN);
        assert_eq!(copies(&program, Options::default()).each_ref().map(dies_of), [None; 4], "nobody looks");
        // One in thousands of signatures is all zeroes.
        let signals = copies(&program, SIGNED).each_ref().map(dies_of);
        let signals: Vec<i32> = signals.into_iter().flatten().collect();
        assert!(signals.len() >= 3, "{signals:?}");
        assert!(signals.iter().all(|signal| [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS].contains(signal)));
        assert_eq!(copies(&calling(testing::ALIGNED), SIGNED).each_ref().map(dies_of), [None; 4]);
    }
}
