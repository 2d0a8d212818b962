//! The filter of system calls: which of them the supervisor answers.

use crate::arch::AUDIT;
use libc::{sock_filter, sock_fprog};

/// The system calls that the supervisor sees; all others go to the kernel.
const SERVED: [libc::c_long; 3] = [libc::SYS_bpf, libc::SYS_statfs, libc::SYS_fstatfs];

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// A program in the instructions of classic BPF.
pub(crate) struct Filter(Vec<sock_filter>);

impl Filter {
    pub(crate) fn new() -> Self {
        let insn = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
        let load = |k| insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, k);
        let equal = |k, jt, jf| insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
        let give = |k| insn(libc::BPF_RET | libc::BPF_K, 0, 0, k);
        let served = SERVED.len() as u8;
        // Calls of another architecture's numbers (32-bit programs) go to the kernel.
        let mut program = vec![load(ARCH), equal(AUDIT, 1, 0), give(libc::SECCOMP_RET_ALLOW), load(NUMBER)];
        for (at, number) in SERVED.iter().enumerate() {
            // To the last instruction.
            program.push(equal(*number as u32, served - at as u8, 0));
        }
        program.push(give(libc::SECCOMP_RET_ALLOW));
        program.push(give(libc::SECCOMP_RET_USER_NOTIF));
        Self(program)
    }

    /// The program for the kernel, which only reads it.
    pub(crate) fn program(&self) -> sock_fprog {
        sock_fprog { len: self.0.len() as u16, filter: self.0.as_ptr().cast_mut() }
    }
}
