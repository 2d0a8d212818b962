//! Registers at a probe, as programs see them: `struct pt_regs`.

use super::arch;

/// The registers of a processor of the host's architecture: `struct pt_regs` of x86-64, `struct user_pt_regs` of
/// aarch64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers([u64; arch::WORDS]);

impl Registers {
    /// All zero.
    pub const fn new() -> Self {
        Self([0; arch::WORDS])
    }

    /// Those at the start of a function that is called with these arguments: the first six on x86-64, eight on aarch64.
    /// Others would be on the stack.
    pub fn call(arguments: &[u64]) -> Self {
        let mut all = Self::new();
        for (register, argument) in arch::ARGUMENTS.into_iter().zip(arguments) {
            all.0[register] = *argument;
        }
        all
    }

    /// Where the first argument of a call is, in bytes from the structure's start.
    #[cfg(test)]
    pub(crate) const FIRST_ARGUMENT: usize = 8 * arch::ARGUMENTS[0];

    /// The same at that address of code.
    #[must_use]
    pub fn at(&self, address: u64) -> Self {
        self.with(arch::ADDRESS, address)
    }

    /// The same behind a call that has returned this.
    #[must_use]
    pub fn returning(&self, result: u64) -> Self {
        self.with(arch::RESULT, result)
    }

    /// The words of the structure, in its order.
    pub const fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    fn with(&self, register: usize, value: u64) -> Self {
        let mut all = self.clone();
        all.0[register] = value;
        all
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

impl Default for Registers {
    fn default() -> Self {
        Self::new()
    }
}
