//! skep itself: verified, compiled, in a pack; and its interpreter.

use super::{Engine, Prepared, placed};
use crate::programs::Program;
use skep::abi::RAW;
use skep::jit::{Emitted, Target};
use skep::{Object, Runtime};

pub(crate) struct Jit;

pub(crate) struct Interpreter;

struct Ready {
    program: skep::Program,
    engine: skep::Engine,
    memory: Vec<u8>,
    _runtime: Runtime,
}

impl Engine for Jit {
    fn name(&self) -> &'static str {
        "skep"
    }

    fn prepare(&self, program: &'static Program, placement: usize) -> Result<Box<dyn Prepared>, String> {
        prepare(program, placement, skep::Engine::Jit)
    }
}

impl Engine for Interpreter {
    fn name(&self) -> &'static str {
        "skep-interpreter"
    }

    fn prepare(&self, program: &'static Program, placement: usize) -> Result<Box<dyn Prepared>, String> {
        prepare(program, placement, skep::Engine::Interpreter)
    }
}

fn prepare(
    program: &'static Program,
    placement: usize,
    engine: skep::Engine,
) -> Result<Box<dyn Prepared>, String> {
    // Maps need the object itself, whose code has one place only.
    let object = if program.plain {
        Object::from_insns(program.name, &RAW, placed(program, placement)?)
    } else if placement == 0 {
        Object::parse(program.object).map_err(|error| error.to_string())?
    } else {
        return Err("programs with maps or helpers are measured at one placement".into());
    };
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let loaded = load(&runtime, &object, program)?;
    Ok(Box::new(Ready { program: loaded, engine, memory: program.fresh_memory(), _runtime: runtime }))
}

fn load(runtime: &Runtime, object: &Object, program: &Program) -> Result<skep::Program, String> {
    let loaded = runtime.linker(object).only(program.name).buffer_len(program.bytes as u32).load();
    Ok(loaded.map_err(|error| error.to_string())?.programs()[0].clone())
}

/// The code of a program for an architecture, which need not be this one.
pub(crate) fn emit(program: &Program, target: Target) -> Result<Emitted, String> {
    let object = Object::parse(program.object).map_err(|error| error.to_string())?;
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    load(&runtime, &object, program)?.emit(target).map_err(|error| error.to_string())
}

impl Prepared for Ready {
    fn run(&mut self) -> u64 {
        self.program.run_raw_with(self.engine, &mut self.memory).expect("the buffer has the verified length")
    }

    fn code(&self) -> Option<(usize, u32)> {
        let compiled = self.program.compiled();
        (self.engine == skep::Engine::Jit).then(|| (compiled.code_bytes(), compiled.instructions()))
    }
}
