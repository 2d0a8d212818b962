//! The filter of system calls: which of them the supervisor answers.

use crate::arch::{AUDIT, FOREIGN, OPENS, READLINKS, SECOND};
use crate::netlink::{HIGH, REQUESTS};
use libc::{sock_filter, sock_fprog};

/// The system calls that the supervisor always sees; all others but those of `Filter::new` go to the kernel.
const SERVED: [libc::c_long; 5] =
    [libc::SYS_bpf, libc::SYS_epoll_ctl, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_perf_event_open];

/// Those that are seen of high descriptors ([`HIGH`]) alone.
const SOCKETS: [libc::c_long; 4] =
    [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_recvfrom, libc::SYS_recvmsg];

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// The lower halves of arguments: those of socket(2), and the descriptor of others.
const FIRST: u32 = 16;
const THIRD: u32 = 16 + 2 * 8;
/// The lower half of the fourth argument: the flags of mmap(2).
const FLAGS: u32 = 16 + 3 * 8;
/// The lower half of the second argument: the request of ioctl(2).
const REQUEST: u32 = 16 + 8;
/// The byte of a request that says whose it is, and that of perf events.
const WHOSE: u32 = 0xff00;
const PERF: u32 = 0x2400;

/// The first argument, and the size of each.
const ARGUMENTS: u32 = 16;
const ARGUMENT: u32 = 8;
/// Files that are opened with one of these are none of those which describe a descriptor.
pub(crate) const NOT_TO_READ: i32 =
    libc::O_ACCMODE | libc::O_CREAT | libc::O_DIRECTORY | libc::O_PATH | libc::O_TRUNC;

/// The same where probes are defined by writing.
const NOT_TO_SEE: i32 = libc::O_DIRECTORY | libc::O_PATH;

/// A program in the instructions of classic BPF.
///
/// Paths cannot be looked at here, so each link that is read is seen, and each file that is opened for reading.
///
/// Of the mappings, those of files that are shared are seen: others are as frequent as malloc(3). Of the requests by
/// ioctl(2), those to perf events are seen.
///
/// Calls by another convention, those of 32-bit programs above all, are not served; their bpf(2) does not reach the
/// kernel's either.
pub(crate) struct Filter(Vec<sock_filter>);

