//! The engines: skep and others behind one trait.
//!
//! Every BPF engine is given the same linked instructions. To move the code without changing what it does, a
//! placement puts some instructions before the program that load numbers into `r0`, which every program sets
//! before it reads it.

mod native;
mod rbpf;
mod sbpf;
mod skep;

use crate::programs::Program;
use ::skep::isa::{AluOp, Insn, Operand, Reg, Width, encode};

pub(crate) use native::Native;
pub(crate) use rbpf::Rbpf;
pub(crate) use sbpf::Sbpf;
pub(crate) use skep::{Interpreter, Jit, emit};

/// How many placements each engine gets.
pub(crate) const PLACEMENTS: usize = 4;
/// Instructions before the program at each of them.
const LEADING: [usize; PLACEMENTS] = [0, 1, 3, 6];

/// A program made ready by an engine at one placement.
pub(crate) trait Prepared {
    /// Runs it once over the memory that it keeps, and returns its result.
    fn run(&mut self) -> u64;

    /// Bytes and instructions of machine code, where the engine tells.
    fn code(&self) -> Option<(usize, u32)> {
        None
    }
}

/// An engine.
pub(crate) trait Engine {
    /// Its name in the report.
    fn name(&self) -> &'static str;

    /// Makes a program ready; an error says why it cannot.
    fn prepare(&self, program: &'static Program, placement: usize) -> Result<Box<dyn Prepared>, String>;
}

/// A program's linked instructions behind those of the placement.
fn placed(program: &Program, placement: usize) -> Result<Vec<Insn>, String> {
    let object = ::skep::Object::parse(program.object).map_err(|error| error.to_string())?;
    let options = ::skep::ProgramOptions { buffer_len: program.bytes as u32, ..Default::default() };
    let linked = object.linked(program.name, options).map_err(|error| error.to_string())?;
    let leading = (0..LEADING[placement]).map(|i| constant(Reg::R0, 0x1000 + i as i32));
    Ok(leading.chain(linked.insns).collect())
}

/// `dst = value`
fn constant(dst: Reg, value: i32) -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Imm(value) }
}

/// Instructions as bytes.
fn bytes(insns: &[Insn]) -> Result<Vec<u8>, String> {
    let slots = encode(insns).map_err(|error| error.to_string())?;
    Ok(slots.into_iter().flat_map(|slot| slot.to_bytes()).collect())
}
