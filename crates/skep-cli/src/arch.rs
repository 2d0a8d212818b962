//! Machine code as text. Every architecture's disassembler is compiled on every machine: code is only data here.

mod aarch64;
mod x86_64;

/// One instruction.
#[derive(Debug, PartialEq)]
pub(crate) struct Insn {
    /// Distance from the beginning of the code, in bytes.
    pub(crate) at: u64,
    /// As the manuals of the architecture write it. Targets of branches are addresses.
    pub(crate) text: String,
}

/// Reads code that lies at that address. What cannot be read becomes a line that says so.
pub(crate) type Disassembler = fn(code: &[u8], address: u64) -> Vec<Insn>;

/// The disassembler for an architecture as [`std::env::consts::ARCH`] names it.
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
    fn this_machines_code_can_be_read() {
        assert!(disassembler(std::env::consts::ARCH).is_some());
        assert!(disassembler("pdp11").is_none());
    }
}
