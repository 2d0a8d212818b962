//! AArch64, AAPCS64.

mod encode;
mod regs;
