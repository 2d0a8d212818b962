//! Forks, signals, and system calls that the system refuses. They affect a whole process, so most tests make a child.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, LazyLock, mpsc};
use std::thread;

use skep_rcu::{Domain, Error, Grace, KeeperState};
use skep_testkit::{Hidden, hidden};

/// Runs `f` in a forked child and returns its exit status: what `f` returned, or 99 if it panicked.
fn in_a_child(f: impl FnOnce() -> i32) -> i32 {
    let caught = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or(99);
    // SAFETY: the child runs `f` and exits without running anything of the test harness. It may allocate: the C
    // library makes the allocator usable in children.
    let status = unsafe { skep_testkit::in_a_child(caught) };
    status.code().unwrap_or_else(|| panic!("the child: {status}"))
}

#[test]
fn a_forked_child_may_read_and_never_waits() {
    let domain = Domain::new(4).unwrap();
    domain.barrier().unwrap(); // the keeper runs
    let section = domain.enter().unwrap();
    let cookie = domain.cookie();
    assert!(domain.is_original());
    let status = in_a_child(|| {
        assert!(!domain.is_original());
        assert_eq!(domain.enter().unwrap().number(), 0);
        assert_eq!(domain.reader().unwrap().read_sleepable(|| 7), 7);
        domain.call(Grace::Normal, || unreachable!("there is no keeper in the child"));
        domain.defer(|| unreachable!("there is no keeper in the child"));
        for outcome in [
            domain.synchronize(Grace::Sleepable),
            domain.synchronize_expedited(Grace::Sleepable),
            domain.barrier(),
        ] {
            assert_eq!(outcome, Err(Error::Forked));
        }
        assert!(!domain.try_pass(cookie, Grace::Both));
        assert_eq!(domain.stats().keeper, KeeperState::Forked);
        drop(domain.clone());
        // A domain of the child's own works.
        let own = Domain::new(1).unwrap();
        let (send, receive) = mpsc::channel();
        own.call(Grace::Both, move || send.send(5).unwrap());
        own.barrier().unwrap();
        receive.recv().unwrap()
    });
    assert_eq!(status, 5);
    drop(section);
    assert!(domain.is_original());
    assert_eq!(domain.synchronize(Grace::Both), Ok(()));
}

#[test]
fn a_child_drops_its_domain_without_waiting() {
    let domain = Domain::new(4).unwrap();
    let running = Arc::new(AtomicBool::new(true));
    thread::scope(|scope| {
        // Another thread queues without end: at any fork it may hold the inbox's lock.
        let (busy, until) = (&domain, Arc::clone(&running));
        scope.spawn(move || {
            while until.load(Ordering::Relaxed) {
                busy.call(Grace::Normal, || ());
                if busy.stats().waiting > 1000 {
                    busy.barrier().unwrap();
                }
            }
        });
        for _ in 0..50 {
            let handle = domain.clone();
            let status = in_a_child(|| {
                drop(handle);
                domain.call(Grace::Both, || ());
                i32::from(domain.is_original())
            });
            assert_eq!(status, 0);
        }
        running.store(false, Ordering::Relaxed);
    });
}

#[test]
fn a_child_made_inside_a_section_leaves_it_like_the_parent() {
    let domain = Domain::new(2).unwrap();
    let section = domain.enter().unwrap();
    let status = in_a_child(|| {
        drop(section);
        domain.enter().unwrap().number() as i32
    });
    assert_eq!(status, 0);
}

/// A reader for the handler below; entered once before, as the documentation asks.
static HANDLED: LazyLock<Domain> = LazyLock::new(|| Domain::new(64).unwrap());
static SIGNALS: AtomicU64 = AtomicU64::new(0);
static IN_KEEPER: AtomicBool = AtomicBool::new(false);

extern "C" fn handler(_: libc::c_int) {
    if thread::current().name() == Some("skep-keeper") {
        IN_KEEPER.store(true, Ordering::Relaxed);
    }
    let outer = HANDLED.enter().unwrap();
    let inner = HANDLED.enter_sleepable().unwrap();
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    drop((outer, inner));
}

