//! A fuzzer's bytes as programs, for the oracles of `testgen`.

use std::cell::RefCell;

use skep_isa::decode_bytes;
use skep_testgen::{Flavour, Host, Options, Source, TestProgram, iterated, mutated, structured, wild};

use skep_verifier::Verified;

use crate::common::{Lab, verified};

const FLAVOURS: [Flavour; 4] =
    [Flavour::Buffer { len: 64 }, Flavour::Buffer { len: 13 }, Flavour::Xdp, Flavour::Skb];

/// Contents that accepted programs are run over.
const INPUTS: u64 = 4;

thread_local! {
    static LABS: RefCell<[Lab; FLAVOURS.len()]> = RefCell::new(FLAVOURS.map(|flavour| Lab::new(Host::new(flavour))));
}

/// The first byte chooses what the program is given, the rest is up to the generator.
pub(crate) fn compare(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let options = Options::with_control(FLAVOURS[usize::from(*first) % FLAVOURS.len()]);
    run(&structured(&mut Source::from_bytes(rest), &options), Lab::agree);
}

/// The first byte chooses what the program is given, and whether the rest is its instructions, or what a
/// generator decides by: of programs that attack, of loops, or of accepted programs of which one instruction is then
/// changed.
pub(crate) fn attack(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let flavour = FLAVOURS[usize::from(*first) % FLAVOURS.len()];
    let options = Options::with_control(flavour);
    match first / 4 % 8 {
        0..=2 => return run(&wild(&mut Source::from_bytes(rest), &options), Lab::is_sound),
        3 => return run(&iterated(&mut Source::from_bytes(rest)), Lab::is_sound),
        4..=6 => return run(&mutated(&mut Source::from_bytes(rest), &options), Lab::is_sound),
        _ => {}
    }
    let whole = rest.len() / 8 * 8;
    if let Ok(insns) = decode_bytes(&rest[..whole]) {
        run(&TestProgram { insns, functions: vec![0], flavour }, Lab::is_sound);
    }
}

/// What an oracle says of an accepted program over so many inputs.
type Oracle = fn(&mut Lab, &TestProgram, &Verified, u64) -> Result<(), String>;

fn run(program: &TestProgram, oracle: Oracle) {
    let Some(at) = FLAVOURS.iter().position(|flavour| *flavour == program.flavour) else { return };
    let Ok(accepted) = verified(program) else { return };
    LABS.with_borrow_mut(|labs| {
        if let Err(reason) = oracle(&mut labs[at], program, &accepted, INPUTS) {
            panic!("{reason}\n{program}");
        }
    });
}
