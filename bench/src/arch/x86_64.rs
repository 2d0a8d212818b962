//! x86-64: instructions as in the manuals of AMD and Intel.

#[cfg(feature = "opponents")]
use crate::Result;
#[cfg(feature = "opponents")]
use solana_sbpf::{elf::Executable, vm::ContextObject};

/// One instruction that does nothing.
pub(crate) const NOP: &[u8] = &[0x90];

/// Distances from behind a patchable branch to its two targets, in bytes. They differ in each of their three lower
/// bytes, so that every mixture of the two is a distance of its own.
pub(crate) const DISTANCES: [usize; 2] = [0x000140, 0x010280];

/// What a branch may jump to by mistake: every distance that has each byte of the one or of the other.
pub(crate) fn mixtures() -> Vec<usize> {
    let bytes = DISTANCES.map(usize::to_le_bytes);
    (1..7)
        .map(|choice: usize| (0..3).map(|at| usize::from(bytes[choice >> at & 1][at]) << (8 * at)).sum())
        .collect()
}

/// `mov eax, value; ret`
pub(crate) fn returns(value: u32) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend(value.to_le_bytes());
    code.push(0xc3);
    code
}

/// Makes this thread execute what was written there, and nothing older: here every jump does.
///
/// # Safety
///
/// The memory is mapped, readable and executable.
pub(crate) unsafe fn synchronize(_start: usize, _len: usize) {}

/// Compiles for this processor with the JIT of `solana-sbpf`.
#[cfg(feature = "opponents")]
pub(crate) fn compile_by_sbpf(executable: &Executable<impl ContextObject>) -> Result<()> {
    Ok(executable.jit_compile().map_err(|error| error.to_string())?)
}

/// Compiles for this processor with the JIT of `rbpf`.
#[cfg(feature = "opponents")]
pub(crate) fn compile_by_rbpf(vm: &mut rbpf::EbpfVmRaw<'_>) -> Result<()> {
    Ok(vm.jit_compile()?)
}
