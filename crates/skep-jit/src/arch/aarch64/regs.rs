//! Which machine register stands for which BPF register.
//!
//! A call in BPF passes `r1` to `r5`, and AAPCS64 passes arguments in `x0` to `x5`: with this table a helper call
//! sets only its hidden sixth argument. The result is the exception. AAPCS64 returns it where the first
//! argument was, in `x0`, but in BPF `r0` and `r1` are live at once: `r0` is `x7`, and a call is followed by one
//! move. Both conventions agree on the registers that a call preserves.
//!
//! ```text
//!   r0   r1   r2   r3   r4   r5  | r6   r7   r8   r9  | r10             | x5: sixth argument, scratch otherwise
//!   x7   x0   x1   x2   x3   x4  | x19  x20  x21  x22 | sp + constant   | x15 x16 x17: scratch, never live
//!            clobbered by calls  |  preserved in calls                  |   between two BPF instructions
//!                                                                       | x23: environment, preserved
//!                                                                       | x13 x14: scratch of atomic operations
//!                                                                       | x8: a wrong path, x9: keys of constants
//! ```
//!
//! `r10` needs no register: programs cannot write it, and its distance from `sp` is known when a function is
//! compiled. `x18` belongs to the platform (shadow call stacks, Windows, macOS) and is never touched, so the code
//! works everywhere. `x29` and `x30` are the frame pointer and the link register, as for every function.

use skep_isa::Reg;

/// A general-purpose register by its hardware number.
///
/// Number 31 is the zero register in some places of some instructions and the stack pointer in others. [`Gpr::ZR`]
/// and [`Gpr::SP`] are two names for it that say what is meant; they compare equal, and only the instruction
/// decides which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gpr(u8);

impl Gpr {
    pub(crate) const X0: Self = Self(0);
    pub(crate) const X1: Self = Self(1);
    pub(crate) const X2: Self = Self(2);
    pub(crate) const X3: Self = Self(3);
    pub(crate) const X4: Self = Self(4);
    pub(crate) const X5: Self = Self(5);
    pub(crate) const X7: Self = Self(7);
    pub(crate) const X8: Self = Self(8);
    pub(crate) const X9: Self = Self(9);
    pub(crate) const X13: Self = Self(13);
    pub(crate) const X14: Self = Self(14);
    pub(crate) const X15: Self = Self(15);
    pub(crate) const X16: Self = Self(16);
    pub(crate) const X17: Self = Self(17);
    pub(crate) const X19: Self = Self(19);
    pub(crate) const X20: Self = Self(20);
    pub(crate) const X21: Self = Self(21);
    pub(crate) const X22: Self = Self(22);
    pub(crate) const X23: Self = Self(23);
    pub(crate) const X29: Self = Self(29);
    pub(crate) const X30: Self = Self(30);
    /// The zero register, where the instruction takes one.
    pub(crate) const ZR: Self = Self(31);
    /// The stack pointer, where the instruction takes it.
    pub(crate) const SP: Self = Self(31);

    /// The register with this hardware number; only the lowest five bits count.
    pub(crate) const fn numbered(number: u8) -> Self {
        Self(number & 31)
    }

    /// The hardware number, 0 to 31.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }
}

/// The environment of the run ([`skep_abi::RunEnv`]), in every function of a program that needs it.
pub(crate) const ENV: Gpr = Gpr::X23;

/// The helpers' hidden sixth argument; scratch otherwise.
pub(crate) const SIXTH: Gpr = Gpr::X5;

/// Where functions return their result; the first argument as well, that is `r1`.
pub(crate) const RESULT: Gpr = Gpr::X0;

/// Scratch within one BPF instruction. The linker may use it in calls, so it never lives across one.
pub(crate) const SCRATCH: Gpr = Gpr::X16;

/// More scratch within one BPF instruction.
pub(crate) const SCRATCH2: Gpr = Gpr::X17;

/// Still more scratch within one BPF instruction.
pub(crate) const SCRATCH3: Gpr = Gpr::X15;

/// The frame pointer.
pub(crate) const FP: Gpr = Gpr::X29;

/// The link register: where a call left its return address.
pub(crate) const LR: Gpr = Gpr::X30;

/// The BPF registers that functions must preserve, in the order in which they are stored.
pub(crate) const PRESERVED: [Reg; 4] = [Reg::R6, Reg::R7, Reg::R8, Reg::R9];

/// The machine register of a BPF register other than `r10`, which has none.
pub(crate) const fn gpr(reg: Reg) -> Gpr {
    const TABLE: [Gpr; 10] =
        [Gpr::X7, Gpr::X0, Gpr::X1, Gpr::X2, Gpr::X3, Gpr::X4, Gpr::X19, Gpr::X20, Gpr::X21, Gpr::X22];
    if reg.index() >= TABLE.len() {
        panic!("r10 is the stack pointer plus a constant, not a register");
    }
    TABLE[reg.index()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped() -> impl Iterator<Item = Reg> {
        Reg::ALL.into_iter().filter(|&reg| reg != Reg::R10)
    }

    #[test]
    fn no_register_has_two_meanings() {
        let mut all: Vec<u8> = mapped().map(|reg| gpr(reg).number()).collect();
        all.extend([ENV, SIXTH, SCRATCH, SCRATCH2, SCRATCH3, FP, LR, Gpr::SP].map(Gpr::number));
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(!all.contains(&18), "x18 is the platform's");
    }

    #[test]
    fn arguments_of_bpf_calls_are_those_of_the_calling_convention() {
        for (n, reg) in [Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5].into_iter().enumerate() {
            assert_eq!(usize::from(gpr(reg).number()), n);
        }
        assert_eq!((SIXTH.number(), RESULT), (5, gpr(Reg::R1)));
    }

    #[test]
    fn what_bpf_preserves_the_calling_convention_preserves() {
        for reg in mapped() {
            assert_eq!(PRESERVED.contains(&reg), (19..=28).contains(&gpr(reg).number()), "{reg:?}");
        }
        assert!((19..=28).contains(&ENV.number()));
    }

    #[test]
    #[should_panic(expected = "not a register")]
    fn the_frame_pointer_has_no_register() {
        gpr(Reg::R10);
    }
}
