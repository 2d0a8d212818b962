//! The engines: skep, others and native code, each as a function that makes a program ready to run.
//!
//! Every BPF engine is given the same linked instructions. To move the code without changing what it does, a
//! placement puts some instructions before the program that load numbers into `r0`, which every program sets
//! before it reads it.
//!
//! Other crates' engines are behind the feature `opponents`, which `cargo xtask bench` turns on: tests do without them,
//! since to compile them takes as long as half a dozen of skep's crates.

#[cfg(feature = "opponents")]
mod opponents;

#[cfg(feature = "opponents")]
pub(crate) use opponents::rbpf_load;

use crate::Result;
use crate::programs::Program;
use skep::abi::RAW;
use skep::isa::{AluOp, Insn, Operand, Reg, Width};
use skep::jit::{Options, Passes};
use skep::{Budget, Engine as Own, Object, ProgramOptions, Runtime};

/// How many placements each engine gets.
pub(crate) const PLACEMENTS: usize = 4;
/// Instructions before the program at each of them.
const LEADING: [usize; PLACEMENTS] = [0, 1, 3, 6];

/// Runs a program once over memory of its own, and returns its result.
pub(crate) type Run = Box<dyn FnMut() -> u64>;
/// Its name in the report, and what makes a program ready at a placement.
pub(crate) type Engine = (&'static str, fn(&'static Program, usize) -> Result<Run>);

pub(crate) const ENGINES: &[Engine] = &[
    ("native", native),
    ("skep", |program, placement| skep(program, placement, Own::Jit, None)),
    // Charged, but never at an end.
    ("skep-budget", |program, placement| skep(program, placement, Own::Jit, Some(Budget::UNLIMITED))),
    ("skep-coverage", |program, placement| {
        skep_in(Runtime::builder().coverage(true).build()?, program, placement, Own::Jit)
    }),
    ("skep-plain", |program, placement| defended(program, placement, |on| on.passes = Passes::NONE)),
    ("skep-blinded", |program, placement| defended(program, placement, |on| on.blind_constants = true)),
    ("skep-masked", |program, placement| defended(program, placement, |on| on.mask_speculation = true)),
    ("skep-ordered", |program, placement| defended(program, placement, |on| on.order_reloads = true)),
    ("skep-retpolines", |program, placement| defended(program, placement, |on| on.retpolines = true)),
    ("skep-untrusted", |program, placement| defended(program, placement, |on| *on = on.untrusted())),
    #[cfg(feature = "opponents")]
    ("rbpf", opponents::rbpf),
    #[cfg(feature = "opponents")]
    ("sbpf", |program, placement| opponents::sbpf(program, placement, true)),
    #[cfg(feature = "opponents")]
    ("sbpf-unchecked", |program, placement| opponents::sbpf(program, placement, false)),
    ("skep-interpreter", |program, placement| skep(program, placement, Own::Interpreter, None)),
];

/// What compiled code may do against the authors of programs, by the names of these engines, and before them what it is
/// without passes.
pub(crate) const DEFENCES: [&str; 6] =
    ["skep-plain", "skep-blinded", "skep-masked", "skep-ordered", "skep-retpolines", "skep-untrusted"];

/// Without that engine there is no time.
#[cfg(not(feature = "opponents"))]
pub(crate) fn rbpf_load(_code: &[u8]) -> Result<Option<std::time::Duration>> {
    Ok(None)
}

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

/// Native code of the same source.
fn native(program: &'static Program, placement: usize) -> Result<Run> {
    let function = *program.native.get(placement).ok_or("the program has no native version")?;
    let mut memory = program.fresh_memory();
    // SAFETY: the function reads and writes the bytes that it is given, no others.
    Ok(Box::new(move || unsafe { function(memory.as_mut_ptr(), memory.len() as u64) }))
}

fn skep(program: &'static Program, placement: usize, engine: Own, budget: Option<Budget>) -> Result<Run> {
    let runtime = match budget {
        None => Runtime::new()?,
        Some(budget) => Runtime::builder().budget(budget).build()?,
    };
    skep_in(runtime, program, placement, engine)
}

/// skep's compiler with other options.
fn defended(program: &'static Program, placement: usize, set: fn(&mut Options)) -> Result<Run> {
    let mut options = Options::default();
    set(&mut options);
    skep_in(Runtime::builder().compile(options).build()?, program, placement, Own::Jit)
}

fn skep_in(runtime: Runtime, program: &'static Program, placement: usize, engine: Own) -> Result<Run> {
    // Maps need the object itself, whose code has one place only.
    let object = if program.plain {
        Object::from_insns(program.name, &RAW, placed(program, placement)?)
    } else if placement == 0 {
        Object::parse(program.object)?
    } else {
        return Err("programs with maps or helpers are measured at one placement".into());
    };
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
