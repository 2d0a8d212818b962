//! The `rbpf` crate's JIT. Its verifier looks at opcodes alone.

use super::{Engine, PLACEMENTS, Prepared, bytes};
use crate::programs::Program;
use rbpf::EbpfVmRaw;

pub(crate) struct Rbpf;

struct Ready {
    vm: EbpfVmRaw<'static>,
    memory: &'static mut [u8],
}

impl Engine for Rbpf {
    fn name(&self) -> &'static str {
        "rbpf"
    }

    fn prepare(&self, program: &'static Program, placement: usize) -> Result<Box<dyn Prepared>, String> {
        debug_assert!(placement < PLACEMENTS);
        if !program.plain {
            return Err("it has no maps, and helpers of another kind".into());
        }
        // The crate's lifetimes tie program and memory to the machine; a benchmark process can leak both.
        let code = bytes(program, placement)?.leak();
        let memory = program.fresh_memory().leak();
        let mut vm = EbpfVmRaw::new(Some(code)).map_err(|error| error.to_string())?;
        vm.jit_compile().map_err(|error| error.to_string())?;
        Ok(Box::new(Ready { vm, memory }))
    }
}

impl Prepared for Ready {
    fn run(&mut self) -> u64 {
        let memory: *mut [u8] = self.memory;
        // SAFETY: the program is one that skep's verifier accepted for memory of this length; the memory is
        // leaked, and nothing else looks at it while the program runs.
        let result = unsafe { self.vm.execute_program_jit(&mut *memory) };
        result.expect("the program was compiled")
    }
}
