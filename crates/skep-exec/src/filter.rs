//! The filter of system calls: which of them the supervisor answers.

use crate::arch::{AUDIT, FOREIGN, OPENS, READLINKS, SECOND};
use libc::{sock_filter, sock_fprog};

/// The system calls that the supervisor sees; all others go to the kernel.
const SERVED: [libc::c_long; 4] = [libc::SYS_bpf, libc::SYS_epoll_ctl, libc::SYS_statfs, libc::SYS_fstatfs];

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// The lower half of the fourth argument: the flags of mmap(2).
const FLAGS: u32 = 16 + 3 * 8;

/// The first argument, and the size of each.
const ARGUMENTS: u32 = 16;
const ARGUMENT: u32 = 8;
/// Files that are opened with one of these are none of those which describe a descriptor.
const NOT_TO_READ: i32 = libc::O_ACCMODE | libc::O_CREAT | libc::O_DIRECTORY | libc::O_PATH | libc::O_TRUNC;

/// A program in the instructions of classic BPF.
///
/// Paths cannot be looked at here, so each link that is read is seen, and each file that is opened for reading.
///
/// Of the mappings, those of files that are shared are seen: others are as frequent as malloc(3).
///
/// Calls by another convention, those of 32-bit programs above all, are not served; their bpf(2) does not reach the
/// kernel's either.
pub(crate) struct Filter(Vec<sock_filter>);

impl Filter {
    pub(crate) fn new() -> Self {
        let insn = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
        let load = |k| insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, k);
        let equal = |k, jt, jf| insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
        let give = |k| insn(libc::BPF_RET | libc::BPF_K, 0, 0, k);
        let served = SERVED.len() as u8;
        let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        let foreign = FOREIGN.iter().flat_map(|&(convention, bpf)| {
            let refused = [equal(bpf, 0, 1), give(refuse), give(libc::SECCOMP_RET_ALLOW)];
            [equal(convention, 0, 4), load(NUMBER)].into_iter().chain(refused)
        });
        let foreign: Vec<_> = foreign.chain([give(libc::SECCOMP_RET_ALLOW)]).collect();
        let mut program = vec![load(ARCH), equal(AUDIT, foreign.len() as u8, 0)];
        program.extend(foreign);
        program.push(load(NUMBER));
        program.extend(SECOND.iter().flat_map(|&bpf| [equal(bpf, 0, 1), give(refuse)]));
        let allow = || give(libc::SECCOMP_RET_ALLOW);
        let notify = || give(libc::SECCOMP_RET_USER_NOTIF);
        for (number, _) in READLINKS {
            program.extend([equal(*number as u32, 0, 1), notify()]);
        }
        for (number, _, flags) in OPENS {
            let other = insn(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, NOT_TO_READ as u32);
            let flags = load(ARGUMENTS + ARGUMENT * *flags as u32);
            program.extend([equal(*number as u32, 0, 4), flags, other, allow(), notify()]);
        }
        let calculate = |operation, k| insn(operation | libc::BPF_K, 0, 0, k);
        let any = insn(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, libc::MAP_ANONYMOUS as u32);
        let mapping = [
            equal(libc::SYS_mmap as u32, 1, 0),
            allow(),
            load(FLAGS),
            any,
            allow(),
            calculate(libc::BPF_ALU | libc::BPF_AND, libc::MAP_TYPE as u32),
            equal(libc::MAP_SHARED as u32, 2, 0),
            equal(libc::MAP_SHARED_VALIDATE as u32, 1, 0),
            allow(),
        ];
        for (at, number) in SERVED.iter().enumerate() {
            // To the last instruction.
            program.push(equal(*number as u32, served - at as u8 - 1 + mapping.len() as u8, 0));
        }
        program.extend(mapping);
        program.push(give(libc::SECCOMP_RET_USER_NOTIF));
        Self(program)
    }

    /// The program for the kernel, which only reads it.
    pub(crate) fn program(&self) -> sock_fprog {
        sock_fprog { len: self.0.len() as u16, filter: self.0.as_ptr().cast_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn verdict(convention: u32, number: u32) -> u32 {
        with_flags(convention, number, 0)
    }

    fn with_flags(convention: u32, number: u32, flags: u32) -> u32 {
        let Filter(program) = Filter::new();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let insn = program[at];
            at += 1;
            match u32::from(insn.code) & 7 {
                libc::BPF_LD => {
                    loaded = match insn.k {
                        ARCH => convention,
                        NUMBER => number,
                        FLAGS => flags,
                        at if OPENS.iter().any(|open| ARGUMENTS + ARGUMENT * open.2 as u32 == at) => flags,
                        other => panic!("it reads at {other}"),
                    };
                }
                libc::BPF_ALU => loaded &= insn.k,
                libc::BPF_JMP => {
                    let holds = match u32::from(insn.code) & 0xf0 {
                        libc::BPF_JSET => loaded & insn.k != 0,
                        _ => loaded == insn.k,
                    };
                    at += usize::from(if holds { insn.jt } else { insn.jf });
                }
                _ => return insn.k,
            }
        }
    }

    #[test]
    fn served_calls_are_notified_and_others_pass() {
        for number in SERVED {
            assert_eq!(verdict(AUDIT, number as u32), libc::SECCOMP_RET_USER_NOTIF, "{number}");
        }
        for number in [libc::SYS_read, libc::SYS_bpf + 1, libc::SYS_seccomp] {
            assert_eq!(verdict(AUDIT, number as u32), libc::SECCOMP_RET_ALLOW, "{number}");
        }
    }

    #[test]
    fn shared_mappings_of_files_are_seen_alone() {
        let (shared, private) = (libc::MAP_SHARED as u32, libc::MAP_PRIVATE as u32);
        let (fixed, anonymous) = (libc::MAP_FIXED as u32, libc::MAP_ANONYMOUS as u32);
        for (flags, seen) in [
            (shared, true),
            (libc::MAP_SHARED_VALIDATE as u32, true),
            (shared | fixed, true),
            (shared | anonymous, false),
            (private, false),
            (private | fixed, false),
            (private | anonymous, false),
        ] {
            let expected = if seen { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(with_flags(AUDIT, libc::SYS_mmap as u32, flags), expected, "{flags:#x}");
        }
    }

    #[test]
    fn links_and_files_that_are_read_are_seen() {
        for (number, _) in READLINKS {
            assert_eq!(verdict(AUDIT, *number as u32), libc::SECCOMP_RET_USER_NOTIF, "{number}");
        }
        for (number, _, _) in OPENS {
            for (flags, seen) in [
                (libc::O_RDONLY, true),
                (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, true),
                (libc::O_WRONLY, false),
                (libc::O_RDWR | libc::O_CLOEXEC, false),
                (libc::O_RDONLY | libc::O_CREAT, false),
                (libc::O_DIRECTORY | libc::O_CLOEXEC, false),
                (libc::O_PATH, false),
            ] {
                let expected = if seen { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
                assert_eq!(with_flags(AUDIT, *number as u32, flags as u32), expected, "{number} {flags:#x}");
            }
        }
    }

    #[test]
    fn no_convention_reaches_the_bpf_of_the_kernel() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        for (convention, bpf) in FOREIGN {
            assert_eq!(verdict(convention, bpf), refused);
            assert_eq!(verdict(convention, bpf + 1), libc::SECCOMP_RET_ALLOW);
        }
        if let Some(bpf) = SECOND {
            assert_eq!(verdict(AUDIT, bpf), refused);
        }
        assert_eq!(verdict(0, 1), libc::SECCOMP_RET_ALLOW);
    }
}
