//! A runtime with one program array, and short programs that make tail calls through it.

use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Error, Object, Program, ProgramArray, Runtime, RuntimeBuilder};
use std::sync::Arc;

/// Length of the buffer that all programs take.
pub(crate) const BYTES: usize = 64;

pub(crate) struct Kit {
    pub(crate) runtime: Runtime,
    pub(crate) array: ProgramArray,
    def: MapDef,
}

/// The ways to run a program.
pub(crate) const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

impl Kit {
    pub(crate) fn new(entries: u32) -> Self {
        Self::with(Runtime::builder(), entries)
    }

    /// Tail calls look their target up in the map's table.
    pub(crate) fn fixed(entries: u32) -> Self {
        let mut options = skep::jit::Options::default();
        options.fixed_code = true;
        Self::with(Runtime::builder().compile(options), entries)
    }

    pub(crate) fn with(builder: RuntimeBuilder, entries: u32) -> Self {
        let runtime = builder.build().unwrap();
        let def = MapDef::new("programs", MapKind::ProgArray, 4, 4, entries);
        // Some program must define the map.
        let first = object("first", "r0 = 0\nexit", &def);
        let module = runtime.linker(&first).buffer_len(BYTES as u32).load().unwrap();
        let array = module.program_array("programs").unwrap().clone();
        Self { runtime, array, def }
    }

    pub(crate) fn try_load(&self, name: &str, text: &str) -> Result<Program, Error> {
        let object = object(name, text, &self.def);
        let linker = self.runtime.linker(&object).buffer_len(BYTES as u32);
        let module = linker.map("programs", Arc::clone(self.array.map())).load()?;
        Ok(module.programs()[0].clone())
    }

    pub(crate) fn load(&self, name: &str, text: &str) -> Program {
        self.try_load(name, text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"))
    }

    /// Loads a program and stores it in an element.
    pub(crate) fn install(&self, index: u32, text: &str) -> Program {
        let program = self.load(&format!("at_{index}"), text);
        self.array.set(index, &program).unwrap();
        program
    }
}

pub(crate) fn object(name: &str, text: &str, def: &MapDef) -> Object {
    let insns = assemble(text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    Object::from_bytecode_and_maps(name, &RAW, &encode_bytes(&insns).unwrap(), vec![def.clone()]).unwrap()
}

/// A tail call to a known index; `r1` must be the buffer.
pub(crate) fn to(index: u32) -> String {
    format!("r2 = map[0] ll\nr3 = {index}\ncall 12\n")
}

/// A program that returns a number.
pub(crate) fn returns(number: i32) -> String {
    format!("r0 = {number}\nexit")
}

/// The result of a program for a zeroed buffer, in every engine.
pub(crate) fn run(program: &Program) -> u64 {
    let (result, _) = run_on(program, &[0; BYTES]);
    result
}

/// The result and the buffer, in every engine.
pub(crate) fn run_on(program: &Program, buffer: &[u8; BYTES]) -> (u64, [u8; BYTES]) {
    let [jit, interpreter] = ENGINES.map(|engine| {
        let mut buffer = *buffer;
        (program.run_raw_with(engine, &mut buffer).unwrap(), buffer)
    });
    assert_eq!(jit, interpreter, "machine code and interpreter, of {}", program.name());
    jit
}

/// A program that counts its runs in the buffer's first bytes, and makes a tail call to that index; if it falls
/// through, it returns the count.
pub(crate) fn counts_and_goes_to(index: u32) -> String {
    format!(
        "r4 = *(u64 *)(r1 + 0)
         r4 += 1
         *(u64 *)(r1 + 0) = r4
         r6 = r1
         {}
         r0 = *(u64 *)(r6 + 0)
         exit",
        to(index)
    )
}
