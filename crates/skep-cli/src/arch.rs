//! Disassembly of machine code. Every host builds the disassemblers of all architectures, since code is only data
//! here.

mod aarch64;
mod x86_64;

/// One instruction.
#[derive(Debug, PartialEq)]
pub(crate) struct Insn {
    /// Offset from the start of the code, in bytes.
    pub(crate) at: u64,
    /// In the syntax of the architecture's manuals. Branch targets are addresses.
    pub(crate) text: String,
}

/// Disassembles code for that address. Bytes that cannot be decoded become a line that says so.
pub(crate) type Disassembler = fn(code: &[u8], address: u64) -> Vec<Insn>;

/// The disassembler for an architecture, named as in [`std::env::consts::ARCH`].
pub(crate) fn disassembler(architecture: &str) -> Option<Disassembler> {
    match architecture {
        "x86_64" => Some(x86_64::disassemble),
        "aarch64" => Some(aarch64::disassemble),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_disassembler() {
        assert!(disassembler(std::env::consts::ARCH).is_some());
        assert!(disassembler("pdp11").is_none());
    }
}
