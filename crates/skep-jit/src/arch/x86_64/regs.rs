//! Which machine register stands for which BPF register.
//!
//! The first five arguments of the System V calling convention are `rdi rsi rdx rcx r8`, and a BPF call passes
//! `r1` to `r5`: with this table a helper call sets only its hidden sixth argument. Both conventions also agree on
//! the registers that a call preserves.
//!
//! ```text
//!   r0   r1   r2   r3   r4   r5  | r6   r7   r8   r9  | r10 |
//!   rax  rdi  rsi  rdx  rcx  r8  | rbx  r13  r14  r15 | rbp |  r12: environment   r9 r10 r11: scratch
//!            clobbered by calls  |  preserved in calls      |  preserved           lost, never live
//!                                                              between two BPF instructions
//! ```
//!
//! With [`mask_speculation`](crate::Options::mask_speculation) `r9` lives through all of a function ([`super::guard`]).

use skep_isa::Reg;

/// A general-purpose register by its hardware number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gpr(u8);

impl Gpr {
    pub(crate) const RAX: Self = Self(0);
    pub(crate) const RCX: Self = Self(1);
    pub(crate) const RDX: Self = Self(2);
    pub(crate) const RBX: Self = Self(3);
    pub(crate) const RSP: Self = Self(4);
    pub(crate) const RBP: Self = Self(5);
    pub(crate) const RSI: Self = Self(6);
    pub(crate) const RDI: Self = Self(7);
    pub(crate) const R8: Self = Self(8);
    pub(crate) const R9: Self = Self(9);
    pub(crate) const R10: Self = Self(10);
    pub(crate) const R11: Self = Self(11);
    pub(crate) const R12: Self = Self(12);
    pub(crate) const R13: Self = Self(13);
    pub(crate) const R14: Self = Self(14);
    pub(crate) const R15: Self = Self(15);

    /// The hardware number, 0 to 15.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// The three bits that go into a ModRM, SIB or opcode byte.
    pub(crate) const fn low(self) -> u8 {
        self.0 & 7
    }

    /// The fourth bit, which goes into a prefix.
    pub(crate) const fn high(self) -> u8 {
        self.0 >> 3
    }

    /// Whether its lowest byte can only be named with a REX prefix: without one these numbers mean
    /// `ah ch dh bh`.
    pub(crate) const fn byte_needs_rex(self) -> bool {
        matches!(self.0, 4..=7)
    }
}

/// The environment of the run ([`skep_abi::RunEnv`]), in every function of a program that needs it.
pub(crate) const ENV: Gpr = Gpr::R12;

/// The helpers' hidden sixth argument; scratch otherwise.
pub(crate) const SIXTH: Gpr = Gpr::R9;

/// Scratch within one BPF instruction.
pub(crate) const SCRATCH: Gpr = Gpr::R11;

/// More scratch within one BPF instruction.
pub(crate) const SCRATCH2: Gpr = Gpr::R10;

/// The BPF registers that functions must preserve, in the order in which they are pushed.
pub(crate) const PRESERVED: [Reg; 4] = [Reg::R6, Reg::R7, Reg::R8, Reg::R9];

/// The machine register of a BPF register.
pub(crate) const fn gpr(reg: Reg) -> Gpr {
    const TABLE: [Gpr; 11] = [
        Gpr::RAX,
        Gpr::RDI,
        Gpr::RSI,
        Gpr::RDX,
        Gpr::RCX,
        Gpr::R8,
        Gpr::RBX,
        Gpr::R13,
        Gpr::R14,
        Gpr::R15,
        Gpr::RBP,
    ];
    TABLE[reg.index()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_register_has_two_meanings() {
        let mut all: Vec<u8> = Reg::ALL.iter().map(|&reg| gpr(reg).number()).collect();
        all.extend([ENV, SIXTH, SCRATCH, SCRATCH2, Gpr::RSP].map(Gpr::number));
        all.sort_unstable();
        assert_eq!(all, (0..16).collect::<Vec<u8>>());
    }
}
