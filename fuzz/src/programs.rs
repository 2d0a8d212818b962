//! A fuzzer's bytes as programs, for the oracles of `testgen`.

use std::cell::RefCell;

use skep_isa::decode_bytes;
use skep_testgen::{Flavour, Host, Options, Source, TestProgram, structured, wild};

use crate::common::{Lab, verified};

const FLAVOURS: [Flavour; 3] = [Flavour::Buffer { len: 64 }, Flavour::Buffer { len: 13 }, Flavour::Xdp];

/// Contents that accepted programs are run over.
const INPUTS: u64 = 4;

thread_local! {
    static LABS: RefCell<[Lab; 3]> = RefCell::new(FLAVOURS.map(|flavour| Lab::new(Host::new(flavour))));
}

/// The first byte chooses what the program is given, the rest is up to the generator.
pub(crate) fn compare(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let options = Options::all(FLAVOURS[usize::from(*first) % FLAVOURS.len()]);
    run(&structured(&mut Source::from_bytes(rest), &options));
}

/// The first byte chooses what the program is given, and whether the rest is its instructions.
pub(crate) fn attack(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let flavour = FLAVOURS[usize::from(*first) % FLAVOURS.len()];
    if *first < 128 {
        return run(&wild(&mut Source::from_bytes(rest), &Options::all(flavour)));
    }
    let whole = rest.len() / 8 * 8;
    if let Ok(insns) = decode_bytes(&rest[..whole]) {
        run(&TestProgram { insns, functions: vec![0], flavour });
    }
}

fn run(program: &TestProgram) {
    let Some(at) = FLAVOURS.iter().position(|flavour| *flavour == program.flavour) else { return };
    let Ok(accepted) = verified(program) else { return };
    LABS.with_borrow_mut(|labs| {
        if let Err(reason) = labs[at].agree(program, &accepted, INPUTS) {
            panic!("{reason}\n{program}");
        }
    });
}