impl Filter {
    /// `network`: routing sockets and requests about devices are seen as well. `probes`: so are all files that are
    /// opened, what is written to high descriptors, and these system calls.
    pub(crate) fn new(network: bool, probes: Option<&[libc::c_long]>) -> Self {
        let insn = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
        let load = |k| insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, k);
        let equal = |k, jt, jf| insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
        let give = |k| insn(libc::BPF_RET | libc::BPF_K, 0, 0, k);
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
        let (allow, notify) = (|| give(libc::SECCOMP_RET_ALLOW), || give(libc::SECCOMP_RET_USER_NOTIF));
        let and = |k| insn(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, k);
        for number in probes.unwrap_or_default() {
            program.extend([equal(*number as u32, 0, 1), notify()]);
        }
        for (number, _) in READLINKS {
            program.extend([equal(*number as u32, 0, 1), notify()]);
        }
        for (number, _, flags) in OPENS {
            let not_seen = if probes.is_some() { NOT_TO_SEE } else { NOT_TO_READ };
            let other = insn(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, not_seen as u32);
            let flags = load(ARGUMENTS + ARGUMENT * *flags as u32);
            program.extend([equal(*number as u32, 0, 4), flags, other, allow(), notify()]);
        }
        let any = insn(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, libc::MAP_ANONYMOUS as u32);
        let mapping = [
            load(FLAGS),
            any,
            allow(),
            and(libc::MAP_TYPE as u32),
            equal(libc::MAP_SHARED as u32, 2, 0),
            equal(libc::MAP_SHARED_VALIDATE as u32, 1, 0),
            allow(),
            notify(),
        ];
        let about_devices: &[u32] = if network { &REQUESTS } else { &[] };
        let mut requests = vec![load(REQUEST)];
        requests.extend(about_devices.iter().flat_map(|request| [equal(*request, 0, 1), notify()]));
        requests.extend([and(WHOSE), equal(PERF, 1, 0), allow(), notify()]);
        let routing = [
            load(FIRST),
            equal(libc::AF_NETLINK as u32, 1, 0),
            allow(),
            load(THIRD),
            equal(libc::NETLINK_ROUTE as u32, 1, 0),
            allow(),
            notify(),
        ];
        let least = |k, jt, jf| insn(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, jt, jf, k);
        // Numbers of descriptors say which sockets are meant.
        let high = [load(FIRST), least(HIGH.start, 0, 1), least(HIGH.end, 0, 1), allow(), notify()];
        let served = [notify()];
        let mut rules: Vec<(libc::c_long, &[sock_filter])> =
            SERVED.iter().map(|number| (*number, &served[..])).collect();
        rules.extend([(libc::SYS_mmap, &mapping[..]), (libc::SYS_ioctl, &requests[..])]);
        if network {
            rules.push((libc::SYS_socket, &routing));
            rules.extend(SOCKETS.iter().map(|number| (*number, &high[..])));
        }
        if probes.is_some() {
            rules.push((libc::SYS_write, &high));
        }
        // What follows a number decides about all of its calls.
        for (number, rule) in rules {
            program.push(equal(number as u32, 0, rule.len() as u8));
            program.extend(rule);
        }
        program.push(allow());
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
        with_argument(convention, number, 0)
    }

    fn with_argument(convention: u32, number: u32, argument: u32) -> u32 {
        let Filter(program) = Filter::new(true, None);
        let (mut at, mut loaded) = (0, 0);
        loop {
            let insn = program[at];
            at += 1;
            match u32::from(insn.code) & 7 {
                libc::BPF_LD => {
                    loaded = match insn.k {
                        ARCH => convention,
                        NUMBER => number,
                        FIRST | REQUEST | THIRD | FLAGS => argument,
                        other => panic!("it reads at {other}"),
                    };
                }
                libc::BPF_ALU => loaded &= insn.k,
                libc::BPF_JMP => {
                    let holds = match u32::from(insn.code) & 0xf0 {
                        libc::BPF_JSET => loaded & insn.k != 0,
                        libc::BPF_JGE => loaded >= insn.k,
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
            assert_eq!(with_argument(AUDIT, libc::SYS_mmap as u32, flags), expected, "{flags:#x}");
        }
    }

    #[test]
    fn requests_to_perf_events_are_seen_alone() {
        for (request, seen) in [
            (0x2400, true),
            (0x4004_2408, true),
            (0xc008_240a, true),
            (libc::TCGETS as u32, false),
            (libc::FIONREAD as u32, false),
            (0x8912, false),
        ] {
            let expected = if seen { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(with_argument(AUDIT, libc::SYS_ioctl as u32, request), expected, "{request:#x}");
        }
    }

    #[test]
    fn sockets_are_seen_by_the_numbers_of_their_descriptors() {
        for number in SOCKETS {
            let seen = |descriptor| {
                let verdict = with_argument(AUDIT, number as u32, descriptor);
                verdict == libc::SECCOMP_RET_USER_NOTIF
            };
            let expected =
                [(0, false), (895, false), (896, true), (1023, true), (1024, false), (u32::MAX, false)];
            for (descriptor, expected) in expected {
                assert_eq!(seen(descriptor), expected, "{number} of {descriptor}");
            }
        }
        // One argument stands for all here: no family and protocol are both that number.
        assert_eq!(with_argument(AUDIT, libc::SYS_socket as u32, 16), libc::SECCOMP_RET_ALLOW);
        assert_eq!(with_argument(AUDIT, libc::SYS_socket as u32, 0), libc::SECCOMP_RET_ALLOW);
        assert_eq!(with_argument(AUDIT, libc::SYS_ioctl as u32, 0x8933), libc::SECCOMP_RET_USER_NOTIF);
        let ordinary = Filter::new(false, None).0.len();
        assert!(ordinary < Filter::new(true, None).0.len(), "without a network, sockets cost nothing");
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
                assert_eq!(
                    with_argument(AUDIT, *number as u32, flags as u32),
                    expected,
                    "{number} {flags:#x}"
                );
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
