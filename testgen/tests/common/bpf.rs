//! XDP programs in the running kernel: loads one and runs it over a packet.
#![allow(dead_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use skep_isa::{Insn, encode_bytes};
use skep_testkit::bpf::{self, Load};

/// `BPF_PROG_TYPE_XDP`
const XDP: u32 = 6;

/// A program in the running kernel.
pub(crate) struct KernelProgram(OwnedFd);

/// Why the kernel did not load a program.
pub(crate) struct Rejected {
    pub(crate) error: io::Error,
    /// The kernel verifier's log.
    pub(crate) log: String,
}

impl KernelProgram {
    /// Loads an XDP program, until the result is dropped.
    pub(crate) fn load(insns: &[Insn]) -> Result<Self, Rejected> {
        let code = encode_bytes(insns).expect("generated programs can be encoded");
        let program = Load { kind: XDP, flags: 0, code: &code, log_level: 1, log_size: 1 << 20 };
        match bpf::load(&program) {
            Ok((descriptor, _)) => Ok(Self(descriptor)),
            Err((error, log)) => Err(Rejected { error, log }),
        }
    }

    /// Runs it once over a packet; returns its 32-bit result and the packet afterwards.
    pub(crate) fn run(&self, packet: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let mut out = vec![0u8; packet.len() + 256];
        let (result, len) = bpf::test_run(self.0.as_fd(), packet, &mut out, 1)?;
        out.truncate(len);
        Ok((result, out))
    }
}
