//! Native code of the same source.

use super::{Engine, Prepared};
use crate::programs::{self, Program};

pub(crate) struct Native;

struct Ready {
    function: programs::Native,
    memory: Vec<u8>,
}

impl Engine for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn prepare(&self, program: &'static Program, placement: usize) -> Result<Box<dyn Prepared>, String> {
        let function = *program.native.get(placement).ok_or("the program has no native version")?;
        Ok(Box::new(Ready { function, memory: program.fresh_memory() }))
    }
}

impl Prepared for Ready {
    fn run(&mut self) -> u64 {
        // SAFETY: the function reads and writes the bytes that it is given, no others.
        unsafe { (self.function)(self.memory.as_mut_ptr(), self.memory.len() as u64) }
    }
}
