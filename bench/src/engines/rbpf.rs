//! The `rbpf` crate's JIT. Its verifier looks at opcodes alone.

use super::{Engine, Prepared, bytes, constant, placed};
use crate::arch;
use crate::programs::Program;
use rbpf::EbpfVmRaw;
use skep::isa::Reg;

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
        if !program.plain {
            return Err("it has no maps, and helpers of another kind".into());
        }
        // The crate's lifetimes tie program and memory to the machine; a benchmark process can leak both.
        // It passes the memory in `r1` but not its length: one more instruction sets that.
        let mut insns = placed(program, placement)?;
        insns.insert(0, constant(Reg::R2, program.bytes as i32));
        let code = bytes(&insns)?.leak();
        let memory = program.fresh_memory().leak();
        let mut vm = EbpfVmRaw::new(Some(code)).map_err(|error| error.to_string())?;
        arch::compile_by_rbpf(&mut vm)?;
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
