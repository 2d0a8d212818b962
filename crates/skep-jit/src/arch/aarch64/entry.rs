//! What the entry of a watched function leads to: the code around the function.
//!
//! It is a stub ([`skep_text::Arena::stub`]): code, and then one jump, to which a call in the code leads.

use skep_isa::{Size, Width};

use super::encode::{self, Imm12, Mem, Pair, Sum, Word};
use super::regs::{ENV, FP, Gpr, LR, SCRATCH};
use crate::watch::Watch;

/// The registers of the arguments, in their order.
const ARGUMENTS: [Gpr; 5] = [Gpr::X0, Gpr::X1, Gpr::X2, Gpr::X3, Gpr::X4];

/// Where the stub's frame holds things, from `sp`, above the frame record: the number of arguments, the arguments with
/// room for the result, the environment.
const COUNT: i32 = 16;
const WORDS: i32 = 24;
const ENVIRONMENT: i32 = 72;
const FRAME: i32 = 96;

#[derive(Default)]
struct Code(Vec<Word>);

impl Code {
    fn put(&mut self, word: Word) {
        self.0.push(word);
    }

    fn constant(&mut self, reg: Gpr, value: u64) {
        self.0.extend_from_slice(encode::constant(reg, value).as_slice());
    }

    fn add(&mut self, to: Gpr, from: Gpr, number: u32) {
        if let Some(number) = Imm12::new(number.into()) {
            self.put(encode::sum_imm(Sum::Add, Width::W64, to, from, number));
        }
    }

    /// A call whose distance is still to be written. Returns its place.
    fn call(&mut self) -> usize {
        self.put(encode::bl(0));
        self.0.len() - 1
    }

    /// The bytes; the call leads behind all code.
    fn finish(mut self, call: usize) -> Vec<u8> {
        self.0[call] = encode::bl(4 * (self.0.len() - call) as i64);
        self.0.into_iter().flat_map(|word| word.0.to_le_bytes()).collect()
    }
}

pub(super) fn watch(watch: &Watch) -> Vec<u8> {
    let mut code = Code::default();
    code.put(encode::store_pair(Width::W64, FP, LR, Gpr::SP, -FRAME, Pair::Pre));
    code.put(encode::mov_sp(FP, Gpr::SP));
    code.put(encode::store(Size::B8, ENV, Mem::At(Gpr::SP, ENVIRONMENT)));
    code.constant(SCRATCH, watch.arguments.into());
    code.put(encode::store(Size::B8, SCRATCH, Mem::At(Gpr::SP, COUNT)));
    for (at, reg) in (WORDS..).step_by(8).zip(ARGUMENTS) {
        code.put(encode::store(Size::B8, reg, Mem::At(Gpr::SP, at)));
    }
    let tell = |code: &mut Code, function: usize| {
        code.put(encode::load(Size::B8, None, Gpr::X2, Mem::At(Gpr::SP, ENVIRONMENT)));
        code.add(Gpr::X1, Gpr::SP, WORDS as u32);
        code.constant(Gpr::X0, watch.data);
        code.constant(SCRATCH, function as u64);
        code.put(encode::blr(SCRATCH));
    };
    tell(&mut code, watch.before as usize);
    for (at, reg) in (WORDS..).step_by(8).zip(ARGUMENTS) {
        code.put(encode::load(Size::B8, None, reg, Mem::At(Gpr::SP, at)));
    }
    let call = code.call();
    let result = Mem::At(Gpr::SP, WORDS + 8 * i32::from(watch.arguments));
    code.put(encode::store(Size::B8, Gpr::X0, result));
    tell(&mut code, watch.after as usize);
    code.put(encode::load(Size::B8, None, Gpr::X0, result));
    code.put(encode::load_pair(Width::W64, FP, LR, Gpr::SP, FRAME, Pair::Post));
    code.put(encode::ret());
    code.finish(call)
}
