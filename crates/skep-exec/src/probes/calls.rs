//! The system calls with which events of a world may happen, by name.
//!
//! Not among them are those that the first process makes between its filter and its program (`execve`, `close`,
//! `sendmsg`, `write`): the supervisor does not answer yet, and both would wait for each other.

macro_rules! calls {
    ($($name:ident $number:ident,)*) => { &[$((stringify!($name), libc::$number),)*] };
}

const CALLS: &[(&str, libc::c_long)] = calls! {
    accept SYS_accept, accept4 SYS_accept4, bind SYS_bind, chdir SYS_chdir, clock_gettime SYS_clock_gettime,
    connect SYS_connect, fchmod SYS_fchmod, fchown SYS_fchown, fsync SYS_fsync, ftruncate SYS_ftruncate,
    getcwd SYS_getcwd, getegid SYS_getegid, geteuid SYS_geteuid, getgid SYS_getgid, getpgid SYS_getpgid,
    getpid SYS_getpid, getppid SYS_getppid, getpriority SYS_getpriority, getrusage SYS_getrusage,
    gettid SYS_gettid, getuid SYS_getuid, kill SYS_kill, linkat SYS_linkat, listen SYS_listen,
    mkdirat SYS_mkdirat, nanosleep SYS_nanosleep, prlimit64 SYS_prlimit64, renameat SYS_renameat,
    sched_yield SYS_sched_yield, setgid SYS_setgid, setpriority SYS_setpriority, setuid SYS_setuid,
    shutdown SYS_shutdown, socketpair SYS_socketpair, symlinkat SYS_symlinkat, sync SYS_sync, sysinfo SYS_sysinfo,
    tgkill SYS_tgkill, times SYS_times, truncate SYS_truncate, umask SYS_umask, uname SYS_uname,
    unlinkat SYS_unlinkat,
};

/// The number of a system call; `None` for one with which no event may happen.
pub(crate) fn number(name: &str) -> Option<libc::c_long> {
    CALLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_the_start_needs_have_no_events() {
        assert_eq!(number("getpid"), Some(libc::SYS_getpid));
        for name in ["execve", "close", "sendmsg", "write", "bogus"] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
