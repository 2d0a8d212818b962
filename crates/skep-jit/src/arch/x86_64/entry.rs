//! What the entry of a watched function leads to: the code around the function.
//!
//! It is a stub ([`skep_text::Arena::stub`]): code, and then one jump, to which a call in the code leads.

use skep_isa::{Size, Width};

use super::encode::{self, Bytes, Group1, Mem};
use super::regs::{ENV, Gpr};
use crate::watch::Watch;

/// The registers of the arguments, in their order.
const ARGUMENTS: [Gpr; 5] = [Gpr::RDI, Gpr::RSI, Gpr::RDX, Gpr::RCX, Gpr::R8];

/// Where the stub's frame holds things, from `rbp`: the number of arguments, the arguments with room for the result,
/// the environment.
const COUNT: i32 = -80;
const WORDS: i32 = -72;
const ENVIRONMENT: i32 = -24;
const FRAME: i32 = 80;

/// Bytes of a call.
const CALL: usize = 5;

#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn put(&mut self, bytes: Bytes) {
        self.0.extend_from_slice(&bytes.padded()[..bytes.len()]);
    }

    /// A call whose distance is still to be written. Returns its end.
    fn call(&mut self) -> usize {
        self.put(encode::call_rel());
        self.0.len()
    }

    /// Lets that call lead behind all code.
    fn lead_behind(&mut self, end: usize) {
        let distance = (self.0.len() - end) as i32;
        self.0[end - (CALL - 1)..end].copy_from_slice(&distance.to_le_bytes());
    }
}

pub(super) fn watch(watch: &Watch) -> Vec<u8> {
    let mut code = Code::default();
    code.put(encode::push(Gpr::RBP));
    code.put(encode::mov_rr(Width::W64, Gpr::RBP, Gpr::RSP));
    code.put(encode::alu_ri(Group1::Sub, Width::W64, Gpr::RSP, FRAME));
    code.put(encode::store_r(Size::B8, Mem::at(Gpr::RBP, ENVIRONMENT), ENV));
    code.put(encode::store_i(Size::B8, Mem::at(Gpr::RBP, COUNT), i32::from(watch.arguments)));
    for (at, reg) in (WORDS..).step_by(8).zip(ARGUMENTS) {
        code.put(encode::store_r(Size::B8, Mem::at(Gpr::RBP, at), reg));
    }
    let tell = |code: &mut Code, function: usize| {
        code.put(encode::load(Size::B8, false, Gpr::RDX, Mem::at(Gpr::RBP, ENVIRONMENT)));
        code.put(encode::lea(Width::W64, Gpr::RSI, Mem::at(Gpr::RBP, WORDS)));
        code.put(encode::mov_ri(Gpr::RDI, watch.data));
        code.put(encode::mov_ri(Gpr::RAX, function as u64));
        code.put(encode::call_r(Gpr::RAX));
    };
    tell(&mut code, watch.before as usize);
    for (at, reg) in (WORDS..).step_by(8).zip(ARGUMENTS) {
        code.put(encode::load(Size::B8, false, reg, Mem::at(Gpr::RBP, at)));
    }
    let call = code.call();
    let result = Mem::at(Gpr::RBP, WORDS + 8 * i32::from(watch.arguments));
    code.put(encode::store_r(Size::B8, result, Gpr::RAX));
    tell(&mut code, watch.after as usize);
    code.put(encode::load(Size::B8, false, Gpr::RAX, result));
    code.put(encode::leave());
    code.put(encode::ret());
    code.lead_behind(call);
    code.0
}
