//! Registers at a probe, as programs see them: `struct pt_regs`.

#[cfg(not(target_arch = "aarch64"))]
mod layout {
    //! x86-64: r15 to rdi, the number of the system call, rip, cs, flags, rsp, ss.
    pub(super) const WORDS: usize = 21;
    /// rdi, rsi, rdx, rcx, r8, r9.
    pub(super) const ARGUMENTS: [usize; 6] = [14, 13, 12, 11, 9, 8];
    pub(super) const RESULT: usize = 10;
    pub(super) const ADDRESS: usize = 16;
}

#[cfg(target_arch = "aarch64")]
mod layout {
    //! aarch64: x0 to x30, sp, pc, pstate.
    pub(super) const WORDS: usize = 34;
    pub(super) const ARGUMENTS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
    pub(super) const RESULT: usize = 0;
    pub(super) const ADDRESS: usize = 32;
}

/// The registers of a processor of the host's architecture: `struct pt_regs` of x86-64, `struct user_pt_regs` of
/// aarch64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers([u64; layout::WORDS]);

impl Registers {
    /// All zero.
    pub const fn new() -> Self {
        Self([0; layout::WORDS])
    }

    /// Those at the start of a function that is called with these arguments: the first six on x86-64, eight on aarch64.
    /// Others would be on the stack.
    pub fn call(arguments: &[u64]) -> Self {
        let mut all = Self::new();
        for (register, argument) in layout::ARGUMENTS.into_iter().zip(arguments) {
            all.0[register] = *argument;
        }
        all
    }

    /// The same at that address of code.
    #[must_use]
    pub fn at(&self, address: u64) -> Self {
        self.with(layout::ADDRESS, address)
    }

    /// The same behind a call that has returned this.
    #[must_use]
    pub fn returning(&self, result: u64) -> Self {
        self.with(layout::RESULT, result)
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