#[test]
fn sections_of_signal_handlers_nest_with_those_they_interrupt() {
    let status = in_a_child(|| {
        let domain = &*HANDLED;
        drop(domain.enter().unwrap());
        // SAFETY: a handler that only enters and leaves, and a timer that calls it often.
        unsafe {
            libc::signal(libc::SIGALRM, handler as *const () as libc::sighandler_t);
            let often = libc::timeval { tv_sec: 0, tv_usec: 100 };
            let timer = libc::itimerval { it_interval: often, it_value: often };
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        }
        let reader = domain.reader().unwrap();
        while SIGNALS.load(Ordering::Relaxed) < 2000 {
            let outer = reader.enter();
            let cookie = domain.cookie();
            reader.read(|| ());
            assert!(!domain.try_pass(cookie, Grace::Normal), "a handler ended the section");
            drop(outer);
            assert!(domain.try_pass(cookie, Grace::Normal), "a handler left a section behind");
        }
        3
    });
    assert_eq!(status, 3);
}

#[test]
fn the_keeper_handles_no_signal_of_the_process() {
    let status = in_a_child(|| {
        let domain = &*HANDLED;
        drop(domain.enter().unwrap());
        let (running, done) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (at, until) = (Arc::clone(&running), Arc::clone(&done));
        domain.defer(move || {
            at.wait();
            until.wait();
        });
        running.wait();
        // This thread blocks the signal; the only other one is the keeper, which would have to take it.
        // SAFETY: plain signal calls on this process, which has no other use for SIGUSR1.
        let pending = unsafe {
            libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::kill(libc::getpid(), libc::SIGUSR1);
            let mut pending = std::mem::zeroed::<libc::sigset_t>();
            libc::sigpending(&raw mut pending);
            libc::sigismember(&raw const pending, libc::SIGUSR1)
        };
        done.wait();
        domain.barrier().unwrap();
        assert_eq!(SIGNALS.load(Ordering::Relaxed), 0);
        assert!(!IN_KEEPER.load(Ordering::Relaxed));
        pending + 3
    });
    assert_eq!(status, 4, "the signal waits for a thread that wants it");
}

/// A child's status if system calls cannot be forbidden.
const CANNOT_FORBID: i32 = 77;

/// Makes membarrier(2) fail with EPERM in this process from now on. Ends the process if the system has no seccomp
/// filters.
fn forbid_membarrier() {
    let load = |offset: u32| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let unless = |value: u32, skip: u8| libc::sock_filter { code: 0x15, jt: 0, jf: skip, k: value };
    let answer = |value: u32| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: value };
    let mut program = [
        load(0),
        unless(libc::SYS_membarrier as u32, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: a valid filter for this process alone. TSYNC: for all its threads.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let tsync = libc::SECCOMP_FILTER_FLAG_TSYNC;
        let done = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, tsync, &raw const filter);
        if done != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            libc::_exit(CANNOT_FORBID);
        }
        assert_eq!(done, 0);
    }
}

#[test]
fn where_membarrier_is_refused_readers_fence_and_everything_works() {
    let status = in_a_child(|| {
        forbid_membarrier();
        let domain = Domain::new(4).unwrap();
        assert!(!domain.stats().membarrier);
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        domain.call(Grace::Both, move || runs.store(true, Ordering::Relaxed));
        domain.barrier().unwrap();
        domain.synchronize(Grace::Both).unwrap();
        domain.synchronize_expedited(Grace::Both).unwrap();
        i32::from(ran.load(Ordering::Relaxed)) + 5
    });
    if status == CANNOT_FORBID {
        return hidden(Hidden::SystemCallFilters, "a domain where membarrier is refused");
    }
    assert_eq!(status, 6);
}

#[test]
fn when_membarrier_is_taken_away_waiting_is_an_error() {
    let status = in_a_child(|| {
        let domain = Domain::new(4).unwrap();
        if !domain.stats().membarrier {
            return 8; // as good: there was nothing to take away
        }
        domain.barrier().unwrap();
        forbid_membarrier();
        let refused = Err(Error::Membarrier { errno: libc::EPERM });
        let cookie = domain.cookie();
        assert!(!domain.try_pass(cookie, Grace::Normal));
        assert_eq!(domain.synchronize(Grace::Normal), refused);
        assert_eq!(domain.synchronize_expedited(Grace::Normal), refused);
        domain.call(Grace::Normal, || unreachable!("no grace period can be proved"));
        assert_eq!(domain.barrier(), refused);
        assert!(domain.stats().membarrier_failures >= 3);
        let text = domain.barrier().unwrap_err().to_string();
        assert!(text.contains("seccomp") && text.contains("membarrier(false)"), "{text}");
        8
    });
    if status == CANNOT_FORBID {
        return hidden(Hidden::SystemCallFilters, "a domain from which membarrier is taken away");
    }
    assert_eq!(status, 8);
}
