//! Counts each instruction that is executed: the plainest way, with which others are compared.

use std::convert::Infallible;

use skep_isa::Insn;

use crate::exec::{Registers, Watch};

/// Counts steps by slot.
pub(crate) struct Counting<'a> {
    pub(crate) executions: &'a mut [u64],
}

impl Watch for Counting<'_> {
    type Stop = Infallible;

    fn step(&mut self, slot: usize, _: &Insn, _: &mut Registers) -> Result<(), Infallible> {
        self.executions[slot] += 1;
        Ok(())
    }
}
