//! The engines: skep, others and native code, each as a function that makes a program ready to run.
//!
//! Every BPF engine is given the same linked instructions. To move the code without changing what it does, a
//! placement puts some instructions before the program that load numbers into `r0`, which every program sets
//! before it reads it.

mod sbpf;

use crate::programs::Program;
use crate::{Result, arch};
use rbpf::EbpfVmRaw;
use skep::abi::RAW;
use skep::isa::{AluOp, Insn, Operand, Reg, Width, encode_bytes};
use skep::{Engine as Own, Object, ProgramOptions, Runtime};

/// How many placements each engine gets.
pub(crate) const PLACEMENTS: usize = 4;
/// Instructions before the program at each of them.
const LEADING: [usize; PLACEMENTS] = [0, 1, 3, 6];

/// Runs a program once over memory of its own, and returns its result.
pub(crate) type Run = Box<dyn FnMut() -> u64>;
/// Its name in the report, and what makes a program ready at a placement.
pub(crate) type Engine = (&'static str, fn(&'static Program, usize) -> Result<Run>);

pub(crate) const ENGINES: [Engine; 6] = [
    ("native", native),
    ("skep", |program, placement| skep(program, placement, Own::Jit)),
    ("rbpf", rbpf),
    ("sbpf", |program, placement| sbpf::prepare(program, placement, true)),
    ("sbpf-unchecked", |program, placement| sbpf::prepare(program, placement, false)),
    ("skep-interpreter", |program, placement| skep(program, placement, Own::Interpreter)),
];

/// A program's linked instructions.
pub(crate) fn linked(program: &Program) -> Result<Vec<Insn>> {
    let options = ProgramOptions { buffer_len: program.bytes as u32, ..ProgramOptions::default() };
    Ok(Object::parse(program.object)?.linked(program.name, options)?.insns)
}

/// The same behind the instructions of the placement.
fn placed(program: &Program, placement: usize) -> Result<Vec<Insn>> {
    let leading = (0..LEADING[placement]).map(|i| constant(Reg::R0, 0x1000 + i as i32));
    Ok(leading.chain(linked(program)?).collect())
}

/// `dst = value`
fn constant(dst: Reg, value: i32) -> Insn {
    Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Imm(value) }
}

/// Refuses programs for engines that can run only plain ones.
fn only_plain(program: &Program) -> Result<()> {
    if program.plain { Ok(()) } else { Err("it has no maps, and helpers of another kind".into()) }
}

/// Native code of the same source.
fn native(program: &'static Program, placement: usize) -> Result<Run> {
    let function = *program.native.get(placement).ok_or("the program has no native version")?;
    let mut memory = program.fresh_memory();
    // SAFETY: the function reads and writes the bytes that it is given, no others.
    Ok(Box::new(move || unsafe { function(memory.as_mut_ptr(), memory.len() as u64) }))
}

fn skep(program: &'static Program, placement: usize, engine: Own) -> Result<Run> {
    // Maps need the object itself, whose code has one place only.
    let object = if program.plain {
        Object::from_insns(program.name, &RAW, placed(program, placement)?)
    } else if placement == 0 {
        Object::parse(program.object)?
    } else {
        return Err("programs with maps or helpers are measured at one placement".into());
    };
    let runtime = Runtime::new()?;
    let loaded = load(&runtime, &object, program)?;
    let mut memory = program.fresh_memory();
    Ok(Box::new(move || {
        let _alive = &runtime;
        loaded.run_raw_with(engine, &mut memory).expect("the buffer has the verified length")
    }))
}

fn load(runtime: &Runtime, object: &Object, program: &Program) -> Result<skep::Program> {
    let module = runtime.linker(object).only(program.name).buffer_len(program.bytes as u32).load()?;
    Ok(module.programs()[0].clone())
}

/// skep's program, as it is without a placement.
pub(crate) fn loaded(program: &Program) -> Result<skep::Program> {
    load(&Runtime::new()?, &Object::parse(program.object)?, program)
}

/// The `rbpf` crate's JIT. Its verifier looks at opcodes alone.
fn rbpf(program: &'static Program, placement: usize) -> Result<Run> {
    only_plain(program)?;
    // The crate's lifetimes tie program and memory to the machine; a benchmark process can leak both.
    // It passes the memory in `r1` but not its length: one more instruction sets that.
    let mut insns = placed(program, placement)?;
    insns.insert(0, constant(Reg::R2, program.bytes as i32));
    let memory = program.fresh_memory().leak();
    let mut vm = EbpfVmRaw::new(Some(encode_bytes(&insns)?.leak()))?;
    arch::compile_by_rbpf(&mut vm)?;
    Ok(Box::new(move || {
        let memory: *mut [u8] = memory;
        // SAFETY: the program is one that skep's verifier accepted for memory of this length; the memory is leaked,
        // and only this closure has it.
        unsafe { vm.execute_program_jit(&mut *memory) }.expect("the program was compiled")
    }))
}
